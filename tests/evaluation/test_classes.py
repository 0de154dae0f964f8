"""Which classes a labelled folder has and what prompts call them; laid out by hand."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cfaug.core.errors import UserError, say_once
from cfaug.data.index import open_index
from cfaug.data.sources.row import class_words, imagenet_names, names_warning, prompt_names
from cfaug.evaluation.class_mapping import (
    ids_of_name,
    imagenet_aliases,
    imagenet_ids,
    match_classes,
)
from cfaug.evaluation.classification import Classification
from cfaug.evaluation.context import EvaluationContext
from cfaug.evaluation.inference import ZeroShotClassifier
from cfaug.evaluation.records import Classes
from cfaug.evaluation.suites import HeldOut
from cfaug.models.specs import HFClip
from tests.data.making import noise_image, write_tar

CLASSES = ["ball", "cube", "star", "cone", "ring", "kite"]


@pytest.fixture
def context(tmp_path):
    return EvaluationContext(
        open=lambda name: open_index(name, tmp_path / "index"), has_world=False, held_out=tuple
    )


def class_folder(folder, labels):
    for i, label in enumerate(labels):
        (folder / label).mkdir(parents=True)
        (folder / label / "a.png").write_bytes(noise_image(i))
    return folder


def asked(context, folder, **options):
    [benchmark] = Classification(str(folder), **options).open(context)
    return benchmark


def names(context, folder, **options):
    return asked(context, folder, **options).class_names


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (("001.polar_bear", "046.computer-monitor", "251.airplanes-101"),
         ["polar bear", "computer monitor", "airplanes"]),
        (("n01440764", "n04356056"), ["tench", "sunglasses"]),
        (("BACKGROUND_Google", "Faces", "ant"), ["background", "off-center face", "ant"]),
        (("apple_pie", "x-ray"), ["apple pie", "x-ray"]),
    ],
)  # fmt: skip
def test_released_labels_are_asked_for_by_name(context, tmp_path, labels, said):
    assert names(context, class_folder(tmp_path / "set", labels)) == said


@pytest.mark.parametrize(
    "labels",
    [("n99999999", "n01440764"), ("0", "1"), ("0.0", "1.0"), ("00000", "00001"), ("-1", "1e3")],
)
def test_a_number_is_never_asked_for(context, tmp_path, labels):
    """N6: classification refused ``0`` and took ``0.0``."""
    folder = class_folder(tmp_path / "set", labels)
    with pytest.raises(UserError, match=r"not (by )?names to ask for: put a classnames\.txt"):
        names(context, folder)
    (folder / "classnames.txt").write_text("hen\ncock\n")
    assert names(context, folder) == ["hen", "cock"]


def test_held_out_and_prompted_numbers_are_refused_too(context, tmp_path):
    """N6: the other places where prompts are made: a run's held-out classes, and stress tests."""
    index = open_index(class_folder(tmp_path / "set", ("0.0", "1.0")), tmp_path / "index")
    held = replace(context, held_out=lambda: (index, np.arange(2)))
    with pytest.raises(UserError, match=r"2 classes are called by numbers \(0\.0, 1\.0\)"):
        HeldOut().open(held)
    with pytest.raises(UserError, match=r"2 classes are called by numbers \(0, 1\)"):
        ZeroShotClassifier(HFClip("zoo:clip-0").load(), Classes(["0", "1"], ["0", "1"], ["{c}"]))


def test_a_number_among_names_is_a_name(context, tmp_path):
    """N6: only numbers alone say nothing; 7 up is a drink, and so is 7."""
    assert names(context, class_folder(tmp_path / "set", ("7", "cola"))) == ["7", "cola"]


