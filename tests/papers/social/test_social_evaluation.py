"""What models and prompts say of images of people: from the commands to the tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfaug.annotation.assignment import items_of
from cfaug.data.index import open_index
from cfaug.report.document import read_document
from cfaug.report.items import read_items
from cfaug.report.results import read_results
from cfaug.settings.choices import read_arms
from tests.files_of_settings import settings_file
from tests.grid_sets import every_grid_set, lay_grid_sets
from tests.papers.social.questions import ERRORS
from tests.report.example import data_of
from tests.run.conftest import stdout_of

CLIP = ("weights=zoo:clip-0", "model=tiny_clip", "device=cpu", "max_indistinct=1")


@pytest.mark.slow
def test_people_judge_images_and_prompts_are_judged_by_them(place, tmp_path, capsys):
    """24 images, 2 of each of the 6 labels asked about."""
    sets = lay_grid_sets(tmp_path / "sets", every_grid_set(("doctor", "nurse")))
    words = (f"pairs={sets}", "annotate/question=social_errors")
    page = place.root / "annotation/annotate.html"
    assert place.annotate(
        "export", *words, "annotate.question.strata.each=2",
        "annotate.assignment.annotators=1", "annotate.assignment.overlap_fraction=0",
    ) == 0  # fmt: skip
    assert "12 questions about 12 images" in capsys.readouterr().out
    tasks = data_of(page)["tasks"]
    known = {item.name: item for item in items_of(open_index(sets, tmp_path / "index"), ERRORS)}
    lines = []
    for number, task in enumerate(tasks):
        item = known[f"{task['k']}_{task['m']}"]
        label = ("good", "unclear", "not_female", "not_male")[number % 4]
        label = "good" if label in task["x"] else label
        assert task["c"] == [item.text]
        lines.append({"key": item.key, "member": item.member, "annotator": "1", "label": label,
                      "seconds": 1.0, "texts": item.texts_hash})  # fmt: skip
    (page.parent / "answers-x-1.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    assert place.annotate("read", *words) == 0
    said = capsys.readouterr()
    assert "were found to show what their captions ask for" in said.out
    assert "altered_subjects is left out" in said.err
    assert "By what the captions asked for" in (page.parent / "annotation.html").read_text()
    for number in (1, 2, 3):
        assert place.table(f"social_{number}") == 0
        text = (place.root / f"tables/social_{number}.md").read_text()
        assert "sets, 1 annotators" in text
        assert "The paper" in text
    asked = ("benchmark=attribute_detector", f"benchmark.data={sets}")
    labels = page.parent / "labels.jsonl"
    prompts = "benchmark.prompts={male: a red ball, female: a blue cube}"  # words the model knows
    assert place.evaluate(*CLIP, *asked, prompts, f"benchmark.labels={labels}") == 0
    unclear = sum(line["label"] == "unclear" for line in lines)
    assert f"{48 - 12 + unclear} images are left out" in capsys.readouterr().err
    assert place.table("social_4") == 0
    assert f"{12 - unclear} images; {36 + unclear} more are left out" in capsys.readouterr().out


# ``make social`` at the smallest size: worlds with and without a skew, the question, the table.


SMALL = ["data.world.real_scenes=40", "data.batch_size=16", "trainer.max_steps=2"]
TINY = "recipe.image_editor.image_size=8"


def few(benchmark: str) -> list[str]:
    node = f"benchmark.world.{benchmark}"
    return [f"++{node}.permutations=99", f"++{node}.resamples=50"]


@pytest.mark.slow
def test_models_of_skewed_worlds_are_asked_and_tabled(script, tmp_path):
    paths = [f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path / 'shards'}"]
    for folder, shuffled in (("social_debias", "false"), ("social/shuffled", "true")):
        words = ["recipe=social_oracle", "recipe.draws.candidates=1", "limit=30"]
        words += [f"recipe.image_editor.shuffled={shuffled}", TINY]
        assert script("generate")([*words, f"paths.shards={tmp_path / 'shards' / folder}"]) == 0
    planted = ["experiment=social/planted", "arm=both-1", "data.world.skew=1", "-m", "seed=0,1"]
    assert script("train")([*planted, *SMALL, *paths]) == 0
    nothing = ["experiment=social/nothing", "seed=0"]
    assert script("train")([*nothing, *SMALL, *paths]) == 0
    for name in ("social", "social_nothing"):
        asked = [f"name={name}", "benchmark=social", "benchmark.skip=[generated_skew]"]
        asked += [word for part in ("oracle", "shuffled") for word in few(f"{part}_skew")]
        assert script("evaluate")([*asked, *paths]) == 0
    run = tmp_path / "runs" / "social" / "both-1" / "seed=1"
    items = read_items(run, "oracle_skew")
    assert len(items) == 3 * 10
    assert set(items.columns["k"]) == {12}
    assert set(items.columns["n_sets"]) == {3}
    metrics = {row.metric for row in read_results(run / "results.jsonl")}
    assert {"max_skew", "max_skew_excess", "rank_gap"} <= metrics
    assert not (run / "oracle_skew.html").exists()
    said = stdout_of(script("table"), ["social_oracle", *paths])
    assert "is a planted skew found?" in said
    document = read_document(tmp_path / "runs" / "tables" / "social_oracle.json")
    recovery, order, alarms = document.parts
    assert [labels for labels, _ in recovery.rows] == [("both", "0", "1"), ("both", "1", "2")]
    assert order.groups == (("Oracle sets", 3),)
    assert {labels[0] for labels, _ in alarms.rows} == {"Oracle sets", "Shuffled sets"}
    [curve] = document.curves
    assert curve.title.startswith("Oracle sets, planted labels: both")


# What lowers the skew: sets, the model that has learnt it, every arm, questions, the table.


ARMS = sorted(read_arms(settings_file("experiment/social_debias")).keys() - {"start"})
HELD_OUT = {"tree", "house", "cat"}  # three of ten, the same in every world and for every seed
FEW = [
    "data.world.real_scenes=90", "data.world.id_scenes=20", "data.size=90", "data.batch_size=40",
    "trainer.progress=false",
]  # fmt: skip


@pytest.fixture
def run(tmp_path, script):
    """Run a command on folders of its own; return its exit code."""
    paths = [f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path / 'shards'}"]

    def call(name: str, *words: str) -> int:
        if name == "generate":
            where = [f"paths.shards={tmp_path / 'shards/social_debias'}"]
            return script(name)([*where, f"paths.worlds={tmp_path / 'shards'}", *words])
        return script(name)([*paths, *words])

    return call


def sets(run) -> None:
    assert run("generate", "recipe=social_oracle", "recipe.draws.candidates=1", TINY) == 0


def train(run, experiment: str, *words: str, seed: int = 107) -> int:
    """Train an arm; its name is that of the experiment's, whatever else is small."""
    arm = experiment.partition("/")[2].replace("start", "planted")
    named = [] if any(word.startswith("arm=") for word in words) else [f"arm={arm}"]
    return run("train", f"experiment={experiment}", f"seed={seed}", *FEW, *named, *words)


