"""Hydra's submitit launcher, with the executor that needs no cluster."""

from __future__ import annotations

import pytest

from tests.run.conftest import files, generation


@pytest.mark.slow
def test_a_sweep_through_submitit_makes_the_same_runs(place, capfd):
    words = ["seed=1,2", "trainer.max_steps=2"]
    assert place.train("-m", "hydra/launcher=submitit_local", "arm=launched", *words) == 0
    assert place.train("-m", "arm=plain", *words) == 0
    for seed in (1, 2):
        launched, plain = (place.record(arm, seed) for arm in ("launched", "plain"))
        assert launched["state"] == "done"
        assert launched["config_hash"] == plain["config_hash"]


@pytest.mark.slow
def test_parts_through_submitit_make_the_bytes_of_one_run(
    tmp_path, generate, script, shards, pipeline
):
    words = generation(tmp_path / "launched", shards, pipeline)
    launcher = [
        "hydra/launcher=submitit_local", f"hydra.launcher.submitit_folder={tmp_path / 'submitit'}"
    ]  # fmt: skip
    assert script("generate")(["-m", *launcher, "part=0,1", "parts=2", *words]) == 0
    assert generate()[0] == 0
    made = files(tmp_path / "launched")
    assert {"card.json", "gallery.html", "00002.tar"} <= set(made)
    assert made == files(tmp_path / "out")


@pytest.mark.slow
def test_a_launcher_without_a_sweep_and_a_mistyped_key_are_told_before_anything_starts(
    place, capfd
):
    assert place.train("hydra/launcher=submitit_local") == 2
    assert "--multirun" in capfd.readouterr().err
    assert place.train("-m", "hydra/launcher=submitit_local", "seed=1,2", "sed=3") == 2
    assert "did you mean seed?" in capfd.readouterr().err
    assert not place.root.exists()
