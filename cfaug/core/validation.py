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

import builtins
import difflib
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, reduce
from operator import or_
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)  # fmt: skip

from annotated_types import BaseMetadata, Ge, GroupedMetadata, Gt, Interval, Le, Lt, MinLen

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


@dataclass(frozen=True)
class OneOf:
    """The allowed texts of a setting, as in ``Annotated[str, OneOf(names)]``.

    Attributes:
        names: the allowed texts, in the order in which messages list them.
    """

    names: tuple[str, ...]

    def __init__(self, names: Iterable[str]) -> None:
        object.__setattr__(self, "names", tuple(names))


@dataclass(frozen=True)
class Means:
    """The meaning of one alternative of a setting, as in ``Annotated[None, Means("all cores")]``.

    Attributes:
        words: the meaning, perhaps with an example, that refusals put in brackets.
    """

    words: str


@dataclass(frozen=True)
class MayRepeat:
    """The mark of a list whose texts may be equal, as in ``Annotated[Sequence[str], MayRepeat()]``.

    Any other list of texts names choices, files or parts, of which each is taken once.
    """


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
    if any(isinstance(mark, MayRepeat) for mark in _marks(annotation)):
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
    check(part, int, "part")
    check(parts, int, "parts")
    if not 0 <= part < parts:
        raise UserError(f"part={part} parts={parts}: part counts from 0 to parts - 1")


def accepts(value: Any, annotation: Any) -> bool:
    """Say whether a value conforms to an annotation, strictly.

    >>> accepts(2, Positive | None), accepts(True, Positive), accepts(2, float)
    (True, False, True)
    """
    from pydantic import ValidationError

    try:
        _adapter(annotation).validate_python(value)
    except ValidationError:
        return False
    return True


@cache
def _annotations(kind: type) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (field.name, annotation_of(kind, field.name)) for field in fields(kind) if field.init
    )


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
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
        # The validator of the base comes last, so that it runs before the bounds are compared.
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


def alternatives_of(annotation: Any) -> list[Any]:
    """Return the alternatives that ``|`` joins."""
    if get_origin(annotation) in {Union, types.UnionType}:
        return [
            alternative for part in get_args(annotation) for alternative in alternatives_of(part)
        ]
    return [annotation]


@cache
def base_of(annotation: Any) -> Any:
    """Return the class behind ``Annotated[...]`` and ``[...]``."""
    plain = plain_of(annotation)
    return get_origin(plain) or plain


