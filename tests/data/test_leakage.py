from __future__ import annotations

import shutil
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.index.disk_format import group_code
from cfaug.data.mixture.leakage import (
    LARGEST_ID,
    coco_ids,
    count_joined_groups,
    find_equal_images,
    find_leaks,
    find_question_leaks,
    join_groups,
    withhold,
)
from cfaug.data.mixture.mixture import mix, plan_mixture
from cfaug.data.mixture.settings import RatioData, Sources
from cfaug.data.questions import SourceQuestion
from cfaug.data.sources.question_sets.rows import EmbeddedImage, FileImage
from cfaug.evaluation.benchmark import LeakAware
from tests.data.making import Columns, photo_folder
from tests.evaluation.drawn_questions import Drawn, Picture, context, image, opened
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


@settings(max_examples=examples(80), deadline=None)
@given(sources, sources, sources, st.data())
def test_equals_the_slow_obvious_search(first, second, test, data):
    trained = [
        (source, np.array(data.draw(st.lists(st.integers(0, len(source.names) - 1))), np.int64))
        for source in (first, second)
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
    assert coco_ids(test).tolist() == [slow_id(*name) for name in test.names]


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


@pytest.mark.parametrize(
    ("trained", "said"),
    [
        ([], ""),
        ([("22", "e.jpg")], "1 of 3 test images (33.3%) show COCO photos that were trained on "
         "(COCO ids 22)"),
        ([("22", "a.jpg"), ("23", "b.jpg")],
         "2 of 3 test images (66.7%) were trained on, 1 of them as other copies or edits of a COCO "
         "photo (COCO ids 22, 23)"),
        ([("y", "a.jpg"), ("y", "c.jpg"), ("y", "d.jpg")], "all 3 test images were trained on"),
    ],
)  # fmt: skip
def test_a_leak_is_said_as_what_it_is(trained, said):
    test = Named((("22", "a.jpg"), ("23", "c.jpg"), ("x", "d.jpg")))
    source = Named(tuple(trained))
    assert str(find_leaks([(source, np.arange(len(trained)))], test)) == said


rows = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=12)


def columns(pairs: list[tuple[int, int]]) -> Columns:
    return Columns.of(((group, 1) for group, _ in pairs), contents=[image for _, image in pairs])


def slow_join(sources: list[list[tuple[int, int]]]) -> list[list[int]]:
    """Join until nothing changes."""
    code = {group: group for source in sources for group, _ in source}
    pairs = [pair for source in sources for pair in source]
    changed = True
    while changed:
        changed = False
        for first, shown in pairs:
            for second, same in pairs:
                if shown == same and code[first] != code[second]:
                    code[first] = code[second] = min(code[first], code[second])
                    changed = True
    return [[code[group] for group, _ in source] for source in sources]


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(rows, min_size=1, max_size=3))
def test_groups_that_share_an_image_are_one(sources):
    joined = np.concatenate(join_groups([columns(source) for source in sources]))
    slow = np.concatenate(slow_join(sources))
    same = joined[:, None] == joined[None, :]
    assert np.array_equal(same, slow[:, None] == slow[None, :])


@given(rows, rows)
def test_the_first_source_keeps_its_groups_where_no_other_links_them(real, other):
    alone = join_groups([columns(real)])[0]
    both = join_groups([columns(real), columns(other)])[0]
    linked = np.unique(alone).size != np.unique(both).size
    assert linked or np.array_equal(alone, both)


def test_nothing_shared_is_nothing_changed():
    real, other = Columns.of([(3, 2), (4, 1)]), Columns.of([(3, 1)])
    joined = join_groups([real, None, other])
    assert [groups.tolist() for groups in joined] == [[3, 3, 4], [], [3]]
    assert join_groups([None])[0].tolist() == []


