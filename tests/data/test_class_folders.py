"""Folders of images per class as they are released; laid out by hand."""

from __future__ import annotations

import ast
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.index import open_index
from cfaug.data.sources.row import imagenet_names, make_distinct, prompt_names
from cfaug.evaluation.classification import Classification
from cfaug.evaluation.context import EvaluationContext
from tests.data.hostile import assert_refused
from tests.data.making import labels, noise_image


def put(folder, *names):
    for i, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(noise_image(i))


def opened(folder, tmp_path):
    return open_index(folder, tmp_path / "index")


def food(folder):
    put(folder, *(f"images/{c}/{i}.jpg" for c in ("apple_pie", "waffles") for i in (1, 2, 3)))
    (folder / "meta").mkdir()
    (folder / "meta/classes.txt").write_text("apple_pie\nwaffles\n")
    (folder / "meta/train.txt").write_text("apple_pie/1\napple_pie/3\nwaffles/1\nwaffles/2\n")
    (folder / "meta/test.txt").write_text("waffles/3\napple_pie/2\n")
    (folder / "README.txt").write_text("Food-101")
    return folder


@pytest.mark.parametrize("place", ["food101", "food101/food-101"])
def test_food_101_is_its_test_split(tmp_path, place):
    home = food(tmp_path / place)
    index = opened(tmp_path / "food101", tmp_path)
    assert index.kind == "food101"
    assert labels(index) == ["waffles", "apple_pie"]
    assert index.text(1) == "a photo of a apple pie"
    assert index.read_image(0) == (home / "images/waffles/3.jpg").read_bytes()


def test_a_line_of_food_101_that_cannot_be_read_is_named(tmp_path):
    home = food(tmp_path / "food101")
    (home / "meta/test.txt").write_text("waffles/3\nwaffles/4\n../../secret\n")
    with pytest.raises(
        UserError, match=r"test.txt, line 2: there is no image(.|\n)*line 3.*out of"
    ):
        opened(home, tmp_path)


def test_the_archives_own_folder_is_no_class(tmp_path):
    folder = tmp_path / "caltech101"
    put(folder, *(f"101_ObjectCategories/{c}/image_0001.jpg" for c in ("Faces", "ant")))
    (folder / "Annotations/ant").mkdir(parents=True)
    (folder / "Annotations/ant/annotation_0001.mat").write_text("no image")
    assert labels(opened(folder, tmp_path)) == ["Faces", "ant"]
    assert labels(opened(folder / "101_ObjectCategories", tmp_path)) == ["Faces", "ant"]


def test_folders_in_a_class_are_no_classes(tmp_path):
    put(tmp_path / "set", "dog/a.png", "dog/more/b.png", "cat/c.png")
    assert labels(opened(tmp_path / "set", tmp_path)) == ["cat", "dog", "dog"]


@pytest.mark.parametrize("names", [["images/a.png", "images/b.png"], ["dog/a.png", "dog/m/b.png"]])
def test_one_class_is_refused_with_what_to_do(tmp_path, names):
    put(tmp_path / "set", *names)
    with pytest.raises(UserError) as caught:
        opened(tmp_path / "set", tmp_path)
    said, folder = str(caught.value), names[0].partition("/")[0]
    assert f"2 images read as class folders, all of one class, '{folder}'" in said
    assert f"'a photo of a {folder}'" in said
    assert "captions.csv" in said


@pytest.mark.parametrize(
    "folders",
    [
        ("images", "masks"), ("photos", "annotations"), ("Input", "Output"), ("real", "fake"),
        ("images", "other"), ("a", "cat"),
    ],
)  # fmt: skip
def test_folders_that_say_what_lies_in_them_are_no_classes(tmp_path, folders):
    put(tmp_path / "set", *(f"{folder}/1.png" for folder in folders))
    if folders == ("a", "cat"):
        assert labels(opened(tmp_path / "set", tmp_path)) == ["a", "cat"]
        return
    with pytest.raises(UserError, match=f"called {', '.join(sorted(folders))}, which are not cl"):
        opened(tmp_path / "set", tmp_path)


