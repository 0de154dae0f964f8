"""What training and evaluation say of the sources they read, and which they refuse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.data.shards.shards import write_shards
from cfaug.planning.sources import permitted_roots
from tests.data.compositional import sugarcrepe, trohn_img, trohn_text
from tests.data.layouts import TEXTS, edited, images, jsonl, sides, table
from tests.data.making import noise_image, pair
from tests.run.conftest import Plan

FEW = ("data.validation=0", "trainer.checkpoint=last")
REAL = (*FEW, "data.cf_ratio=0")


@pytest.fixture
def plan(plan: Plan) -> Plan:
    """Plan a run on folders of one's own."""
    return plan.of("data=folder", "data.holdout=0")


def photos(folder: Path, start: int = 0) -> Path:
    images(folder, start=start)
    table(folder / "captions.csv", ["image", "caption"], [(f"{n}.png", n) for n in TEXTS])
    return folder


def pairs(folder: Path) -> Path:
    sides(folder, "a", "b")
    rows = [(f"a/{n}.png", t, f"b/{n}.jpg", edited(t), "x") for n, t in TEXTS.items()]
    names = ["image", "caption", "cf_image", "cf_caption", "note"]
    table(folder / "pairs.csv", names, rows)
    return folder


def classes(folder: Path, names: Sequence[str] = ("cat", "dog", "ox")) -> Path:
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        (folder / name / "1.png").write_bytes(noise_image(100 + number))
    return folder


def test_a_dry_run_says_what_every_source_was_read_as(plan: Plan, tmp_path: Path) -> None:
    real, cf = photos(tmp_path / "real", 50), pairs(tmp_path / "cf")
    words = [f"data.real={real}", f"data.counterfactual={cf}", "data.cf_ratio=0.5"]
    (described,), said = plan(*words, *FEW)
    assert described["sources"]["real"]["form"] == "a list of images and captions"
    assert described["sources"]["real"]["source"] == str(real)
    assert described["sources"]["counterfactual"]["counterfactual_sets"] == 3
    assert described["sources"]["counterfactual"]["unused"] == []
    assert described["sources"]["counterfactual"]["kept"] == ["note"]
    assert described["sources"]["counterfactual"]["example"] == [TEXTS["a"], edited(TEXTS["a"])]
    assert f"real: 3 images of {real} read as a list of images and captions; first: 'a'" in said
    assert f"counterfactual: 6 images of {cf} read as" in said
    assert "(3 counterfactual sets); first: 'a dog, running' / 'a dog, running at night'" in said
    assert "other columns kept: note" in said


@pytest.mark.slow
def test_parts_of_the_world_are_in_the_record_and_not_on_stderr(place, capsys) -> None:
    assert place.train("dry_run=json", "data.cf_ratio=0.5") == 0
    said = capsys.readouterr()
    sources = json.loads(said.out.splitlines()[-1])["sources"]
    assert sources["real"]["source"] == "shapescapes:real"
    assert sources["counterfactual"]["counterfactual_sets"] == 40
    assert "read as" not in said.err


@pytest.mark.slow
@pytest.mark.parametrize("make", [photos, classes])
def test_a_counterfactual_source_without_pairs_is_refused(plan: Plan, tmp_path, make) -> None:
    real, other = photos(tmp_path / "real"), make(tmp_path / "cf")
    if make is photos:
        photos(tmp_path / "cf", 30)
    words = [f"data.real={real}", f"data.counterfactual={other}", "data.cf_ratio=0.5"]
    said = plan.refused(*words, *FEW)
    assert f"data.counterfactual={other} holds no counterfactual pairs: it was read as" in said
    assert "cf_image, cf_caption" in said
    assert "data.counterfactual_members=singles" in said
    (described,), _ = plan(*words, *FEW, "data.counterfactual_members=singles")
    assert described["counts"]["counterfactual"] == 3
    words += ["data.counterfactual_members=singles", "data.pairs_in_batch=true"]
    assert "has no set of two" in plan.refused(*words, *FEW)


def test_the_captions_of_a_photo_are_no_pair(plan: Plan, tmp_path: Path) -> None:
    real = photos(tmp_path / "real")
    images(tmp_path / "cf", start=30)
    lines = [{"image": f"{n}.png", "captions": [t, f"{t} again"]} for n, t in TEXTS.items()]
    jsonl(tmp_path / "cf" / "captions.jsonl", lines)
    said = plan.refused(f"data.real={real}", f"data.counterfactual={tmp_path / 'cf'}")
    assert "none of its sets is an image and its counterfactual" in said


