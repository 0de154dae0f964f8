"""Shards made on first use: once, whatever the number of processes, and never half."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.data.shards.shards import read_sets
from cfaug.shapescapes.parts import ensure, make_part, part_folder
from cfaug.shapescapes.settings import WorldSettings

SMALL = WorldSettings(seed=9, counterfactual_pairs=30)
COMMAND = """
import sys
from pathlib import Path
from cfaug.shapescapes.settings import WorldSettings
from cfaug.shapescapes.parts import ensure
print(ensure(WorldSettings(seed=9, counterfactual_pairs=int(sys.argv[2])), "counterfactual",
             Path(sys.argv[1])))
"""


def start(root: Path, pairs: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(root), str(pairs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_shards_hold_the_part_and_are_made_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ensure(SMALL, "counterfactual", tmp_path)
    assert folder == part_folder(SMALL, "counterfactual", tmp_path)
    assert folder.parent.name == f"shapescapes-{SMALL.content_hash()}"
    assert "drawing 30 sets" in capsys.readouterr().err
    stored = list(read_sets(folder))
    drawn = list(make_part(SMALL, "counterfactual"))
    assert [item.key for item in stored] == [item.key for item in drawn]
    assert [m.text for s in stored for m in s.members] == [m.text for s in drawn for m in s.members]
    assert [b for s in stored for b in s.images.values()] == [
        b for s in drawn for b in s.images.values()
    ]
    ensure(SMALL, "counterfactual", tmp_path)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_many_processes_at_once_make_it_once(tmp_path: Path) -> None:
    running = [start(tmp_path, 200) for _ in range(6)]
    results = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0] * 6
    assert len({out for out, _ in results}) == 1
    assert sum("drawing 200 sets" in err for _, err in results) == 1
    folder = Path(results[0][0].strip())
    assert len(list(read_sets(folder))) == 200
    assert [path.name for path in folder.parent.iterdir() if path.suffix in {".new", ".old"}] == []


def test_a_killed_maker_leaves_nothing_half_made(tmp_path: Path) -> None:
    process = start(tmp_path, 100_000)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*/.counterfactual.new")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    killed = WorldSettings(seed=9, counterfactual_pairs=100_000)
    assert not part_folder(killed, "counterfactual", tmp_path).exists()
    # The same folder of another size: the one left behind is swept away by the next maker.
    left_behind = next(tmp_path.glob("*/.counterfactual.new"))
    target = part_folder(SMALL, "counterfactual", tmp_path)
    target.parent.mkdir(parents=True)
    left_behind.rename(target.parent / left_behind.name)
    assert len(list(read_sets(ensure(SMALL, "counterfactual", tmp_path)))) == 30
    assert list(target.parent.glob("*.new")) == []


def test_a_root_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(UserError, match="file"):
        ensure(SMALL, "real", blocked)
