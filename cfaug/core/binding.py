"""Check composed settings against the signatures that receive them, and against what reads them."""

from __future__ import annotations

import difflib
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_origin, is_typeddict

from cfaug.core.errors import UserError
from cfaug.core.processes import explain_missing
from cfaug.core.validation import (
    accepts,
    alternatives_of,
    annotation_of,
    base_of,
    choices_of,
    explain_refusal,
    is_sequence,
    plain_of,
    write_value,
)
from cfaug.core.weights import is_questions, is_world

HYDRAS_OWN = ("_target_", "_convert_", "_partial_", "_recursive_")
"""Keys of a node that are not arguments of its target."""
NOT_TYPED = ("overrides",)
"""Arguments of a command that are not settings."""


def locate(dotted: str) -> Any:
    """Import the class or function that ``_target_`` names."""
    module, _, name = str(dotted).rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        why = explain_missing(error) or str(error)
        if isinstance(error, ModuleNotFoundError) and not module.startswith("cfaug."):
            why += " (your own modules are imported from the folder of --config-dir and PYTHONPATH)"
        raise UserError(f"_target_ {dotted!r} cannot be imported: {why}") from error


def bind(
    tree: Mapping[str, Any],
    command: Callable[..., Any],
    given: Given | None = None,
    options: Callable[[str], Sequence[str]] = lambda group: (),
) -> dict[str, Any]:
    """Check every node against the signature that will receive it, and return it in those types.

    Args:
        command: the function that receives the top-level settings.
        given: {dotted key: typed value} of the settings on the command line.
        options: a function that returns the choices of a group; empty for anything else.
    """
    node = _bind_node(tree, command, "", given or {}, options)
    return {key: _bind_targets(value, key, given or {}) for key, value in node.items()}


def _bind_targets(value: Any, path: str, given: Given) -> Any:
    """Return a value in which every node with a target fits the target's signature."""
    if isinstance(value, list):
        return [_bind_targets(one, f"{path}[{i}]", given) for i, one in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    node: Mapping[str, Any] = value
    if "_target_" in node:
        node = _bind_node(node, locate(node["_target_"]), f"{path}.", given)
    return {key: _bind_targets(one, f"{path}.{key}", given) for key, one in node.items()}


def _bind_node(
    node: Mapping[str, Any],
    target: Callable[..., Any],
    path: str,
    given: Given,
    options: Callable[[str], Sequence[str]] = lambda group: (),
) -> dict[str, Any]:
    taken = inspect.signature(target).parameters
    if any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        return dict(node)
    names = [name for name in taken if path or name not in NOT_TYPED]
    arguments = {key: value for key, value in node.items() if key not in HYDRAS_OWN}
    refuse_unknown(arguments, names, path)
    for name in names:
        required = taken[name].default is inspect.Parameter.empty and not node.get("_partial_")
        if required and name not in arguments:
            hint = ", ".join(options(path + name))
            raise UserError(f"{path}{name} is missing" + (f": choose from {hint}" if hint else ""))
    if path and not _ours(target):  # the author of a foreign class may annotate it in any way
        return dict(node)
    return {
        key: value
        if key not in arguments
        else fit_value(value, annotation_of(target, key), path + key, given)
        for key, value in node.items()
    }


def _ours(target: Callable[..., Any]) -> bool:
    return str(getattr(target, "__module__", "")).partition(".")[0] == "cfaug"


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
        base_of(choice) is Literal and all(isinstance(one, str) for one in choices_of(choice))
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
    pairs = enumerate(zip(value, kinds, strict=True))
    return [fit_value(one, kind, f"{key}[{number}]", given) for number, (one, kind) in pairs]


def _mapping(value: Mapping[str, Any], choice: Any, key: str, given: Given) -> Mapping[str, Any]:
    base = base_of(choice)
    if is_typeddict(base):
        kinds = {name: annotation_of(base, name) for name in base.__annotations__}
        refuse_unknown(value, list(kinds), f"{key}.")
        required: Sequence[str] = sorted(base.__required_keys__)
    else:
        required, special = _marks(choice)
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
        name: fit_value(one, kinds[name], f"{key}.{name}", given) for name, one in value.items()
    }


