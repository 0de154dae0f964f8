"""Scores of captions: with images, for any kind of model, and as text alone.

A dual encoder embeds each distinct image and each distinct caption once. A matcher scores each
distinct pair of the two. A model that answers questions is asked once about each such pair.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cfaug.core.answers import Question
from cfaug.core.errors import UserError
from cfaug.core.files import find_prompt_file, read_keys, read_yaml
from cfaug.core.pixels import content_digest
from cfaug.core.protocols import Answerer, DualEncoder, Matcher
from cfaug.data.index.index import IndexedImage
from cfaug.editing.causal_lm import CausalLM
from cfaug.evaluation.cached_model import (
    CachedAnswerer,
    CachedEncoder,
    CachedMatcher,
    Features,
    image_keys,
    recall_or_compute,
    text_keys,
)
from cfaug.evaluation.inference import (
    PairsToScore,
    Pixels,
    compute_distinct,
    embed_images,
    embed_texts,
    match_pairs,
)
from cfaug.evaluation.vqa_inference import Ask, Asker
from cfaug.models.indistinct import check_varying
from cfaug.stats.choices import pair_similarities, probability_of_first

if TYPE_CHECKING:
    from cfaug.core.types import OptionScore
    from cfaug.data.index import Index


if TYPE_CHECKING:
    Scored = DualEncoder | CachedEncoder | Matcher | CachedMatcher | Answerer | CachedAnswerer
ITEMS_AT_ONCE = 8192
"""Items whose embeddings are gathered at a time; for all items only distinct ones are held."""
Key = TypeVar("Key")


@dataclass(frozen=True)
class ScoredItems:
    """Items, each with the same number of images and any number of captions.

    Attributes:
        index: the source of the images.
        rows: row of each image of each item, int64 (items, images).
        texts: the captions of each item; their number may vary.
    """

    index: Index
    rows: np.ndarray
    texts: Sequence[Sequence[str]]

    @cached_property
    def most(self) -> int:
        """The largest number of captions of an item."""
        return max(map(len, self.texts))

    @cached_property
    def distinct_texts(self) -> tuple[list[str], np.ndarray]:
        """The distinct captions in order, and the number of each caption of each item.

        The numbers are int64 (items, captions), padded with -1.
        """
        texts, numbers = _number([text for captions in self.texts for text in captions])
        number_NK = np.full((len(self.texts), self.most), -1)
        number_NK[np.arange(self.most) < self.counts[:, None]] = numbers
        return texts, number_NK

    @cached_property
    def distinct_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """A row for each distinct image, and the number of each image, int64 (items, images)."""
        rows = self.rows.reshape(-1)
        _, numbers = _number(image_keys(self.index, rows))
        _, first = np.unique(numbers, return_index=True)
        return rows[first], numbers.reshape(self.rows.shape)

    @cached_property
    def counts(self) -> np.ndarray:
        """Number of captions of each item, int64 (items,)."""
        return np.array([len(captions) for captions in self.texts])


class CaptionScorer:
    """The scores that one model gives to items."""

    def score(self) -> np.ndarray:
        """Return every score, float (items, captions, images); larger is a better match.

        The scores are padded with ``nan`` where an item has fewer captions. Equal captions and
        images of an item have exactly the same score.
        """
        raise NotImplementedError

    def score_blind(self) -> np.ndarray | None:
        """Return the scores of captions without their images, float (items, captions).

        ``None`` if the model has no such score, as a matcher, which needs an image.
        """
        return None

    def compare_texts(self) -> np.ndarray | None:
        """Return the similarity of an item's captions, float (items, captions, captions).

        ``None`` where the model cannot compare texts.
        """
        return None


def scorer_of(
    model: Scored, items: ScoredItems, batch_size: int, question: CaptionQuestion
) -> CaptionScorer:
    """Return the scorer for a model's protocol.

    Args:
        model: a dual encoder, a matcher or an answerer, cached or not.
    """
    if isinstance(model, CachedAnswerer):  # an isinstance check would load a cached model
        return AnswererScorer(model, items, batch_size, question)
    if isinstance(model, CachedMatcher):
        return MatcherScorer(model, items, batch_size)
    if isinstance(model, (CachedEncoder, DualEncoder)):
        return EncoderScorer(model, items, batch_size)
    if isinstance(model, Matcher):
        return MatcherScorer(model, items, batch_size)
    return AnswererScorer(model, items, batch_size, question)


class EncoderScorer(CaptionScorer):
    """Scores by the cosine of a dual encoder's embeddings."""

    def __init__(
        self, encoder: DualEncoder | CachedEncoder, items: ScoredItems, batch_size: int
    ) -> None:
        self._encoder, self._items, self._size = encoder, items, batch_size

    def score(self) -> np.ndarray:
        """Return cosines, float32 (items, captions, images)."""
        texts_UD, number_NK = self._texts
        images_VD, image_NM = self._images
        return _by_count(
            self._items, image_NM.shape[1],
            lambda some, count: pair_similarities(
                texts_UD[number_NK[some, :count]], images_VD[image_NM[some]]
            ),
        )  # fmt: skip

    def score_blind(self) -> np.ndarray | None:
        """Return the mean cosine of each caption with the images of the other items.

        It estimates how well a caption scores whatever the image, as Lin et al. (2024, "Revisiting
        the Role of Language Priors") do with images of noise; an item's own images, and copies of
        them, are left out. ``None`` if no other image is left.
        """
        texts_UD, number_NK = self._texts
        images_VD, image_NM = self._images
        own_NM = [np.unique(numbers) for numbers in image_NM]
        if max(map(len, own_NM)) == len(images_VD):
            return None
        total_D = images_VD.sum(axis=0, dtype=np.float64)
        left_N1 = np.array([[len(images_VD) - len(numbers)] for numbers in own_NM])

        def mean(some: np.ndarray, count: int) -> np.ndarray:
            own_ND = np.stack([images_VD[own_NM[item]].sum(axis=0) for item in some])
            others_ND = (total_D - own_ND) / left_N1[some]
            return np.einsum("nkd,nd->nk", texts_UD[number_NK[some, :count]], others_ND)[..., None]

        return _by_count(self._items, 1, mean)[..., 0]

    def compare_texts(self) -> np.ndarray | None:
        """Return cosines of the captions with each other."""
        texts_UD, number_NK = self._texts

        def compare(some: np.ndarray, count: int) -> np.ndarray:
            own_NKD = texts_UD[number_NK[some, :count]]
            padded = np.full((len(some), count, self._items.most), np.nan)
            padded[..., :count] = pair_similarities(own_NKD, own_NKD)
            return padded

        return _by_count(self._items, self._items.most, compare)

    @cached_property
    def _texts(self) -> tuple[np.ndarray, np.ndarray]:
        texts, numbers = self._items.distinct_texts
        return embed_texts(self._encoder, texts, self._size), numbers

    @cached_property
    def _images(self) -> tuple[np.ndarray, np.ndarray]:
        rows, numbers = self._items.distinct_rows
        pixels = Pixels(self._items.index, rows)
        return embed_images(self._encoder, pixels, self._size), numbers


