"""``generate.py`` with real models at tiny size: what it writes, refuses and goes on with."""

from __future__ import annotations

import json

import pytest

from cfaug.data.shards.shards import read_sets
from tests.editing import tiny as language
from tests.models import tiny as clips
from tests.run.conftest import EVERYTHING, files

CAPTIONS = [
    {"image_id": 7, "caption": "A man rides a brown horse on the beach."},
    {"image_id": 7, "caption": "A horse on the beach"},
    {"image_id": 9, "caption": "Two dogs play with a ball in the snow."},
]


def test_a_run_makes_sets_pages_and_a_json_line_and_parts_make_the_same(generate, tmp_path):
    code, summary, _ = generate()
    assert code == 0
    assert list(summary) == ["shards", "sets", "members", "rejected", "failed", "wall_s"]
    assert (summary["shards"], summary["sets"], summary["members"]) == (3, 5, 10)
    made = list(read_sets(tmp_path / "out"))
    assert len(made) == 5
    for one in made:
        before, after = one.members
        assert after.edit.kind == "subject"
        assert before.text.replace(before.label or after.edit.before, "") != after.text
        assert one.images["0"] != one.images["1"]
        assert set(one.scores) == {"sim_0", "sim_1", "sim_image", "sim_direction"}
        assert (one.provenance["recipe"], one.provenance["zoo"]) == ("coco_cf", "shapescapes")
    first = files(tmp_path / "out")
    assert {"card.json", "candidates.svg", "gallery.html", "captions/report.md"} < set(first)

    code, again, said = generate()
    assert f"next: python train.py --multirun data.counterfactual={tmp_path / 'out'} data" in said
    assert (code, again["sets"]) == (0, 5)
    assert "nothing to do" in said
    for part in (1, 0):
        code, _, _ = generate(f"part={part}", "parts=2", folder="parts")
        assert code == 0
    assert files(tmp_path / "parts") == first

    # N39: a truncated log was "not a readable candidate log", and no way out was named.
    log = tmp_path / "out" / "00001.parquet"
    log.write_bytes(log.read_bytes()[:100])
    (tmp_path / "out" / "candidates.svg").unlink()
    code, _, said = generate()
    assert code == 2
    assert f"{log} is not a readable candidate log" in said
    assert "Remove it and its commit, 00001.json, and run the same" in said
    log.unlink()
    log.with_suffix(".json").unlink()
    assert generate()[0] == 0
    assert files(tmp_path / "out") == first


def test_other_settings_are_refused_with_the_difference(generate):
    assert generate("stage=captions", "limit=2")[0] == 0
    code, _, said = generate("stage=captions", "limit=2", "recipe.editor.top_k=3")
    assert code == 2
    assert "recipe.editor.top_k" in said
    assert "overwrite=true" in said
    assert generate("stage=captions", "limit=2", "recipe.editor.top_k=3", "overwrite=true")[0] == 0


def test_a_zoo_that_cannot_draw_says_which_can(generate):
    code, _, said = generate("stage=images", "zoo.diffusion=null")
    assert code == 2
    assert "zoo=paper" in said


def test_a_dry_run_writes_nothing(generate, tmp_path):
    code, plan, _ = generate("dry_run=json")
    assert code == 0
    assert (plan["captions"], plan["shards"], plan["candidates_at_most"]) == (5, 3, 10)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_candidates_are_given_up_half_way(generate, tmp_path):
    words = ["recipe.draws.sampling='halving(1)'", "recipe.draws.candidates=5", "limit=2"]
    code, summary, _ = generate(*words)
    assert (code, summary["sets"]) == (0, 2)
    assert summary["rejected"] == {"halving": 4}
    assert generate(*words, folder="again")[0] == 0
    assert files(tmp_path / "again") == files(tmp_path / "out")


