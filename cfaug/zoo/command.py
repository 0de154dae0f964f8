"""What the zoo's commands share: ``name=value`` arguments read into a dataclass of settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from cfaug.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Settings = TypeVar("Settings", bound=DataclassInstance)

READERS: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}


def read(kind: type[Settings], argv: list[str]) -> Settings:
    """Read ``name=value`` arguments into settings of ``kind``, which has a field ``out``.

    Args:
        kind: a dataclass whose fields are annotated ``str``, ``int`` or ``float``.
        argv: the command's arguments.

    Raises:
        UserError: for a name that is no setting, a value of the wrong type, or no ``out``.
    """
    kinds = {field.name: READERS[str(field.type)] for field in fields(kind)}
    values: dict[str, Any] = {}
    for argument in argv:
        name, _, value = argument.partition("=")
        if name not in kinds:
            raise UserError(f"unknown setting {name!r}; choose from {', '.join(kinds)}")
        try:
            values[name] = kinds[name](value)
        except ValueError as error:
            raise UserError(f"{argument!r}: {name} takes a number") from error
    if not values.get("out"):
        raise UserError("say where to write: out=FOLDER")
    return kind(**values)
