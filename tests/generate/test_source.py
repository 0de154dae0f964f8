from __future__ import annotations

import json
import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import Edit, Edited, Example, Proposal, Rejected
from cfaug.data.shards.shards import read_edits, read_proposals
from cfaug.data.sources.row import clean_key
from cfaug.generate.captions import SiblingAware, edit_captions, write_captions
from cfaug.generate.failures import Attempt
from cfaug.generate.folder import write_card
from cfaug.generate.source import digest_of, group_by_image, read_captions
from tests.records import Photo


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
    captions = read_captions(file)
    assert captions.duplicates == 1
    assert [(c.key, c.group, c.text) for c in captions.captions[:3]] == [
        ("7-0", "7", "A cat sits."), ("7-1", "7", "A dog."), ("9-0", "9", "A cat sits."),
    ]  # fmt: skip
    last = captions.captions[3]
    assert last.key.startswith("x-1-")
    assert (last.group, last.text) == (last.key, "Alone.")


@pytest.mark.parametrize("name", ["c.csv", "c.tsv", "c.txt"])
def test_tables_and_plain_lines_say_the_same(tmp_path: Path, name: str) -> None:
    mark = "\t" if name.endswith("tsv") else ","
    lines = ["a red ball", "", "a blue cube", "a red ball"]
    if name != "c.txt":
        lines = [mark.join(("other", "caption")), *(f"1{mark}{line}" for line in lines if line)]
    captions = read_captions(written(tmp_path, name, *lines))
    assert [c.text for c in captions.captions] == ["a red ball", "a blue cube"]
    assert [c.key for c in captions.captions] == ["00000000", "00000001"]
    assert captions.duplicates == 1


def test_a_limit_gives_the_first_ones(tmp_path: Path) -> None:
    file = written(tmp_path, "c.txt", *(f"caption {i}" for i in range(9)))
    assert tuple(read_captions(file, 4).captions) == read_captions(file).captions[:4]
    assert digest_of(read_captions(file, 4).captions) != digest_of(read_captions(file).captions)
    with pytest.raises(UserError, match="limit=0"):
        read_captions(file, 0)


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        ("c.jsonl", ['{"caption": "fine"}', "{broken"], r"c\.jsonl, line 2 is not JSON"),
        ("c.jsonl", ["[1]"], r"c\.jsonl, line 1 should be a JSON object"),
        ("c.jsonl", ['{"image": "x"}'], r"line 1: a list of captions has .*image_id .*has 'image'"),
        ("c.jsonl", ['{"caption": ""}', '{"caption": "fine"}', '{"caption": 5}'],
         r"line 1: the caption is empty(.|\n)*c\.jsonl, line 3: the caption should be a text"),
        ("c.jsonl", ['{"caption": "a", "image_id": [1]}'], "image_id should be"),
        ("c.jsonl", ['{"caption": "a", "id": "1"}', '{"caption": "b", "id": 1}'],
         r"c\.jsonl, line 2: the id '1' is duplicated, first in .*c\.jsonl, line 1"),
        ("c.csv", ["image,words", "a,b"], r"c\.csv, line 2: a list of captions has a column capt"),
        ("c.csv", ["caption", "a dog, running"], r"c\.csv, line 2: 2 fields, the header has 1: qu"),
        ("c.csv", ["caption", "a dog", '"a cat', "a bird"], r"line 3: a quote opens here"),
        ("c.csv", ["caption,text", "a,b"], r"line 2: caption, text could each be the caption"),
        ("c.md", ["a"], r"should be one of: \.txt, a caption a line, or \.csv, \.json, "),
        ("c.txt", [""], "holds no caption"),
    ],
)  # fmt: skip
def test_what_is_no_caption_is_named_with_its_line(tmp_path, name, lines, said):
    with pytest.raises(UserError, match=said):
        read_captions(written(tmp_path, name, *lines))


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.jsonl cannot be read: No such file"):
        read_captions(tmp_path / "none.jsonl")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"bytes\.txt, line 1 is not UTF-8"):
        read_captions(tmp_path / "bytes.txt")


def test_columns_are_carried_if_asked_for(tmp_path: Path) -> None:
    file = written(
        tmp_path, "c.jsonl",
        {"caption": "A cat.", "boxes": [1, 2], "url": "x"}, {"caption": "A dog.", "url": "y"},
    )  # fmt: skip
    captions = read_captions(file, extra=["boxes"])
    assert [dict(caption.extra) for caption in captions.captions] == [{"boxes": [1, 2]}, {}]
    assert captions.unused == ("url",)
    plain = read_captions(file).captions
    assert [dict(caption.extra) for caption in plain] == [{}, {}]
    assert digest_of(plain) != digest_of(captions.captions)
    with pytest.raises(UserError, match=r"no column 'box' \(data.extra\); there are: boxes, url"):
        read_captions(file, extra=["box"])


