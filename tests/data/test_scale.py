"""Ten million rows: planned in the time of a few sorts, within a GiB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cfaug.core.pixels import DIGEST_BYTES
from cfaug.data.index.disk_format import DIGESTS, NUMBERS

PLAN = """
import json, sys, time
import numpy as np
from pathlib import Path
from cfaug.data.index import Index
from cfaug.data.mixture.mixture import plan_mixture
from cfaug.data.mixture.order import epoch_order
from cfaug.run.run_folder import peak_rss_mib

indexes = [Index(Path(folder), folder, "synthetic", folder) for folder in sys.argv[1:3]]
# One thread: seconds of CPU are what an idle core takes, whatever else the machine does.
started = time.process_time()
plan = plan_mixture(*indexes, cf_ratio=0.6, size=None, seed=108)
order = epoch_order(
    plan, data_seed=108, seed=107, epoch=0, batch_size=64, **json.loads(sys.argv[3])
)
seconds = time.process_time() - started
peak = peak_rss_mib()  # not ru_maxrss, which a child inherits from the process that started it
# What the machine takes to sort as many numbers: the measure of what it can do.
numbers = np.random.default_rng(0).permutation(sum(map(len, indexes)))
started = time.process_time()
numbers.argsort(kind="stable")
sorting = time.process_time() - started
found = {"counts": plan.counts, "n": len(order), "seconds": seconds, "sorting": sorting}
print(json.dumps({**found, "peak_mib": peak}))
"""


def write_index(folder: Path, rows: int, members: int) -> Path:
    """Write the columns a plan reads, as a scan would."""
    folder.mkdir()
    sets = np.arange(rows) // members
    columns = {
        "sets": sets,
        "groups": sets.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15),
        "file": np.arange(rows) // 10_000,
        "images": np.arange(rows),
    }
    for name, column in columns.items():
        np.save(folder / f"{name}.npy", column.astype(NUMBERS[name]))
    digests = np.random.default_rng(rows).integers(0, 256, (rows, DIGEST_BYTES), np.uint8)
    digests[members] = digests[
        0
    ]  # two groups are joined, which takes every step that this can take
    np.save(folder / f"{DIGESTS}.npy", digests)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("scale")
    return [
        str(write_index(root / "real", 4_000_000, 1)),
        str(write_index(root / "counterfactual", 6_000_000, 2)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [{}, {"stratify": True}])
def test_ten_million_rows(folders, mode):
    done = subprocess.run(
        [sys.executable, "-c", PLAN, *folders, json.dumps(mode)],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    found = json.loads(done.stdout)
    print(found)
    assert found["n"] == 8_000_000
    assert found["counts"]["counterfactual"] == 4_800_000
    assert found["seconds"] < 10 * found["sorting"]
    assert found["peak_mib"] < 1024
