"""Make counterfactual image-text sets: ``python generate.py limit=6``, or --help."""

import sys

from cfaug.run.scripts.generate import main

if __name__ == "__main__":
    sys.exit(main())
