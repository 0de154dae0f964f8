"""Few skips are allowed where a run says so, and no property has a limit of time."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, settings

from tests import skips
from tests.scripts import ROOT

TESTS = """
import pytest
from tests import skips

def test_that_runs():
    pass

def test_of_a_page():
    skips.skip("browser")

def test_of_a_library():
    skips.skip("ray")

@pytest.mark.skipif(True, reason="nobody knows")
def test_of_nothing():
    pass

@pytest.mark.xfail(strict=True, raises=ZeroDivisionError)
def test_that_fails_as_expected():
    1 / 0
"""


@pytest.mark.slow
@pytest.mark.parametrize(("allowed", "failed"), [(None, 0), ("browser", 2)])
def test_only_allowed_skips_pass(tmp_path, allowed, failed):
    file = tmp_path / "test_skipped.py"
    file.write_text(TESTS)
    environment = {key: value for key, value in os.environ.items() if key != skips.ALLOWED}
    environment |= {"PYTHONPATH": str(ROOT)} | ({} if allowed is None else {skips.ALLOWED: allowed})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:xdist",
         "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path), str(file)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == (1 if failed else 0), done.stdout
    counts = dict.fromkeys(("failed", "error", "skipped", "passed", "xfailed"), 0)
    last = done.stdout.splitlines()[-1]
    counts |= {name.removesuffix("s"): int(n) for n, name in re.findall(r"(\d+) ([a-z]+)", last)}
    assert counts["failed"] + counts["error"] == failed  # an error: skipped before it was called
    assert (counts["skipped"], counts["passed"], counts["xfailed"]) == (3 - failed, 1, 1)
    assert ("forbids: nobody knows" in done.stdout) == bool(failed)


def test_no_example_is_timed():
    for profile in (settings(), settings(max_examples=5)):
        assert profile.deadline is None
        assert HealthCheck.too_slow in profile.suppress_health_check


def test_no_test_sets_a_time_of_its_own(request):
    timed = []
    for item in request.session.items:
        declared = getattr(
            getattr(item, "function", None), "_hypothesis_internal_use_settings", None
        )
        if declared is not None and declared.deadline is not None:
            timed.append(item.nodeid)
    assert not timed
