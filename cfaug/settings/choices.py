"""What the files of settings offer to choose: the options of each group, and arms of experiments.

``experiment=demo/real`` is the arm ``real`` of ``conf/experiment/demo.yaml``. The file has settings
that all arms share, and under ``arms`` the settings of each arm, with a ``defaults`` list of its
own where it chooses other options. An arm is named after its entry, unless it says otherwise. The
file itself can be chosen if it names an ``arm``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import read_limited
from cfaug.core.processes import find_folder
from cfaug.core.safety.yaml_text import MOST_CHARACTERS, parse_yaml
from cfaug.settings.arguments import SHORT_NAMES
from cfaug.settings.settings_files import (
    CONF,
    find_settings,
    settings_folders,
    settings_groups,
)

EXPERIMENT, ARMS, DEFAULTS = "experiment", "arms", "defaults"
BESIDE = "optional "
"""Prefix of an entry in a defaults list that follows from other choices."""
NOTHING = "null"
"""The default of a group from which nothing is chosen."""
Options = Callable[[str], Sequence[str]]
"""Returns the choices of a group, by its name; empty for anything else."""


def read_settings(file: Path) -> dict[str, Any]:
    """Return the content of a file of settings, which is not to be changed."""
    return _parse(read_limited(file, MOST_CHARACTERS), file)


@lru_cache(maxsize=512)
def _parse(text: str, file: Path) -> dict[str, Any]:
    """Return a file's content; every job of a process asks for the same ones."""
    return parse_yaml(text, file) or {}


def check_files(folders: Iterable[Path]) -> None:
    """Refuse the user's own folders of settings with a file that Hydra should not read."""
    for folder in folders:
        for group in sorted(settings_groups()):
            for file in sorted((folder / group).rglob("*.yaml")):
                read_settings(file)


def read_arms(file: Path) -> dict[str, dict[str, Any]]:
    """Return the settings of each arm of an experiment; empty for a file without arms."""
    content = read_settings(file)
    if ARMS not in content:
        return {}
    shared = {key: value for key, value in content.items() if key != ARMS}
    arms = content[ARMS]
    if not isinstance(arms, dict) or not all(isinstance(arm, dict | None) for arm in arms.values()):
        raise UserError(f"{file}: arms should hold the settings of each arm by its name")
    return {
        str(name): _join(shared, {"arm": str(name), **(settings or {})})
        for name, settings in arms.items()
    }


def names_itself(file: Path) -> bool:
    """Say whether a file can be chosen: it has no arms, or is one of them itself."""
    content = read_settings(file)
    return ARMS not in content or "arm" in content


def register_arms(folders: Sequence[Path], experiments: Collection[str]) -> None:
    """Make the arms of experiments known to Hydra, and those of experiments that they extend.

    Args:
        experiments: the names of the chosen experiments, with or without that of an arm.
    """
    from hydra.core.config_store import ConfigStore

    # Hydra copies what is known with every job; arms of another command line are not needed.
    ConfigStore.instance().repo.pop(EXPERIMENT, None)
    waiting, done = [name.partition("/")[0] for name in experiments], set[str]()
    while waiting:
        experiment = waiting.pop()
        if experiment in done:
            continue
        done.add(experiment)
        for file in (folder / EXPERIMENT / f"{experiment}.yaml" for folder in folders):
            for name, node in (read_arms(file) if file.is_file() else {}).items():
                ConfigStore.instance().store(name, node, f"{EXPERIMENT}/{experiment}", "_global_")
                texts = (entry for entry in node.get(DEFAULTS, ()) if isinstance(entry, str))
                extended = (text.removeprefix(f"/{EXPERIMENT}/") for text in texts)
                waiting += [choice.partition("/")[0] for choice in extended]