def test_no_edit_repeats_another_caption_of_its_image(generate, tmp_path):
    def edits(name, *lines, words=()):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        source = ["stage=captions", f"data.source={file}", "force=true", "limit=null"]
        assert generate(*source, *words, folder=name)[0] == 0
        found = b"".join(files(tmp_path / name)[f"captions/{n:05d}.jsonl"] for n in range(2))
        return [json.loads(line) for line in found.splitlines()]

    texts = ["a red ball on the beach", "a blue tree in the snow", "a green car in the city"]
    lines = [{"image_id": i, "caption": text} for i, text in enumerate(texts)]
    chosen = edits("alone", *lines)[0]["set"]["texts"][1]
    # The sibling lies in another shard, and another image may well say the same.
    lines += [{"image_id": 0, "caption": chosen.capitalize()}]
    filtered = ["+recipe.editor.filters.sibling._target_=cfaug.editing.filters.NotASibling"]
    found = edits("filtered", *lines, words=filtered)
    assert found[0]["set"]["texts"][1] != chosen
    before, after = list(found[0]["survivors"].values())[-2:]
    assert after == before - 1
    assert found[1]["survivors"]["sibling"] == found[1]["survivors"]["words"]
    assert b"siblings" not in b"".join(files(tmp_path / "filtered").values())
    assert edits("unfiltered", *lines)[0]["set"]["texts"][1] == chosen


@pytest.mark.parametrize("wrong", ["part=2 parts=2", "stage=pictures", "seed=x", "limit=0"])
def test_what_cannot_be_is_refused_before_anything_is_written(generate, tmp_path, wrong):
    code, _, said = generate(*wrong.split())
    assert code == 2
    assert wrong.split("=")[0] in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "stage=captions data.source=own.jsonl; force=true"),
        (("recipe=clare",), "recipe=clare zoo=captions stage=captions"),
        (("recipe=xmai",), "data.leave_out=null detections@recipe=file"),
        (("recipe=lance",), "Choose zoo=paper, whose weights are downloaded; force=true"),
    ],
)
def test_models_of_drawn_scenes_get_no_photos(words, said, script, tmp_path, capsys):
    wanted = [*words, "data.source=own.jsonl", f"paths.shards={tmp_path / 'out'}", "dry_run=json"]
    assert script("generate")(wanted) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: zoo=shapescapes knows drawn scenes only, so its models (")
    assert said in error
    assert script("generate")([*wanted, "force=true", "data.leave_out=null"]) == 2
    assert "knows drawn scenes" not in capsys.readouterr().err


def test_exports_follow_when_every_part_is_complete(generate, tmp_path):
    hub = f"export.hub={tmp_path / 'hub'}"
    code, _, said = generate("part=0", "parts=2", hub)
    assert code == 2
    assert "not complete" in said
    assert generate("part=1", "parts=2", hub)[0] == 0
    assert (tmp_path / "hub" / "DATASHEET.md").exists()


def test_the_papers_zoo_on_tiny_checkpoints_in_hub_form(
    tmp_path, script, pipeline, shards, capfd, monkeypatch
):
    """``zoo=paper`` with random weights of the real classes: RoBERTa, MiniLM, GPT-2, SD, CLIP."""
    file = tmp_path / "captions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in CAPTIONS))
    weights = {
        "zoo.filler.name_or_path": language.save_roberta(tmp_path / "roberta"),
        "zoo.sentence_encoder.name_or_path": language.save_minilm(tmp_path / "minilm"),
        "zoo.ranker.model.name_or_path": language.save_gpt2(tmp_path / "gpt2"),
        "zoo.clip.name_or_path": clips.save_clip(tmp_path / "clip"),
        "zoo.diffusion.weights": pipeline,
        "zoo.diffusion.vae": pipeline / "vae",
    }
    words = [
        "zoo=paper", f"data.source={file}", *(f"{k}={v}" for k, v in weights.items()),
        "zoo.tagger._target_=cfaug.editing.sentence.TextBlobTagger",  # NLTK's data is a download
        "recipe.editor.filters.similarity.low=-1", "recipe.editor.filters.similarity.high=1",
        "recipe.image_editor.steps=3", "recipe.draws.candidates=3",
        *EVERYTHING, f"paths.shards={tmp_path / 'out'}",
    ]  # fmt: skip
    assert script("generate")(words) == 0
    summary = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert summary["sets"] >= 1
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["zoo"] == "paper"
    assert card["candidates"] == 3 * card["edits"]["sets"]
    one = next(read_sets(tmp_path / "out"))
    assert one.members[1].edit.kind == "noun"
    assert one.group in {"7", "9"}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("zoo.diffusion.device", "cuda"),
        ("zoo.diffusion.device", "banana"),
        ("recipe.scorers.scorer.device", "cuda:9"),
        ("recipe.scorers.scorer.device", "banana"),
    ],
)
def test_a_device_that_is_not_there_is_refused(generate, monkeypatch, key, name):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, said = generate(f"{key}={name}", "limit=1")
    assert code == 2
    assert f"device={name}: " in said
    assert "cpu" in said
    assert "Traceback" not in said