def test_captions_in_a_text_file_are_not_passed_over(tmp_path):
    """As Flickr8k is handed round, but for the name ``captions.txt``."""
    put(tmp_path / "set", "Images/1.png", "Images/2.png")
    (tmp_path / "set/texts.txt").write_text("image,caption\n1.png,a street\n2.png,a bus\n")
    with pytest.raises(UserError, match=r"texts\.txt seems to hold captions of these images"):
        opened(tmp_path / "set", tmp_path)
    (tmp_path / "set/texts.txt").rename(tmp_path / "set/captions.csv")
    assert opened(tmp_path / "set", tmp_path).text(0) == "a street"


@pytest.mark.parametrize("place", ["", "about/"])
def test_a_list_of_captions_that_no_reader_reads_is_refused_by_name(tmp_path, place):
    """Two lists: neither is the list of the folder, and both would be passed over."""
    put(tmp_path / "set", "day/1.png", "night/2.png")
    assert len(opened(tmp_path / "set", tmp_path)) == 2  # lists that come later are noticed
    (tmp_path / "set" / place).mkdir(exist_ok=True)
    for name in ("mine.jsonl", "yours.jsonl"):
        line = {"pictures": {"1.png": {"text": "a street"}}}
        (tmp_path / "set" / place / name).write_text(json.dumps(line))
    with pytest.raises(UserError, match=rf"{place}mine\.jsonl seems to hold captions"):
        opened(tmp_path / "set", tmp_path)


def test_what_lies_beside_class_folders_and_is_not_read_is_said(tmp_path):
    put(tmp_path / "set", "day/1.png", "night/2.png", "night/3.heic", "night/4.heic")
    (tmp_path / "set" / "class_to_idx.json").write_text('{"day": 0, "night": 1}')
    index = opened(tmp_path / "set", tmp_path)
    assert index.reading.left_out == ("class_to_idx.json", "2 images in .heic")
    assert "not read: 2 images in .heic" in index.reading.line("real", "set")


@pytest.mark.parametrize("ending", ["gif", "bmp", "tif", "tiff", "GIF"])
def test_images_of_every_form_that_is_decoded_are_read(tmp_path, ending):
    kind = {"tif": "TIFF", "tiff": "TIFF"}.get(ending, ending.upper())
    put(tmp_path / "set", "day/1.png", "night/2.png")
    (tmp_path / f"set/night/3.{ending}").write_bytes(noise_image(3, kind=kind))
    index = opened(tmp_path / "set", tmp_path)
    assert labels(index) == ["day", "night", "night"]
    decode_image(index.read_image(2), "it")


def test_splits_are_no_classes_however_deep(tmp_path):
    put(tmp_path / "set", "imagenet/train/n01440764/a.JPEG", "imagenet/val/n01440764/b.JPEG")
    with pytest.raises(
        UserError, match=r"name one of .*/imagenet/train .1 image., .*/imagenet/val"
    ):
        opened(tmp_path / "set", tmp_path)
    put(tmp_path / "one", "val/n01440764/a.JPEG", "val/n01443537/b.JPEG")
    with pytest.raises(UserError, match=r"name one of .*/one/val"):
        opened(tmp_path / "one", tmp_path)
    index = opened(tmp_path / "one/val", tmp_path)
    assert (index.label(0), index.text(0)) == ("n01440764", "a photo of a tench")


# A list of images and classes is asked as classification.


def lay(folder, lines, name="labels.csv", images=4):
    folder.mkdir(parents=True)
    for number in range(images):
        (folder / f"{number}.png").write_bytes(noise_image(number))
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder


CSV = [
    "image,label,site",
    "0.png,polar_bear,a",
    "1.png,zebra,b",
    "2.png,polar_bear,a",
    "3.png,zebra,a",
]


def test_every_image_has_its_class(tmp_path):
    index = open_index(lay(tmp_path / "own", CSV), tmp_path / "cache")
    assert index.kind == "label_list"
    assert [index.label(row) for row in range(4)] == ["polar_bear", "zebra"] * 2
    assert index.text(0) == "a photo of a polar bear"
    assert len(set(index.groups.tolist())) == 4
    assert index.extra_row(1) == {"site": "b"}
    lines = [json.dumps({"file_name": f"{n}.png", "class": "ab"[n % 2]}) for n in range(4)]
    index = open_index(lay(tmp_path / "other", lines, "metadata.jsonl"), tmp_path / "cache")
    assert [index.label(row) for row in range(4)] == ["a", "b"] * 2


