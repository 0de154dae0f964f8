"""The moving average of weights: what it is, what is measured and kept, what training keeps."""

from __future__ import annotations

import signal
from itertools import count

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from cfaug.core.errors import UserError
from cfaug.models.specs import HFClip
from cfaug.train.checkpoint import CheckpointCallback, read_checkpoint
from cfaug.train.contrastive_module import ContrastiveModule
from cfaug.train.settings import OptimSettings
from cfaug.train.tuning import AveragedWeights, Lora, Tuning, averaged_tensors
from tests.models import tiny
from tests.train import tiny_plan
from tests.train.tiny_plan import folder_of, rows, same_weights

DECAY, STEPS = 0.8, 12
QUICK = {"steps": STEPS, "optim": OptimSettings(lr=3e-3, warmup=2)}


def copied(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def train_and_remember(folder, weights, **settings):
    """Train; return the weights after each step."""
    after, step = [], CheckpointCallback._finish_step
    with pytest.MonkeyPatch.context() as patch:

        def remember(keeper, trainer, module, loss):
            after.append(copied(module.trained))
            step(keeper, trainer, module, loss)

        patch.setattr(CheckpointCallback, "_finish_step", remember)
        tiny_plan.train(folder, weights, **QUICK, **settings)
    return after


@pytest.fixture(scope="module")
def plain(tmp_path_factory, dropout_weights):
    """A run without an average: its folder, its weights after each step, its own last state."""
    folder = folder_of(tmp_path_factory.mktemp("runs"), "plain")
    return folder, train_and_remember(folder, dropout_weights, keep_last=True)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory, dropout_weights):
    """The same run with an average: its folder, its encoder, its best weights."""
    folder = folder_of(tmp_path_factory.mktemp("runs"), "averaged")
    encoder, _, best = tiny_plan.train(
        folder, dropout_weights, **QUICK, keep_last=True, ema_decay=DECAY
    )
    return folder, encoder, best


def slow_average(after):
    """One weight at a time, in float64, from the weights after each step."""
    averages = {}
    for name, first in after[0].items():
        value = first.double()
        for weights in after[1:]:
            value = DECAY * value + (1 - DECAY) * weights[name].double()
        averages[name] = value
    return averages


def close(first, second):
    return all(torch.allclose(first[k].double(), second[k].double(), atol=1e-6) for k in second)


def slow_validation_loss(weights_file, tensors):
    """The loss of the validation batches of ``tiny_plan``, by a model that was never trained."""
    encoder = HFClip(str(weights_file)).load().eval()
    encoder.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    batches = [tiny_plan.batch(10**6 + i, size) for i, size in enumerate((16, 5))]
    with torch.no_grad():
        losses = [
            encoder.contrastive(encoder.features(b["pixels"], b["texts"]), None, None).item()
            for b in batches
        ]
    return (16 * losses[0] + 5 * losses[1]) / 21


def test_the_last_weights_are_the_average_of_a_slow_loop(plain, averaged):
    _, after = plain
    expected = slow_average(after)
    assert close(averaged[1].state_dict(), expected)
    assert not close(after[-1], expected)


def test_training_itself_stays_as_it_was(plain, averaged):
    curves = [
        [(row["step"], row["train/loss"], row["lr"], row["logit_scale"]) for row in rows(folder)]
        for folder in (plain[0], averaged[0])
    ]
    assert curves[0] == curves[1]
    states = [read_checkpoint(folder / "last.ckpt") for folder in (plain[0], averaged[0])]
    assert same_weights(states[0]["state_dict"], states[1]["state_dict"])
    kept = [set(state["callbacks"]["Keeper"]) for state in states]
    assert kept[1] - kept[0] == {"average"}


def test_the_validation_loss_and_the_best_weights_are_those_of_the_average(
    plain, averaged, dropout_weights
):
    _, after = plain
    folder, _, best = averaged
    measured = {int(row["step"]): float(row["val/loss"]) for row in rows(folder) if row["val/loss"]}
    assert list(measured) == [5, 10, 12]
    for step, loss in measured.items():
        expected = slow_validation_loss(dropout_weights, slow_average(after[:step]))
        assert loss == pytest.approx(expected, abs=1e-5)
        assert abs(loss - slow_validation_loss(dropout_weights, after[step - 1])) > 1e-4
    assert best.val_loss == min(measured.values())
    assert close(best.weights, slow_average(after[: best.step]))


