"""``train.py experiment=lance_perturber``: from rows on disk to a folder that edits captions."""

from __future__ import annotations

import json

import pytest

from cfaug import CounterfactualDataModule
from cfaug.core.errors import UserError
from cfaug.editing.causal_lm import CausalLM
from cfaug.editing.edit_prompts import EditFormat
from cfaug.train.settings import OptimSettings, TrainerSettings
from cfaug.train.tuning import matching
from tests.run.conftest import refusal
from tests.train import tiny_language


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language")
    tiny_language.save_gpt2(folder / "model", dropout=0.1)
    tiny_language.write(folder / "rows.jsonl")
    return folder


class Command:
    """train.py on a tiny model and a few rows."""

    def __init__(self, script, shelf, root) -> None:
        self.script, self.shelf, self.root = script, shelf, root
        self.folder = root / "lance_perturber" / "a" / "seed=7"

    def __call__(self, *words: str, edits=None) -> int:
        given = [
            "experiment=lance_perturber", f"data.edits={edits or self.shelf / 'rows.jsonl'}",
            f"model.weights={self.shelf / 'model'}", "data.format=short",
            "data.validation=0.34", f"paths.runs={self.root}", "seed=7", "arm=a",
            "trainer.accelerator=cpu", "optim.warmup=2",
        ]  # fmt: skip
        return self.script("train")([*given, *words])


@pytest.fixture
def train(tmp_path, script, shelf):
    return Command(script, shelf, tmp_path)


def record(train):
    return json.loads((train.folder / "run.json").read_text())


SHORT = ("trainer.max_steps=4", "trainer.val_every_steps=2", "trainer.accumulate_grad_batches=2")


@pytest.mark.slow
def test_a_run_is_identified_recorded_and_described(train, shelf, capsys):
    assert train(*SHORT, "dry_run=json") == 0
    dry = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert dry["counts"] == {
        "train": 8, "validation": 4, "total": 12, "captions": 4, "edits": 20,
    }  # fmt: skip
    assert train(*SHORT) == 0
    recorded = record(train)
    assert recorded["state"] == "done"
    assert recorded["config_hash"] == dry["config_hash"]
    assert recorded["counts"]["seen"] == 4 * 2 * 4
    assert set(recorded["evaluation"]) == {"adjective", "background-location", "all"}
    assert {"content.edits", "content.format"} <= recorded["identity"].keys()
    card = (train.folder / "checkpoint" / "README.md").read_text()
    assert "20 edits of 4 captions in 8 answers" in card
    assert f"{recorded['evaluation']['all']['perplexity']:.3f}" in card
    assert EditFormat.read(train.folder / "checkpoint") == EditFormat.short()
    assert CausalLM(str(train.folder / "checkpoint")).generate(["a red"], 4)
    capsys.readouterr()
    assert train(*SHORT) == 0
    assert "already done" in capsys.readouterr().out
    other = tiny_language.write(
        shelf / "other.jsonl", [{"caption": "a", "kind": "domain", "edit": "b"}]
    )
    all_trained = ("data.validation=0", "trainer.checkpoint=last", "trainer.early_stopping=null")
    assert train(SHORT[0], SHORT[2], *all_trained, edits=other) == 2
    assert "content.edits: there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data.edits=null"], "data.edits=FILE.jsonl is missing"),
        (["data.edits=nowhere.jsonl"], "no such file"),
        (["data.validation=0", "trainer.val_every_steps=null"], "raise data.validation=0"),
        (["data.format=alpaca"], "tokens, and 160 are read"),
        (["loss=pair_aware"], "loss=... sets what counts as a negative"),
        (["trainer.micro_batch_size=2"], "trainer.accumulate_grad_batches beside it"),
        (["model=tiny_clip"], "can be loaded as DualEncoder"),
    ],
)
def test_what_makes_no_run_is_refused_in_words(train, words, said):
    error = refusal(train, *SHORT, *words)
    assert said in error


def test_table_6_is_the_preset(script):
    """LANCE, Table 6 and section 4: 37.5k micro-steps, an update every 32."""
    from cfaug.planning.build import build
    from tests.test_conf import _compose

    [(config, _)] = _compose("train", "experiment=lance_perturber")
    optim, trainer = build(config["optim"]), build(config["trainer"])
    assert isinstance(optim, OptimSettings)
    assert isinstance(trainer, TrainerSettings)
    assert (optim.lr, optim.weight_decay) == (3e-4, 0.0)
    data = build(config["data"])
    assert data.batch_size * trainer.accumulate_grad_batches == 128
    assert trainer.accumulate_grad_batches == 32
    assert trainer.max_steps == -(-37_500 // 32)
    assert data.max_length == 1024
    lora = build(config["tuning"]).lora
    assert (lora.r, lora.alpha, lora.dropout) == (8, 16, 0.05)

    t5 = "language_model.encoder.block.0.layer.0.SelfAttention.q"
    assert matching("tuning.lora.targets", lora.targets, [t5, "encoder.layer.0.output"]) == {t5}


def test_edits_of_captions_are_no_mixture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = {"data": "edits", "data.edits": str(tiny_language.write(tmp_path / "rows.jsonl")),
             "model": "perturber", "data.format": "short", "data.validation": 0.34,
             "model.weights": str(tiny_language.save_gpt2(tmp_path / "gpt2"))}  # fmt: skip
    with pytest.raises(UserError, match="not trained on a mixture"):
        CounterfactualDataModule(asked)
