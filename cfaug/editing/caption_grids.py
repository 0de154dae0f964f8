"""Grids of captions as files: prefixes x subjects x every combination of attributes.

One file describes one grid (SocialCounterfactuals, section 2.1). The grids of the paper are shipped
in ``caption_grids/``, and users' files have the same form::

    subject_type: occupation
    subjects: [doctor, nurse]        # or a shipped list, or FILE.txt beside this file, with lines
    prefixes: ["", A photo of]       # only "", if left out
    template: "{prefix} a {age} {gender} {subject}"
    neutral: "{prefix} a {subject}"  # the template without attributes, if left out
    attributes:                      # the first in the outer loop; the first values are the base's
      age: [young, old]
      gender: {male: man, female: woman}  # values, and their words in captions
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import ClassVar

from cfaug.core.errors import UserError
from cfaug.core.grids import ATTRIBUTES, attribute_combinations, grid_edit, grid_key
from cfaug.core.types import Edited, Example, Proposal
from cfaug.core.words import right_articles
from cfaug.editing.grid_files import GridFile, read_grid_file
from cfaug.editing.sentence import normalise

SUFFIXES = (".yaml", ".yml")
MOST_MEMBERS = 1_000
"""Largest number of captions of one set, each a row of an image model's batch; the largest set of
the paper has 84."""
MOST_SETS = 1_000_000
FOLDER = Path(str(files("cfaug"))) / "editing" / "caption_grids"


@dataclass(frozen=True)
class CaptionGrid:
    """A grid of captions.

    Attributes:
        subject_type: the type of its subjects, such as "occupation".
        prefixes: the beginnings of captions, such as "A photo of".
        template: the template of captions, with ``{prefix}``, ``{subject}`` and every attribute in
            braces.
        neutral: the template of neutral prompts, without attributes.
        attributes: {attribute: {value: its words in captions}}, in order.
        subjects: the subjects in order.
        left_out: the duplicates of subjects that were left out, as the list spells them.
    """

    name: str
    subject_type: str
    prefixes: tuple[str, ...]
    template: str
    neutral: str
    attributes: Mapping[str, Mapping[str, str]]
    subjects: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    @property
    def members(self) -> int:
        """The number of captions in a set."""
        return prod(map(len, self.attributes.values()))

    @property
    def sets(self) -> int:
        """The number of sets: one for each prefix and subject."""
        return len(self.prefixes) * len(self.subjects)

    @property
    def captions(self) -> int:
        """The number of captions in all sets."""
        return self.sets * self.members

    def examples(self) -> Iterator[Example]:
        """Yield an example for each subject and prefix, all prefixes of a subject together.

        The text has the attributes in braces; ``extra`` has the fields of a member in
        ``cfaug.core.grids``, with all values of every attribute in place of the member's own.
        """
        seen: Counter[str] = Counter()
        attributes = {name: dict(values) for name, values in self.attributes.items()}
        for subject in self.subjects:
            for prefix in self.prefixes:
                known = {"prefix": prefix, "subject": subject}
                neutral = fill(self.neutral, known)
                yield Example(
                    _unused(grid_key(prefix, self.name, subject), seen),
                    subject.lower(),
                    (fill(self.template, known),),
                    label=subject,
                    extra={
                        "subject": subject, "subject_type": self.subject_type, "grid": self.name,
                        "prefix": prefix, "neutral": neutral, ATTRIBUTES: attributes,
                    },
                )  # fmt: skip

    def line(self) -> str:
        """Return one line that describes the grid and names the left-out duplicates."""
        said = (
            f"grid {self.name}: {self.captions:,} captions in {self.sets:,} sets of "
            f"{self.members}, {len(self.subjects):,} subjects ({self.subject_type}); first: "
            f"{fill(self.template, {'prefix': self.prefixes[0], 'subject': self.subjects[0]})!r}"
        )
        if not self.left_out:
            return said
        return (
            f"{said}; {len(self.left_out)} duplicated subjects are left out "
            f"(data.keep_duplicates=true keeps them): {', '.join(self.left_out)}"
        )


def shipped_grids() -> list[str]:
    """Return the names of the shipped grids, in alphabetical order."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def read_grid(grid: str, *, keep_duplicates: bool = False) -> CaptionGrid:
    """Read a grid.

    Args:
        grid: the name of a shipped grid, or the path of a YAML file.
        keep_duplicates: whether to keep subjects that repeat an earlier one, ignoring case, and
            known misprints.
    """
    named = grid in shipped_grids()
    if not named and not grid.lower().endswith(SUFFIXES):
        raise UserError(
            f"data.grid={grid} is invalid: choose from {', '.join(shipped_grids())}, or name a "
            "file, FILE.yaml"
        )
    path = FOLDER / f"{grid}.yaml" if named else Path(grid).expanduser()
    read = read_grid_file(path)
    subjects, left_out = _leave_out_duplicates(read.corrected())
    if keep_duplicates:
        subjects, left_out = read.subjects, ()
    found = CaptionGrid(
        read.name, read.subject_type, read.prefixes, read.template, _neutral(read),
        read.attributes, subjects, left_out,
    )  # fmt: skip
    _check_template(found, path)
    _check_size(found, path)
    _check_captions(found, path)
    return found


