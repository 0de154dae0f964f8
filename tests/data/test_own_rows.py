"""``data.reader``: sources whose rows a class of the user's own makes examples of."""

from __future__ import annotations

import re

import pytest

from cfaug.core.errors import UserError
from cfaug.core.pixels import content_digest
from cfaug.core.types import Example, SourceImage
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.data.sources.caption_list import CaptionList
from cfaug.data.sources.fields import reading_by
from cfaug.data.sources.own_rows import RowImage, RowReader
from tests.data import edits
from tests.data.making import noise_image, pair
from tests.data.test_fields import (
    TEXTS,
    Record,
    as_json,
    as_lines,
    as_parquet,
    as_table,
    as_tar,
    cell,
    opened,
)

ROWS: list[Record] = [
    {"head": text.split()[0], "rest": " ".join(text.split()[1:]), "part": ("train", "test")[n % 2],
     "image": f"{n}.png", "name": f"r{n}"}
    for n, text in enumerate(TEXTS)
]  # fmt: skip


class Joined(RowReader):
    """Joins two columns to a caption."""

    def __init__(self, ending: str = "") -> None:
        self.ending = ending

    def read(self, row):
        text = f"{row['head']} {row['rest']}{self.ending}"
        extra = {"head": row["head"]}
        return Example(row["name"], f"g-{row['name']}", (text,), label=row["head"], extra=extra)


class Pairs(RowReader):
    """Reads a row as a pair, and leaves out rows of hats."""

    def read(self, row):
        if "hat" in row["rest"]:
            return []
        images = (row.image("image"), row.image("other"))
        texts = ((row["rest"], f"my {row['rest']}"), (f"no {row['rest']}",))
        keys = (row["name"], f"{row['name']}-other")
        return [Example(k, "g", t, i) for k, t, i in zip(keys, texts, images, strict=True)]


def read_by(reader, source, cache, fields=None):
    with reading_by(fields, reader):
        return open_index(source, cache)


@pytest.mark.parametrize(("write", "rows"), [
    (as_table(".csv"), ROWS), (as_table(".tsv", "\t"), ROWS), (as_lines, ROWS), (as_json, ROWS),
    (as_parquet, [{**row, "image": cell(n)} for n, row in enumerate(ROWS)]), (as_tar, ROWS),
])  # fmt: skip
def test_rows_of_every_form(write, rows, tmp_path):
    source = write(tmp_path / "own", rows)
    index = read_by(Joined("!"), source.with_name(f"{source.name}:test"), tmp_path / "cache")
    assert [index.text(row) for row in range(len(index))] == [f"{TEXTS[1]}!", f"{TEXTS[3]}!"]
    assert [index.key(row) for row in range(2)] == ["r1_0", "r3_0"]
    assert [index.group_name(row) for row in range(2)] == ["g-r1", "g-r3"]
    assert [index.label(row) for row in range(2)] == ["a", "a"]
    assert index.extra_row(0)["head"] == "a"
    in_files = write in (as_lines, as_json) or source.is_file()
    expected = (source.parent / "1.png").read_bytes() if in_files else noise_image(1)
    assert index.read_image(0) == expected
    assert index.reading is not None
    assert index.reading.notes[0] == "read by tests.data.test_own_rows.Joined"


def test_several_examples_of_a_row_are_a_set(tmp_path):
    edits.put(tmp_path, *(f"{n}.png" for n in range(8)))
    rows = [{**row, "other": f"{n + 4}.png"} for n, row in enumerate(ROWS)]
    source = as_lines(tmp_path, rows)
    index = read_by(Pairs(), source.with_name(f"{source.name}:train+test"), tmp_path / "cache")
    assert index.sets.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [index.text(row) for row in range(3)] == ["dog", "my dog", "no dog"]
    assert index.read_image(0) == index.read_image(1) == (tmp_path / "0.png").read_bytes()
    assert index.read_image(2) == (tmp_path / "4.png").read_bytes()
    assert index.reading is not None
    assert index.reading.counterfactual_sets == 3
    assert index.extra_row(2)["edit_kind"] == "text"


def test_rows_are_read_under_the_names_of_fields(tmp_path):
    renamed = [{"t": {"h": r["head"], "r": r["rest"]}, **r} for r in ROWS]
    fields = {"caption": "t.h", "label": "t.r", "ignored": ["part", "head", "rest"]}

    class Swapped(RowReader):
        def read(self, row):
            assert not {"part", "head", "t"} & row.keys()
            return Example(row["name"], "g", (f"{row['label']} {row['caption']}",))

    index = read_by(Swapped(), as_lines(tmp_path, renamed), tmp_path / "cache", fields)
    assert index.text(0) == "dog a"