def _marks(choice: Any) -> tuple[Sequence[str], Mapping[str, Any]]:
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
        if not (path or near) and isinstance(node[key], Mapping):
            hint = f"a file of {key}/ with settings of every group begins with "
            hint += "`# @package _global_`. "
        raise UserError(
            f"nothing takes {path}{key}: {hint}Keys here: "
            + ", ".join(path + name for name in taken)
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
    own = [name for name in known if name.rpartition(".")[0] == parent]
    settings = [
        name
        for name in dict.fromkeys([*own, *known])
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


Config = dict[str, Any]


# Settings that a class reads only beside others, as the class itself declares.
#
# A class names them in ``read_with``::
#
#     read_with: ClassVar[ReadWith] = {
#         "order_seed": {"option_order": ("shuffled",)},
#         "max_new_tokens": {"protocol": ("write",)},
#     }
#
# A condition may also be about what is evaluated, which is not a setting of the class: ``MODEL``,
# ``TRAINED``, ``WORLD`` and ``LEARNT``. Where that is not known yet, such a condition holds.
#
# ``cfaug.run.unread`` refuses such a setting on the command line where nothing reads it, and
# ``--help`` lists the conditions.

GIVEN = "given"
"""The condition that a setting has any value but null, false, 0 and an empty text or list."""
FOLDER = "FOLDER"
"""The condition that a setting names data other than a part of the embedded world."""
MODEL, TRAINED, WORLD, LEARNT = "@model", "@trained", "@world", "@learnt"
"""Conditions about what is evaluated: the name of the protocol by which the model is asked, whether
it is a finished run, whether its data are in the embedded world, and whether it learnt from
``captions``, ``hypotheses`` or ``questions``."""
Condition = Mapping[str, Sequence[Any] | str]
"""{setting of the same class: its values, or ``GIVEN`` or ``FOLDER``}; all have to hold."""
ReadWith = Mapping[str, Condition | Sequence[Condition]]
"""{setting: the condition under which it is read, or several of which one has to hold}.

A class that never reads a setting, such as an inherited one, or ``part.setting`` of one of its
parts, declares it with no condition: ``[]``."""


def declared_by(target: Callable[..., Any]) -> dict[str, Sequence[Condition]]:
    """Return {setting: the conditions of which one has to hold} of a class and its bases."""
    bases = reversed(target.__mro__) if isinstance(target, type) else ()
    every: dict[str, Any] = {}
    for base in bases:
        every |= vars(base).get("read_with", {})
    return {name: [one] if isinstance(one, Mapping) else one for name, one in every.items()}


def find_unread(
    target: Callable[..., Any], node: Mapping[str, Any], tested: Mapping[str, Any] | None = None
) -> dict[str, Sequence[Condition]]:
    """Return {setting that the class does not read: the conditions of which one has to hold}.

    Args:
        node: its settings; those that are missing have their defaults.
        tested: {``MODEL``, ``TRAINED``, ...: what is known of the model to evaluate}.

    >>> class Questions:
    ...     read_with = {"seed": {"order": ("shuffled", "reversed")}}
    ...     def __init__(self, order="given", seed=0): pass
    >>> find_unread(Questions, {"seed": 3})
    {'seed': [{'order': ('shuffled', 'reversed')}]}
    >>> find_unread(Questions, {"seed": 3, "order": "shuffled"})
    {}
    """
    declared = declared_by(target)
    if not declared:
        return {}
    usual = {
        name: one.default
        for name, one in inspect.signature(target).parameters.items()
        if one.default is not inspect.Parameter.empty
    }
    values = {**usual, **node, **(tested or {})}
    return {
        name: conditions
        for name, conditions in declared.items()
        if not any(holds(condition, values) for condition in conditions)
    }


def holds(condition: Condition, values: Mapping[str, Any]) -> bool:
    """Say whether a condition holds for the settings of a class; missing ones count as null.

    >>> holds({"kinds": ("synonym",)}, {"kinds": ["frame", "synonym"]})  # of a list one value
    True
    """
    return all(_fits(name, wanted, values) for name, wanted in condition.items())


def _fits(name: str, wanted: Sequence[Any] | str, values: Mapping[str, Any]) -> bool:
    if name.startswith("@") and name not in values:
        return True
    value = values.get(name)
    if wanted == GIVEN:
        return bool(value)
    return _names_folder(value) if wanted == FOLDER else _has(value, wanted)


def _names_folder(value: Any) -> bool:
    if isinstance(value, str):
        return not (is_world(value) or is_questions(value))
    inside = value.values() if isinstance(value, Mapping) else value or ()
    return any(_names_folder(one) for one in inside)


def _has(value: Any, wanted: Sequence[Any]) -> bool:
    if isinstance(value, list | tuple):
        return any(one in wanted for one in value)
    return value in wanted


def describe_conditions(conditions: Sequence[Condition], prefix: str = "") -> str:
    """Return conditions as they are typed.

    Args:
        prefix: the node of the settings, with its dot.

    >>> describe_conditions([{"protocol": ("write",), "rationale": GIVEN}], "benchmark.")
    'benchmark.protocol=write and benchmark.rationale=...'
    >>> describe_conditions([{"data": FOLDER, TRAINED: (True,)}, {MODEL: ("Answerer",)}])
    'data=FOLDER and finished runs (name=..., arm=..., runs=...), or a model that provides Answerer'
    """
    if not conditions:
        return "no setting of this part"
    return ", or ".join(
        " and ".join(_describe(name, wanted, prefix) for name, wanted in condition.items())
        for condition in conditions
    )


def _describe(name: str, wanted: Sequence[Any] | str, prefix: str) -> str:
    if name == MODEL:
        return f"a model that provides {' or '.join(wanted)}"
    if name in _TESTED:
        return " or ".join(_TESTED[name][value] for value in wanted)
    if wanted in (GIVEN, FOLDER):
        return f"{prefix}{name}={'...' if wanted == GIVEN else FOLDER}"
    return " or ".join(f"{prefix}{name}={write_value(value)}" for value in wanted)


_TESTED: Mapping[str, Mapping[Any, str]] = {
    TRAINED: {True: "finished runs (name=..., arm=..., runs=...)"},
    WORLD: {
        True: "data in the embedded world (data=shapescapes)",
        False: "data outside the embedded world (data=folder)",
    },
    LEARNT: {
        "captions": "runs that learnt from captions",
        "hypotheses": "runs that learnt from labelled hypotheses",
        "questions": "runs that learnt from questions",
    },
}
