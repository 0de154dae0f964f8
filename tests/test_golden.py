"""tools/golden.py: the same commands write the same bytes, and a changed byte is found."""

from __future__ import annotations

import pytest

from tests import children
from tests.contracts.test_benchmarks import check_runs
from tools import golden

TARGET = "cfmm"


def test_every_page_of_the_makefile_has_golden_commands():
    assert list(golden.read_commands()) == [
        "demo", "tables", "stress", "social", "xmai", "cfmm", "compositional",
    ]  # fmt: skip


def make(folder):
    """Make one page twice, and that of tables, of which the others are made elsewhere."""
    for name, target in (("before", TARGET), ("after", TARGET), ("tables", "tables")):
        golden.run(folder / name, [target])


@pytest.mark.slow
def test_the_same_commands_write_the_same_bytes_and_a_changed_byte_is_found(tmp_path):
    """``tests/contracts/test_benchmarks.py`` makes the other pages."""
    child = children.start(make, tmp_path)
    child.join()
    assert child.exitcode == 0
    assert any(name.endswith("report.html") for name in golden.read_outputs(tmp_path / "tables"))
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
