"""Captions that a model cannot tell apart: different words that become the same tokens.

A small vocabulary, or a limit on the length, makes one text of "a photo of a tench" and "a photo of
a shark". Whatever is then measured with such captions, such as recall or accuracy, is about chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.errors import UserError, say_once
from cfaug.core.text import normalise_caption

WARNED_SHARE = 0.01
"""Share of indistinct captions above which a warning is given."""
DEFAULT_LIMIT = 0.2
"""Share of indistinct captions above which an evaluation is refused."""
MOST_CAPTIONS = 5000
"""Number of training captions that are compared: a share needs no more."""
BATCH = 1024

Tokenize = Callable[[Sequence[str]], Mapping[str, Any]]
"""``tokenize`` of a dual encoder or a matcher."""


@dataclass(frozen=True)
class Indistinct:
    """How many captions a model reads as the same tokens as another one.

    Attributes:
        captions: the number of captions that differ by more than case, punctuation and spaces.
        sequences: the number of different sequences of tokens that they become.
        alike: the number of captions that share their tokens with another caption.
        example: two of these; empty if there are none.
    """

    captions: int
    sequences: int
    alike: int
    example: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The share of captions that share their tokens with another caption."""
        return self.alike / self.captions if self.captions else 0.0

    def __str__(self) -> str:
        text = f"{self.captions:,} different captions are {self.sequences:,} to the model"
        if not self.example:
            return text
        first, second = self.example
        return (
            f"{text}: it reads {self.share:.0%} of them like another, as {first!r} and {second!r}"
        )


def count_indistinct(tokenize: Tokenize, texts: Sequence[str]) -> Indistinct:
    """Count captions that become the same tokens, without padding.

    Captions that differ in case, punctuation or spaces alone count as one caption.
    """

    def read(some: list[str]) -> list[Hashable]:
        tokens = tokenize(some)
        if "attention_mask" in tokens:  # the width of the padding depends on the batch
            ids, mask = (tokens[name].numpy() for name in ("input_ids", "attention_mask"))
            return [row[used != 0].tobytes() for row, used in zip(ids, mask, strict=True)]
        columns = [column.numpy() for column in tokens.values()]
        return [b"".join(row.tobytes() for row in rows) for rows in zip(*columns, strict=True)]

    return _count(read, texts)