def plain_of(annotation: Any) -> Any:
    """Return an annotation without ``Annotated``."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


@cache
def is_sequence(base: Any) -> bool:
    """Say whether a class is a sequence other than text."""
    return isinstance(base, type) and issubclass(base, Sequence) and not issubclass(base, str)


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
    bounded = any(isinstance(mark, Le | Lt) for choice in whole for mark in _marks(choice))
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


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """Return the values that an annotation lists; empty if it lists none."""
    for mark in _marks(annotation):
        if isinstance(mark, OneOf):
            return mark.names
    plain = plain_of(annotation)
    return get_args(plain) if get_origin(plain) is Literal else ()


def _marks(annotation: Any) -> list[Any]:
    """Return the metadata of ``Annotated``, each bound by itself."""
    metadata: list[Any] = []
    while get_origin(annotation) is Annotated:
        annotation, *marks = get_args(annotation)
        for mark in marks:
            metadata += mark if isinstance(mark, GroupedMetadata) else [mark]
    return metadata


def describe_type(annotation: Any) -> str:
    """Return a description of the values of a setting of this type.

    >>> [describe_type(kind) for kind in (Positive, PartialShare, Sequence[str], None)]
    ['a whole number of at least 1', 'a number in [0, 1)', 'a list of texts', 'null']
    >>> describe_type(Annotated[None, Means("all cores")])
    'null (all cores)'
    """
    meaning = "".join(f" ({mark.words})" for mark in _marks(annotation) if isinstance(mark, Means))
    return _describe_values(annotation) + meaning


def _describe_values(annotation: Any) -> str:
    base, marks = base_of(annotation), _marks(annotation)
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
        several = [words] if kinds and (words := _describe_several(kinds[0])) else []
        if several and count and choices_of(kinds[0]):
            count += ["of"]
        return " ".join(["a list", *["of"] * bool(count or several), *count, *several])
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


def _describe_several(kind: Any) -> str:
    names = {int: "whole numbers", float: "numbers", str: "texts"}
    name = names.get(base_of(kind), "")
    if choices_of(kind):
        return f"these: {', '.join(map(str, choices_of(kind)))}"
    return name + _describe_bounds(_marks(kind)) if name else ""


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


class Unresolved:
    """A stand-in for a name under ``if TYPE_CHECKING``, a class that no value from YAML has."""

    def __class_getitem__(cls, _: Any) -> type[Unresolved]:
        return cls


class _Names(dict[str, Any]):
    """The names of a module; names that only a type checker sees are unresolved."""

    def __missing__(self, name: str) -> Any:
        if name.startswith("__"):  # a debugger looks for these
            raise KeyError(name)
        return getattr(builtins, name, Unresolved)


@cache
def annotation_of(target: Callable[..., Any], name: str) -> Any:
    """Return the resolved annotation of one argument of a function or class.

    A name under ``if TYPE_CHECKING`` counts as some class; a missing annotation is ``Any``.
    """
    written, module = _written_annotation(target, name)
    written = getattr(written, "__forward_arg__", written)
    if not isinstance(written, str):
        return written
    # Like typing.get_type_hints, which fails for all arguments if one name is unknown.
    return eval(written, {"__builtins__": {}}, _Names(vars(sys.modules[module])))


def _written_annotation(target: Callable[..., Any], name: str) -> tuple[Any, str]:
    if isinstance(target, type):
        for base in target.__mro__:  # a dataclass's field is written where it is declared
            if name in vars(base).get("__annotations__", {}):
                return vars(base)["__annotations__"][name], base.__module__
    parameter = inspect.signature(target).parameters.get(name)
    if parameter is None or parameter.annotation is inspect.Parameter.empty:
        return Any, target.__module__
    maker: Any = vars(target).get("__init__", target) if isinstance(target, type) else target
    return parameter.annotation, getattr(maker, "__module__", target.__module__)


# Composed settings in the types of the annotations that receive them.

YES_AND_NO = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
"""YAML 1.1's booleans; Hydra's grammar reads ``no`` as a text."""


@dataclass(frozen=True)
class Keys:
    """The keys of a mapping, for ``Annotated``.

    Attributes:
        required: keys that must be present and not null.
        kinds: (key, annotation) of each key whose value has another type than the rest.
    """

    required: tuple[str, ...]
    kinds: tuple[tuple[str, Any], ...] = ()


Node = Annotated[Mapping[str, Any], Keys(("_target_",))]
"""The settings of an object, whose class or function ``_target_`` names."""
RunPaths = Annotated[
    Mapping[str, str],
    Keys(("runs", "shards", "cache"), (("image_roots", Sequence[str] | None),)),
]
"""The folders of runs, shards and cached indexes; other keys are for ``${paths.NAME}``."""
Given = Mapping[str, str]
"""{dotted key: its value as typed}."""


def fit_value(value: Any, annotation: Any, key: str, given: Given) -> Any:
    """Return a value in the type of its annotation.

    A text such as ``no`` becomes a boolean if one is expected, a number becomes the typed text if a
    text is expected, and a single text becomes a list if a list of texts is. Nothing else changes:
    an integer stays an integer if any number is accepted.

    Args:
        value: the composed value, of one of YAML's types.
        annotation: the resolved annotation that ``annotation_of`` returns.
        key: the setting's dotted name.
    """
    choices = alternatives_of(annotation)
    if isinstance(value, Mapping) and "_target_" not in value:  # rather a mapping than an object
        choices = sorted(choices, key=lambda choice: _is_object(base_of(choice)))
    for choice in choices:
        if _is(value, choice):
            return _inside(value, choice, key, given)
    for choice in choices:
        if choice is bool and isinstance(value, str) and value.lower() in YES_AND_NO:
            return YES_AND_NO[value.lower()]
        if _takes_text(choice) and isinstance(value, bool | int | float):
            text = given.get(key, write_value(value))
            if accepts(text, choice):
                return text
        if isinstance(value, str) and _takes_texts(choice):
            return fit_value([value], choice, key, given)
    raise UserError(explain_refusal(value, annotation, key))


def _takes_text(choice: Any) -> bool:
    return base_of(choice) is str or (
        base_of(choice) is Literal and all(isinstance(value, str) for value in choices_of(choice))
    )


def _takes_texts(choice: Any) -> bool:
    kinds = get_args(plain_of(choice))
    return is_sequence(base_of(choice)) and base_of((*kinds, None)[0]) is str


def _is(value: Any, choice: Any) -> bool:
    """Say whether a value of YAML's types has a choice's type, apart from its content."""
    base = base_of(choice)
    if base in {Any, object}:
        return True
    if base in {None, types.NoneType, bool, int, float, str, Literal}:
        return accepts(value, choice)
    if value is None:
        return _is_object(base)
    if isinstance(value, Mapping):
        return is_typeddict(base) or not is_sequence(base)
    return isinstance(value, list | tuple) and is_sequence(base)


def _is_object(base: Any) -> bool:
    """Say whether an annotation expects an object made from a node, or null in its place."""
    data = base in {Any, object, Mapping, dict} or is_typeddict(base) or is_sequence(base)
    return isinstance(base, type) and not data


def _inside(value: Any, choice: Any, key: str, given: Given) -> Any:
    """Return a value of the right kind with its content fitted as well."""
    base = base_of(choice)
    if isinstance(value, Mapping):
        return _mapping(value, choice, key, given)
    if not isinstance(value, list | tuple) or base in {Any, object}:
        return value
    kinds = get_args(plain_of(choice)) or (Any,)
    if base is tuple and kinds[-1] is not Ellipsis:
        if len(kinds) != len(value):
            raise UserError(explain_refusal(value, choice, key))
    else:
        kinds = (kinds[0],) * len(value)
    refuse_repeated(value, choice, key)
    pairs = enumerate(zip(value, kinds, strict=True))
    return [fit_value(item, kind, f"{key}[{number}]", given) for number, (item, kind) in pairs]


def _mapping(value: Mapping[str, Any], choice: Any, key: str, given: Given) -> Mapping[str, Any]:
    base = base_of(choice)
    if is_typeddict(base):
        kinds = {name: annotation_of(base, name) for name in base.__annotations__}
        refuse_unknown(value, list(kinds), f"{key}.")
        required: Sequence[str] = sorted(base.__required_keys__)
    else:
        required, special = _keys_of(choice)
        kinds = {**dict.fromkeys(value, _kind_of_values(choice)), **special}
        for name in required:
            if name in value and value[name] is None:
                raise UserError(f"{key}.{name}=null should be a text")
    missing = [name for name in required if name not in value]
    if "_target_" in missing:
        raise UserError(
            f"{key}={write_value(value)} lacks _target_, the class that takes these settings, such "
            "as _target_: PACKAGE.MODULE.CLASS"
        )
    if missing:
        raise UserError(f"{key}.{missing[0]} is missing")
    return {
        name: fit_value(item, kinds[name], f"{key}.{name}", given) for name, item in value.items()
    }


def _keys_of(choice: Any) -> tuple[Sequence[str], Mapping[str, Any]]:
    """Return the required keys of a mapping, and the annotations of single keys."""
    if get_origin(choice) is Annotated:
        for mark in get_args(choice)[1:]:
            if isinstance(mark, Keys):
                return mark.required, dict(mark.kinds)
    return ("_target_",) if _is_object(base_of(choice)) else (), {}


def _kind_of_values(choice: Any) -> Any:
    """Return the annotation of a mapping's values."""
    kinds = get_args(plain_of(choice))
    return kinds[1] if len(kinds) == 2 else Any


