"""What a task of each SLURM script runs; ``make slurm-test`` proves them under SLURM itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.scripts import ROOT

TOLD = f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"


@pytest.mark.parametrize(
    ("script", "command"), [("train", ["train.py", "--multirun"]), ("generate", ["generate.py"])]
)
def test_a_task_makes_its_part_with_the_words_as_given(tmp_path, script, command):
    for name, content in {"srun": '#!/bin/sh\nexec "$@"\n', "told": TOLD}.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    words = ["arm=with spaces", "data.source=a b.jsonl", "seed=1,2"]
    environment = {
        **os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": str(tmp_path / "told"),
        "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "7",
    }  # fmt: skip
    said = subprocess.run(
        ["bash", ROOT / "sweeps" / f"{script}.sbatch", *words],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert json.loads(said) == [*command, "part=3", "parts=7", *words]