def _neutral(read: GridFile) -> str:
    """Return the neutral template of the file, or else its template without attributes."""
    if read.neutral is not None:
        return read.neutral
    kept = read.template
    for name in read.attributes:
        kept = kept.replace(f"{{{name}}}", "")
    return kept


def _check_template(grid: CaptionGrid, path: Path) -> None:
    """Refuse templates that lack or repeat a required name, or have another one."""
    for what, template, wanted in (
        ("template", grid.template, ["subject", *grid.attributes]),
        ("neutral", grid.neutral, ["subject"]),
    ):
        found = placeholders(template, f"{path}: {what}")
        required = ["prefix", *wanted] if "prefix" in found or any(grid.prefixes) else wanted
        if sorted(found) != sorted(required):
            raise UserError(
                f"{path}: {what} {template!r} has {', '.join(found) or 'nothing'} in braces; it "
                f"must have each of {', '.join(required)} once"
            )


def _check_size(grid: CaptionGrid, path: Path) -> None:
    if grid.members < 2:
        raise UserError(f"{path}: a grid of one text has no counterfactual: give more values")
    if grid.members > MOST_MEMBERS:
        sizes = " x ".join(f"{len(values)} {name}" for name, values in grid.attributes.items())
        raise UserError(
            f"{path}: {sizes} are {grid.members:,} captions a set, more than {MOST_MEMBERS:,}: "
            "leave out values or attributes"
        )
    if grid.sets > MOST_SETS:
        raise UserError(
            f"{path}: {len(grid.prefixes):,} prefixes x {len(grid.subjects):,} subjects are more "
            f"than {MOST_SETS:,} sets: divide the list"
        )


def _check_captions(grid: CaptionGrid, path: Path) -> None:
    """Refuse a template that gives two combinations the same caption."""
    known = {"prefix": grid.prefixes[0], "subject": grid.subjects[0]}
    neutral = fill(grid.neutral, known)
    seen: dict[str, str] = {}
    for combination in attribute_combinations(
        {name: list(said) for name, said in grid.attributes.items()}
    ):
        words = {name: grid.attributes[name][value] for name, value in combination.items()}
        text, values = fill(grid.template, known | words), " ".join(combination.values())
        if text.lower() == neutral.lower():
            raise UserError(
                f"{path}: the neutral prompt {neutral!r} is the caption of {values!r}: a neutral "
                "prompt asks for no attribute"
            )
        other = seen.setdefault(text.lower(), values)
        if other != values:
            raise UserError(
                f"{path}: the captions of {other!r} and {values!r} are both {text!r}: change the "
                "template or the values"
            )


def _leave_out_duplicates(subjects: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the distinct subjects, ignoring case, and the duplicates."""
    kept: dict[str, str] = {}
    left_out = []
    for subject in subjects:
        if subject.lower() in kept:
            left_out.append(subject)
        else:
            kept[subject.lower()] = subject
    return tuple(kept.values()), tuple(left_out)


def _unused(key: str, seen: Counter[str]) -> str:
    """Return an unused key, numbered from the second subject on."""
    found = key
    while found in seen:
        seen[key] += 1
        found = f"{key}_{seen[key]}"
    seen[found] += 1
    return found


# Attribute templates: one subject, every combination of attributes (SocialCounterfactuals, 2.1).
#
# A set is a grid such as race x gender of one occupation; its texts differ only in the attributes.

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
        """Return one proposal for each example; the first attribute is the outer loop."""
        return [Edited((_propose(example),)) for example in examples]

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
        where: the place of the template that errors name, such as ``FILE: neutral``.

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

    >>> fill("{prefix} a {race} {subject}", {"prefix": "", "race": "Asian", "subject": "umpire"})
    'an Asian umpire'
    """
    filled = _PLACEHOLDER.sub(lambda found: words.get(found[1], found[0]), template)
    return right_articles(normalise(filled))