def test_the_order_of_numbered_labels_is_said(context, tmp_path, capsys):
    """N6: names for 0, 1, 2, ..., 10 would be given to 0, 1, 10, 2, ... without a word."""
    numbers = [str(number) for number in range(11)]
    folder = class_folder(tmp_path / "set", numbers)
    (folder / "classnames.txt").write_text("".join(f"name {n}\n" for n in numbers))
    names(context, folder)
    assert "its lines name the labels in this order: 0, 1, 10, 2, 3" in capsys.readouterr().err
    few = class_folder(tmp_path / "few", numbers[:3])
    (few / "classnames.txt").write_text("a\nb\nc\n")
    names(context, few)
    assert "in this order" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (("cat", "Cat", "dog"), "'Cat' and 'cat'"),
        (("polar_bear", "polar bear"), "'polar bear' and 'polar bear'"),
        (("cat", "dog"), None),
    ],
)
def test_classes_with_one_prompt_are_said(context, tmp_path, capsys, labels, said):
    """N35: each image of ``cat`` and of ``Cat`` counted half, without a word."""
    names(context, class_folder(tmp_path / str(len(labels)) / "set", labels))
    err = capsys.readouterr().err
    assert ("classes with one prompt" in err) is (said is not None)
    assert said is None or said in err


def test_one_class_cannot_be_told_from_others(context, tmp_path):
    with pytest.raises(UserError, match="all of one class, 'dog'"):
        names(context, class_folder(tmp_path / "set", ("dog",)))
    captioned = {}
    for i in range(2):  # a source like any other to train on, but no classification
        image = noise_image(i, kind="JPEG")
        captioned |= {f"{i}.jpg": image, f"{i}.txt": b"a dog runs", f"{i}.cls": b"dog"}
    write_tar(tmp_path / "tars" / "00000.tar", captioned)
    with pytest.raises(UserError, match="every image is of the class 'dog'"):
        names(context, tmp_path / "tars")


def test_a_file_names_classes_by_their_words_or_in_their_order(context, tmp_path):
    folder = class_folder(tmp_path / "set", ("001.polar_bear", "n02"))
    named, beside = tmp_path / "names.txt", tmp_path / "classnames.txt"
    named.write_text("ice bear\nhen\n", encoding="utf-8-sig")
    assert names(context, folder, classes=str(named)) == ["ice bear", "hen"]
    beside.write_text("n02\nunseen\nPolar bear\n")
    benchmark = asked(context, folder)
    assert benchmark.class_names == ["n02", "unseen", "Polar bear"]
    assert benchmark._labels.tolist() == [2, 0]
    beside.write_text("just one\n")
    with pytest.raises(UserError, match=r"1 class names and .* 2 labels"):
        names(context, folder)
    beside.write_text("\n")
    with pytest.raises(UserError, match="is empty"):
        names(context, folder)


def test_a_file_in_another_order_is_refused(context, tmp_path):
    folder = class_folder(tmp_path / "set", ("bird", "cat", "dog"))
    (folder / "classnames.txt").write_text("dog\ncat\nfowl\n")
    with pytest.raises(UserError, match="'dog' stands where 'bird' belongs"):
        names(context, folder)


@pytest.mark.parametrize(
    ("templates", "said"),
    [(["a {c}", "a {}"], "'a {}' has no {c}"), ([], "is empty"),
     ([3], "templates[0]=3 should be a text"),
     ("a photo", "'a photo' has no"), ("folder", "no zeroshot_class")],
)  # fmt: skip
def test_a_template_without_a_place_for_the_class_is_refused(context, tmp_path, templates, said):
    folder = class_folder(tmp_path / "set", ("cat", "dog"))
    with pytest.raises(UserError, match=re.escape(said)):
        asked(context, folder, templates=templates)


def test_of_several_splits_the_test_is_asked(context, tmp_path):
    for split in ("train", "val"):
        class_folder(tmp_path / "set" / split, ("n01440764", "n04356056"))
    flat = tmp_path / "set/test"
    flat.mkdir()
    (flat / "a.png").write_bytes(noise_image(1))
    assert asked(context, tmp_path / "set")._index.source == str(tmp_path / "set/val")


