"""Evaluate runs or checkpoints, test whether arms differ: ``python evaluate.py``, or --help."""

import sys

from cfaug.run.scripts.evaluate import main

if __name__ == "__main__":
    sys.exit(main())
