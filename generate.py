"""Make counterfactual image-text sets: ``python generate.py limit=6``, or --help."""

from cfaug.core.errors import exit_with
from cfaug.run.generate import main

if __name__ == "__main__":
    exit_with(main())
