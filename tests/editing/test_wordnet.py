"""WordNet read from its own files, against a tiny one written by hand; and the package's."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.editing.filters import KeyedChoice
from cfaug.editing.protocols import Fill
from cfaug.editing.sentence import TextBlobTagger
from cfaug.editing.substitution import Substitution
from cfaug.editing.wordnet import (
    PACKED,
    PARTS,
    Hyponymy,
    Synonyms,
    WordNet,
    read_files,
)
from tests import skips
from tests.editing import tiny
from tests.records import example
from tools.pack_wordnet import pack


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny.save_wordnet(tmp_path_factory.mktemp("wn") / "wordnet"))


def test_senses_come_in_order_with_what_they_are_a_kind_of(folder):
    wordnet = WordNet(folder)
    first, second = wordnet.senses("dog")
    assert first.words == ("dog", "domestic_dog")
    assert [wordnet.synset(o).words[0] for o in first.up] == ["animal"]
    assert [wordnet.synset(o).words[0] for o in first.down] == ["puppy"]
    assert [wordnet.synset(o).words[0] for o in second.up] == ["woman"]
    assert wordnet.senses("dog", 1) == [first]
    assert wordnet.senses("zebra") == []
    above = {wordnet.synset(o).words[0] for o in wordnet.above([first])}
    assert above == {"dog", "animal", "entity"}


@pytest.mark.parametrize(
    ("plural", "singular"),
    [("men", "man"), ("women", "woman"), ("buses", "bus"), ("dogs", "dog"), ("bus", "bus"),
     ("puppies", "puppy"), ("Cats", "cat"), ("people", "person"), ("zebras", "zebras")],
)  # fmt: skip
def test_plurals_are_looked_up_as_singulars(folder, plural, singular):
    assert WordNet(folder).base(plural) == singular


@pytest.mark.parametrize(
    ("before", "after", "senses", "related"),
    [
        ("puppy", "dog", 2, True),
        ("animals", "puppy", 2, True),
        ("men", "person", 2, True),
        ("dog", "cat", 2, False),
        ("man", "woman", 2, False),
        ("bus", "coach", 1, True),
        ("coach", "person", 1, False),
        ("coach", "person", 2, True),
        ("zebra", "dog", 2, False),
    ],
)
def test_kinds_of_each_other_are_told(folder, before, after, senses, related):
    assert Hyponymy(senses, folder).related(before, after) is related
    assert Hyponymy(senses, folder).related(after, before) is related


class SisterTerms:
    """Fills a blank with the sister terms of its noun."""

    def __init__(self, folder):
        self.wordnet = WordNet(folder)

    def fill(self, blanks, top_k):
        sisters = [self.wordnet.sisters(blank.word.lower(), 1)[:top_k] for blank in blanks]
        return [[Fill(word, 0.1) for word in words] for words in sisters]


def test_the_filter_drops_them(folder):
    found = Substitution(
        TextBlobTagger(), SisterTerms(folder), KeyedChoice(), [Hyponymy(2, folder)]
    ).edit([example("a dog", "a"), example("a man", "b"), example("the dogs", "c")])
    assert found[0].proposals[0].texts[1] == "a cat"
    assert found[1].proposals[0].texts[1] in ("a woman", "a coach")
    assert found[2].rejected_by == "masks"
    assert found[0].survivors["hyponymy"] == 1


def test_sister_terms(folder):
    assert WordNet(folder).sisters("man", 1) == ["woman", "coach"]
    assert WordNet(folder).sisters("zebra", 1) == WordNet(folder).sisters("men", 1) == []


def test_a_zip_is_read_as_its_folder_is(folder, tmp_path):
    packed = shutil.make_archive(str(tmp_path / "wordnet"), "zip", folder, base_dir=".")
    assert WordNet(packed).senses("dog") == WordNet(folder).senses("dog")


def test_a_folder_without_its_files_is_named(tmp_path):
    with pytest.raises(UserError, match=rf"{tmp_path} has no files of WordNet: index\.noun"):
        WordNet(str(tmp_path)).senses("dog")


def test_the_errors_people_found_in_the_paper_s_set():
    """Table 10: two senses catch 18 of 20 pairs (874 of 928 errors), one sense 15 (707)."""
    counts = {
        ("woman", "girl"): 126, ("man", "boy"): 125, ("people", "men"): 116, ("person", "man"): 93,
        ("person", "woman"): 42, ("person", "boy"): 37, ("couple", "group"): 36,
        ("people", "guy"): 35, ("people", "kid"): 33, ("person", "girl"): 33, ("girl", "woman"): 32,
        ("man", "woman"): 30, ("men", "people"): 29, ("people", "student"): 27,
        ("woman", "man"): 24, ("man", "person"): 24, ("building", "house"): 23, ("men", "boy"): 21,
        ("women", "girl"): 21, ("boy", "man"): 21,
    }  # fmt: skip
    for senses, pairs, errors in ((1, 15, 707), (2, 18, 874)):
        kinds = Hyponymy(senses)  # reads WordNet, once
        caught = [pair for pair in counts if kinds.related(*pair)]
        assert (len(caught), sum(counts[pair] for pair in caught)) == (pairs, errors)


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
def parts(tmp_path_factory):
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
def test_senses_of_all_parts_of_speech(parts, word, senses):
    assert list(Synonyms(parts).senses(word)) == senses


def test_single_words_are_those_meteor_matches(parts):
    synonyms = Synonyms(parts)
    assert synonyms.single_words("dog") == {"dog", "chase"}
    assert synonyms.single_words("leaves") == {"leaf", "leave"}
    assert synonyms.single_words("zebra") == frozenset()


def test_a_folder_without_the_other_parts_is_named(tmp_path):
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
