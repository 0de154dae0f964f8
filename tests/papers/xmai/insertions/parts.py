"""Tiny parts of insertions: a cased BERT and a CLIP with random weights, hashed word vectors."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from cfaug.core.rng import generator
from cfaug.core.types import Example
from cfaug.editing.language_models import MaskedLM
from cfaug.models.specs import HFClip
from cfaug.papers.xmai.insertions import AttributeInsertion, ImageTextDistance
from tests.editing import tiny
from tests.models.tiny import save_clip
from tests.records import Photo

NOUNS = (
    "dog", "dogs", "man", "table", "ball", "hydrant", "shirt", "goal", "goalie", "beach", "Cat",
)  # fmt: skip
ADJECTIVES = ("red", "brown", "wooden", "wet", "old", "white", "Tiny", "fire", "t")
OTHERS = ("a", "A", "an", "The", "the", "Some", "in", "on", "of", "with", "is", "and", "don")
SIGNS = (".", ",", "'", "-", '"', "!", "2")
PIECES = ("##s", "##less", "##ie", "##a", "##n")
VOCABULARY = (*NOUNS, *ADJECTIVES, *OTHERS)


class HashedVectors:
    """Word vectors by hash: words of one of four groups are similar, others are not."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        rows = [self._vector(text) for text in texts]
        return np.array(rows).reshape(len(rows), 8)

    def _vector(self, text: str) -> np.ndarray:
        group = int(generator(0, "group", text).integers(4))
        vector = generator(0, "centre", group).normal(size=8) * 1.2
        vector = vector + generator(0, "own", text).normal(size=8)
        return vector / np.linalg.norm(vector)

    def describe(self) -> dict[str, str]:
        return {"encoder": "hashed"}


class ListTagger:
    """Tags the nouns of a list, in any case."""

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        nouns = {word.lower() for word in NOUNS}
        return [["NN" if w.lower() in nouns else "XX" for w in words] for words in sentences]

    def describe(self) -> dict[str, str]:
        return {"tagger": "a list"}


def save_bert(folder: Path, seed: int = 0) -> Path:
    """A cased BertForMaskedLM with WordPiece, as bert-base-cased is saved."""
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *VOCABULARY, *SIGNS, *PIECES]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys(names))}
    tokenizer = BertTokenizer(vocab=vocabulary, do_lower_case=False, model_max_length=80)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=80,
    )  # fmt: skip
    return tiny.save_as(BertForMaskedLM, config, tokenizer, folder, seed)


def photo(seed: int) -> Photo:
    pixels = np.random.default_rng(seed).integers(0, 256, (32, 40, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return Photo(buffer.getvalue())


def detection(label: str, *attributes: str, score: float | None = None, box=None) -> dict:
    return {
        "label": label,
        "score": score,
        "box": box,
        "attributes": [{"name": name, "score": None} for name in attributes],
    }


def captioned(text: str, *detections: dict, key: str = "k", image: Photo | None = None) -> Example:
    """Return a photo with a caption and its detections."""
    shown = photo(0) if image is None else image
    return Example(key, "g", (text,), image=shown, extra={"detections": list(detections)})


class Parts:
    """Models on disk, and editors that use them."""

    def __init__(self, root: Path) -> None:
        self.bert = save_bert(root / "bert")
        self.clip = save_clip(
            root / "clip", words=[*VOCABULARY, "this", "is"], positions=77, scale=8
        )

        self.filler = MaskedLM(str(self.bert), dtype="float64")
        self.distance = ImageTextDistance(HFClip(str(self.clip)), dtype="float64")

    def editor(self, **changes) -> AttributeInsertion:
        defaults = {
            "filler": self.filler,
            "word_encoder": HashedVectors(),
            "tagger": ListTagger(),
            "image_text": self.distance,
        }
        return AttributeInsertion(**{**defaults, **changes})


def changed(edited) -> str:
    """Return the changed text of the only proposal."""
    [proposal] = edited.proposals
    return proposal.texts[1]


def details(edited) -> dict:
    """Return what the only proposal says of its changed text."""
    [proposal] = edited.proposals
    return dict(proposal.details[1])
