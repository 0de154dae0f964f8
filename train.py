"""Fine-tune a vision-language model: ``python train.py data.cf_ratio=0.6 seed=107``, or --help."""

from cfaug.core.errors import exit_with
from cfaug.run.train import main

if __name__ == "__main__":
    exit_with(main())