def test_captions_of_a_photo_become_one_example(tmp_path: Path) -> None:
    lines = [(7, "A cat."), (8, "A tree."), (7, "An animal.")]
    file = written(tmp_path, "c.jsonl", *({"image_id": i, "caption": text} for i, text in lines))
    examples = group_by_image(read_captions(file).captions)
    assert [(example.key, example.group, example.texts) for example in examples] == [
        ("7", "7", ("A cat.", "An animal.")),
        ("8", "8", ("A tree.",)),
    ]


EDIT = Edit("noun", "cat", "dog")


def write(folder, *edited):
    examples = [example for example, _ in edited]
    attempt = Attempt(dict(enumerate(proposed for _, proposed in edited)), {})
    write_captions(examples, attempt, folder, 0, {"editor": "hand"})
    return (folder / "captions" / "00000.jsonl").read_text()


def test_a_caption_with_one_proposal_has_the_line_it_always_had(tmp_path):
    example = Example("k", "g", ("a cat",))
    edited = Edited(
        (Proposal(example, ("a cat", "a dog"), (None, EDIT), {"rank": 1}),), {"words": 2}
    )
    line = write(tmp_path, (example, edited))
    assert line == (
        '{"key": "k", "group": "g", "text": "a cat", "survivors": {"words": 2}, "set": {"key": '
        '"k", "group": "g", "texts": ["a cat", "a dog"], "edits": [null, {"kind": "noun", '
        '"before": "cat", "after": "dog"}], "extra": {"rank": 1}}}\n'
    )
    assert read_edits(tmp_path, 0) == [(example, edited)]


def test_everything_known_of_an_example_comes_back(tmp_path):
    photo = Photo(b"photo")
    bare = Example("bare", "g", (), photo, "cat", {"options": ["a", "b"]})
    several = Example("several", "g", ("a cat", "it sleeps"), photo, extra={"box": [1, 2]})
    first = Proposal(several, ("a dog",), (EDIT,), {"rank": 0}, details=({"age": 3},))
    none = Example("none", "h", ("nothing here",))
    edited = [
        (bare, Edited((Proposal(bare, ("a photo of a cat",), (None,), key="said"),))),
        (
            several,
            Edited((first, Proposal(several, ("a cow", "a cat"), (None, None))), {"words": 2}),
        ),
        (none, Edited((), {"words": 0})),
    ]
    write(tmp_path, *edited)
    assert read_edits(tmp_path, 0, {"bare": photo, "several": photo}.get) == edited
    keys = [p.key for p in read_proposals(tmp_path, 0, {"bare": photo, "several": photo}.get)]
    assert keys == ["said", "several-0", "several-1"]
    commit = json.loads((tmp_path / "captions" / "00000.json").read_text())
    assert (commit["captions"], commit["sets"], commit["members"]) == (3, 3, 4)
    assert commit["rejected"] == {"words": 1}


def test_an_image_that_is_gone_or_another_is_refused_and_texts_need_none(tmp_path):
    example = Example("k", "g", ("a cat",), Photo(b"photo"))
    write(tmp_path, (example, Edited((Proposal(example, ("a cat",), (None,)),))))
    with pytest.raises(UserError, match=r"'k' is missing in the source.*data\.source"):
        read_edits(tmp_path, 0, {}.get)
    with pytest.raises(UserError, match="another than when it was edited"):
        read_edits(tmp_path, 0, {"k": Photo(b"other")}.get)
    [(read_back, _)] = read_edits(tmp_path, 0)
    assert read_back.image.digest == Photo(b"photo").digest
    with pytest.raises(UserError, match=r"data\.source"):
        read_back.image.read()


def test_rejected_edits_come_back_and_are_counted_by_reason_and_kind(tmp_path):
    cat, dog = Example("k", "g", ("a cat",)), Example("l", "h", ("a\u2028dog",))
    lost = (
        Rejected("a dog", EDIT, "label", {"similarity": 0.5}),
        Rejected("a cow", Edit("noun", "cat", "cow"), "label"),
        Rejected("", Edit("domain", "", ""), "no JSON"),
    )
    edited = [(cat, Edited((), {"label": 0}, lost)), (dog, Edited((), {}, lost[:1]))]
    text = write(tmp_path, *edited)
    assert text.count("\n") == 2
    assert read_edits(tmp_path, 0) == edited
    expected = {"label": {"noun": 3}, "no JSON": {"domain": 1}}
    commit = json.loads((tmp_path / "captions" / "00000.json").read_text())
    assert commit["rejected_edits"] == expected
    (tmp_path / "captions" / "00001.json").write_text(json.dumps(commit))
    (tmp_path / ".work").mkdir()
    twice = {reason: {k: 2 * n for k, n in kinds.items()} for reason, kinds in expected.items()}
    assert write_card(tmp_path)["edits"]["rejected_edits"] == twice