def refuse_unknown(node: Mapping[str, Any], taken: Sequence[str], path: str) -> None:
    """Refuse an unknown key."""
    for key in node:
        if key in taken:
            continue
        near = nearest(str(key), taken)
        hint = f"did you mean {path}{near}? " if near else ""
        if str(key) in OF_RESUMING:
            hint = f"{HOW_RUNS_RESUME}. "
        if not (path or near) and isinstance(node[key], Mapping):
            hint = f"a file of {key}/ with settings of every group begins with "
            hint += "`# @package _global_`. "
        raise UserError(
            f"nothing takes {path}{key}: {hint}Keys here: "
            + ", ".join(path + name for name in taken)
        )


OF_RESUMING = frozenset(
    {"auto_resume", "ckpt_path", "resume", "resume_from", "resume_from_checkpoint", "resume_path"}
)
"""Names that other libraries have for the checkpoint with which a training goes on."""
HOW_RUNS_RESUME = (
    "a run has a folder of its own and resumes by itself: the same command again goes on from "
    "last.ckpt there, extend=true with a larger trainer.max_steps trains a finished run longer, "
    "model.name_or_path=FOLDER starts from other weights, and evaluate.py takes weights=FOLDER"
)

USUAL_NAMES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "lr": ("learning_rate", "learningrate", "rate"),
        "weight_decay": ("wd", "decay"),
        "warmup_steps": ("warmup", "num_warmup_steps"),
        "warmup_ratio": ("warmup_proportion", "warmup_fraction"),
        "max_epochs": ("epochs", "epoch", "num_epochs", "num_train_epochs"),
        "max_steps": ("steps", "num_steps", "total_steps", "iterations"),
        "accumulate_grad_batches": (
            "accumulate", "accum_freq", "accumulation_steps", "gradient_accumulation_steps",
        ),
        "gradient_clip": ("grad_clip", "clip_grad", "gradient_clip_val", "max_grad_norm"),
        "devices": ("gpus", "num_gpus", "nproc_per_node"),
        "num_nodes": ("nodes", "nnodes"),
        "batch_size": ("bs", "batch", "train_batch_size", "per_device_train_batch_size"),
        "workers": ("num_workers", "dataloader_num_workers"),
        "validation": ("val_split", "val_ratio", "validation_split"),
        "cf_ratio": ("ratio", "counterfactual_ratio"),
        "name": ("experiment_name", "run_name"),
        "overwrite": ("force",),
        "captions": ("caption_file", "prompts"),
        "guidance_scale": ("cfg",),
    }
)  # fmt: skip
"""{setting: its names in other libraries (Hugging Face, Lightning, open_clip)}."""


