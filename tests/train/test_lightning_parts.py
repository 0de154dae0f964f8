"""Lightning's callbacks, strategies, profilers and loggers in a run of ours, resumed exactly."""

from __future__ import annotations

import re
import signal
import sys
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch import callbacks, loggers, profilers, strategies

from cfaug.core.errors import UserError
from cfaug.models.specs import HFClip, OpenClip
from cfaug.train import engine
from cfaug.train.checkpoint import read_checkpoint
from cfaug.train.lightning_parts import begin_folders, logged_names, make_parts
from cfaug.train.loggers import close_loggers, make_loggers
from cfaug.train.settings import LoggerSettings, TrainerSettings
from cfaug.train.tuning import recompute_activations
from tests.models import tiny
from tests.train import tiny_plan
from tests.train.tiny_plan import folder_of, rows, same_weights

RUN = Path("runs/x/y/seed=0")


STEPS = 12


def train(folder, weights, **given):
    return tiny_plan.train(folder, weights, **{"steps": STEPS, "keep_last": True, **given})


@pytest.fixture(scope="module")
def plain(tmp_path_factory, weights):
    """The weights of a run without any part of Lightning's."""
    return train(folder_of(tmp_path_factory.mktemp("runs")), weights)[0].state_dict()


class Noise(pl.Callback):
    """Moves a weight by how often it was called, which is its state."""

    def __init__(self) -> None:
        self.calls = {}

    def _count(self, hook):
        self.calls[hook] = self.calls.get(hook, 0) + 1

    def on_train_batch_end(self, trainer, pl_module, *_):
        self._count("batch")
        with torch.no_grad():
            next(pl_module.parameters()).add_(1e-3 * sum(self.calls.values()))

    def on_train_epoch_end(self, trainer, pl_module):
        self._count("epoch")

    def on_validation_batch_end(self, trainer, pl_module, *_):
        self._count("validation batch")

    def on_validation_end(self, trainer, pl_module):
        assert trainer.callback_metrics["val/loss"] > 0
        self._count("validation")

    def state_dict(self):
        return {"calls": dict(self.calls)}

    def load_state_dict(self, state_dict):
        self.calls = dict(state_dict["calls"])


class Told(pl.Callback):
    """Sends this process SIGTERM in a hook after a step."""

    def __init__(self, step, hook) -> None:
        def tell(trainer, *_):
            if trainer.global_step == step:
                signal.raise_signal(signal.SIGTERM)

        setattr(self, hook, tell)


ENDS = partial(callbacks.EarlyStopping, monitor="val/loss", stopping_threshold=100.0)
AVERAGES = partial(callbacks.EMAWeightAveraging, decay=0.9, use_buffers=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "step", "hook"),
    [
        (Noise, 8, "on_train_batch_end"), (Noise, 10, "on_validation_batch_start"),
        (AVERAGES, 10, "on_validation_batch_start"), (ENDS, 5, "on_validation_end"),
    ],
)  # fmt: skip
def test_a_killed_run_with_callbacks_ends_as_one_that_was_not(
    tmp_path, weights, plain, make, step, hook
):
    """Also between the decision to stop and the end, and within a validation of averages."""
    whole, killed = folder_of(tmp_path, "whole"), folder_of(tmp_path, "killed")
    undisturbed, _, best = train(whole, weights, callbacks={"one": make})
    with pytest.raises(KeyboardInterrupt):
        train(killed, weights, callbacks={"one": make, "told": partial(Told, step, hook)})
    resumed, start, best_of_resumed = train(killed, weights, callbacks={"one": make}, attempt=1)
    assert start == step
    assert same_weights(resumed.state_dict(), undisturbed.state_dict())
    assert same_weights(best.weights, best_of_resumed.weights)
    state = [
        str(read_checkpoint(run_folder / "last.ckpt")["callbacks"])
        for run_folder in (whole, killed)
    ]
    assert state[0] == state[1]
    assert not same_weights(resumed.state_dict(), plain)
    if make is Noise:  # 7 steps an epoch; validated in two batches after every 5 and the last
        # An epoch ends after 7 steps, and with the last one.
        calls = {"batch": 12, "validation batch": 6, "validation": 3, "epoch": 2}
        assert f"'calls': {calls}" in state[0]


