from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.data.index import open_index
from cfaug.data.leakage import LARGEST_ID, coco_ids, find_leaks
from cfaug.data.shards import write_shards
from cfaug.data.table import group_code
from tests.data.making import pair, photo_folder


@dataclass(frozen=True)
class Named:
    """Rows by the names of their groups and files; rows of a file share its image."""

    names: tuple[tuple[str, str], ...]

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
sources = st.lists(names, min_size=1, max_size=20).map(tuple).map(Named)


@settings(max_examples=200, deadline=None)
@given(sources, sources, sources, st.data())
def test_equals_the_slow_obvious_search(one, other, test, data):
    trained = [
        (source, np.array(data.draw(st.lists(st.integers(0, len(source.names) - 1))), np.int64))
        for source in (one, other)
    ]
    rows = sorted(data.draw(st.sets(st.integers(0, len(test.names) - 1))))
    known = {slow_id(*source.names[row]) for source, chosen in trained for row in chosen} - {-1}
    leaking = [row for row in rows if slow_id(*test.names[row]) in known]
    leaks = find_leaks(trained, test, np.array(rows, np.int64))
    assert leaks.rows.tolist() == leaking
    assert leaks.ids.tolist() == sorted({slow_id(*test.names[row]) for row in leaking})
    assert leaks.images == len({test.names[row][1] for row in leaking})
    assert leaks.total == len({test.names[row][1] for row in rows})
    assert leaks.checked == len(
        {test.names[row][1] for row in rows if slow_id(*test.names[row]) > 0}
    )
    assert bool(str(leaks)) == bool(leaking)
    assert coco_ids(test).tolist() == [slow_id(*one) for one in test.names]


def test_counterfactuals_of_a_photo_leak_into_a_test_that_shows_it(tmp_path: Path) -> None:
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