def webdataset(folder: Path, numbers, image=noise_image):
    content = {}
    for i, number in enumerate(numbers):
        content |= {f"s{i}.png": image(i), f"s{i}.cls": b"%d" % number}
    write_tar(folder / "test/0.tar", content)
    (folder / "test/nshards.txt").write_text("1")


def test_two_classes_of_one_name_stay_two(context, tmp_path):
    webdataset(tmp_path / "set", [1, 2, 0, 2])
    (tmp_path / "set/classnames.txt").write_text("cat\nsunglasses\nsunglasses\n")
    benchmark = asked(context, tmp_path / "set")
    assert benchmark.class_names == ["cat", "sunglasses", "sunglasses"]
    assert benchmark._labels.tolist() == [1, 2, 0, 2]
    (tmp_path / "set/classnames.txt").write_text("cat\nsunglass\nsunglasses\n")
    assert asked(context, tmp_path / "set").class_names == ["cat", "sunglass", "sunglasses"]


MODES = ("RGB", "L", "P", "RGBA", "LA", "1", "CMYK")
SIZES = ((40, 32), (1, 1), (9, 64), (32, 32))


def odd_image(number):
    mode, size = MODES[number % len(MODES)], SIZES[number % len(SIZES)]
    pixels = np.random.default_rng(number).integers(0, 256, (*size, 3), np.uint8)
    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[274] = number % 8 + 1  # turned; nobody who evaluates CLIP turns it back
    image = Image.fromarray(pixels).convert(mode)
    image.save(buffer, "TIFF" if mode == "CMYK" else "PNG", exif=exif)
    return buffer.getvalue()


def test_accuracy_is_the_slow_obvious_one_on_images_of_every_mode(context, tmp_path):
    truth = np.arange(56) % 6
    webdataset(tmp_path / "set", truth, odd_image)
    templates = ["a photo of a {c}.", "a red {c}"]
    for name, lines in (("classnames", CLASSES), ("zeroshot_classification_templates", templates)):
        (tmp_path / f"set/{name}.txt").write_text("\n".join(lines))
    encoder = HFClip("zoo:clip-0").load().eval()

    def unit(vectors):
        return vectors / vectors.norm(dim=-1, keepdim=True)

    with torch.inference_mode():
        classes = []
        for name in CLASSES:
            tokens = encoder.tokenize([template.format(c=name) for template in templates])
            classes.append(unit(unit(encoder.encode_text(tokens)).mean(0)))
        images = []
        for number in range(len(truth)):
            shown = Image.open(io.BytesIO(odd_image(number))).convert("RGB")
            images.append(torch.from_numpy(encoder.transform(shown).copy()))
        scores = unit(encoder.encode_image(torch.stack(images))) @ torch.stack(classes).T
        order = scores.argsort(dim=1, descending=True)
    right = order.numpy() == truth[:, None]
    evaluation = asked(context, tmp_path / "set", templates="folder").run(encoder)
    assert {outcome.metric: outcome.value for outcome in evaluation.outcomes} == pytest.approx(
        {
            "acc1": right[:, 0].mean(),
            "acc5": right[:, :5].any(1).mean(),
            "mean_per_class_recall": np.mean([right[truth == c, 0].mean() for c in range(6)]),
        }
    )
    assert 0 < right[:, 0].mean() < 1


