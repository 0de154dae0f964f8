"""Settings checked against their annotations by pydantic, with uniform error messages.

A settings class annotates its fields with the types below and calls :func:`check_fields` once;
rules about several fields are plain code in ``__post_init__``. Checking is strict: a text is not a
boolean, 1.5 is not a count, a boolean is not a number, and neither are NaN and infinity. Values are
not converted, so that hashes and pickles stay the same: the classes are dataclasses of the standard
library, as pydantic's would turn 1 into 1.0. Data (records, files of others) are checked where they
are read, where a message can name the file, the line and the remedy.

The first check imports pydantic, which takes 45 ms; ``--help`` checks nothing.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import BaseMetadata, Ge, GroupedMetadata, Gt, Interval, Le, Lt, MinLen

from cfaug.core.annotations import (
    Keys,
    MayRepeat,
    Means,
    alternatives_of,
    annotation_of,
    base_of,
    choices_of,
    is_sequence,
    marks_of,
    plain_of,
)
from cfaug.core.errors import UserError

if TYPE_CHECKING:
    from pydantic import TypeAdapter


Count = Annotated[int, Ge(0)]
Positive = Annotated[int, Ge(1)]
PositiveNumber = Annotated[float, Gt(0)]
Weight = Annotated[float, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]
PartialShare = Annotated[float, Interval(ge=0, lt=1)]
"""A share below 1: in [0, 1)."""
Seed = Annotated[int, Interval(ge=0, le=2**32 - 1)]
"""The seed of draws, in the range of numpy's and scikit-learn's seeds."""
RunSeed = Annotated[int, Interval(ge=0, le=2**32 - 2)]
"""A seed after which another one must exist: a run's data seed is its seed + 1."""
Processes = Annotated[int, Interval(ge=1, le=1024)]
"""A number of processes or threads at once, which a slip of the keyboard may not make endless."""
Workers = Annotated[int, Interval(ge=0, le=1024)]
"""A number of processes besides this one."""
INTEGERS = range(-(2**63), 2**63)
"""The whole numbers that a setting may have: those that numpy, torch and the file formats store."""
LONGEST = 200
"""The largest number of characters of a value that a message quotes."""
NUMBER = re.compile(r"[+-]?[\d.]{1,50}(e[+-]?\d{1,9})?", re.ASCII | re.IGNORECASE)
"""A text that reads like a number."""

Node = Annotated[Mapping[str, Any], Keys(("_target_",))]
"""The settings of an object, whose class or function ``_target_`` names."""
RunPaths = Annotated[
    Mapping[str, str],
    Keys(("runs", "shards", "cache"), (("image_roots", Sequence[str] | None),)),
]
"""The folders of runs, shards and cached indexes; other keys are for ``${paths.NAME}``."""
Words = Annotated[Sequence[str], MayRepeat()]
"""The words of a command line; agents of W&B repeat those of a sweep."""
DryRun = bool | Annotated[Literal["json"], Means("for programs")]


def check_fields(settings: Any, node: str = "") -> None:
    """Check the fields of a dataclass against their annotations.

    A list becomes a tuple where the annotation says so. Fields annotated with a class that YAML
    does not have are left to the caller.

    Args:
        node: the prefix of the settings' names, ``data`` for ``data.drop_last``; empty at the top.
    """
    for name, annotation in _annotations(settings.__class__):
        value = getattr(settings, name)
        key = f"{node}.{name}" if node else name
        check(value, annotation, key)
        if isinstance(value, list | tuple):
            for choice in alternatives_of(annotation):
                refuse_repeated(value, choice, key)
        if isinstance(value, list) and base_of(annotation) is tuple:
            object.__setattr__(settings, name, tuple(value))


def refuse_repeated(value: Any, annotation: Any, key: str) -> None:
    """Refuse a list of any number of texts that has one of them twice, unless they may repeat."""
    texts = [item for item in value if isinstance(item, str)]
    base, kinds = base_of(annotation), get_args(plain_of(annotation))
    counted = is_sequence(base) and (base is not tuple or kinds[-1:] == (Ellipsis,))
    if not counted or len(texts) != len(value) or len({*texts}) == len(texts):
        return
    if any(isinstance(mark, MayRepeat) for mark in marks_of(annotation)):
        return
    twice = next(text for number, text in enumerate(texts) if text in texts[:number])
    raise UserError(f"{key}={write_value(value)} lists {twice} more than once: list it once")


