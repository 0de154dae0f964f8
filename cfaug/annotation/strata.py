"""Strata: images grouped by what they should show according to their source.

SocialCounterfactuals, A.3, samples 1,200 images, 100 for each combination of gender and race, so
that a failure of only some labels is neither missed nor diluted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cfaug.annotation.question import ImageItem
from cfaug.annotation.record import picture_example
from cfaug.annotation.sections import ReportSection
from cfaug.core.errors import UserError, name_some
from cfaug.core.messages import say
from cfaug.core.rng import derive
from cfaug.core.validation import Positive, check_fields
from cfaug.report.numbers import percent

if TYPE_CHECKING:
    from cfaug.annotation.findings import Findings
    from cfaug.data.index import Index

Stratum = Mapping[str, str]
"""What an image should show according to its source: {attribute: value}."""

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
    offered: Mapping[str, Stratum] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, "annotate.question.strata")

    def mark(self, index: Index, items: Sequence[ImageItem]) -> list[ImageItem]:
        """Return the items to ask about, each with its stratum.

        Args:
            index: the index of the items' source.
            items: all possible items of the source.

        Raises:
            UserError: if the source lacks a column, an image has no value there, an attribute of
                ``offered`` is missing, or no image is left.
        """
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
        found: list[Any] = index.extra(name).to_pylist()
        return found

    def _stratum(self, value: Any, index: Index, item: ImageItem) -> tuple[tuple[str, str], ...]:
        try:
            found = json.loads(value) if isinstance(value, str) and value[:1] == "{" else value
        except ValueError:
            found = value
        if found in (None, "", {}):
            raise UserError(
                f"{index.source}: {item.name} does not say what it should show: its "
                f"{self.column} is missing"
            )
        named = found.items() if isinstance(found, dict) else [(self.column, found)]
        stratum = tuple((str(name), str(one)) for name, one in named)
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

        Args:
            items: the items, with their strata.
            seed: the seed of the draw.
        """
        if self.each is None:
            return list(items)
        keys = {item.name: derive(seed, "stratum", item.name) for item in items}
        taken = Counter[tuple[tuple[str, str], ...]]()
        chosen = set()
        for item in sorted(items, key=lambda one: keys[one.name]):
            taken[item.stratum] += 1
            if taken[item.stratum] <= self.each:
                chosen.add(item.name)
        few = [name_stratum(one) for one, count in taken.items() if count < self.each]
        if few:
            say(
                f"fewer than {self.each} images of {len(few)} of {len(taken)} strata, so all of "
                f"these are used: {name_some(sorted(few))}"
            )
        return [item for item in items if item.name in chosen]


def name_stratum(stratum: Sequence[tuple[str, str]]) -> str:
    """Return the name of a stratum in tables and messages.

    >>> name_stratum((("race", "White"), ("gender", "male")))
    'White, male'
    """
    return ", ".join(value for _, value in stratum)


def count_strata(findings: Findings, strata: Strata) -> ReportSection:
    """Count outcomes by stratum: a section of the report, and the data for tables.

    An image with several answers counts once, in equal parts.

    Args:
        findings: the answers.
        strata: the strata of the question.
    """
    counts: dict[tuple[tuple[str, str], ...], Counter[str]] = {}
    images = Counter[tuple[tuple[str, str], ...]]()
    for i in findings.by_item:
        stratum, outcomes = findings.items[i].stratum, findings.outcomes_of(i)
        images[stratum] += 1
        own = counts.setdefault(stratum, Counter())
        for outcome in outcomes:
            own[outcome] += 1 / len(outcomes)  # type: ignore[assignment]
    order = [s for s in dict.fromkeys(item.stratum for item in findings.items) if images[s]]
    names = findings.question.reported
    wording = findings.question.wording

    def shares(stratum: tuple[tuple[str, str], ...]) -> list[str]:
        return [percent(counts[stratum][name] / images[stratum], 1) for name in names]

    return ReportSection(
        title="By what the captions asked for",
        columns=("asked for", "images", *(f"{wording(name)}, %" for name in names)),
        rows=tuple((name_stratum(s), f"{images[s]:,}", *shares(s)) for s in order),
        data={
            STRATA: {
                "offered": {label: dict(of) for label, of in strata.offered.items()},
                "tallies": [
                    {
                        "stratum": dict(s),
                        "images": images[s],
                        "counts": {name: counts[s][name] for name in names},
                    }
                    for s in order
                ],
            }
        },
    )


def illustrate(findings: Findings, read_image: Callable[[int], bytes]) -> ReportSection:
    """Save some example images of each outcome in ``Question.illustrated``.

    An image is an example of an outcome if all its answers agree; examples are drawn by key.

    Args:
        findings: the answers.
        read_image: a function that returns the encoded image of a row of the source.
    """
    examples = []
    for outcome in findings.question.illustrated:
        own = [i for i in findings.by_item if set(findings.outcomes_of(i)) == {outcome}]
        keys = {i: derive(0, "illustration", findings.items[i].name) for i in own}
        for i in sorted(own, key=keys.__getitem__)[:SHOWN]:
            examples.append(picture_example(findings, findings.question, outcome, i, read_image))
    return ReportSection(
        title="Examples",
        notes=(f"{len(examples)} images are kept as examples for tables.",),
        data={ILLUSTRATIONS: [asdict(one) for one in examples]},
    )
