"""A detector that reads the scene, with planted errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cfaug.core.detections import detections_from_json
from cfaug.core.errors import UserError
from cfaug.core.protocols import Annotator
from cfaug.core.types import Example
from cfaug.shapescapes.detector import PLACE_LABELS, SceneDetector, text_truth
from cfaug.shapescapes.drawing import Scene, render
from cfaug.shapescapes.settings import COLOURS, PLACES, SUBJECTS, Factors, WorldSettings

WORLD = WorldSettings(seed=1, style="drawing")
RNG = np.random.default_rng(0)
SCENES = [
    Scene(Factors(*(str(RNG.choice(tuple(some))) for some in (SUBJECTS, COLOURS, PLACES))), i)
    for i in range(600)
]


def photo(number, **extra):
    return Example(f"e{number}", "g", ("a",), extra={**SCENES[number].record(), **extra})


def find(detector, examples):
    found = detector.annotate(examples)
    return [detections_from_json(one["detections"], "here") for one in found]


EVERY = [photo(i) for i in range(len(SCENES))]


def test_without_errors_all_that_is_said_is_true_and_each_object_is_in_its_box():
    detector = SceneDetector(world=WORLD)
    assert isinstance(detector, Annotator)
    for scene, objects in zip(SCENES[:60], find(detector, EVERY[:60]), strict=True):
        place = PLACE_LABELS.get(scene.factors.background)
        expected = [scene.factors.subject] + ([place] if place else [])
        assert [one.label for one in objects] == expected
        for one in objects:
            for attribute in one.attributes:
                assert text_truth(f"a {attribute.name} {one.label}", scene.factors)
        left, top, right, bottom = map(int, objects[0].box)
        touched = render(scene, WORLD.image_size, WORLD.look()).touched
        assert touched[top:bottom, left:right].sum() == touched.sum()
        assert touched[top].any()
        assert touched[:, right - 1].any()


def wrong(rate, **options):
    """Return the numbers of photos of which something else is said than without errors."""
    right, found = (find(SceneDetector(error_rate=one, **options), EVERY) for one in (0.0, rate))
    return {i: found[i] for i in range(len(EVERY)) if found[i] != right[i]}, right


def test_as_many_objects_go_wrong_as_asked_and_more_errors_include_the_fewer():
    few, right = wrong(0.1)
    many, _ = wrong(0.4)
    assert all(many[i] == found or len(right[i]) > 1 for i, found in few.items())
    assert set(few) <= set(many)
    single = [i for i, objects in enumerate(right) if len(objects) == 1]
    share = sum(i in many for i in single) / len(single)
    assert abs(share - 0.4) < 3 * np.sqrt(0.24 / len(single))
    assert set(wrong(1.0)[0]) == set(range(len(EVERY)))


@pytest.mark.parametrize("way", ["attribute", "missed", "label"])
def test_each_way_to_go_wrong(way):
    found, right = wrong(1.0, errors=[way])
    for i, objects in found.items():
        if way == "missed":
            assert objects == ()
            continue
        for one, true in zip(objects, right[i], strict=True):
            assert (one.label == true.label) == (way == "attribute")
            assert (one.attributes == true.attributes) == (way == "label")
            assert one.box == true.box


def test_an_answer_depends_on_the_photo_not_on_its_neighbours_and_the_seed_counts():
    detector = SceneDetector(error_rate=0.5)
    assert find(detector, EVERY[7:8])[0] == find(detector, EVERY)[7]
    assert find(replace(detector, seed=1), EVERY) != find(detector, EVERY)
    others = [{"seed": 1}, {"error_rate": 0.4}, {"errors": ("missed",)}, {"world": WORLD}]
    identities = {replace(detector, **one).identity() for one in [{}, *others]}
    assert len(identities) == 5


def test_what_is_covered_is_not_seen():
    grass = next(i for i, one in enumerate(SCENES) if one.factors.background == "grass")
    (colour,) = find(SceneDetector(), [photo(grass, hidden="colour")])
    (place,) = find(SceneDetector(), [photo(grass, hidden="background")])
    assert [one.label for one in colour] == [SCENES[grass].factors.subject, "grass"]
    assert colour[0].attributes == ()
    assert [one.label for one in place] == [SCENES[grass].factors.subject]


def test_other_photos_and_settings_that_make_no_sense_are_refused():
    with pytest.raises(UserError, match="'e' is not a scene"):
        SceneDetector().annotate([Example("e", "g", ("a ball",))])
    with pytest.raises(UserError, match=r"error_rate=1\.5"):
        SceneDetector(error_rate=1.5)
    with pytest.raises(UserError, match="choose from attribute, missed, label"):
        SceneDetector(errors=("typo",))
