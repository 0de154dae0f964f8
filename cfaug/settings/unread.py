"""Which settings a job reads, and the refusal of a typed one that it does not.

A setting that was typed and is read by nobody makes an arm other than its name says. The class of
the command and the classes of all nodes say what they do not read (``cfaug.settings.read_if``). A
setting that a read one takes by ``${...}`` is read as well. Only typed words are refused: defaults
in files may be anything. So may ``null``, and ``false`` for a setting that is off by default, which
ask for nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cfaug.core.annotations import default_of
from cfaug.core.errors import UserError, say
from cfaug.core.targets import TARGET, locate
from cfaug.settings.arguments import key_of
from cfaug.settings.read_if import SWEPT, CommandJob, Facts, find_reasons

Command = Callable[..., Any]
Reasons = Sequence[Mapping[str, str | None]]
"""For each class {setting: why it is not read; ``None`` if it is}."""

NULL = frozenset({"null", "None"})
OFF = frozenset({"false", "False", "no", "off"})

REFERENCE = re.compile(r"\$\{(\.*)([\w.]+)\}")
"""A setting that another one takes, ``${paths.shards}`` or ``${.name}``."""


LEAVE_OUT = "; leave it out"
"""What is advised about a setting that no job reads."""
OPEN_SOURCE = ("data.world", "data.seed", "data.fields", "data.reader", "seed", "paths")
"""The settings that ``cfaug.open_source`` reads."""


def place_of(word: str) -> str:
    """Return the setting of a word of the command line; for ``world@data.world`` its place.

    >>> place_of("+data.size=3"), place_of("world@data.world=x"), place_of("recipe@_global_.x=y")
    ('data.size', 'data.world', 'x')
    """
    key = key_of(word)
    setting = key.partition("@")[2] or key
    return setting.removeprefix("_global_").removeprefix(".")


def is_under(key: str, nodes: Iterable[str]) -> bool:
    """Say whether a setting is among some nodes."""
    return any(key == node or key.startswith(node + ".") for node in nodes)


def touches(key: str, nodes: Iterable[str]) -> bool:
    """Say whether a setting is among some nodes, or holds one of them."""
    return any(is_under(key, [node]) or node.startswith(key + ".") for node in nodes)


def nodes_of(value: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place with its dot, node) of every node with a target."""
    if isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from nodes_of(item, f"{path[:-1]}[{number}].")
    elif isinstance(value, Mapping):
        if TARGET in value and not value.get("_partial_"):
            yield path, value
        for key, item in value.items():
            yield from nodes_of(item, f"{path}{key}.")


def reasons_of_nodes(settings: Mapping[str, Any], job: CommandJob) -> Reasons:
    """Return what the classes of nodes say of their settings."""
    return [
        find_reasons(locate(node[TARGET]), node, place, job) for place, node in nodes_of(settings)
    ]


def why_unread(key: str, reasons: Reasons) -> str | None:
    """Return why a class does not read a setting; ``None`` if all that know of it do.

    >>> why_unread("a.b", [{"a": "by c"}]), why_unread("a.b", [{"a": "by c", "a.b": None}])
    ('by c', None)
    >>> why_unread("a", [{"a": "by c", "a.b": None}])  # it holds one that is read
    """
    for known in reasons:
        parents = [name for name in known if is_under(key, [name])]
        reason = known[max(parents, key=len)] if parents else None
        inner = (why for name, why in known.items() if name.startswith(key + "."))
        if reason is not None and None not in inner:
            return reason
    return None


def refuse_unread(
    command: Command,
    jobs: Sequence[tuple[Mapping[str, Any], Sequence[str]]],
    multirun: bool,
    written: Callable[[Sequence[str]], Mapping[str, Any]],
) -> None:
    """Refuse a typed setting that no job of a command line reads.

    In a sweep a setting counts as read if any job reads it; the others are reported.

    Args:
        written: a function from words to {setting: value as written}, with ``${...}``.
    """
    # Jobs that differ in their seed alone are alike.
    alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for config, words in jobs:
        alike.setdefault(tuple(word for word in words if key_of(word) != "seed"), []).append(config)
    seeds = [word for word in jobs[0][1] if key_of(word) == "seed"]
    answers: list[tuple[Sequence[str], list[tuple[str, str]]]] = []
    for words, configs in alike.items():
        job = CommandJob(configs[0], [*words, *seeds], {SWEPT: multirun})
        answers += [(job.words, list(find_unread_words(command, job, written)))] * len(configs)
    refuse_or_note(answers)