class MatcherScorer(CaptionScorer):
    """Scores by a matcher, which reads image and caption together."""

    def __init__(
        self, matcher: Matcher | CachedMatcher, items: ScoredItems, batch_size: int
    ) -> None:
        self._matcher, self._items, self._size = matcher, items, batch_size

    def score(self) -> np.ndarray:
        """Return the matcher's scores, float32 (items, captions, images)."""
        texts, rows, number_NKM = _distinct_pairs(self._items)
        pairs = PairsToScore("captions", self._items.index, rows, texts)
        return _spread(match_pairs(self._matcher, pairs, self._size), number_NKM)


class AnswererScorer(CaptionScorer):
    """Scores by the likelihood of an answer about the caption, per token.

    Where the question has a second answer, the score is the first one's probability among the two.
    """

    def __init__(
        self,
        answerer: Answerer | CachedAnswerer,
        items: ScoredItems,
        batch_size: int,
        question: CaptionQuestion,
    ) -> None:
        self._asker, self._items, self._question = Asker(answerer, batch_size), items, question

    def score(self) -> np.ndarray:
        """Return log-likelihoods or probabilities, float64 (items, captions, images)."""
        texts, rows, number_NKM = _distinct_pairs(self._items)
        ranked = self._rank(texts, rows)
        check_varying(
            ranked, f"all {len(ranked):,} combinations of an image and a caption the same score"
        )
        return _spread(ranked, number_NKM)

    def score_blind(self) -> np.ndarray | None:
        """Return the same scores when no image is shown, float64 (items, captions)."""
        texts, number_NK = self._items.distinct_texts
        return _spread(self._rank(texts, None), number_NK)

    def _rank(self, texts: Sequence[str], rows: np.ndarray | None) -> np.ndarray:
        """Return the score of each caption, asking equal questions together."""
        answers_to: dict[tuple[int, str], list[str]] = {}
        questions_about = []  # each caption, with their answers
        for number, text in enumerate(texts):
            row = -1 if rows is None else int(rows[number])
            questions = [((row, words), answers) for words, answers in self._question.ask(text)]
            questions_about.append(questions)
            for key, answers in questions:
                answers_to.setdefault(key, []).extend(answers)
        index = self._items.index
        asks = [
            Ask(
                "" if row < 0 else index.image_name(row),
                None if row < 0 else IndexedImage(index, row),
                Question(question, tuple(dict.fromkeys(answers))),
            )
            for (row, question), answers in answers_to.items()
        ]
        scores_of: dict[tuple[int, str], dict[str, OptionScore]] = {}
        for key, ask, reply in zip(answers_to, asks, self._asker.rank(asks), strict=True):
            if reply.left_out:
                raise UserError(
                    f"the model leaves out the question {ask.question.text!r} ({reply.left_out}): "
                    "choose another benchmark.question, or a model that reads longer texts"
                )
            scores_of[key] = dict(zip(ask.question.options, reply.scores, strict=True))
        rates = [
            [_rate([scores_of[key][answer] for answer in answers]) for key, answers in questions]
            for questions in questions_about
        ]
        return np.array([np.mean(of_caption) for of_caption in rates])