@pytest.mark.slow
def test_most_sets_must_be_pairs(plan: Plan, tmp_path: Path) -> None:
    """A set that lost a member does not stop a run; a source with a pair here and there does."""
    real = photos(tmp_path / "real")
    sets = [pair(i) for i in range(3)] + [pair(10 + i, members=1) for i in range(4)]
    for folder, count in (("cf", 6), ("more", 7)):
        write_shards(sets[:count], tmp_path / folder)
    words = [f"data.real={real}", "data.cf_ratio=0.5", *FEW]
    assert "3 single ones" in plan(*words, f"data.counterfactual={tmp_path / 'cf'}")[1]
    said = plan.refused(*words, f"data.counterfactual={tmp_path / 'more'}")
    assert "3 of its 7 sets are" in said


@pytest.mark.slow
def test_both_sources_the_same_are_refused(plan: Plan, tmp_path: Path) -> None:
    """By content: the copy of a folder is the same source."""
    folder, copy = pairs(tmp_path / "x"), pairs(tmp_path / "copy")
    said = plan.refused(f"data.real={folder}", f"data.counterfactual={copy}")
    assert f"data.real={folder} and data.counterfactual={copy} hold the same images" in said
    words = [f"data.real={folder}", f"data.counterfactual={folder}", "data.cf_ratio=0"]
    plan(*words, *FEW)


def test_a_test_half_of_whose_captions_are_wrong_is_not_trained_on(
    plan: Plan, tmp_path: Path
) -> None:
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    said = plan.refused(f"data.real={folder}", "data.cf_ratio=0", "data.validation=0")
    assert f"data.real={folder} holds SugarCrepe" in said
    assert "benchmark=choice" in said


@pytest.mark.slow
def test_a_runs_record_its_card_and_its_test_say_what_was_read(place, capsys, tmp_path) -> None:
    real, singles = photos(tmp_path / "real", 60), classes(tmp_path / "cf")
    words = [f"data.real={real}", f"data.counterfactual={singles}", "data.cf_ratio=0.5",
             "data.counterfactual_members=singles", "data.validation=0", "arm=own",
             "trainer.checkpoint=last", "trainer.max_steps=1", "data.batch_size=4"]  # fmt: skip
    assert place.script("train")(["data=folder", *place.paths, *words, "seed=1"]) == 0
    said = capsys.readouterr().err
    assert f"real: 3 images of {real} read as a list" in said
    sources = place.record("own", seed=1)["sources"]
    assert sources["counterfactual"]["classes"] == 3
    card = place.root / "main/own/seed=1/checkpoint/README.md"
    assert "50.0 % are single images of the counterfactual source" in card.read_text()
    test = pairs(tmp_path / "test")
    place.evaluate("benchmark=retrieval", f"benchmark.data={test}")
    assert f"test: 6 images of {test} read as" in capsys.readouterr().err


@pytest.mark.slow
def test_counterfactuals_as_real_data_are_told(plan: Plan, tmp_path: Path) -> None:
    """An arm of real data alone would have them."""
    cf, real = pairs(tmp_path / "cf"), photos(tmp_path / "real", 50)
    _, said = plan(f"data.real={cf}", *REAL)
    assert f"warning: data.real={cf} has 3 counterfactual sets, whose counterfactuals" in said
    _, said = plan(f"data.real={real}", *REAL)
    assert "counterfactual sets" not in said


@pytest.mark.slow
@pytest.mark.parametrize("names", [("00000", "00001"), ("0.0", "-1e3")])
def test_classes_called_by_numbers_are_not_trained_on(
    plan: Plan, tmp_path: Path, names: tuple[str, ...]
) -> None:
    """N6: "a photo of a 00000" was trained on."""
    said = plan.refused(f"data.real={classes(tmp_path / 'real', names)}", *REAL)
    assert "2 classes are called by numbers" in said
    assert f"captions would be like 'a photo of a {sorted(names)[0]}'" in said
    plan(f"data.real={classes(tmp_path / 'few', ('7', 'cola'))}", *REAL)


@pytest.mark.slow
def test_numbers_beside_captions_are_trained_on(plan: Plan, tmp_path: Path) -> None:
    """N6: the captions are learned from, whatever the labels are."""
    images(tmp_path / "real")
    rows = [(f"{n}.png", t, str(i)) for i, (n, t) in enumerate(TEXTS.items())]
    table(tmp_path / "real" / "captions.csv", ["image", "caption", "label"], rows)
    plan(f"data.real={tmp_path / 'real'}", *REAL)


def test_classes_with_one_caption_are_said(plan: Plan, tmp_path: Path) -> None:
    """N35: ``cat`` and ``Cat`` are one class for a tokenizer that lower-cases."""
    _, said = plan(f"data.real={classes(tmp_path / 'real', ('cat', 'Cat', 'ox'))}", *REAL)
    assert "classes with one prompt for a tokenizer that lower-cases" in said
    assert "'Cat' and 'cat'" in said


