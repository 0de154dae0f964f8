"""Attribute templates: one subject, every combination of attributes (SocialCounterfactuals, 2.1).

A set is a grid such as race x gender of one occupation; its texts differ only in the attributes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from cfaug.core.articles import right_articles
from cfaug.core.errors import UserError
from cfaug.core.grids import ATTRIBUTES, attribute_combinations, grid_edit
from cfaug.core.types import Edited, Example, Proposal
from cfaug.editing.sentence import normalise

_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")


class AttributeGrid:
    """An editor that turns each example into the texts of every combination of its attributes.

    The examples are those of ``caption_grids``: a text with attributes in braces, such
    as "A photo of a {race} {gender} doctor", and in ``extra["attributes"]`` the values of each
    attribute with their words in captions. The first combination is the base.

    Attributes:
        takes_grids: whether the editor takes such examples; other editors take captions.
    """

    takes_grids: ClassVar[bool] = True

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal for each example; the first attribute is the outer loop.

        Raises:
            UserError: if an example is not a grid.
        """
        return [Edited((_propose(one),)) for one in examples]

    def describe(self) -> dict[str, str]:
        """Return an empty mapping: a plain rule."""
        return {}


def _propose(example: Example) -> Proposal:
    said = _attributes(example)
    grid = attribute_combinations({name: list(values) for name, values in said.items()})
    texts = []
    for one in grid:
        words = {name: said[name][value] for name, value in one.items()}
        texts.append(fill(example.text, words))
    return Proposal(
        example,
        texts=tuple(texts),
        edits=tuple(grid_edit(grid[0], one) for one in grid),
        details=tuple({ATTRIBUTES: one} for one in grid),
    )


def _attributes(example: Example) -> dict[str, dict[str, str]]:
    """Return the values of each attribute of an example, and their words in captions."""
    found = example.extra.get(ATTRIBUTES)
    named = placeholders(example.text, f"example {example.key!r}")
    valid = isinstance(found, Mapping) and all(isinstance(one, Mapping) for one in found.values())
    if not found or not valid or sorted(named) != sorted(found):
        raise UserError(
            f"example {example.key!r}: {example.text!r} is not a grid of attributes: name one with "
            "data.grid=NAME or data.grid=FILE.yaml in place of data.source"
        )
    return {name: dict(values) for name, values in found.items()}


def placeholders(template: str, where: str) -> list[str]:
    """Return the names that a template has in braces, in order.

    Args:
        template: the template.
        where: the place of the template that errors name, such as ``FILE: neutral``.

    Raises:
        UserError: if braces contain anything other than a name.

    >>> placeholders("a {race} {gender} doctor", "")
    ['race', 'gender']
    """
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        raise UserError(
            f"{where}: {template!r} is invalid: braces hold a name, such as {{subject}}"
        )
    return _PLACEHOLDER.findall(template)


def fill(template: str, words: Mapping[str, str]) -> str:
    """Replace names by their words, and write "a" or "an" according to the next word.

    Args:
        template: a text with names in braces; names that are not in ``words`` stay.
        words: {name: words}.

    >>> fill("{prefix} a {race} {subject}", {"prefix": "", "race": "Asian", "subject": "umpire"})
    'an Asian umpire'
    """
    filled = _PLACEHOLDER.sub(lambda found: words.get(found[1], found[0]), template)
    return right_articles(normalise(filled))
