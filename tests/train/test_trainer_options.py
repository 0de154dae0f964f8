"""Early stopping, half precision, the last state of a finished run, a longer run from it."""

from __future__ import annotations

import signal

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.train.checkpoint import CheckpointCallback, read_checkpoint
from cfaug.train.engine import _make_trainer
from cfaug.train.settings import OptimSettings, TrainerSettings
from tests.train import tiny_plan
from tests.train.tiny_plan import rows, same_weights


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def folder_of(tmp_path, name="run"):
    return tmp_path / name / "arm" / "seed=1"


@pytest.mark.parametrize(("asked", "only"), [(True, 2), ("warn", 1), (False, 0)])
def test_repeatable_kernels_are_asked_of_torch(tmp_path, asked, only):
    """0 is any kernel, 1 warns about those that are not repeatable, and 2 refuses them."""
    try:
        _make_trainer(TrainerSettings(max_steps=1, deterministic=asked), 1, tmp_path)
        assert torch.get_deterministic_debug_mode() == only
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.slow
def test_a_run_stops_after_its_patience(tmp_path, weights):
    folder = folder_of(tmp_path)
    tiny_plan.train(folder, weights, steps=300, early_stopping=3)
    curve = rows(folder)
    losses = [(int(row["step"]), float(row["val/loss"])) for row in curve if row["val/loss"]]
    lowest = min(range(len(losses)), key=lambda i: losses[i][1])
    assert len(losses) == lowest + 1 + 3
    assert int(curve[-1]["step"]) == losses[-1][0] < 300


@pytest.mark.slow
def test_the_weights_until_then_are_those_of_the_whole_run(tmp_path, weights):
    """Early stopping shortens a run; its schedule stays that of the whole length."""
    early, whole = folder_of(tmp_path, "early"), folder_of(tmp_path, "whole")
    tiny_plan.train(early, weights, steps=60, early_stopping=1)
    tiny_plan.train(whole, weights, steps=60)
    ended = len(rows(early))
    assert ended < 60
    strip = [{k: v for k, v in row.items() if k != "seconds"} for row in rows(whole)[:ended]]
    assert [{k: v for k, v in row.items() if k != "seconds"} for row in rows(early)] == strip


@pytest.mark.slow
def test_a_run_cut_off_as_it_stops_stops_again(tmp_path, weights, monkeypatch):
    """SIGTERM at the last validation saves a state that has nothing left to do."""
    undisturbed, folder = folder_of(tmp_path, "one"), folder_of(tmp_path, "two")
    encoder, _, _ = tiny_plan.train(undisturbed, weights, steps=300, early_stopping=2)
    last = len(rows(undisturbed))
    log = CheckpointCallback._log

    def told(keeper, trainer, module, step, *rest):
        log(keeper, trainer, module, step, *rest)
        if step == last:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(CheckpointCallback, "_log", told)
    with pytest.raises(KeyboardInterrupt):
        tiny_plan.train(folder, weights, steps=300, early_stopping=2)
    monkeypatch.setattr(CheckpointCallback, "_log", log)
    resumed, start, _ = tiny_plan.train(folder, weights, attempt=1, steps=300, early_stopping=2)
    assert start == last == len(rows(folder))
    assert same_weights(resumed.state_dict(), encoder.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_half_precision_trains_near_the_whole_ones(tmp_path, weights, precision):
    settings = {"steps": 12, "optim": OptimSettings(lr=1e-3, eps=1e-4)}
    tiny_plan.train(folder_of(tmp_path, "32"), weights, **settings)
    encoder, _, _ = tiny_plan.train(
        folder_of(tmp_path, "half"), weights, precision=precision, keep_last=True, **settings
    )
    losses = [
        [float(row["train/loss"]) for row in rows(folder_of(tmp_path, name))]
        for name in ("32", "half")
    ]
    assert losses[0] != losses[1]
    # The first steps of float16 may be left out, until the scale fits.
    assert losses[0][0] == pytest.approx(losses[1][0], rel=0.01)
    assert losses[1][-1] < 0.8 * losses[1][0]
    assert all(tensor.dtype == torch.float32 for tensor in encoder.parameters())
    kept = read_checkpoint(folder_of(tmp_path, "half") / "last.ckpt")
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


@pytest.mark.slow
def test_a_longer_run_goes_on_from_there_on_the_schedule_of_its_own_length(tmp_path, weights):
    folder, optim = folder_of(tmp_path), OptimSettings(lr=1e-3)
    tiny_plan.train(folder, weights, steps=10, optim=optim, keep_last=True)
    _, start, _ = tiny_plan.train(folder, weights, steps=20, optim=optim, attempt=1)
    assert start == 10
    rates = {int(row["step"]): float(row["lr"]) for row in rows(folder)}
    assert rates[10] == pytest.approx(1e-4)
    assert [rates[step] for step in (11, 12, 20)] == pytest.approx([5e-4, 4.5e-4, 5e-5])


def test_its_first_step_moves_by_that_rate(tmp_path, weights):
    """The optimizer's state still holds the last rate of the shorter run: nothing at all."""
    folder, optim = folder_of(tmp_path), OptimSettings(lr=1e-3)
    short, _, _ = tiny_plan.train(folder, weights, steps=5, optim=optim, keep_last=True)
    before = {k: v.clone() for k, v in short.state_dict().items()}
    longer, _, _ = tiny_plan.train(folder, weights, steps=6, optim=optim, attempt=1)
    moved = max((longer.state_dict()[k] - before[k]).abs().max().item() for k in before)
    assert moved > 1e-5


@pytest.mark.slow
def test_an_extended_run_waits_anew_before_it_stops(tmp_path, weights):
    folder = folder_of(tmp_path)
    settings = {"early_stopping": 2, "keep_last": True}
    tiny_plan.train(folder, weights, steps=300, **settings)
    ended = len(rows(folder))
    tiny_plan.train(folder, weights, steps=600, attempt=1, **settings)
    assert int(rows(folder)[-1]["step"]) >= ended + 10


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"device": "cuda:x"}, r"trainer\.device=cuda:x: choose"),
        ({"device": "xpu"}, "cpu, cuda or mps"),
        ({"device": "cuda:1", "devices": 2}, r"leave out trainer\.accelerator"),
        ({"device": "cpu", "accelerator": "gpu"}, r"leave out trainer\.accelerator"),
        ({"early_stopping": 0}, r"trainer\.early_stopping=0"),
        ({"accumulate_grad_batches": 0}, r"trainer\.accumulate_grad_batches=0"),
        ({"micro_batch_size": "a"}, r"trainer\.micro_batch_size=a should be a whole number"),
        ({"precision": "16"}, "32, bf16, bf16-mixed, 16-mixed"),
    ],
)
def test_settings_that_make_no_sense_are_named(given, words):
    with pytest.raises(UserError, match=words):
        TrainerSettings(max_steps=1, **given)


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


def test_warm_up_may_be_a_share_of_the_steps():
    share = OptimSettings(warmup_ratio=0.1)
    steps = OptimSettings(warmup_steps=5)
    assert [share.factor(i, 50) for i in range(50)] == [steps.factor(i, 50) for i in range(50)]
    with pytest.raises(UserError, match=r"warmup_ratio=0\.1 beside optim\.warmup_steps=5"):
        OptimSettings(warmup_ratio=0.1, warmup_steps=5)
    with pytest.raises(UserError, match=r"optim.warmup_ratio=1.0 should be a number in \[0, 1\)"):
        OptimSettings(warmup_ratio=1.0)
