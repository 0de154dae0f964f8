"""Strata: images grouped by what they should show according to their source.

SocialCounterfactuals, A.3, samples 1,200 images, 100 for each combination of gender and race, so
that a failure of only some labels is neither missed nor diluted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cfaug.annotation.records import ImageItem, draw_each
from cfaug.core.errors import UserError, name_some, say
from cfaug.core.safety.json_text import load_json
from cfaug.core.validation import Positive, check_fields

if TYPE_CHECKING:
    from cfaug.data.index import Index


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
            described = ", ".join(f"{name}={value}" for name, value in self.only.items())
            raise UserError(
                f"{index.source}: none of {len(items):,} images has {described or 'a stratum'}: "
                "choose others with annotate.question.strata.only.COLUMN=VALUE"
            )
        values = self._column(index, self.column)
        offered = {name for names in self.offered.values() for name in names}
        marked = []
        for item in kept:
            value = values[item.row]
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
            missing = offered - dict(stratum).keys()
            if missing:
                raise UserError(
                    f"{index.source}: {item.name} has no {missing.pop()!r} among its {self.column} "
                    f"({', '.join(dict(stratum))}), which an answer is about; ask about images of "
                    "one grid with annotate.question.strata.only.grid=NAME, or write a question of "
                    "your own"
                )
            marked.append(replace(item, stratum=stratum))
        return marked

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
