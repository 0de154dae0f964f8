"""Evaluate runs or checkpoints, test whether arms differ: ``python evaluate.py``, or --help."""

from cfaug.core.errors import exit_with
from cfaug.run.evaluate import main

if __name__ == "__main__":
    exit_with(main())
