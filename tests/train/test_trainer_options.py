"""Early stopping, half precision, the last state of a finished run, a longer run from it."""

from __future__ import annotations

import shutil
import signal

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.train.checkpoint import CheckpointCallback, read_checkpoint
from cfaug.train.engine import make_trainer
from cfaug.train.settings import (
    AnswerLoss,
    ClassLoss,
    LoggerSettings,
    LossSettings,
    OptimSettings,
    TrainerSettings,
)
from tests.train import tiny_plan
from tests.train.tiny_plan import folder_of, rows, same_weights

NEAR = {"steps": 12, "optim": OptimSettings(lr=1e-3, eps=1e-4)}


@pytest.mark.parametrize(("asked", "only"), [(True, 2), ("warn", 1), (False, 0)])
def test_repeatable_kernels_are_asked_of_torch(tmp_path, asked, only):
    """0 is any kernel, 1 warns about those that are not repeatable, and 2 refuses them."""
    try:
        make_trainer(TrainerSettings(max_steps=1, deterministic=asked), 1, tmp_path)
        assert torch.get_deterministic_debug_mode() == only
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_run_of_repeatable_kernels_leaves_the_next_one_its_own(tmp_path, weights, monkeypatch):
    modes = []

    def watched(*settings):
        trainer = make_trainer(*settings)
        modes.append(torch.get_deterministic_debug_mode())
        return trainer

    monkeypatch.setattr("cfaug.train.engine.make_trainer", watched)
    for deterministic in ("warn", False):
        folder = folder_of(tmp_path, str(deterministic))
        tiny_plan.train(folder, weights, steps=1, deterministic=deterministic)
    assert modes == [1, 0]


PATIENT = {"early_stopping": 1, "optim": OptimSettings(lr=0.1, schedule="constant")}
"""A run that soon diverges, so that it stops."""


@pytest.fixture(scope="module")
def stopped_early(tmp_path_factory, weights):
    """A run that stopped early: its folder, its encoder."""
    folder = folder_of(tmp_path_factory.mktemp("runs"))
    encoder, _, _ = tiny_plan.train(folder, weights, steps=100, keep_last=True, **PATIENT)
    return folder, encoder


@pytest.mark.slow
def test_a_run_stops_early_with_the_weights_of_the_whole_one(tmp_path, weights, stopped_early):
    """Early stopping shortens a run; its schedule stays that of the whole length."""
    early, whole = stopped_early[0], folder_of(tmp_path, "whole")
    losses = [float(row["val/loss"]) for row in rows(early) if row["val/loss"]]
    assert losses.index(min(losses)) == len(losses) - 2
    ended = len(rows(early))
    assert ended == 5 * len(losses) < 100
    tiny_plan.train(whole, weights, steps=100, **{**PATIENT, "early_stopping": 1 + ended // 5})
    curves = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in rows(folder)[:ended]]
        for folder in (early, whole)
    ]
    assert curves[0] == curves[1]


def test_a_run_cut_off_as_it_stops_stops_again(tmp_path, weights, stopped_early, monkeypatch):
    """SIGTERM at the last validation saves a state that has nothing left to do."""
    (undisturbed, encoder), folder = stopped_early, folder_of(tmp_path, "two")
    last = len(rows(undisturbed))
    log = CheckpointCallback._log

    def stop_at_last(keeper, trainer, module, step, *rest):
        log(keeper, trainer, module, step, *rest)
        if step == last:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(CheckpointCallback, "_log", stop_at_last)
    with pytest.raises(KeyboardInterrupt):
        tiny_plan.train(folder, weights, steps=100, **PATIENT)
    monkeypatch.setattr(CheckpointCallback, "_log", log)
    resumed, start, _ = tiny_plan.train(folder, weights, attempt=1, steps=100, **PATIENT)
    assert start == last == len(rows(folder))
    assert same_weights(resumed.state_dict(), encoder.state_dict())


def test_an_extended_run_waits_anew_before_it_stops(tmp_path, weights, stopped_early):
    folder = shutil.copytree(stopped_early[0], folder_of(tmp_path))
    ended = len(rows(folder))
    settings = {**PATIENT, "early_stopping": 2}
    tiny_plan.train(folder, weights, steps=200, attempt=1, **settings)
    assert int(rows(folder)[-1]["step"]) >= ended + 10


@pytest.fixture(scope="module")
def whole_precision(tmp_path_factory, weights):
    """The losses of a run in float32."""
    folder = folder_of(tmp_path_factory.mktemp("runs"))
    tiny_plan.train(folder, weights, **NEAR)
    return [float(row["train/loss"]) for row in rows(folder)]


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_half_precision_trains_near_the_whole_ones(tmp_path, weights, whole_precision, precision):
    folder = folder_of(tmp_path)
    encoder, _, _ = tiny_plan.train(folder, weights, precision=precision, keep_last=True, **NEAR)
    losses = [float(row["train/loss"]) for row in rows(folder)]
    assert losses != whole_precision
    # The first steps of float16 may be left out, until the scale fits.
    assert losses[0] == pytest.approx(whole_precision[0], rel=0.01)
    assert losses[-1] < 0.8 * losses[0]
    assert {tensor.dtype for tensor in encoder.parameters()} == {torch.float32}
    kept = read_checkpoint(folder / "last.ckpt")
    assert ("MixedPrecision" in kept) == (precision == "16-mixed")