def record(root: Path, arm: str, seed: int = 107) -> dict:
    file = root / "runs" / "social_debias" / arm / f"seed={seed}" / "run.json"
    return json.loads(file.read_text())


@pytest.mark.slow
def test_every_arm_is_trained_asked_and_tabled(run, tmp_path, capfd):
    sets(run)
    for arm in ("start", *ARMS):
        steps = [] if arm == "before" else ["trainer.max_steps=1"]
        assert train(run, f"social_debias/{arm}", *steps) == 0, capfd.readouterr()
    for arm in ARMS:
        counts = record(tmp_path, arm)["counts"]
        assert counts["train"] == 90
        share = {"before": 0, "real": 0}.get(arm, 81 if arm.endswith("_90") else 45)
        assert counts["counterfactual"] == share
        assert record(tmp_path, arm)["steps"] == (0 if arm == "before" else 1)
        card = tmp_path / "runs/social_debias" / arm / "seed=107/checkpoint/README.md"
        assert ("permuted among its images" in card.read_text()) is arm.startswith("shuffled")
        assert ("its set's neutral prompt" in card.read_text()) is (arm == "sets_neutral")
    words = ["name=social_debias", "benchmark=social_debias", "comparison=social_debias"]
    words += few("shapescapes_unseen_skew")
    assert run("evaluate", *words) == 0, capfd.readouterr()
    folder = tmp_path / "runs" / "social_debias"
    for arm in ARMS:
        items = read_items(folder / arm / "seed=107", "shapescapes_unseen_skew")
        assert set(items.columns["subject"]) == HELD_OUT
        results = read_results(folder / arm / "seed=107" / "results.jsonl")
        assert {row.better for row in results if row.metric == "max_skew"} == {"lower"}
    assert run("table", "social_debias") == 0, capfd.readouterr()
    document = read_document(tmp_path / "runs" / "tables" / "social_debias.json")
    assert [part.title for part in document.parts[1:]] == [
        "Declared before looking", "Less real data alone", "Less before fine-tuning",
        "Less sets, captions shuffled", "Less sets, captions shuffled, nine of ten examples",
    ]  # fmt: skip
    assert len(document.parts[0].rows) == len(ARMS)


@pytest.mark.slow
def test_no_set_is_cut_and_no_held_out_subject_trained_on(run, tmp_path, capfd):
    """At the size of the experiment: 84 whole sets, all that there are of seven subjects."""
    assert run("generate", "recipe=social_oracle", TINY) == 0
    capfd.readouterr()
    small = ["model.weights=zoo:clip-0", "data.world.image_size=8", "dry_run=json",
             "data.world.real_scenes=1008"]  # fmt: skip
    for arm, seed, size, real in (
        ("sets_invariant", 107, 2016, 1008), ("sets_invariant", 900, 2016, 1008),
        ("shuffled_90", 107, "null", 112),
    ):  # fmt: skip
        assert train(run, f"social_debias/{arm}", *small, f"data.size={size}", seed=seed) == 0
        counts = json.loads(capfd.readouterr().out.splitlines()[0])["counts"]
        assert (counts["counterfactual"], counts["real"]) == (84 * 12, real)
        assert counts["validation"] == counts["dropped"] == 0
