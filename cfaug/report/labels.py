"""Short labels of arms in tables: only what distinguishes an arm from the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from unicodedata import category

from cfaug.report.arms import Arm

CUT = re.compile(r".*-[0-9a-f]{12}", re.DOTALL)
LONGEST = 100
"""Characters of a folder's name; a longer one was cut and given a hash (``clean_name``)."""

MARKS = 3
"""The largest number of marks on a letter of a figure's label; Thai and Hebrew need as many."""

SHORT = ("data.", "trainer.", "optim.")
"""Groups of settings omitted from an arm's name."""


def arm_labels(arms: Mapping[str, Arm], names: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a distinct label for every arm.

    An arm that was named by hand keeps its name, or gets the label given for it. A name made from
    settings loses those that all such names share; settings missing from a shortened name are taken
    from the arm's record.

    Args:
        arms: records of the arms by name.
        names: labels of arms that have one of their own, by the arm's name or by the label that it
            would have without this.

    >>> arm_labels({name: Arm(name) for name in ("size=5,lr=0.1", "size=6,lr=0.1")})
    {'size=5,lr=0.1': 'size=5', 'size=6,lr=0.1': 'size=6'}
    """
    given = names or {}
    by_settings = {arm: one for arm, one in arms.items() if "=" in arm}
    pieces = {arm: _pieces(arm) for arm in by_settings}
    if any(map(_is_cut, by_settings)):
        pieces = _complete(pieces, by_settings)
    shared = _shared_pieces(list(pieces.values()))
    found = {arm: given.get(arm, arm) for arm in arms}
    for arm, own in pieces.items():
        kept = [f"{k}={v}" for k, v in own.items() if k and (k, v) not in shared]
        label = _with_text(own.get("", ""), kept) or arm
        found[arm] = given.get(arm, given.get(label, label))
    return _make_distinct(found)


def _complete(
    pieces: Mapping[str, Mapping[str, str]], arms: Mapping[str, Arm]
) -> dict[str, dict[str, str]]:
    """Add settings that differ but are missing from cut names; drop those known to be equal."""
    differing = differing_settings(arms)
    recorded = [{_shorten(key) for key in arm.settings} for arm in arms.values()]
    equal = set.intersection(*recorded) - {_shorten(k) for own in differing.values() for k in own}
    found = {arm: {k: v for k, v in own.items() if k not in equal} for arm, own in pieces.items()}
    for arm, settings in differing.items():
        more = {_shorten(key): value for key, value in settings.items()}
        told = {key.partition(".")[0] for key in found[arm]}
        found[arm] |= {k: v for k, v in more.items() if k.partition(".")[0] not in told}
    return found


def _with_text(text: str, settings: Sequence[str]) -> str:
    """Return the text before an arm's settings, joined with the settings that are shown.

    >>> _with_text("base", ["lr=1"]), _with_text("demo-", ["lr=1"]), _with_text("demo-", [])
    ('base,lr=1', 'demo-lr=1', 'demo')
    """
    if text.endswith("-") and settings:
        return text + ",".join(settings)
    return ",".join([*([text.rstrip("-")] if text else []), *settings])


def full_names(labels: Mapping[str, str], arms: Iterable[str]) -> str:
    """Return a sentence with the full names of arms that have another label, or nothing."""
    called = [f"{labels[arm]}: {arm}" for arm in arms if labels.get(arm, arm) != arm]
    return f"Arms by their full names: {'; '.join(called)}." if called else ""


def wrap_text(text: str, width: int) -> list[str]:
    """Break a text into lines of at most ``width`` cells: at spaces, after commas, or anywhere.

    >>> wrap_text("cf_ratio=0.6,real=PHOTOS or more", 14)
    ['cf_ratio=0.6,', 'real=PHOTOS or', 'more']
    """
    from rich.cells import cell_len, chop_cells

    lines = [""]
    for word in re.findall(r"[^\s,]*(?:,+|\s|$)", printable(text)):
        whole = lines[-1] + word
        if cell_len(whole.rstrip()) <= width:
            lines[-1] = whole
            continue
        first, *more = chop_cells(word.rstrip(), width) or [""]
        lines += [first, *more]
        lines[-1] += " " * word.endswith(" ")
    return [line.rstrip() for line in lines if line.strip()] or [""]


def elide_text(text: str, width: int, most: int) -> list[str]:
    """Return the first lines of a wrapped text, the last of them with an ellipsis if more follow.

    Marks beyond ``MARKS`` on one letter are omitted: they take no cell, but pile up above it.

    Args:
        text: text to break, as by ``wrap_text``.
        width: most cells of a line.
        most: most lines.

    >>> elide_text("one two three", 4, 2)
    ['one', 'two…']
    """
    lines = wrap_text(limit_marks(text), width)
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], wrap_text(lines[most - 1], width - 1)[0] + "…"]


def limit_marks(text: str) -> str:
    """Return a text without the marks beyond ``MARKS`` on one letter."""
    kept, marks = [], 0
    for letter in text:
        marks = marks + 1 if category(letter) in {"Mn", "Me"} else 0
        if marks <= MARKS:
            kept.append(letter)
    return "".join(kept)


def printable(text: str) -> str:
    """Return text without control characters: a name on disk may contain terminal codes."""
    return "".join(c if c.isprintable() else " " for c in text)


def _is_cut(arm: str) -> bool:
    return len(arm) == LONGEST and CUT.fullmatch(arm) is not None


def _pieces(arm: str) -> dict[str, str]:
    """Return the settings in an arm's name, and under ``""`` the text before them.

    >>> _pieces("base,lr=1,size=5"), _pieces("demo-lr=1")
    ({'': 'base', 'lr': '1', 'size': '5'}, {'': 'demo-', 'lr': '1'})
    """
    parts = arm.split(",")
    if _is_cut(arm):
        parts.pop()  # the last setting, perhaps cut off, and the hash
    found: dict[str, str] = {}
    last = ""
    for part in parts:
        key, equals, value = part.partition("=")
        if equals and not found:  # an experiment's name stands before the arms of several
            experiment, dash, key = key.rpartition("-")
            found |= {"": experiment + dash} if dash else {}
        if equals:
            last, found[key] = key, value
        else:  # a comma within a value, or the given name
            found[last] = f"{found[last]},{part}" if last in found else part
    return found


def _shared_pieces(all_pieces: Sequence[Mapping[str, str]]) -> set[tuple[str, str]]:
    if len(all_pieces) < 2:
        return set()
    return set.intersection(*(set(pieces.items()) for pieces in all_pieces))


def unnamed_settings(arms: Mapping[str, Arm]) -> dict[str, dict[str, str]]:
    """Return the settings, other than data's, in which arms differ but which no name shows.

    Args:
        arms: records of the arms by name.

    Returns:
        {setting: {arm: its value}}, of the arms whose record has it.
    """
    named = {key for arm in arms if "=" in arm for key in _pieces(arm)}
    found: dict[str, dict[str, str]] = {}
    for arm, settings in differing_settings(arms).items():
        for key, value in settings.items():
            if not key.startswith("data.") and not {key, _shorten(key)} & named:
                found.setdefault(key, {})[arm] = value
    return found


def differing_settings(arms: Mapping[str, Arm]) -> dict[str, dict[str, str]]:
    """Return {arm: {setting: value}} of the settings in which arms with a record differ."""
    known = {
        name: {key: str(value) for key, value in arm.settings.items()}
        for name, arm in arms.items()
        if arm.settings
    }
    keys = sorted({key for settings in known.values() for key in settings})
    differ = [key for key in keys if len({one.get(key) for one in known.values()}) > 1]
    return {
        arm: {key: settings[key] for key in differ if key in settings}
        for arm, settings in known.items()
    }


def _shorten(key: str) -> str:
    return next((key.removeprefix(head) for head in SHORT if key.startswith(head)), key)


def _make_distinct(labels: Mapping[str, str]) -> dict[str, str]:
    """Replace duplicated labels by the arms' full names, until all are distinct."""
    found = dict(labels)
    while True:
        times = Counter(found.values())
        alike = [arm for arm, label in found.items() if times[label] > 1 and label != arm]
        if not alike:
            return found
        found |= {arm: arm for arm in alike}
