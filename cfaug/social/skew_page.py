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
from cfaug.report.model_pages import ModelPage
from cfaug.report.page import p_text, short
from cfaug.social.skew_items import RankingTask, Retrieved, SkewItems, read_list
from cfaug.social.skew_rankings import compare_over_sets, read_rankings

THUMBNAIL = 96
"""Longest side of a picture: 100 subjects of 3 models with 12 images each are about 10 MB."""

LIMIT = 100
"""Most subjects per grid with pictures; from more, a sample, and those that stand out."""

SHOWN = 24
"""Most images of a ranking that are shown."""

NUMBERS = ("max_skew", "max_skew_chance", "max_skew_excess", "max_skew_low", "max_skew_high",
           "p_permutation", "p_holm")  # fmt: skip
"""The metrics on a model's card, in this order."""

TOP = "top"
"""Column with the keys of the first images."""


@dataclass(frozen=True)
class SkewPageSettings:
    """Limits on what a page shows.

    Args:
        limit: most subjects per grid with pictures, besides those that stand out; ``None`` for all.
        side: longest side of the pictures, in pixels.
        shown: most images of a ranking that are shown.
    """

    limit: Count | None = LIMIT
    side: int = THUMBNAIL
    shown: int = SHOWN

    def __post_init__(self) -> None:
        check_fields(self, "benchmark.page")


def skew_page(settings: SkewPageSettings | None = None) -> ModelPage[SkewItems]:
    """Return the definition of the page.

    Args:
        settings: limits on what the page shows; ``None`` for the defaults.
    """
    how = settings or SkewPageSettings()

    def make(answers: Sequence[SkewItems]) -> _SkewPageData:
        return _SkewPageData(answers, how)

    return ModelPage("skew.html", SkewItems, "subjects", make, how.side)


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
    found = []
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
        told = f"{answer.model} minus {first.model}: MaxSkew@{question.k} {test.mean + 0.0:+.2f}"
        if not math.isnan(test.low):
            told += f" (95 % {test.low:+.2f} to {test.high:+.2f}, p {p_text(test.p)}; subjects and "
            told += "sets drawn)"
        found.append(f"{told}.")
    return found


def verdict(one: SkewItems) -> str:
    """Say in a sentence how skewed a model is on the first grid with all attributes together."""
    question = _main_question(one)
    values = {} if question is None else one.values(question)
    if question is None or not values:
        return f"{one.model}: no subject of {one.questions[0].grid} could be evaluated."
    usual = one.values(question, "max_skew_chance")
    mean, chance = (float(np.mean(list(found.values()))) for found in (values, usual))
    found = one.standing(question)
    return (
        f"{one.model}: mean MaxSkew@{question.k} over {len(values):,} subjects, "
        f"{question.labelling}: {mean:.2f}, by chance {chance:.2f}; {len(found.corrected):,} of "
        f"{found.tested:,} stand out after correction."
    )


