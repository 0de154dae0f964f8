"""One job's settings as they are written: files merged by Hydra, other words set in a copy.

What the files leave out has the default of the class that takes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

from cfaug.core.annotations import plain_defaults, signature_of
from cfaug.core.errors import UserError
from cfaug.core.fitting import Config
from cfaug.core.processes import find_folder
from cfaug.core.targets import PARTIAL, TARGET, locate
from cfaug.settings.arguments import BY_SEED, CHOOSES, PRESET, key_of
from cfaug.settings.choices import (
    ARMS,
    NOTHING,
    Options,
    check_files,
    default_choices,
    is_value,
    register_arms,
)
from cfaug.settings.composition_errors import UnsetError
from cfaug.settings.settings_files import (
    CONF,
    find_settings,
    register_search_path,
    settings_folders,
    settings_groups,
    use_folders,
)
from cfaug.settings.sweep_jobs import parse_overrides
from cfaug.settings.unread import NULL

WITHOUT_WORLD = {"evaluate": ("data", "folder"), "annotate": ("world", "null")}
"""{command that also works without a world: the group that chooses one, the choice without}."""
PLAIN = re.compile(r"(?!\+?hydra)(\+\w+\.)?[\w.]+=", re.ASCII)
"""The beginning of a word that may set one setting; it chooses a file if its key is a group's."""


@contextmanager
def files_for_hydra(users: Sequence[Path], experiments: Collection[str]) -> Iterator[None]:
    """Let Hydra compose the files of the tool, of plug-ins and of the user's own folders."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    register_resolvers()
    register_search_path()
    with initialize_config_dir(version_base="1.3", config_dir=str(find_folder(CONF).resolve())):
        check_files(users)
        use_folders(users)
        _forget_other_files(users)
        register_arms(settings_folders(users), experiments)
        yield


def _alternate(number: int, choices: Sequence[Any]) -> Any:
    """``${alternate:${seed},[a,b]}``: one of the choices in turn, by a seed."""
    return choices[number % len(choices)]


RESOLVERS: dict[str, Callable[..., Any]] = {"alternate": _alternate}
"""What files may call, ``${NAME:...}``; ``cfaug.run`` adds ``next``, the seed of data."""


def register_resolvers() -> None:
    """Make ``RESOLVERS`` known to OmegaConf."""
    from omegaconf import OmegaConf

    for name, function in RESOLVERS.items():
        OmegaConf.register_new_resolver(name, function, replace=True)


def merge(
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

    kept = [word for word in words if not says_nothing(word, options)]
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
                    merge(name, others, options, command)
                except UnsetError:  # it does not
                    pass
                else:
                    return merge(name, typed, options, command, {})
            before = deepcopy(whole)  # as a word may fail halfway
            for earlier in values[:number]:
                _set(before, files, earlier)
            if swaps:
                add_defaults(before, command)
            raise UnsetError(override.input_line, _resolve_known(before)) from error
    if swaps:
        add_defaults(tree, command)
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
        return container(tree)
    except Exception:  # a resolver may raise anything
        return container(tree, resolve=False)


def says_nothing(word: str, options: Options) -> bool:
    """Say whether a word is ``group=null`` for a group that is null by default."""
    key, _, value = word.partition("=")
    return value == "null" and NOTHING in options(key)


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
                return merge_words(name, tuple(known.values())), known
            except ConfigCompositionException:
                continue
    return merge_words(name, tuple(words)), {word: word for word in words}  # raises


_merged_files: set[tuple[str, int, int]] = set()
"""The path, time and size of every file of which ``merge_words`` keeps what Hydra made."""


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
        merge_words.cache_clear()
        _merge_whole.cache_clear()
        _merged_files.clear()
        _merged_files.update(files)


@lru_cache(maxsize=64)
def merge_words(name: str, words: tuple[str, ...]) -> Any:
    """Return what Hydra makes of a command's root configuration and of words that choose files."""
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
    tree = deepcopy(merge_words(name, words))
    add_defaults(tree, command)
    return tree


def add_defaults(tree: Any, command: Callable[..., Any] | None) -> None:
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


def container(tree: Any, resolve: bool = True) -> Config:
    """Return settings as plain dictionaries and lists.

    Args:
        resolve: whether ``${...}`` becomes what it names.
    """
    from omegaconf import OmegaConf

    config = OmegaConf.to_container(tree, resolve=resolve, throw_on_missing=resolve)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}
