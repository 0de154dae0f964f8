"""The compositional experiment, small: the commands of docs/compositional.md, in order."""

from __future__ import annotations

import shutil

import pytest

from cfaug.report.document import read_document
from cfaug.report.items import read_items
from tests.run.conftest import commands_of, compose
from tests.scripts import ROOT

PAGE = ROOT / "docs" / "compositional.md"
WORLD = ["data.world.compositional_pairs=44", "data.world.compositional_test_pairs=24"]
READERS = [
    f"benchmark.world.{name}.blind.world.compositional_pairs=44"
    for name in ("plain_choice", "biased_choice", "claims_choice")
]
TRAINED = ["data.size=10", "data.batch_size=5", "trainer.progress=false", "seed=107"]
ACCEPTED = [
    "limit=4", "recipe.draws.candidates=1", "recipe.image_editor.steps=2",
    "recipe.selection.min_clip_text=-1", "recipe.selection.min_clip_image=-1",
    "recipe.selection.min_clip_direction=null",
]  # fmt: skip
ARMS = ("before", "both", "single_plain", "generated")
"""Of each kind one; ``tools/golden.yaml`` trains others, and ``tests/test_conf.py`` builds all."""


def test_the_page_has_the_commands_of_the_experiment():
    assert [name for name, _ in commands_of(PAGE)] == [
        "evaluate", "evaluate", "generate", "train", "evaluate", "evaluate", "table",
        "generate", "train", "evaluate", "table",
        "train", "train", "train", "generate", "train", "evaluate", "generate", "train",
        "train", "evaluate",
    ]  # fmt: skip


@pytest.mark.parametrize("arm", ["plain", "text", "image", "both"])
def test_an_arm_at_the_papers_scale_differs_in_what_its_negatives_are_alone(arm):
    config = compose("train", f"experiment=compositional/{arm}", "scale=paper", "seed=107")
    assert config["model"]["weights"] == "openai/clip-vit-base-patch32"
    assert config["data"]["counterfactual"].endswith("coco_counterfactuals")
    assert config["data"]["negatives"] == {"plain": "none"}.get(arm, arm)
    assert config["data"]["cf_ratio"] == 1
    assert config["loss"]["same_image"] == "masked"


@pytest.mark.slow
def test_every_arm_is_trained_asked_and_tabled(tmp_path, monkeypatch, script, capfd):
    monkeypatch.chdir(tmp_path)
    _, _, generate, train, evaluate, wise, _ = (words for _, words in commands_of(PAGE)[:7])
    assert script("generate")([*generate, *WORLD, *ACCEPTED]) == 0, capfd.readouterr().err
    for arm in ARMS:
        steps = [] if arm == "before" else ["trainer.max_steps=1"]
        if arm in ("single_plain", "single_both", "generated"):
            steps += ["data.cf_ratio=0.4"]
        words = [f"experiment=compositional/{arm}", f"arm={arm}", *WORLD, *TRAINED, *steps]
        assert script("train")(words) == 0, (arm, capfd.readouterr().err)
    assert "sweep=sweeps/compositional.yaml" in train
    some = [*evaluate, "benchmark.only=[biased_pairs]"]
    assert script("evaluate")(some) == 0, capfd.readouterr().err
    words = [word for word in wise if word != "--multirun" and not word.startswith("arm=")]
    words = ["wise_ft=[0,1]" if word.startswith("wise_ft=") else word for word in words]
    assert script("evaluate")([*words, "arm=both"]) == 0, capfd.readouterr().err
    tables = ["table.partial=true"]
    for table in ("compositional_oracle", "compositional_wise_ft"):
        assert script("table")([table, *tables]) == 0, capfd.readouterr().err
    document = read_document(tmp_path / "runs/tables/compositional_oracle.json")
    assert len(document.parts[0].rows) == len(ARMS)
    curve = read_document(tmp_path / "runs/tables/compositional_wise_ft.json")
    assert [labels[1] for labels, _ in curve.parts[0].rows] == ["0", "1"]
    # Everything is asked of one arm; beside others it would be compared with what they lack.
    for arm in set(ARMS) - {"both"}:
        shutil.rmtree(tmp_path / "runs/compositional" / arm)
    assert script("evaluate")([*evaluate, *READERS]) == 0, capfd.readouterr().err
    both = tmp_path / "runs/compositional/both/seed=107"
    for name in ("plain_choice", "biased_pairs", "paraphrases_choice"):
        items = read_items(both, name)
        assert len(items.columns["item"]) == 24


@pytest.mark.slow
def test_negation_is_generated_trained_asked_and_tabled(tmp_path, monkeypatch, script, capfd):
    monkeypatch.chdir(tmp_path)
    generate, train, evaluate, table = (words for _, words in commands_of(PAGE)[7:11])
    assert "sweep=sweeps/negation.yaml" in train
    assert script("generate")([*generate, *WORLD]) == 0, capfd.readouterr().err
    for arm, steps in (("before", 0), ("negation", 1), ("negation_true", 1)):
        words = [f"experiment=negation/{arm}", f"arm={arm}", f"trainer.max_steps={steps}",
                 "data.counterfactual=shards/negation/negate", *TRAINED]  # fmt: skip
        assert script("train")(words) == 0, (arm, capfd.readouterr().err)
    assert script("evaluate")(evaluate) == 0, capfd.readouterr().err
    items = read_items(tmp_path / "runs/negation/negation/seed=107", "negation_choice")
    assert sorted(set(items.columns["category"])) == ["absent", "present", "which"]
    assert script("table")([*table, "table.partial=true"]) == 0, capfd.readouterr().err
    document = read_document(tmp_path / "runs/tables/negation_oracle.json")
    assert len(document.parts[0].rows) == 3
