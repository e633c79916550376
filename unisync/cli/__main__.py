"""`python -m unisync.cli`, for where the script is not on the path."""

from unisync.cli import main

main()
