"""`python -m pump`: the same as the command `pump`."""

from .cli import main

if __name__ == "__main__":
    main()
