"""Check composed settings against the signatures that receive them, and against what reads them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args

from cfaug.core.annotations import alternatives_of, annotation_of, base_of, is_sequence, plain_of
from cfaug.core.errors import UserError
from cfaug.core.fitting import Given, fit_value
from cfaug.core.known_names import refuse_unknown
from cfaug.core.protocols import DualEncoder
from cfaug.core.targets import (
    OF_NODES,
    TARGET,
    argument_annotation,
    item_annotation,
    locate,
    locate_class,
)
from cfaug.core.validation import write_value
from cfaug.core.worlds import is_questions, is_world

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
NOT_TYPED = ("overrides",)
"""Arguments of a command that are not settings."""


@cache
def signature_of(target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function; one written in C may take any settings."""
    try:
        return inspect.signature(target).parameters
    except ValueError:
        return {"settings": inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD)}


def lists_of_numbers(command: Callable[..., Any]) -> frozenset[str]:
    """Return the settings of a command that may be lists of numbers."""
    return frozenset(
        name
        for name in signature_of(command)
        for choice in alternatives_of(annotation_of(command, name))
        if is_sequence(base_of(choice))
        and base_of((*get_args(plain_of(choice)), Any)[0]) in {int, float}
    )


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
    return {
        key: _bind_targets(value, key, given or {}, argument_annotation(command, key))
        for key, value in node.items()
    }


def _bind_targets(
    value: Any, path: str, given: Given, annotation: Any, owner: type | None = None
) -> Any:
    """Return a value in which every node with a target fits the target's signature.

    Args:
        annotation: the annotation of what takes the value.
        owner: the class that takes it.
    """
    if isinstance(value, list):
        return [
            _bind_targets(
                child, f"{path}[{i}]", given, item_annotation(annotation, value, i), owner
            )
            for i, child in enumerate(value)
        ]
    if not isinstance(value, Mapping):
        return value
    node: Mapping[str, Any] = value
    if TARGET not in node:
        return {
            key: _bind_targets(
                child, f"{path}.{key}", given, item_annotation(annotation, node, key), owner
            )
            for key, child in node.items()
        }
    named = locate_class(node, annotation, path, owner)
    node = _bind_node(node, named, f"{path}.", given)
    return {
        key: _bind_targets(child, f"{path}.{key}", given, argument_annotation(named, key), named)
        for key, child in node.items()
    }


def _bind_node(
    node: Mapping[str, Any],
    target: Callable[..., Any],
    path: str,
    given: Given,
    options: Callable[[str], Sequence[str]] = lambda group: (),
) -> dict[str, Any]:
    taken = signature_of(target)
    package = str(getattr(target, "__module__", "")).partition(".")[0]
    arguments = {key: value for key, value in node.items() if key not in OF_NODES}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
        if package != "lightning":
            return dict(node)
        # What it hands on, to a class unknown here, is not checked: slips of its own names are.
        taken = {key: value for key, value in taken.items() if value.kind not in VARIADIC}
        passed = [key for key in arguments if not get_close_matches(key, taken, 1, 0.8)]
        arguments = {key: value for key, value in arguments.items() if key not in passed}
    names = [name for name in taken if path or name not in NOT_TYPED]
    refuse_unknown(arguments, names, path, target)
    for name in names:
        required = taken[name].default is inspect.Parameter.empty and not node.get("_partial_")
        if required and name not in arguments:
            hint = ", ".join(options(path + name))
            raise UserError(f"{path}{name} is missing" + (f": choose from {hint}" if hint else ""))
    if path and package not in {"cfaug", "lightning"}:  # others may annotate a class in any way
        return dict(node)
    return {
        key: value
        if key not in arguments
        else fit_value(value, annotation_of(target, key), path + key, given)
        for key, value in node.items()
    }


Config = dict[str, Any]


# Settings that a class reads only beside others, as the class itself declares.
#
# A class names them in ``read_with``::
#
#     read_with: ClassVar[ReadWith] = {
#         "order_seed": {"option_order": ("shuffled",)},
#         "val_every_steps val_metrics": {"/data.validation": ABOVE_ZERO},
#         "question": {MODEL: ("Answerer",)},
#     }
#
# A condition names settings of the class, of the job's other nodes by their full place after a
# slash, and facts: what is known of a job beside its settings. The class of a command computes
# them (``find_facts(job)``); one that is not known yet holds. What no condition can say, a class
# computes in ``find_left_out(node, place, job)``, which returns {setting: why it is not read, or
# ``None`` if it is read all the same}; ``place`` is the node with its dot.
#
# ``cfaug.run.command_line.unread`` refuses such a setting on the command line where nothing reads
# it, and ``--help`` and docs/settings.md list the conditions.

