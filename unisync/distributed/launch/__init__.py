"""Starting the processes of a launched world, watching them, and ending all of them when one fails."""
