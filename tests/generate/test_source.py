from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.generate.source import digest_of, group_by_image, read_captions


def test_what_was_recognised_is_said_in_a_line(tmp_path):
    file = tmp_path / "captions.csv"
    file.write_text("image_id,caption,url\n7,a dog,x\n7,two dogs,x\n8,a cat,x\n")
    assert read_captions(file).line("captions.csv") == (
        "captions: 3 of captions.csv (of 2 photos); first: 'a dog'; columns not used: url"
    )
    (tmp_path / "a.txt").write_text("a dog\n")
    assert read_captions(tmp_path / "a.txt").line("a.txt") == "captions: 1 of a.txt; first: 'a dog'"


def written(folder: Path, name: str, *lines: object) -> Path:
    file = folder / name
    rows = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file


def test_captions_of_a_photo_share_its_group(tmp_path: Path) -> None:
    file = written(
        tmp_path, "c.jsonl",
        {"image_id": 7, "caption": "A cat  sits.\n"}, "", {"image_id": 7, "caption": "A dog."},
        {"image_id": 7, "caption": "A cat sits. "}, {"image_id": 9, "caption": "A cat sits."},
        {"id": "X/1", "text": "Alone."},
    )  # fmt: skip
    found = read_captions(file)
    assert found.duplicates == 1
    assert [(c.key, c.group, c.text) for c in found.captions[:3]] == [
        ("7-0", "7", "A cat sits."), ("7-1", "7", "A dog."), ("9-0", "9", "A cat sits."),
    ]  # fmt: skip
    last = found.captions[3]
    assert last.key.startswith("x-1-")
    assert (last.group, last.text) == (last.key, "Alone.")


@pytest.mark.parametrize("name", ["c.csv", "c.tsv", "c.txt"])
def test_tables_and_plain_lines_say_the_same(tmp_path: Path, name: str) -> None:
    mark = "\t" if name.endswith("tsv") else ","
    lines = ["a red ball", "", "a blue cube", "a red ball"]
    if name != "c.txt":
        lines = [mark.join(("other", "caption")), *(f"1{mark}{line}" for line in lines if line)]
    found = read_captions(written(tmp_path, name, *lines))
    assert [c.text for c in found.captions] == ["a red ball", "a blue cube"]
    assert [c.key for c in found.captions] == ["00000000", "00000001"]
    assert found.duplicates == 1


def test_a_limit_gives_the_first_ones(tmp_path: Path) -> None:
    file = written(tmp_path, "c.txt", *(f"caption {i}" for i in range(9)))
    assert read_captions(file, 4).captions == read_captions(file).captions[:4]
    assert digest_of(read_captions(file, 4).captions) != digest_of(read_captions(file).captions)
    with pytest.raises(UserError, match="limit=0"):
        read_captions(file, 0)


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        ("c.jsonl", ['{"caption": "fine"}', "{broken"], r"c\.jsonl, line 2 is not JSON"),
        ("c.jsonl", ["[1]"], r"c\.jsonl, line 1 should be a JSON object"),
        ("c.jsonl", ['{"image": "x"}'], r"line 1: a list of captions has .*image_id .*has 'image'"),
        ("c.jsonl", ['{"caption": 5}'], r"c\.jsonl, line 1: the caption should be a text"),
        ("c.jsonl", ['{"caption": " "}'], "the caption is empty"),
        ("c.jsonl", ['{"caption": "a", "image_id": [1]}'], "image_id should be"),
        ("c.jsonl", ['{"caption": "a", "id": "1"}', '{"caption": "b", "id": 1}'],
         r"c\.jsonl, line 2: the id '1' is duplicated, first in .*c\.jsonl, line 1"),
        ("c.csv", ["image,words", "a,b"], r"c\.csv, line 2: a list of captions has a column capt"),
        ("c.csv", ["caption", "a dog, running"], r"c\.csv, line 2: 2 fields, the header has 1: qu"),
        ("c.csv", ["caption", "a dog", '"a cat', "a bird"], r"line 3: a quote opens here"),
        ("c.csv", ["caption,text", "a,b"], r"line 2: caption, text could each be the caption"),
        ("c.json", ["[]"], "holds no caption"),
        ("c.md", ["a"], r"should be one of: \.txt, a caption a line, or \.csv, \.json, "),
        ("c.txt", [""], "holds no caption"),
    ],
)  # fmt: skip
def test_what_is_no_caption_is_named_with_its_line(tmp_path, name, lines, said) -> None:
    with pytest.raises(UserError, match=said):
        read_captions(written(tmp_path, name, *lines))


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.jsonl cannot be read: No such file"):
        read_captions(tmp_path / "none.jsonl")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"bytes\.txt, line 1 is not UTF-8"):
        read_captions(tmp_path / "bytes.txt")


def test_several_wrong_lines_are_named_at_once(tmp_path: Path) -> None:
    file = written(tmp_path, "c.jsonl", {"caption": ""}, {"caption": "fine"}, {"caption": 3})
    with pytest.raises(UserError, match=r"c\.jsonl, line 1.*\n.*c\.jsonl, line 3"):
        read_captions(file)


def test_columns_are_carried_if_asked_for(tmp_path: Path) -> None:
    file = written(
        tmp_path, "c.jsonl",
        {"caption": "A cat.", "boxes": [1, 2], "url": "x"}, {"caption": "A dog.", "url": "y"},
    )  # fmt: skip
    found = read_captions(file, extra=["boxes"])
    assert [dict(one.extra) for one in found.captions] == [{"boxes": [1, 2]}, {}]
    assert found.unused == ("url",)
    plain = read_captions(file).captions
    assert [dict(one.extra) for one in plain] == [{}, {}]
    assert digest_of(plain) != digest_of(found.captions)
    with pytest.raises(UserError, match=r"no column 'box' \(data.extra\); there are: boxes, url"):
        read_captions(file, extra=["box"])


def test_captions_of_a_photo_become_one_example(tmp_path: Path) -> None:
    lines = [(7, "A cat."), (8, "A tree."), (7, "An animal.")]
    file = written(tmp_path, "c.jsonl", *({"image_id": i, "caption": text} for i, text in lines))
    found = group_by_image(read_captions(file).captions)
    assert [(one.key, one.group, one.texts) for one in found] == [
        ("7", "7", ("A cat.", "An animal.")),
        ("8", "8", ("A tree.",)),
    ]
