from __future__ import annotations

import os

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.processes import SPINS, use_threads, wait_briefly


@pytest.fixture
def one_thread_again():
    before = os.environ.get("OMP_NUM_THREADS")
    yield
    torch.set_num_threads(1)
    if before is not None:
        os.environ["OMP_NUM_THREADS"] = before


def test_threads_hold_for_torch_and_for_processes_to_come(one_thread_again):
    use_threads(2)
    assert torch.get_num_threads() == 2
    assert os.environ["OMP_NUM_THREADS"] == "2"
    use_threads(None)
    assert torch.get_num_threads() == 2
    with pytest.raises(UserError, match=r"threads=0 should .* or null \(all cores\)"):
        use_threads(0)


def test_threads_soon_sleep_when_they_wait_unless_the_user_says_otherwise(monkeypatch):
    for given, spins in (
        ({}, SPINS), ({"OMP_WAIT_POLICY": "ACTIVE"}, None), ({"GOMP_SPINCOUNT": "5"}, "5"),
    ):  # fmt: skip
        for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        wait_briefly()
        assert os.environ.get("GOMP_SPINCOUNT") == spins
    assert int(SPINS) < 10_000


def test_a_run_that_goes_on_with_other_threads_says_so(place, capsys, monkeypatch):
    from cfaug.train.contrastive_module import ContrastiveModule

    words = ["data.cf_ratio=0", "seed=1", "trainer.save_every_steps=1"]
    step = ContrastiveModule.training_step

    def killed(module, *batch):
        if module.global_step == 2:
            raise RuntimeError("killed")
        return step(module, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(ContrastiveModule, "training_step", killed)
        assert place.train(*words) == 1
    capsys.readouterr()
    monkeypatch.setattr("cfaug.run.run_folder.threads", lambda: 9)
    assert place.train(*words) == 0
    said = "resumed with 9 threads, and began with 1: the last bits may differ; threads=1"
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_is_recorded_with_its_threads_and_is_the_same_run(place, capsys, one_thread_again):
    words = ["data.cf_ratio=0", "seed=1", "trainer.max_steps=1"]
    assert place.train(*words, "threads=2") == 0
    assert place.record(seed=1)["threads"] == 2
    assert place.train(*words, "threads=1") == 0
    assert "already done" in capsys.readouterr().out
    assert place.train(*words, "threads=0") == 2
    assert "threads=0" in capsys.readouterr().err
    assert place.train(*words, "threads=1.5") == 2
    assert place.evaluate("name=main", "threads=0") == 2
    assert "threads=0" in capsys.readouterr().err
