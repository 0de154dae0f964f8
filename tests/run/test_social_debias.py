"""What lowers the skew: sets, the model that has learnt it, every arm, questions, the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfaug.report.document import read_document
from cfaug.report.items import read_items
from cfaug.report.results import read_results
from cfaug.run.usage import read_arms
from tests.test_conf import CONF

ARMS = sorted(read_arms(CONF / "experiment/social_debias.yaml").keys() - {"start"})
HELD_OUT = {"tree", "house", "cat"}  # three of ten, the same in every world and for every seed
SMALL = [
    "data.world.real_scenes=90", "data.world.id_scenes=20", "data.size=90", "data.batch_size=40",
    "trainer.progress=false",
]  # fmt: skip


@pytest.fixture
def run(tmp_path, script):
    """Run a command on folders of its own; return its exit code."""
    paths = [f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path / 'shards'}"]

    def call(name: str, *words: str) -> int:
        if name == "generate":
            own = [f"paths.shards={tmp_path / 'shards/social_debias'}"]
            return script(name)([*own, f"paths.worlds={tmp_path / 'shards'}", *words])
        return script(name)([*paths, *words])

    return call


def sets(run) -> None:
    assert run("generate", "recipe=social_oracle", "recipe.draws.candidates=1") == 0


def train(run, experiment: str, *words: str, seed: int = 107) -> int:
    """Train an arm; its name is that of the experiment's, whatever else is small."""
    arm = experiment.partition("/")[2].replace("start", "planted")
    named = [] if any(word.startswith("arm=") for word in words) else [f"arm={arm}"]
    return run("train", f"experiment={experiment}", f"seed={seed}", *SMALL, *named, *words)


def record(root: Path, arm: str, seed: int = 107) -> dict:
    file = root / "runs" / "social_debias" / arm / f"seed={seed}" / "run.json"
    return json.loads(file.read_text())


@pytest.mark.slow
def test_every_arm_is_trained_asked_and_tabled(run, tmp_path, capfd):
    sets(run)
    for seed in (107, 108):
        assert train(run, "social_debias/start", "trainer.max_steps=2", seed=seed) == 0
        for arm in ARMS:
            steps = [] if arm == "before" else ["trainer.max_steps=2"]
            assert train(run, f"social_debias/{arm}", *steps, seed=seed) == 0, capfd.readouterr()
    for arm in ARMS:
        counts = record(tmp_path, arm)["counts"]
        assert counts["train"] == 90
        share = {"before": 0, "real": 0}.get(arm, 81 if arm.endswith("_90") else 45)
        assert counts["counterfactual"] == share
        assert record(tmp_path, arm)["steps"] == (0 if arm == "before" else 2)
        card = tmp_path / "runs/social_debias" / arm / "seed=107/checkpoint/README.md"
        assert ("permuted among its images" in card.read_text()) is arm.startswith("shuffled")
        assert ("its set's neutral prompt" in card.read_text()) is (arm == "sets_neutral")
    few = [
        "+benchmark.world.shapescapes_unseen_skew.permutations=99",
        "+benchmark.world.shapescapes_unseen_skew.resamples=50",
    ]
    words = ["name=social_debias", "benchmark=social_debias", "comparison=social_debias"]
    assert run("evaluate", *words, *few) == 0, capfd.readouterr()
    folder = tmp_path / "runs" / "social_debias"
    for arm in ARMS:
        items = read_items(folder / arm / "seed=107", "shapescapes_unseen_skew")
        assert set(items.columns["subject"]) == HELD_OUT
        found = read_results(folder / arm / "seed=107" / "results.jsonl")
        assert {row.better for row in found if row.metric == "max_skew"} == {"lower"}
    assert run("evaluate", "table=social_debias") == 0, capfd.readouterr()
    document = read_document(tmp_path / "runs" / "tables" / "social_debias.json")
    assert [part.title for part in document.parts[1:]] == [
        "Declared before looking", "Less real data alone", "Less before fine-tuning",
        "Less sets, captions shuffled", "Less sets, captions shuffled, nine of ten examples",
    ]  # fmt: skip
    assert len(document.parts[0].rows) == len(ARMS)


@pytest.mark.slow
def test_no_set_is_cut_and_no_held_out_subject_trained_on(run, tmp_path, capfd):
    """At the size of the experiment: 84 whole sets, all that there are of seven subjects."""
    assert run("generate", "recipe=social_oracle") == 0
    small = ["data.world.real_scenes=2016", "data.size=2016", "trainer.max_steps=0"]
    capfd.readouterr()
    words = ["model.name_or_path=zoo:clip-0", "data.world.image_size=8", "dry_run=json"]
    for seed in (107, 900):
        assert train(run, "social_debias/sets_invariant", *small, *words, seed=seed) == 0
        said = json.loads(capfd.readouterr().out.splitlines()[0])
        assert said["counts"]["counterfactual"] == said["counts"]["real"] == 84 * 12
        assert said["counts"]["validation"] == said["counts"]["dropped"] == 0
        fits = [word for word in small if not word.startswith("data.size")]
        assert (
            train(run, "social_debias/shuffled_90", *fits, "data.size=null", *words, seed=seed) == 0
        )
        counts = json.loads(capfd.readouterr().out.splitlines()[0])["counts"]
        assert (counts["counterfactual"], counts["real"]) == (84 * 12, 112)