def count_in_folder(
    folder: Path, max_length: int | None, texts: Sequence[str]
) -> Indistinct | None:
    """Count indistinct captions by a folder's ``tokenizer.json``, without loading its model."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        return None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    if max_length is not None:
        tokenizer.enable_truncation(max_length)
    return _count(
        lambda some: [tuple(encoding.ids) for encoding in tokenizer.encode_batch(some)], texts
    )


def _count(read: Callable[[list[str]], list[Hashable]], texts: Sequence[str]) -> Indistinct:
    different: dict[str, str] = {}
    for text in texts:
        different.setdefault(normalise_caption(text), text)
    captions = list(different.values())
    keys: list[Hashable] = []
    for start in range(0, len(captions), BATCH):
        keys += read(captions[start : start + BATCH])
    counts = Counter(keys)
    example: tuple[str, ...] = ()
    if len(counts) < len(captions):
        most = counts.most_common(1)[0][0]
        example = tuple(text for text, key in zip(captions, keys, strict=True) if key == most)[:2]
    alike = sum(count for count in counts.values() if count > 1)
    return Indistinct(len(captions), len(counts), alike, example)


def check_end_of_text(model: Any, tokenizer: Any, length: int, owner: object) -> None:
    """Refuse a model that looks for the end of a text where its tokenizer writes none.

    CLIP's text tower takes its embedding at the token ``eos_token_id`` of config.json. Where no
    text has that token, it takes the first, which is the same for all texts.

    Args:
        model: a model of transformers; one whose modules have no ``eos_token_id`` pools otherwise.
        length: the number of tokens at which its texts are cut; tokenizers save this.
    """
    ends = {getattr(module, "eos_token_id", None) for module in model.modules()} - {None}
    for end in ends:
        ids = tokenizer(["a photo of a dog"], truncation=True, max_length=length)["input_ids"][0]
        # Configurations from before transformers 4.31 have 2, for "the largest number".
        place = ids.index(max(ids)) if end == 2 else ids.index(end) if end in ids else 0
        if place > 0 and (end != 2 or place == len(ids) - 1):
            continue
        texts = f"end with {ids[-1]} ({tokenizer.convert_ids_to_tokens(ids[-1])!r})"
        raise UserError(
            f"{owner}: text_config.eos_token_id in config.json is {end}, and the texts of its "
            f"tokenizer {texts}: every text would be read at its token {place + 1}, and captions "
            "would be alike to the model. Set eos_token_id there to the token that ends the texts, "
            "or save the tokenizer beside it that the model was trained with"
        )


TOLERANCE = 1e-5
"""Largest difference between embeddings of unit length that are one embedding."""
NEIGHBOURS = 8
"""Number of embeddings that each is compared with, the next on one random line."""


def group_equal(vectors: np.ndarray) -> np.ndarray:
    """Return a group number for each vector, int (n,): vectors within ``TOLERANCE`` share it.

    >>> group_equal(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1e-7]])).tolist()
    [0, 1, 0]
    """
    count, width = vectors.shape
    line = np.random.default_rng(0).standard_normal(width) / np.sqrt(width)
    places = vectors.astype(np.float64) @ line
    order = np.argsort(places, kind="stable")
    pairs: list[tuple[np.ndarray, np.ndarray]] = [(order[:0], order[:0])]
    for step in range(1, min(NEIGHBOURS, count - 1) + 1):
        first, second = order[:-step], order[step:]
        near = places[second] - places[first] <= TOLERANCE
        first, second = first[near], second[near]
        equal = np.abs(vectors[first] - vectors[second]).max(axis=1, initial=0) <= TOLERANCE
        pairs.append((first[equal], second[equal]))
    first, second = (np.concatenate([pair[i] for pair in pairs]) for i in (0, 1))
    if not len(first):  # as nearly always: scipy's graphs take longer to import than all of this
        return np.arange(count, dtype=np.int32)
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    graph = coo_matrix((np.ones(len(first)), (first, second)), shape=(count, count))
    return connected_components(graph, directed=False)[1]


def check_text_embeddings(
    texts: Sequence[str], vectors: np.ndarray, count: Callable[[], Indistinct]
) -> None:
    """Warn of different captions with one embedding, or refuse them, as the context says.

    Args:
        vectors: their embeddings (texts, dim).
        count: counts the captions that are the same tokens, of which ``check_captions`` speaks.
    """
    different: dict[str, int] = {}
    for place, text in enumerate(texts):
        different.setdefault(normalise_caption(text), place)
    places = list(different.values())
    alike, example = _alike(vectors[places], [texts[place] for place in places])
    if alike:
        _judge(
            alike - count().alike, len(places), "captions", example, "although their tokens differ"
        )


def check_image_embeddings(
    names: Callable[[int], str], keys: Sequence[Hashable], vectors: np.ndarray
) -> None:
    """Warn of different images with one embedding, or refuse them, as the context says.

    Two images that are alike may be one picture in two files: groups of more are counted.

    Args:
        names: returns the name of the image at a place.
        keys: the digest of each image's bytes.
    """
    first: dict[Hashable, int] = {}
    for place, key in enumerate(keys):
        first.setdefault(key, place)
    places = list(first.values())
    alike, example = _alike(vectors[places], [names(place) for place in places], least=3)
    _judge(alike, len(places), "images", example, "although their files differ")


def _alike(
    vectors: np.ndarray, names: Sequence[str], least: int = 2
) -> tuple[int, tuple[str, ...]]:
    """Return how many vectors share their embedding with others, and the names of two of them."""
    if _CHECK.get() is None or len(vectors) < 2:
        return 0, ()
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    groups = group_equal(vectors / np.maximum(length, np.finfo(np.float32).tiny))
    sizes = np.bincount(groups)
    largest = np.flatnonzero(groups == sizes.argmax())[:2]
    return int(sizes[sizes >= least].sum()), tuple(names[place] for place in largest)


def _judge(alike: int, count: int, what: str, example: Sequence[str], although: str) -> None:
    check = _CHECK.get()
    if check is None or alike <= WARNED_SHARE * count:
        return
    name, limit = check
    message = (
        f"{name}: {alike:,} of {count:,} different {what} have the embedding of another to the "
        f"model, as {example[0]!r} and {example[1]!r}, {although}"
    )
    if alike <= limit * count:
        say_once(f"warning: {message}")
        return
    raise UserError(
        f"{message}: whatever is measured with them is chance. The special tokens in config.json "
        "may not be the tokenizer's, or weights may be damaged, or of another architecture. "
        "max_indistinct=1 evaluates all the same"
    )


def check_varying(outputs: np.ndarray, what: str) -> None:
    """Warn, within ``refuse_indistinct``, of outputs that are the same for every input.

    Args:
        outputs: scores or logits, a row for each different input.
        what: the outputs and inputs in words.
    """
    check = _CHECK.get()
    if check is None or len(outputs) < FEWEST_INPUTS:
        return
    spread = np.ptp(outputs.astype(np.float64), axis=0).max()
    if spread <= TOLERANCE * max(1.0, float(np.abs(outputs).max())):
        say_once(f"warning: {check[0]}: the model gives {what}: nothing it answers depends on them")


def check_answers(questions: Sequence[Hashable], answers: Sequence[str | None]) -> None:
    """Warn, within ``refuse_indistinct``, of a model that answers every question alike.

    Such a model scores what the answers of the set give it: a half of a balanced yes-or-no set.

    Args:
        questions: the keys of questions, such as image and text together.
        answers: the answer to each, ``None`` without one; case and spaces make no difference.
    """
    check = _CHECK.get()
    given = {
        question: " ".join(answer.split()).casefold()
        for question, answer in zip(questions, answers, strict=True)
        if answer is not None
    }
    if check is None or len(given) < FEWEST_QUESTIONS or len(set(given.values())) > 1:
        return
    answer = next(answer for answer in answers if answer is not None)
    say_once(
        f"warning: {check[0]}: the model gives all {len(given):,} different questions the same "
        f"answer, {answer[:60]!r}: what is measured says how often that is right, and nothing else"
    )


FEWEST_QUESTIONS = 20
"""Number of different questions from which equal answers are said."""
FEWEST_INPUTS = 10
"""Number of inputs from which equal outputs are no coincidence."""

_CHECK: ContextVar[tuple[str, float] | None] = ContextVar("indistinct captions", default=None)
"""The name of a benchmark, and its limit."""


@contextmanager
def refuse_indistinct(name: str, limit: float) -> Iterator[None]:
    """Within this context, warn of indistinct captions, and refuse them above a share.

    Args:
        limit: the share of indistinct captions in [0, 1] above which they are refused.
    """
    token = _CHECK.set((name, limit))
    try:
        yield
    finally:
        _CHECK.reset(token)


def check_captions(count: Callable[[], Indistinct]) -> None:
    """Warn of captions that a model cannot tell apart, or refuse them, as the context says.

    Raises:
        UserError: if the share of indistinct captions is above the limit.
    """
    check = _CHECK.get()
    if check is None:
        return
    name, limit = check
    alike = count()
    if alike.share > limit:
        raise UserError(
            f"{name}: {alike}: such captions say nothing about it. Choose a model "
            "that was trained on such text, as model=clip_vit_b32, or evaluate all the same with "
            "max_indistinct=1"
        )
    if alike.share > WARNED_SHARE:
        say_once(f"warning: {name}: {alike}")
