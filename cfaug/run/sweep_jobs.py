"""The jobs of a sweep: every combination of the listed values, each run once."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from itertools import islice, product
from typing import Any

from cfaug.core.errors import UserError, name_some, say
from cfaug.core.processes import speaks
from cfaug.run.usage import NOTHING, Options

Words = list[str]

MOST_JOBS = 1_000_000
"""The largest number of jobs of a sweep."""


def refuse_duplicated(parsed: Sequence[Any]) -> None:
    """Refuse a setting that is typed twice with two values, of which the last would win silently.

    The same word may be repeated, because an agent's command and its parameters may both have it.

    Args:
        parsed: the overrides, as Hydra reads them; ``+key``, ``++key`` and ``key`` are one setting.

    Raises:
        UserError: naming both words.
    """
    words: dict[tuple[str, str | None], str] = {}
    for override in parsed:
        if override.is_delete():
            continue
        key = override.key_or_group
        word = words.get((key, override.package), override.input_line)
        if word.lstrip("+") != override.input_line.lstrip("+"):
            raise UserError(
                f"duplicated setting: {word} and {override.input_line}: type {key} once, or list "
                f"the values of a sweep ({key}=A,B with --multirun)"
            )
        words[key, override.package] = override.input_line


def split(parsed: Sequence[Any], options: Options) -> list[Words]:
    """Return the words of every job of a sweep: the product of the values that overrides list.

    Args:
        parsed: the overrides, as Hydra reads them.
        options: a function that returns the choices of a group; empty for anything else.

    Raises:
        UserError: for an override that lists no value.
    """
    listed, duplicated = [], []
    for override in parsed:
        key = override.get_key_element()
        if override.is_delete():
            listed.append([override.input_line])
        elif not override.is_sweep_override():
            listed.append([f"{key}={override.get_value_element_as_str()}"])
        else:
            values = _values(override, options)
            listed.append([f"{key}={value}" for value in dict.fromkeys(values)])
            duplicated += [override.input_line] if len(values) > len(listed[-1]) else []
    _note("lists a value more than once", duplicated)
    if math.prod(map(len, listed)) > MOST_JOBS:
        lists = (
            f"{words[0].partition('=')[0]} of {len(words):,} values"
            for words in listed
            if words[1:]
        )
        raise UserError(f"the sweep has more than {MOST_JOBS:,} jobs: {' times '.join(lists)}")
    return [list(job) for job in product(*listed)]


def _values(override: Any, options: Options) -> list[str]:
    """Return the values of one override of a sweep.

    Raises:
        UserError: if there is none.
    """
    from hydra.core.override_parser.types import Glob

    key, word, value = override.get_key_element(), override.input_line, override.value()
    if any(isinstance(one, Glob) for one in getattr(value, "list", ())):
        raise UserError(f"cannot read the sweep: {word}: glob() is not one of several values")
    if not override.is_discrete_sweep():
        raise UserError(
            f"cannot read the sweep: {word} has no list of values; write {key}=A,B or "
            f"{key}=range(START,STOP)"
        )
    if isinstance(value, Glob):
        choices = [one for one in options(override.key_or_group) if one != NOTHING]
        values = value.filter(choices)
        if not choices:
            raise UserError(
                f"cannot read the sweep: {word}: glob() lists choices of a group, and {key} is a "
                f"setting; write {key}=A,B"
            )
        reason = f"no choice of {key} matches; choose from {', '.join(choices)}"
    else:
        values, reason = _iterate(override), "write START before STOP, as in range(0,5)"
    if not values:
        raise UserError(f"the sweep is empty: {word} lists no value: {reason}")
    return values


def _iterate(override: Any) -> list[str]:
    """Return the values of a list or a range.

    Raises:
        UserError: for shuffled values, or a range that has no end or is invalid.
    """
    from hydra.errors import HydraException

    word = override.input_line
    if getattr(override.value(), "shuffle", False):
        raise UserError(
            f"cannot read the sweep: {word}: shuffle() would order the jobs differently in each "
            "process of part=... parts=...: list the values"
        )
    try:
        values = list(islice(override.sweep_string_iterator(), MOST_JOBS + 1))
    except (HydraException, ArithmeticError, ValueError) as error:  # such as a step of 0
        raise UserError(f"cannot read the sweep: {word}: {error}") from error
    if len(values) > MOST_JOBS:
        raise UserError(f"the sweep has more than {MOST_JOBS:,} jobs: {word}")
    return values


def leave_out_duplicated(
    jobs: Sequence[tuple[Mapping[str, Any], Words]],
) -> list[tuple[Any, Words]]:
    """Return jobs without those whose settings equal an earlier job's, and say which these are.

    Args:
        jobs: the composed settings and the words of each job.
    """
    first: dict[str, tuple[Any, Words]] = {}
    duplicated: dict[str, None] = {}
    for config, words in jobs:
        same = first.setdefault(_text_of(config), (config, words))
        if same[1] is not words:
            pairs = zip(words, same[1], strict=True)
            duplicated |= {f"{word} is {other}": None for word, other in pairs if word != other}
    _note("gives the same settings", duplicated)
    return list(first.values())


def _note(what: str, duplicated: Collection[str]) -> None:
    """Say which words of a sweep are duplicated."""
    if duplicated and speaks():
        say(f"this sweep {what}, and each job is run once: {name_some(duplicated)}")


def _text_of(config: Mapping[str, Any]) -> str:
    """Return a text that is equal for equal settings: 1.0 equals 1, and true does not."""
    return json.dumps(_plain(config), sort_keys=True, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
