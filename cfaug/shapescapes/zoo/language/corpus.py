"""The captions that a language model is trained on: read, split by image, and tokenized."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.core.rng import generator
from cfaug.core.validation import Seed
from cfaug.data.sources.lists import json_lines
from cfaug.shapescapes.zoo.command import Rates
from cfaug.shapescapes.zoo.model import split_words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


LONGEST = 32
"""The largest number of tokens of a training text; 1 in 300 captions is longer and truncated."""


@dataclass(frozen=True)
class Corpus:
    """Normalised captions by image, of the training and the held-out images."""

    training: tuple[tuple[str, ...], ...]
    held_out: tuple[tuple[str, ...], ...]


def read(file: Path, held_out: float, seed: int) -> Corpus:
    """Read JSON Lines of ``image_id`` and ``caption``, and hold out a share of the images."""
    groups: dict[str, list[str]] = {}
    for where, row in json_lines(file):
        try:
            image, caption = str(row["image_id"]), " ".join(row["caption"].split())
        except (KeyError, AttributeError) as error:
            raise UserError(
                f'{where} is not {{"image_id": ..., "caption": "..."}}: {error!r}'
            ) from error
        groups.setdefault(image, []).append(caption)
    every = [tuple(groups[image]) for image in sorted(groups)]
    order = generator(seed, "zoo", "language", "split").permutation(len(every))
    aside = round(held_out * len(every))
    chosen = set(order[:aside].tolist())
    return Corpus(
        tuple(group for i, group in enumerate(every) if i not in chosen),
        tuple(group for i, group in enumerate(every) if i in chosen),
    )


def vocabulary(texts: Sequence[str], min_count: int) -> list[str]:
    """Return the words seen at least ``min_count`` times, the most frequent first."""
    counts = Counter(split_words(texts))
    return sorted((w for w, n in counts.items() if n >= min_count), key=lambda w: (-counts[w], w))


def encode(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[list[int]]:
    """Return each text's token ids, special tokens included, truncated to ``LONGEST``."""
    return list(tokenizer(list(texts), truncation=True, max_length=LONGEST)["input_ids"])


def pad(rows: Sequence[Sequence[int]], fill: int) -> NDArray[np.int64]:
    """Return ids (rows, longest), with short rows padded on the right."""
    ids = np.full((len(rows), max(map(len, rows))), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids


def batches(
    lengths: Sequence[int], batch_size: int, rng: np.random.Generator, window: int = 32
) -> Iterator[NDArray[np.int64]]:
    """Yield every row once, in batches of texts of similar length, in random order.

    Rows are shuffled, sorted by length within windows of ``window`` batches, and the batches of a
    window are shuffled: this halves the padding of plain shuffling, and batches do not recur.
    """
    order = rng.permutation(len(lengths))
    size = np.asarray(lengths)
    for start in range(0, len(order), window * batch_size):
        rows = order[start : start + window * batch_size]
        rows = rows[np.argsort(size[rows], kind="stable")]
        parts = [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
        for i in rng.permutation(len(parts)):
            yield parts[i]


# The settings of the training command.


@dataclass(frozen=True, kw_only=True)
class LanguageSettings(Rates):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`cfaug.shapescapes.zoo.command.Rates`, and
        out: the folder to write ``masked``, ``causal`` and ``sentence`` into; must not exist.
        captions: a JSON Lines file with ``image_id`` and ``caption``, such as MS-COCO's.
        seed: the seed of the split, the weights, the masks and the order.
        min_count: the smallest count of a word in the training captions; rarer ones are unknown.
        held_out: the share of the images that no model is trained on.
        mask_share: the share of the words that are masked.
        masked_epochs: the masked model's number of passes over the captions.
        causal_epochs: the causal model's number of passes over the captions.
        sentence_steps: the sentence encoder's number of steps, each on two captions of each image
            of a batch.
        temperature: the temperature of the sentence encoder's contrastive loss on cosines.
    """

    out: str
    captions: str
    seed: Seed = 0
    min_count: int = 3
    held_out: float = 0.05
    batch_size: int = 128
    mask_share: float = 0.2
    masked_epochs: int = 16
    causal_epochs: int = 8
    sentence_steps: int = 1_200
    temperature: float = 0.05
