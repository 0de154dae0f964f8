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
from cfaug.types import Edit, Example, Proposal

SUBJECT = "subject"
_ARTICLE = re.compile(r"\b(an?) (\w)", re.IGNORECASE)


@dataclass(frozen=True)
class AttributeGrid:
    """Texts of every combination of attributes, one set a subject.

    Args:
        attributes: names and values, the outer loop first, such as ``{"race": ["White", "Black"],
            "gender": ["male", "female"]}``. The first value of each makes the base text.
        subjects: one set each, such as occupations.
        template: with every attribute's name and ``subject`` in braces, and "a" where an article
            belongs: "an" is written where the next word wants it.
    """

    attributes: Mapping[str, Sequence[str]]
    subjects: Sequence[str]
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
        for name, values in {**self.attributes, SUBJECT: self.subjects}.items():
            lowered = [value.lower() for value in values]
            twice = sorted({v for v in lowered if lowered.count(v) > 1})
            if twice or not values or not all(v.strip() for v in values):
                what = f"has {twice[0]!r} twice" if twice else "has an empty value, or none"
                raise UserError(f"{name} {what}: every value names another text")

    def sets(self) -> list[Proposal]:
        """Return one set a subject; texts in the order of the attributes' product."""
        grid = [
            dict(zip(self.attributes, values, strict=True))
            for values in product(*self.attributes.values())
        ]
        if len(grid) < 2:
            raise UserError("a grid of one text has no counterfactual: give more attribute values")
        return [self._set(subject, grid) for subject in self.subjects]

    def _set(self, subject: str, grid: Sequence[Mapping[str, str]]) -> Proposal:
        key = re.sub(r"[^a-z0-9]+", "-", f"{subject}-{'-'.join(self.attributes)}".lower()).strip(
            "-"
        )
        texts = tuple(self._text(subject, values) for values in grid)
        return Proposal(
            Example(key, key, texts[:1]),
            texts,
            edits=tuple(_edit(grid[0], values) for values in grid),
            extra={"subject": subject, "attributes": [dict(values) for values in grid]},
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
