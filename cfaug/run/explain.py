"""Explain why settings could not be composed: the word at fault, and the one probably meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from cfaug.core.errors import UserError
from cfaug.run.arguments import flatten, key_of, nearest
from cfaug.run.installation import find_folder
from cfaug.run.usage import NOTHING, top_level

COMMANDS = ("train", "generate", "evaluate")

SEARCHED = "Config search path:"
"""Where Hydra's list of choices ends and its search path begins."""

MISSING = re.compile(r"^Interpolation key '([^']+)' not found")
"""OmegaConf's message about a missing setting that another one refers to."""

SEARCH_PATH = "hydra.searchpath="

Compose = Callable[[Sequence[str]], Mapping[str, Any]]
"""Composes overrides to settings; raises Hydra's errors."""

Options = Callable[[str], Sequence[str]]
"""Returns the choices of a group, by its name; empty for anything else."""

PRESET_PREFIX = "preset."
"""Prefix of a model's own values; users set the settings that take these."""


def check_choice(override: Any, options: Options) -> None:
    """Refuse a group's choice that is not a name, for which Hydra reports an internal error.

    Args:
        override: the override, parsed by Hydra.
        options: a function that returns the choices of a group.

    Raises:
        UserError: naming the choices.
    """
    group = options(override.key_or_group)
    value = override.value()
    if not group or (override.is_delete() and NOTHING in group):
        return
    if override.is_sweep_override():
        raise UserError(f"{override.input_line} names several choices: add --multirun (-m)")
    named = isinstance(value, str) or (
        isinstance(value, list) and value and all(isinstance(one, str) for one in value)
    )
    if override.is_delete() or (not named and not (isinstance(value, dict) and value)):
        raise UserError(f"{override.input_line}: choose from {', '.join(group)}")


def explain(
    words: Sequence[str],
    error: Exception,
    compose: Compose,
    options: Options,
    accepts: Callable[[Sequence[str]], bool],
) -> str:
    """Return the message for overrides that could not be composed.

    Each word is tried together with the chosen groups, as its setting may exist only in one.

    Args:
        words: all overrides of the job.
        error: the error of composing all of them.
        compose: composes overrides to settings; raises Hydra's errors.
        options: a function that returns the choices of a group.
        accepts: a function that says whether overrides compose to settings that the command takes.
    """
    from hydra.errors import MissingConfigException

    if isinstance(error, MissingConfigException):
        missing = error.missing_cfg_file
        at_fault = [word for word in words if word.lstrip("+").replace("=", "/", 1) == missing]
        return ": ".join([*at_fault[:1], reason_of(error)])
    # Groups may be in the user's own folder, so it is always included.
    where = [word for word in words if word.startswith(SEARCH_PATH)]
    groups = where + [word for word in words if options(key_of(word).partition("@")[0])]
    if _failure(compose, groups) is not None:
        for word in groups[len(where) :]:
            others = [one for one in groups if one != word]
            if _failure(compose, others) is None:
                if word.partition("=")[2].startswith("["):
                    return f"{word}: choose one of {', '.join(options(key_of(word)))}"
                return f"{word}: {reason_of(_failure(compose, groups))}"
        return reason_of(error)
    tried = groups
    for word in (word for word in words if word not in groups):
        failure = _failure(compose, [*tried, word])
        if failure is not None:
            return _explain_one(word, failure, tried, compose, options, accepts)
        tried = [*tried, word]
    return reason_of(error)


def _failure(compose: Compose, words: Sequence[str]) -> Exception | None:
    try:
        compose(words)
    except Exception as error:  # Hydra does not wrap all errors of its parts
        return error
    return None


def _explain_one(
    word: str,
    failure: Exception,
    tried: Sequence[str],
    compose: Compose,
    options: Options,
    accepts: Callable[[Sequence[str]], bool],
) -> str:
    """Explain the error of the one word that cannot be composed together with those before it."""
    key = key_of(word)
    for before in tried:
        if key.startswith(key_of(before) + ".") and not options(key_of(before)):
            return f"{before}: {key_of(before)} has settings of its own, such as {key}"
    tree = compose(tried)
    known = sorted(flatten(_strings(tree)), key=lambda one: one.startswith(PRESET_PREFIX))
    nodes = {key.rsplit(".", depth)[0] for key in known for depth in range(1, key.count(".") + 1)}
    if key in {*known, *nodes}:
        return f"{word}: {reason_of(failure)}"
    head = key.split(".")[0]
    if options(head) and tree.get(head) is None:
        chosen = ", ".join(options(head))
        return f"no setting is called {key!r} as long as {head} is null: choose {head}={chosen}"
    owners = _name_owners(head, set(tree))
    if owners:
        return f"no setting is called {key!r}: {owners}; --help lists them all"
    near = nearest(key, [*known, *sorted(nodes)])
    hints = [f"did you mean {near}?"] if near else []
    if word[:1] not in {"+", "~"} and accepts([*tried, f"+{word}"]):
        hints.append(f"+{word} adds it")
    return f"no setting is called {key!r}: {' '.join(hints) or '--help lists them all'}"


def _name_owners(head: str, known: Collection[str]) -> str:
    """Return a clause that names the other commands with a setting, or nothing.

    Args:
        head: the first part of the setting's dotted name.
        known: the top-level settings of this command.
    """
    roots = {name: top_level(find_folder("conf"), name) for name in COMMANDS}
    owners = [f"{name}.py" for name, keys in roots.items() if head in keys]
    if not owners or head in known:
        return ""
    return f"{' and '.join(owners)} take{'s' * (len(owners) == 1)} it"


def reason_of(error: Exception | None) -> str:
    """Return the message of Hydra or OmegaConf without their internals."""
    text = str(error).split(SEARCHED)[0].split("full_key:")[0].strip()
    missing = MISSING.search(text)
    if missing:
        return f"{missing[1]} is missing, which other settings refer to"
    return text or type(error).__name__


def _strings(tree: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(k): _strings(v) if isinstance(v, Mapping) else v for k, v in tree.items()}
