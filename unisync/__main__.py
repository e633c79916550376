"""`python -m unisync`: the command line, for where the script is not on the path."""

from unisync.cli import main

if __name__ == "__main__":
    main()
