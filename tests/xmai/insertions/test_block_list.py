"""Words that say who people are, and the nouns before which others do."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.editing.wordnet import WordNet
from cfaug.xmai.insertions import BlockList
from tests.editing import tiny


@pytest.mark.parametrize(
    ("word", "nouns", "blocked"),
    [
        ("white", ["man"], True),
        ("White", ["MEN"], True),
        ("white", ["car"], False),
        ("black", ["ball", "boy"], True),
        ("female", ["statue"], True),
        ("christian", ["church"], False),
        ("young", ["tree"], False),
        ("wooden", ["man"], False),
        ("white", ["hair"], True),
        ("white", [""], False),
    ],
)
def test_the_shipped_list(word, nouns, blocked):
    assert BlockList().blocks(word, nouns) is blocked


def test_some_kinds_of_it():
    only = BlockList(kinds=["gender"])
    assert only.blocks("male", ["dog"])
    assert not only.blocks("white", ["man"])
    assert "gender" in only.describe()["block_list"]
    with pytest.raises(UserError, match=r"'sex' is missing .*choose from age, body, disability"):
        BlockList(kinds=["sex"])


def test_a_list_of_the_users(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("# mine\nsize: big, Tiny\nsize (people): tall\nNOUNS: elf\n")
    mine = BlockList(str(file))
    assert mine.blocks("tiny", ["car"])
    assert mine.blocks("tall", ["elf"])
    assert not mine.blocks("tall", ["man"])
    assert not mine.blocks("white", ["elf"])
    assert mine.describe()["block_list"].startswith("mine.txt sha256:")


def test_wordnet_knows_more_nouns_of_people(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("size (people): tall\n")
    wordnet = WordNet(str(tiny.save_wordnet(tmp_path / "wordnet")))
    known = BlockList(str(file), wordnet=wordnet)
    assert known.blocks("tall", ["women"])
    assert not known.blocks("tall", ["puppy"])
    assert not known.blocks("tall", ["coach"])
    assert not BlockList(str(file)).blocks("tall", ["women"])


@pytest.mark.parametrize("text", ["a word", "kind:", "kind (dogs) big", ": a"])
def test_an_invalid_line_is_named(tmp_path, text):
    file = tmp_path / "mine.txt"
    file.write_text(f"size: big\n{text}\n")
    with pytest.raises(UserError, match="is invalid: it should be KIND: WORD"):
        BlockList(str(file)).blocks("big", [])


def test_a_list_that_cannot_be_read_is_named(tmp_path):
    for content in (b"\xff\xfe", b"a: b\n" * 300_000):
        (tmp_path / "mine.txt").write_bytes(content)
        with pytest.raises(UserError, match=r"mine.txt cannot be read"):
            BlockList(str(tmp_path / "mine.txt")).blocks("a", [])
    with pytest.raises(UserError, match=r"none.txt cannot be read"):
        BlockList(str(tmp_path / "none.txt")).blocks("a", [])
