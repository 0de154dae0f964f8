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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar
from unicodedata import normalize

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.grids import ATTRIBUTES, attribute_combinations, grid_edit, grid_key
from cfaug.core.types import Edited, Example, Proposal
from cfaug.core.words import right_articles
from cfaug.editing.sentence import normalise
from cfaug.editing.word_lists import SHIPPED, list_lines

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


# Reading of a caption grid's YAML file and its word lists, which are checked, never executed.

KEYS = ("name", "subject_type", "subjects", "prefixes", "template", "neutral", "attributes")
REQUIRED = ("subject_type", "subjects", "template", "attributes")
RESERVED = ("prefix", "subject")
"""The placeholders that are not attributes."""
NAME = re.compile(r"[a-z][a-z0-9_]*")
MOST_BYTES = 16 * 2**20
"""Largest size of a grid's file or of a list in bytes; a million subjects need less."""
MOST_CHARACTERS = 200
"""Largest number of characters of a text, which becomes part of keys and of captions; models
truncate captions at about 70 words."""
ARROW = "->"
"""Separator, in a list, of a printed value from its corrected values."""


@dataclass(frozen=True)
class GridFile:
    """The content of a grid's file.

    Attributes:
        subject_type: the type of its subjects, such as "occupation".
        subjects: the subjects as printed, before corrections.
        corrections: {printed subject: corrected subjects} for misprints.
        neutral: the template without attributes; ``None`` if the file has none.
    """

    name: str
    subject_type: str
    subjects: tuple[str, ...]
    corrections: Mapping[str, tuple[str, ...]]
    prefixes: tuple[str, ...]
    template: str
    neutral: str | None
    attributes: Mapping[str, Mapping[str, str]]

    def corrected(self) -> tuple[str, ...]:
        """Return the subjects, with misprints corrected."""
        return tuple(
            s for subject in self.subjects for s in self.corrections.get(subject, (subject,))
        )


def read_grid_file(path: Path) -> GridFile:
    """Read the file of a grid."""
    found = _mapping(_load(path), str(path))
    unknown = [key for key in found if key not in KEYS]
    missing = [key for key in REQUIRED if found.get(key) is None]
    if unknown or missing:
        wrong = f"the key {unknown[0]!r} is unknown" if unknown else f"{missing[0]!r} is missing"
        raise UserError(f"{path}: {wrong}; a grid has {', '.join(KEYS)}")
    subjects, corrections = _words(found["subjects"], path, "subjects")
    _require_some(subjects, f"{path}: subjects")
    for correction in corrections.values():
        _require_some(correction, f"{path}: subjects")
    attributes = _mapping(found["attributes"], f"{path}: attributes")
    _require_some(list(attributes), f"{path}: attributes")
    name = _text(found.get("name", path.stem.lower()), f"{path}: name")
    if not NAME.fullmatch(name):
        raise UserError(
            f"{path}: the name {name!r} is invalid: use lower-case letters, digits and '_', and "
            "say another as `name: NAME` in the file"
        )
    neutral = found.get("neutral")
    return GridFile(
        name=name,
        subject_type=_text(found["subject_type"], f"{path}: subject_type"),
        subjects=subjects,
        corrections=corrections,
        prefixes=_prefixes(found.get("prefixes", [""]), path),
        template=_text(found["template"], f"{path}: template", braces=True),
        neutral=None if neutral is None else _text(neutral, f"{path}: neutral", braces=True),
        attributes=MappingProxyType(
            {_attribute(key, path): _values(value, path, key) for key, value in attributes.items()}
        ),
    )


def _load(path: Path) -> Any:
    """Return the content of a YAML file, which may have only plain values and distinct keys."""
    import yaml

    class Loader(yaml.SafeLoader):
        """The safe loader, without any tag that constructs an object."""

    def construct(loader: Loader, node: yaml.MappingNode) -> dict[Any, Any]:
        keys = Counter(one.value for one, _ in node.value if isinstance(one.value, str))
        twice = next((key for key, count in keys.items() if count > 1), None)
        if twice is not None:
            raise UserError(f"{path}: the key {twice!r} is duplicated")
        return loader.construct_mapping(node, deep=True)

    Loader.add_constructor("tag:yaml.org,2002:map", construct)
    try:
        return yaml.load(_read(path), Loader)  # a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        where = " ".join(str(error).split())
        raise UserError(f"{path} is not valid YAML: {where:.300}") from error


def _read(path: Path) -> str:
    """Return the text of a file."""
    try:
        with require_regular(path).open("rb") as handle:
            content = handle.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise UserError(f"{path} is larger than {MOST_BYTES:,} bytes; it is not read")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error}): save it as UTF-8") from error


def _mapping(found: Any, where: str) -> dict[Any, Any]:
    if not isinstance(found, dict):
        raise UserError(f"{where} should map names to values, not be {reprlib.repr(found)}")
    return found


def _text(found: Any, where: str, *, braces: bool = False) -> str:
    """Return a text on one line."""
    if not isinstance(found, str):
        raise UserError(
            f"{where} should be a text, not {reprlib.repr(found)}: put it in quotes if it is one"
        )
    text = normalize("NFC", normalise(found))  # accents have two encodings
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


def _require_some(found: Any, where: str) -> None:
    if not found:
        raise UserError(f"{where} is empty: give at least one")


def _unique(found: tuple[str, ...], where: str) -> tuple[str, ...]:
    lowered = Counter(one.lower() for one in found)
    twice = next((one for one in found if lowered[one.lower()] > 1), None)
    if twice is not None:
        raise UserError(f"{where}: {twice!r} is duplicated; capitals make no difference")
    return found


def _prefixes(found: Any, path: Path) -> tuple[str, ...]:
    where = f"{path}: prefixes"
    if not isinstance(found, list):
        raise UserError(f'{where} should be a list such as ["", A photo of]')
    _require_some(found, where)
    blank = [one for one in found if isinstance(one, str) and not one.strip()]
    return _unique(tuple("" if one in blank else _text(one, where) for one in found), where)


def _attribute(name: Any, path: Path) -> str:
    where = f"{path}: attributes: the name {reprlib.repr(name)}"
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UserError(f"{where} is invalid: use lower-case letters, digits and '_'")
    if name in RESERVED:
        raise UserError(f"{where} is taken: choose another")
    return name


def _values(found: Any, path: Path, name: str) -> Mapping[str, str]:
    """Return the values of an attribute, and their words in captions."""
    where = f"{path}: attributes: {name}"
    if isinstance(found, dict):
        said = {
            _text(value, where): _text(words, f"{where}: {value}") for value, words in found.items()
        }
    else:
        words, corrections = _words(found, path, f"attributes: {name}")
        words = tuple(one for word in words for one in corrections.get(word, (word,)))
        said = dict(zip(_unique(words, where), words, strict=True))
    _require_some(said, where)
    _unique(tuple(said), where)
    _unique(tuple(said.values()), where)
    return MappingProxyType(said)


def _words(
    found: Any, path: Path, name: str
) -> tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]:
    """Return the words of a list, and the corrections of misprinted ones."""
    where = f"{path}: {name}"
    check = partial(_text, where=where)
    if isinstance(found, list):
        return tuple(check(one) for one in found), MappingProxyType({})
    named = _text(found, where)
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
    for line in list_lines(_read(file)):
        printed, arrow, right = line.partition(ARROW)
        words.append(_text(printed, where))
        if arrow:
            corrections[words[-1]] = tuple(_text(one, where) for one in right.split(","))
    return tuple(words), MappingProxyType(corrections)
