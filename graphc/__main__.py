"""`python -m graphc`."""

from graphc.cli import main

if __name__ == "__main__":
    main()
