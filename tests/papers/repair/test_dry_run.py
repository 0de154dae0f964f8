"""A dry run with failures that are missing."""

from __future__ import annotations

import pytest

from tests.run.conftest import refusal
from tests.run.test_dry_run import DRAWN
from tests.scripts import load


@pytest.mark.slow
@pytest.mark.parametrize("dry", ["true", "false"])
def test_a_file_of_failures_that_is_missing_is_refused_before_anything_is_made(tmp_path, dry):
    shards = tmp_path / "made"
    words = ["recipe=repair_test_oracle", f"data.failures={tmp_path}/none.jsonl", "limit=2",
             *DRAWN, f"paths.worlds={tmp_path}/world", f"paths.shards={shards}",
             f"dry_run={dry}"]  # fmt: skip
    assert "none.jsonl" in refusal(load("generate"), words)
    assert not list(shards.rglob("*.json*"))