GIVEN = "given"
"""The condition that a setting has any value but null, false, 0 and an empty text or list."""
FOLDER = "FOLDER"
"""The condition that a setting names data other than a part of the embedded world."""
ABOVE_ZERO = "above 0"
"""The condition that a number is not 0."""


@dataclass(frozen=True, eq=False)
class Fact:
    """What a condition may be about besides settings.

    Attributes:
        words: {value: in words}, or words with ``{}`` in the place of values. They may begin with
            "by" or "in"; others follow "with".
        contrasts: whether a refusal says what holds instead.
    """

    words: Mapping[Any, str] | str
    contrasts: bool = False

    def describe(self, values: Iterable[Any]) -> str:
        """Return the condition that the fact has one of some values."""
        if isinstance(self.words, str):
            return self.words.format(" or ".join(map(str, values)))
        return " or ".join(self.words[value] for value in values)


MODEL = Fact("a model that provides {}")
"""The name of the protocol by which a model is used; known are all that the model provides."""
TRAINED = Fact({True: "finished runs (name=..., arm=..., runs=...)"})
"""Whether what is evaluated is a finished run."""
WORLD = Fact(
    {
        True: "data in the embedded world (data=shapescapes)",
        False: "data outside the embedded world (data=folder)",
    }
)
"""Whether the data of what is evaluated are in the embedded world."""
LEARNT = Fact(
    {
        "captions": "runs that learnt from captions",
        "hypotheses": "runs that learnt from labelled hypotheses",
        "questions": "runs that learnt from questions",
        "labels": "runs that learnt the classes of images",
    }
)
"""What the model learnt from."""
DRAWS_WORLD = Fact("a part of the embedded world (shapescapes:PART) that it draws")
"""The settings of a world that draw the parts that a command names."""
SWEPT = Fact({True: "in sweeps (--multirun)"})
"""Whether the command line may have several jobs."""
Facts = Mapping[Fact, Any]
Condition = Mapping[str | Fact, Sequence[Any] | str]
"""{a setting, or a fact: its values, or ``GIVEN``, ``FOLDER`` or ``ABOVE_ZERO``}; all have to hold.
Without any it always holds."""
Conditions = Sequence[Condition] | str
"""Conditions of which one has to hold; or a text, which says what reads a setting that the class
does not read by itself."""
ReadWith = Mapping[str, Condition | Conditions]
"""{setting, or several with spaces between them: the condition under which they are read, or
conditions of which one has to hold}.

``part.setting`` is one of a part or of a node. The longest name counts: ``{"paths": "...",
"paths.runs": {}}`` reads ``paths.runs`` alone. A class that never reads a setting, such as an
inherited one, declares it with no condition, ``[]``, or with the words that say what does."""


@dataclass(frozen=True)
class Job:
    """What a command line asks a command to do once.

    Attributes:
        settings: all settings of the job, composed.
        words: the typed words.
        known: {fact: its value} of those that are known.
    """

    settings: Mapping[str, Any]
    words: Sequence[str] = ()
    known: Facts = field(default_factory=dict)

    def value(self, place: str, node: Mapping[str, Any] | None = None) -> Any:
        """Return a setting by its full place, or its place in a node; one that lacks is null.

        >>> Job({"data": {"validation": 0.2}}).value("data.validation")
        0.2
        """
        value: Any = self.settings if node is None else node
        for name in place.split("."):
            if not isinstance(value, Mapping):
                return None
            if name not in value and TARGET in value:
                taken = signature_of(locate(value[TARGET])).get(name)
                default = None if taken is None else taken.default
                return None if default is inspect.Parameter.empty else default
            value = value.get(name)
        return value


@cache
def declared_by(target: Callable[..., Any]) -> Mapping[str, Conditions]:
    """Return {setting: the conditions of which one has to hold} of a class and its bases."""
    bases = reversed(target.__mro__) if isinstance(target, type) else ()
    every: dict[str, Any] = {}
    for base in bases:
        for names, conditions in vars(base).get("read_with", {}).items():
            every |= dict.fromkeys(names.split(), conditions)
    return {
        name: [conditions] if isinstance(conditions, Mapping) else conditions
        for name, conditions in every.items()
    }


