"""``<benchmark>.html``: texts that a method changed, and the ranks of their photos afterwards.

For each method, the drop with its tests, the overlap of the texts, and the texts whose photo lost
most ranks, with the photo, both texts and the ranks. Nothing in a text is ever read as markup: the
script sets text. One file that opens offline.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cfaug.core.types import ITEM, Edit, Member
from cfaug.report.gallery import mark_changes
from cfaug.report.model_pages import ModelPage
from cfaug.report.page import DASH, p_text, short
from cfaug.xmai.text_pair_items import InsertionItems, PairedTest, compare_changes, compare_methods

THUMBNAIL = 192
"""Longest side of a picture: 60 texts of five methods make a page of about 4 MB."""

LIMIT = 60
"""Most texts per method that are shown."""

TESTED = ("method", "texts", "MRR before", "MRR after", "drop [95 %]", "fell / rose", "p (sign)",
          "p (photos)", "Holm")  # fmt: skip
ALIKE = ("method", "text and text", "photo and text before", "photo and text after", "BLEU-4",
         "METEOR", "inserted words", "changed", "with new words")  # fmt: skip
MEASURES = ("similarity_text", "similarity_image_original", "similarity_image", "bleu", "meteor",
            "inserted_words", "changed", "novel")  # fmt: skip
AGAINST = ("method", "against", "texts", "MRR of the first", "of the second",
           "difference [95 %]", "below / above", "p (sign)", "p (photos)", "Holm")  # fmt: skip


@dataclass(frozen=True)
class MethodTests:
    """One model's answers with their tests, each computed once.

    Attributes:
        answers: the model's answers to the items of ``benchmark=insertion``.
    """

    answers: InsertionItems

    @cached_property
    def drops(self) -> list[PairedTest]:
        """The drop of each method, among all photos."""
        return compare_changes([self.answers], "mrr_original", "mrr")

    @cached_property
    def kept_drops(self) -> list[PairedTest]:
        """The drop of each method over texts whose right answer is known to be kept."""
        return compare_changes([self.answers], "mrr_original", "mrr", kept_only=True)

    @cached_property
    def batch_drops(self) -> list[PairedTest]:
        """The drop of each method, in batches."""
        return compare_changes([self.answers], "mrr_original_batches", "mrr_batches")

    @cached_property
    def against(self) -> list[PairedTest]:
        """The first method against each other."""
        return compare_methods([self.answers], "mrr", self.answers.methods[0])


def insertion_page(limit: int = LIMIT) -> ModelPage[InsertionItems]:
    """Return the definition of the page.

    Args:
        limit: most texts per method to show, 1 or more.
    """

    def make(answers: Sequence[InsertionItems]) -> _InsertionPageData:
        return _InsertionPageData([MethodTests(answer) for answer in answers], limit)

    return ModelPage("insertion.html", InsertionItems, "texts", make, THUMBNAIL)


def verdicts(one: MethodTests) -> list[str]:
    """Say in one sentence per method how much worse its texts retrieve their photos."""
    kept = {test.method: test for test in one.kept_drops}
    lines = []
    for test in one.drops:
        found = test.test
        line = (
            f"{one.answers.model}, {test.method}: MRR {found.before:.3f} → {found.after:.3f}, "
            f"{_change(test)} over {test.keys:,} texts ({_holm(test)})"
        )
        own, (true, false) = kept.get(test.method), one.answers.judged(test.method)
        # Nothing is known about a method if the only judged texts are those it left unchanged.
        if true + false:
            line += f"; {false:,} of {true + false:,} judged texts are no longer as true as before"
            if own is not None and own.keys < test.keys:
                line += (
                    f"; over the {own.keys:,} that are known to be, {_change(own)} ({_holm(own)})"
                )
        lines.append(f"{line}.")
    return lines


def _holm(test: PairedTest) -> str:
    return f"p = {p_text(test.p_holm)}, Holm"


def _change(test: PairedTest) -> str:
    """Return in words how much a mean fell or rose."""
    mean = test.test.mean
    if mean.mean < 0:
        return f"a rise of {_interval(-mean.mean, -mean.high, -mean.low)}"
    return f"a drop of {_interval(mean.mean, mean.low, mean.high)}"


def _spread(test: PairedTest) -> str:
    """Return a mean difference with its interval."""
    mean = test.test.mean
    return _interval(mean.mean, mean.low, mean.high)


def _interval(mean: float, low: float, high: float) -> str:
    if math.isnan(low):
        return f"{_plain(mean)}"
    return f"{_plain(mean)} [{_plain(low)}, {_plain(high)}]"


def _plain(value: float) -> str:
    return DASH if math.isnan(value) else f"{round(value, 3) + 0.0:.3f}"  # never -0.000


def _cells(test: PairedTest) -> list[str]:
    """Return a test as the cells of a table, after the names."""
    found = test.test
    return [
        f"{test.keys:,}", _plain(found.before), _plain(found.after), _spread(test),
        f"{found.lost:,} / {found.won:,}", p_text(found.p_sign), p_text(test.p),
        p_text(test.p_holm),
    ]  # fmt: skip


class _InsertionPageData:
    """Turns answers into data for the script."""

    def __init__(self, tested: Sequence[MethodTests], limit: int) -> None:
        self.tested = tested
        self.first = tested[0].answers
        self.images: dict[str, str] = {}
        self._places: dict[str, int] = {}
        self._rows = [row for method in self.first.methods for row in self._fallen(method, limit)]

    @property
    def verdicts(self) -> list[str]:
        """A sentence for each model and method."""
        return [line for one in self.tested for line in verdicts(one)]

    @property
    def subtitle(self) -> str:
        """How many of the texts are shown."""
        photos = len(set(self.first.texts("image")))
        texts = len(set(self.first.texts("key")))
        return (
            f"{texts:,} texts about {photos:,} photos; {len(self._rows):,} texts shown, those "
            "whose photo fell most"
        )

    def _fallen(self, method: str, limit: int) -> list[int]:
        """Return the rows of changed texts whose reciprocal ranks fell most over all models."""
        rows = self.first.rows(method)
        rows = rows[self.first.items.metric("changed")[rows] > 0]
        drops = np.mean([one.answers.items.metric("mrr_drop")[rows] for one in self.tested], axis=0)
        found: list[int] = rows[np.argsort(-drops, kind="stable")[:limit]].tolist()
        return found

    def content(self) -> dict[str, Any]:
        """Return everything but the pictures: the script explains its letters."""
        return {
            "models": [one.answers.model for one in self.tested],
            "methods": list(self.first.methods),
            "photos": len(set(self.first.texts("image"))),
            "tables": [list(self._tables(one)) for one in self.tested],
            "texts": [self._text(row) for row in self._rows],
        }

    def _tables(self, one: MethodTests) -> Iterator[dict[str, Any]]:
        """Yield tables: t title, h headers, r rows of texts."""
        every = {
            "Among all photos": one.drops,
            "Among all photos, texts known to be as true as before": self._judged(one),
            "In batches": one.batch_drops,
        }
        for title, tests in every.items():
            if tests:
                yield {"t": title, "h": list(TESTED),
                       "r": [[test.method, *_cells(test)] for test in tests]}  # fmt: skip
        if len(self.first.methods) > 1:
            rows = [[test.method, test.other, *_cells(test)] for test in one.against]
            yield {"t": "Method against method, among all photos", "h": list(AGAINST), "r": rows}
        rows = [[method, *self._measured(one, method)] for method in self.first.methods]
        yield {"t": "Similarity", "h": list(ALIKE), "r": rows}

    def _judged(self, tests: MethodTests) -> list[PairedTest]:
        """Return the drops over texts that stayed true, for methods with any judged text."""
        return [test for test in tests.kept_drops if any(tests.answers.judged(test.method))]

    def _measured(self, tests: MethodTests, method: str) -> Iterator[str]:
        rows = tests.answers.rows(method)
        for name in MEASURES:
            there = name in tests.answers.items.columns
            yield _plain(float(np.mean(tests.answers.items.metric(name)[rows]))) if there else DASH

    def _picture(self, row: int) -> int:
        """Return the number of a text's picture; equal images share one."""
        digest = self.first.texts("image")[row]
        self.images.setdefault(digest, digest)
        return self._places.setdefault(digest, len(self._places))

    def _text(self, row: int) -> dict[str, Any]:
        """Return a text: i item, m method, l label kept, p picture, t texts in pieces, r answers.

        An answer is a model's ranks before and after, and its reciprocal ranks.
        """
        one = self.first
        method = one.texts("method")[row]
        members = (
            Member(one.texts("text_before")[row], "0", ""),
            Member(one.texts("text")[row], "0", "", Edit(method, "", "")),
        )
        return {
            "i": one.texts(ITEM)[row],
            "m": method,
            "l": one.label_kept[row],
            "p": self._picture(row),
            "t": [mark_changes(members, 0), mark_changes(members, 1)],
            "r": [
                [short(own.answers.items.columns[name][row])
                 for name in ("rank_original", "rank", "mrr_original", "mrr")]
                for own in self.tested
            ],
        }  # fmt: skip
