"""Compose overrides to settings by Hydra, one plain dictionary for each job of a sweep."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, say_once
from cfaug.core.fitting import Config, bind
from cfaug.core.progress import Progress
from cfaug.core.safety.addresses import hide_settings
from cfaug.core.safety.yaml_text import UNDERSCORED
from cfaug.core.stores import is_address
from cfaug.settings.arguments import (
    BY_SEED,
    PRESET,
    SEARCH_PATH,
    flatten,
    key_of,
    search_also,
    write_in_full,
)
from cfaug.settings.choices import (
    EXPERIMENT,
    Options,
    name_both,
    options_in,
)
from cfaug.settings.composition_errors import check_choice, explain
from cfaug.settings.merging import (
    add_defaults,
    container,
    files_for_hydra,
    merge,
    merge_words,
    register_resolvers,
    says_nothing,
)
from cfaug.settings.settings_files import CONF
from cfaug.settings.sweep_jobs import (
    leave_out_duplicated,
    parse_overrides,
    refuse_duplicated,
    split_sweep,
)
from cfaug.settings.unread import is_under, references, refuse_unread

CALLBACKS = "callbacks"
"""The group whose files fill ``trainer.callbacks``."""
MOST_DIGITS = 10
"""Most digits of a number that is typed, rather than calculated to the last bit."""


def compose_jobs(
    name: str,
    overrides: Sequence[str],
    *,
    multirun: bool,
    command: Callable[..., Any],
    for_hydra: bool = False,
) -> list[tuple[Config, list[str]]]:
    """Compose every job of a command line, before any of them runs.

    Args:
        overrides: the words of the command line; with ``multirun`` each ``key=a,b`` multiplies the
            jobs.
        command: the function that will receive the top-level keys; keys that it does not take are
            refused.
        for_hydra: whether overrides are returned as Hydra itself needs them: with a ``+`` where no
            file has the setting, and with the choice that a setting makes by itself.

    Returns:
        One (resolved configuration, overrides of this job) per job, in the order of the sweep;
        jobs with equal configurations are one job.
    """
    overrides = write_in_full(name, overrides)
    parsed = parse_overrides(overrides, multirun)
    refuse_duplicated(parsed)
    options = options_in(name)
    jobs = split_sweep(parsed, options) if multirun else [list(overrides)]
    experiments = set()
    for word in dict.fromkeys(word for job in jobs for word in job):
        group, _, choice = word.partition("=")
        arms = [option for option in options(group) if option.startswith(f"{choice}/")]
        if arms and choice not in options(group):
            typed = f", {group}=".join(arms)
            raise UserError(f"{word} has several arms: choose {group}={typed}")
        instead = name_both(name, group, choice) if "/" in choice else None
        if instead is not None:
            raise UserError(f"{word} cannot be chosen alone; it is a part of {instead}: type these")
        if group.lstrip("+") == EXPERIMENT:
            experiments.add(choice)
    folders = [
        Path(str(address).removeprefix("file://"))
        for override in parsed
        if override.key_or_group == SEARCH_PATH  # what --config-dir becomes
        and isinstance(override.value(), list)  # Hydra refuses anything else
        for address in override.value()
    ]
    with files_for_hydra(folders, experiments):
        # Last, so that no file there hides a module of another package.
        for path in folders:  # FOLDER/conf is what --config-dir FOLDER becomes, too
            for home in (path.parent, path) if path.name == CONF else (path,):
                sys.path += [] if str(home.resolve()) in sys.path else [str(home.resolve())]
        merged = [_job(name, jobs[0], command, options)]  # its imports belong to no rate
        with Progress("composing the sweep", len(jobs), "jobs") as progress:
            progress.skip(1)
            for job in jobs[1:]:
                merged.append(_job(name, job, command, options))
                progress.advance()
        as_typed = [(config, job) for (config, _), job in zip(merged, jobs, strict=True)]
        composed = leave_out_duplicated(as_typed)

        def written(words: Sequence[str]) -> Config:
            return flatten(container(merge(name, words, options, command)[0], resolve=False))

        refuse_unread(command, composed, multirun, written)
        if not for_hydra:
            return composed
        in_hydra = {tuple(job): words for (_, words), job in zip(merged, jobs, strict=True)}
        return [(config, in_hydra[tuple(words)]) for config, words in composed]


def compose_files(name: str, choices: Sequence[str], users: Sequence[Path]) -> Config:
    """Return the settings of a command with the files of these choices, for its help.

    A setting that takes another one has its value, or is as it is written if that is a node.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    searched = [search_also(str(folder), "--config-dir") for folder in users]
    with files_for_hydra(users, {choice.partition("=")[2] for choice in choices}):
        tree = deepcopy(merge_words(name, (*searched, *choices)))
    for key, written in flatten(container(tree, resolve=False)).items():
        if "${" in str(written):
            with suppress(OmegaConfBaseException):  # what a zoo lacks
                value = OmegaConf.select(tree, key)
                if not OmegaConf.is_config(value):
                    OmegaConf.update(tree, key, value)
    return container(tree, resolve=False)


def _keep_taken(config: Config, command: Callable[..., Any]) -> Config:
    """Leave out the nodes that composition adds for training if the command does not take them."""
    taken = inspect.signature(command).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
        return config
    return {k: v for k, v in config.items() if k in taken or k not in (PRESET, BY_SEED)}


