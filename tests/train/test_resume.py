"""Runs that are killed, told to stop or out of room go on from ``last.ckpt`` to the same bits."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import shutil
import signal
import sys
import time
from contextlib import contextmanager
from itertools import count

import pytest
import torch

from cfaug.core import processes
from cfaug.core.errors import UserError
from cfaug.train.checkpoint import AtomicCheckpointIO, CheckpointCallback, read_checkpoint
from cfaug.train.contrastive_module import ContrastiveModule
from cfaug.train.engine import stoppable
from cfaug.train.settings import LossSettings
from tests import children
from tests.train import tiny_plan
from tests.train.tiny_plan import rows, same_weights

STEPS = 20


def train(folder, weights, **settings):
    return tiny_plan.train(folder, weights, **{"steps": STEPS, **settings})


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, dropout_weights):
    """The encoder, the first step and the best weights of a whole run, and its folder."""
    folder = tmp_path_factory.mktemp("runs") / "arm" / "seed=1"
    return *train(folder, dropout_weights), folder


def curve(folder):
    """What the run measured, step by step."""
    return [(row["step"], row["train/loss"], row["val/loss"], row["lr"]) for row in rows(folder)]


# Processes that end.


def train_in_child(folder, weights, pause=0.0, **settings):
    # A shell starts its background jobs, and so perhaps this test, deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        train(folder, weights, pause=pause, **settings)
    except KeyboardInterrupt:
        sys.exit(7)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"precision": "16-mixed"},
        {"accumulate_grad_batches": 2, "micro_batch_size": 5, "early_stopping": 2, "steps": 200},
        # Its thresholds follow the training.
        {"loss": LossSettings(negative_captions="used", intra_modal=0.5, ranking=2.0)},
    ],
)
def test_a_killed_run_ends_bit_identical(tmp_path, folder, dropout_weights, options):
    whole = tmp_path / "whole" / "seed=1"
    encoder, _, best = train(whole, dropout_weights, **options)
    settings = {"save_every_steps": 4, **options}
    children.kill_at_line(
        folder / "metrics.csv", 15, train_in_child, folder, dropout_weights, **settings
    )
    written = (folder / "metrics.csv").read_bytes()
    resumed, start, best_resumed = train(folder, dropout_weights, attempt=1, **settings)
    assert start % 4 == 0  # an epoch has 7 steps: this is in the middle of one
    assert 0 < start < STEPS
    assert same_weights(resumed.state_dict(), encoder.state_dict())
    assert (best_resumed.step, best_resumed.val_loss) == (best.step, best.val_loss)
    assert same_weights(best_resumed.weights, best.weights)
    assert (folder / "metrics.csv").read_bytes().startswith(written)
    last = int(rows(whole)[-1]["step"])
    again = [row for row in rows(folder) if row["attempt"] == "1"]
    assert [int(row["step"]) for row in again] == list(range(start + 1, last + 1))


@pytest.mark.slow
def test_a_run_that_is_told_to_stop_stops(folder, dropout_weights, uninterrupted):
    child = children.start(train_in_child, folder, dropout_weights, 0.1)
    log = folder / "metrics.csv"
    while not log.exists() or log.read_bytes().count(b"\n") < 8:
        assert child.is_alive()
        time.sleep(0.001)
    os.kill(child.pid, signal.SIGINT)
    child.join()
    assert child.exitcode == 7
    written = len(rows(folder))
    assert written < STEPS
    resumed, start, _ = train(folder, dropout_weights, attempt=1)
    assert start == written  # asked to end, a run first saves where it is
    assert same_weights(resumed.state_dict(), uninterrupted[0].state_dict())


# SIGTERM at any instant of a run.


@pytest.fixture
def nobody_else_hears_it():
    """A SIGTERM that reaches who listened before fails the test instead of ending pytest."""

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


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_else_hears_it")
@pytest.mark.parametrize("moment", MOMENTS)
def test_every_trained_step_is_saved(folder, dropout_weights, uninterrupted, moment):
    owner, hook, nth = MOMENTS[moment]
    work, calls = getattr(owner, hook), count(1)

    def ask_first(*args, **kwargs):
        if next(calls) == nth:
            signal.raise_signal(signal.SIGTERM)
        return work(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, hook, ask_first)
        with pytest.raises(KeyboardInterrupt):
            train(folder, dropout_weights, save_every_steps=9)
    written = len(rows(folder))
    assert written > 0
    # A step whose validation was broken off is trained, saved, and has no row yet.
    unvalidated = moment in BROKEN_OFF
    resumed, start, best = train(folder, dropout_weights, attempt=1)
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
        train(folder, weights, steps=4)
    finally:
        sys.setprofile(None)


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_else_hears_it")
def test_whatever_python_is_at(tmp_path, weights):
    """Instants that are evenly spread over the calls from one step's beginning to the next's."""
    counted, instants = Calls(), 7
    train_counting(tmp_path / "counted" / "seed=1", weights, counted)
    assert counted.count > 1000
    for i in range(instants):
        folder = tmp_path / str(i) / "seed=1"
        with pytest.raises(KeyboardInterrupt):
            train_counting(folder, weights, Calls(1 + i * counted.count // instants))
        saved = read_checkpoint(folder / "last.ckpt")["global_step"]
        assert saved == len(rows(folder))
        assert saved in (2, 3)


def test_a_second_ctrl_c_stops_at_once(monkeypatch, capfd):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stoppable() as request:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)  # the same, passed on by torchrun
            assert request.requested
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
        assert not request.requested
    finally:
        signal.signal(signal.SIGINT, before)


# last.ckpt: damaged, or without room for the next.


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, weights):
    """A run folder with a checkpoint of step 4, as a run that was killed leaves it."""
    folder = tmp_path_factory.mktemp("stopped") / "arm" / "seed=1"
    train(folder, weights, steps=5, save_every_steps=4)
    return folder


class Payload:
    def __reduce__(self):
        return os.system, ("touch ran",)


def change(last, **values) -> None:
    """Write other values; a value of ``None`` takes the key away."""
    content = torch.load(last, weights_only=True) | values
    torch.save({key: value for key, value in content.items() if value is not None}, last)


def of_another_model(last) -> None:
    weights = torch.load(last, weights_only=True)["state_dict"]
    change(last, state_dict={name: value[:1] for name, value in weights.items() if value.ndim})


DAMAGES = {
    "cut in half": lambda last: os.truncate(last, last.stat().st_size // 2),
    "empty": lambda last: os.truncate(last, 0),
    "rubbish": lambda last: last.write_bytes(os.urandom(5000)),
    "a list": lambda last: torch.save([1, 2], last),
    "a pickle that runs code": lambda last: last.write_bytes(pickle.dumps(Payload(), 2)),
    "no optimizer": lambda last: change(last, optimizer_states=None),
    "a later step than the last": lambda last: change(last, global_step=STEPS + 1),
    "a step that is no number": lambda last: change(last, global_step="8"),
    "another model's": of_another_model,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused_in_a_sentence(
    tmp_path, stopped, weights, damage, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(stopped, tmp_path / "seed=1")
    last = folder / "last.ckpt"
    DAMAGES[damage](last)
    content = last.read_bytes()
    with pytest.raises(UserError, match=r"last\.ckpt.* remove it to start"):
        train(folder, weights, attempt=1)
    assert last.read_bytes() == content  # it is the user's to remove
    assert list(tmp_path.iterdir()) == [folder]


def test_a_pipe_is_not_waited_for(tmp_path, monkeypatch):
    last = tmp_path / "last.ckpt"
    os.mkfifo(last)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("the pipe was opened"))
    with pytest.raises(UserError, match=r"last\.ckpt is not a regular file but a pipe"):
        read_checkpoint(last)


@contextmanager
def largest_file(size):
    """The system refuses to make a file longer, as of any length on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_error_of_a_write_which_torch_loses_is_raised(tmp_path, stopped):
    content = torch.load(stopped / "last.ckpt", weights_only=True)
    refused = pytest.raises(OSError, match=r"File too large: .*last\.ckpt")
    with largest_file(1000), refused:
        AtomicCheckpointIO().save_checkpoint(content, tmp_path / "last.ckpt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_run_goes_on_from_the_last_good_checkpoint_once_there_is_room(tmp_path, stopped, weights):
    folder = shutil.copytree(stopped, tmp_path / "arm" / "seed=1")
    saved = (folder / "last.ckpt").read_bytes()
    refused = pytest.raises(OSError, match=r"File too large: .*last\.ckpt")
    with largest_file(len(saved) // 2), refused as raised:
        train(folder, weights, steps=12, save_every_steps=4, attempt=1)
    assert raised.value.errno == errno.EFBIG
    assert (folder / "last.ckpt").read_bytes() == saved
    assert [file.name for file in folder.iterdir() if "new" in file.name] == []
    resumed, start, _ = train(folder, weights, steps=12, attempt=2)
    whole, _, _ = train(tmp_path / "whole" / "seed=1", weights, steps=12)
    assert start == 4
    assert same_weights(resumed.state_dict(), whole.state_dict())
    assert int(rows(folder)[-1]["step"]) == 12


# Random draws.


def test_dropout_is_on_and_keyed_by_the_seed(tmp_path, dropout_weights, weights):
    losses = {}
    for name, source in (("on", dropout_weights), ("off", weights)):
        train(tmp_path / name / "seed=1", source, steps=1)
        losses[name] = rows(tmp_path / name / "seed=1")[0]["train/loss"]
    assert losses["on"] != losses["off"]


def test_training_leaves_the_global_generator_alone(folder, weights):
    before = torch.random.get_rng_state()
    train(folder, weights, steps=2)
    assert torch.equal(before, torch.random.get_rng_state())
