"""Dataclasses read from JSON, whose fields pydantic checks against their annotations.

For files that this program wrote, where a list stands for a tuple and a key for a number; settings
are checked strictly, by ``cfaug.validation``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def from_json(kind: type[T], content: Any) -> T:
    """Return a dataclass of what ``json.loads`` of its ``asdict`` gives.

    A field that is missing has its default, and one that the dataclass does not know is left out,
    so that files of older and newer versions are read.

    Args:
        kind: the dataclass; lists become tuples, and keys numbers, where it says so.
        content: an object of JSON, and of objects inside it.

    Raises:
        ValueError: in one line, naming the first field that is missing or invalid.
    """
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_python(content)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from error


@cache
def _adapter(kind: type) -> Any:
    from pydantic import TypeAdapter  # 0.1 s: only where something is read

    return TypeAdapter(kind)
