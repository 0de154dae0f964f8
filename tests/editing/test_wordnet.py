"""WordNet read from its own files, against a tiny one written by hand; and the package's."""

from __future__ import annotations

import shutil

import pytest

from cfaug.core.errors import UserError
from cfaug.editing.filters import KeyedChoice
from cfaug.editing.protocols import Blank
from cfaug.editing.sentence import TextBlobTagger
from cfaug.editing.substitution import Substitution
from cfaug.editing.wordnet import Hyponymy, SisterTerms, WordNet
from tests.editing import tiny
from tests.records import example


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


def test_the_filter_drops_them(folder):
    found = Substitution(
        TextBlobTagger(), SisterTerms(wordnet=folder), KeyedChoice(), [Hyponymy(2, folder)]
    ).edit([example("a dog", "a"), example("a man", "b"), example("the dogs", "c")])
    assert found[0].proposals[0].texts[1] == "a cat"
    assert found[1].proposals[0].texts[1] in ("a woman", "a coach")
    assert found[2].rejected_by == "masks"
    assert found[0].survivors["hyponymy"] == 1


def test_sister_terms(folder):
    assert WordNet(folder).sisters("man", 1) == ["woman", "coach"]
    blanks = [Blank("a Man", 2, 5), Blank("a zebra", 2, 7)]
    fills = SisterTerms(wordnet=folder).fill(blanks, 1)
    assert [[fill.word for fill in some] for some in fills] == [["woman"], []]


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
