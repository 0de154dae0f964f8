"""Labels of test sets as classes of models, by whatever names both have."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.data.sources.row import imagenet_names
from cfaug.evaluation.class_mapping import (
    ids_of_name,
    imagenet_aliases,
    imagenet_ids,
    match_classes,
)


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
        found = match_classes(["dog sled", "Howler_Monkey", "snorkel"], classes, "it")
        assert [ordered[n] for n in found] == ["n03218198", "n02492660", "n04251144"]


def test_a_name_of_two_classes_is_refused_with_both():
    with pytest.raises(UserError, match=r"'crane' could be 134 \('n02012849'\) or 517"):
        match_classes(["crane", "tench"], list(imagenet_names()), "it")
    assert ids_of_name("crane") == {"n02012849", "n03126707"}


def test_other_classes_are_matched_by_words():
    classes = ["Polar Bear", "t-shirt", "002.cat, house cat"]
    found = match_classes(["012.polar_bear", "T-Shirt", "house cat"], classes, "it")
    assert found.tolist() == [0, 1, 2]


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
    found = imagenet_ids(names[::-1])[::-1]
    unique = [wnid if len(ids_of_name(imagenet_names()[wnid])) == 1 else None
              for wnid in imagenet_names()]  # fmt: skip
    assert found == unique
    assert found.count(None) > 5
    assert len(imagenet_aliases()) == 1000