def refuse_or_note(jobs: Sequence[tuple[Sequence[str], Iterable[tuple[str, str]]]]) -> None:
    """Refuse settings that none of the jobs reads in which they were typed; report the others.

    Args:
        jobs: the words of each job, with (word, why it is not read) of some of them.
    """
    reasons: dict[str, str] = {}
    typed, unread = Counter[str](), Counter[str]()
    for words, left_out in jobs:
        typed.update({place_of(word) for word in words})
        for word, reason in left_out:
            reasons.setdefault(place_of(word), reason)
            unread[place_of(word)] += 1
    for key, reason in reasons.items():
        if unread[key] == typed[key]:
            raise UserError(reason)
        # The other jobs read it.
        say(f"note: in {unread[key]} of {len(jobs)} jobs {reason.partition(LEAVE_OUT)[0]}")


def refuse_others(words: Sequence[str], reads: Sequence[str], reader: str) -> None:
    """Refuse words that a function does not read."""
    for word in words:
        if not touches(place_of(word), reads):
            raise UserError(
                f"{word} would have no effect: {reader} reads {', '.join(reads)}; leave it out"
            )


def find_unread_words(
    command: Command, job: CommandJob, written: Callable[[Sequence[str]], Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    """Yield (word, why nothing reads it) for each word of one job.

    Args:
        written: a function from words to {setting: value as written}, with ``${...}``.
    """
    requested = _requested(job.words, job.settings)
    if not requested:
        return
    if hasattr(command, "find_facts"):
        job = replace(job, known={**job.known, **command.find_facts(job)})
    reasons = [
        find_reasons(command, job.settings, "", job),
        *reasons_of_nodes(job.settings, job),
    ]
    for word, key in requested:
        reason = why_unread(key, reasons)
        if reason is not None:
            reason = _explain_references(
                key, reason, lambda name: why_unread(name, reasons), written(job.words)
            )
        if reason is not None:
            yield word, _explain_unread(word, key, reason)


def _requested(words: Sequence[str], config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (word, setting) of the words that ask for something of these settings."""
    requested = []
    for word in words:
        key, value = place_of(word), word.partition("=")[2]
        *nodes, name = key.split(".")
        if (nodes or [name])[0] not in config or value in NULL:
            continue
        if value in OFF:  # asks for nothing, unless the setting is on by default
            node: Any = config
            for part in nodes:
                node = node.get(part) if isinstance(node, Mapping) else None
            if not isinstance(node, Mapping) or TARGET not in node:
                continue
            if default_of(locate(node[TARGET]), name) is not True:
                continue
        requested.append((word, key))
    return requested


def _explain_unread(word: str, key: str, reason: str) -> str:
    return f"{word} would have no effect: {key} is read {reason}{LEAVE_OUT}"


def refuse_unread_by_runs(
    benchmark: Mapping[str, Any], words: Sequence[str], runs: Sequence[Facts]
) -> None:
    """Refuse a typed setting of a benchmark that none of the finished runs reads.

    Args:
        runs: the facts of each run.
    """
    settings = {"benchmark": benchmark}
    every = [reasons_of_nodes(settings, CommandJob(settings, words, known)) for known in runs]
    for word, key in _requested(words, settings):
        answers = [why_unread(key, reasons) for reasons in every]
        if answers and None not in answers:
            raise UserError(_explain_unread(word, key, str(answers[0])))


def _explain_references(
    key: str, reason: str, is_unread: Callable[[str], str | None], written: Mapping[str, Any]
) -> str | None:
    """Return why the settings that take this one by ``${...}`` are not read, if there are any."""
    users: dict[str, list[str]] = {}
    for name, value in written.items():
        for used in references(name, value):
            users.setdefault(used, []).append(name)
    reasons, waiting = {key: reason}, [key]
    while waiting:
        setting = waiting.pop()
        for used, names in users.items():
            if not touches(used, [setting]):
                continue
            # With ``model: ${zoo.clip}``, zoo.clip.max_length is read as model.max_length.
            inner = setting[len(used) :] if setting.startswith(used + ".") else ""
            for name in (outer + inner for outer in names):
                cause = is_unread(name)
                if cause is None:
                    return None
                if name not in reasons:
                    reasons[name] = cause
                    waiting.append(name)
    # A node that is only there to be taken says less than the settings that take it.
    return next((text for text in reasons.values() if "${" not in text), reason)


def references(name: str, value: Any) -> list[str]:
    """Return the settings that a value takes by ``${...}``.

    >>> references("a.b", "${paths.runs}/${.c}"), references("a.b", 3)
    (['paths.runs', 'a.c'], [])
    """
    if isinstance(value, list | tuple):
        return [reference for part in value for reference in references(name, part)]
    taken = []
    for dots, key in REFERENCE.findall(value) if isinstance(value, str) else ():
        parents = name.split(".")[: -len(dots)] if dots else []
        taken.append(".".join([*parents, key]))
    return taken
