"""Dataclasses read from JSON; pydantic checks the fields against their annotations.

This is for files that this program wrote, where a list may stand for a tuple, and a text that is
a key for a number; settings are checked strictly, by ``cfaug.core.validation``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def from_json(kind: type[T], content: Any) -> T:
    """Return the dataclass that ``asdict`` and ``json.dumps`` were applied to.

    A missing field gets its default, and an unknown one is ignored, so that files of older and
    newer versions are read.

    Args:
        kind: the dataclass; lists become tuples, and keys become numbers, where its annotations say
            so.

    Raises:
        ValueError: in one line, naming the first field that is missing or invalid.
    """
    from pydantic import ValidationError

    try:
        return _record_adapter(kind).validate_python(content)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from error


@cache
def _record_adapter(kind: type) -> Any:
    from pydantic import TypeAdapter  # takes 0.1 s: imported on first use

    return TypeAdapter(kind)
