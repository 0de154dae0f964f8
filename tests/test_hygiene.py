from __future__ import annotations

import subprocess
import sys

from tests.hygiene import ROOT, problems, tracked

LIGHT = (
    "cfaug.run.launch", "cfaug.run.run_plan", "cfaug.run.train", "cfaug.run.evaluate",
    "cfaug.data.index",
    "cfaug.data.mixture.mixture", "cfaug.data.mixture.settings",
    "cfaug.models.specs", "cfaug.train.settings",
    "cfaug.evaluation.suites", "cfaug.report.results", "cfaug.shapescapes",
)  # fmt: skip
HEAVY = (
    "torch",
    "transformers",
    "lightning",
    "open_clip",
    "diffusers",
    "matplotlib",
    "scipy.stats",
)


def test_tracked_files_are_clean():
    assert problems(tracked()) == []


def test_what_help_and_dry_run_import_stays_light():
    code = (
        f"import importlib, sys\nfor name in {LIGHT!r}: importlib.import_module(name)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"
