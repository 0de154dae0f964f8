"""Which settings a job reads, and the refusal of a typed one that it does not.

A setting that was typed and is read by nobody makes an arm other than its name says. Three things
decide what a job reads: the branches of ``evaluate.py`` (``BRANCHES``), the rules about other
settings of the same command (``RULES``), and what a class declares of its own settings
(``read_with``). A setting that a read one takes by ``${...}`` is read as well. Only typed
words are refused: defaults in files may be anything. So may ``null``, and ``false`` for a setting
that is off by default, which ask for nothing. ``--help`` lists the same tables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cfaug.core.binding import declared_by, describe_conditions, signature_of
from cfaug.core.errors import UserError, say
from cfaug.core.targets import locate
from cfaug.run.arguments import key_of
from cfaug.run.reading_rules import (
    BRANCHES,
    RULES,
    CheckpointFacts,
    Config,
    about_model,
    declared_unread,
    is_under,
    place_of,
    touches,
)

NULL = frozenset({"null", "None"})
OFF = frozenset({"false", "False", "no", "off"})

REFERENCE = re.compile(r"\$\{(\.*)([\w.]+)\}")
"""A setting that another one takes, ``${paths.shards}`` or ``${.name}``."""


LEAVE_OUT = "; leave it out"
"""What is advised about a setting that no job reads."""
OUTPUT = ("quiet", "verbose")
"""The settings that each branch of a command reads."""
OPEN_SOURCE = ("data.world", "data.seed", "data.fields", "data.reader", "seed", "paths")
"""The settings that ``cfaug.open_source`` reads."""


def refuse_unread(
    command: str,
    jobs: Sequence[tuple[Config, Sequence[str]]],
    multirun: bool,
    written: Callable[[Sequence[str]], Mapping[str, Any]],
) -> None:
    """Refuse a typed setting that no job of a command line reads.

    In a sweep a setting counts as read if any job reads it; the others are reported.

    Args:
        written: a function from words to {setting: value as written}, with ``${...}``.
    """
    reasons: dict[str, str] = {}
    typed, unread = Counter[str](), Counter[str]()
    alike: dict[tuple[str, ...], list[Config]] = {}  # jobs that differ in their seed alone
    for config, words in jobs:
        alike.setdefault(tuple(word for word in words if key_of(word) != "seed"), []).append(config)
    for words, configs in alike.items():
        seeds = [word for word in jobs[0][1] if key_of(word) == "seed"]
        config = {**configs[0], "multirun": multirun}
        typed.update(dict.fromkeys(map(place_of, [*words, *seeds]), len(configs)))
        for word, reason in find_unread_words(command, config, [*words, *seeds], written):
            reasons.setdefault(place_of(word), reason)
            unread[place_of(word)] += len(configs)
    refuse_or_note(reasons, unread, typed, len(jobs))


def refuse_or_note(
    reasons: Mapping[str, str], unread: Mapping[str, int], typed: Mapping[str, int], jobs: int
) -> None:
    """Refuse settings that none of the jobs reads in which they were typed; report the others.

    Args:
        reasons: {setting: why it is not read}.
        unread: {setting: the number of jobs that do not read it}.
        typed: {setting: the number of jobs in which it was typed}.
    """
    for key, reason in reasons.items():
        if unread[key] == typed[key]:
            raise UserError(reason)
        # The other jobs read it.
        say(f"note: in {unread[key]} of {jobs} jobs {reason.partition(LEAVE_OUT)[0]}")


def refuse_others(words: Sequence[str], reads: Sequence[str], reader: str) -> None:
    """Refuse words that a function does not read."""
    for word in words:
        if not touches(place_of(word), reads):
            raise UserError(
                f"{word} would have no effect: {reader} reads {', '.join(reads)}; leave it out"
            )


def find_unread_words(
    command: str,
    config: Config,
    words: Sequence[str],
    written: Callable[[Sequence[str]], Mapping[str, Any]],
) -> Iterator[tuple[str, str]]:
    """Yield (word, why nothing reads it) for each word of one job.

    Args:
        config: the composed settings, and ``multirun``.
        written: a function from words to {setting: value as written}, with ``${...}``.
    """
    requested = _requested(words, config)
    if not requested:
        return
    config = {**config, "words": words}
    branches = BRANCHES.get(command, ())
    branch = next((candidate for candidate in branches if candidate.chosen(config, words)), None)
    broken = [rule for rule in RULES.get(command, ()) if not rule.reads(config)]
    declared = dict(declared_unread(config, about_model(config, words)))

    def why_unread(key: str) -> str | None:
        if branch is not None and not touches(key, (*branch.reads, *OUTPUT)):
            others = [other.name for other in branches if touches(key, other.reads)]
            return f"by {', or '.join(others)}, not by {branch.name}"
        for rule in broken:
            if is_under(key, rule.settings) and not touches(key, rule.but(config)):
                return rule.read_by
        return _declared_of(key, declared)

    for word, key in requested:
        reason = why_unread(key)
        if reason is not None:
            reason = _explain_references(key, reason, why_unread, written(words))
        if reason is not None:
            yield word, _explain_unread(word, key, reason)


def _declared_of(key: str, declared: Mapping[str, str]) -> str | None:
    return next((why for setting, why in declared.items() if is_under(key, [setting])), None)


def _requested(words: Sequence[str], config: Config) -> list[tuple[str, str]]:
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
            if not isinstance(node, Mapping) or "_target_" not in node:
                continue
            taken = signature_of(locate(node["_target_"])).get(name)
            if taken is None or taken.default is not True:
                continue
        requested.append((word, key))
    return requested


def _explain_unread(word: str, key: str, reason: str) -> str:
    return f"{word} would have no effect: {key} is read {reason}{LEAVE_OUT}"


def describe_readers(command: str, targets: Mapping[str, Any] | None) -> list[str]:
    """Return a line for each way in which only some settings are read, for ``--help``.

    Args:
        targets: {node: its class} of the groups to describe; ``None`` describes the command.
    """
    if targets is None:
        ways = [(branch.name, branch.reads) for branch in BRANCHES.get(command, ())]
        rules = [(", ".join(rule.settings), (rule.read_by,)) for rule in RULES.get(command, ())]
        return [f"  {subject}: {', '.join(words)}" for subject, words in (*ways, *rules)]
    return [
        f"  {node}.{name}: with {describe_conditions(conditions, f'{node}.')}"
        for node, target in targets.items()
        for name, conditions in declared_by(target).items()
    ]


def refuse_unread_by_runs(
    benchmark: Mapping[str, Any], words: Sequence[str], runs: Sequence[CheckpointFacts]
) -> None:
    """Refuse a typed setting of a benchmark that none of the finished runs reads."""
    every = [dict(declared_unread({"benchmark": benchmark}, run)) for run in runs]
    for word, key in _requested(words, {"benchmark": benchmark}):
        reasons = [_declared_of(key, declared) for declared in every]
        if reasons and None not in reasons:
            raise UserError(_explain_unread(word, key, str(reasons[0])))


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
