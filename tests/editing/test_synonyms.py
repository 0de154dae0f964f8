"""Synonyms from WordNet's files, against a few laid by hand and against a plain search of all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.editing.wordnet import PACKED, PARTS, Synonyms, WordNet, read_files
from tests import skips
from tools.pack_wordnet import pack

SENSES = {
    "noun": [["dog", "domestic_dog"], ["axis"], ["ax", "axe"], ["leaf"], ["better"]],
    "verb": [["dog", "chase"], ["leave", "go_away"], ["be"]],
    "adj": [["good", "well(p)"], ["big", "large"]],
    "adv": [["well", "good"]],
}
EXCEPTIONS = {
    "noun": "axes ax axis\n", "verb": "was be\n", "adj": "better good well\n", "adv": "\n",
}  # fmt: skip
LICENCE = "  1 This is a licence line.\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("wordnet")
    for part, senses in SENSES.items():
        data, offsets = LICENCE, {}
        for names in senses:
            for name in names:
                offsets.setdefault(name.partition("(")[0], []).append(len(data))
            words = " ".join(f"{name} 0" for name in names)
            data += f"{len(data):08d} 05 x {len(names):02x} {words} 000 | what it means  \n"
        index = "".join(
            f"{name} x {len(places)} 1 @ {len(places)} 0 "
            + " ".join(f"{place:08d}" for place in places) + "  \n"
            for name, places in sorted(offsets.items())
        )  # fmt: skip
        (place / f"data.{part}").write_text(data)
        (place / f"index.{part}").write_text(LICENCE + index)
        (place / f"{part}.exc").write_text(EXCEPTIONS[part])
    return str(place)


@pytest.mark.parametrize(
    ("word", "senses"),
    [
        ("Dog", [("dog", "domestic_dog"), ("dog", "chase")]),
        ("dogs", [("dog", "domestic_dog"), ("dog", "chase")]),
        ("axes", [("ax", "axe"), ("axis",)]),
        ("leaves", [("leaf",), ("leave", "go_away")]),
        ("better", [("better",), ("good", "well"), ("good", "well")]),  # of "good" and of "well"
        ("bigger", []),  # "bigg" is no word: morphy doubles no letters
        ("largest", [("big", "large")]),
        ("was", [("be",)]),
        ("well", [("good", "well"), ("well", "good")]),
        ("zebra", []),
    ],
)
def test_senses_of_all_parts_of_speech(folder, word, senses):
    assert list(Synonyms(folder).senses(word)) == senses


def test_single_words_are_those_meteor_matches(folder):
    synonyms = Synonyms(folder)
    assert synonyms.single_words("dog") == {"dog", "chase"}
    assert synonyms.single_words("leaves") == {"leaf", "leave"}
    assert synonyms.single_words("zebra") == frozenset()


def test_a_folder_without_its_files_is_named(tmp_path):
    with pytest.raises(UserError, match=r"has no files of WordNet: .*index\.verb"):
        Synonyms(str(tmp_path)).senses("dog")


def plain_search(word, lines):
    """Every line of every file, with WordNet's documented rules alone."""
    found = []
    for part in PARTS:
        for line in lines[f"index.{part}"]:
            if line.startswith(f"{word} "):
                fields = line.split()
                for offset in fields[-int(fields[2]) :]:
                    [own] = [one.split() for one in lines[f"data.{part}"] if one.startswith(offset)]
                    words = own[4 : 4 + 2 * int(own[3], 16) : 2]
                    found.append(tuple(re.sub(r"\(.*\)", "", one) for one in words))
    return found


def test_the_real_wordnet_is_read_as_a_plain_search_finds_it():
    synonyms = Synonyms()
    names = [name for part in PARTS for name in (f"index.{part}", f"data.{part}")]
    lines = {name: text.decode().splitlines() for name, text in read_files(names).items()}
    for word in ("dog", "galore", "red", "quickly"):
        assert list(synonyms.senses(word)) == plain_search(word, lines)
    assert "scarlet" in synonyms.single_words("red")
    assert synonyms.single_words("running") >= {"run", "running", "race"}


def test_the_package_s_wordnet_says_what_the_whole_one_says(tmp_path):
    whole = "/usr/share/wordnet"
    if not Path(whole, "data.noun").is_file():
        skips.skip("wordnet")
    pack(Path(whole), tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == PACKED.read_bytes()
    ours, theirs = WordNet(), WordNet(whole)
    assert ours._index == theirs._index
    assert len(ours._index) == 117_798
    for offset in sorted({place for places in ours._index.values() for place in places}):
        assert ours.synset(offset) == theirs.synset(offset)
    ours, theirs = Synonyms(), Synonyms(whole)
    for word in {word for part in PARTS for word in ours._index[part]} | {"men", "bigger", "ran"}:
        assert ours.senses(word) == theirs.senses(word)


def test_the_licence_comes_along():
    for name, text in read_files([f"data.{part}" for part in PARTS]).items():
        assert b"Copyright 2006 by Princeton University" in text, name
        assert b"THIS SOFTWARE AND DATABASE IS PROVIDED" in text, name
