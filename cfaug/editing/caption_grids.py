"""Grids of captions, prefixes x subjects x attributes, and the files that describe them.

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
import reprlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, ClassVar

from cfaug.core.errors import UserError
from cfaug.core.files import read_limited, read_yaml
from cfaug.core.types import Edited, Example, Proposal
from cfaug.data.captions import right_articles
from cfaug.data.grids import ATTRIBUTES, attribute_combinations, grid_edit, grid_key
from cfaug.editing.sentence import normalise
from cfaug.editing.word_lists import SHIPPED, list_lines

SUFFIXES = (".yaml", ".yml")
MOST_MEMBERS = 1_000
"""Largest number of captions of one set, each a row of an image model's batch; the largest set of
the paper has 84."""
MOST_SETS = 1_000_000
MOST_BYTES = 16 * 2**20
"""Largest size of a grid's file or of a list in bytes; a million subjects need less."""
MOST_CHARACTERS = 200
"""Largest number of characters of a text, which becomes part of keys and of captions; models
truncate captions at about 70 words."""
FOLDER = Path(str(files("cfaug"))) / "editing" / "caption_grids"
KEYS = ("name", "subject_type", "subjects", "prefixes", "template", "neutral", "attributes")
NAME = re.compile(r"[a-z][a-z0-9_]*")
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")


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
        ``cfaug.data.grids``, with all values of every attribute in place of the member's own.
        """
        seen: Counter[str] = Counter()
        attributes = {name: dict(values) for name, values in self.attributes.items()}
        for subject, prefix in product(self.subjects, self.prefixes):
            key = unused = grid_key(prefix, self.name, subject)
            while unused in seen:  # numbered from the second subject of that key on
                seen[key] += 1
                unused = f"{key}_{seen[key]}"
            seen[unused] += 1
            known = {"prefix": prefix, "subject": subject}
            neutral = fill(self.neutral, known)
            yield Example(
                unused,
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
        first = fill(self.template, {"prefix": self.prefixes[0], "subject": self.subjects[0]})
        line = (
            f"grid {self.name}: {self.captions:,} captions in {self.sets:,} sets of "
            f"{self.members}, {len(self.subjects):,} subjects ({self.subject_type}); first: "
            f"{first!r}"
        )
        if not self.left_out:
            return line
        return (
            f"{line}; {len(self.left_out)} duplicated subjects are left out "
            f"(data.keep_duplicates=true keeps them): {', '.join(self.left_out)}"
        )


class AttributeGrid:
    """An editor that turns each example into the texts of every combination of its attributes.

    The examples are those of a ``CaptionGrid``: a text with attributes in braces, such as "A photo
    of a {race} {gender} doctor", and in ``extra["attributes"]`` the values of each attribute with
    their words in captions. The first combination is the base.

    Attributes:
        takes_grids: whether the editor takes such examples; other editors take captions.
    """

    takes_grids: ClassVar[bool] = True

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal for each example; the first attribute is the outer loop."""
        edited = []
        for example in examples:
            attributes = example.extra.get(ATTRIBUTES)
            named = placeholders(example.text, f"example {example.key!r}")
            valid = isinstance(attributes, Mapping) and all(
                isinstance(values, Mapping) for values in attributes.values()
            )
            if not attributes or not valid or sorted(named) != sorted(attributes):
                raise UserError(
                    f"example {example.key!r}: {example.text!r} is not a grid of attributes: name "
                    "one with data.grid=NAME or data.grid=FILE.yaml in place of data.source"
                )
            texts = _combine(example.text, attributes)
            members = [member for member, _ in texts]
            proposal = Proposal(
                example,
                texts=tuple(text for _, text in texts),
                edits=tuple(grid_edit(members[0], member) for member in members),
                details=tuple({ATTRIBUTES: member} for member in members),
            )
            edited.append(Edited((proposal,)))
        return edited

    def describe(self) -> dict[str, str]:
        return {}


def _combine(
    template: str, attributes: Mapping[str, Mapping[str, str]]
) -> list[tuple[dict[str, str], str]]:
    """Return every combination of values, with the template filled with its words."""
    members = attribute_combinations({name: list(words) for name, words in attributes.items()})
    return [
        (member, fill(template, {name: attributes[name][value] for name, value in member.items()}))
        for member in members
    ]


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
    content = _require_mapping(read_yaml(path, MOST_BYTES), str(path))
    required = ("subject_type", "subjects", "template", "attributes")
    unknown = [key for key in content if key not in KEYS]
    missing = [key for key in required if content.get(key) is None]
    if unknown or missing:
        wrong = f"the key {unknown[0]!r} is unknown" if unknown else f"{missing[0]!r} is missing"
        raise UserError(f"{path}: {wrong}; a grid has {', '.join(KEYS)}")
    printed, subjects = _words(content["subjects"], path, "subjects")
    _require_some(printed, f"{path}: subjects")
    attributes = _require_mapping(content["attributes"], f"{path}: attributes")
    _require_some(attributes, f"{path}: attributes")
    name = _text(content.get("name", path.stem.lower()), f"{path}: name")
    if not NAME.fullmatch(name):
        raise UserError(
            f"{path}: the name {name!r} is invalid: use lower-case letters, digits and '_', and "
            "say another as `name: NAME` in the file"
        )
    template = _text(content["template"], f"{path}: template", braces=True)
    if content.get("neutral") is not None:
        neutral = _text(content["neutral"], f"{path}: neutral", braces=True)
    else:
        neutral = template
        for attribute in attributes:
            neutral = neutral.replace(f"{{{attribute}}}", "")
    subject_type = _text(content["subject_type"], f"{path}: subject_type")
    where, listed = f"{path}: prefixes", content.get("prefixes", [""])
    if not isinstance(listed, list):
        raise UserError(f'{where} should be a list such as ["", A photo of]')
    _require_some(listed, where)
    prefixes = tuple(
        "" if isinstance(text, str) and not text.strip() else _text(text, where) for text in listed
    )
    _require_distinct(prefixes, where)
    kept: dict[str, str] = {}
    left_out = []
    for subject in subjects:
        if subject.lower() in kept:
            left_out.append(subject)
        else:
            kept[subject.lower()] = subject
    read = CaptionGrid(
        name,
        subject_type,
        prefixes,
        template,
        neutral,
        {key: _values(key, values, path) for key, values in attributes.items()},
        tuple(printed if keep_duplicates else kept.values()),
        () if keep_duplicates else tuple(left_out),
    )
    _check(read, path)
    return read


