"""Compose overrides to settings by Hydra, one plain dictionary for each job of a sweep."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

from cfaug.core.annotations import plain_defaults, signature_of
from cfaug.core.errors import UserError, say_once
from cfaug.core.fitting import Config, bind
from cfaug.core.processes import find_folder
from cfaug.core.progress import Progress
from cfaug.core.safety.addresses import hide_settings
from cfaug.core.safety.yaml_text import UNDERSCORED
from cfaug.core.stores import is_address
from cfaug.core.targets import PARTIAL, TARGET, locate
from cfaug.settings.arguments import (
    CHOOSES,
    SEARCH_PATH,
    flatten,
    key_of,
    search_also,
    write_in_full,
)
from cfaug.settings.choices import (
    ARMS,
    EXPERIMENT,
    NOTHING,
    Options,
    check_files,
    default_choices,
    is_value,
    name_both,
    options_in,
    register_arms,
)
from cfaug.settings.composition_errors import BY_SEED, UnsetError, check_choice, explain
from cfaug.settings.settings_files import (
    CONF,
    find_settings,
    register_search_path,
    settings_folders,
    settings_groups,
    use_folders,
)
from cfaug.settings.sweep_jobs import (
    leave_out_duplicated,
    parse_overrides,
    refuse_duplicated,
    split_sweep,
)
from cfaug.settings.unread import NULL, is_under, references, refuse_unread

WITHOUT_WORLD = {"evaluate": ("data", "folder"), "annotate": ("world", "null")}
"""{command that also works without a world: the group that chooses one, the choice without}."""
PRESET = "preset"
"""The node that a model's file adds for training: optimiser, batch and length (``conf/preset``)."""
CALLBACKS = "callbacks"
"""The group whose files fill ``trainer.callbacks``."""
MOST_DIGITS = 10
"""Most digits of a number that is typed, rather than calculated to the last bit."""
PLAIN = re.compile(r"(?!\+?hydra)(\+\w+\.)?[\w.]+=", re.ASCII)
"""The beginning of a word that may set one setting; it chooses a file if its key is a group's."""


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
    with _files_for_hydra(folders, experiments):
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
            return flatten(_container(_merge(name, words, options, command)[0], resolve=False))

        refuse_unread(command, composed, multirun, written)
        if not for_hydra:
            return composed
        in_hydra = {tuple(job): words for (_, words), job in zip(merged, jobs, strict=True)}
        return [(config, in_hydra[tuple(words)]) for config, words in composed]


@contextmanager
def _files_for_hydra(users: Sequence[Path], experiments: Collection[str]) -> Iterator[None]:
    """Let Hydra compose the files of the tool, of plug-ins and of the user's own folders."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    _register_resolvers()
    register_search_path()
    with initialize_config_dir(version_base="1.3", config_dir=str(find_folder(CONF).resolve())):
        check_files(users)
        use_folders(users)
        _forget_other_files(users)
        register_arms(settings_folders(users), experiments)
        yield


def compose_files(name: str, choices: Sequence[str], users: Sequence[Path]) -> Config:
    """Return the settings of a command with the files of these choices, for its help.

    A setting that takes another one has its value, or is as it is written if that is a node.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    searched = [search_also(str(folder), "--config-dir") for folder in users]
    with _files_for_hydra(users, {choice.partition("=")[2] for choice in choices}):
        tree = deepcopy(_merge_words(name, (*searched, *choices)))
    for key, written in flatten(_container(tree, resolve=False)).items():
        if "${" in str(written):
            with suppress(OmegaConfBaseException):  # what a zoo lacks
                value = OmegaConf.select(tree, key)
                if not OmegaConf.is_config(value):
                    OmegaConf.update(tree, key, value)
    return _container(tree, resolve=False)


def _keep_taken(config: Config, command: Callable[..., Any]) -> Config:
    """Leave out the nodes that composition adds for training if the command does not take them."""
    taken = inspect.signature(command).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
        return config
    return {k: v for k, v in config.items() if k in taken or k not in (PRESET, BY_SEED)}


def _alternate(number: int, choices: Sequence[Any]) -> Any:
    """``${alternate:${seed},[a,b]}``: one of the choices in turn, by a seed."""
    return choices[number % len(choices)]


RESOLVERS: dict[str, Callable[..., Any]] = {"alternate": _alternate}
"""What files may call, ``${NAME:...}``; ``cfaug.run`` adds ``next``, the seed of data."""


def _register_resolvers() -> None:
    from omegaconf import OmegaConf

    for name, function in RESOLVERS.items():
        OmegaConf.register_new_resolver(name, function, replace=True)


