"""Attribute grids: the record of a member, and the labellings of a grid."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from types import MappingProxyType
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.types import Edit

# The record of a member of an attribute grid, the same for every source of sets.
#
# A grid is every combination of attributes over one subject: race x gender of a doctor, colour x
# background of a ball (SocialCounterfactuals, section 2.1). Code that writes such a set writes
# these records, and code that asks about it reads them; captions are never parsed for labels.

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


def require_attributes(attributes: object, where: str) -> dict[str, str]:
    """Return the attributes if they are valid."""
    if not isinstance(attributes, Mapping) or not attributes:
        raise UserError(f"{where}: attributes should map names to values, not {attributes!r}")
    for name, value in attributes.items():
        if not isinstance(name, str) or not isinstance(value, str) or not (name and value.strip()):
            raise UserError(f"{where}: the attribute {name!r} should be a text, not {value!r}")
    return dict(attributes)


def attribute_combinations(attributes: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Return every combination of values, the first attribute in the outer loop.

    >>> attribute_combinations({"race": ["White", "Black"], "gender": ["male", "female"]})[1]
    {'race': 'White', 'gender': 'female'}
    """
    values = product(*attributes.values())
    return [dict(zip(attributes, value, strict=True)) for value in values]


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

    >>> grid_key("A photo of", "race_gender", "Police Officer"), grid_key("", "race_gender", "CEO")
    ('a_photo_of_race_gender_police_officer', 'race_gender_ceo')
    """
    words = (re.sub(r"[^a-z0-9-]+", "_", t.lower()).strip("_") for t in (prefix, grid, subject))
    return "_".join(filter(None, words))


# Labellings: the attributes of a grid that serve as labels of a ranking.

GIVEN, EQUALS = "|", "="


@dataclass(frozen=True)
class Labelling:
    """The label of each image, and the images that are ranked.

    Attributes:
        name: the labelling's name: ``gender`` (marginal), ``race_gender`` (intersectional), or
            ``gender|race=White``, which is gender among the images of one race (conditional).
        given: the attribute values that all ranked images share; empty ranks all images.
    """

    name: str
    attributes: tuple[str, ...]
    given: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "given", MappingProxyType(dict(self.given)))


Values = Mapping[str, Sequence[str]]
"""The values of a grid's attributes by name."""


def usual_labellings(values: Values) -> list[Labelling]:
    """Return the labellings by all attributes, by each, and by each given a value of another.

    In the figures of SocialCounterfactuals, Figures 2 (left) and 5 have intersectional labels,
    Figure 3 marginal ones, and Figure 2 (right) gender among the images of each race. Attributes
    with a single value are left out.

    >>> values = {"hue": ["red", "blue"], "size": ["big", "small"]}
    >>> [labelling.name for labelling in usual_labellings(values)]
    ... # doctest: +NORMALIZE_WHITESPACE
    ['hue_size', 'hue', 'size', 'hue|size=big', 'hue|size=small', 'size|hue=red', 'size|hue=blue']
    """
    names = [name for name, some in values.items() if len(some) > 1]
    labellings = [Labelling("_".join(names), tuple(names))] if len(names) > 1 else []
    labellings += [Labelling(name, (name,)) for name in names]
    for name in names:
        others = (other for other in names if other != name)
        labellings += [
            labelling
            for other in others
            for labelling in _conditional((name,), other, None, values)
        ]
    return labellings


def find_labellings(values: Values, names: Sequence[str] | None) -> list[Labelling]:
    """Return the requested labellings that the grid has.

    Args:
        names: the names of labellings; ``gender|race`` stands for every value of race. ``None``
            requests the usual ones.
    """
    if names is None:
        return usual_labellings(values)
    by_name = _by_name(values)
    labellings: dict[str, Labelling] = {}
    for name in names:
        label, bar, condition = name.partition(GIVEN)
        attributes = by_name.get(label)
        if attributes is None:
            continue
        some = [Labelling(label, attributes)]
        if bar:
            other, equals, value = condition.partition(EQUALS)
            some = _conditional(attributes, other, value if equals else None, values)
        labellings |= {labelling.name: labelling for labelling in some}
    return list(labellings.values())


def require_labellings(grids: Mapping[str, Values], names: Sequence[str] | None) -> None:
    """Refuse a labelling that no grid has.

    Args:
        grids: the values of each grid's attributes, by the grid's name.
        names: the names that ``find_labellings`` takes.
    """
    if names is not None and not names:
        raise UserError("benchmark.labellings=[] is invalid: name some, or null for the usual")
    if names is None and not any(map(usual_labellings, grids.values())):
        raise UserError(f"the grids {', '.join(grids)} have no attribute of two values: no labels")
    for name in names or ():
        if any(find_labellings(values, [name]) for values in grids.values()):
            continue
        choices: dict[str, None] = {}
        for values in grids.values():
            conditional = (f"{a}{GIVEN}{b}" for a in values for b in values if a != b)
            choices |= dict.fromkeys([*_by_name(values), *conditional])
        raise UserError(
            f"benchmark.labellings: {name!r} is invalid: choose from {', '.join(choices)}"
        )


def _by_name(values: Values) -> dict[str, tuple[str, ...]]:
    """Return every combination of attributes, by its labelling's name."""
    by_name: dict[str, tuple[str, ...]] = {}
    for length in range(1, len(values) + 1):
        for some in combinations(values, length):
            name = "_".join(some)
            if by_name.setdefault(name, some) != some:
                raise UserError(
                    f"the labelling {name!r} may be {' and '.join(some)} or "
                    f"{' and '.join(by_name[name])}: give the grid's attributes other names"
                )
    return by_name


def _conditional(
    attributes: tuple[str, ...], other: str, value: str | None, values: Values
) -> list[Labelling]:
    """Return a labelling for one value of another attribute, or for each."""
    if other in attributes or other not in values:
        return []
    chosen = [option for option in values[other] if value in (None, option)]
    label = "_".join(attributes)
    return [
        Labelling(f"{label}{GIVEN}{other}{EQUALS}{option}", attributes, {other: option})
        for option in chosen
    ]
