"""Guards against edits that change the label, in the paper's three ways and ours, or nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.editing.label_guard import ClassWords, LabelGuard, NoOpGuard
from cfaug.editing.language_models import SentenceEncoder
from cfaug.editing.pretrained import TextTower
from cfaug.editing.protocols import SentenceEmbedder
from cfaug.editing.wordnet import WordNet
from cfaug.models.specs import HFClip
from tests.editing import tiny
from tests.editing.perturbing import edit_of


class Letters:
    """Embeds a text by the letters it has: a sentence encoder that can be computed by hand."""

    def encode(self, texts):
        counts = np.array([[text.count(c) for c in "abcdefghijklmnopqrstuvwxyz"] for text in texts])
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)

    def describe(self):
        return {"sentence_encoder": "letters"}


@pytest.fixture(scope="module")
def wordnet(tmp_path_factory):
    return WordNet(str(tiny.save_wordnet(tmp_path_factory.mktemp("wordnet") / "files")))


def reject(guard, *edits):
    return [bool(verdict.reason) for verdict in guard.judge(edits)]


SWAP = edit_of("dog", "a dog runs", "a cow runs", "subject")
INSERT = edit_of("dog", "a dog runs", "a dog runs with a dog", "background")
COLOUR = edit_of("dog", "a red dog", "a blue dog")


def test_each_rule_compares_what_its_source_says():
    def similar(rule, edit):
        [verdict] = LabelGuard(rule, Letters()).judge([edit])
        return verdict.notes.get("label_similarity"), bool(verdict.reason)

    def cosine(a, b):
        return pytest.approx(float(np.dot(*Letters().encode([a, b]))), rel=1e-4)

    assert similar("paper", SWAP) == (cosine("cow", "dog"), False)
    assert similar("paper", INSERT) == (cosine("with a dog", "dog"), True)
    assert similar("algorithm_1", COLOUR) == (cosine("a blue dog", "dog"), True)
    assert similar("algorithm_1", SWAP) == (cosine("a cow runs", "dog"), False)
    # The released code looks at the words that went, and lets every insertion pass.
    assert similar("released", SWAP) == (cosine("dog", "dog"), True)
    assert similar("released", INSERT) == (None, False)
    assert similar("released", COLOUR) == (cosine("red", "dog"), False)


def test_the_default_rejects_what_replaces_the_class_or_drops_its_name():
    guard = LabelGuard()
    assert reject(guard, SWAP, INSERT, COLOUR) == [True, False, False]
    gone = edit_of("fire hydrant", "a dog by a fire hydrant", "a dog by a hydrant")
    half = edit_of("dog sled", "two dogs run", "two cats run")
    other = edit_of("dog", "a dog and a cat", "a dog and a cow", "object")
    never = edit_of("dog", "an animal runs", "a plane runs")
    assert reject(guard, gone, half, other, never) == [True, True, False, False]
    [verdict] = guard.judge([gone])
    assert verdict.notes == {"label_similarity": 0.5, "label_gone": True}


def test_an_encoder_adds_to_the_words():
    near = edit_of("dog", "a dogo runs", "a cow runs")
    assert reject(LabelGuard(), near) == [False]
    assert reject(LabelGuard(encoder=Letters()), near) == [True]
    assert reject(LabelGuard(encoder=Letters(), threshold=0.99), near) == [False]


def test_wordnet_knows_synonyms_and_kinds(wordnet):
    words = ClassWords(wordnet)
    guard = LabelGuard(words=words)
    assert words.names("dog") == ("dog", "domestic dog")
    synonym = edit_of("bus", "a coach on a road", "a train on a road")
    special = edit_of("dog", "puppies run", "kittens run")
    general = edit_of("dog", "an animal runs", "a plane runs")
    other = edit_of("dog", "a man and a dog", "a woman and a dog")
    assert reject(guard, synonym, special, general, other) == [True, True, True, False]
    plain = LabelGuard(words=ClassWords(wordnet, kinds=False))
    assert reject(plain, synonym, special, general) == [True, False, False]
    plural = edit_of("man", "two men run", "two cats run")
    assert reject(guard, plural) == [True]


def test_imagenets_names_of_classes_are_places_in_wordnet(wordnet):
    [sense] = wordnet.senses("puppy")
    label = f"n{sense.offset:08d}"
    words = ClassWords(wordnet)
    assert words.names(label) == ("puppy",)
    assert words.known(label)
    assert not words.known("n00000001")
    assert words.names("n00000001") == ("n00000001",)


def test_names_from_a_file(tmp_path, wordnet):
    file = tmp_path / "names.json"
    file.write_text(json.dumps({"c1": ["traffic light", "dog"], "c2": "lamp"}))
    words = ClassWords(file=str(file))
    assert words.names("c1") == ("c1", "traffic light", "dog")
    assert reject(LabelGuard(words=words), edit_of("c1", "a dog", "a cow")) == [True]
    assert ClassWords(wordnet, str(file)).known("c1")
    before = LabelGuard("paper", Letters(), words).describe()
    file.write_text(json.dumps({"c1": ["traffic light", "cat"], "c2": "lamp"}))
    again = ClassWords(file=str(file))
    assert LabelGuard("paper", Letters(), again).describe() != before  # other edits come of them
    for content in ("[]", '{"a": [3]}', "{"):
        file.write_text(content)
        with pytest.raises(UserError, match="should be a JSON object"):
            ClassWords(file=str(file)).names("c1")


def test_a_label_in_no_vocabulary_is_named_once_and_none_is_refused(wordnet, capsys):
    guard = LabelGuard(words=ClassWords(wordnet))
    edit = edit_of("zyzzyva", "a zyzzyva", "a cow")
    assert reject(guard, edit, edit) == [True, True]
    said = capsys.readouterr().err
    assert said.count("the label 'zyzzyva' is in no vocabulary") == 1
    with pytest.raises(UserError, match="example 'k' has no label"):
        guard.judge([edit_of(None, "a dog", "a cow")])


def test_a_rule_that_needs_an_encoder_says_so():
    with pytest.raises(UserError, match="rule=released needs an encoder"):
        LabelGuard("released")
    assert "words of the class's names alone" in LabelGuard().describe()["label_guard"]
    assert LabelGuard("paper", Letters()).describe() == {
        "label_guard": "paper, similarity, threshold 0.5",
        "label_guard sentence_encoder": "letters",
    }


def test_edits_that_say_the_same_are_rejected(wordnet):
    same = edit_of("dog", "two dogs run", "two dog run")
    word = edit_of("dog", "a dog runs", "a god runs")
    assert reject(NoOpGuard(), same, word, INSERT, COLOUR) == [True, False, False, False]
    # An anagram is the same to this encoder.
    assert reject(NoOpGuard(Letters()), same, word, INSERT, COLOUR) == [True, True, False, False]
    [verdict] = NoOpGuard(Letters()).judge([COLOUR])
    assert 0 < verdict.notes["edit_similarity"] < 0.95


def test_real_encoders_judge(tmp_path):
    sentence = SentenceEncoder(str(tiny.save_minilm(tmp_path / "minilm")))
    tower = TextTower(HFClip("zoo:clip-0"), device="cpu")
    for encoder in (sentence, tower):
        assert isinstance(encoder, SentenceEmbedder)
        vectors = encoder.encode(["a red ball", "a cube", "a red ball"])
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)
        assert vectors[0] == pytest.approx(vectors[2])
        [verdict] = LabelGuard("released", encoder).judge([edit_of("ball", "a ball", "a cube")])
        assert verdict.notes["label_similarity"] == pytest.approx(1, abs=1e-4)
    assert "sha256:" in tower.describe()["text_tower"]
    assert tower.encode([]).shape[0] == 0