def test_no_image_is_on_both_sides_of_the_split():
    images = [i // 2 for i in range(200)]  # every photo twice, under names of its own
    real = Columns.of(((i, 1) for i in range(200)), contents=images)
    copies = Columns.of(((1000 + i, 2) for i in range(100)), contents=[i % 100 for i in range(200)])
    plan = plan_mixture(real, copies, cf_ratio=0.5, size=200, seed=3, validation=0.3)
    shown = [
        {int((real, copies)[source].contents[row]) for source, row in rows}
        for rows in (plan.train, plan.validation)
    ]
    assert all(shown)
    assert not shown[0] & shown[1]
    assert plan.counts["train"] == 140


def test_a_photo_of_a_withheld_set_is_not_trained_on_under_another_name():
    """The sets show the photos themselves; only their bytes tell."""
    real = Columns.of(((i, 1) for i in range(10)), contents=range(10))
    cf = Columns.of(((100 + i, 2) for i in range(10)), contents=[i // 2 for i in range(20)])
    data = RatioData("real", "cf", cf_ratio=0, counterfactual_holdout=0.3, validation=0.2, seed=1)
    mixture = mix(data, Sources(real, cf))
    drawn = np.concatenate([mixture.train, mixture.validation])[:, 1]
    assert len(drawn) == 7
    withheld = withhold(cf, 0.3).rows
    assert not set(real.contents[drawn].tolist()) & set(cf.contents[withheld].tolist())


def test_groups_that_are_kept_together_are_counted():
    real = Columns.of([(1, 1), (2, 1), (3, 2)], contents=[10, 10, 11, 11])
    assert count_joined_groups([real, Columns.of([(9, 1), (8, 1)], contents=[10, 12])]) == 3
    assert count_joined_groups([Columns.of([(1, 5)]), None]) == 0


# Images that a run learnt questions about, found again: by content, by COCO id, by file name.


IMAGES = [image(n) for n in range(8)]


def other_pixels(number: int, **changes):
    return image(number, image=Picture(image(90 + number).image.content), **changes)


def find(trained, asked):
    leaks, keys = find_question_leaks(trained, asked)
    assert leaks.images == len(keys)
    return leaks, keys


def test_equal_bytes_are_found_whatever_they_are_called():
    trained = [replace(entry, key=f"other-{entry.key}", group="g") for entry in IMAGES[:3]]
    leaks, keys = find(trained, IMAGES)
    assert keys == {"i0", "i1", "i2"}
    assert (leaks.equal, leaks.total, leaks.rows.tolist()) == (3, 8, [0, 1, 2])
    assert find(IMAGES[:3], IMAGES[3:])[1] == set()


def test_a_coco_photo_is_found_as_the_set_or_the_file_names_it(tmp_path):
    named = tmp_path / "COCO_val2014_000000391895.jpg"
    named.write_bytes(IMAGES[0].image.content)
    asked = [
        other_pixels(0, extra={"coco_id": 391895}),
        other_pixels(1, extra={"coco_id": "000000000139"}),
        other_pixels(2, group="391895"),  # a number, and no word of COCO
        other_pixels(3, questions=[SourceQuestion("q", "question", "Is it?", ("a", "b"), 0,
                                                 {"coco_id": 139})]),
        replace(other_pixels(4), image=None),
    ]  # fmt: skip
    trained = [replace(IMAGES[0], image=FileImage(named)), image(1, extra={"coco_id": "139"})]
    leaks, keys = find(trained, asked)
    assert keys == {"i0", "i1", "i3"}
    assert leaks.ids.tolist() == [139, 391895]
    assert (leaks.equal, leaks.checked, leaks.total) == (0, 3, 4)


def test_images_of_a_world_are_compared_without_being_drawn():
    def undrawn():
        raise AssertionError

    drawn = [
        replace(entry, image=EmbeddedImage(f"world, {entry.key}", undrawn, drawn=True))
        for entry in IMAGES
    ]
    leaks, keys = find(drawn[:2], [replace(entry, key=f"again-{entry.key}") for entry in drawn])
    assert keys == {"again-i0", "again-i1"}
    assert leaks.equal == 2
    shown = [
        replace(entry, image=EmbeddedImage(f"world, {entry.key}",
                                           lambda entry=entry: entry.image.content, drawn=True))
        for entry in IMAGES
    ]  # fmt: skip
    assert find(shown[:3], IMAGES)[1] == {"i0", "i1", "i2"}  # exported to files, by their bytes


def asking(trained):
    return replace(context(IMAGES), trained_questions=lambda: trained)


def test_the_benchmark_reports_leaks_or_leaves_them_out():
    from cfaug.evaluation.questions.vqa import VisualQuestions

    plain = opened(IMAGES)
    assert isinstance(plain, LeakAware)
    assert plain.leaks is None
    (reporting,) = VisualQuestions("asked.jsonl").open(asking(IMAGES[:2]))
    assert reporting.leaks.images == 2
    assert str(reporting.leaks) == "2 of 8 test images (25.0%) were trained on"
    assert reporting.data_hash == plain.data_hash
    (clean,) = VisualQuestions("asked.jsonl", without_leaks=True).open(asking(IMAGES[:2]))
    assert clean.leaks.images == 0
    assert clean.data_hash != plain.data_hash
    items = clean.run(Drawn()).items
    assert len(items["item"]) == 5 * 6
    assert not np.isin([name.split("/")[0] for name in items["item"]], ["i0", "i1"]).any()
    with pytest.raises(UserError, match="all 8 test images were trained on; without_leaks=true"):
        VisualQuestions("asked.jsonl", without_leaks=True).open(asking(IMAGES))