def _rate(scores: Sequence[OptionScore]) -> float:
    """Return an answer's log-likelihood per token, or its probability beside another answer."""
    if len(scores) == 1:
        return -scores[0].mean_nll
    return probability_of_first([score.nll for score in scores])


def _number(values: Sequence[Key]) -> tuple[list[Key], np.ndarray]:
    """Return the distinct values in order, and the number of each value among them."""
    numbers: dict[Key, int] = {}
    codes = [numbers.setdefault(value, len(numbers)) for value in values]
    return list(numbers), np.array(codes)


def _distinct_pairs(items: ScoredItems) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return text and row of each distinct pair, and the pairs' numbers (items, captions, images).

    Numbers are padded with -1 where an item has fewer captions.
    """
    texts, number_NK = items.distinct_texts
    rows, image_NM = items.distinct_rows
    codes = number_NK[:, :, None] * len(rows) + image_NM[:, None, :]
    there = np.broadcast_to(number_NK[:, :, None] >= 0, codes.shape)
    distinct, numbers = _number(codes[there].tolist())
    number_NKM = np.full(codes.shape, -1)
    number_NKM[there] = numbers
    return (
        [texts[code // len(rows)] for code in distinct],
        rows[[code % len(rows) for code in distinct]],
        number_NKM,
    )


def _spread(values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return values by their numbers, ``nan`` for -1."""
    return np.where(numbers < 0, np.nan, values[numbers])


def _by_count(
    items: ScoredItems, width: int, compute: Callable[[np.ndarray, int], np.ndarray]
) -> np.ndarray:
    """Compute values of items, grouping those with the same number of captions.

    Args:
        compute: a function that returns the values (items, captions, width) for item indices and
            their number of captions.

    Returns:
        float (items, captions, width), padded with ``nan``.
    """
    parts = []
    for count in np.unique(items.counts).tolist():
        places = np.flatnonzero(items.counts == count)
        for start in range(0, len(places), ITEMS_AT_ONCE):
            some = places[start : start + ITEMS_AT_ONCE]
            parts.append((some, count, compute(some, count)))
    table = np.full((len(items.texts), items.most, width), np.nan, parts[0][2].dtype)
    for some, count, values in parts:
        table[some, :count] = values
    return table


CAPTION = "{caption}"
OPTIONS = "{options}"
SHIPPED = ("plain", "vqascore", "caption", "yes_no")
_PLACES = re.compile(r"\{\w*\}")


@dataclass(frozen=True)
class CaptionQuestion:
    """A question and an answer; the likelihood of the answer is the caption's score.

    Attributes:
        question: a template, with ``{caption}`` once unless the answer has it, and with
            ``{options}`` where it shows both answers.
        answer: a template, with ``{caption}`` once unless the question has it.
        other: the opposite answer: the score is the probability of ``answer`` among the two, the
            mean over both orders if the question shows them; empty for none.
    """

    question: str
    answer: str
    other: str = ""

    def ask(self, caption: str) -> list[tuple[str, tuple[str, ...]]]:
        """Return the questions about a caption, each with its answers, the scored one first.

        >>> CaptionQuestion("Does this picture show: {caption}?", "Yes").ask("a {red} dog")
        [('Does this picture show: a {red} dog?', ('Yes',))]
        >>> CaptionQuestion("{caption}: {options}?", "Yes", "No").ask("a dog")
        [('a dog: Yes or No?', ('Yes', 'No')), ('a dog: No or Yes?', ('Yes', 'No'))]
        """
        answers = (self.answer.replace(CAPTION, caption), *([self.other] if self.other else []))
        orders = [answers, answers[::-1]] if OPTIONS in self.question else [answers]
        filled = [self.question.replace(OPTIONS, " or ".join(order)) for order in orders]
        return [(question.replace(CAPTION, caption), answers) for question in filled]

    @property
    def words(self) -> list[str]:
        """All texts, which identify it."""
        return [self.question, self.answer, *([self.other] if self.other else [])]


