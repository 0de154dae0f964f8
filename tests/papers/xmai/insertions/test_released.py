"""Insertions are those of the published algorithm: against a slow transcription, at random.

The captions have what the transcription and our editor share: plain words, no noun directly after
another or after "a", since those insertions are spelt and placed differently on purpose.
"""

from __future__ import annotations

import io

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from PIL import Image

from cfaug.editing.word_lists import NLTK_STOP_WORDS
from tests.papers.xmai.insertions.parts import (
    ADJECTIVES,
    NOUNS,
    HashedVectors,
    ListTagger,
    captioned,
    changed,
    details,
    photo,
)
from tests.papers.xmai.insertions.released import Published
from tests.properties import examples

PHOTOS = [photo(seed) for seed in range(3)]
BETWEEN = ("the", "in the", "on", "with", "of the", "and", "is")
NOUN = st.sampled_from([noun for noun in NOUNS if noun.islower()])
PHRASE = st.tuples(st.sampled_from(BETWEEN), st.sampled_from(("", "red", "wet", "old")), NOUN)
CAPTION = st.lists(PHRASE.map(" ".join), min_size=1, max_size=4).map(
    lambda phrases: " ".join(phrases).split()
)
FOUND = st.lists(st.tuples(NOUN, st.sampled_from(ADJECTIVES)), min_size=1, max_size=5)
LAMBDAS = st.tuples(*[st.sampled_from((0, 1, 5, -1))] * 3)
CASES = st.lists(st.tuples(CAPTION, FOUND, st.sampled_from(PHOTOS)), min_size=1, max_size=6)
METHODS = {"mix": "text", "sim": "only", "direct": "never"}
"""{method of the released command: value of ``fallback``}."""


@pytest.fixture(scope="module")
def transcription(parts):
    from transformers import AutoModelForMaskedLM, AutoTokenizer, CLIPModel, CLIPProcessor

    memory = {}

    def vector(text):
        if text not in memory:
            memory[text] = HashedVectors().encode([text])[0]
        return memory[text]

    def is_noun(word):
        return ListTagger().tag([[word]]) == [["NN"]]

    return Published(
        AutoTokenizer.from_pretrained(parts.bert),
        AutoModelForMaskedLM.from_pretrained(parts.bert, dtype=torch.float64).eval(),
        CLIPModel.from_pretrained(parts.clip).double().eval(),
        CLIPProcessor.from_pretrained(parts.clip),
        is_noun,
        vector,
        frozenset(NLTK_STOP_WORDS),
    )


def check(parts, transcription, rows, lambdas, k, threshold, method):
    """Edit all captions at once, and compare each with the transcription's."""
    transcription.lambdas, transcription.k = lambdas, k
    transcription.threshold, transcription.method = threshold, method
    editor = parts.editor(
        block_list=None, k=k, threshold=threshold, weights=lambdas, fallback=METHODS[method]
    )
    examples = [
        captioned(
            " ".join(caption),
            *(labelled(*detection) for detection in detections),
            key=f"k{i}",
            image=image,
        )
        for i, (caption, detections, image) in enumerate(rows)
    ]
    inserted = 0
    for (caption, detections, image), edited in zip(rows, editor.edit(examples), strict=True):
        labels, attributes = [label for label, _ in detections], [name for _, name in detections]
        pixels = Image.open(io.BytesIO(image.read()))
        expected, words = transcription.insert(caption, labels, attributes, pixels)
        assert changed(edited) == " ".join(expected)
        assert [change["word"] for change in details(edited)["changes"]] == words
        inserted += len(words)
    return inserted


def labelled(label, attribute):
    return {"label": label, "attributes": [{"name": attribute}]}


@pytest.mark.slow
@settings(max_examples=examples(50), phases=(Phase.generate,))
@given(CASES, LAMBDAS, st.integers(1, 5), st.sampled_from((-1.0, 0.0, 0.3, 0.7, 0.9)),
       st.sampled_from(("mix", "mix", "sim", "direct")))  # fmt: skip
def test_random_captions_get_what_the_published_algorithm_inserts(
    parts, transcription, rows, lambdas, k, threshold, method
):
    check(parts, transcription, rows, lambdas, k, threshold, method)


@pytest.mark.parametrize("method", METHODS)
def test_words_are_inserted_by_every_method(parts, transcription, method):
    said = {
        "the dog on the red table with the man": [("dog", "wet"), ("man", "old")],
        "in the hydrant of the beach": [("table", "red"), ("dog", "wooden")],
        "with the ball": [("ball", "red"), ("ball", "brown")],
    }
    rows = [(caption.split(), detections, PHOTOS[0]) for caption, detections in said.items()]
    assert check(parts, transcription, rows, (1, 5, 5), 3, -1.0, method) >= 3
