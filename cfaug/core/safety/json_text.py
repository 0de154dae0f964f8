"""The one reader of JSON that others may have written: files, answers of servers, cells of tables.

A few thousand brackets stand for more levels than Python can read, and a number of thousands of
digits takes long to read and is larger than any float. A file may have any size: annotations do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.text import require_unicode

DEEPEST = 200
"""The largest number of levels."""
MOST_DIGITS = 300
"""The largest number of digits of a whole number, which fits into a float."""
NOT_MARKS = bytes(code for code in range(256) if code not in b'"[]{}')
"""All bytes but those that _seems_flat looks at."""
STEPS = np.zeros(256, dtype=np.int8)
"""How much deeper what follows a byte is."""
STEPS[list(b"[{")], STEPS[list(b"]}")] = 1, -1

Pairs = Callable[[list[tuple[str, Any]]], Any]
Constant = Callable[[str], Any]


class LimitError(ValueError):
    """JSON that exceeds a limit."""


class _DoubledError(ValueError):
    """A name that is duplicated in one object."""


def load_json(
    text: str | bytes | bytearray,
    *,
    object_pairs_hook: Pairs | None = None,
    parse_constant: Constant | None = None,
) -> Any:
    """Return the content of JSON, as ``json.loads`` does, within limits.

    Args:
        object_pairs_hook: the hook of ``json.loads``.
        parse_constant: the function of ``json.loads`` by which NaN and Infinity are refused or
            replaced.

    Raises:
        ValueError: if it is not JSON, or exceeds a limit.
    """
    if not isinstance(text, str):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    if text.startswith("\ufeff"):
        raise json.JSONDecodeError("Unexpected UTF-8 BOM (decode using utf-8-sig)", text, 0)
    try:
        content = _decoder(object_pairs_hook, parse_constant).decode(text)
    except RecursionError:
        raise LimitError(f"it has more than {DEEPEST} levels") from None
    if text.count("[") + text.count("{") > DEEPEST and not _seems_flat(text):
        _check_depth(content)
    return content


@lru_cache(maxsize=32)
def _decoder(pairs: Pairs | None, constant: Constant | None) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=pairs, parse_constant=constant, parse_int=_read_integer
    )


def _read_integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise LimitError(
            f"the number {digits[:20]}... has {len(digits):,} digits, and at most {MOST_DIGITS} "
            "are read"
        )
    return int(digits)


def _seems_flat(text: str) -> bool:
    """Return whether the brackets outside texts show that no limit is exceeded.

    It takes a fifth of the time of a walk through the content, and says no if there are escapes.
    """
    if "\\" in text:
        return False
    marks = np.frombuffer(
        text.encode("utf-8", "surrogatepass").translate(None, NOT_MARKS), dtype=np.uint8
    )
    within_text = np.logical_xor.accumulate(marks == ord('"'))
    steps = np.where(within_text, 0, STEPS[marks])
    return bool(np.cumsum(steps, dtype=np.int32).max() <= DEEPEST)


def _check_depth(content: Any) -> None:
    """Refuse content with too many levels, level by level."""
    level = [content] if isinstance(content, dict | list) else []
    for _ in range(DEEPEST):
        if not level:
            return
        level = [
            part
            for node in level
            for part in (node.values() if isinstance(node, dict) else node)
            if isinstance(part, dict | list)
        ]
    if level:
        raise LimitError(f"it has more than {DEEPEST} levels")


def parse_json(text: str | bytes, where: str) -> Any:
    """Return the content of JSON in which no object has a name twice.

    Args:
        where: the place of the text in messages, such as its file.
    """
    try:
        value = load_json(text, object_pairs_hook=_make_object)
        escape = b"\\ud" if isinstance(text, bytes) else "\\ud"
        if escape in text.lower():  # type: ignore[operator]  # the only way in for half a character
            require_unicode(json.dumps(value, ensure_ascii=False), where)
        return value
    except _DoubledError as error:
        raise UserError(f"{where}: {error}") from error
    except ValueError as error:
        cause = str(error)
        if isinstance(error, json.JSONDecodeError) and error.lineno == 1:  # the only line, perhaps
            cause = f"{error.msg}, character {error.colno}"
        raise UserError(f"{where} is not JSON: {cause}") from error


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _DoubledError(f"the name {twice!r} is duplicated")
    return record


def json_file(file: Path) -> Any:
    """Parse a file of JSON, see ``parse_json``."""
    try:
        return parse_json(require_regular(file).read_bytes(), str(file))
    except UserError as error:
        cause = error.__cause__
        if isinstance(cause, json.JSONDecodeError) and cause.msg == "Extra data":
            name = file.with_suffix(".jsonl").name
            raise UserError(f"{error}; a file with an object a line is called {name}") from cause
        raise
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