def _merge(
    name: str,
    words: Sequence[str],
    options: Options,
    command: Callable[..., Any],
    chooses: Mapping[str, str] | None = None,
) -> tuple[Any, list[str]]:
    """Return one job's settings with interpolations unresolved, and its words as Hydra needs them.

    Settings that the files leave out have the defaults of their classes; a word that sets one gets
    Hydra's ``+``.
    Jobs that choose the same files share what Hydra makes of these, as merging files takes most of
    the time of a sweep: 20 jobs of ``train`` take 1.0 s of a processor, and 6.7 s if Hydra merges
    each. What else is typed is then set in a copy.

    Raises:
        UnsetError: of a word that sets nothing.
    """
    from omegaconf import OmegaConf

    kept = [word for word in words if not _says_nothing(word, options)]
    groups = settings_groups()
    plain = {
        word
        for word in kept
        if PLAIN.match(word)
        and not options(key_of(word))
        and (key_of(word) not in groups or is_value(name, key_of(word)))
    }
    chosen = [word for word in kept if word not in plain]
    files, placed = _merge_files(name, chosen)
    typed = words
    for setting, choice in (CHOOSES.get(name, {}) if chooses is None else chooses).items():
        place, _, last = setting.rpartition(".")
        node = OmegaConf.select(files, place)
        asks = {word.partition("=")[2] for word in plain if key_of(word) == setting} - NULL
        named = key_of(choice) in map(key_of, chosen)
        if asks and not named and OmegaConf.is_dict(node) and last not in node:
            words = [*words, choice]  # a launcher of Hydra's own has to choose it, too
            chosen = [*chosen, choice]
            files, placed = _merge_files(name, chosen)
    values = parse_overrides([word for word in kept if word in plain], False)
    # Where another class is typed, it has other settings than the one in the files.
    swaps = any(TARGET in override.input_line for override in values)
    whole = files
    if not swaps:
        whole = _merge_whole(name, tuple(placed[word] for word in chosen), command)
    tree, known = deepcopy(whole), {**{word: word for word in words}, **placed}
    for number, override in enumerate(values):
        try:
            if _set(tree, files, override):
                known[override.input_line] = f"+{override.input_line}"
        except Exception as error:  # OmegaConf does not wrap all errors of its callees
            # Perhaps the setting that chose a file contradicts one that was typed (data=coco_cf).
            nodes = {setting.partition(".")[0] for setting in CHOOSES.get(name, ())}
            if words is not typed and nodes.intersection(map(key_of, typed)):
                others = [word for word in typed if key_of(word) not in CHOOSES[name]]
                try:
                    _merge(name, others, options, command)
                except UnsetError:  # it does not
                    pass
                else:
                    return _merge(name, typed, options, command, {})
            before = deepcopy(whole)  # as a word may fail halfway
            for earlier in values[:number]:
                _set(before, files, earlier)
            if swaps:
                _add_defaults(before, command)
            raise UnsetError(override.input_line, _resolve_known(before)) from error
    if swaps:
        _add_defaults(tree, command)
    return tree, [known[word] for word in words]


def _set(tree: Any, files: Any, override: Any) -> bool:
    """Set what one word says, and return whether the chosen files leave the setting out."""
    from omegaconf import OmegaConf

    key, value = override.key_or_group, override.value()
    place, _, last = key.rpartition(".")
    node = OmegaConf.select(tree, place, throw_on_missing=False) if place else tree
    there = OmegaConf.is_dict(node) and last in node
    beside = OmegaConf.select(files, place, throw_on_missing=False) if place else files
    in_files = OmegaConf.is_dict(beside) and last in beside
    if override.is_add() and in_files and not isinstance(value, dict | list):
        raise UserError("it is there already: leave the + out")
    absent = [] if there else [key]
    if there and isinstance(value, dict) and OmegaConf.is_dict(node[last]):
        absent = [f"{key}.{name}" for name in value if name not in node[last]]
    if not override.is_add() and not all(
        _may_be_added(tree, k) or _may_be_added(files, k) for k in absent
    ):
        raise UserError("there is no such setting")
    OmegaConf.update(tree, key, value, merge=True, force_add=bool(absent))
    return not override.is_add() and (bool(absent) or not in_files)


def _resolve_known(tree: Any) -> Config:
    """Return settings resolved, or as they are written if one of them cannot be."""
    try:
        return _container(tree)
    except Exception:  # a resolver may raise anything
        return _container(tree, resolve=False)


def _merge_files(name: str, words: Sequence[str]) -> tuple[Any, dict[str, str]]:
    """Return what Hydra makes of chosen files, and {word: as Hydra needs it}.

    A group that is added (``recipe_part@recipe=NAME``, ``preset=NAME``) gets Hydra's ``+``, and one
    that a chosen file has already does not: which it is, only Hydra knows.
    """
    from hydra.errors import ConfigCompositionException

    keys = {word: key_of(word) for word in words if word[0] not in "+~"}
    perhaps = [word for word, key in keys.items() if "@" in key or key == PRESET]
    for count in range(len(perhaps) + 1):
        for added in combinations(perhaps, count):
            known = {word: f"+{word}" if word in added else word for word in words}
            try:
                return _merge_words(name, tuple(known.values())), known
            except ConfigCompositionException:
                continue
    return _merge_words(name, tuple(words)), {word: word for word in words}  # raises