def test_another_class_or_setting_is_read_anew(tmp_path):
    rows = [{name: value for name, value in row.items() if name != "part"} for row in ROWS]
    source, cache = as_lines(tmp_path / "own", rows), tmp_path / "cache"
    first = read_by(Joined(), source, cache)
    assert read_by(Joined(), source, cache).folder == first.folder
    assert read_by(Joined("!"), source, cache).text(0) == "a dog!"
    with (source.parent / "0.png").open("wb") as file:
        file.write(noise_image(99))
    assert read_by(Joined(), source, cache).read_image(0) == noise_image(99)


def test_shards_of_ours_and_other_forms_are_not_its(tmp_path):
    write_shards([pair(n) for n in range(2)], tmp_path / "shards")
    assert read_by(Joined(), tmp_path / "shards", tmp_path / "cache").kind == "shards"
    edits.put(tmp_path / "photos", "cat/1.png", "dog/1.png")
    assert read_by(Joined(), tmp_path / "photos", tmp_path / "cache").kind == "image_folder"


def returning(value):
    class Own(RowReader):
        def read(self, row):
            return value(row)

    return Own()


@pytest.mark.parametrize(("value", "message"), [
    (lambda row: None, "line 1: Own.read: TypeError"),
    (lambda row: ["a dog"], "line 1: Own.read returned 'a dog'"),
    (lambda row: row["nme"], "has no column 'nme'; there are head, rest, part, image, name"),
    (lambda row: Example("A b", "g", ("x",)), "line 1: Own.read: UserError: example key 'A b'"),
    (lambda row: 1 / 0, "Own.read: ZeroDivisionError: division by zero"),
    (lambda row: Example("a", "g", (" ",)), "the caption is empty"),
    (lambda row: Example("a", "g", (), row.image()), "'a' has neither a text nor a label"),
    (lambda row: Example("a", "g", ("x",), RowImage(b"GIF")), "line 1"),
    (lambda row: Example("a", "g", ("x",), row.image("head")), "a"),
    (lambda row: [Example("a", "g", ("x",)), Example("b", "g", ("y",))], "shows the same image"),
    (lambda row: [Example("a", "g", ("x",)), Example("b", "g", ("x",), RowImage(noise_image(9)))],
     "counterfactual's caption is the original's"),
])  # fmt: skip
def test_what_is_no_example_ends_in_a_sentence(value, message, tmp_path):
    source = as_lines(tmp_path, ROWS)
    with pytest.raises(UserError, match=re.escape(message)):
        read_by(returning(value), source.with_name(f"{source.name}:train"), tmp_path / "cache")


def test_an_image_that_is_a_link_elsewhere_is_not_read(tmp_path):
    source = as_lines(tmp_path / "own", ROWS)
    (tmp_path / "elsewhere.png").write_bytes(noise_image(9))
    (source.parent / "0.png").unlink()
    (source.parent / "0.png").symlink_to(tmp_path / "elsewhere.png")
    with pytest.raises(UserError, match="link that leads out of"):
        read_by(Joined(), source.with_name(f"{source.name}:train"), tmp_path / "cache")


def test_a_key_that_two_rows_have_is_refused(tmp_path):
    reader = returning(lambda row: Example("same", "g", (row["head"],)))
    source = as_lines(tmp_path, ROWS)
    with pytest.raises(UserError, match="same"):
        read_by(reader, source.with_name(f"{source.name}:train"), tmp_path / "cache")


def test_an_image_of_a_row_is_an_image_of_a_source():
    image = RowImage(noise_image(3))
    assert isinstance(image, SourceImage)
    assert (image.digest, image.read()) == (content_digest(noise_image(3)).hex(), noise_image(3))


class Numbered(CaptionList):
    """Another reader of cfaug's kind: of lists, in place, with a number before each caption."""

    kind = "numbered"

    def open(self, path):
        for number, row in enumerate(super().open(path)):
            yield row._replace(text=f"{number}: {row.text}")


def test_any_reader_may_be_given(tmp_path):
    rows = [{"image": "0.png", "caption": "a"}, {"image": "1.png", "caption": "b"}]
    index = read_by(Numbered(), as_lines(tmp_path, rows), tmp_path / "cache")
    assert (index.kind, index.text(0), index.text(1)) == ("numbered", "0: a", "1: b")


def test_without_a_reader_nothing_changes(tmp_path):
    source = as_lines(
        tmp_path, [{"image": "0.png", "caption": "a"}, {"image": "1.png", "caption": "b"}]
    )
    assert opened(source, None, tmp_path / "cache").kind == "caption_list"
