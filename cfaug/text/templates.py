"""Attribute templates: one subject, every combination of attributes (SocialCounterfactuals, 3.1).

A set is a grid such as race x gender over one occupation; its texts differ in the attributes only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from string import Formatter

from cfaug.errors import UserError
from cfaug.text.sentence import copy_article_case, indefinite_article, normalise
from cfaug.types import Edit, Edited, Example, Proposal

SUBJECT = "subject"
_ARTICLE = re.compile(r"\b(an?) (\w)", re.IGNORECASE)


@dataclass(frozen=True)
class AttributeGrid:
    """An editor that makes of each subject the texts of every combination of attributes.

    The text of an example is its subject, such as an occupation.

    Args:
        attributes: names and values, the outer loop first, such as ``{"race": ["White", "Black"],
            "gender": ["male", "female"]}``. The first value of each makes the base text.
        template: with every attribute's name and ``subject`` in braces, and "a" where an article
            belongs: "an" is written where the next word wants it.

    Raises:
        UserError: if the template does not name every attribute once, a value is empty or
            duplicated, or there is only one combination.
    """

    attributes: Mapping[str, Sequence[str]]
    template: str = "a photo of a {race} {gender} {subject}"

    def __post_init__(self) -> None:
        try:
            fields = [
                name for _, name, _, _ in Formatter().parse(self.template) if name is not None
            ]
        except ValueError as error:
            raise UserError(f"template {self.template!r}: {error}") from error
        wanted = sorted([*self.attributes, SUBJECT])
        if sorted(fields) != wanted:
            raise UserError(
                f"template {self.template!r} has {', '.join(fields) or 'nothing'} in braces; "
                f"it must have each of {', '.join(wanted)} once"
            )
        for name, values in self.attributes.items():
            lowered = [value.lower() for value in values]
            duplicated = sorted({v for v in lowered if lowered.count(v) > 1})
            if duplicated or not values or not all(v.strip() for v in values):
                what = f"has a duplicated value, {duplicated[0]!r}" if duplicated else "is empty"
                raise UserError(f"{name} {what}: every value names another text")
        if len(self._grid) < 2:
            raise UserError("a grid of one text has no counterfactual: give more attribute values")

    @property
    def _grid(self) -> list[dict[str, str]]:
        every = product(*self.attributes.values())
        return [dict(zip(self.attributes, values, strict=True)) for values in every]

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal for each example; texts in the order of the attributes' product."""
        return [Edited((self._propose(one),)) for one in examples]

    def describe(self) -> dict[str, str]:
        """Return nothing: a plain rule."""
        return {}

    def _propose(self, example: Example) -> Proposal:
        grid = self._grid
        return Proposal(
            example,
            texts=tuple(self._text(example.text, values) for values in grid),
            edits=tuple(_edit(grid[0], values) for values in grid),
            extra={"subject": example.text, "attributes": grid},
            details=tuple(grid),
        )

    def _text(self, subject: str, values: Mapping[str, str]) -> str:
        filled = normalise(self.template.format(**values, **{SUBJECT: subject}))
        return right_articles(filled)


def right_articles(text: str) -> str:
    """Write "a" or "an" as the next word wants it.

    >>> right_articles("A photo of a Indian male an barber")
    'A photo of an Indian male a barber'
    """

    def right(match: re.Match[str]) -> str:
        word = re.match(r"[\w-]+", text[match.start(2) :])
        article = indefinite_article(word.group() if word else match[2])
        if article == match[1].lower():
            return match[0]
        return f"{copy_article_case(article, match[1])} {match[2]}"

    return _ARTICLE.sub(right, text)


def _edit(base: Mapping[str, str], values: Mapping[str, str]) -> Edit | None:
    changed = [name for name in base if base[name] != values[name]]
    if not changed:
        return None
    before, after = (" ".join(which[name] for name in changed) for which in (base, values))
    return Edit("+".join(changed), before, after)
