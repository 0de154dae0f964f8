r"""Evaluate finished runs, or any checkpoint, and test whether the arms differ.

python evaluate.py
python evaluate.py name=demo baseline=real
python evaluate.py table=coco_cf_3
python evaluate.py benchmark=retrieval benchmark.data=FOLDER
python evaluate.py weights=openai/clip-vit-base-patch32 model=clip_vit_b32 \
      benchmark=classification benchmark.data=FOLDER
python evaluate.py compare=[A.csv,B.csv]
python evaluate.py annotate=export data=folder data.counterfactual=FOLDER
"""

from __future__ import annotations

from collections.abc import Sequence

from cfaug.core.processes import find_folder
from cfaug.run.evaluate import EvaluateSettings, run_jobs
from cfaug.run.launch import Script, launch

SCRIPT = Script("evaluate", EvaluateSettings, run_jobs, find_folder("conf"), __doc__ or "")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return launch(SCRIPT, argv)