def nearest(key: str, known: Sequence[str]) -> str | None:
    """Return the known dotted key that ``key`` probably means.

    Keys are compared as a whole and by their last part, those of the same node first. Names that
    other libraries use for a setting count as well; keys that begin with an underscore do not.

    >>> nearest("data.cf_rato", ["data.cf_ratio", "seed"])
    'data.cf_ratio'
    >>> nearest("cf_ratio", ["data.cf_ratio", "seed"])
    'data.cf_ratio'
    >>> nearest("optim.learning_rate", ["optim._target_", "optim.lr"])
    'optim.lr'
    """
    parent, _, tail = key.rpartition(".")
    siblings = [name for name in known if name.rpartition(".")[0] == parent]
    settings = [
        name
        for name in dict.fromkeys([*siblings, *known])
        if not any(part.startswith("_") for part in name.split("."))
    ]
    last = {name.rsplit(".", 1)[-1]: name for name in reversed(settings)}
    if tail in last and key not in settings:
        return last[tail]
    for name, others in USUAL_NAMES.items():
        if tail.lower() in others and name in last:
            return last[name]
    whole = difflib.get_close_matches(key, settings, 1, 0.6)
    if whole and whole[0].rpartition(".")[0] == parent:
        return whole[0]
    near = difflib.get_close_matches(tail, list(last), 1, 0.65)
    return last[near[0]] if near else (whole[0] if whole else None)


# Dataclasses read from JSON; pydantic checks the fields against their annotations.
#
# This is for files that this program wrote, where a list may stand for a tuple, and a text that is
# a key for a number; settings are checked strictly, by ``cfaug.core.validation``.

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