def test_any_column_of_a_list_gives_the_classes(context, tmp_path):
    folder, lines = tmp_path / "photos", ["image,caption,thing,place"]
    folder.mkdir()
    things = [CLASSES[number % 6] for number in range(12)]
    for number, thing in enumerate(things):
        (folder / f"{number:02}.png").write_bytes(noise_image(number))
        lines.append(f"{number:02}.png,a photo {number},{thing},{'sea' if number % 2 else ''}")
    (folder / "captions.csv").write_text("\n".join(lines))
    for number, thing in enumerate(things):
        (tmp_path / "classes" / thing).mkdir(parents=True, exist_ok=True)
        place = tmp_path / "classes" / thing / f"{number:02}.png"
        place.write_bytes(noise_image(number))
    model = HFClip("zoo:clip-0").load().eval()
    by_column, by_folder = (
        asked(context, tmp_path / place, **more).run(model)
        for place, more in (("photos", {"label": "thing"}), ("classes", {}))
    )
    values = [{o.metric: o.value for o in e.outcomes} for e in (by_column, by_folder)]
    assert values[0] == values[1]
    assert sorted(by_column.items["label"]) == sorted(by_folder.items["label"])
    with pytest.raises(UserError, match=r"benchmark\.label=place: .* which names no class"):
        asked(context, folder, label="place")
    with pytest.raises(UserError, match=r"has no column 'ting': choose from .*thing"):
        asked(context, folder, label="ting")
    with pytest.raises(UserError, match="has no class label"):
        asked(context, folder)


# Labels of test sets as classes of models, by whatever names both have.


def torchvision_categories():
    from torchvision.models import ResNet18_Weights

    return ResNet18_Weights.IMAGENET1K_V1.meta["categories"]


def lemmas():
    """As transformers' configurations have them: "tench, Tinca tinca"."""
    from timm.data import ImageNetInfo

    return ImageNetInfo("imagenet-1k").label_descriptions()


HARD_IMAGENET = {
    "n03535780": "horizontal bar", "n02777292": "balance beam", "n09835506": "baseball player",
    "n03218198": "dog sled", "n02492660": "howler monkey",
    "n04356056": "sunglasses", "n04371430": "swimming trunks", "n03770439": "miniskirt",
    "n04228054": "ski", "n04251144": "snorkel", "n03888257": "parachute",
    "n04162706": "seat belt", "n03710637": "maillot",
}  # fmt: skip


@pytest.mark.parametrize("names", ["ids", "clip", "torchvision", "lemmas"])
def test_ids_of_folders_are_found_whatever_a_model_calls_imagenet(names):
    ordered = list(imagenet_names())
    classes = {
        "ids": ordered,
        "clip": list(imagenet_names().values()),
        "torchvision": torchvision_categories(),
        "lemmas": lemmas(),
    }[names]
    assert match_classes(ordered, classes, "it").tolist() == list(range(1000))
    assert imagenet_ids(classes) == ordered
    few = [wnid for wnid in HARD_IMAGENET if wnid in ordered]
    assert [ordered[n] for n in match_classes(few, classes, "it")] == few
    assert len(few) > 8


def test_names_of_folders_are_found_among_ids_and_lemmas():
    ordered = list(imagenet_names())
    for classes in (ordered, lemmas()):
        places = match_classes(["dog sled", "Howler_Monkey", "snorkel"], classes, "it")
        assert [ordered[n] for n in places] == ["n03218198", "n02492660", "n04251144"]


def test_a_name_of_two_classes_is_refused_with_both():
    with pytest.raises(UserError, match=r"'crane' could be 134 \('n02012849'\) or 517"):
        match_classes(["crane", "tench"], list(imagenet_names()), "it")
    assert ids_of_name("crane") == {"n02012849", "n03126707"}


def test_other_classes_are_matched_by_words():
    classes = ["Polar Bear", "t-shirt", "002.cat, house cat"]
    places = match_classes(["012.polar_bear", "T-Shirt", "house cat"], classes, "it")
    assert places.tolist() == [0, 1, 2]


def test_what_is_no_class_is_named_with_the_nearest():
    with pytest.raises(UserError) as caught:
        match_classes(["ball", "cub", "zebra"], ["ball", "cube"], "the model")
    said = str(caught.value)
    assert "the model has 2 classes (ball, cube)" in said
    assert "'cub' is not one of them (nearest: cube); 'zebra' is not one of them." in said
    assert "model.classes=FILE" in said


