"""``kill -9`` at thirty random instants: every byte is what it would have been."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.generate.tiny import contents

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("what", [[], ["grid"]], ids=["pairs", "grids"])
def test_thirty_kills_leave_no_trace(tmp_path: Path, what: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.generate.killing", str(tmp_path), "30", "0", *what],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["final"] == 0
    assert told["killed"] == 30
    assert told["inside"] >= 20  # between the first candidate and the last shard
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    assert not list((tmp_path / "cut").rglob("*.batch"))
    assert not list((tmp_path / "cut").rglob("*.tmp"))