def test_an_extended_run_is_not_stopped_by_what_stopped_the_shorter_one(tmp_path, weights):
    folder = folder_of(tmp_path)
    train(folder, weights, callbacks={"one": ENDS})
    train(folder, weights, callbacks={"one": ENDS}, steps=2 * STEPS, attempt=1)
    assert [row["step"] for row in rows(folder)] == [str(step + 1) for step in range(10)]


@pytest.mark.slow
def test_lightnings_average_is_ours(tmp_path, weights):
    _, _, ours = train(folder_of(tmp_path, "ours"), weights, ema_decay=0.9)
    _, _, theirs = train(folder_of(tmp_path, "theirs"), weights, callbacks={"a": AVERAGES})
    assert ours.val_loss == pytest.approx(theirs.val_loss, rel=1e-5)
    assert max((ours.weights[k] - theirs.weights[k]).abs().max() for k in ours.weights) < 1e-6


@pytest.mark.slow
def test_what_watches_changes_nothing(tmp_path, weights, plain):
    folder = folder_of(tmp_path)
    watching = {
        "bar": callbacks.RichProgressBar,
        "rates": callbacks.LearningRateMonitor,
        "devices": callbacks.DeviceStatsMonitor,
        "saves": partial(callbacks.ModelCheckpoint, monitor="val/loss", save_top_k=-1),
        "exceptions": partial(callbacks.OnExceptionCheckpoint, dirpath=folder),
    }
    encoder, _, _ = train(folder, weights, callbacks=watching, profiler="simple")
    assert same_weights(encoder.state_dict(), plain)
    saved = sorted((folder / "checkpoints").iterdir())
    assert [read_checkpoint(file)["global_step"] for file in saved] == [10, 12, 5]
    assert "training_step" in (folder / "fit-profile.txt").read_text()
    assert [row["step"] for row in rows(folder)] == [str(step + 1) for step in range(STEPS)]


def test_an_exception_leaves_lightnings_checkpoint(tmp_path, weights, monkeypatch):
    from cfaug.train.contrastive_module import ContrastiveModule

    monkeypatch.setattr(ContrastiveModule, "curves", lambda module: 1 / 0)
    keep = partial(callbacks.OnExceptionCheckpoint, dirpath=tmp_path / "kept", filename="error")
    with pytest.raises(ZeroDivisionError):
        train(folder_of(tmp_path), weights, callbacks={"keep": keep})
    assert read_checkpoint(tmp_path / "kept" / "error.ckpt")["global_step"] == 1


@pytest.mark.parametrize(
    "make",
    [
        partial(callbacks.ModelCheckpoint, save_top_k=-1),
        callbacks.OnExceptionCheckpoint,
        partial(profilers.SimpleProfiler, filename="x"),
    ],
)
def test_a_part_writes_in_no_folder_of_another(make, tmp_path):
    def parts(place):
        part = partial(make, dirpath=place)
        given = (
            {"profiler": part}
            if getattr(make, "func", None) is profilers.SimpleProfiler
            else {"callbacks": {"a": part}}
        )
        return make_parts(TrainerSettings(**given), [], tmp_path / "run")

    mine = tmp_path / "mine"
    mine.mkdir()
    made = [part for part in (*parts(mine)[0], parts(mine)[2]) if part is not None]
    begin_folders(made, tmp_path / "run")  # an empty one is taken
    (mine / "a.ckpt").write_text("of Lightning")
    parts(mine)
    others = tmp_path / "others"
    others.mkdir()
    (others / "thesis.ckpt").write_text("years")
    with pytest.raises(UserError, match=r"dirpath=.*others holds what cfaug did not .*thesis"):
        parts(others)
    with pytest.raises(UserError, match="is not a folder"):
        parts(others / "thesis.ckpt")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").touch()
    parts(tmp_path / "run")


