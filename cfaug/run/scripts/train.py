"""Fine-tune a vision-language model on an exact mixture of real and counterfactual pairs.

python train.py data.cf_ratio=0.6 seed=107
python train.py data.cf_ratio=0.6 dry_run=true
python train.py data=folder data.real=FOLDER data.counterfactual=FOLDER data.cf_ratio=0.6
python train.py --multirun data.cf_ratio=0,0.3,0.6 seed=107,108,109
python train.py --multirun sweep=sweeps/ratio_curve.yaml
python train.py --multirun sweep=sweeps/ratio_curve.yaml share_image_cache=true parallel=2
python train.py --multirun sweep=sweeps/ratio_curve.yaml dry_run=true   # the state of each run
"""

from __future__ import annotations

from collections.abc import Sequence

from cfaug.core.processes import find_folder
from cfaug.planning.training import TrainSettings
from cfaug.run.launch import Script, launch
from cfaug.run.train import run_jobs

SCRIPT = Script("train", TrainSettings, run_jobs, find_folder("conf"), __doc__ or "")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return launch(SCRIPT, argv)