def check(value: Any, annotation: Any, key: str) -> None:
    """Check one value against an annotation.

    Args:
        annotation: its annotation, such as ``Positive | None``.
        key: the setting's dotted name.
    """
    if not accepts(value, annotation):
        raise UserError(explain_refusal(value, annotation, key))


def check_part(part: int, parts: int) -> None:
    """Refuse an invalid part of a sweep or of a generation.

    Args:
        part: the number of the part, from 0.
    """
    if not 0 <= part < parts:
        raise UserError(f"part={part} parts={parts}: part counts from 0 to parts - 1")


def accepts(value: Any, annotation: Any) -> bool:
    """Say whether a value conforms to an annotation, strictly.

    >>> accepts(2, Positive | None), accepts(True, Positive), accepts(2, float)
    (True, False, True)
    """
    from pydantic import ValidationError

    try:
        adapter_of(annotation).validate_python(value)
    except ValidationError:
        return False
    return True


@cache
def _annotations(kind: type) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (field.name, annotation_of(kind, field.name)) for field in fields(kind) if field.init
    )


@cache
def adapter_of(annotation: Any) -> TypeAdapter[Any]:
    """Return pydantic's strict check of an annotation."""
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(_strict(annotation), config=ConfigDict(strict=True, allow_inf_nan=False))


def _strict(annotation: Any) -> Any:
    """Return an annotation in pydantic's terms: lists are tuples, other classes anything.

    Literals must be texts, since pydantic accepts ``False`` for ``Literal[0]``.
    """
    from pydantic import BeforeValidator

    origin, kinds = get_origin(annotation), get_args(annotation)
    if origin is Annotated and (names := choices_of(annotation)):
        return Literal[names]
    if origin is Annotated:
        kinds = tuple(kind for kind in kinds if not isinstance(kind, Means | MayRepeat))
        if len(kinds) == 1:
            return _strict(kinds[0])
        if not all(isinstance(mark, BaseMetadata | GroupedMetadata) for mark in kinds[1:]):
            return Any  # fit_value reads and checks other marks
        # BeforeValidators run from the last to the first: the base's, which comes last, runs before
        # the bounds are compared.
        number = kinds[0] in {float, int}
        base, *reader = get_args(_strict(kinds[0])) if number else [_strict(kinds[0])]
        return Annotated[(base, *kinds[1:], *reader)]
    if origin in {Union, types.UnionType}:
        return reduce(or_, map(_strict, kinds))
    if annotation in {None, bool, str, types.NoneType} or origin is Literal:
        return annotation
    if annotation is int:
        return Annotated[int, BeforeValidator(_refuse_huge)]
    if annotation is float:  # pydantic would accept all that float() does, such as a tensor
        return Annotated[float, BeforeValidator(_refuse_lookalike)]
    inner = tuple(kind if kind is Ellipsis else _strict(kind) for kind in kinds)
    base = base_of(annotation)
    if base is tuple:
        return Annotated[(base[inner or (Any, ...)], BeforeValidator(_read_list))]
    if is_sequence(base):
        return Sequence[inner or Any]  # type: ignore[misc]
    if base in {Mapping, dict}:
        return Mapping[inner or (Any, Any)]  # type: ignore[misc]
    return Any


def _refuse_lookalike(value: Any) -> Any:
    return value if isinstance(value, int | float) else None


def _refuse_huge(value: Any) -> Any:
    return None if isinstance(value, int) and value not in INTEGERS else value