def test_numbers_are_read_and_refused_where_names_are_needed(tmp_path):
    """N6: ``0`` was refused here, ``0.0`` was not; a file of names may explain either."""
    lines = ["image,label", *(f"{n}.png,{n % 2}" for n in range(4))]
    index = open_index(lay(tmp_path / "own", lines), tmp_path / "cache")
    records = [json.dumps({"image": f"{n}.png", "label": n % 2}) for n in range(4)]
    same = open_index(lay(tmp_path / "two", records, "labels.jsonl"), tmp_path / "cache")
    assert same.hash == index.hash
    labels = [index.label(row) for row in range(4)]
    assert labels == ["0", "1", "0", "1"]
    asked = Classification(str(tmp_path / "own"))
    context = EvaluationContext(open=lambda name: index, has_world=False, held_out=tuple)
    with pytest.raises(UserError, match=r"2 classes are called by numbers \(0, 1\), not by names"):
        asked.open(context)
    (tmp_path / "own" / "classnames.txt").write_text("cat\ndog\n")
    [benchmark] = asked.open(context)
    assert benchmark.class_names == ["cat", "dog"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({2: "0.png,zebra,a"}, "duplicated image '0.png'"),
        ({2: "7.png,zebra,a"}, "7.png"),
        ({2: "../secret.png,zebra,a"}, "leads out of"),
        ({2: "1.png,,a"}, "the class is missing"),
        ({2: "1.png,polar_bear,a", 4: "3.png,polar_bear,a"}, "polar_bear"),
    ],
)
def test_what_is_wrong_is_named(changed, said, tmp_path):
    lines = [changed.get(number, line) for number, line in enumerate(CSV)]
    assert_refused(lay(tmp_path / "own", lines), tmp_path / "cache", said)


# Class names, against the lists of the packages that everybody evaluates with.


def installed(package, file):
    """Return a file of a package, which is not imported: that would take a minute."""
    spec = find_spec(package)
    assert spec is not None, f"{package} is not installed"
    return Path(spec.submodule_search_locations[0]) / file


def test_imagenets_names_are_open_clips_in_the_order_of_the_ids():
    synsets = installed("timm", "data/_info/imagenet_synsets.txt").read_text().split()
    tree = ast.parse(installed("open_clip", "zero_shot_metadata.py").read_text())
    [names] = [
        ast.literal_eval(statement.value)
        for statement in tree.body
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "IMAGENET_CLASSNAMES"
    ]
    assert list(imagenet_names()) == synsets
    assert list(imagenet_names().values()) == list(names)


FOLDERS = """
BACKGROUND_Google Faces Faces_easy Leopards Motorbikes accordion airplanes anchor ant barrel bass
beaver binocular bonsai brain brontosaurus buddha butterfly camera cannon car_side ceiling_fan
cellphone chair chandelier cougar_body cougar_face crab crayfish crocodile crocodile_head cup
dalmatian dollar_bill dolphin dragonfly electric_guitar elephant emu euphonium ewer ferry flamingo
flamingo_head garfield gerenuk gramophone grand_piano hawksbill headphone hedgehog helicopter ibis
inline_skate joshua_tree kangaroo ketch lamp laptop llama lobster lotus mandolin mayfly menorah
metronome minaret nautilus octopus okapi pagoda panda pigeon pizza platypus pyramid revolver rhino
rooster saxophone schooner scissors scorpion sea_horse snoopy soccer_ball stapler starfish
stegosaurus stop_sign strawberry sunflower tick trilobite umbrella watch water_lilly wheelchair
wild_cat windsor_chair wrench yin_yang
"""


def test_caltechs_names_are_clip_benchmarks():
    file = installed("clip_benchmark", "datasets/en_classnames.json")
    theirs = json.loads(file.read_text())["caltech101"]
    assert prompt_names(FOLDERS.split()) == [" ".join(name.split()) for name in theirs]


def test_a_folder_of_ones_own_is_not_taken_for_caltech():
    assert prompt_names(["Faces", "airplanes", "x-ray"]) == ["Faces", "airplanes", "x-ray"]


def test_every_label_differs_and_the_first_keep_their_names():
    labels = make_distinct(list(imagenet_names().values()))
    assert len(set(labels)) == 1000
    assert [label for label in labels if label.endswith(" (2)")] == [
        "missile (2)",
        "sunglasses (2)",
    ]
