"""Why settings could not be composed: the word at fault, and what to type in its place."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from cfaug.core.errors import UserError, command_of
from cfaug.core.known_names import RENAMED, describe_variants, suggest
from cfaug.core.targets import TARGET, locate
from cfaug.settings.arguments import SEARCH_PATH, flatten, key_of
from cfaug.settings.choices import NOTHING, Options, top_level

NO_MATCH = re.compile(r"^Could not override '([^'@]+)'\. No match in the defaults list")
"""Hydra's message about a group that no chosen file names."""
MISSING = re.compile(r"^Interpolation key '([^']+)' not found")
"""OmegaConf's message about a missing setting that another one refers to."""
Compose = Callable[[Sequence[str]], Mapping[str, Any]]
"""Composes overrides to settings; raises Hydra's errors."""


def check_choice(override: Any, options: Options) -> None:
    """Refuse a group's choice that is not a name, for which Hydra reports an internal error."""
    group = options(override.key_or_group)
    value = override.value()
    if not group or (override.is_delete() and NOTHING in group):
        return
    if override.is_sweep_override():
        raise UserError(f"{override.input_line} names several choices: add --multirun (-m)")
    named = isinstance(value, str) or (
        isinstance(value, list) and value and all(isinstance(item, str) for item in value)
    )
    if override.is_delete() or (not named and not (isinstance(value, dict) and value)):
        raise UserError(f"{override.input_line}: choose from {', '.join(group)}")


def explain(
    words: Sequence[str],
    error: Exception,
    compose: Compose,
    options: Options,
) -> str:
    """Return the message for overrides that could not be composed.

    Each word is tried together with the chosen groups, as its setting may exist only in one.
    """
    from hydra.errors import MissingConfigException

    if isinstance(error, MissingConfigException):
        missing = error.missing_cfg_file
        at_fault = [word for word in words if word.lstrip("+").replace("=", "/", 1) == missing]
        group, _, choice = "".join(at_fault[:1]).lstrip("+").partition("=")
        close = get_close_matches(choice, [*options(group), *(error.options or ())], 1)
        hint = [f"did you mean {group}={close[0]}?"] if close else []
        return ": ".join([*at_fault[:1], " ".join([*hint, reason_of(error)])])
    # Groups may be in the user's own folder, so it is always included.
    where = [word for word in words if word.startswith(f"{SEARCH_PATH}=")]
    groups = where + [word for word in words if _chooses(word, options)]
    if _failure(compose, groups) is not None:
        # What is chosen within a group fits some choices of that group only.
        for word in sorted(groups[len(where) :], key=lambda word: "/" not in key_of(word)):
            others = [other for other in groups if other != word]
            if _failure(compose, others) is None:
                if word.partition("=")[2].startswith("["):
                    return f"{word}: choose one of {', '.join(options(key_of(word)))}"
                return f"{word}: {reason_of(_failure(compose, groups))}"
        return reason_of(error)
    tried = groups
    for word in (word for word in words if word not in groups):
        failure = _failure(compose, [*tried, word])
        if failure is not None:
            return _explain_one(word, failure, tried, compose, options)
        tried = [*tried, word]
    return reason_of(error)


def _chooses(word: str, options: Options) -> bool:
    """Say whether a word chooses a file, of a group or of one within a group."""
    group = key_of(word).partition("@")[0]
    return "/" in group or bool(options(group))


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
) -> str:
    """Explain the error of the one word that cannot be composed together with those before it."""
    key = key_of(word)
    for before in tried:
        if key.startswith(key_of(before) + ".") and not options(key_of(before)):
            return f"{before}: {key_of(before)} has settings of its own, such as {key}"
    tree = compose(tried)
    # A model's own values come last: users set the settings that take these.
    flat = flatten(tree)
    known = sorted(flat, key=lambda setting: setting.startswith("preset."))
    nodes = {key.rsplit(".", depth)[0] for key in known for depth in range(1, key.count(".") + 1)}
    if key in {*known, *nodes}:
        place, _, name = key.rpartition(".")
        parts = [node for node in sorted(nodes) if node.startswith("zoo.")]
        parts = [node for node in parts if _below(flat, node) == _below(flat, place)]
        if parts:  # a reference to one of them, which has no settings of its own
            others = " or ".join(f"{node}.{name}" for node in parts)
            return f"{word}: {place} is a part of the zoo: set {others}"
        return f"{word}: {reason_of(failure)}"
    head = key.split(".")[0]
    if options(head) and tree.get(head) is None:
        chosen = ", ".join(options(head))
        return f"no setting is called {key!r} as long as {head} is null: choose {head}={chosen}"
    owners = [
        command_of(name)
        for name in ("train", "generate", "evaluate", "table", "annotate")
        if head not in tree and head in top_level(name)
    ]
    if owners:
        take = f"{' and '.join(owners)} take{'s' * (len(owners) == 1)} it"
        return f"no setting is called {key!r}: {take}; --help lists them all"
    if others := _name_variants(tree, key):
        return f"no setting is called {key!r} here: {others}"
    hint = suggest(key, [*known, *sorted(nodes)]) or "--help lists them all"
    place, _, last = key.rpartition(".")
    if (renamed := f"{place}.{RENAMED.get(last)}") in known:
        value = word.partition("=")[2]
        hint = f"it is called {renamed} now; type {shlex.quote(f'{renamed}={value}')}"
    return f"no setting is called {key!r}: {hint}"


def _name_variants(node: Any, key: str) -> str:
    """Say which variants of the class of a node have a setting that it lacks, or part of it."""
    names = key.split(".")
    for number, name in enumerate(names):
        if not isinstance(node, Mapping) or name not in node:
            kind = node.get(TARGET) if isinstance(node, Mapping) else None
            place = "".join(f"{part}." for part in names[:number])
            return describe_variants(locate(kind), place, name) if kind else ""
        node = node[name]
    return ""


def _below(flat: Mapping[str, Any], node: str) -> dict[str, Any]:
    return {key[len(node) :]: flat[key] for key in flat if key.startswith(f"{node}.")}


def reason_of(error: Exception | None) -> str:
    """Return the message of Hydra or OmegaConf without their internals."""
    text = str(error).split("Config search path:")[0].split("full_key:")[0].strip()
    if unnamed := NO_MATCH.search(text):
        return f"nothing that is chosen has a choice of {unnamed[1]}"
    missing = MISSING.search(text)
    if missing:
        return f"{missing[1]} is missing, which other settings refer to"
    return text or type(error).__name__
