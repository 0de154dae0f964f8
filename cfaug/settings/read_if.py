"""Settings that a class reads only beside others, as their fields declare.

``ReadIf`` stands beside the type of such a field::

    order_seed: Annotated[Seed, ReadIf({"option_order": ("shuffled",)})] = 0
    val_metrics: Annotated[tuple[str, ...], ReadIf({"/data.validation": ABOVE_ZERO})] = ()
    question: Annotated[str, ReadIf({MODEL: ("Answerer",)})] = "Which caption is right?"

A condition names settings of the class, of the job's other nodes by their full place after a
slash, and facts: what is known of a job beside its settings. The class of a command computes
them (``find_facts(job)``); one that is not known yet holds. What no condition can say, a class
computes in ``find_left_out(node, place, job)``, which returns {setting: why it is not read, or
``None`` if it is read all the same}; ``place`` is the node with its dot.

A setting on the command line that nothing reads is refused by them, and ``--help`` and
docs/settings.md list the conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, is_typeddict

from cfaug.core.annotations import (
    Aside,
    argument_annotation,
    asides_of,
    base_of,
    default_of,
    signature_of,
)
from cfaug.core.protocols import DualEncoder
from cfaug.core.targets import TARGET, locate
from cfaug.core.validation import write_value
from cfaug.core.worlds import is_questions, is_world


@dataclass(frozen=True, eq=False)
class Predicate:
    """What the value of a setting has to be.

    Attributes:
        words: the condition as it is typed, with ``{}`` in the place of the setting.
    """

    words: str
    holds: Callable[[Any], bool]


def _names_folder(value: Any) -> bool:
    if isinstance(value, str):
        return not (is_world(value) or is_questions(value))
    inside = value.values() if isinstance(value, Mapping) else value or ()
    return any(_names_folder(item) for item in inside)


GIVEN = Predicate("{}=...", bool)
"""Any value but null, false, 0 and an empty text or list."""
FOLDER = Predicate("{}=FOLDER", _names_folder)
"""Data other than a part of the embedded world."""
ABOVE_ZERO = Predicate("{} above 0", lambda number: bool(number != 0))
"""A number that is not 0."""


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
Condition = Mapping[str | Fact, Sequence[Any] | Predicate]
"""{a setting, or a fact: its values, or a predicate}; all have to hold. Without any it always
holds."""
Conditions = Sequence[Condition] | str
"""Conditions of which one has to hold; or a text, which says what reads a setting that the class
does not read by itself."""


class ReadIf(Aside):
    """The cases in which a setting is read; every setting without one is read always.

    Args:
        conditions: conditions of which one has to hold; or a text, which says what reads a setting
            that the class does not read by itself.
        of: the settings of a part or node that are meant, with spaces between them, in place of the
            whole. The longest name counts: ``paths.runs`` may be read where ``paths`` is not.
    """

    def __init__(self, *conditions: Condition | str, of: str = "") -> None:
        words = [condition for condition in conditions if isinstance(condition, str)]
        self.conditions: Conditions = words[0] if words else [*conditions]  # type: ignore[list-item]
        self.parts = of.split()


@dataclass(frozen=True)
class CommandJob:
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

        >>> CommandJob({"data": {"validation": 0.2}}).value("data.validation")
        0.2
        """
        value: Any = self.settings if node is None else node
        for name in place.split("."):
            if not isinstance(value, Mapping):
                return None
            if name not in value and TARGET in value:
                return default_of(locate(value[TARGET]), name)
            value = value.get(name)
        return value


@cache
def declared_by(target: Callable[..., Any]) -> Mapping[str, Conditions]:
    """Return {setting: the conditions of which one has to hold} of a class.

    Those of a dictionary with declared keys are in the class that takes it, ``data.grid``.
    """
    every: dict[str, Conditions] = {}
    for name in target.__annotations__ if is_typeddict(target) else signature_of(target):
        for aside in asides_of(target, name):
            if isinstance(aside, ReadIf):
                places = [f"{name}.{part}" for part in aside.parts] or [name]
                every |= dict.fromkeys(places, aside.conditions)
        if not is_typeddict(kind := base_of(argument_annotation(target, name))):
            continue
        for inner, conditions in declared_by(kind).items():
            if not isinstance(conditions, str):
                conditions = [
                    {_within(name, key): wanted for key, wanted in condition.items()}
                    for condition in conditions
                ]
            every[f"{name}.{inner}"] = conditions
    return every


def _within(place: str, key: str | Fact) -> str | Fact:
    return key if isinstance(key, Fact) or key.startswith("/") else f"{place}.{key}"


def find_reasons(
    target: Callable[..., Any], node: Mapping[str, Any], place: str, job: CommandJob
) -> dict[str, str | None]:
    """Return {setting with its place: why the class does not read it; ``None`` if it does}.

    Args:
        place: the place of the node, with its dot.

    >>> from typing import Annotated
    >>> def ask(order="given", seed=0): pass
    >>> shuffled = ReadIf({"order": ("shuffled", "reversed")})
    >>> ask.__annotations__ = {"seed": Annotated[int, shuffled]}
    >>> find_reasons(ask, {"seed": 3}, "vqa.", CommandJob({}))
    {'vqa.seed': 'with vqa.order=shuffled or vqa.order=reversed'}
    >>> find_reasons(ask, {"seed": 3, "order": "shuffled"}, "vqa.", CommandJob({}))
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
            return default_of(target, name)
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


def _fits(name: str | Fact, wanted: Sequence[Any] | Predicate, value: Any) -> bool:
    if isinstance(name, Fact) and value is None:
        return True
    if isinstance(wanted, Predicate):
        return wanted.holds(value)
    if isinstance(value, list | tuple):
        return any(item in wanted for item in value)
    return value in wanted


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


def _describe(name: str | Fact, wanted: Sequence[Any] | Predicate, place: str) -> str:
    if isinstance(name, Fact):
        return name.describe(() if isinstance(wanted, Predicate) else wanted)
    key = name[1:] if name.startswith("/") else place + name
    if isinstance(wanted, Predicate):
        return wanted.words.format(key)
    return " or ".join(f"{key}={write_value(choice)}" for choice in wanted)