class Unreadable(pl.Callback):
    def state_dict(self):
        return {"path": folder_of}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"callbacks": {"a": dict}}, r"trainer\.callbacks\.a makes a dict, not a Callback"),
        ({"callbacks": {"a": Unreadable}}, "Unreadable holds more than tensors"),
        ({"callbacks": {"a": partial(callbacks.EarlyStopping, "x", mode="least")}},
         r"trainer\.callbacks\.a: `mode` can be min, max, got least"),
        ({"callbacks": {"a": ENDS, "b": ENDS}}, "EarlyStopping.* twice"),
        ({"callbacks": {"a": partial(callbacks.StochasticWeightAveraging, 0.1)}},
         r"one endless epoch: use trainer\.ema_decay"),
        ({"callbacks": {"a": callbacks.EMAWeightAveraging}}, "position_ids.*use_buffers: false"),
        ({"strategy": strategies.ModelParallelStrategy}, r"ModelParallelStrategy\. .*last\.ckpt"),
        ({"strategy": partial(strategies.DDPStrategy, static_grap=True)},
         r"did you mean trainer\.strategy\.static_graph"),
    ],
)  # fmt: skip
def test_parts_that_cannot_work_are_refused_before_anything_starts(given, words):
    with pytest.raises(UserError, match=words):
        make_parts(TrainerSettings(**given), ["val/loss"], RUN)


@pytest.mark.parametrize("kind", [callbacks.EarlyStopping, callbacks.ModelCheckpoint])
def test_a_monitor_that_nobody_logs_is_refused_with_the_names_that_are_logged(kind):
    settings = TrainerSettings(
        callbacks={"a": partial(kind, monitor="val/acc")}, val_metrics=("recall@1",)
    )
    with pytest.raises(UserError, match=r"monitor=val/acc.*val/loss, val/recall@1, train/loss"):
        make_parts(settings, logged_names(settings, True), RUN)
    seen = TrainerSettings(callbacks={"a": partial(kind, monitor="val/loss")})
    make_parts(seen, logged_names(seen, True), RUN)
    with pytest.raises(UserError, match="choose train/loss"):
        make_parts(seen, logged_names(seen, False), RUN)


def test_callbacks_that_break_a_training_are_refused_and_others_said_to_be_untried(capsys):
    def make(name, **given):
        settings = TrainerSettings(callbacks={"a": partial(getattr(callbacks, name), **given)})
        make_parts(settings, ["val/loss"], RUN)

    with pytest.raises(UserError, match="ModelPruning does not work here"):
        make("ModelPruning", pruning_fn="l1_unstructured", amount=0.5)
    make("ModelSummary")
    assert "not tried" not in capsys.readouterr().err
    make("SpikeDetection")
    assert "not tried" not in capsys.readouterr().err
    make("ThroughputMonitor", batch_size_fn=len)
    assert "ThroughputMonitor was not tried" in capsys.readouterr().err


def test_a_profiler_and_a_strategy_may_be_made():
    settings = TrainerSettings(
        strategy=partial(strategies.DDPStrategy, gradient_as_bucket_view=True),
        profiler=profilers.PassThroughProfiler,
    )
    _, strategy, profiler = make_parts(settings, (), RUN)
    assert isinstance(strategy, strategies.DDPStrategy)
    assert isinstance(profiler, profilers.PassThroughProfiler)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ({"limit_train_batches": 2}, [0, 1, 7, 8, 14, 15, 21, 22, 28]),
        ({"limit_train_batches": 0.5}, [0, 1, 2, 7, 8, 9, 14, 15, 16]),
        ({"overfit_batches": 1}, [0] * 9),
        ({"overfit_batches": 2}, [0, 1, 0, 1, 0, 1, 0, 1, 0]),
    ],
)
@pytest.mark.parametrize("start", [0, 1, 4])
def test_an_epoch_may_be_limited_and_a_batch_repeated(given, expected, start):
    """Of 7 batches an epoch; a resumed run goes on in mid-epoch."""

    def make_plan(steps):
        def training(first, rank, world):
            return iter(range(first, steps))

        return engine.Plan(training, None, steps_per_epoch=7, total_steps=steps)

    plan = engine.limited(make_plan, 9, TrainerSettings(**given))
    batches = plan.training(start, 0, 1)
    assert list(islice(batches, 9 - start)) == expected[start:]
    assert len(list(islice(batches, 2))) <= 2  # Lightning asks for one more, and gets an answer
    assert plan.total_steps == 9


