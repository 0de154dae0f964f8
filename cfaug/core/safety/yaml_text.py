"""The one reader of YAML: plain values alone, within limits of size, depth and repetition.

Ten lines of anchors and aliases can stand for more values than a machine has memory, and a few
thousand brackets for more levels than Python can read. So a text's events are counted, with what
its aliases repeat, before anything is made of them.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from cfaug.core.errors import UserError, say_once

MOST_CHARACTERS = 2**20
"""The largest size of a text."""
EXPANSION = 4
"""How many times its largest size a text may have after its aliases are expanded."""
DEEPEST = 64
"""The largest number of levels."""
LONG_NUMBER = re.compile(r"[-+]?(?:0[xb])?[\da-fA-F_:.]{401,}")
"""A number that takes long to read: those of base 60, as in 1:30:00, take quadratic time."""
OTHER_BASE = re.compile(r"[-+]?(?:[1-9][\d_]*(?::[0-5]?\d)+|0[0-7_]*[1-7][0-7_]*)")
"""A whole number that YAML 1.1 reads in base 60 (1:30 is 90) or 8 (010 is 8)."""
UNDERSCORED = re.compile(
    r"[-+]?(?!\d{1,3}(?:_\d{3})+(?!\d|_))\d+(?:_+\d+)+_*(?:\.[\d_]*)?(?:[eE][-+]?[\d_]+)?"
)
"""A number whose underscores do not group its digits by thousands (1_0), which are left out."""

NOT_YAML = (
    yaml.YAMLError, RecursionError, ArithmeticError, AttributeError, LookupError, TypeError,
    ValueError,
)  # fmt: skip
"""Errors of PyYAML, whose constructors of tagged values raise the plain ones: !!bool 7."""

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str, name: object, most: int = MOST_CHARACTERS) -> Any:
    """Return the content of a YAML text that somebody else may have written.

    Args:
        name: the name of the text in messages, such as its file.
        most: the largest size of the text in characters.

    Raises:
        UserError: if it is not YAML, exceeds a limit, or has a key twice in one mapping.
    """
    if len(text) > most:
        raise UserError(f"{name} has {len(text):,} characters; at most {most:,} are read as YAML")
    try:
        _check_events(text, name, EXPANSION * most)
        return yaml.load(text, Loader)  # a safe loader, which makes plain values alone
    except NOT_YAML as error:
        where = " ".join(str(error).split())
        raise UserError(f"{name} is not valid YAML: {where:.300}") from error


class _Collection:
    """A mapping or list whose end has not come yet.

    Attributes:
        size: its size so far in characters, with aliases expanded; each value counts one more.
        depth: the levels in it, itself included.
        keys: the keys so far of a mapping; ``None`` for a list.
        at_key: whether the next value is a key.
    """

    def __init__(self, event: Any) -> None:
        self.anchor = event.anchor
        self.size, self.depth = 1, 1
        self.keys: set[str] | None = set() if isinstance(event, yaml.MappingStartEvent) else None
        self.at_key = self.keys is not None


def _check_events(text: str, name: object, most: int) -> None:
    """Refuse a text that is too deep, expands too far, or has a key twice in one mapping."""
    anchored: dict[str, tuple[int, int]] = {}
    unclosed: list[_Collection] = []
    for event in yaml.parse(text, Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            unclosed.append(_Collection(event))
            size, depth = 0, 0
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = unclosed.pop()
            size, depth = closed.size, closed.depth
            if closed.anchor:
                anchored[closed.anchor] = size, depth
        elif isinstance(event, yaml.ScalarEvent):
            size, depth = 1 + len(event.value), 0
            if (event.tag or not event.style) and LONG_NUMBER.fullmatch(event.value):
                raise UserError(f"{name}: the number {event.value[:20]}... has too many digits")
            odd = OTHER_BASE.fullmatch(event.value) or UNDERSCORED.fullmatch(event.value)
            if event.implicit[0] and odd:
                number = yaml.load(event.value, Loader)
                say_once(f"note: {name}: YAML reads {event.value} as {number}; quote it for a text")
            if event.anchor:
                anchored[event.anchor] = size, depth
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchored:
                raise UserError(
                    f"{name} is not valid YAML: *{event.anchor} stands for a part that holds it, "
                    "or that there is not; write the values out"
                )
            size, depth = anchored[event.anchor]
        else:
            continue
        if len(unclosed) + depth > DEEPEST:
            raise UserError(f"{name} has more than {DEEPEST} levels")
        if not unclosed or isinstance(event, yaml.CollectionStartEvent):
            continue
        # A complete value is added to the collection that it is in.
        parent = unclosed[-1]
        parent.size += size
        parent.depth = max(parent.depth, 1 + depth)
        if parent.keys is not None:
            if parent.at_key and isinstance(event, yaml.ScalarEvent) and event.value != "<<":
                if event.value in parent.keys:
                    raise UserError(f"{name}: the key {event.value!r} is duplicated")
                parent.keys.add(event.value)
            parent.at_key = not parent.at_key
        if parent.size > most:
            raise UserError(
                f"{name} has more than {most:,} characters once its aliases (*NAME) are "
                "expanded: write the values out"
            )
