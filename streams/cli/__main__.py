"""`python -m streams.cli`: the same as `headrace`."""

import sys

from streams.cli import main

if __name__ == "__main__":
    sys.exit(main())