def test_an_interrupted_run_ends_bit_identical(tmp_path, dropout_weights, averaged, monkeypatch):
    """Told to stop while the model has the averaged weights, a run saves its own."""
    folder = folder_of(tmp_path, "run")
    work, calls = ContrastiveModule.loss, count(1)

    def ask_first(*args, **kwargs):
        if next(calls) == 6:  # after five steps, between batches of the first validation
            signal.raise_signal(signal.SIGTERM)
        return work(*args, **kwargs)

    settings = {**QUICK, "keep_last": True, "ema_decay": DECAY}
    with monkeypatch.context() as patch:
        patch.setattr(ContrastiveModule, "loss", ask_first)
        with pytest.raises(KeyboardInterrupt):
            tiny_plan.train(folder, dropout_weights, **settings)
    encoder, start, best = tiny_plan.train(folder, dropout_weights, attempt=1, **settings)
    assert start > 0
    assert same_weights(encoder.state_dict(), averaged[1].state_dict())
    assert same_weights(best.weights, averaged[2].weights)
    states = [read_checkpoint(run / "last.ckpt") for run in (folder, averaged[0])]
    assert same_weights(states[0]["state_dict"], states[1]["state_dict"])
    assert [row["val/loss"] for row in rows(folder)] == [
        row["val/loss"] for row in rows(averaged[0])
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {"accumulate_grad_batches": 2, "micro_batch_size": 5},
        {"precision": "16-mixed", "val_every_steps": None},
    ],
)
def test_a_step_is_averaged_once_however_it_is_made(tmp_path, dropout_weights, given):
    given = {**given, "checkpoint": "last"}
    after = train_and_remember(folder_of(tmp_path, "plain"), dropout_weights, **given)
    assert len(after) == STEPS
    encoder, _, best = tiny_plan.train(
        folder_of(tmp_path, "averaged"), dropout_weights, **QUICK, **given, ema_decay=DECAY
    )
    assert best is None
    assert close(encoder.state_dict(), slow_average(after))


@pytest.mark.slow
def test_a_longer_run_goes_on_from_the_trained_weights(tmp_path, dropout_weights):
    """Not from their average, which is what the shorter run's checkpoint holds."""
    settings = {"optim": OptimSettings(lr=3e-3, schedule="constant"), "ema_decay": DECAY}
    whole, longer = (folder_of(tmp_path, name) for name in ("whole", "longer"))
    expected, _, _ = tiny_plan.train(whole, dropout_weights, steps=9, **settings)
    tiny_plan.train(longer, dropout_weights, steps=6, keep_last=True, **settings)
    actual, start, _ = tiny_plan.train(longer, dropout_weights, steps=9, attempt=1, **settings)
    assert start == 6
    assert same_weights(actual.state_dict(), expected.state_dict())


def test_a_state_without_an_average_is_refused(plain, dropout_weights, tmp_path):
    folder = folder_of(tmp_path, "run")
    folder.mkdir(parents=True)
    (folder / "last.ckpt").write_bytes((plain[0] / "last.ckpt").read_bytes())
    with pytest.raises(UserError, match=r"last\.ckpt has no averaged weights: remove it"):
        tiny_plan.train(folder, dropout_weights, **{**QUICK, "steps": 13}, ema_decay=DECAY)


def test_running_statistics_are_averaged_as_by_torch():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model.register_buffer("mask", torch.full((2, 2), float("-inf")))
    ours = AveragedWeights(DECAY)
    theirs = AveragedModel(
        model[:2], multi_avg_fn=get_ema_multi_avg_fn(DECAY), use_buffers=True
    )  # without the mask, of which it makes NaN
    for _ in range(4):
        model(torch.randn(8, 3))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn_like(parameter)
        ours.update(model)
        theirs.update_parameters(model[:2])
    before = copied(model)
    with ours.applied(model):
        shown = copied(model)
    assert same_weights(copied(model), before)
    expected = theirs.module.state_dict()
    for name in set(expected) - {"1.num_batches_tracked"}:
        assert torch.equal(shown[name], expected[name])
        assert not torch.equal(shown[name], before[name])
    assert shown["1.num_batches_tracked"] == 4
    assert torch.equal(shown["mask"], before["mask"])


def test_only_trained_weights_are_averaged(tmp_path):
    """With adapters an average is as small as they are, and as the run's checkpoints."""
    encoder = HFClip(str(tiny.save_clip(tmp_path / "clip"))).load()
    every = len(averaged_tensors(encoder))
    Tuning(lora=Lora(targets=[r"q_proj$"], r=2)).apply(encoder, 0)
    trained = averaged_tensors(encoder)
    assert 0 < len(trained) < every
    assert all("lora" in name for name in trained)
    average = AveragedWeights(DECAY)
    average.update(encoder)
    before = copied(encoder)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 1
    average.write_to(encoder)
    back = {
        name for name, tensor in encoder.state_dict().items() if torch.equal(tensor, before[name])
    }
    assert back & set(dict(encoder.named_parameters())) == set(trained)