def test_a_step_whose_gradients_overflow_is_left_out(tmp_path, weights, monkeypatch):
    """float16 scales the loss until a gradient is infinite, then takes less."""
    from lightning.pytorch.plugins.precision import MixedPrecision

    made = MixedPrecision.__init__

    def enormous(plugin, precision, device, scaler=None):
        made(plugin, precision, device, torch.amp.GradScaler("cpu", init_scale=2.0**80))

    monkeypatch.setattr(MixedPrecision, "__init__", enormous)
    encoder, _, _ = tiny_plan.train(
        folder_of(tmp_path), weights, steps=3, precision="16-mixed", val_every_steps=9
    )
    monkeypatch.undo()
    before, _, _ = tiny_plan.train(folder_of(tmp_path, "none"), weights, steps=0)
    assert len(rows(folder_of(tmp_path))) == 3
    assert same_weights(encoder.state_dict(), before.state_dict())


def test_the_last_state_is_left_only_if_asked_for(tmp_path, weights):
    for keep in (False, True):
        folder = folder_of(tmp_path, str(keep))
        tiny_plan.train(folder, weights, steps=4, keep_last=keep)
        assert (folder / "last.ckpt").exists() == keep


def test_a_longer_run_goes_on_from_there_on_the_schedule_of_its_own_length(tmp_path, weights):
    """The optimizer's state still holds the last rate of the shorter run: almost nothing."""
    folder, optim = folder_of(tmp_path), OptimSettings(lr=1e-3)
    short, _, _ = tiny_plan.train(folder, weights, steps=5, optim=optim, keep_last=True)
    before = {k: v.clone() for k, v in short.state_dict().items()}
    longer, start, _ = tiny_plan.train(folder, weights, steps=6, optim=optim, attempt=1)
    assert start == 5
    rates = {int(row["step"]): float(row["lr"]) for row in rows(folder)}
    assert [rates[step] for step in (5, 6)] == pytest.approx([2e-4, 1e-3 / 6])
    moved = max((longer.state_dict()[k] - before[k]).abs().max().item() for k in before)
    assert moved > 1e-5


def test_a_device_is_chosen_by_its_name(monkeypatch):
    from cfaug.train import engine

    there = ["cpu", "cuda", "cuda:0", "cuda:1"]
    monkeypatch.setattr("cfaug.core.processes.available_devices", lambda: there)
    placed = [
        engine.placement(TrainerSettings(max_steps=1, device=name))
        for name in ("cpu", "cuda", "cuda:1")
    ]
    assert placed == [("cpu", 1, 1), ("gpu", [0], 1), ("gpu", [1], 1)]
    with pytest.raises(UserError, match=r"trainer\.device=cuda:3: this machine has none"):
        engine.placement(TrainerSettings(max_steps=1, device="cuda:3"))


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (TrainerSettings, {"max_steps": None, "max_epochs": None}, "trainer.max_steps"),
        (TrainerSettings, {"max_steps": -1}, "trainer.max_steps=-1"),
        (TrainerSettings, {"ema_decay": 1}, r"trainer\.ema_decay=1 should be a number"),
        (TrainerSettings, {"early_stopping": 0}, r"trainer\.early_stopping=0"),
        (TrainerSettings, {"precision": "16"}, "32, bf16, bf16-mixed, 16-mixed"),
        (TrainerSettings, {"device": "cuda:x"}, r"trainer\.device=cuda:x: choose"),
        (TrainerSettings, {"device": "xpu"}, "cpu, cuda or mps"),
        (TrainerSettings, {"device": "cuda:1", "devices": 2}, r"leave out trainer\.accelerator"),
        (
            TrainerSettings,
            {"device": "cpu", "accelerator": "gpu"},
            r"leave out trainer\.accelerator",
        ),
        (TrainerSettings, {"limit_train_batches": 2, "overfit_batches": 1}, "give one of them"),
        (TrainerSettings, {"strategy": "fsdp2"}, "strategy=fsdp2: choose auto or ddp.*last.ckpt"),
        (OptimSettings, {"lr": "high"}, "optim.lr=high should be a number"),
        (OptimSettings, {"layer_decay": 1.1}, "optim.layer_decay=1.1"),
        (OptimSettings, {"warmup": 1.0}, r"optim.warmup=1.0 .* in \[0, 1\)"),
        (
            OptimSettings,
            {"warmup": -1},
            r"optim.warmup=-1 should be a whole number of at least 0 or",
        ),
        (LoggerSettings, {"kind": "mlflow"}, "csv, wandb, tensorboard"),
        (LossSettings, {"negative_captions": "no"}, r"loss\.negative_captions=no"),
        (LossSettings, {"set_invariance": -1}, r"loss\.set_invariance=-1"),
        (ClassLoss, {"label_smoothing": 1}, r"loss\.label_smoothing=1"),
        (AnswerLoss, {"contrast": -1}, r"loss\.contrast=-1"),
    ],
)
def test_settings_that_make_no_sense_are_named(kind, given, words):
    with pytest.raises(UserError, match=words):
        kind(**given)


def test_a_number_as_precision_is_what_yaml_gives():
    assert TrainerSettings(precision=32) == TrainerSettings()


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant_with_warmup"])
def test_schedules_are_those_of_transformers(schedule):
    from transformers import get_scheduler

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = get_scheduler(schedule, optimizer, num_warmup_steps=4, num_training_steps=20)
    ours = OptimSettings(schedule=schedule.removesuffix("_with_warmup"), warmup=0.2)
    for step in range(20):
        assert ours.factor(step, 20) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()
    assert OptimSettings().factor(5, 5) == pytest.approx(0)