def _job(
    name: str, words: list[str], command: Callable[..., Any], options: Options
) -> tuple[Config, list[str]]:
    """Return one job's settings as the command takes them, and its words as Hydra needs them."""
    telling = [word for word in words if not says_nothing(word, options)]
    for parsed in parse_overrides(telling, False):
        check_choice(parsed, options)
        if parsed.is_sweep_override():
            key, text = parsed.key_or_group, parsed.input_line.partition("=")[2]
            single = f"; {key}=[{text}] is a list, and '{key}=\"{text}\"' one text"
            raise UserError(
                f"{parsed.input_line} names several values, a sweep: add --multirun (-m)"
                + ("" if "(" in text else single)
            )

    def compose_words(some: Sequence[str]) -> Config:
        return _plain(merge(name, some, options, command)[0])

    try:
        tree, in_hydra = merge(name, words, options, command)
        config = _plain(tree)
    except Exception as error:  # of Hydra, OmegaConf and their callees, all caused by the words
        raise UserError(explain(words, error, compose_words, options)) from error
    # Refuse a word whose setting another word of the same job removes.
    keys = [(word, key_of(word)) for word in words if "=" in word and "@" not in key_of(word)]
    for word, key in keys:
        removed = f"trainer.{key}" if key == CALLBACKS else key.rpartition(".")[0]
        if not removed or word.partition("=")[2] in ("null", "None"):
            continue
        for other, by in keys:
            removes = other is not word and other.partition("=")[2] in ("null", "None", "{}")
            if removes and f"{removed}.".startswith(f"{by}."):
                raise UserError(f"{word} has no effect beside {other}: leave one of them out")
    return _bind_typed(config, command, words, options), in_hydra


def _bind_typed(
    config: Config,
    command: Callable[..., Any],
    words: Sequence[str],
    options: Options = lambda _: (),
) -> Config:
    """Return settings as the command takes them, without passwords in addresses."""
    # The text of each key as it was typed, as ``1e3`` and ``007`` may also be names.
    pairs = (word.lstrip("+").partition("=") for word in words)
    typed = {key: text for key, _, text in pairs if "$" not in text and text[:1] not in "'\""}
    plain = without_rounding(hide_settings(config))
    bound = bind(_keep_taken(plain, command), command, typed, options)
    for key, value in flatten(bound).items():
        parts = re.split(r"[\[\],\s]+", typed.get(key, ""))
        if not isinstance(value, str) and any(map(UNDERSCORED.fullmatch, parts)):
            say_once(f"note: {key}={typed[key]} is read as {value}: its underscores are left out")
    if "paths" not in bound:
        return bound
    # Shells leave paths.runs=~/runs as it is.
    paths = {
        name: os.path.expanduser(folder) if isinstance(folder, str) else folder
        for name, folder in bound["paths"].items()
    }
    for name in ("runs", "worlds", "data", "cache"):  # paths.shards may be in an object store
        folder = str(paths.get(name, ""))
        if is_address(folder):
            raise UserError(f"paths.{name}={folder} should be a folder of this machine")
    return {**bound, "paths": paths}


def without_rounding(value: Any) -> Any:
    """Return settings whose numbers lack the error of a calculation in Python.

    The same number, written in two ways, would make two arms of the same examples. A number with
    many digits, such as 1/3, is left as it is.

    >>> without_rounding({"cf_ratio": 0.1 + 0.2, "lr": [1 / 3, 5e-7]})
    {'cf_ratio': 0.3, 'lr': [0.3333333333333333, 5e-07]}
    """
    if isinstance(value, Mapping):
        return {key: without_rounding(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_rounding(item) for item in value]
    if not isinstance(value, float):
        return value
    shortest = f"{value:.15g}"
    digits = shortest.partition("e")[0].lstrip("-0.").replace(".", "")
    return float(shortest) if len(digits) <= MOST_DIGITS else value


def _plain(tree: Any) -> Config:
    """Return the settings with those that take the seed, as they are written.

    An example is ``model.weights=${alternate:${seed},[a,b]}``. By these, runs of one arm with
    different seeds are distinguished from runs with different settings.
    """
    config = container(tree)
    written = flatten(container(tree, resolve=False))
    following = follow_seed(written) if "seed" in written else set()
    by_seed = {
        key: str(written.get(key, "by the seed"))
        for key in sorted(flatten(config))
        if is_under(key, following)
    }
    return {**config, BY_SEED: by_seed}


def follow_seed(written: Mapping[str, Any]) -> set[str]:
    """Return the settings that take the seed by ``${...}``, also by way of others.

    Args:
        written: {setting: its value as written}.

    >>> sorted(follow_seed({"seed": 1, "a.b": "x-${seed}", "c": "${a}", "d": "${.e}", "e": 2}))
    ['a.b', 'c.b']
    """
    following, more = {"seed"}, True
    while more:
        before = len(following)
        for key, value in written.items():
            for name in references(key, value if isinstance(value, str) else str(value)):
                whole = value in (f"${{{name}}}", f"${{.{name}}}")  # perhaps a node
                inner = {known[len(name) :] for known in following if is_under(known, [name])}
                following |= {f"{key}{rest if whole else ''}" for rest in inner}
        more = len(following) > before
    return following - {"seed"}


def resolve(tree: Any, command: Callable[..., Any], words: Sequence[str]) -> Config:
    """Return the settings that a launcher of Hydra itself composed, as a command takes them."""
    register_resolvers()
    add_defaults(tree, command)
    config = {key: value for key, value in _plain(tree).items() if key != "hydra"}
    return _bind_typed(config, command, words)