def read_caption_question(name: str) -> CaptionQuestion:
    """Read a shipped question or your own YAML file.

    >>> read_caption_question("caption").answer
    '{caption}'

    Args:
        name: one of ``SHIPPED``, or a path.
    """
    file = find_prompt_file(
        name, SHIPPED, "evaluation/choices/caption_questions", "benchmark.question",
        "the keys question and answer, and perhaps other",
    )  # fmt: skip
    wanted = [field.name for field in fields(CaptionQuestion)]
    has_other = isinstance(given := read_yaml(file), dict) and "other" in given
    content = read_keys(file, wanted if has_other else wanted[:2])
    for key in content:
        if not isinstance(content[key], str) or not content[key].strip():
            raise UserError(
                f"{file}: {key} should be a text, not {content[key]!r}; YAML takes yes and no for "
                "something else: put them in quotation marks"
            )
    if has_other:
        used = sorted(_PLACES.findall(content["question"]))
        elsewhere = _PLACES.findall(content["answer"] + content["other"])
        if elsewhere or used not in ([CAPTION], [CAPTION, OPTIONS]):
            raise UserError(
                f"{file} has two answers: its question should have {CAPTION} once, and {OPTIONS} "
                "once where it shows them, and the answers no placeholder"
            )
        if content["answer"] == content["other"]:
            raise UserError(f"{file}: answer and other are equal: {content['answer']!r}")
        return CaptionQuestion(**content)
    placeholders = [place for key in wanted[:2] for place in _PLACES.findall(content[key])]
    if placeholders != [CAPTION]:
        raise UserError(
            f"{file} should have {CAPTION} once, in the question or in the answer, and no other "
            f"placeholder; it has {', '.join(placeholders) or 'none'}"
        )
    return CaptionQuestion(**content)


# How likely captions are as text, by a language model that sees no image.

SHORT = "a dog"
"""A text that every model can read."""
AT_ONCE = 1024
"""Captions scored before the results are saved."""


@runtime_checkable
class IdentifiedLanguageModel(Protocol):
    """A language model with an identity, such as ``cfaug.editing.causal_lm.CausalLM``."""

    def log_likelihood(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the natural log of the probability of each text: float64 (n,)."""
        ...

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return exp of the mean negative log-likelihood per token: float64 (n,)."""
        ...

    def identity(self) -> str:
        """Return a text that identifies the weights and settings."""
        ...


class BlindLanguage:
    """A causal language model that scores each distinct caption once.

    Args:
        model: a folder, a Hub id or ``zoo:...``, as for ``cfaug.editing.causal_lm.CausalLM``; or a
            language model with an identity.
        root: folder of cached features; ``None`` caches nothing.
    """

    def __init__(self, model: str | IdentifiedLanguageModel, root: Path | None = None) -> None:
        if not isinstance(model, str | IdentifiedLanguageModel):
            raise UserError(
                f"benchmark.blind={model!r:.100} should be the name of a causal language model, or "
                "an object with log_likelihood, perplexity and identity"
            )
        self._name = model if isinstance(model, str) else type(model).__name__
        self._model = CausalLM(model) if isinstance(model, str) else model
        self._root = root

    @cached_property
    def identity(self) -> str:
        """A text that identifies the model's weights and settings."""
        try:
            return self._model.identity()
        except UserError as error:
            raise UserError(
                f"benchmark.blind={self._name}: {error}; benchmark.blind=null leaves it out"
            ) from error

    def log_likelihoods(self, texts: Sequence[str]) -> np.ndarray:
        """Return the log-likelihood of each caption, summed and per token, float32 (texts, 2).

        ``nan`` for a caption that the model cannot read, such as one that is too long.
        """

        def compute(numbers: list[int]) -> Iterator[np.ndarray]:
            for start in range(0, len(numbers), AT_ONCE):
                yield self._judge([texts[number] for number in numbers[start : start + AT_ONCE]])

        if self._root is None:
            return compute_distinct(texts, compute)
        folder = self._root / content_digest(f"language {self.identity}".encode()).hex()
        if folder.exists():
            os.utime(folder)
        return recall_or_compute(Features(folder, "score"), text_keys(texts), compute)

    def _judge(self, texts: list[str]) -> np.ndarray:
        try:
            sums, perplexities = self._model.log_likelihood(texts), self._model.perplexity(texts)
        except UserError:
            if len(texts) == 1:
                self._model.log_likelihood([SHORT])  # an error of the model itself is raised
                return np.full((1, 2), np.nan, np.float32)
            half = len(texts) // 2
            return np.concatenate([self._judge(texts[:half]), self._judge(texts[half:])])
        return np.stack([sums, -np.log(perplexities)], axis=1).astype(np.float32)