class _SkewPageData:
    """Turns answers into data for the script."""

    def __init__(self, answers: Sequence[SkewItems], settings: SkewPageSettings) -> None:
        self.answers, self.settings = answers, settings
        self.first = answers[0]
        self.images: dict[str, str] = {}
        self._places: dict[str, int] = {}
        self._with_pictures = self._choose()

    @property
    def verdicts(self) -> list[str]:
        return [*map(verdict, self.answers), *compare_with_first(self.answers)]

    @property
    def subtitle(self) -> str:
        subjects = len(set(zip(self.first.texts("grid"), self.first.texts("subject"), strict=True)))
        shown = len(self._with_pictures)
        some = "" if shown == subjects else f"; pictures of {shown:,}, drawn at random"
        return f"{subjects:,} subjects{some}"

    def _choose(self) -> set[tuple[str, str]]:
        """Return the grids and subjects with pictures: those with the smallest hashes."""
        limit = self.settings.limit
        chosen: set[tuple[str, str]] = set()
        grids: dict[str, dict[str, None]] = {}
        asked = zip(self.first.texts("grid"), self.first.texts("subject"), strict=True)
        for grid, subject in asked:
            grids.setdefault(grid, {})[subject] = None
        for grid, subjects in grids.items():
            shuffled = sorted(subjects, key=lambda name: derive(0, "skew_page", name))
            chosen |= {(grid, name) for name in (shuffled if limit is None else shuffled[:limit])}
        if limit:
            for answer in self.answers:
                for question in answer.questions:
                    corrected = answer.standing(question).corrected
                    chosen |= {(question.grid, name) for name in corrected}
        return chosen

    def content(self) -> dict[str, Any]:
        """Return everything but the pictures: the script explains its letters."""
        return {
            "models": [answer.model for answer in self.answers],
            "questions": [self._question(question) for question in self.first.questions],
        }

    def _question(self, question: RankingTask) -> dict[str, Any]:
        """Return a question: g grid, l labelling, k, n labels, s sentences, m means, r subjects."""
        rows = self.first.rows(question)
        every = self.first.places(question)
        every_label = (label for row in rows for label in self.first.retrieved(row).labels)
        labels = list(dict.fromkeys(every_label))
        return {
            "g": question.grid,
            "l": question.labelling,
            "k": question.k,
            "n": list(labels),
            "s": [answer.standing(question).say() for answer in self.answers],
            "m": [self._means(answer, question, labels) for answer in self.answers],
            "r": [self._subject(question, row, labels) for row in every],
        }

    def _means(
        self, items: SkewItems, question: RankingTask, labels: Sequence[str]
    ) -> list[list[float | None]]:
        """Return for each label its mean share of the retrieved images, and of all images."""
        found = [items.retrieved(row) for row in items.rows(question)]
        return [
            [short(np.mean([_share(own, label, own.top) for own in found])),
             short(np.mean([_share(own, label, own.pool) for own in found]))]
            for label in labels
        ] if found else []  # fmt: skip

    def _subject(self, question: RankingTask, row: int, labels: Sequence[str]) -> dict[str, Any]:
        """Return a subject: n name, t type, o reason if it was left out, m models."""
        first = self.first
        found: dict[str, Any] = {"n": first.texts("subject")[row],
                                 "t": first.texts("subject_type")[row]}  # fmt: skip
        reason = first.texts("left_out")[row]
        if reason:
            return found | {"o": reason}
        return found | {
            "m": [self._model(answer, question, row, labels) for answer in self.answers]
        }

    def _model(
        self, items: SkewItems, question: RankingTask, row: int, labels: Sequence[str]
    ) -> dict[str, Any]:
        """Return a model's retrieval: v numbers, c and x counts and expected counts, p pictures.

        Counts are in the order of the question's labels; a label that a subject lacks is null.
        """
        retrieved = items.retrieved(row)
        columns = items.items.columns
        numbers = [short(columns[name][row]) if name in columns else None for name in NUMBERS]
        counts = [_at(retrieved.top, retrieved, label) for label in labels]
        pool = [_at(retrieved.pool, retrieved, label) for label in labels]
        whole, k = sum(retrieved.pool), sum(retrieved.top)
        expected = [None if own is None else short(k * own / whole) for own in pool]
        return {"v": numbers, "c": counts, "x": expected, "p": self._pictures(items, question, row)}

    def _pictures(self, items: SkewItems, question: RankingTask, row: int) -> list[int]:
        """Return the numbers of the first images; equal images share one."""
        subject = question.grid, items.texts("subject")[row]
        # A conditional labelling has its own ranking, which would double the page.
        if (
            question.condition
            or subject not in self._with_pictures
            or TOP not in items.items.columns
        ):
            return []
        found = []
        for key in map(str, read_list(items.texts(TOP)[row])[: self.settings.shown]):
            self.images.setdefault(key, key)
            found.append(self._places.setdefault(key, len(self._places)))
        return found


def _at(counts: Sequence[int], retrieved: Retrieved, label: str) -> int | None:
    return counts[retrieved.labels.index(label)] if label in retrieved.labels else None


def _share(retrieved: Retrieved, label: str, counts: Sequence[int]) -> float:
    return (_at(counts, retrieved, label) or 0) / sum(counts)
