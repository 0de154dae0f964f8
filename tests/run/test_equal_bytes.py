"""What docs/equal-bytes.md promises, with one thread and two: generation, training, evaluation."""

from __future__ import annotations

import os
import shutil
import signal
import time

import pytest

from cfaug.report.results import read_results
from cfaug.run import generate
from tests import children, skips
from tests.run.conftest import Place, output_of
from tests.run.test_ray_engine import contents

pytestmark = pytest.mark.slow

try:
    import ray
except ModuleNotFoundError:
    ray = None

BY_RAY = ["engine=ray", "engine.workers=2"]
BOTH_PARTS = ["--multirun", "part=0,1", "parts=2"]
DRAWN = [
    "limit=2", "shards.sets_per_shard=1", "recipe.draws.candidates=2",
    "recipe.image_editor.steps=3",
    "recipe.selection.min_clip_text=-1", "recipe.selection.min_clip_image=-1",
    "recipe.selection.min_clip_direction=null",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cluster():
    if ray is None:
        skips.skip("ray")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    yield
    ray.shutdown()


def test_shards_have_equal_bytes_however_they_are_made(tmp_path, script, monkeypatch):
    """A convolution of the decoder takes another kernel with one thread, and scores differed."""
    make, words = script("generate"), [*DRAWN, f"paths.worlds={tmp_path / 'worlds'}"]

    def make_in(name: str, *more: str) -> dict[str, bytes]:
        assert make([*words, f"paths.shards={tmp_path / name}", *more]) == 0
        return contents(tmp_path / name)

    alone = make_in("alone")
    assert len([name for name in alone if name.endswith((".tar", ".parquet"))]) == 4
    assert make_in("one thread", "threads=1") == alone
    assert make_in("parallel", *BOTH_PARTS, "parallel=2") == alone
    shutil.copytree(tmp_path / "alone", tmp_path / "ray")
    for file in (tmp_path / "ray").glob("0*"):  # the captions stay: Ray starts once, not twice
        file.unlink()
    assert make_in("ray", *BY_RAY) == alone
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert make_in("parts", *BOTH_PARTS) == alone

    killed = tmp_path / "killed"
    child = children.start(generate.main, [*words, f"paths.shards={killed}"])
    while child.is_alive() and not (killed / "00000.json").exists():
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert make_in("killed", "threads=1") == alone


def weights(place: Place) -> list[bytes]:
    return [place.weights(seed=seed) for seed in (1, 2)]


def answers(place: Place) -> tuple[list[float], list[bytes]]:
    """Return the numbers of an evaluation of both seeds, and its items."""
    folders = [place.folder(seed=seed) for seed in (1, 2)]
    rows = [row for folder in folders for row in read_results(folder / "results.jsonl")]
    items = [file for folder in folders for file in sorted((folder / "items").glob("*.parquet"))]
    assert len(items) == 2
    return [row.value for row in rows], [file.read_bytes() for file in items]


def test_runs_and_their_evaluations_have_equal_bytes_with_equal_threads(tmp_path, shards, script):
    def place(name: str) -> Place:
        return Place(tmp_path / name, shards, script)

    seeds = ["--multirun", "seed=1,2"]
    single, two, parallel, by_ray, killed = map(place, ("1", "2", "parallel", "ray", "killed"))
    assert single.train(*seeds, "threads=1") == 0
    assert two.train(*seeds, "threads=2") == 0
    assert parallel.train(*seeds, "threads=2", "parallel=2") == 0
    assert by_ray.train(*seeds, "threads=2", *BY_RAY) == 0
    assert weights(two) == weights(parallel) == weights(by_ray)

    log = killed.folder(seed=1) / "metrics.csv"
    children.kill_at_line(log, 3, killed.train, "seed=1", "threads=1", "trainer.log_every_steps=1")
    assert killed.train(*seeds, "threads=1") == 0
    assert weights(killed) == weights(single)

    asked = ["benchmark=retrieval", "benchmark.data=shapescapes:id", "evaluate_initial=false"]
    asked.append("feature_cache=0")
    assert two.evaluate(*asked, "threads=2") == 0
    said = output_of(by_ray.evaluate, *asked, "threads=2", *BY_RAY)[0]
    assert "already evaluated" not in said
    assert parallel.evaluate(*asked, "threads=1") == 0
    assert answers(by_ray) == answers(two)
    assert answers(parallel)[0] == pytest.approx(answers(two)[0], abs=0.05)  # near ties may turn

    assert place("devices").train(*seeds, "engine=ray", "trainer.devices=2") == 2
