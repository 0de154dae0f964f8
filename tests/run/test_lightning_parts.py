"""Lightning's parts on the command line: checked before anything starts, and in the identity."""

from __future__ import annotations

import csv
import pickle

import pytest

from cfaug.planning.training import TrainRequest, TrainSettings
from cfaug.run.arm_names import arm_slug
from cfaug.run.identity import identity
from cfaug.run.run_folder import check_result_loggers, hand_over
from tests.run.conftest import SCENES, WORLD, compose, refusal

STOP = "trainer.callbacks={stop: {_target_: lightning.pytorch.callbacks.EarlyStopping, monitor: a}}"
BAR = "trainer.callbacks={bar: {_target_: lightning.pytorch.callbacks.RichProgressBar}}"
SAVE = (
    "trainer.callbacks={save: {_target_: lightning.pytorch.callbacks.ModelCheckpoint, "
    "monitor: val/loss, enable_version_counter: false}}"
)
AVERAGE = "trainer.callbacks={a: {_target_: lightning.pytorch.callbacks.EMAWeightAveraging}}"


def described(*words):
    """Return the name of the arm and the identity of a run."""
    config = compose("train", *words)
    settings = TrainSettings(**config, overrides=words).config()
    return arm_slug(words, settings), identity(settings, {})


PLAIN = [
    BAR, SAVE,
    "trainer.strategy=ddp", "trainer.profiler=simple", "logger=trackio", "logger=lightning",
    "trainer.limit_train_batches=null", "trainer.gradient_checkpointing=false",
]  # fmt: skip
CHANGED = [
    ("callbacks=early_stopping", "trainer.callbacks.early_stopping.patience"),
    (STOP, "monitor"),
    (AVERAGE, "trainer.callbacks.a._target_"),
    ("trainer.strategy={_target_: lightning.pytorch.strategies.DDPStrategy}", "trainer.strategy."),
    ("trainer.limit_train_batches=3", "trainer.limit_train_batches"),
    ("trainer.overfit_batches=1", "trainer.overfit_batches"),
    ("trainer.gradient_checkpointing=true", "trainer.gradient_checkpointing"),
    ("trainer.deterministic=warn", "trainer.deterministic"),
]


@pytest.mark.parametrize("word", PLAIN)
def test_what_only_watches_is_not_part_of_a_runs_identity(word):
    arm, there = described(word)
    assert there == described()[1]
    assert not any("callbacks" in key or "strategy" in key for key in there)
    if word.partition("=")[0] in ("callbacks", "trainer.strategy", "trainer.profiler", "logger"):
        assert arm == "default"


