from __future__ import annotations

import os
import pickle
import signal
import sys
import time

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.train.checkpoint import LIGHTNINGS, AtomicCheckpointIO, read_checkpoint
from tests import children
from tests.train import tiny_plan
from tests.train.tiny_plan import rows, same_weights


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, dropout_weights):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs") / "arm" / "seed=1"
    return tiny_plan.train(folder, dropout_weights)


def train_slowly(folder, weights, pause, **settings):
    torch.set_num_threads(1)
    # A shell starts its background jobs, and so perhaps this test, deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        tiny_plan.train(folder, weights, pause=pause, **settings)
    except KeyboardInterrupt:
        sys.exit(7)


def wait_for_lines(log, count, child):
    while not log.exists() or log.read_bytes().count(b"\n") < count:
        assert child.is_alive()
        time.sleep(0.001)


def run_and_kill(folder, weights, line, **settings):
    """Train in a child process and kill -9 it once ``metrics.csv`` has so many lines."""
    log = folder / "metrics.csv"
    children.kill_at_line(log, line, train_slowly, folder, weights, 0.0, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("line", [8, 26])
def test_a_killed_run_ends_bit_identical(tmp_path, dropout_weights, uninterrupted, line):
    encoder, _, best = uninterrupted
    folder = tmp_path / "arm" / "seed=1"
    run_and_kill(folder, dropout_weights, line, save_every_steps=5)
    written = (folder / "metrics.csv").read_bytes()
    resumed, start, best_resumed = tiny_plan.train(
        folder, dropout_weights, attempt=1, save_every_steps=5
    )
    assert 0 < start < tiny_plan.STEPS
    assert start % 5 == 0  # an epoch has 7 steps: this is in the middle of one
    assert same_weights(resumed.state_dict(), encoder.state_dict())
    assert (best_resumed.step, best_resumed.val_loss) == (best.step, best.val_loss)
    assert same_weights(best_resumed.weights, best.weights)
    assert (folder / "metrics.csv").read_bytes().startswith(written)
    again = [row for row in rows(folder) if row["attempt"] == "1"]
    assert [int(row["step"]) for row in again] == list(range(start + 1, tiny_plan.STEPS + 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_run_that_is_told_to_stop_stops(tmp_path, dropout_weights, uninterrupted, name):
    folder = tmp_path / "arm" / "seed=1"
    child = children.start(train_slowly, folder, dropout_weights, 0.1)
    wait_for_lines(folder / "metrics.csv", 12, child)
    os.kill(child.pid, signal.Signals[name])
    child.join()
    assert child.exitcode == 7
    written = len(rows(folder))
    assert written < tiny_plan.STEPS
    resumed, start, _ = tiny_plan.train(folder, dropout_weights, attempt=1)
    assert start == written  # asked to end, a run first saves where it is
    assert same_weights(resumed.state_dict(), uninterrupted[0].state_dict())


def test_the_best_is_not_always_the_last(uninterrupted):
    best = uninterrupted[2]
    assert best.step < tiny_plan.STEPS
    assert not same_weights(best.weights, uninterrupted[0].state_dict())


def test_dropout_is_on_and_keyed_by_the_seed(tmp_path, dropout_weights, weights):
    losses = {}
    for name, source in (("on", dropout_weights), ("off", weights)):
        folder = tmp_path / name / "arm" / "seed=1"
        tiny_plan.train(folder, source, steps=1)
        losses[name] = rows(folder)[0]["train/loss"]
    assert losses["on"] != losses["off"]


def test_training_leaves_the_global_generator_alone(tmp_path, weights):
    before = torch.random.get_rng_state()
    tiny_plan.train(tmp_path / "runs" / "arm" / "seed=1", weights, steps=2)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_full_disk_leaves_the_checkpoint_that_was_there(tmp_path, monkeypatch):
    file = tmp_path / "last.ckpt"
    before, after = ({**{key: {} for key in LIGHTNINGS}, "global_step": step} for step in (1, 2))
    AtomicCheckpointIO().save_checkpoint(before, file)

    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        AtomicCheckpointIO().save_checkpoint(after, file)
    assert read_checkpoint(file) == before
    assert list(tmp_path.iterdir()) == [file]


class Payload:
    def __reduce__(self):
        return os.system, ("touch ran",)


@pytest.mark.parametrize(
    "content", [b"", b"not a checkpoint", pickle.dumps(Payload(), 2), pickle.dumps({"a": 1}, 2)]
)
def test_a_checkpoint_that_is_none_is_named_and_not_run(tmp_path, content, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "last.ckpt"
    file.write_bytes(content)
    with pytest.raises(UserError, match=str(file)):
        read_checkpoint(file)
    assert list(tmp_path.iterdir()) == [file]


OPTIONS = {
    "accumulated, in pieces": {"accumulate_grad_batches": 2, "micro_batch_size": 5, "steps": 20},
    "float16": {"precision": "16-mixed"},
    "stopping early": {"early_stopping": 2, "steps": 200},
    "averaged": {"ema_decay": 0.9},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_a_killed_run_with_options_ends_bit_identical(tmp_path, dropout_weights, name):
    torch.set_num_threads(1)
    whole, killed = (tmp_path / part / "arm" / "seed=1" for part in ("whole", "killed"))
    encoder, _, best = tiny_plan.train(whole, dropout_weights, **OPTIONS[name])
    run_and_kill(killed, dropout_weights, 17, save_every_steps=4, **OPTIONS[name])
    resumed, start, best_resumed = tiny_plan.train(
        killed, dropout_weights, attempt=1, save_every_steps=4, **OPTIONS[name]
    )
    assert 0 < start < 20
    assert same_weights(resumed.state_dict(), encoder.state_dict())
    assert (best_resumed.step, best_resumed.val_loss) == (best.step, best.val_loss)
    assert rows(killed)[-1]["step"] == rows(whole)[-1]["step"]
