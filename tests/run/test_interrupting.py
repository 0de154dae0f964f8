"""SIGTERM to a real process, wherever it is: it ends soon, says what is saved, loses nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfaug.run.train import _describe_saved

ROOT = Path(__file__).resolve().parents[2]

SLOW = """
import runpy, sys, time

where, script, *words = sys.argv[1:]

def slow(owner, name):
    work = getattr(owner, name)
    def wait_first(*args, **kwargs):
        print(f"in {where}", file=sys.stderr, flush=True)
        time.sleep(0.3)
        return work(*args, **kwargs)
    setattr(owner, name, wait_first)

if where == "validation":
    import cfaug.train.contrastive_module as module
    work = module.ContrastiveModule.loss
    def loss(self, batch):
        if not self.encoder.training:
            print("in validation", file=sys.stderr, flush=True)
            time.sleep(0.3)
        return work(self, batch)
    module.ContrastiveModule.loss = loss
elif where == "training":
    import cfaug.train.job as job
    slow(job, "fit")
elif where == "scan":
    import cfaug.data.sources.folders as folders
    slow(folders, "check_image")
elif where == "evaluation":
    import cfaug.bench.embed as embed
    slow(embed, "decode_image")

sys.argv = [script, *words]
runpy.run_path(script, run_name="__main__")
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Sixty small photos with captions."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    lines = ["image,caption"]
    for number in range(60):
        pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:03d}.png")
        lines.append(f"{number:03d}.png,a photo of number {number}")
    (folder / "captions.csv").write_text("\n".join(lines) + "\n")
    return folder


class Command:
    """One script with its words, run slowly or as it is."""

    def __init__(self, here: Path, script: str, *words: str) -> None:
        self.here, self.script = here, str(ROOT / script)
        self.words = [*words, f"paths.runs={here}/runs", f"paths.cache={here}/cache"]

    def start(self, where: str) -> subprocess.Popen:
        file = self.here / "slow.py"
        self.here.mkdir(exist_ok=True)
        file.write_text(SLOW)
        return subprocess.Popen(
            [sys.executable, str(file), where, self.script, *self.words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def run(self) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, self.script, *self.words],
            capture_output=True, text=True, cwd=ROOT, check=True,
        )  # fmt: skip

    def stop_in(self, where: str) -> str:
        """Send SIGTERM once the process is there; return what it said until it ended."""
        process = self.start(where)
        for line in process.stderr:
            if line == f"in {where}\n":
                break
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
        assert err.count(f"in {where}\n") < 20  # of sixty photos
        assert process.returncode == 130
        assert "Traceback" not in err
        return err


def training(here: Path, photos: Path) -> Command:
    return Command(
        here, "train.py", "data=folder", f"data.real={photos}", "data.cf_ratio=0", "name=x",
        "arm=real", "trainer.max_steps=4", "trainer.val_every_steps=2", "data.batch_size=8",
        "trainer.progress=false", "trainer.accelerator=cpu",
    )  # fmt: skip


@pytest.mark.slow
def test_in_a_validation(tmp_path, photos):
    cut = training(tmp_path / "cut", photos)
    assert "is saved at step 2, and the same command goes on from there" in cut.stop_in(
        "validation"
    )
    whole = training(tmp_path / "whole", photos)
    runs = []
    for command in (cut, whole):
        command.run()
        folder = command.here / "runs/x/real/seed=0"
        runs.append((folder / "checkpoint/model.safetensors").read_bytes())
    assert runs[0] == runs[1]


def test_while_torch_is_loaded(tmp_path, monkeypatch):
    """Torch can be loaded only once: what is saved is told without it."""
    monkeypatch.setitem(sys.modules, "cfaug.train.checkpoint", None)
    assert "nothing was saved yet" in _describe_saved(tmp_path)
    (tmp_path / "last.ckpt").touch()
    assert "goes on from there" in _describe_saved(tmp_path)


@pytest.mark.slow
def test_in_a_scan(tmp_path, photos):
    command = training(tmp_path, photos)
    assert "interrupted: " in command.stop_in("scan")
    assert list((tmp_path / "cache").glob("*")) == []  # whole or not at all
    assert not list((tmp_path / "runs").rglob("run.json"))
    command.run()


@pytest.mark.slow
def test_in_an_evaluation(tmp_path, photos):
    def evaluation(here: Path) -> Command:
        return Command(
            here, "evaluate.py", "weights=zoo:clip-0", "benchmark=retrieval",
            f"benchmark.data={photos}", "device=cpu",
        )  # fmt: skip

    cut, whole = evaluation(tmp_path / "cut"), evaluation(tmp_path / "whole")
    assert "interrupted: what is complete is kept" in cut.stop_in("evaluation")
    assert not list(cut.here.rglob("results.jsonl"))
    results = []
    for command in (cut, whole):
        command.run()
        [file] = command.here.rglob("results.jsonl")
        results.append(file.read_bytes())
    assert results[0] == results[1]


@pytest.mark.slow
def test_an_interrupted_run_is_called_interrupted(tmp_path, photos):
    """N26: run.json and the list of a sweep said failed."""
    command = training(tmp_path, photos)
    command.stop_in("validation")
    record = tmp_path / "runs/x/real/seed=0/run.json"
    assert json.loads(record.read_text())["state"] == "interrupted"
    command.words.append("dry_run=true")
    assert "1 run: 1 interrupted" in command.run().stderr
    command.words.pop()
    command.run()
    finished = json.loads(record.read_text())
    assert finished["state"] == "done"
    assert [one["start_step"] for one in finished["attempts"]] == [0, 2]


@pytest.mark.slow
def test_a_cache_that_is_removed_is_named_and_the_same_command_goes_on(tmp_path, photos):
    """N25: a traceback of FileNotFoundError."""
    command = training(tmp_path, photos)
    process = command.start("training")
    for line in process.stderr:
        if line == "in training\n":
            break
    shutil.rmtree(tmp_path / "cache")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert f"error: the index {tmp_path}/cache/" in err
    assert "run the same command again" in err
    assert "Traceback" not in err
    assert "done: " in command.run().stdout
