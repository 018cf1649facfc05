"""``python -m lcstore``: the same as ``lcstore``."""

from lcstore.cli import main

if __name__ == "__main__":
    main()
