"""Make counterfactual image-text sets: edit captions, draw both images, keep the best by CLIP.

python generate.py
python generate.py limit=20 paths.shards=shards/try
python generate.py zoo=captions stage=captions data.source=captions.jsonl
python generate.py zoo=paper data.source=captions.jsonl part=0 parts=16
"""

from __future__ import annotations

from collections.abc import Sequence

from cfaug.core.processes import find_folder
from cfaug.run.generate import GenerateSettings, run_jobs
from cfaug.run.launch import Script, launch

SCRIPT = Script("generate", GenerateSettings, run_jobs, find_folder("conf"), __doc__ or "")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return launch(SCRIPT, argv)
