"""``generate.py`` with real models at tiny size: what it reads, writes and refuses."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import ENTAILMENT
from cfaug.data.shards.shards import read_sets
from cfaug.worlds.shapescapes.detector import read_scene, text_label
from cfaug.worlds.shapescapes.language import parse
from tests.editing import tiny as language
from tests.models import tiny as clips
from tests.run.conftest import EVERYTHING, files, make_sets, output_of, refusal, stdout_of

CAPTIONS = [
    {"image_id": 7, "caption": "A man rides a brown horse on the beach."},
    {"image_id": 7, "caption": "A horse on the beach"},
    {"image_id": 9, "caption": "Two dogs play with a ball in the snow."},
]


@pytest.mark.slow
def test_a_run_makes_sets_pages_and_a_json_line_and_parts_make_the_same(
    generate, tmp_path, monkeypatch
):
    summary, _ = generate()
    assert list(summary) == ["shards", "sets", "members", "rejected", "failed", "wall_s"]
    assert (summary["shards"], summary["sets"], summary["members"]) == (3, 5, 10)
    made = list(read_sets(tmp_path / "out"))
    assert len(made) == 5
    for pair in made:
        before, after = pair.members
        assert after.edit.kind == "subject"
        assert before.text.replace(before.label or after.edit.before, "") != after.text
        assert pair.images["0"] != pair.images["1"]
        assert set(pair.scores) == {"sim_0", "sim_1", "sim_image", "sim_direction"}
        assert (pair.provenance["recipe"], pair.provenance["zoo"]) == (
            "substitution",
            "shapescapes",
        )
    first = files(tmp_path / "out")
    assert {"card.json", "candidates.svg", "gallery.html", "captions/report.md"} < set(first)

    again, said = generate()
    page = tmp_path / "out/gallery.html"
    assert f"next: open {page} in a browser; 5 sets are few to train on\n" in said
    assert again["sets"] == 5
    assert "nothing to do" in said
    monkeypatch.setattr("cfaug.run.generate.FEWEST", 5)
    _, said = generate()
    words = f"data.counterfactual={tmp_path / 'out'} data.cf_ratio=0,0.6 name=out dry_run=true"
    assert said.endswith(f"next: python train.py --multirun {words}\n")  # names the fair one
    for part, complete in ((1, False), (0, True)):
        _, said = generate(f"part={part}", "parts=2", folder="parts")
        assert ("next: python train.py" in said) is complete
    assert files(tmp_path / "parts") == first

    log = tmp_path / "out" / "00001.parquet"
    log.write_bytes(log.read_bytes()[:100])
    (tmp_path / "out" / "candidates.svg").unlink()
    _, said = generate()
    assert f"damaged: {log} has 100 bytes" in said
    assert files(tmp_path / "out") == first

    # A damaged log of the same size is named, with the way out.
    log.write_bytes(bytes(log.stat().st_size))
    (tmp_path / "out" / "candidates.svg").unlink()
    said = generate.refused()
    assert f"{log} is not a readable candidate log" in said
    assert "Remove it and its commit, 00001.json, and run the same" in said
    log.unlink()
    log.with_suffix(".json").unlink()
    generate()
    assert files(tmp_path / "out") == first


def test_a_zoo_that_cannot_draw_says_which_can(generate):
    said = generate.refused("stage=images", "zoo.diffusion=null")
    assert "zoo=paper" in said


@pytest.mark.slow
def test_a_dry_run_writes_nothing(generate, tmp_path):
    plan, _ = generate("dry_run=json")
    assert (plan["captions"], plan["shards"], plan["candidates_at_most"]) == (5, 3, 10)
    cost = plan["cost"]
    assert cost["flop"] > 0
    assert (cost["sets_at_most"], cost["not_counted"]) == (5, [])
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_dry_run_prints_the_cost(generate):
    printed = output_of(generate.main, generate._words(["dry_run=true"]))[0]
    assert re.search(r"^UNet \| fp32 +[\d,]+ +[\d.]+ MFLOP", printed, re.MULTILINE)
    assert re.search(r"^A100 +312 TFLOP/s +19.5 TFLOP/s", printed, re.MULTILINE)
    assert "hours = FLOP / (peak x efficiency) / 3600" in printed


@pytest.mark.slow
def test_no_edit_repeats_another_caption_of_its_image(generate, tmp_path):
    def edits(name, *lines, words=()):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        source = ["stage=captions", f"data.source={file}", "force=true", "limit=null"]
        generate(*source, *words, folder=name)
        content = b"".join(files(tmp_path / name)[f"captions/{n:05d}.jsonl"] for n in range(2))
        return [json.loads(line) for line in content.splitlines()]

    texts = ["a red ball on the beach", "a blue tree in the snow", "a green car in the city"]
    lines = [{"image_id": i, "caption": text} for i, text in enumerate(texts)]
    chosen = edits("alone", *lines)[0]["set"]["texts"][1]
    # The sibling lies in another shard, and another image may well say the same.
    lines += [{"image_id": 0, "caption": chosen.capitalize()}]
    filtered = ["+recipe.editor.filters.sibling._target_=cfaug.editing.filters.NotASibling"]
    records = edits("filtered", *lines, words=filtered)
    assert records[0]["set"]["texts"][1] != chosen
    before, after = list(records[0]["survivors"].values())[-2:]
    assert after == before - 1
    assert records[1]["survivors"]["sibling"] == records[1]["survivors"]["words"]
    assert b"siblings" not in b"".join(files(tmp_path / "filtered").values())
    assert edits("unfiltered", *lines)[0]["set"]["texts"][1] == chosen


@pytest.mark.parametrize("wrong", ["part=2 parts=2", "stage=pictures", "seed=x", "limit=0"])
def test_what_cannot_be_is_refused_before_anything_is_written(generate, tmp_path, wrong):
    said = generate.refused(*wrong.split())
    assert wrong.split("=")[0] in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "stage=captions data.source=own.jsonl; force=true"),
        (("recipe=clare",), "recipe=clare zoo=captions stage=captions"),
        (("recipe=photo_edits",), "Choose zoo=paper, whose weights are downloaded; force=true"),
    ],
)
def test_models_of_drawn_scenes_get_no_photos(words, said, script, tmp_path):
    wanted = [*words, "data.source=own.jsonl", f"paths.shards={tmp_path / 'out'}", "dry_run=json"]
    error = refusal(script("generate"), wanted)
    assert "error: zoo=shapescapes knows drawn scenes only, so its models (" in error
    assert said in error
    said = refusal(script("generate"), [*wanted, "force=true", "data.leave_out=null"])
    assert "knows drawn scenes" not in said


@pytest.mark.slow
def test_exports_follow_when_every_part_is_complete(generate, tmp_path):
    hub = f"export.hub={tmp_path / 'hub'}"
    _, said = generate("part=0", "parts=2", hub)
    assert "not complete" in said
    assert not (tmp_path / "hub").exists()
    generate("part=1", "parts=2", hub)
    assert (tmp_path / "hub" / "DATASHEET.md").exists()
    # The same command again finds its export; with other details it is written again, unless
    # somebody changed it.
    _, said = generate("part=1", "parts=2", hub)
    assert f"nothing to do: {tmp_path / 'hub'} is written" in said
    _, said = generate("part=1", "parts=2", hub, "export.about.license=cc0-1.0")
    assert f"wrote {tmp_path / 'hub'}" in said
    sheet = tmp_path / "hub" / "DATASHEET.md"
    sheet.write_text("my own words")
    said = generate.refused("part=1", "parts=2", hub, "export.about.license=mit")
    assert "changed since (DATASHEET.md); nothing in it is replaced" in said
    assert sheet.read_text() == "my own words"


@pytest.mark.slow
def test_the_papers_zoo_on_tiny_checkpoints_in_hub_form(
    tmp_path, script, pipeline, shards, monkeypatch
):
    """``zoo=paper`` with random weights of the real classes: RoBERTa, MiniLM, GPT-2, SD, CLIP."""
    file = tmp_path / "captions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in CAPTIONS))
    weights = {
        "zoo.filler.weights": language.save_roberta(tmp_path / "roberta"),
        "zoo.sentence_encoder.weights": language.save_minilm(tmp_path / "minilm"),
        "zoo.ranker.model.weights": language.save_gpt2(tmp_path / "gpt2"),
        "zoo.clip.weights": clips.save_clip(tmp_path / "clip"),
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
    summary = json.loads(stdout_of(script("generate"), words).splitlines()[-1])
    assert summary["sets"] >= 1
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["zoo"] == "paper"
    assert card["candidates"] == 3 * card["edits"]["sets"]
    pair = next(read_sets(tmp_path / "out"))
    assert pair.members[1].edit.kind == "noun"
    assert pair.group in {"7", "9"}


@pytest.mark.parametrize(
    ("key", "name"),
    [("zoo.diffusion.device", "banana"), ("recipe.scorers.scorer.device", "cuda:9")],
)
def test_a_device_that_is_not_there_is_refused(generate, monkeypatch, key, name):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    said = generate.refused(f"{key}={name}", "limit=1")
    assert f"device={name}: " in said
    assert "cpu" in said


# ``data.leave_out`` and ShapeScapes-VE as sources of ``generate.py``.


SMALL = ("data.world.image_size=8", "data.world.ve_test_photos=6", "data.world.id_scenes=12")


@pytest.fixture
def make(tmp_path):
    """Delete words of captions of the world, and return the sets."""

    return partial(make_sets, tmp_path, "recipe=deletion", "limit=12")


@pytest.mark.slow
def test_captions_leave_out_the_colour_and_the_oracle_judges_what_became_of_them(make):
    sets = make(*SMALL, "data.source=shapescapes:id")
    assert len(sets) == 12
    for pair in sets:
        before, after = pair.members
        said = parse(before.text)
        assert (said.colour, said.background is None) == (None, False)
        factors, _ = read_scene(after.extra, pair.key)
        assert pair.scores["truth_0"] == 1
        for place, member in enumerate(pair.members):
            label = text_label(member.text, factors)
            expected = None if label is None else float(label == "entailment")
            assert pair.scores.get(f"truth_{place}") == expected


def test_every_hypothesis_is_a_source_and_keeps_its_label(make):
    sets = make(*SMALL, "data.source=shapescapes:ve_test", "data.leave_out=null")
    assert len(sets) == 12
    assert len({pair.group for pair in sets}) == 4
    for pair in sets:
        assert {member.label for member in pair.members} == {
            ENTAILMENT[int(pair.scores["entailment_0"])]
        }


def test_hypotheses_and_captions_of_others_leave_nothing_out(make, tmp_path):
    with pytest.raises(UserError, match="a hypothesis with a label"):
        make(*SMALL, "data.source=shapescapes:ve_test")
    file = tmp_path / "captions.txt"
    file.write_text("a dog\n")
    with pytest.raises(UserError, match=r"data\.leave_out=null"):
        make(f"data.source={file}")


def test_models_of_drawn_scenes_draw_no_edits_of_ones_own_captions(script, tmp_path):
    record = {"captions": {"data.source": "file"}, "images": None, "shards": 1}
    (tmp_path / "run.json").write_text(json.dumps(record))
    words = ["stage=images", f"paths.shards={tmp_path}", "dry_run=json"]
    said = refusal(script("generate"), words)
    assert f"would make nonsense of the edits in {tmp_path}" in said
    assert "knows drawn scenes" not in refusal(script("generate"), [*words, "threads=0"])


def test_captions_that_an_editor_keeps_as_they_are_do_not_count_as_edited(script, tmp_path):
    (tmp_path / "own.txt").write_text("dog\n")
    words = ["recipe=checklist", "zoo=captions", "stage=captions"]
    words += [f"data.source={tmp_path / 'own.txt'}", f"paths.shards={tmp_path / 'out'}"]
    out, err = output_of(script("generate"), [*words, f"paths.cache={tmp_path / 'cache'}"])
    assert json.loads(out.splitlines()[-1])["sets"] == 1
    assert "1/1 captions" in err
    assert ", 0% edited" in err