def _read_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def explain_refusal(value: Any, annotation: Any, key: str) -> str:
    """Return the message that refuses a value, with the invalid item and the allowed ones.

    Args:
        key: the setting's dotted name.
    """
    choices = alternatives_of(annotation)
    for choice in choices if len(choices) <= 2 else ():
        for position, item, kind in _parts(value, choice):
            if not accepts(item, kind):
                return explain_refusal(item, kind, key + position)
    names = [str(name) for choice in choices for name in choices_of(choice)]
    if names:
        names += ["null"] if types.NoneType in map(base_of, choices) else []
        near = difflib.get_close_matches(write_value(value), names, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"{key}={write_value(value)}: choose from {', '.join(names)}{hint}"
    wanted = " or ".join(dict.fromkeys(describe_type(choice) for choice in choices))
    whole = [choice for choice in choices if base_of(choice) is int]
    bounded = any(isinstance(mark, Le | Lt) for choice in whole for mark in marks_of(choice))
    huge = whole and not bounded and isinstance(value, int) and value not in INTEGERS
    limit = f"; the largest whole number is {INTEGERS[-1]}" if huge else ""
    number_in_quotes = isinstance(value, str) and NUMBER.fullmatch(value)
    written = f'"{value}"' if number_in_quotes else write_value(value)
    return f"{key}={written} should be {wanted}{limit}"


def _parts(value: Any, annotation: Any) -> list[tuple[str, Any, Any]]:
    """Return the items of a list or mapping, each with its place and its annotation.

    The list is empty if the annotation gives none, or another length.
    """
    base, kinds = base_of(annotation), get_args(plain_of(annotation))
    if isinstance(value, Mapping) and base in {Mapping, dict} and kinds:
        return [(f".{name}", item, kinds[1]) for name, item in value.items()]
    if not isinstance(value, list | tuple) or not is_sequence(base) or not kinds:
        return []
    if base is not tuple or kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    pairs = enumerate(zip(value, kinds, strict=False))
    return [(f"[{i}]", item, kind) for i, (item, kind) in pairs] if len(value) == len(kinds) else []


def describe_type(annotation: Any) -> str:
    """Return a description of the values of a setting of this type.

    >>> [describe_type(kind) for kind in (Positive, PartialShare, Sequence[str], None)]
    ['a whole number of at least 1', 'a number in [0, 1)', 'a list of texts', 'null']
    >>> describe_type(Annotated[None, Means("all cores")])
    'null (all cores)'
    """
    meaning = "".join(
        f" ({mark.words})" for mark in marks_of(annotation) if isinstance(mark, Means)
    )
    return _describe_values(annotation) + meaning


def _describe_values(annotation: Any) -> str:
    base, marks = base_of(annotation), marks_of(annotation)
    simple = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    if base in simple:
        return simple[base] + _describe_bounds(marks)
    if base in {None, types.NoneType}:
        return "null"
    if is_sequence(base):
        kinds = [kind for kind in get_args(plain_of(annotation)) if kind is not Ellipsis]
        least = [str(mark.min_length) for mark in marks if isinstance(mark, MinLen)]
        fixed = base is tuple and kinds and Ellipsis not in get_args(plain_of(annotation))
        count = [str(len(kinds))] if fixed else [f"{length} or more" for length in least]
        names = choices_of(kinds[0]) if kinds else ()
        plural = {int: "whole numbers", float: "numbers", str: "texts"}
        items: list[str] = []
        if names:
            these = f"these: {', '.join(map(str, names))}"
            items = ["of", these] if count else [these]
        elif kinds and base_of(kinds[0]) in plural:
            items = [plural[base_of(kinds[0])] + _describe_bounds(marks_of(kinds[0]))]
        return " ".join(["a list", *(["of"] if count or items else []), *count, *items])
    return "settings of its own, one by one (key.name=value)"


def _describe_bounds(marks: Sequence[Any]) -> str:
    """Return the bounds of a number in words."""
    low: list[tuple[Any, str]] = [(mark.ge, "[") for mark in marks if isinstance(mark, Ge)]
    low += [(mark.gt, "(") for mark in marks if isinstance(mark, Gt)]
    high: list[tuple[Any, str]] = [(mark.le, "]") for mark in marks if isinstance(mark, Le)]
    high += [(mark.lt, ")") for mark in marks if isinstance(mark, Lt)]
    if low and high:
        (least, left), (most, right) = low[0], high[0]
        if (left, right) == ("[", "]"):
            return f" from {least} to {most}"
        return f" in {left}{least}, {most}{right}"
    words = {"[": "of at least", "(": "above", "]": "of at most", ")": "below"}
    return "".join(f" {words[side]} {bound}" for bound, side in low + high)


def write_value(value: Any) -> str:
    """Return a value as it is typed on the command line, shortened for a message.

    >>> [write_value(value) for value in (None, True, 1.5, "no", ["a", None])]
    ['null', 'true', '1.5', 'no', '[a,null]']
    """
    try:
        text = _write(value)
    except (RecursionError, ValueError):  # endless nesting; an integer of thousands of digits
        return f"({type(value).__name__})"
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


def _write(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_write, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{name}:{_write(item)}' for name, item in value.items())}}}"
    return str(value)
