"""Class names, against the lists of the packages that everybody evaluates with."""

from __future__ import annotations

import ast
import json
from importlib.util import find_spec
from pathlib import Path

from cfaug.data.sources.row import imagenet_names, make_distinct, prompt_names


def installed(package, file):
    """Return a file of a package, which is not imported: that would take a minute."""
    found = find_spec(package)
    assert found is not None, f"{package} is not installed"
    return Path(found.submodule_search_locations[0]) / file


def test_imagenets_names_are_open_clips_in_the_order_of_the_ids():
    synsets = installed("timm", "data/_info/imagenet_synsets.txt").read_text().split()
    tree = ast.parse(installed("open_clip", "zero_shot_metadata.py").read_text())
    [names] = [
        ast.literal_eval(one.value)
        for one in tree.body
        if isinstance(one, ast.Assign) and one.targets[0].id == "IMAGENET_CLASSNAMES"
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