def test_a_rejected_edit_is_json_or_refused():
    class Careless:
        def edit(self, examples):
            lost = Rejected("a dog", EDIT, "label", {"similarity": float("nan")})
            return [Edited((), {}, (lost,)) for _ in examples]

        def describe(self):
            return {}

    attempt = edit_captions(Attempt({0: Example("k", "g", ("a cat",))}, {}), Careless())
    assert "the rejected edit 'a dog' is not JSON" in attempt.lost["k"].error
    with pytest.raises(UserError, match="should be a Rejected"):
        Edited((), {}, ("a dog",))
    with pytest.raises(UserError, match="should be an Edit"):
        Rejected("a dog", None, "label")


RECORDS = st.lists(
    st.fixed_dictionaries(
        {"caption": st.sampled_from(["A cat.", "A  cat.", "A dog.", "Two birds."])},
        optional={
            "image_id": st.sampled_from([7, "7", "Photo 8", "x"]), "boxes": st.just([1, {"a": 2}]),
        },
    ),
    min_size=1, max_size=12,
)  # fmt: skip


def examples_of(records: list[dict[str, Any]]) -> list[Example]:
    """What read_captions finds, written down plainly."""
    examples: list[Example] = []
    texts, numbers = set(), Counter[str]()
    for record in records:
        text = " ".join(record["caption"].split())
        photo = str(record["image_id"]) if "image_id" in record else None
        if (photo, text) in texts:
            continue
        key = f"{len(texts):08d}"
        if photo is not None:
            key = clean_key(f"{photo}-{numbers[photo]}")
            numbers[photo] += 1
        texts.add((photo, text))
        extra = {"boxes": record["boxes"]} if "boxes" in record else {}
        examples.append(Example(key, photo or key, (text,), extra=extra))
    return examples


@given(RECORDS)
def test_columns_of_captions_are_the_examples(records):
    with tempfile.TemporaryDirectory() as folder:
        file = written(Path(folder), "c.jsonl", *records)
        wanted = examples_of(records)
        extra = ["boxes"] if any(example.extra for example in wanted) else []
        captions = read_captions(file, extra=extra)
    assert list(captions.captions) == wanted
    assert [captions.captions[row] for row in range(-len(wanted), 0)] == wanted
    assert captions.captions[1:-1] == tuple(wanted[1:-1])
    assert captions.duplicates == len(records) - len(wanted)
    with pytest.raises(IndexError):
        captions.captions[len(wanted)]


def test_a_caption_takes_some_bytes(tmp_path: Path) -> None:
    """An object took 800 for each: 8 GB of ten million."""
    rows = 1500
    lines = ({"image_id": n, "caption": f"a dog at number {n}"} for n in range(rows))
    file = written(tmp_path, "c.jsonl", *lines)
    read_captions(file, 1)  # what is imported is not measured
    tracemalloc.start()
    try:
        captions = read_captions(file)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(captions.captions) == rows
    assert kept < 150 * rows


SIBLINGS = st.lists(st.sampled_from("abc"), min_size=1, max_size=9)


@given(SIBLINGS)
def test_siblings_are_the_other_captions_of_a_group(groups):
    examples = [Example(f"k{n}", group, (f"text {n}",)) for n, group in enumerate(groups)]
    shown = []

    class Looks:
        def edit(self, given):
            shown.extend(example.extra["siblings"] for example in given)
            return [Edited(()) for _ in given]

    assert SiblingAware(Looks(), examples).edit(examples) == [Edited(())] * len(examples)
    assert shown == [
        [other.text for other in examples if other.group == this.group and other.key != this.key]
        for this in examples
    ]


def test_names_that_pandas_made_floats_are_the_whole_numbers(tmp_path: Path) -> None:
    """In a csv a photo is "7.0", in a json 7.0; NaN is no name."""
    table = tmp_path / "c.csv"
    table.write_text("image_id,caption\n7.0,a cat\n7,a cat\n,a dog\n")
    rows = [(7.0, float("nan"), "a cat"), (7, None, "a cat"), (float("nan"), 3.0, "a dog")]
    lines = [{"image_id": photo, "id": name, "caption": text} for photo, name, text in rows]
    listed = tmp_path / "c.json"
    listed.write_text(json.dumps(lines))
    for file, last in ((table, "00000001"), (listed, "3")):
        captions = read_captions(file)
        assert captions.duplicates == 1
        names = [(example.key, example.group) for example in captions.captions]
        assert names == [("7-0", "7"), (last, last)]
