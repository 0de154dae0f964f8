from __future__ import annotations

import os
import signal
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.models.specs import BridgeTower
from cfaug.train.contrastive_module import gather_all, share
from cfaug.train.settings import LossSettings, OptimSettings, TrainerSettings
from tests.models import tiny
from tests.train import tiny_plan

# A gradient that is zero in exact arithmetic (a key's bias) is rounding noise in floating point,
# and Adam with a small eps blows it up to a whole step. With this eps a step is linear in it.
OPTIM = OptimSettings(lr=1e-2, eps=1e-2)
SIZES = (16, 7, 1)  # split in halves, unequally, and with nothing for the second process
STEPS = 6


def train_and_save(folder, weights, **settings):
    encoder, start, _ = tiny_plan.train(
        folder, weights, sizes=SIZES, steps=STEPS, optim=OPTIM, save_every_steps=5, **settings
    )
    torch.save(encoder.state_dict(), folder / f"start={start}.pt")


def torchrun(entry, *arguments):
    """What the command torchrun does, from an interpreter that has imported everything."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, start_method="forkserver", run_id="test",
        rdzv_backend="c10d", rdzv_endpoint="localhost:0", monitor_interval=0.1, max_restarts=0,
    )  # fmt: skip
    names = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    handlers = {name: signal.getsignal(name) for name in names}
    try:
        return elastic_launch(config, entry)(*arguments)
    finally:
        for name, handler in handlers.items():  # torchrun expects to end with its command
            signal.signal(name, handler)


def train_until_rank_1_is_told_to_stop(folder, weights):
    from cfaug.train.contrastive_module import ContrastiveModule

    step = ContrastiveModule.training_step

    def told_at_the_fourth(module, *batch):
        if module.global_rank == 1 and module.global_step == 3:
            signal.raise_signal(signal.SIGTERM)
        return step(module, *batch)

    ContrastiveModule.training_step = told_at_the_fourth
    with pytest.raises(KeyboardInterrupt):
        tiny_plan.train(folder, weights, sizes=SIZES, steps=STEPS, optim=OPTIM)


def difference(first, second):
    first, second = (torch.load(path, weights_only=True) for path in (first, second))
    return max((first[k].double() - second[k].double()).abs().max().item() for k in first)


def everything(folder, weights, **settings):
    """As ``train_and_save``, with whatever a process does by itself or has a share of.

    Which rows a pair's weight is of must not depend on the processes. Of a batch's neutral prompts,
    and of what has no partner, each process encodes some, perhaps none. Every process averages for
    itself, and Lightning's callbacks watch. The two processes have a strategy of Lightning's own.
    """
    from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
    from lightning.pytorch.strategies import DDPStrategy

    watching = {
        "stop": partial(EarlyStopping, "val/loss", patience=99),
        "rates": LearningRateMonitor,
        "saves": partial(ModelCheckpoint, monitor="val/loss", enable_version_counter=False),
    }
    if "WORLD_SIZE" in os.environ:
        settings["strategy"] = partial(DDPStrategy, gradient_as_bucket_view=True, static_graph=True)
    loss = LossSettings(
        "masked", 3.0, set_invariance=2.0, negative_captions="used", negative_weight=2.0,
        intra_modal=0.5, ranking=1.0,
    )  # fmt: skip
    train_and_save(
        folder, weights, loss=loss, wrong_images=True, ema_decay=0.8, callbacks=watching,
        val_metrics=("recall@1", "text_to_image_recall@3"), **settings,
    )  # fmt: skip
    assert len(list((folder / "checkpoints").iterdir())) == 1


def bridgetower(folder, weights, **settings):
    train_and_save(folder, weights, spec=BridgeTower, **settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "save"), [(bridgetower, tiny.save_bridgetower), (train_and_save, tiny.save_siglip)]
)
def test_two_processes_train_other_models_as_one_does(tmp_path, entry, save):
    """Three features a batch; a bias of the logits."""
    weights = save(tmp_path / "weights")
    alone, both = (tmp_path / name / "arm" / "seed=1" for name in ("one", "two"))
    entry(alone, weights)
    torchrun(entry, both, weights)
    assert difference(alone / "start=0.pt", both / "start=0.pt") < 1e-5
    losses = [[float(row["train/loss"]) for row in tiny_plan.rows(f)] for f in (alone, both)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


@pytest.mark.slow
def test_two_processes_train_what_one_trains(tmp_path, weights):
    from cfaug.models.specs import HFClip

    alone, both = (tmp_path / name / "arm" / "seed=1" for name in ("one", "two"))
    everything(alone, weights)
    torchrun(everything, both, weights)
    assert difference(alone / "start=0.pt", both / "start=0.pt") < 1e-6
    torch.save(HFClip(str(weights)).load().state_dict(), tmp_path / "initial.pt")
    assert difference(tmp_path / "initial.pt", both / "start=0.pt") > 1e-3
    losses = [[float(row["train/loss"]) for row in tiny_plan.rows(f)] for f in (alone, both)]
    # Two processes sum in another order; some processors let 12 steps differ by 7e-6 of a loss.
    assert losses[0] == pytest.approx(losses[1], rel=2e-5, abs=1e-5)
    assert len(losses[1]) == STEPS  # rank 0 alone writes
    recalls = [[row.get("val/recall@1") for row in tiny_plan.rows(f)] for f in (alone, both)]
    assert recalls[0] == recalls[1]

    # A last.ckpt of two processes is gone on with by one.
    everything(both, weights, attempt=1)
    assert difference(alone / "start=0.pt", both / "start=5.pt") < 1e-6


@pytest.mark.slow
def test_all_processes_stop_with_the_one_that_is_told_to(tmp_path, weights):
    from cfaug.train.checkpoint import read_checkpoint

    folder = tmp_path / "arm" / "seed=1"
    torchrun(train_until_rank_1_is_told_to_stop, folder, weights)
    assert read_checkpoint(folder / "last.ckpt")["global_step"] == 4
    assert len(tiny_plan.rows(folder)) == 4


def test_processes_must_have_been_started():
    from cfaug.train.engine import placement

    with pytest.raises(UserError, match="torchrun --nproc-per-node=2"):
        placement(TrainerSettings(devices=2))


def test_the_placement_is_torchruns(monkeypatch):
    from cfaug.train.engine import placement

    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert placement(TrainerSettings())[1:] == (4, 2)
    with pytest.raises(UserError, match=r"trainer\.device=cpu .* torchrun"):
        placement(TrainerSettings(device="cpu"))


@given(size=st.integers(0, 300), world=st.integers(1, 9))
def test_shares_of_a_batch_are_numpys(size, world):
    shares = [share(size, rank, world) for rank in range(world)]
    assert shares == [len(part) for part in np.array_split(np.arange(size), world)]


def test_one_process_has_the_whole_batch():
    features = (torch.ones(3, 2), torch.zeros(3, 4))
    gathered = gather_all(features, 3)
    assert all(a is b for a, b in zip(features, gathered, strict=True))
