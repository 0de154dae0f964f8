"""The settings of a class as it declares them, in words and as a JSON Schema.

A class declares a setting once: the field with its annotation and its default, and its sentence,
under the field or, for several together, under ``Args:`` of the class. What it reads only beside
others stands in ``ReadIf`` (``cfaug.settings.read_if``).
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal, is_typeddict

from cfaug.core.annotations import (
    NOT_TYPED,
    VARIADIC,
    Keys,
    alternatives_of,
    annotation_of,
    base_of,
    choices_of,
    is_sequence,
    marks_of,
    signature_of,
)
from cfaug.core.targets import TARGET
from cfaug.core.validation import adapter_of, describe_type, write_value
from cfaug.settings.read_if import declared_by, describe_conditions

ENTRY = re.compile(r"( *)(\w+): (.*)")
"""The first line of an entry under ``Args:`` or ``Attributes:``."""
SECTION = re.compile(r"^( *)(Args|Attributes):$")


@dataclass(frozen=True)
class Declaration:
    """A setting of a class.

    Attributes:
        values: the values that it takes, in words.
        default: its default as it is typed; empty if it is required.
        meaning: its sentence; empty if the class has none.
        read_if: the only case in which it is read, such as ``with kind=scale``; empty for always.
    """

    name: str
    values: str
    default: str
    meaning: str
    read_if: str


@cache
def declarations(target: Callable[..., Any]) -> tuple[Declaration, ...]:
    """Return the settings of a class or function, in the order of its signature."""
    meanings, conditions = meanings_of(target), declared_by(target)
    # Of ``paths`` a command may read some folders always, and others never by itself.
    partly = {name.partition(".")[0] for name, read in conditions.items() if read == [{}]}
    taken: Mapping[str, inspect.Parameter | None] = signature_of(target)
    if is_typeddict(target):
        taken = dict.fromkeys(target.__annotations__)
    return tuple(
        Declaration(
            name,
            describe_annotation(annotation_of(target, name)),
            "" if parameter is None else _default(target, parameter),
            meanings.get(name, ""),
            describe_conditions(conditions[name]) if name in conditions.keys() - partly else "",
        )
        for name, parameter in taken.items()
        if name not in NOT_TYPED and (parameter is None or parameter.kind not in VARIADIC)
    )


def _default(target: Callable[..., Any], parameter: inspect.Parameter) -> str:
    value = parameter.default
    if value is inspect.Parameter.empty:
        return ""
    if is_dataclass(target):  # a default that is made anew for every object
        made = {field.name: field.default_factory for field in fields(target)}
        factory = made.get(parameter.name, MISSING)
        value = value if factory is MISSING else factory()
    if is_dataclass(value):
        return value.__class__.__name__
    return write_value(value)


@cache
def meanings_of(target: Callable[..., Any]) -> Mapping[str, str]:
    """Return {setting: its meaning} of a class or function, in the words of a command line."""
    meanings: dict[str, str] = {}
    for kind in reversed(target.__mro__) if isinstance(target, type) else [target]:
        if getattr(kind, "__module__", "builtins") != "builtins":
            meanings |= _entries(inspect.cleandoc(kind.__doc__ or "")) | _sentences(kind)
    typed = {"``None``": "null", "``True``": "true", "``False``": "false", "``": ""}
    for name, meaning in meanings.items():
        for written, word in typed.items():
            meaning = meaning.replace(written, word)
        meanings[name] = meaning.rstrip(".")
    return meanings


def _entries(docstring: str) -> dict[str, str]:
    """Return the entries under ``Args:`` and ``Attributes:``."""
    entries: dict[str, str] = {}
    depth, name = -1, ""
    for line in docstring.splitlines():
        section, entry = SECTION.match(line), ENTRY.fullmatch(line)
        if section:
            depth = len(section[1]) + 4
        elif line.strip() and len(line) - len(line.lstrip()) < depth:
            depth = -1
        elif entry and len(entry[1]) == depth:
            name = entry[2]
            entries[name] = entry[3]
        elif depth > 0 and name and line.strip():
            entries[name] += f" {line.strip()}"
    return entries


def _sentences(kind: Any) -> dict[str, str]:
    """Return the texts under the fields of a class."""
    body = _classes(kind.__module__).get(kind.__qualname__, ()) if isinstance(kind, type) else ()
    return {
        field.target.id: inspect.cleandoc(text.value.value).replace("\n", " ")
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


@cache
def _classes(module: str) -> Mapping[str, Sequence[ast.stmt]]:
    """Return {class at the top of a module: its body}; empty for one without Python code."""
    try:
        code = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, SyntaxError, KeyError):  # made by a program, or written in C
        return {}
    return {node.name: node.body for node in code.body if isinstance(node, ast.ClassDef)}


def describe_annotation(annotation: Any) -> str:
    """Return the values that an annotation allows, in words.

    >>> describe_annotation(int | None), describe_annotation(bool)
    ('a whole number or null', 'true or false')
    """
    alternatives = alternatives_of(annotation)
    names = [str(name) for choice in alternatives for name in choices_of(choice)]
    rest = [describe_type(choice) for choice in alternatives if not choices_of(choice)]
    inner = "settings of its own, one by one (key.name=value)"
    words = list(dict.fromkeys([*([", ".join(names)] if names else []), *rest]))
    return " or ".join(word.replace(inner, "settings of its own") for word in words)


def schema_of(target: Callable[..., Any]) -> dict[str, Any]:
    """Return the settings of a class as a JSON Schema; ``${...}`` may stand for any value."""
    properties: dict[str, Any] = {}
    for setting in declarations(target):
        schema = {"anyOf": [_schema(annotation_of(target, setting.name)), REFERENCE]}
        read = [f"Read {setting.read_if}"] if setting.read_if else []
        properties[setting.name] = {**schema, "description": ". ".join([setting.meaning, *read])}
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "patternProperties": {"^_": {}},
    }


REFERENCE = {"type": "string", "pattern": r"\$\{"}
"""Another setting in the place of a value."""


def _schema(annotation: Any) -> dict[str, Any]:
    alternatives = alternatives_of(annotation)
    if len(alternatives) > 1:
        return {"anyOf": [_schema(alternative) for alternative in alternatives]}
    base = base_of(annotation)
    if isinstance(base, type) and (issubclass(base, Mapping) or is_typeddict(base)):
        keys = [mark.required for mark in marks_of(annotation) if isinstance(mark, Keys)]
        needed = [key for names in keys for key in names if key != TARGET]
        return {"type": "object", **({"required": needed} if needed else {})}
    simple = base in {None, types.NoneType, bool, int, float, str, Literal}
    if simple or is_sequence(base):
        return adapter_of(annotation).json_schema()
    return {"type": ["object", "string", "array", "null"]}  # an object of a class, or its settings
