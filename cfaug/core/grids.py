"""The record of a member of an attribute grid, the same for every source of sets.

A grid is every combination of attributes over one subject: race x gender of a doctor, colour x
background of a ball (SocialCounterfactuals, section 2.1). Code that writes such a set writes
these records, and code that asks about it reads them; captions are never parsed for labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.types import Edit

SUBJECT, SUBJECT_TYPE, GRID = "subject", "subject_type", "grid"
PREFIX, NEUTRAL, ATTRIBUTES = "prefix", "neutral", "attributes"
TEXTS = (SUBJECT, SUBJECT_TYPE, GRID, PREFIX, NEUTRAL)
"""Names in a member's ``extra`` whose value is a text."""


@dataclass(frozen=True)
class GridMember:
    """The attributes of one image of a grid, as its caption asked a generator for them.

    Attributes:
        subject: the subject, such as "doctor".
        subject_type: the kind of subject, such as "occupation".
        grid: the grid's name, such as "race_gender".
        prefix: the beginning of the caption, such as "A photo of"; may be empty.
        neutral: the caption without attributes, such as "A photo of a doctor".
        attributes: the attributes' values by name, in the order of the grid.

    Raises:
        UserError: if a field is not text or is empty (a prefix may be), or attributes are missing.
    """

    subject: str
    subject_type: str
    grid: str
    prefix: str
    neutral: str
    attributes: Mapping[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", MappingProxyType(dict(self.attributes)))
        for name in TEXTS:
            value = getattr(self, name)
            if not isinstance(value, str) or not (value.strip() or name == PREFIX):
                raise UserError(f"a member of a grid: {name} should be a text, not {value!r}")
        require_attributes(self.attributes, "a member of a grid")

    @property
    def extra(self) -> dict[str, Any]:
        """The record of this member in ``cfaug.core.types.Member.extra``, as JSON."""
        texts = {name: getattr(self, name) for name in TEXTS}
        return {**texts, ATTRIBUTES: dict(self.attributes)}


def require_attributes(found: object, where: str) -> dict[str, str]:
    """Return the attributes if they are valid.

    Args:
        found: a mapping from names to values.
        where: the place that errors name.

    Raises:
        UserError: naming ``where``, if there is none, or a name or value is empty or not text.
    """
    if not isinstance(found, Mapping) or not found:
        raise UserError(f"{where}: attributes should map names to values, not {found!r}")
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, str) or not (name and value.strip()):
            raise UserError(f"{where}: the attribute {name!r} should be a text, not {value!r}")
    return dict(found)


def attribute_combinations(attributes: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Return every combination of values, the first attribute in the outer loop.

    Args:
        attributes: the values of each attribute by its name.

    >>> combinations({"race": ["White", "Black"], "gender": ["male", "female"]})[1]
    {'race': 'White', 'gender': 'female'}
    """
    values = product(*attributes.values())
    return [dict(zip(attributes, one, strict=True)) for one in values]


def grid_edit(base: Mapping[str, str], values: Mapping[str, str]) -> Edit | None:
    """Return the edit that turns the base into a member; ``None`` for the base itself.

    Args:
        base: the attributes of the first member.
        values: the attributes of another member, with the same names.

    >>> white_man = {"race": "White", "gender": "male"}
    >>> grid_edit(white_man, {"race": "Black", "gender": "female"})
    Edit(kind='race_gender', before='White male', after='Black female')
    """
    changed = [name for name in base if base[name] != values[name]]
    if not changed:
        return None
    before, after = (" ".join(which[name] for name in changed) for which in (base, values))
    return Edit("_".join(changed), before, after)


def grid_key(prefix: str, grid: str, subject: str) -> str:
    """Return the key of a set, as SocialCounterfactuals names its files.

    Args:
        prefix: the beginning of the set's captions; may be empty.
        grid: the grid's name.
        subject: the subject, such as an occupation.

    >>> grid_key("A photo of", "race_gender", "Police Officer"), grid_key("", "race_gender", "CEO")
    ('a_photo_of_race_gender_police_officer', 'race_gender_ceo')
    """
    return "_".join(filter(None, map(_slug, (prefix, grid, subject))))


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "_", text.lower()).strip("_")
