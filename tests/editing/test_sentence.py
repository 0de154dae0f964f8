"""Words and their places, edits on the string, articles and case; and taggers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.captions import indefinite_article, right_articles
from cfaug.editing.sentence import (
    NltkTagger,
    Slot,
    TextBlobTagger,
    copy_case,
    normalise,
    replace_slot,
    split,
)
from tests.editing import tiny
from tests.properties import examples

CAPTION_TEXT = st.text(st.sampled_from("abzAZ09 .,'\"-()!éß\n\t—’"), max_size=40)


@given(CAPTION_TEXT)
def test_words_lie_where_their_spans_say_and_nothing_is_lost(text):
    sentence = split(text)
    assert [text[start:end] for start, end in sentence.spans] == list(sentence.words)
    left = list(text)
    for start, end in sentence.spans:
        left[start:end] = " " * (end - start)
    assert not "".join(left).strip()
    assert all(a[1] <= b[0] for a, b in zip(sentence.spans, sentence.spans[1:], strict=False))
    once = normalise(text)
    assert once == normalise(once) == once.strip()
    assert not {"  ", "\n", "\t"} & {once[i : i + n] for i in range(len(once)) for n in (1, 2)}


def test_ordinary_captions_are_split_as_nltk_s_treebank_tokeniser_does():
    from nltk.tokenize.destructive import NLTKWordTokenizer

    texts = [
        *tiny.CAPTIONS,
        "The man's dog doesn't sit on the children's well-made sofa, it's resting.",
        "They're 2.5 miles away (about 1,000 people); I'll go!",
    ]
    for text in texts:
        assert list(split(text).words) == NLTKWordTokenizer().tokenize(text)
    assert split("a street. A man").words == ("a", "street", ".", "A", "man")


@given(st.data())
def test_an_edit_moves_what_follows_and_changes_nothing_else(data):
    text = data.draw(st.sampled_from(tiny.CAPTIONS))
    sentence = split(text)
    first = data.draw(st.integers(0, len(sentence.words) - 1))
    last = data.draw(st.integers(first, min(first + 1, len(sentence.words) - 1)))
    word = data.draw(st.sampled_from(["cat", "umbrella", "x"]))
    slot = Slot(first, last)
    start, end = slot.span(sentence)
    edited = replace_slot(sentence, slot, word)
    assert edited.text == text[:start] + word + text[end:]
    # An independent look at the new text finds the same places.
    assert [edited.text[a:b] for a, b in edited.spans] == list(edited.words)
    assert edited.words == (*sentence.words[:first], word, *sentence.words[last + 1 :])
    again = replace_slot(sentence, slot, word, article=True)
    assert [again.text[a:b] for a, b in again.spans] == list(again.words)
    assert [w for w in again.words if w.lower() not in ("a", "an")] == [
        w for w in edited.words if w.lower() not in ("a", "an")
    ]


@pytest.mark.parametrize(
    ("text", "place", "word", "expected"),
    [
        ("An orange ball", 1, "red", "A red ball"),
        ("a red ball", 1, "orange", "an orange ball"),
        ("An orange ball", 2, "cube", "An orange cube"),
        ("holds an apple, a pear", 2, "kiwi", "holds a kiwi, a pear"),
        ("the red ball", 1, "orange", "the orange ball"),
        ("A DOG", 1, "APPLE", "An APPLE"),
    ],
)
def test_the_article_before_the_edit_follows_the_new_word(text, place, word, expected):
    assert replace_slot(split(text), Slot(place, place), word, article=True).text == expected
    kept = replace_slot(split(text), Slot(place, place), word).text.split()
    assert kept[:place] == text.split()[:place]


@pytest.mark.parametrize(
    ("article", "words"),
    [
        ("an", "hour honest heir apple egg ice old umbrella uncle unusual urn"),
        ("a", "unicorn uniform unit university user used european one once euro house cat"),
    ],
)
def test_articles_go_by_sound(article, words):
    assert {indefinite_article(word) for word in f"{words} {words.upper()}".split()} == {article}
    assert right_articles(f"a {words}").startswith(f"{article} ")


def test_case_is_copied():
    assert [copy_case("dog", like) for like in ("cat", "Cat", "CAT", "iPad")] == [
        "dog", "Dog", "DOG", "dog",
    ]  # fmt: skip
    assert copy_case("McDonald", "Cat") == "McDonald"


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