_merged_files: set[tuple[str, int, int]] = set()
"""The path, time and size of every file of which ``_merge_words`` keeps what Hydra made."""


def _forget_other_files(users: Sequence[Path]) -> None:
    """Keep what Hydra made of files from one command line to the next, until one of them changes.

    A process that composes several command lines, as a notebook does, waits for the files once.
    Folders of the user's may hold anything, and many files: they are read each time.
    """
    files = set()
    for folder in () if users else settings_folders():
        for place, _, names in os.walk(folder):
            for name in names:
                status = os.lstat(file := os.path.join(place, name))
                files.add((file, status.st_mtime_ns, status.st_size))
    if users or files != _merged_files:
        _merge_words.cache_clear()
        _merge_whole.cache_clear()
        _merged_files.clear()
        _merged_files.update(files)


@lru_cache(maxsize=64)
def _merge_words(name: str, words: tuple[str, ...]) -> Any:
    from hydra import compose
    from omegaconf import OmegaConf

    # A default of some is a world's, and has a stand-in where the world is absent.
    stand_in: list[str] = []
    group, choice = WITHOUT_WORLD.get(name, ("", ""))
    if group and not any(key_of(word) == group for word in words):
        usual = find_settings(settings_folders(), f"{group}/{default_choices(name)[group]}")
        stand_in = [] if usual else [f"{group}={choice}"]
    tree = compose(config_name=name, overrides=[*stand_in, *words])
    if ARMS in tree:  # an experiment's file that is chosen itself brings its other arms along
        OmegaConf.set_struct(tree, False)
        del tree[ARMS]
        OmegaConf.set_struct(tree, True)
    return tree


@lru_cache(maxsize=64)
def _merge_whole(name: str, words: tuple[str, ...], command: Callable[..., Any]) -> Any:
    """Return what Hydra makes of chosen files, with the settings that they leave to classes."""
    tree = deepcopy(_merge_words(name, words))
    _add_defaults(tree, command)
    return tree


def _add_defaults(tree: Any, command: Callable[..., Any] | None) -> None:
    """Add to every node that names a class the settings that it lacks, with their defaults."""
    from omegaconf import OmegaConf, open_dict

    def complete(node: Any, kind: Any) -> None:
        if OmegaConf.is_dict(node):
            target = None if OmegaConf.is_interpolation(node, TARGET) else node.get(TARGET)
            if isinstance(target, str) and not node.get(PARTIAL):
                with suppress(UserError):  # refused where the object is made
                    kind = locate(target)
            for name, default in {} if kind is None else plain_defaults(kind).items():
                if name not in node and name not in (PRESET, BY_SEED):
                    node[name] = default
        for key in range(len(node)) if OmegaConf.is_list(node) else list(node):
            unknown = OmegaConf.is_interpolation(node, key) or OmegaConf.is_missing(node, key)
            if not unknown and OmegaConf.is_config(node[key]):
                complete(node[key], None)

    with open_dict(tree):
        complete(tree, command)


def _says_nothing(word: str, options: Options) -> bool:
    """Say whether a word is ``group=null`` for a group that is null by default."""
    key, _, value = word.partition("=")
    return value == "null" and NOTHING in options(key)


def _job(
    name: str, words: list[str], command: Callable[..., Any], options: Options
) -> tuple[Config, list[str]]:
    """Return one job's settings as the command takes them, and its words."""
    telling = [word for word in words if not _says_nothing(word, options)]
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
        return _plain(_merge(name, some, options, command)[0])

    try:
        tree, words = _merge(name, words, options, command)
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
    return _bind_typed(config, command, words, options), words


def _may_be_added(tree: Any, key: str) -> bool:
    """Say whether a class takes a setting that its file leaves out.

    It may be an argument of the class, or an entry of a dictionary that the class takes, or of one
    that is empty in the file.
    """
    from omegaconf import OmegaConf

    nodes: list[Any] = [tree]
    names = key.split(".")
    while names and OmegaConf.is_dict(nodes[-1]) and names[0] in nodes[-1]:
        nodes.append(nodes[-1][names.pop(0)])
    if not OmegaConf.is_dict(nodes[-1]):
        return False
    if TARGET in nodes[-1]:
        return len(names) == 1 and names[0] in signature_of(locate(nodes[-1][TARGET]))
    dictionary = len(nodes) > 1 and (TARGET in nodes[-2] or not nodes[-1])
    return dictionary and names[1:] in ([], [TARGET])


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
    config = _container(tree)
    written = flatten(_container(tree, resolve=False))
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


def _container(tree: Any, resolve: bool = True) -> Config:
    from omegaconf import OmegaConf

    config = OmegaConf.to_container(tree, resolve=resolve, throw_on_missing=resolve)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def resolve(tree: Any, command: Callable[..., Any], words: Sequence[str]) -> Config:
    """Return the settings that a launcher of Hydra itself composed, as a command takes them."""
    _register_resolvers()
    _add_defaults(tree, command)
    config = {key: value for key, value in _plain(tree).items() if key != "hydra"}
    return _bind_typed(config, command, words)
