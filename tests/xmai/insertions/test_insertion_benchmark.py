"""``benchmarks/insertion.py`` at smallest size: sweeps are read, run and counted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "insertion.py"


@pytest.mark.slow
def test_where_masks_stand_alone_a_sweep_asks_little_more_than_its_dearest_setting():
    options = ["--only", "sweeps", "--rounds", "1", "--count", "6", "--threads", "1"]
    done = subprocess.run(
        [sys.executable, SCRIPT, *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("xmai_")]
    assert len(lines) == 6
    alone = [line for line in lines if "context=alone" in line]
    assert len(alone) == 3
    for line in alone:
        times = re.search(r"\((.+) times the guesses, (.+) times the distances", line)
        assert float(times[1]) == 1.0
        assert float(times[2]) < 1.1
    assert "14 settings" in lines[0]
