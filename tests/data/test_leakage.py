from __future__ import annotations

import json
import shutil
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.data.index import open_index
from cfaug.data.index.disk_format import group_code
from cfaug.data.mixture.leakage import LARGEST_ID, coco_ids, find_equal_images, find_leaks
from cfaug.data.shards.shards import write_shards
from tests.data.making import pair, photo_folder
from tests.properties import examples


@dataclass(frozen=True)
class Named:
    """Rows by the names of their groups and files; rows of a file share its image.

    Files of one name have equal bytes in sources of one kind.
    """

    names: tuple[tuple[str, str], ...]
    kind: int = 0

    @property
    def groups(self) -> np.ndarray:
        return np.array([group_code(group) for group, _ in self.names], np.uint64)

    @property
    def files(self) -> np.ndarray:
        known = sorted({file for _, file in self.names})
        return np.array([known.index(file) for _, file in self.names], np.int32)

    @property
    def images(self) -> np.ndarray:
        return self.files.astype(np.int64)

    @property
    def contents(self) -> np.ndarray:
        return np.array([group_code(f"{self.kind} {file}") for _, file in self.names], np.uint64)

    def file_name(self, row: int) -> str:
        return self.names[row][1]


def slow_id(group: str, file: str) -> int:
    """Read the names themselves."""
    if group.isdecimal() and group == str(int(group)) and 0 < int(group) <= LARGEST_ID:
        return int(group)
    stem = file.rsplit("/", 1)[-1].rsplit(".", 1)[0].rsplit("_", 1)[-1]
    return int(stem) if len(stem) == 12 and stem.isdecimal() else -1


ids = st.integers(1, 40)
names = st.one_of(
    st.tuples(ids.map(str), st.just("00000.tar")),
    st.tuples(st.sampled_from("abc"), ids.map("COCO_val2014_{:012d}.jpg".format)),
    st.tuples(ids.map("0{}".format), ids.map("val2017/{:012d}.jpg".format)),
    st.tuples(st.sampled_from(["x", "600000", "0"]), st.sampled_from(["1.tar", "7/36979.jpg"])),
)
sources = st.lists(names, min_size=1, max_size=20).map(tuple)
sources = st.builds(Named, sources, st.integers(0, 4))


@settings(max_examples=examples(200), deadline=None)
@given(sources, sources, sources, st.data())
def test_equals_the_slow_obvious_search(one, other, test, data):
    trained = [
        (source, np.array(data.draw(st.lists(st.integers(0, len(source.names) - 1))), np.int64))
        for source in (one, other)
    ]
    rows = sorted(data.draw(st.sets(st.integers(0, len(test.names) - 1))))
    known = {slow_id(*source.names[row]) for source, chosen in trained for row in chosen} - {-1}
    photos = [row for row in rows if slow_id(*test.names[row]) in known]
    shown = {(source.kind, source.names[row][1]) for source, chosen in trained for row in chosen}
    equal = [row for row in rows if (test.kind, test.names[row][1]) in shown]
    leaking = sorted({*photos, *equal})
    leaks = find_leaks(trained, test, np.array(rows, np.int64))
    assert leaks.rows.tolist() == leaking
    assert leaks.ids.tolist() == sorted({slow_id(*test.names[row]) for row in photos})
    assert (
        np.array(rows)[find_equal_images(test, np.array(rows, np.int64), trained)].tolist() == equal
    )
    assert leaks.equal == len({test.names[row][1] for row in equal})
    assert leaks.images == len({test.names[row][1] for row in leaking})
    assert leaks.total == len({test.names[row][1] for row in rows})
    assert leaks.checked == len(
        {test.names[row][1] for row in rows if slow_id(*test.names[row]) > 0}
    )
    assert bool(str(leaks)) == bool(leaking)
    assert coco_ids(test).tolist() == [slow_id(*one) for one in test.names]


def test_counterfactuals_of_a_photo_leak_into_a_test_that_shows_it(tmp_path):
    write_shards([pair(0, group="391895"), pair(1, group="22")], tmp_path / "cf")
    (tmp_path / "test").mkdir()
    lines = []
    for name, photo in (("chelsea.png", 391895), ("coffee.png", 391896)):
        file = f"COCO_val2014_{photo:012d}.png"
        shutil.copy(photo_folder() / name, tmp_path / "test" / file)
        lines += [json.dumps({"image": file, "caption": f"caption {i}"}) for i in range(2)]
    (tmp_path / "test" / "captions.jsonl").write_text("\n".join(lines))
    cf, test = (open_index(tmp_path / n, tmp_path / "cache") for n in ("cf", "test"))
    leaks = find_leaks([(cf, np.arange(4))], test)
    assert (leaks.rows.tolist(), leaks.images, leaks.checked, leaks.total) == ([0, 1], 1, 2, 2)
    assert str(leaks) == (
        "1 of 2 test images (50.0%) show COCO photos that were trained on (COCO ids 391895)"
    )
    assert find_leaks([(cf, np.arange(2, 4))], test).images == 0


@pytest.mark.parametrize("rows", [None, np.empty(0, np.int64)])
def test_nothing_trained_leaks_nothing(rows):
    source = Named((("5", "a.tar"),))
    assert find_leaks([], source, rows).images == 0


def test_equal_images_leak_whatever_they_are_called(tmp_path):
    for name, photos in (("train", ["chelsea", "coffee"]), ("test", ["coffee", "astronaut"])):
        (tmp_path / name).mkdir()
        for photo in photos:
            file = tmp_path / name / f"{name} {photo}.png"
            shutil.copy(photo_folder() / f"{photo}.png", file)
            file.with_suffix(".txt").write_text(f"{name} {photo}\n another caption\n")
    train, test = (open_index(tmp_path / n, tmp_path / "cache") for n in ("train", "test"))
    leaks = find_leaks([(train, np.arange(4))], test)
    [row] = {int(row) // 2 for row in leaks.rows}
    assert "coffee" in test.text(2 * row)
    assert (leaks.images, leaks.equal, leaks.checked, leaks.total) == (1, 1, 0, 2)
    assert str(leaks) == "1 of 2 test images (50.0%) were trained on"
    assert str(find_leaks([(test, np.arange(4))], test)) == "all 2 test images were trained on"


def test_equal_images_and_other_copies_of_a_photo_are_told_apart():
    trained = Named((("22", "a.jpg"), ("23", "b.jpg")))
    test = Named((("22", "a.jpg"), ("23", "c.jpg"), ("x", "d.jpg")))
    assert str(find_leaks([(trained, np.arange(2))], test)) == (
        "2 of 3 test images (66.7%) were trained on, 1 of them as other copies or edits of a COCO "
        "photo (COCO ids 22, 23)"
    )
