"""Why settings could not be composed: the word at fault, and what to type in its place."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from cfaug.core.errors import UserError, command_of
from cfaug.core.known_names import RENAMED, describe_variants, suggest
from cfaug.core.targets import TARGET, locate
from cfaug.settings.arguments import BY_SEED, PRESET, SEARCH_PATH, flatten, key_of
from cfaug.settings.choices import NOTHING, Options, top_level
from cfaug.settings.unread import references

Compose = Callable[[Sequence[str]], Any]
"""Composes words to resolved settings; raises what Hydra and OmegaConf do."""
MOST = 60
"""The largest number of choices that a message lists."""


class UnsetError(Exception):
    """A word that sets no setting of the composed files; its cause says why.

    Attributes:
        word: the word.
        settings: the settings before it, resolved as far as they can be.
    """

    def __init__(self, word: str, settings: Mapping[str, Any]) -> None:
        super().__init__(word)
        self.word, self.settings = word, settings


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


def explain(words: Sequence[str], error: Exception, compose: Compose, options: Options) -> str:
    """Return the message for words that could not be composed."""
    from hydra.errors import ConfigCompositionException, MissingConfigException

    if isinstance(error, UnsetError):
        return _explain_setting(error, words, options)
    if isinstance(error, MissingConfigException):
        for word in words:
            group, choice = key_of(word).partition("@")[0], word.partition("=")[2]
            if f"{group}/{choice}" == error.missing_cfg_file:
                there = [*dict.fromkeys([*options(group), *(error.options or ())])]
                near = get_close_matches(choice, there, 1)
                hint = f" (did you mean {key_of(word)}={near[0]}?)" if near else ""
                listed = f"from {', '.join(there)}"
                if len(there) > MOST:
                    listed = f"one of {len(there)} choices, which {group} --help lists"
                return f"{word}: choose {listed}{hint}"
    groups = [word for word in words if _chooses(word, options) or word.startswith(SEARCH_PATH)]
    alone = _failure(compose, groups)
    # What is chosen within a group fits some choices of that group only.
    suspects = sorted(groups, key=lambda word: "/" not in key_of(word))
    for word in suspects if alone else [word for word in words if word not in groups]:
        others = [other for other in (groups if alone else words) if other is not word]
        if word.startswith(SEARCH_PATH) or _failure(compose, others):
            continue
        key, _, value = word.partition("=")
        if not alone and isinstance(error, ConfigCompositionException):  # of another command
            return _explain_setting(UnsetError(word, compose(others)), words, options)
        if alone and options(key) and value[:1] in ("[", "{"):
            return f"{word}: choose one of {', '.join(options(key))}"
        if isinstance(alone, ConfigCompositionException):
            return f"{word}: nothing that is chosen has a choice of {key_of(word)}"
        return f"{word}: {reason_of(alone or error)}"
    return reason_of(alone or error)


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


def _explain_setting(error: UnsetError, words: Sequence[str], options: Options) -> str:
    """Explain a word that sets nothing, by the settings that there are without it."""
    word, key, tree = error.word, key_of(error.word), error.settings
    if "@" in key:
        return f"no setting is called {key!r}: nothing that is chosen has a choice of that name"
    for other in words:
        if key.startswith(key_of(other) + ".") and not options(key_of(other)):
            return f"{other}: {key_of(other)} has settings of its own, such as {key}"
    # A model's own values come last: users set the settings that take these.
    flat = flatten({name: value for name, value in tree.items() if name != BY_SEED})
    known = sorted(flat, key=lambda setting: setting.startswith(f"{PRESET}."))
    nodes = {key.rsplit(".", depth)[0] for key in known for depth in range(1, key.count(".") + 1)}
    if key in {*known, *nodes}:
        place, _, name = key.rpartition(".")
        parts = [node for node in sorted(nodes) if node.startswith("zoo.")]
        parts = [node for node in parts if _below(flat, node) == _below(flat, place)]
        if parts:  # a reference to one of them, which has no settings of its own
            others = " or ".join(f"{node}.{name}" for node in parts)
            return f"{word}: {place} is a part of the zoo: set {others}"
        return f"{word}: {reason_of(error.__cause__)}"
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


def reason_of(error: BaseException | None) -> str:
    """Return the message of an error of Hydra's or OmegaConf's, without their internals."""
    from hydra.errors import MissingConfigException
    from omegaconf.errors import InterpolationKeyError, MissingMandatoryValue

    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} is missing: type {error.full_key}=VALUE"
    if isinstance(error, MissingConfigException) and error.options:
        choices = ", ".join(error.options)
        return f"there is no file {error.missing_cfg_file}: choose from {choices}"
    if isinstance(error, InterpolationKeyError) and error.child_node is not None:
        [missing, *_] = references(error.full_key or "", str(error.child_node._value()))
        if missing.startswith(f"{PRESET}."):
            return (
                "the model's file names no preset to take optimiser, batch and length from: add "
                "`defaults: [/preset@_global_.preset: paper]` to it, or type preset=paper"
            )
        return f"{missing} is missing, which {error.full_key} takes"
    return str(error).strip().partition("\n")[0] or type(error).__name__
