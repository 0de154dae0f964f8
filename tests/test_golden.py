"""tools/golden.py: the same commands write the same bytes, and a changed byte is found."""

from __future__ import annotations

import pytest

from tests import children
from tests.contracts.test_benchmarks import ELSEWHERE as TARGET
from tests.contracts.test_benchmarks import check_runs
from tests.test_docs import read_costs
from tools import golden


def test_every_page_of_the_makefile_has_golden_commands():
    targets = set(golden.read_commands())
    assert targets == set(read_costs()) - {"editors", "repair"}


def make(folder):
    """Make one page twice."""
    for name in ("before", "after"):
        golden.run(folder / name, [TARGET])


@pytest.mark.slow
def test_the_same_commands_write_the_same_bytes_and_a_changed_byte_is_found(tmp_path):
    """``tests/contracts/test_benchmarks.py`` makes the other pages."""
    child = children.start(make, tmp_path)
    child.join()
    assert child.exitcode == 0
    before, after = tmp_path / "before", tmp_path / "after"
    assert golden.compare(before, after) == []
    check_runs(after)
    assert len(golden.read_outputs(after)) > 10
    items = sorted(after.rglob("*.parquet"))[0]
    items.unlink()
    page = sorted(after.rglob("report.html"))[0]
    page.write_bytes(page.read_bytes().replace(b"a", b"b", 1))
    lines = golden.compare(before, after)
    assert [line.partition(":")[0] for line in lines] == ["different", "missing"]
