"""Images that a run learnt questions about, found again: by content, by COCO id, by file name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.questions import AskedQuestion
from cfaug.data.mixture.leakage import find_question_leaks
from cfaug.data.sources.question_sets import read_questions
from cfaug.data.sources.question_sets.rows import EmbeddedImage, FileImage
from cfaug.evaluation.benchmark import LeakAware
from tests.data.question_files import own_record, write_own
from tests.evaluation.questions import Drawn, Picture, context, image, opened

IMAGES = [image(n) for n in range(8)]


def other_pixels(number: int, **changes):
    return image(number, image=Picture(image(90 + number).image.content), **changes)


def found(trained, asked):
    leaks, keys = find_question_leaks(trained, asked)
    assert leaks.images == len(keys)
    return leaks, keys


def test_equal_bytes_are_found_whatever_they_are_called():
    trained = [replace(one, key=f"other-{one.key}", group="g") for one in IMAGES[:3]]
    leaks, keys = found(trained, IMAGES)
    assert keys == {"i0", "i1", "i2"}
    assert (leaks.equal, leaks.total, leaks.rows.tolist()) == (3, 8, [0, 1, 2])
    assert found(IMAGES[:3], IMAGES[3:])[1] == set()


def test_a_coco_photo_is_found_as_the_set_or_the_file_names_it(tmp_path):
    named = tmp_path / "COCO_val2014_000000391895.jpg"
    named.write_bytes(IMAGES[0].image.content)
    asked = [
        other_pixels(0, extra={"coco_id": 391895}),
        other_pixels(1, extra={"coco_id": "000000000139"}),
        other_pixels(2, group="391895"),  # a number, and no word of COCO
        other_pixels(3, questions=[AskedQuestion("q", "question", "Is it?", ("a", "b"), 0,
                                                 {"coco_id": 139})]),
        replace(other_pixels(4), image=None),
    ]  # fmt: skip
    trained = [replace(IMAGES[0], image=FileImage(named)), image(1, extra={"coco_id": "139"})]
    leaks, keys = found(trained, asked)
    assert keys == {"i0", "i1", "i3"}
    assert leaks.ids.tolist() == [139, 391895]
    assert (leaks.equal, leaks.checked, leaks.total) == (0, 3, 4)


def test_a_set_read_from_files_leaks_into_itself(tmp_path):
    records = [own_record(n, coco_id=n + 1) for n in range(3)]
    images = read_questions(write_own(tmp_path / "asked", records))
    assert found(images[:1], images)[1] == {images[0].key}


def test_images_of_a_world_are_compared_without_being_drawn():
    def undrawn():
        raise AssertionError

    drawn = [
        replace(one, image=EmbeddedImage(f"world, {one.key}", undrawn, drawn=True))
        for one in IMAGES
    ]
    leaks, keys = found(drawn[:2], [replace(one, key=f"again-{one.key}") for one in drawn])
    assert keys == {"again-i0", "again-i1"}
    assert leaks.equal == 2
    shown = [
        replace(one, image=EmbeddedImage(f"world, {one.key}", lambda one=one: one.image.content,
                                         drawn=True))
        for one in IMAGES
    ]  # fmt: skip
    assert found(shown[:3], IMAGES)[1] == {"i0", "i1", "i2"}  # exported to files, by their bytes


def asking(trained):
    return replace(context(IMAGES), trained_questions=lambda: trained)


def test_the_benchmark_reports_leaks_or_leaves_them_out():
    from cfaug.cfmm.vqa import VisualQuestions

    plain = opened(IMAGES)
    assert isinstance(plain, LeakAware)
    assert plain.leaks is None
    (told,) = VisualQuestions("asked.jsonl").open(asking(IMAGES[:2]))
    assert told.leaks.images == 2
    assert str(told.leaks) == "2 of 8 test images (25.0%) were trained on"
    assert told.data_hash == plain.data_hash
    (clean,) = VisualQuestions("asked.jsonl", without_leaks=True).open(asking(IMAGES[:2]))
    assert clean.leaks.images == 0
    assert clean.data_hash != plain.data_hash
    items = clean.run(Drawn()).items
    assert len(items["item"]) == 5 * 6
    assert not np.isin([name.split("/")[0] for name in items["item"]], ["i0", "i1"]).any()
    with pytest.raises(UserError, match="all 8 test images were trained on; without_leaks=true"):
        VisualQuestions("asked.jsonl", without_leaks=True).open(asking(IMAGES))
