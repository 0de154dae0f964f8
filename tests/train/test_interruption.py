"""SIGTERM at any instant of a run: what was trained is saved before the run ends."""

from __future__ import annotations

import signal
import sys
from itertools import count

import pytest
import torch

from cfaug.core import processes
from cfaug.train.checkpoint import AtomicCheckpointIO, CheckpointCallback, read_checkpoint
from cfaug.train.engine import stoppable
from cfaug.train.pair_modules import ContrastiveModule
from tests.train import tiny_plan
from tests.train.tiny_plan import STEPS, rows, same_weights


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, dropout_weights):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs") / "arm" / "seed=1"
    return *tiny_plan.train(folder, dropout_weights), folder


@pytest.fixture(autouse=True)
def nobody_else_hears_it():
    """A SIGTERM that reaches who listened before fails the test instead of ending pytest."""
    torch.set_num_threads(1)

    def unheard(number, frame):
        raise AssertionError("SIGTERM was not the run's to hear")

    before = signal.signal(signal.SIGTERM, unheard)
    yield
    after = signal.signal(signal.SIGTERM, before)
    assert after is unheard


MOMENTS = {
    "before Lightning listens": (ContrastiveModule, "configure_optimizers", 1),
    "while Lightning listens": (CheckpointCallback, "on_train_start", 1),
    "between steps": (ContrastiveModule, "on_train_batch_start", 12),
    "in a step": (ContrastiveModule, "training_step", 12),
    "validating": (ContrastiveModule, "validation_loss", 2),
    # Five steps, then the two batches of the first validation.
    "between batches of a validation": (ContrastiveModule, "loss", 6),
    "in the last batch of a validation": (ContrastiveModule, "loss", 7),
    "in the validation of the last step": (ContrastiveModule, "validation_loss", STEPS // 5),
    "saving": (AtomicCheckpointIO, "save_checkpoint", 1),
    "asked already whether to stop": (ContrastiveModule, "on_train_batch_end", 12),
    "asked already after the last step": (ContrastiveModule, "on_train_batch_end", STEPS),
    "after training": (CheckpointCallback, "teardown", 1),
}


BROKEN_OFF = (
    "validating", "between batches of a validation", "in the validation of the last step", "saving",
)  # fmt: skip


def curve(folder):
    """What the run measured, step by step."""
    return [(row["step"], row["train/loss"], row["val/loss"], row["lr"]) for row in rows(folder)]


def ask_at(monkeypatch, owner, hook, nth):
    """Send this process SIGTERM when the hook is called for the nth time."""
    work = getattr(owner, hook)
    calls = count(1)

    def ask_first(*args, **kwargs):
        if next(calls) == nth:
            signal.raise_signal(signal.SIGTERM)
        return work(*args, **kwargs)

    monkeypatch.setattr(owner, hook, ask_first)


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_every_trained_step_is_saved(tmp_path, dropout_weights, uninterrupted, moment):
    folder = tmp_path / "arm" / "seed=1"
    with pytest.MonkeyPatch.context() as patch:
        ask_at(patch, *MOMENTS[moment])
        with pytest.raises(KeyboardInterrupt):
            tiny_plan.train(folder, dropout_weights, save_every_steps=9)
    written = len(rows(folder))
    assert written > 0
    # A step whose validation was broken off is trained, saved, and has no row yet.
    unvalidated = moment in BROKEN_OFF
    resumed, start, best = tiny_plan.train(folder, dropout_weights, attempt=1)
    assert start == written + unvalidated
    assert same_weights(resumed.state_dict(), uninterrupted[0].state_dict())
    assert same_weights(best.weights, uninterrupted[2].weights)
    assert [int(row["step"]) for row in rows(folder)] == list(range(1, STEPS + 1))
    assert curve(folder) == curve(uninterrupted[3])


class Calls:
    """Counts the calls of Python functions from step 2 on; sends SIGTERM at the given one."""

    def __init__(self, ask_at=None):
        self.ask_at, self.count, self.step = ask_at, 0, 0

    def __call__(self, frame, event, _):
        if event != "call":
            return
        if frame.f_code is ContrastiveModule.on_train_batch_start.__code__:
            self.step += 1
        if self.step == 2:
            self.count += 1
            if self.count == self.ask_at:
                signal.raise_signal(signal.SIGTERM)


def train_counting(folder, weights, calls):
    sys.setprofile(calls)
    try:
        tiny_plan.train(folder, weights, steps=4)
    finally:
        sys.setprofile(None)


@pytest.mark.slow
def test_whatever_python_is_at(tmp_path, weights):
    """Twelve instants, evenly spread over the calls from one step's beginning to the next's."""
    counted = Calls()
    train_counting(tmp_path / "counted" / "seed=1", weights, counted)
    assert counted.count > 1000
    for i in range(12):
        folder = tmp_path / str(i) / "seed=1"
        with pytest.raises(KeyboardInterrupt):
            train_counting(folder, weights, Calls(1 + i * counted.count // 12))
        saved = read_checkpoint(folder / "last.ckpt")["global_step"]
        assert saved == len(rows(folder))
        assert saved in (2, 3)


def test_a_second_ctrl_c_stops_at_once(monkeypatch, capfd):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stoppable() as request:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)  # the same, passed on by torchrun
            assert request.asked
            monkeypatch.setattr(processes, "AGAIN_SECONDS", -1.0)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert capfd.readouterr().err.count("stopping after this step") == 1


def test_a_run_in_a_shells_background_stays_deaf_to_ctrl_c():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stoppable() as request:
            signal.raise_signal(signal.SIGINT)
        assert not request.asked
    finally:
        signal.signal(signal.SIGINT, before)