def find_reasons(
    target: Callable[..., Any], node: Mapping[str, Any], place: str, job: Job
) -> dict[str, str | None]:
    """Return {setting with its place: why the class does not read it; ``None`` if it does}.

    Args:
        place: the place of the node, with its dot.

    >>> class Questions:
    ...     read_with = {"seed": {"order": ("shuffled", "reversed")}}
    ...     def __init__(self, order="given", seed=0): pass
    >>> find_reasons(Questions, {"seed": 3}, "vqa.", Job({}))
    {'vqa.seed': 'with vqa.order=shuffled or vqa.order=reversed'}
    >>> find_reasons(Questions, {"seed": 3, "order": "shuffled"}, "vqa.", Job({}))
    {'vqa.seed': None}
    """
    declared = declared_by(target)
    usual = signature_of(target) if declared else {}

    def find(name: str | Fact) -> Any:
        if isinstance(name, Fact):
            return job.known.get(name) if name is not MODEL else _protocol_of(target, job.known)
        if name.startswith("/"):
            return job.value(name[1:])
        if name not in node and name in usual:
            default = usual[name].default
            return None if default is inspect.Parameter.empty else default
        return job.value(name, node)

    reasons = {
        place + name: None
        if not isinstance(conditions, str) and any(holds(each, find) for each in conditions)
        else describe_conditions(conditions, place, find)
        for name, conditions in declared.items()
    }
    compute: Callable[..., dict[str, str | None]] | None = getattr(target, "find_left_out", None)
    computed = {} if compute is None else compute(node, place, job)
    return reasons | {place + name: reason for name, reason in computed.items()}


def _protocol_of(target: Any, known: Facts) -> str | None:
    """Return the protocol by which a benchmark uses a model, if both are known."""
    protocols = (getattr(target, "needs", None), *getattr(target, "also_accepts", ()), DualEncoder)
    used = next((name for name in protocols if name in known.get(MODEL, ())), None)
    return None if used is None else used.__name__


def holds(condition: Condition, find: Callable[[Any], Any]) -> bool:
    """Say whether a condition holds.

    Args:
        find: a function that returns the value of a setting or fact; ``None`` if it is not known.

    >>> holds({"kinds": ("synonym",)}, {"kinds": ["frame", "synonym"]}.get)  # of a list one value
    True
    """
    return all(_fits(name, wanted, find(name)) for name, wanted in condition.items())


def _fits(name: str | Fact, wanted: Sequence[Any] | str, value: Any) -> bool:
    if isinstance(name, Fact) and value is None:
        return True
    if wanted == GIVEN:
        return bool(value)
    if wanted == FOLDER:
        return _names_folder(value)
    if wanted == ABOVE_ZERO:
        return bool(value != 0)
    if isinstance(value, list | tuple):
        return any(item in wanted for item in value)
    return value in wanted


def _names_folder(value: Any) -> bool:
    if isinstance(value, str):
        return not (is_world(value) or is_questions(value))
    inside = value.values() if isinstance(value, Mapping) else value or ()
    return any(_names_folder(item) for item in inside)


def describe_conditions(
    conditions: Conditions, place: str = "", find: Callable[[Any], Any] | None = None
) -> str:
    """Return conditions as they are typed, after a preposition.

    Args:
        place: the node of the settings, with its dot.
        find: a function as for ``holds``: of conditions that fail, those are described that lack
            least, without what holds already.

    >>> describe_conditions([{"protocol": ("write",), "rationale": GIVEN}], "benchmark.")
    'with benchmark.protocol=write and benchmark.rationale=...'
    >>> describe_conditions([{"data": FOLDER, SWEPT: (True,)}, {MODEL: ("Answerer",)}])
    'with data=FOLDER and in sweeps (--multirun), or a model that provides Answerer'
    >>> describe_conditions([{"rationale": GIVEN, "/seed": (1,)}], find={"rationale": "x"}.get)
    'with seed=1'
    """
    if isinstance(conditions, str):
        return conditions
    if find is not None:
        failing = [
            {name: wanted for name, wanted in each.items() if not _fits(name, wanted, find(name))}
            for each in conditions
        ]
        conditions = [each for each in failing if len(each) == min(map(len, failing))]
    alternatives = []
    for condition in conditions:
        parts = [_describe(name, wanted, place) for name, wanted in condition.items()]
        if len(parts) > 1:
            parts = [
                f"({part})" if isinstance(name, str) and " or " in part else part
                for name, part in zip(condition, parts, strict=True)
            ]
        for name in condition:
            if find is not None and isinstance(name, Fact) and name.contrasts:
                parts[-1] += f", not {name.describe([find(name)])}"
        alternatives.append(" and ".join(parts))
    words = ", or ".join(dict.fromkeys(alternatives)) or "no setting of this part"
    return words if words.startswith(("by ", "in ")) else f"with {words}"


def _describe(name: str | Fact, wanted: Sequence[Any] | str, place: str) -> str:
    if isinstance(name, Fact):
        return name.describe(wanted)
    key = name[1:] if name.startswith("/") else place + name
    if wanted == ABOVE_ZERO:
        return f"{key} {ABOVE_ZERO}"
    if wanted in (GIVEN, FOLDER):
        return f"{key}={'...' if wanted == GIVEN else FOLDER}"
    return " or ".join(f"{key}={write_value(choice)}" for choice in wanted)
