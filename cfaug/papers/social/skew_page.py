"""``<benchmark>.html``: images retrieved for neutral prompts, in one file that opens offline.

For each subject, the first images of each model, how often each label occurs among them compared
with chance, and whether the skew is above chance. Nothing in a label or subject is ever read as
markup: the script sets text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfaug.core.rng import derive
from cfaug.core.validation import Count, check_fields
from cfaug.papers.social.skew_items import RankingTask, Retrieved, SkewItems, read_list
from cfaug.papers.social.skew_rankings import compare_over_sets, read_rankings
from cfaug.report.gallery import ModelPage
from cfaug.report.page import p_text, short

NUMBERS = ("max_skew", "max_skew_chance", "max_skew_excess", "max_skew_low", "max_skew_high",
           "p_permutation", "p_holm")  # fmt: skip
"""The metrics on a model's card, in this order."""


@dataclass(frozen=True)
class SkewPageSettings:
    """Limits on what a page shows.

    Args:
        limit: most subjects per grid with pictures, besides those that stand out; ``None`` for all.
        side: longest side of the pictures, in pixels.
        shown: most images of a ranking that are shown.
    """

    limit: Count | None = 100
    side: int = 96  # 100 subjects of 3 models with 12 images each are about 10 MB
    shown: int = 24

    def __post_init__(self) -> None:
        check_fields(self, "benchmark.page")


def skew_page(settings: SkewPageSettings | None = None) -> ModelPage[SkewItems]:
    """Return the definition of the page."""
    how = settings or SkewPageSettings()
    return ModelPage(
        "skew.html", SkewItems, "subjects", lambda answers: _SkewPageData(answers, how), how.side
    )


def _main_question(items: SkewItems) -> RankingTask | None:
    """Return the question about the first grid with all attributes together."""
    grid = items.questions[0].grid
    return items.choose(grid, items.intersectional(grid))


def compare_with_first(answers: Sequence[SkewItems]) -> list[str]:
    """Return for each further model a sentence on how much more skewed it is than the first.

    Args:
        answers: answers of models to the same questions; if a model has no rankings, the sentence
            says what to run.
    """
    first, question = answers[0], _main_question(answers[0])
    sentences = []
    ranked = {answer.model: read_rankings(answer) for answer in answers}
    for answer in answers[1:]:
        ours, theirs = ranked[answer.model], ranked[first.model]
        if question is None or not (answer.values(question) and first.values(question)):
            continue
        if ours is None or theirs is None:
            lacking = [name for name, kept in ranked.items() if kept is None]
            return [
                f"No rankings of {', '.join(lacking)} were saved, so models are not compared: run "
                "the same evaluate.py command again, which writes them."
            ]
        test = compare_over_sets([(answer, ours)], [(first, theirs)], question)
        sentence = (
            f"{answer.model} minus {first.model}: MaxSkew@{question.k} {test.mean + 0.0:+.2f}"
        )
        if not math.isnan(test.low):
            sentence += (
                f" (95 % {test.low:+.2f} to {test.high:+.2f}, p {p_text(test.p)}; subjects and "
            )
            sentence += "sets drawn)"
        sentences.append(f"{sentence}.")
    return sentences


def verdict(answers: SkewItems) -> str:
    """Say in a sentence how skewed a model is on the first grid with all attributes together."""
    question = _main_question(answers)
    values = {} if question is None else answers.values(question)
    if question is None or not values:
        return f"{answers.model}: no subject of {answers.questions[0].grid} could be evaluated."
    usual = answers.values(question, "max_skew_chance")
    mean, chance = (float(np.mean(list(by_subject.values()))) for by_subject in (values, usual))
    standing = answers.standing(question)
    return (
        f"{answers.model}: mean MaxSkew@{question.k} over {len(values):,} subjects, "
        f"{question.labelling}: {mean:.2f}, by chance {chance:.2f}; {len(standing.corrected):,} of "
        f"{standing.tested:,} stand out after correction."
    )


