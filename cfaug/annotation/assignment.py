"""The assignment of images to annotators, and their order, drawn by key to be reproducible.

COCO-CFs, section 4.1: every image is shown to at least one annotator, a tenth of them to three, so
34,820 images make 34,820 + 2 x 3,482 = 41,784 questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Interval

from cfaug.annotation.findings import ReportSection
from cfaug.annotation.question import AnnotationQuestion, ImageItem, draw_each
from cfaug.annotation.record import picture_example
from cfaug.core.binding import GIVEN, ReadWith
from cfaug.core.errors import UserError, name_some, say
from cfaug.core.rng import derive, generator
from cfaug.core.safety.json_text import load_json
from cfaug.core.validation import Positive, Seed, Share, check_fields
from cfaug.data.mixture.records import decimal, half_up
from cfaug.report.page import percent

if TYPE_CHECKING:
    from cfaug.annotation.findings import Findings
    from cfaug.data.index import Index


PREFIX = "annotate.assignment."
"""Prefix of the settings below on the command line."""


def items_of(index: Index, question: AnnotationQuestion) -> list[ImageItem]:
    """Return all items of a source for a question, in order.

    That is every image, or with ``show_caption`` every caption of every image.
    """
    items: list[ImageItem] = []
    starts = [0, *(np.flatnonzero(np.diff(index.sets)) + 1).tolist(), len(index)]
    for first, end in pairwise(starts):
        rows = range(first, end)
        names, images = [index.key(row) for row in rows], index.images[first:end].tolist()
        key = names[0].rpartition("_")[0]
        if question.captions or question.pictures == "set":
            count = len(question.captions) or len(names)
            whole = names == [f"{key}_{number}" for number in range(count)]
            if not whole or len(set(images)) < count:
                hint = ""
                if len(set(images)) == len(names) > count:
                    others = ",".join(f"edited_{number}" for number in range(1, len(names)))
                    hint = (
                        f"; annotate.question.captions=[original,{others}] offers those of "
                        f"{len(names)} images"
                    )
                raise UserError(
                    f"{index.source}: set {key!r} does not have {count} captions with an image "
                    f"each, which the question {question.title!r} compares{hint}"
                )
        texts = tuple(index.text(row) for row in rows)
        known: set[int] = set()
        for row, name, image, text in zip(rows, names, images, texts, strict=True):
            if question.show_caption or image not in known:
                known.add(image)
                items.append(ImageItem(key, int(name.rpartition("_")[2]), texts, row, text))
    return items if question.strata is None else question.strata.mark(index, items)


@dataclass(frozen=True)
class Assignment:
    """The distribution of the images over annotators.

    Args:
        annotators: number of people who answer; their names are 1, 2, ...
        annotators_per_item: number of annotators who answer each image of the overlap; the other
            images are answered once.
        overlap_fraction: share of the images that several people answer, to measure agreement.
        sample: number of images to ask about, drawn at random; ``None`` for all.

    Raises:
        UserError: if a value is out of range.
    """

    annotators: Annotated[int, Interval(ge=1, le=1000)] = 3
    annotators_per_item: int = 3
    overlap_fraction: Share = 0.1
    sample: Positive | None = None
    seed: Seed = 0

    read_with: ClassVar[ReadWith] = {"annotators_per_item": {"overlap_fraction": GIVEN}}

    def __post_init__(self) -> None:
        check_fields(self, "annotate.assignment")
        share, several = self.overlap_fraction, self.annotators_per_item
        if several < 2:
            raise _invalid(
                "annotators_per_item", several,
                f"agreement needs 2 or more; {PREFIX}overlap_fraction=0 asks everything once",
            )  # fmt: skip
        if share > 0 and several > self.annotators:
            raise _invalid(
                "annotators_per_item", several,
                f"{PREFIX}annotators={self.annotators} people answer; raise that, lower this, or "
                f"set {PREFIX}overlap_fraction=0",
            )  # fmt: skip

    def choose_items(self, items: Sequence[ImageItem]) -> list[ImageItem]:
        """Return the images to ask about, in the order of the source."""
        if self.sample is None or self.sample >= len(items):
            return list(items)
        return [items[i] for i in sorted(self._first(items, self.sample, "sample"))]

    def choose_overlap(self, items: Sequence[ImageItem]) -> set[int]:
        """Return the indices of the images that several people answer.

        Their number is the share of the images, rounded half up: 3,482 of 34,820.
        """
        count = half_up(decimal(self.overlap_fraction) * len(items))
        return set(self._first(items, count, "overlap"))

    def _first(self, items: Sequence[ImageItem], count: int, stream: str) -> list[int]:
        keys = [derive(self.seed, stream, item.name) for item in items]
        return sorted(range(len(items)), key=keys.__getitem__)[:count]

    def distribute(
        self, items: Sequence[ImageItem], to_everyone: Collection[int] = ()
    ) -> list[list[int]]:
        """Return the indices of every annotator's images, in the order shown.

        Loads differ by at most one. The group of annotators is drawn independently for each image.

        Args:
            to_everyone: indices of images that all annotators answer, such as those of a screening.
        """
        several = self.choose_overlap(items)
        # Images with several annotators come first, so that single ones can even out the loads.
        order = sorted(range(len(items)), key=lambda i: (i not in to_everyone, i not in several))
        load = np.zeros(self.annotators, np.int64)
        assigned: list[list[int]] = [[] for _ in range(self.annotators)]
        for i in order:
            chance = generator(self.seed, "who", items[i].name).random(self.annotators)
            count = self.annotators_per_item if i in several else 1
            count = self.annotators if i in to_everyone else count
            for who in np.lexsort((chance, load))[:count].tolist():
                load[who] += 1
                assigned[who].append(i)
        return [
            sorted(indices, key=lambda i, who=who: derive(self.seed, "order", who, items[i].name))  # type: ignore[misc]
            for who, indices in enumerate(assigned, 1)
        ]

    def is_reversed(self, annotator: int, item: ImageItem) -> bool:
        """Return whether an annotator sees the offered captions of an image in reverse order.

        The order is drawn for each annotator and image, so that a habit of choosing the first
        caption favours neither.
        """
        return derive(self.seed, "side", annotator, item.name) % 2 == 1

    def reversed_half(self, annotator: int, items: Sequence[ImageItem]) -> set[str]:
        """Return the names of the images whose captions an annotator sees in reverse order.

        Half of the images are drawn by key; half of an odd number is rounded down.

        Args:
            annotator: the number of the annotator, from 1.
        """
        drawn = sorted(items, key=lambda item: derive(self.seed, "half", annotator, item.name))
        return {item.name for item in drawn[: len(drawn) // 2]}


def _invalid(name: str, value: object, choices: str) -> UserError:
    return UserError(f"{PREFIX}{name}={value} is invalid: {choices}")


# Strata: images grouped by what they should show according to their source.
#
# SocialCounterfactuals, A.3, samples 1,200 images, 100 for each combination of gender and race, so
# that a failure of only some labels is neither missed nor diluted.

STRATA, ILLUSTRATIONS = "strata", "illustrations"
"""Keys of ``annotation.json`` for the counts and for the examples."""
SHOWN = 3
"""Maximum number of examples of an outcome."""


@dataclass(frozen=True)
class Strata:
    """Divides images by what they should show according to their source.

    Args:
        column: the column of the source that holds the stratum: an object of attributes and values,
            or a text.
        each: number of images of each stratum to ask about, drawn at random; ``None`` for all.
        only: {column: value}, the values that an image must have to be included.
        offered: {answer: {attribute: value}}, answers that fit only some strata and are offered
            only for their images.

    Raises:
        UserError: if ``each`` is not a whole number from 1.
    """

    column: str
    each: Positive | None = None
    only: Mapping[str, str] = field(default_factory=dict)
    offered: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, "annotate.question.strata")

    def mark(self, index: Index, items: Sequence[ImageItem]) -> list[ImageItem]:
        """Return the items to ask about, each with its stratum."""
        wanted = {name: self._column(index, name) for name in self.only}
        kept = [
            item
            for item in items
            if all(str(wanted[name][item.row]) == value for name, value in self.only.items())
        ]
        if not kept:
            asked = ", ".join(f"{name}={value}" for name, value in self.only.items())
            raise UserError(
                f"{index.source}: none of {len(items):,} images has {asked or 'a stratum'}: choose "
                "others with annotate.question.strata.only.COLUMN=VALUE"
            )
        values = self._column(index, self.column)
        return [
            replace(item, stratum=self._stratum(values[item.row], index, item)) for item in kept
        ]

    def _column(self, index: Index, name: str) -> list[Any]:
        if name not in index.extra_names:
            raise UserError(
                f"{index.source} does not say what its images should show: it lacks the column "
                f"{name!r} and has {', '.join(index.extra_names) or 'none'}; name sets that "
                "`python generate.py recipe=social` made, or another column with "
                "annotate.question.strata.column=NAME"
            )
        column: list[Any] = index.extra(name).to_pylist()
        return column

    def _stratum(self, value: Any, index: Index, item: ImageItem) -> tuple[tuple[str, str], ...]:
        try:
            content = load_json(value) if isinstance(value, str) and value[:1] == "{" else value
        except ValueError:
            content = value
        if content in (None, "", {}):
            raise UserError(
                f"{index.source}: {item.name} does not say what it should show: its "
                f"{self.column} is missing"
            )
        named = content.items() if isinstance(content, dict) else [(self.column, content)]
        stratum = tuple((str(name), str(part)) for name, part in named)
        missing = {name for asked in self.offered.values() for name in asked} - dict(stratum).keys()
        if missing:
            raise UserError(
                f"{index.source}: {item.name} has no {missing.pop()!r} among its {self.column} "
                f"({', '.join(dict(stratum))}), which an answer is about; ask about images of one "
                "grid with annotate.question.strata.only.grid=NAME, or write a question of your own"
            )
        return stratum

    def offers(self, item: ImageItem, label: str) -> bool:
        """Return whether an answer fits an image."""
        has = dict(item.stratum)
        return all(has.get(n) == value for n, value in self.offered.get(label, {}).items())

    def draw(self, items: Sequence[ImageItem], seed: int) -> list[ImageItem]:
        """Return ``each`` images from every stratum, in the order of the source.

        Images are drawn by key, so that an image's selection does not depend on other strata.
        """
        if self.each is None:
            return list(items)
        chosen = draw_each(items, [item.stratum for item in items], self.each, seed, "stratum")
        sizes = Counter(item.stratum for item in items)
        few = [name_stratum(stratum) for stratum, count in sizes.items() if count < self.each]
        if few:
            say(
                f"fewer than {self.each} images of {len(few)} of {len(sizes)} strata, so all of "
                f"these are used: {name_some(sorted(few))}"
            )
        return chosen


def name_stratum(stratum: Sequence[tuple[str, str]]) -> str:
    """Return the name of a stratum in tables and messages.

    >>> name_stratum((("race", "White"), ("gender", "male")))
    'White, male'
    """
    return ", ".join(value for _, value in stratum)


def count_strata(findings: Findings, strata: Strata) -> ReportSection:
    """Count outcomes by stratum: a section of the report, and the data for tables.

    An image with several answers counts once, in equal parts.
    """
    names = findings.question.reported
    wording = findings.question.wording
    order = dict.fromkeys(item.stratum for item in findings.items)
    counts: dict[tuple[tuple[str, str], ...], dict[str, float]] = {
        stratum: dict.fromkeys(names, 0) for stratum in order
    }
    images = Counter[tuple[tuple[str, str], ...]]()
    for i in findings.by_item:
        stratum, outcomes = findings.items[i].stratum, findings.outcomes_of(i)
        images[stratum] += 1
        for outcome in outcomes:
            counts[stratum][outcome] += 1 / len(outcomes)
    answered = [stratum for stratum in order if images[stratum]]
    rows = []
    for stratum in answered:
        shares = (percent(counts[stratum][name] / images[stratum], 1) for name in names)
        rows.append((name_stratum(stratum), f"{images[stratum]:,}", *shares))
    return ReportSection(
        title="By what the captions asked for",
        columns=("asked for", "images", *(f"{wording(name)}, %" for name in names)),
        rows=tuple(rows),
        data={
            STRATA: {
                "offered": {label: dict(of) for label, of in strata.offered.items()},
                "tallies": [
                    {"stratum": dict(s), "images": images[s], "counts": counts[s]} for s in answered
                ],
            }
        },
    )


def illustrate(findings: Findings, read_image: Callable[[int], bytes]) -> ReportSection:
    """Save some example images of each outcome in ``Question.illustrated``.

    An image is an example of an outcome if all its answers agree; examples are drawn by key.
    """
    examples = []
    for outcome in findings.question.illustrated:
        indices = [i for i in findings.by_item if set(findings.outcomes_of(i)) == {outcome}]
        keys = {i: derive(0, "illustration", findings.items[i].name) for i in indices}
        for i in sorted(indices, key=keys.__getitem__)[:SHOWN]:
            examples.append(picture_example(findings, findings.question, outcome, i, read_image))
    return ReportSection(
        title="Examples",
        notes=(f"{len(examples)} images are kept as examples for tables.",),
        data={ILLUSTRATIONS: [asdict(example) for example in examples]},
    )
