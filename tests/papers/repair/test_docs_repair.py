"""From failures to sets that repair them: the commands of docs/repair.md, small, in order."""

from __future__ import annotations

import json

import pytest

from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets
from cfaug.evaluation.failures import read_failures
from cfaug.report.results import RESULTS, read_results
from tests.run.conftest import commands_of, refusal
from tests.scripts import ROOT, load

PAGE = ROOT / "docs" / "repair.md"
WORLD = ["data.world.id_scenes=60", "data.world.real_scenes=60", "data.world.image_size=64"]
RULE = ["failure_rule.least_items=3", "failure_rule.alpha=0.9", "failure_rule.minimum=0"]
SMALL = {
    "find": ["recipe.editor.editor.kinds=[background]", "limit=24"],
    "made": [
        "limit=40", "recipe.image_editor.steps=2", "recipe.draws.self_replace_steps=[0.4]",
        *(f"recipe.selection.minimum.{name}=-1"
          for name in ("sim_0", "sim_1", "sim_image", "sim_direction")),
        "recipe.selection.above.consistency=-9", "data.budget=32",
    ],
    "oracle": ["data.budget=32", "shards.sets_per_shard=30"],
    "random": ["data.budget=32", "shards.sets_per_shard=30"],
    "retrieved": ["data.budget=32", "limit=40"],
    "test": ["limit=12"],
    "gate": ["recipe.editor.editor.kinds=[background]", "limit=12"],
}  # fmt: skip


def refused(name, *words):
    return refusal(lambda *typed: load(name)(list(typed)), *words)


def read_chosen_file(folder):
    return json.loads((folder / "chosen.json").read_text())


@pytest.mark.slow
def test_the_commands_find_failures_and_make_what_repairs_them(
    tmp_path, monkeypatch, script, capfd
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    shards = tmp_path / "shards" / "repair"
    for name, words in commands_of(PAGE):
        if "zoo=paper" in words:
            continue
        typed = {word.partition("=")[0] for word in words}
        more = [
            word for word in RULE if "failures" in typed and word.partition("=")[0] not in typed
        ]
        folder = next((w for w in words if w.startswith("paths.shards=")), "").rpartition("/")[2]
        if name == "generate":
            more = [*WORLD, *SMALL[folder]]
        if "failure_causes.training" in typed:
            more += WORLD
        if name == "train":  # named, as other settings would name other arms
            arms = words[1].removeprefix("experiment=").split(",")
            for arm in arms:
                small = [*WORLD, "data.size=20", "trainer.max_steps=1", "seed=0"]
                typed = [words[0], f"experiment={arm}", f"arm={arm.split('/')[1]}", *small]
                typed += [word for word in words if word.startswith("paths.")]
                assert script(name)(typed) == 0, (typed, capfd.readouterr().err)
            continue
        if name == "table" and "declare=true" not in words:
            more = ["table.partial=true"]  # five of its arms
        assert script(name)([*words, *more]) == 0, (words, capfd.readouterr().err)
    said = capfd.readouterr().out
    assert "Rounds, on GATE" in said
    assert "Declared before looking" in said
    folders = tmp_path.glob("runs/weights/*/seed=0")  # of two worlds
    rows = [row for folder in folders for row in read_results(folder / RESULTS)]
    tested = {row.metric: row for row in rows if row.by == {}}
    assert {"excess", "repair_rate"} <= tested.keys()
    failures = read_failures("shards/repair/failures.jsonl")
    assert tested["repair_rate"].n <= len(failures)
    assert {failure.family for failure in failures} == {"stress"}
    causes = {failure.cause for failure in read_failures("shards/repair/causes.jsonl")}
    assert causes <= {"reliance", None}, "every background is in training"
    assert "reliance" in causes
    every = read_failures("shards/repair/all.jsonl")
    assert {failure.identity for failure in failures} <= {failure.identity for failure in every}
    for folder_name, file in (("random", every), ("retrieved", failures)):
        rows = read_chosen_file(shards / folder_name)["failures"]
        assert [row["failure"] for row in rows] == [failure.words for failure in file]
    assert all(failure.found_by.weights for failure in failures)
    content = read_chosen_file(shards / "oracle")
    assert content["keys"]
    assert len(content["failures"]) == len(failures)
    index = open_index(str(shards / "oracle"), tmp_path / "cache")
    assert len(index) == 2 * len(content["keys"])
    # In two parts, the first of which is run again: the same bytes.
    words = next(w for n, w in commands_of(PAGE) if "paths.shards=shards/repair/oracle" in w)
    words = [*words, *WORLD, *SMALL["oracle"], "paths.shards=shards/parts"]
    for part in (0, 1, 0):
        chosen = tmp_path / "shards" / "parts" / "chosen.json"
        assert chosen.exists() == (tmp_path / "shards" / "parts" / "00001.json").exists()
        assert script("generate")([*words, f"part={part}", "parts=2"]) == 0
    for name in ("00000.tar", "00001.tar", "chosen.json", "card.json"):
        made = tmp_path / "shards" / "parts" / name
        assert made.read_bytes() == (shards / "oracle" / name).read_bytes(), name
    # A larger budget draws nothing again.
    capfd.readouterr()
    assert script("generate")([*words, "data.budget=64", "part=0"]) == 0
    assert "nothing to do" in capfd.readouterr().err
    assert read_chosen_file(tmp_path / "shards" / "parts")["budget"] == 64
    said = refused("generate", *words, "limit=12", "paths.shards=shards/few")
    assert "nothing is chosen: a failure needs 4 accepted edits in each direction" in said
    assert 3 in {len(tested.members) for tested in read_sets(shards / "test")}


@pytest.mark.slow
def test_what_cannot_be_done_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    world = ["weights=zoo:clip-0", "failures=x.jsonl", "data.world.id_scenes=4"]
    said = refused("evaluate", *world, "benchmark=classification",
                   "benchmark.data=shapescapes:id")  # fmt: skip
    assert "choose benchmark=stress|choice|pairs|matching|retrieval|vqa" in said
    said = refused("evaluate", "weights=zoo:clip-0", "benchmark=pairs",
                   "benchmark.data=shapescapes:ood_pairs", "failure_rule.alpha=0.1")  # fmt: skip
    assert "failure_rule.alpha=0.1 would have no effect" in said
    said = refused("generate", "recipe=repair_oracle", *WORLD, "limit=2")
    assert "recipe=repair needs data.failures=FILE" in said
    said = refused("generate", "recipe=photo_edits_oracle", "data.budget=64")
    assert "data.budget=64 would have no effect" in said
    assert not (tmp_path / "x.jsonl").exists()


@pytest.mark.slow
def test_a_model_does_not_judge_what_repairs_it(tmp_path, monkeypatch, script, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    words = [
        "benchmark=pairs", "benchmark.data=shapescapes:ood_pairs", "data.world.ood_pairs=60",
        "failures=one.jsonl", *RULE,
    ]  # fmt: skip
    assert script("evaluate")(["weights=zoo:clip-domains", *words]) == 0, capfd.readouterr().err
    failures = read_failures("one.jsonl")
    assert failures
    assert {failure.family for failure in failures} == {"pairs"}
    said = refused("generate", "recipe=repair", "data.failures=one.jsonl", *WORLD)
    assert "it is the model under repair" in said
