"""Packed runs: the bytes of solo runs, with every image decoded once."""

from __future__ import annotations

import csv
import shutil
import sys

import pytest
import torch

import cfaug.data.mixture.loader
from cfaug.run import parallel
from tests import children

WORDS = ["-m", "seed=1,2,3", "data.seed=9", "data.cf_ratio=0.6", "trainer.val_every_steps=2"]


@pytest.fixture(autouse=True)
def own_memory(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    parallel._of_this_process.cache_clear()
    yield
    parallel._of_this_process.cache_clear()


def bytes_of(place, arm):
    """Return what each seed's run left: weights, and the log without its clock."""
    found = {}
    for seed in (1, 2, 3):
        folder = place.root / "main" / arm / f"seed={seed}"
        with (folder / "metrics.csv").open() as handle:
            rows = [{**row, "seconds": None} for row in csv.DictReader(handle)]
        assert len(rows) == 3
        found[seed] = ((folder / "checkpoint/model.safetensors").read_bytes(), rows)
    return found


@pytest.fixture
def decoded(monkeypatch):
    names = []

    def watched(data, name):
        names.append(name)
        return cfaug.core.pixels.decode_image(data, name)

    monkeypatch.setattr(cfaug.data.mixture.loader, "decode_image", watched)
    return names


@pytest.mark.slow
def test_packed_runs_equal_solo_runs_and_decode_every_image_once(place, decoded, capfd):
    assert place.train(*WORDS, "arm=solo") == 0
    alone = len(decoded)
    decoded.clear()
    assert place.train(*WORDS, "arm=packed", "share_image_cache=true") == 0
    assert len(decoded) == len(set(decoded)) < alone
    solo = bytes_of(place, "solo")
    assert bytes_of(place, "packed") == solo
    for seed in (1, 2, 3):
        hashes = {place.record(arm, seed)["config_hash"] for arm in ("solo", "packed")}
        assert len(hashes) == 1
    # What is done is skipped; what was cut off or lost is made again, alone or packed.
    shutil.rmtree(place.root / "main" / "packed" / "seed=2")
    before = place.record("packed", 1)
    assert place.train(*WORDS, "arm=packed", "share_image_cache=true", "image_cache_mib=1") == 0
    assert place.record("packed", 1) == before
    assert bytes_of(place, "packed") == solo


@pytest.mark.parametrize(
    "word", ["share_image_cache=2", "image_cache_mib=0", "image_cache_mib=true", "on_error=ignore"]
)
def test_what_cannot_be_is_refused(place, capfd, word):
    assert place.train(word) == 2
    assert word.lower().split("=")[0] in capfd.readouterr().err
    assert not place.root.exists()


def exit_with(place, words):
    sys.exit(place.train(*words))


@pytest.mark.slow
def test_a_killed_pack_goes_on_where_it_was(place, capfd):
    torch.set_num_threads(1)
    words = ["-m", "seed=1,2,3", "data.seed=9", "share_image_cache=true"]
    words += ["trainer.max_steps=8", "trainer.save_every_steps=1"]
    assert place.train(*words, "arm=whole") == 0
    log = place.root / "main/cut/seed=2/metrics.csv"
    children.kill_at_line(log, 4, exit_with, place, [*words, "arm=cut"])
    first = place.record("cut", 1)
    assert first["state"] == "done"
    assert not (place.root / "main/cut/seed=3").exists()

    assert place.train(*words, "arm=cut") == 0
    assert place.record("cut", 1) == first
    assert len(place.record("cut", 2)["attempts"]) == 2
    for seed in (1, 2, 3):
        whole, cut = (
            place.root / "main" / arm / f"seed={seed}/checkpoint/model.safetensors"
            for arm in ("whole", "cut")
        )
        assert whole.read_bytes() == cut.read_bytes()