@pytest.mark.parametrize(
    ("save", "spec"),
    [(tiny.save_clip, HFClip), (tiny.save_open_clip, lambda w: OpenClip(str(w)))],
)
def test_recomputed_activations_give_the_same_weights(tmp_path, save, spec):
    weights = save(tmp_path / "weights")
    calls = []

    def load(recompute, path):
        encoder = spec(path).load()
        layers = [
            layer
            for name, layer in encoder.model.named_modules()
            if re.search(r"(layers?|resblocks)\.0\.", name)
            and isinstance(layer, torch.nn.LayerNorm)
        ]
        layers[0].register_forward_pre_hook(lambda *_: calls.append(recompute))
        if recompute:
            recompute_activations(encoder)
        return encoder

    def trained(recompute):
        model_spec = SimpleNamespace(load=partial(load, recompute, str(weights)))
        folder = folder_of(tmp_path, str(recompute))
        return train(folder, weights, steps=4, spec=lambda path: model_spec)[0].state_dict()

    plain, recomputed = trained(False), trained(True)
    difference = max((plain[k].float() - recomputed[k].float()).abs().max() for k in plain)
    assert difference < 1e-5
    # Four steps and the two batches of the validation after the last one.
    assert (calls.count(False), calls.count(True)) == (4 + 2, 2 * 4 + 2)


def test_a_model_that_cannot_recompute_is_named(weights):
    with pytest.raises(
        UserError, match="VisionTextDualEncoderModel cannot compute its activations"
    ):
        recompute_activations(HFClip(str(weights)).load())


def test_a_logger_of_lightnings_gets_the_curves(tmp_path):
    make = partial(loggers.CSVLogger, save_dir=tmp_path, name="theirs")
    ours, theirs = make_loggers(make, tmp_path, 0)
    for logger in (ours, theirs):
        logger.log_metrics({"train/loss": 2.5}, 1)
        logger.save()
    assert "2.5" in (tmp_path / "theirs/version_0/metrics.csv").read_text()
    with pytest.raises(UserError, match="logger makes a dict, not a Logger"):
        make_loggers(dict, tmp_path, 0)


def test_trackio_is_called_as_wandb_is(tmp_path, monkeypatch, capsys):
    """A stand-in with the signatures of trackio 0.43."""
    said = []

    def init(project, name=None, group=None, resume="never") -> SimpleNamespace:
        print("* Trackio project initialized")
        said.append((project, name, group, resume))

        def log(metrics, step=None):
            said.append((metrics, step))

        return SimpleNamespace(log=log, finish=lambda: said.append("finished"))

    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace(init=init))
    folder = tmp_path / "demo" / "cf_ratio=0.6" / "seed=1"
    folder.mkdir(parents=True)
    made = make_loggers(LoggerSettings(kind="trackio"), folder, 0)
    made[1].log_metrics({"train/loss": 2.5}, 3)
    close_loggers(made)
    assert said[0] == ("cfaug", "demo cf_ratio=0.6 seed=1", "cf_ratio=0.6", "allow")
    assert said[1][0]["train/loss"] == 2.5
    assert said[1][0]["trainer/global_step"] == 3
    assert said[2:] == ["finished"]
    assert capsys.readouterr().out == ""
