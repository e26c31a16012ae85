"""`python -m bayes_ecc.cli` is `bayes-ecc`."""

import sys

from bayes_ecc.cli import main

if __name__ == "__main__":
    sys.exit(main())