def test_two_labels_of_one_class_are_refused():
    with pytest.raises(UserError, match="'Ball' and 'ball' are both the class 'ball'"):
        match_classes(["Ball", "ball"], ["ball", "cube"], "it")


def test_names_in_another_order_are_not_taken_for_imagenets_order():
    """Each is then told by its own name; what two are called is not guessed."""
    names = list(imagenet_names().values())
    ids = imagenet_ids(names[::-1])[::-1]
    unique = [wnid if len(ids_of_name(imagenet_names()[wnid])) == 1 else None
              for wnid in imagenet_names()]  # fmt: skip
    assert ids == unique
    assert ids.count(None) > 5
    assert len(imagenet_aliases()) == 1000


NAMES = [
    "7up", "T-shirt", "F-16A", "F-16A/B", "MD-11", "Boeing 747-400", "707-320", "A300B4",
    "BMW X5 SUV 2007", "3D model", "iPod", "McDonald", "MacBook", "YouTube", "18-wheeler", "eBay",
    "O'Brien", "DeHavilland", "jack-o'-lantern", "Übung", "F/A-18", "ABC", "WiFi",
]  # fmt: skip


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("n02085620-Chihuahua", "Chihuahua"),  # Stanford Dogs
        ("n02105641-Old_English_sheepdog", "Old English sheepdog"),
        ("n02085936-Shih-Tzu", "Shih-Tzu"),
        ("n01440764_tench", "tench"),
        ("n01440764 tench", "tench"),
        ("tench_n01440764", "tench"),
        ("001.Black_footed_Albatross", "Black footed Albatross"),  # CUB
        ("0001_apple", "apple"),
        ("00043_Animalia_Insecta", "Animalia Insecta"),  # iNaturalist
        ("AnnualCrop", "Annual Crop"),  # EuroSAT
        ("HerbaceousVegetation", "Herbaceous Vegetation"),
        ("black  bear", "black bear"),
        ("__ice__cream_", "ice cream"),
        *((name, name) for name in NAMES),
    ],
)  # fmt: skip
def test_class_names_as_released_sets_write_them_are_words_and_names_stay_whole(label, name):
    assert class_words(label) == name
    assert class_words(name) == name, "a name that was read is not changed again"


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["cat", "polar_bear", "T-shirt"], None),
        (["n01440764", "cat"], None),  # ImageNet's
        (["n02085620-Chihuahua", "cat"], "n02085620-Chihuahua is 'Chihuahua'"),
        (["AnnualCrop", "Forest"], "AnnualCrop is 'Annual Crop'"),
        (["n99999999", "cat"], "warning: x: 1 of 2 classes have no name that can be read"),
        (["class_1", "class_2"], "2 of 2 classes have no name"),
        (["c0", "c1"], "nothing of 'a photo of a c0'. REMEDY"),
        (["1_apple", "2_pear"], "2 of 2 classes have no name"),
        (["7", "cat"], "1 of 2 classes have no name"),
        (["A320", "MD-11", "7up"], None),
    ],
)
def test_what_was_read_otherwise_or_not_as_a_name_is_said(labels, said):
    warning = names_warning(labels, prompt_names(labels), "x", "REMEDY")
    assert (warning is None) if said is None else (said in str(warning))


def test_dogs_as_released_are_asked_by_name_and_said(context, tmp_path, capsys):
    say_once.cache_clear()
    folder = class_folder(tmp_path / "dogs", ["n02085620-Chihuahua", "n02085936-Maltese_dog"])
    assert names(context, folder) == ["Chihuahua", "Maltese dog"]
    assert "n02085620-Chihuahua is 'Chihuahua'" in capsys.readouterr().err


def test_ids_before_names_find_the_models_classes_by_id():
    classes = ["n02085936", "n02085620", "n02086079"]
    labels = ["n02085620-Chihuahua", "n02085936-Maltese_dog"]
    assert match_classes(labels, classes, "it").tolist() == [1, 0]