def _join(shared: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return shared settings with an arm's own: nested ones by key, choices by their group."""
    joined = {**shared, **settings}
    for key, value in settings.items():
        if isinstance(value, dict) and isinstance(shared.get(key), dict):
            joined[key] = _join(shared[key], value)
    if DEFAULTS in shared and DEFAULTS in settings:
        chosen = {group for entry in settings[DEFAULTS] for group in _groups(entry)}
        kept = [entry for entry in shared[DEFAULTS] if not chosen.intersection(_groups(entry))]
        joined[DEFAULTS] = [*kept, *settings[DEFAULTS]]
    return joined


def _groups(entry: Any) -> Iterable[str]:
    return entry if isinstance(entry, dict) else ()


# The choices of a command: its root configuration names the groups.


def read_root(name: str) -> dict[str, Any]:
    """Return the root configuration of a command, ``train`` for ``train.py``."""
    return read_settings(find_folder(CONF) / f"{name}.yaml")


def entries(content: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Return (key, option) of each entry of a defaults list; the option is "" if there is none."""
    return [
        next(iter(entry.items())) if isinstance(entry, dict) else (str(entry), "")
        for entry in content.get(DEFAULTS, [])
    ]


def default_choices(name: str) -> dict[str, str | None]:
    """Return the groups of a command with the default choice of each."""
    return {
        group: option
        for group, option in entries(read_root(name))
        if option != "" and not group.startswith(("override", BESIDE))
    }


def _entries_beside(name: str) -> dict[str, str]:
    """Return the groups in which a second file follows from other choices, as it is written.

    ``optional recipe@_global_: ${recipe}/${zoo}`` takes ``recipe/NAME/ZOO.yaml`` if it exists;
    nobody chooses it.
    """
    return {
        key.removeprefix(BESIDE).partition("@")[0].strip(): str(option)
        for key, option in entries(read_root(name))
        if key.startswith(BESIDE)
    }


def options_in(name: str, users: Sequence[Path] = ()) -> Options:
    """Return a function that lists the choices of a group; empty for an unknown group.

    Args:
        name: the root configuration.
        users: the user's own folders of settings.
    """
    chosen, beside = default_choices(name), _entries_beside(name)

    @lru_cache
    def options(group: str) -> list[str]:
        if group not in chosen:
            return []
        names = _names(settings_folders(users), group, nested=group not in beside)
        return [*names, *([NOTHING] if chosen[group] is None else [])]

    return options


def _names(folders: Iterable[Path], group: str, *, nested: bool) -> list[str]:
    """Return the options of a group.

    Folders are left out that are groups of their own, from which its options choose, as
    ``question: which_caption``.
    """
    homes = [folder / group for folder in folders]
    inner = {
        key.removeprefix(BESIDE).partition("@")[0]
        for home in homes
        for file in home.glob("*.yaml")
        for key, option in entries(read_settings(file))
        if option != ""
    }
    names = []
    for home in homes:
        for file in home.rglob("*.yaml"):
            name = file.relative_to(home).with_suffix("")
            if name.parts[0] in inner or (len(name.parts) > 1 and not nested):
                continue
            if group == EXPERIMENT:
                names += [f"{name.as_posix()}/{arm}" for arm in read_arms(file)]
            if group != EXPERIMENT or names_itself(file):
                names.append(name.as_posix())
    return sorted(names)


def top_level(name: str) -> set[str]:
    """Return the groups and settings at the top of a root configuration, and short names."""
    return {*default_choices(name), *read_root(name), *SHORT_NAMES.get(name, ())} - {DEFAULTS}


def is_value(name: str, key: str) -> bool:
    """Say whether a root configuration has a single setting that is named as a group is.

    ``cfaug compare plan=2`` chooses no file of the group of papers' data sets.
    """
    settings = read_root(name)
    return key in settings and not isinstance(settings[key], dict)


def name_both(name: str, group: str, choice: str) -> str | None:
    """Return the words that choose a file by two choices together; ``None`` for other files.

    ``recipe/NAME/ZOO.yaml`` follows from ``recipe=NAME zoo=ZOO`` and is not a choice of ``recipe``.

    Args:
        choice: the typed choice, ``NAME/ZOO``.
    """
    parts, pattern = choice.split("/"), _entries_beside(name).get(group, "").split("/")
    if len(parts) != len(pattern) or find_settings(settings_folders(), f"{group}/{choice}") is None:
        return None
    named = {f"${{{key}}}": key for key in default_choices(name)}
    pairs = zip(pattern, parts, strict=True)
    return " ".join(f"{named[reference]}={part}" for reference, part in pairs if reference in named)