@pytest.mark.parametrize(("word", "key"), CHANGED)
def test_what_may_change_weights_is_part_of_it(word, key):
    arm, there = described(word)
    usual = described()[1]
    assert any(key in name for name, value in there.items() if usual.get(name, ...) != value)
    assert arm != "default"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([STOP.replace("monitor: a", "monitor: a, patience: soon")],
         "trainer.callbacks.stop.patience=soon should be a whole number"),
        ([STOP.replace("monitor: a", "patience: 3")], "trainer.callbacks.stop.monitor is missing"),
        ([STOP.replace("Stopping", "Stoping")],
         "did you mean lightning.pytorch.callbacks.EarlyStopping?"),
        ([AVERAGE.replace("}}", ", deca: 0.9}}")], "did you mean trainer.callbacks.a.decay?"),
        (["trainer.callbacks={a: {_target_: json.JSONDecoder}}"],
         "json.JSONDecoder is no Callback, which trainer.callbacks.a takes"),
        (["trainer.strategy=fsdp2"], "trainer.strategy=fsdp2: choose auto or ddp"),
        (["trainer.limit_train_batches=1.5"], "a number in (0, 1]"),
        (["trainer.limit_train_batches=2", "trainer.overfit_batches=1"], "give one of them"),
        (["trainer.gradient_checkpointing=true"], "cannot compute its activations again"),
        (["logger=lightning", "+logger.save_dri=a"], "did you mean logger.save_dir?"),
        (["ckpt_path=last.ckpt"], "a run has a folder of its own and resumes by itself"),
        (["+trainer.ckpt_path=last.ckpt"], "the same command again goes on from last.ckpt"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_in_a_dry_run(place, words, said):
    assert said in refusal(place.train, "dry_run=true", *words)


@pytest.mark.slow
def test_a_callback_that_cannot_work_is_refused_before_the_runs_folder_begins(place):
    assert "use_buffers: false" in refusal(place.train, AVERAGE, "name=average", "arm=a", "seed=0")
    assert not place.folder("a", seed=0, name="average").exists()


def curve(folder):
    with (folder / "metrics.csv").open() as lines:
        return [(int(row["step"]), float(row["train/loss"])) for row in csv.DictReader(lines)]


@pytest.mark.slow
def test_the_debug_group_trains_in_a_folder_that_no_table_reads(place, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = [*SCENES, place.paths[1], "data.batch_size=16", "threads=1", "arm=any"]
    train, folder = place.script("train"), tmp_path / "runs/.debug/debug/any/seed=0"
    # Each anew in the same folder, with no word for it.
    for choice, steps in (("batch", 1), ("batch", 1), ("limit", 6), ("overfit", 30)):
        assert train([*words, f"debug={choice}"]) == 0
        losses = curve(folder)
        assert losses[-1][0] == len(losses) == steps
        assert (folder / "checkpoint").is_dir()
    assert losses[-1][1] < 0.5 * losses[0][1]
    said = refusal(train, [*words, "debug=overfit", "trainer.max_steps=2", "optim.lr=1e-30"])
    assert "the loss did not fall on the same few batches" in said
    evaluate = place.script("evaluate")
    assert "main" in refusal(evaluate, ["name=main", place.paths[1]])


@pytest.mark.slow
def test_debugging_leaves_the_finished_run_of_that_name(place):
    """A3: a run of several steps was replaced by one of a single step."""
    words = ["name=n", "arm=x", "seed=0"]
    assert place.train(*words) == 0
    run = place.folder("x", seed=0, name="n")
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    train = place.script("train")
    shorter = [word for word in (*WORLD, *place.paths) if not word.startswith("trainer.")]
    assert train([*shorter, *words, "debug=batch"]) == 0
    after = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert after == before
    [debugged] = place.root.rglob(".debug/**/run.json")
    assert debugged.parts[-3:-1] == ("x", "seed=0")


@pytest.mark.slow
def test_a_run_has_callbacks_a_profiler_and_a_logger_of_lightnings(place, tmp_path):
    words = [
        "callbacks=early_stopping", SAVE, "trainer.profiler=simple",
        "logger=lightning", f"logger.save_dir={tmp_path / 'theirs'}", "threads=1",
        "trainer.limit_train_batches=2", "trainer.gradient_checkpointing=true", "model=tiny_flava",
    ]  # fmt: skip
    assert place.train(*words) == 0
    folder = place.folder(seed=0)
    assert len(list((folder / "checkpoints").iterdir())) == 1
    assert (folder / "fit-profile.txt").exists()
    assert "train/loss" in (tmp_path / "theirs/lightning_logs/version_0/metrics.csv").read_text()
    assert "callbacks.EarlyStopping" in (folder / "checkpoint/README.md").read_text()
    check_result_loggers([folder])
    assert hand_over(place.root / "main", [folder], None) == {}  # its results go to no such logger


def test_what_is_planned_can_be_sent_to_the_process_of_a_run():
    words = ["callbacks=early_stopping", "logger=lightning", "trainer.profiler=simple"]
    asked = TrainRequest.of(TrainSettings(**compose("train", *words), overrides=words))
    sent = pickle.loads(pickle.dumps(asked))
    assert sent.trainer.callbacks["early_stopping"]().patience == 3
    assert sent.logger().save_dir == "lightning_logs"