@pytest.mark.slow
def test_a_holdout_that_is_linked_with_everything_is_the_cause(plan: Plan, tmp_path: Path) -> None:
    """N22: pairs of photos with other photos of the same data are one group, from pair to pair."""
    home = tmp_path / "photos"
    home.mkdir()
    for number in range(12):
        (home / f"{number}.png").write_bytes(noise_image(number))
    rows = [(f"{n}.png", f"photo {n}") for n in range(12)]
    table(home / "captions.csv", ["image", "caption"], rows)
    hard = [(*rows[n], f"{(n + 1) % 12}.png", f"photo {(n + 1) % 12}") for n in range(12)]
    names = ["image", "caption", "cf_image", "cf_caption"]
    table(home / "mined.csv", names, hard)
    words = [f"data.real={home}", f"data.counterfactual={home / 'mined.csv'}", "data.cf_ratio=0.5"]
    said = plan.refused(*words, "data.holdout=0.1")
    assert "data.cf_ratio=0.5 cannot be drawn: there are 0 real and 0 counterfactual" in said
    assert "data.holdout=0.1 holds out 2 images as a test" in said
    assert "10 real and 24 counterfactual examples are linked with them, from set to set" in said
    assert "data.holdout=0 holds out nothing" in said
    plan(*words, "data.holdout=0", *FEW)
    said = plan.refused(*words, "data.holdout=0")
    assert "no group is left for validation" in said
    assert "data.holdout" not in said


@pytest.mark.slow
def test_a_list_may_be_named_and_any_other_file_is_refused(plan: Plan, tmp_path: Path) -> None:
    file = photos(tmp_path / "real", 50) / "captions.csv"
    _, said = plan(f"data.real={file}", *REAL)
    assert f"of {file} read as a list of images and captions" in said
    image = next(path for path in file.parent.rglob("*.png"))
    said = plan.refused(f"data.real={image}", "data.cf_ratio=0")
    assert f"{image} is a file: name the folder in which it lies, {image.parent}" in said


@pytest.mark.parametrize(("share", "warned"), [(0.1, True), (0.9, False)])
def test_a_held_out_set_too_small_for_its_metrics_is_told(
    plan: Plan, tmp_path: Path, share: float, warned: bool
) -> None:
    for number in range(8):
        images(tmp_path / "real" / str(number), start=3 * number)
    rows = [(f"{i}/{n}.png", f"{n} {i}") for i in range(8) for n in TEXTS]
    table(tmp_path / "real" / "captions.csv", ["image", "caption"], rows)
    words = [f"data.real={tmp_path / 'real'}", "data.cf_ratio=0", "data.validation=0"]
    _, said = plan(*words, f"data.holdout={share}", "trainer.checkpoint=last")
    assert ("recall at 5 and at 10 among so few" in said) is warned


@pytest.mark.slow
def test_own_photos_with_the_settings_of_the_world_are_refused(tmp_path, plan):
    real = photos(tmp_path / "real")
    world = Plan(plan.train, *plan.words[:-2], f"data.real={real}", "data.cf_ratio=0")
    said = world.refused()
    assert f"data.real={real} is not of the embedded world" in said
    assert "add data=folder, which holds out a tenth, or data.holdout=0" in said
    world("data.holdout=0")


def test_roots_are_absolute_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    assert permitted_roots({"image_roots": ["photos"]}) == (tmp_path / "photos",)
    assert permitted_roots({"image_roots": []}) == permitted_roots({}) == ()


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("/", "should be a list of folders"),
        ([1], "should be a list"),
        (["/none"], "no folder /none"),
    ],
)
def test_what_is_no_list_of_folders_is_refused(named: object, said: str) -> None:
    with pytest.raises(UserError, match=said):
        permitted_roots({"image_roots": named})


# TROHN's training sets as arms: what a dry run counts of them.


@pytest.mark.parametrize(
    ("lay", "arm", "positives", "texts", "images"),
    [(trohn_text, "none", 3, 0, 0), (trohn_text, "text", 3, 3, 0), (trohn_img, "both", 8, 8, 8)],
)
def test_counts(lay, arm, positives, texts, images, plan, tmp_path):
    (described,), _ = plan(
        "data.real=null", f"data.counterfactual={lay(tmp_path / 'set')}:train", "data.cf_ratio=1",
        f"data.negatives={arm}", "loss=hard_negatives", *FEW,
    )  # fmt: skip
    assert described["counts"]["train"] == positives
    assert described["counts"]["text_negatives"] == texts
    assert described["counts"]["image_negatives"] == images
