"""Taggers: the bundled lexicon, and NLTK's perceptron from its JSON data only."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.editing.sentence import NltkTagger, TextBlobTagger
from tests.properties import examples


def test_textblob_tags_without_any_download():
    sentences = [
        ["A", "man", "is", "riding", "a", "brown", "horse"],
        [],
        ["The", "dogs", "bark", "."],
    ]
    tags = TextBlobTagger().tag(sentences)
    assert tags[0] == ["DT", "NN", "VBZ", "VBG", "DT", "JJ", "NN"]
    assert tags[1] == []
    assert tags[2][1].startswith("NN")
    assert [len(its) for its in tags] == [len(words) for words in sentences]
    assert all("-" not in tag for tag in TextBlobTagger().tag([["London", "is", "big"]])[0])
    assert TextBlobTagger().describe()["tagger"].startswith("textblob ")


WORDS = st.text(alphabet="abcINGsedlyT9-'.,", min_size=1, max_size=6) | st.sampled_from(
    ["the", "The", "running", "bus", "London", "Dogs", "quickly", "blorped", "3rd", "can't", "US"]
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(WORDS, max_size=8))
def test_words_are_tagged_as_in_their_whole_sentence(words):
    from textblob.en import parser

    whole = [str(tag).split("-")[0] for _, tag in parser.find_tags(list(words))]
    assert TextBlobTagger().tag([words]) == [whole]


@pytest.fixture
def nltk_folder(tmp_path, monkeypatch):
    import nltk.data

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    return tmp_path


def test_the_perceptron_is_read_from_its_json(nltk_folder):
    import json

    folder = nltk_folder / "taggers" / "averaged_perceptron_tagger_eng"
    folder.mkdir(parents=True)
    # Hand-written data: a dictionary of sure tags, one feature, two classes.
    parts = {
        "weights": {"i suffix ogs": {"NNS": 1.0}, "bias": {"NN": 0.5}},
        "tagdict": {"the": "DT"},
        "classes": ["DT", "NN", "NNS"],
    }
    for name, content in parts.items():
        file = folder / f"averaged_perceptron_tagger_eng.{name}.json"
        file.write_text(json.dumps(content))
    tagger = NltkTagger()
    assert tagger.tag([["the", "dogs"], ["the", "cat"], []]) == [["DT", "NNS"], ["DT", "NN"], []]
    assert "perceptron" in tagger.describe()["tagger"]


def test_its_absence_is_said_with_what_to_do(nltk_folder):
    pickled = nltk_folder / "taggers" / "averaged_perceptron_tagger"
    pickled.mkdir(parents=True)
    (pickled / "averaged_perceptron_tagger.pickle").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(UserError, match=r"nltk\.downloader averaged_perceptron_tagger_eng"):
        NltkTagger().tag([["a"]])