def _check(grid: CaptionGrid, path: Path) -> None:
    for key, template, wanted in (
        ("template", grid.template, ["subject", *grid.attributes]),
        ("neutral", grid.neutral, ["subject"]),
    ):
        names = placeholders(template, f"{path}: {key}")
        required = ["prefix", *wanted] if "prefix" in names or any(grid.prefixes) else wanted
        if sorted(names) != sorted(required):
            raise UserError(
                f"{path}: {key} {template!r} has {', '.join(names) or 'nothing'} in braces; it "
                f"must have each of {', '.join(required)} once"
            )
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
    example = next(grid.examples())
    neutral = example.extra["neutral"]
    seen: dict[str, str] = {}
    for member, text in _combine(example.text, grid.attributes):
        values = " ".join(member.values())
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
    filled = _PLACEHOLDER.sub(lambda match: words.get(match[1], match[0]), template)
    return right_articles(normalise(filled))


def _require_mapping(value: Any, where: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where} should map names to values, not be {reprlib.repr(value)}")
    return value


def _require_some(values: Any, where: str) -> None:
    if not values:
        raise UserError(f"{where} is empty: give at least one")


def _require_distinct(texts: Collection[str], where: str) -> None:
    counts = Counter(map(str.lower, texts))
    twice = next((text for text in texts if counts[text.lower()] > 1), None)
    if twice is not None:
        raise UserError(f"{where}: {twice!r} is duplicated; capitals make no difference")


def _text(value: Any, where: str, *, braces: bool = False) -> str:
    """Return a text on one line."""
    if not isinstance(value, str):
        raise UserError(
            f"{where} should be a text, not {reprlib.repr(value)}: put it in quotes if it is one"
        )
    text = normalise(value)
    if not text:
        raise UserError(f"{where} is empty")
    if len(text) > MOST_CHARACTERS:
        raise UserError(
            f"{where} is longer than {MOST_CHARACTERS} characters: {reprlib.repr(text)}"
        )
    if not text.isprintable():
        raise UserError(f"{where} has a character that cannot be printed: {reprlib.repr(text)}")
    if not braces and ("{" in text or "}" in text):
        raise UserError(f"{where}: {reprlib.repr(text)} has braces, which only templates have")
    return text


def _values(name: Any, content: Any, path: Path) -> dict[str, str]:
    """Return the values of an attribute, and their words in captions."""
    where = f"{path}: attributes: the name {reprlib.repr(name)}"
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UserError(f"{where} is invalid: use lower-case letters, digits and '_'")
    if name in ("prefix", "subject"):
        raise UserError(f"{where} is taken: choose another")
    where = f"{path}: attributes: {name}"
    if isinstance(content, dict):
        values = {
            _text(value, where): _text(words, f"{where}: {value}")
            for value, words in content.items()
        }
    else:
        _, listed = _words(content, path, f"attributes: {name}")
        _require_distinct(listed, where)
        values = dict(zip(listed, listed, strict=True))
    _require_some(values, where)
    _require_distinct(values, where)
    _require_distinct(values.values(), where)
    return values


def _words(content: Any, path: Path, name: str) -> tuple[list[str], list[str]]:
    """Return the words of a list as printed, and with its misprints corrected."""
    where = f"{path}: {name}"
    if isinstance(content, list):
        words = [_text(word, where) for word in content]
        return words, words
    named = _text(content, where)
    file = SHIPPED / f"{named}.txt"
    if named.lower().endswith(".txt"):
        file = path.parent / Path(named).expanduser()
        where = str(file)
    elif not NAME.fullmatch(named) or not file.is_file():
        raise UserError(
            f"{where}: there is no list {named!r}: write the values as a list, [a, b], or name a "
            "file FILE.txt with one a line"
        )
    words, corrections = [], {}
    for line in list_lines(read_limited(file, MOST_BYTES)):
        printed, arrow, right = line.partition("->")
        words.append(_text(printed, where))
        if arrow:
            corrections[words[-1]] = [_text(word, where) for word in right.split(",")]
    return words, [right for word in words for right in corrections.get(word, [word])]