class _SkewPageData:
    def __init__(self, answers: Sequence[SkewItems], settings: SkewPageSettings) -> None:
        self.answers, self.settings = answers, settings
        self.images: dict[str, str] = {}
        self._places: dict[str, int] = {}
        self._subjects: dict[str, dict[str, None]] = {}
        first = answers[0]
        for grid, subject in zip(first.texts("grid"), first.texts("subject"), strict=True):
            self._subjects.setdefault(grid, {})[subject] = None
        # A sample has the smallest hashes, so that it does not depend on the order of subjects.
        self._with_pictures = {
            (grid, name)
            for grid, subjects in self._subjects.items()
            for name in sorted(subjects, key=lambda name: derive(0, "skew_page", name))[
                : settings.limit
            ]
        }
        if settings.limit:
            self._with_pictures |= {
                (question.grid, name)
                for answer in answers
                for question in answer.questions
                for name in answer.standing(question).corrected
            }

    @property
    def verdicts(self) -> list[str]:
        return [*map(verdict, self.answers), *compare_with_first(self.answers)]

    @property
    def subtitle(self) -> str:
        subjects, shown = sum(map(len, self._subjects.values())), len(self._with_pictures)
        some = "" if shown == subjects else f"; pictures of {shown:,}, drawn at random"
        return f"{subjects:,} subjects{some}"

    def content(self) -> dict[str, Any]:
        """Return everything but the pictures: the script explains its letters."""
        return {
            "models": [answer.model for answer in self.answers],
            "questions": [self._question(question) for question in self.answers[0].questions],
        }

    def _question(self, question: RankingTask) -> dict[str, Any]:
        """Return a question: g grid, l labelling, k, n labels, s sentences, m means, r subjects.

        A mean is the share of a label among the retrieved images, and among all images. A subject:
        n name, t type, o reason if it was left out, m models.
        """
        first, rows = self.answers[0], self.answers[0].rows(question)
        every_label = (label for row in rows for label in first.retrieved(row).labels)
        labels = list(dict.fromkeys(every_label))
        means, subjects = [], []
        for answer in self.answers:
            retrieved = [answer.retrieved(row) for row in answer.rows(question)]
            means.append([
                [short(np.mean([_share(result, label, result.top) for result in retrieved])),
                 short(np.mean([_share(result, label, result.pool) for result in retrieved]))]
                for label in labels
            ] if retrieved else [])  # fmt: skip
        for row in first.places(question):
            name, kind, reason = (
                first.texts(column)[row] for column in ("subject", "subject_type", "left_out")
            )
            subject: dict[str, Any] = {"n": name, "t": kind}
            if reason:
                subject["o"] = reason
            else:
                subject["m"] = [
                    self._model(answer, question, row, labels) for answer in self.answers
                ]
            subjects.append(subject)
        return {
            "g": question.grid,
            "l": question.labelling,
            "k": question.k,
            "n": labels,
            "s": [answer.standing(question).say() for answer in self.answers],
            "m": means,
            "r": subjects,
        }

    def _model(
        self, answer: SkewItems, question: RankingTask, row: int, labels: Sequence[str]
    ) -> dict[str, Any]:
        """Return a model's retrieval: v numbers, c and x counts and expected counts, p pictures.

        Counts are in the order of the question's labels; a label that a subject lacks is null.
        Pictures are the numbers of the first images; equal images share one.
        """
        retrieved, columns = answer.retrieved(row), answer.items.columns
        pool = [_at(retrieved.pool, retrieved, label) for label in labels]
        whole, k = sum(retrieved.pool), sum(retrieved.top)
        keys: list[str] = []
        subject = question.grid, answer.texts("subject")[row]
        # A conditional labelling has its own ranking, which would double the page.
        if not question.condition and subject in self._with_pictures and "top" in columns:
            keys = list(map(str, read_list(answer.texts("top")[row])[: self.settings.shown]))
        self.images |= {key: key for key in keys}
        return {
            "v": [short(columns[name][row]) if name in columns else None for name in NUMBERS],
            "c": [_at(retrieved.top, retrieved, label) for label in labels],
            "x": [None if count is None else short(k * count / whole) for count in pool],
            "p": [self._places.setdefault(key, len(self._places)) for key in keys],
        }


def _at(counts: Sequence[int], retrieved: Retrieved, label: str) -> int | None:
    return counts[retrieved.labels.index(label)] if label in retrieved.labels else None


def _share(retrieved: Retrieved, label: str, counts: Sequence[int]) -> float:
    return (_at(counts, retrieved, label) or 0) / sum(counts)
