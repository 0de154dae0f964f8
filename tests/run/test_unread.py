"""A typed setting that nothing reads is refused, with what would read it."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path

import pytest

import cfaug
from cfaug.core.errors import UserError
from cfaug.run import annotate, evaluate, generate, table, train
from cfaug.run.reading_rules import BRANCHES, RULES
from cfaug.run.unread import OUTPUT
from tests.run.conftest import stdout_of
from tests.run.test_own_benchmark import Own

SCRIPTS = {
    module.SCRIPT.name: module.SCRIPT for module in (train, evaluate, generate, table, annotate)
}


def refusal(name: str, *words: str, multirun: bool = False) -> str:
    with pytest.raises(UserError) as refused:
        SCRIPTS[name].compose(list(words), multirun=multirun)
    return str(refused.value)


def accepted(name: str, *words: str, multirun: bool = False) -> None:
    SCRIPTS[name].compose(list(words), multirun=multirun)


CHECKPOINT = ("weights=zoo:clip-0", "benchmark=retrieval", "benchmark.data=photos")
UNREAD = [
    # A checkpoint is evaluated, no run (N9).
    ("evaluate", (*CHECKPOINT, "name=none"), "name"),
    ("evaluate", (*CHECKPOINT, "runs=[nowhere]"), "runs"),
    ("evaluate", (*CHECKPOINT, "data.cf_ratio=0.3"), "data.cf_ratio"),
    ("evaluate", (*CHECKPOINT, "evaluate_initial=true"), "evaluate_initial"),
    ("evaluate", (*CHECKPOINT, "forgetting_threshold=0.3"), "forgetting_threshold"),
    # A run has its own model, data and seed (N11).
    ("evaluate", ("name=mine", "model=tiny_flava"), "model"),
    ("evaluate", ("name=mine", "seed=99"), "seed"),
    ("evaluate", ("name=mine", "data.holdout=0.9", "benchmark=heldout"), "data.holdout"),
    ("evaluate", ("runs=[folder]", "name=mine"), "name"),
    # Weights are mixed, and arms are not compared (N12).
    ("evaluate", ("wise_ft=[0,1]", "name=mine", "tabulate=all"), "tabulate"),
    # No counterfactuals are drawn (N14, N31).
    ("train", ("task=entailment", "data.size=300", "data.stratify=true"), "data.stratify"),
    ("train", ("data.cf_ratio=1", "data.stratify=true"), "data.stratify"),
    ("train", ("data.cf_ratio=1", "data.real_captions=edited"), "data.real_captions"),
    ("train", ("data.cf_ratio=0", "data.human_labels=/nonexistent"), "data.human_labels"),
    ("train", ("data.cf_ratio=0", "data.negatives=text"), "data.negatives"),
    ("train", ("data.cf_ratio=0", "loss=pair_aware", "loss.hard_negative_weight=50"),
     "loss.hard_negative_weight"),
    ("train", ("loss=hard_negatives", "loss.negative_weight=3"), "loss.negative_weight"),
    ("train", ("loss=set_invariance", "loss.set_invariance=0", "loss.invariance=kl"),
     "loss.invariance"),
    ("train", ("image_cache_mib=5",), "image_cache_mib"),
    ("train", ("parallel=2",), "parallel"),
    # Of a preset only what a default of another setting takes (found by a third round).
    ("train", ("preset.optim.lr=0.1", "optim.lr=0.2"), "preset.optim.lr"),
    ("train", ("preset.batch_size=8", "data.batch_size=4"), "preset.batch_size"),
    ("train", ("+by_seed.7=x",), "by_seed.7"),
    ("train", ("on_error=stop",), "on_error"),
    ("train", ("data.validation=0", "trainer.val_every_steps=3"), "trainer.val_every_steps"),
    ("train", ("trainer.max_steps=0", "optim.lr=1e-3"), "optim.lr"),
    ("train", ("tuning=lora", "+tuning.lora.merge=false"), "tuning.lora.merge"),
    ("train", ("optim.weight_decay=0", "optim.decay_rule=huggingface"), "optim.decay_rule"),
    ("train", ("+logger.project=x",), "logger.project"),
    ("train", ("paths.data=/nowhere",), "paths.data"),
    ("train", ("data.world.vqa_pairs=6",), "data.world.vqa_pairs"),
    ("train", ("data=folder", "data.real=photos", "data.cf_ratio=0", "world@data.world=questions"),
     "data.world"),
    ("train", ("data.batch_size=8", "trainer.micro_batch_size=100"), "trainer.micro_batch_size"),
    ("train", ("data.batch_size=8", "trainer.micro_batch_size=4", "trainer.devices=2"),
     "trainer.micro_batch_size"),
    ("generate", ("parallel=2",), "parallel"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "words", "key"), UNREAD, ids=[f"{name} {' '.join(words)}" for name, words, _ in UNREAD]
)
def test_a_setting_that_nothing_reads_is_refused_with_what_reads_it(name, words, key):
    (typed,) = (word for word in words if word.lstrip("+").partition("=")[0].endswith(key))
    said = refusal(name, *words)
    assert said.startswith(f"{typed} would have no effect: {key} is read ")
    assert said.endswith("; leave it out")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("evaluate", (*CHECKPOINT, "name=null", "evaluate_initial=false")),
        ("evaluate", ("weights=zoo:clip-0", "benchmark=heldout", "data.holdout=0.2")),
        ("evaluate", ("weights=zoo:clip-0", "benchmark=ood", "data.world.style=drawing")),
        ("evaluate", ("weights=zoo:clip-1", "model=tiny_clip", "benchmark=ood")),
        ("evaluate", ("benchmark=ood", "paths.data=/folders", "name=mine")),
        ("train", ("data.cf_ratio=0", "data.stratify=false", "loss=null")),
        ("train", ("task=vqa", "data.world.vqa_pairs=6")),
        ("train", ("loss=negatives", "loss.negative_weight=3")),
        ("generate", ("zoo=paper", "data.source=captions.jsonl")),
    ],
)
def test_a_setting_that_something_reads_is_accepted(name, words):
    accepted(name, *words)


class Opens(Own):
    def open(self, context):
        return [self]


def test_a_class_of_somebody_elses_may_read_any_of_the_data(tmp_path):
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark/own.yaml").write_text(f"_target_: {__name__}.Opens\nfound: null\n")
    folder = f"hydra.searchpath=[file://{tmp_path}]"
    accepted("evaluate", "weights=zoo:clip-0", "benchmark=own", "data.holdout=0.2", folder)


@pytest.mark.slow
def test_a_sweep_is_refused_if_none_of_its_jobs_reads_a_setting_and_told_otherwise(capsys):
    words = ("data.cf_ratio=0,0.3", "data.pairs_in_batch=true")
    accepted("train", *words, multirun=True)
    said = capsys.readouterr().err
    assert "note: in 1 of 2 jobs data.pairs_in_batch=True would have no effect" in said
    assert "leave it out" not in said  # the other job reads it
    words = ("data.cf_ratio=0", "data.pairs_in_batch=true", "seed=1,2")
    assert "would have no effect" in refusal("train", *words, multirun=True)
    accepted("train", "seed=1,2", "parallel=2", "on_error=stop", multirun=True)


def test_a_preset_is_read_by_the_settings_that_take_it():
    accepted("train", "preset.optim.lr=0.1", "preset.batch_size=8", "preset.trainer.max_steps=2")
    accepted("train", "preset.lora.lr=0.1", "tuning=lora")
    accepted("train", "preset=paper")


@pytest.mark.slow
def test_python_is_refused_likewise():
    with pytest.raises(UserError, match=r"part=1 would have no effect"):
        cfaug.mix({"data.cf_ratio": 0, "part": 1, "parts": 2})
    with pytest.raises(UserError, match=r"data\.stratify=True would have no effect"):
        cfaug.mix({"data.cf_ratio": 0, "data.stratify": True})
    with pytest.raises(UserError, match=r"cfaug\.open_source reads data\.world"):
        cfaug.open_source("shapescapes:real", {"data.cf_ratio": 0.5})
    with pytest.raises(UserError, match="seed=3 would have no effect"):
        cfaug.compare("mine", seed=3)


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_lists_who_reads_what(name):
    said = stdout_of(__import__(f"cfaug.run.{name}", fromlist=["main"]).main, ["--help"])
    assert "Choices (group=option" in said
    for rule in RULES.get(name, ()):
        assert f"  {', '.join(rule.settings)}: {rule.read_by}" in said
    for branch in BRANCHES.get(name, ()):
        assert f"  {branch.name}: {', '.join(branch.reads)}" in said


def test_every_branch_and_rule_names_settings_that_there_are():
    top = {field.name for field in fields(evaluate.SCRIPT.command)}
    for branch in BRANCHES["evaluate"]:
        assert {key.partition(".")[0] for key in branch.reads} <= top
    read = {key.partition(".")[0] for branch in BRANCHES["evaluate"] for key in branch.reads}
    assert top - read == {"overrides", *OUTPUT}  # no setting of the command is without a reader


# Each run of the property below takes four steps of the tiny CLIP from the same start.
START = {
    "trainer.max_steps": 4, "optim.lr": 0.01, "optim.warmup_steps": 1, "trainer.progress": False,
    "trainer.val_every_steps": 4, "data.batch_size": 7, "data.size": 20,
    "trainer.checkpoint": "last", "data.world.real_scenes": 40,
    "data.world.counterfactual_pairs": 24, "data.world.unbiased_scenes": 30,
    "data.world.id_scenes": 10, "data.world.ood_pairs": 12, "data.world.seed": 5,
}  # fmt: skip
WORLDS = {
    "bias": 0.2, "style": "drawing", "seed": 6, "drop_colour": 0.9, "shortcut": "colour",
    "skew": 0.5, "compositional_pairs": 22,
}  # fmt: skip
EXAMPLES = {
    "data.size": 15, "data.seed": 77, "data.validation": 0.4, "data.split": "random",
    "data.holdout": 0.2, "data.real_captions": "edited",
    "data.human_labels": "shapescapes:counterfactual", "data.stratify": True,
    "data.pairs_in_batch": True, "data.counterfactual_members": "edited",
    "data.counterfactual_captions": "shuffled", "data.negatives": "text",
    "data.real": "shapescapes:unbiased", "data.counterfactual": "shapescapes:nowhere",
    "data.control": "real", "data.control_source": "shapescapes:more_real", "loss": "negatives",
}  # fmt: skip
TRAINING = {
    "data.drop_last": True, "data.batch_size": 6,
    "optim.lr": 0.02, "optim.weight_decay": 0.3, "optim.eps": 1e-3, "optim.schedule": "cosine",
    "optim.warmup_steps": 3, "optim.layer_decay": 0.5, "optim.decay_rule": "huggingface",
    "+optim.betas": [0.5, 0.9], "trainer.max_steps": 3, "trainer.precision": "bf16-mixed",
    "trainer.accumulate_grad_batches": 2, "trainer.gradient_clip": 0.01,
    "trainer.ema_decay": 0.5, "trainer.max_epochs": 1, "model.weights": "zoo:clip-1",
    "model.logit_scale_max": 2.0, "+model.revision": "abc", "+model.max_length": 4,
    "model.max_tokens": 99, "model.train_logit_scale": False, "tuning": "heads_only", "seed": 3,
}  # fmt: skip
CHANGES = {
    0: EXAMPLES | {f"data.world.{name}": value for name, value in WORLDS.items()},
    0.5: EXAMPLES | TRAINING,
    1: EXAMPLES | {f"data.world.{name}": value for name, value in WORLDS.items()},
}
"""{ratio: settings and other values}: training takes the examples of a mixture as those of one of
its parts, and a mixture draws both parts of the world."""
OTHERWISE_READ = {
    "data.workers": (1, "who decodes"), "threads": (1, "the number of threads of this process"),
    "trainer.save_every_steps": (1, "how often a run can be resumed from"),
    "trainer.keep_last": (True, "a file beside the weights"),
    "trainer.log_every_steps": (2, "rows of metrics.csv"),
    "share_image_cache": (True, "memory"),
    "data.world.id_scenes": (12, "the size of a test of the same world"),
    "data.world.counterfactual_pairs": (25, "one world for all arms of an experiment"),
    "data.counterfactual_holdout": (0.2, "the test set of all arms, which evaluate.py asks"),
    "data.holdout": (0.2, "the test set of all arms, which evaluate.py asks"),
    "data.real": ("shapescapes:unbiased", "the source of other arms, if this one draws none of it"),
    "data.world.skew": (0.5, "one world for all arms of an experiment"),
}  # fmt: skip
"""{setting: (a value, what it changes besides the weights)}: these may leave the weights equal."""


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds")


@pytest.mark.slow
@pytest.mark.parametrize("ratio", CHANGES)
def test_every_setting_of_a_run_changes_its_weights_or_is_refused(ratio, worlds, tmp_path):
    """An arm is what its name says: weights are compared byte by byte."""

    def weights(**more) -> str | None:
        settings = {**START, "data.cf_ratio": ratio, "paths.runs": str(tmp_path)}
        settings |= {"paths.shards": str(worlds), "paths.cache": str(worlds), **more}
        arm = hashlib.sha256(repr(more).encode()).hexdigest()
        try:
            run = cfaug.fine_tune(settings, arm=arm)
        except UserError:
            return None
        file = run.folder / "checkpoint/model.safetensors"
        return hashlib.sha256(file.read_bytes()).hexdigest()

    plain = weights()
    assert plain is not None
    unread = [key for key, value in CHANGES[ratio].items() if weights(**{key: value}) == plain]
    assert [key for key in unread if key not in OTHERWISE_READ] == []
    assert weights(**{key: value for key, (value, _) in OTHERWISE_READ.items()}) is not None
