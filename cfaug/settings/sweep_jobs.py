"""The jobs of a sweep: every combination of the listed values, each run once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import Any

from cfaug.core.errors import UserError, name_some, say
from cfaug.core.processes import speaks
from cfaug.settings.arguments import KEY, how_to_quote
from cfaug.settings.choices import NOTHING, Options

Words = list[str]
MOST_JOBS = 1_000_000
"""The largest number of jobs of a sweep."""


def parse_overrides(overrides: Sequence[str], multirun: bool) -> list[Any]:
    """Return the overrides as Hydra reads them."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    parsed = []
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not KEY.fullmatch(key) or not (equals or key.startswith("~")):
            raise UserError(
                f"{override!r} is not a setting: write key=value, as in data.cf_ratio=0.6"
            )
        try:
            parsed.append(parser.parse_override(override))
        except HydraException as error:
            reason = str(error).splitlines()[0].removeprefix("HydraException while ")
            hint = how_to_quote(override, multirun)
            raise UserError(f"cannot read {override}: {reason}; {hint}") from error
    return parsed


def refuse_duplicated(parsed: Sequence[Any]) -> None:
    """Refuse a setting that is typed twice with two values, of which the last would win silently.

    The same word may be repeated, because an agent's command and its parameters may both have it.

    Args:
        parsed: the overrides, as Hydra reads them; ``+key``, ``++key`` and ``key`` are one setting.
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


def first_values(words: Sequence[str]) -> Words:
    """Return the words of one job of a sweep: of each list, range or interval its first value."""
    lines = []
    for override in parse_overrides(words, True):
        if not override.is_sweep_override():
            lines.append(override.input_line)
            continue
        if override.is_discrete_sweep():
            first = next(iter(override.sweep_string_iterator()))
        else:
            first = override.value().start
        lines.append(f"{override.get_key_element()}={first}")
    return lines


def listed_keys(words: Sequence[str]) -> frozenset[str]:
    """Return the settings for which the words of a sweep list values, or an interval of them."""
    return frozenset(o.key_or_group for o in parse_overrides(words, True) if o.is_sweep_override())


def split_sweep(parsed: Sequence[Any], options: Options) -> list[Words]:
    """Return the words of every job of a sweep: the product of the values that overrides list.

    Args:
        parsed: the overrides, as Hydra reads them.
        options: a function that returns the choices of a group; empty for anything else.
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
    if duplicated and speaks():
        say(
            "this sweep lists a value more than once, and each job is run once: "
            f"{name_some(duplicated)}"
        )
    if math.prod(map(len, listed)) > MOST_JOBS:
        several = (words for words in listed if words[1:])
        lists = (f"{words[0].partition('=')[0]} of {len(words):,} values" for words in several)
        raise UserError(f"the sweep has more than {MOST_JOBS:,} jobs: {' times '.join(lists)}")
    return [list(job) for job in product(*listed)]


def _values(override: Any, options: Options) -> list[str]:
    """Return the values of one override of a sweep."""
    from hydra.core.override_parser.types import Glob
    from hydra.errors import HydraException

    key, word, value = override.get_key_element(), override.input_line, override.value()
    cannot = f"cannot read the sweep: {word}"
    if any(isinstance(item, Glob) for item in getattr(value, "list", ())):
        raise UserError(f"{cannot}: glob() is not one of several values")
    if not override.is_discrete_sweep():
        raise UserError(
            f"{cannot} has no list of values; write {key}=A,B or {key}=range(START,STOP)"
        )
    if isinstance(value, Glob):
        choices = [option for option in options(override.key_or_group) if option != NOTHING]
        values = value.filter(choices)
        if not choices:
            raise UserError(
                f"{cannot}: glob() lists choices of a group, and {key} is a setting; "
                f"write {key}=A,B"
            )
        reason = f"no choice of {key} matches; choose from {', '.join(choices)}"
    else:
        if getattr(value, "shuffle", False):
            raise UserError(
                f"{cannot}: shuffle() would order the jobs differently in each process of part=... "
                "parts=...: list the values"
            )
        try:
            values = list(islice(override.sweep_string_iterator(), MOST_JOBS + 1))
        except (HydraException, ArithmeticError, ValueError) as error:  # such as a step of 0
            raise UserError(f"{cannot}: {error}") from error
        if len(values) > MOST_JOBS:
            raise UserError(f"the sweep has more than {MOST_JOBS:,} jobs: {word}")
        reason = "write START before STOP, as in range(0,5)"
    if not values:
        raise UserError(f"the sweep is empty: {word} lists no value: {reason}")
    return values


def leave_out_duplicated(
    jobs: Sequence[tuple[Mapping[str, Any], Words]],
) -> list[tuple[Any, Words]]:
    """Return jobs without those whose settings equal an earlier job's, and say which these are.

    Settings are compared as texts: 1.0 equals 1, and true does not.
    """
    first: dict[str, tuple[Any, Words]] = {}
    duplicated: dict[str, None] = {}
    for config, words in jobs:
        text = json.dumps(_plain_words(config), sort_keys=True, default=str)
        same = first.setdefault(text, (config, words))
        if same[1] is not words:
            pairs = zip(words, same[1], strict=False)  # a choice made by itself is one more
            duplicated |= {f"{word} is {other}": None for word, other in pairs if word != other}
    if duplicated and speaks():
        say(
            f"this sweep gives the same settings, and each job is run once: {name_some(duplicated)}"
        )
    return list(first.values())


def _plain_words(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain_words(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_words(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
