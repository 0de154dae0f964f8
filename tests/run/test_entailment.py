"""``train.py task=entailment``, then ``evaluate.py benchmark=entailment``: the whole commands."""

from __future__ import annotations

import json

import pytest

from cfaug.data.shards.shards import write_shards
from cfaug.models.task_specs import ViltEntailment
from cfaug.report.items import read_items
from tests.models import tiny
from tests.run.conftest import refusal
from tests.train.test_entailment import hypotheses


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("entailment")
    tiny.save_vilt(folder / "vilt")
    write_shards(hypotheses("real", 24), folder / "real")
    write_shards(hypotheses("edited", 24, edited=True), folder / "edited")
    return folder


def words(shelf, root, *more):
    return [
        "task=entailment", "data=entailment", f"data.real={shelf / 'real'}",
        f"model.weights={shelf / 'vilt'}", f"paths.runs={root / 'runs'}",
        f"paths.shards={root}", "trainer.accelerator=cpu", "trainer.max_steps=4", "arm=a",
        "trainer.val_every_steps=2", "data.batch_size=8", "data.validation=0.25", *more,
    ]  # fmt: skip


@pytest.mark.slow
def test_runs_are_recorded_described_and_asked_before_and_after(shelf, tmp_path, script, capsys):
    edited = [f"data.counterfactual={shelf / 'edited'}", "data.cf_ratio=0.5"]
    train = script("train")
    for arm, more in (("a", []), ("b", [*edited, "arm=b"])):
        assert train([*words(shelf, tmp_path, *more), "seed=1"]) == 0
        run = tmp_path / "runs" / "entailment" / arm / "seed=1"
        record = json.loads((run / "run.json").read_text())
        assert record["state"] == "done"
        counts = record["classes"]
        assert sum(counts["train"].values()) == record["counts"]["train"]
        assert record["cf_ratio"] == (0.5 if more else 0)
        card = (run / "checkpoint" / "README.md").read_text()
        assert "visual-entailment" in card
        assert f"{100 * record['evaluation']['accuracy']:.2f} %" in card
        assert "from cfaug.models.task_specs import ViltEntailment" in card
        assert ViltEntailment(str(run / "checkpoint")).load() is not None
    err = capsys.readouterr().err
    assert "train: " in err
    assert "contradiction" in err
    ask = [
        "name=entailment", "benchmark=entailment", f"benchmark.data={shelf / 'edited'}",
        f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path}", "device=cpu",
        "verbose=true",  # each run in its own words
    ]  # fmt: skip
    assert script("evaluate")(ask) == 0
    out = capsys.readouterr().out
    assert "insertion: 24 texts, accuracy" in out
    for arm in "ab":
        run = tmp_path / "runs" / "entailment" / arm / "seed=1"
        items = read_items(run, "edited_entailment")
        assert len(items) == 24
        assert (run / "entailment.md").is_file()
        results = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
        assert {"accuracy", "f1_macro", "f1_macro_drop"} <= {row["metric"] for row in results}
    assert script("evaluate")(ask) == 0
    assert "already evaluated" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["model=tiny_clip"], "not as Entailer"),
        (["model=entailer"], "choose a model that task=entailment trains"),
        (["loss=pair_aware"], "leave it out with task=entailment"),
        (["trainer.micro_batch_size=2"], "exact with task=entailment"),
        (["data=folder", "data.holdout=0", "data.cf_ratio=0"], "by `python train.py task=entail"),
    ],
)
def test_what_teaches_no_entailment_is_refused(shelf, tmp_path, script, more, said):
    given = words(shelf, tmp_path, *more)
    if more[0] in ("model=tiny_clip", "model=entailer"):
        given = [word for word in given if not word.startswith("model.weights")]
    if more[0] == "data=folder":
        given.remove("data=entailment")
    assert said in refusal(script("train"), [*given, "dry_run=true"])


def test_labels_outside_the_three_are_refused_before_anything_is_trained(tmp_path, shelf, script):
    from dataclasses import replace

    wrong = [
        replace(hypothesis, members=tuple(replace(m, label=None) for m in hypothesis.members))
        if number == 3 else hypothesis
        for number, hypothesis in enumerate(hypotheses("real", 24))
    ]  # fmt: skip
    write_shards(wrong, tmp_path / "wrong")
    given = [*words(shelf, tmp_path), f"data.real={tmp_path / 'wrong'}", "dry_run=true"]
    assert "2 of 48 examples have no label of entailment" in refusal(script("train"), given)
