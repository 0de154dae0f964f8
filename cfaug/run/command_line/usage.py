"""The arms of an experiment; --help; and explanations of settings that could not be composed."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, is_typeddict

import yaml

from cfaug.core.annotations import annotation_of, base_of
from cfaug.core.errors import UserError, command_of
from cfaug.core.files import read_limited
from cfaug.core.known_names import (
    HOW_RUNS_RESUME,
    OF_RESUMING,
    RENAMED,
    describe_variants,
    nearest,
)
from cfaug.core.processes import find_folder
from cfaug.core.safety.yaml_text import MOST_CHARACTERS, parse_yaml
from cfaug.core.targets import TARGET, locate
from cfaug.run.command_line.arguments import SHORT_NAMES, flatten, key_of
from cfaug.run.command_line.settings_files import (
    CONF,
    find_settings,
    settings_folders,
    settings_groups,
)
from cfaug.run.command_line.unread import describe_readers
from cfaug.settings.declarations import declarations, meanings_of

# ``experiment=demo/real`` is the arm ``real`` of ``conf/experiment/demo.yaml``.
#
# The file has settings that all arms share, and under ``arms`` the settings of each arm, with a
# ``defaults`` list of its own where it chooses other options. An arm is named after its entry,
# unless it says otherwise. The file itself can be chosen if it names an ``arm``.

EXPERIMENT, ARMS, DEFAULTS = "experiment", "arms", "defaults"


def read_arms(file: Path) -> dict[str, dict[str, Any]]:
    """Return the settings of each arm of an experiment; empty for a file without arms."""
    content = _load(file)
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
    content = _load(file)
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


OWN_LINES = ("_target_:", "# @package", "defaults:")
BESIDE = "optional "
"""Prefix of an entry in a defaults list that follows from other choices."""
HERE = "_here_"
"""The package of a part of a file's own settings."""
NOTHING = "null"
"""The default of a group from which nothing is chosen."""


def options_in(name: str) -> Callable[[str], list[str]]:
    """Return a function that lists the choices of a group; empty for an unknown group."""
    chosen, beside = _chosen(_root(name)), _entries_beside(_root(name))

    @lru_cache
    def options(group: str) -> list[str]:
        if group not in chosen:
            return []
        names = _names(settings_folders(), group, nested=group not in beside)
        return [*names, *([NOTHING] if chosen[group] is None else [])]

    return options


def _root(name: str) -> Path:
    return find_folder(CONF) / f"{name}.yaml"


def default_choice(name: str, group: str) -> str | None:
    """Return what a root configuration chooses of a group."""
    return _chosen(_root(name))[group]


def top_level(name: str) -> set[str]:
    """Return the groups and settings at the top of a root configuration, and short names."""
    file = _root(name)
    return {*_chosen(file), *_load(file), *SHORT_NAMES.get(name, ())} - {"defaults"}


def is_value(name: str, key: str) -> bool:
    """Say whether a root configuration has a single setting that is named as a group is.

    ``cfaug compare plan=2`` chooses no file of the group of papers' data sets.
    """
    settings = _load(_root(name))
    return key in settings and not isinstance(settings[key], dict)


def _load(file: Path) -> dict[str, Any]:
    return _parse(read_limited(file, MOST_CHARACTERS), file)


@lru_cache(maxsize=512)
def _parse(text: str, file: Path) -> dict[str, Any]:
    """Return a file's content, not to be changed; every job of a process asks for the same ones."""
    return parse_yaml(text, file) or {}


def check_files(folders: Iterable[Path]) -> None:
    """Refuse the user's own folders of settings with a file that Hydra should not read."""
    for folder in folders:
        for group in sorted(settings_groups()):
            for file in sorted((folder / group).rglob("*.yaml")):
                _load(file)


def _defaults(file: Path) -> list[tuple[str, str | None]]:
    """Return (key, option) of each entry of a defaults list; the option is "" if there is none."""
    return [
        next(iter(entry.items())) if isinstance(entry, dict) else (str(entry), "")
        for entry in _load(file).get("defaults", [])
    ]


def _chosen(root_file: Path) -> dict[str, str | None]:
    """Return the groups of a root configuration with the default choice of each."""
    return {
        group: option
        for group, option in _defaults(root_file)
        if option != "" and not group.startswith(("override", BESIDE))
    }


def _entries_beside(root_file: Path) -> dict[str, str]:
    """Return the groups in which a second file follows from other choices, as it is written.

    ``optional recipe@_global_: ${recipe}/${zoo}`` takes ``recipe/NAME/ZOO.yaml`` if it exists;
    nobody chooses it.
    """
    return {
        key.removeprefix(BESIDE).partition("@")[0].strip(): str(option)
        for key, option in _defaults(root_file)
        if key.startswith(BESIDE)
    }


def name_both(name: str, group: str, choice: str) -> str | None:
    """Return the words that choose a file by two choices together; ``None`` for other files.

    ``recipe/NAME/ZOO.yaml`` follows from ``recipe=NAME zoo=ZOO`` and is not a choice of ``recipe``.

    Args:
        choice: the typed choice, ``NAME/ZOO``.
    """
    chosen, beside = _chosen(_root(name)), _entries_beside(_root(name))
    parts, pattern = choice.split("/"), beside.get(group, "").split("/")
    if len(parts) != len(pattern) or _find(f"{group}/{choice}") is None:
        return None
    named = {f"${{{key}}}": key for key in chosen}
    pairs = zip(pattern, parts, strict=True)
    return " ".join(f"{named[reference]}={part}" for reference, part in pairs if reference in named)


def _find(name: str) -> Path | None:
    return find_settings(settings_folders(), name)


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
        for key, option in _defaults(file)
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


def usage(
    name: str,
    examples: str,
    users: Sequence[Path] = (),
    words: Sequence[str] = (),
    command: Callable[..., Any] | None = None,
) -> str:
    """Return the help text of a command: its choices, and its settings at the top.

    A group beside ``--help``, ``trainer`` or ``benchmark=vqa``, shows the settings of its choice.

    Args:
        name: the root configuration, ``train`` for ``train.py``.
        examples: the purpose of the command, and words to start from.
        users: the user's own folders of settings.
        words: the words beside ``--help``.
        command: the class of its settings at the top.
    """
    root_file, folders = _root(name), settings_folders(users)
    usual, beside = _chosen(root_file), _entries_beside(root_file)
    chosen: dict[str, str | None] = {}
    for group, _, typed in (word.partition("=") for word in words):
        if group in usual:
            names = _names(folders, group, nested=group not in beside)
            if typed and typed not in names and find_settings(folders, f"{group}/{typed}") is None:
                raise UserError(f"{group}={typed}: choose from {', '.join(names)}")
            chosen[group] = typed or usual[group]
    targets = {group: locate(target) for group, target in classes_of(chosen or usual)}
    lines = [examples.strip()]
    if usual and not chosen:
        lines += ["", "Choices (group=option; the default is marked *), and names of settings:"]
    for group, default in {} if chosen else usual.items():
        options = sorted({*_names(folders, group, nested=group not in beside)})
        marked = [f"{option}*" if option == default else option for option in options]
        lines.append(f"  {group}: {', '.join(marked)}")
        if group in targets:
            keys = ", ".join(setting.name for setting in declarations(targets[group]))
            lines += textwrap.wrap(f"{group}.({keys})", 110, initial_indent=" " * 6,
                                   subsequent_indent=" " * 8)  # fmt: skip
    lines += ["", "Settings (key=value) and their defaults:"]
    for group, option in chosen.items():
        if option is not None:
            file = find_settings(folders, f"{group}/{option}")
            lines += [f"{group}:", *_with_nested(file, targets.get(group))]
    for group, option in beside.items() if chosen else ():
        for other, default in usual.items():
            option = option.replace(f"${{{other}}}", str(chosen.get(other, default)))
        file = _find(f"{group}/{option}")
        if file is not None:
            lines += [f"{option} (added to {group}):", *_with_nested(file)]
    if not chosen:
        lines += [line.removeprefix("  ") for line in _body(root_file, command)]
        for short, setting in SHORT_NAMES.get(name, {}).items():
            lines.append(f"{short}  # the short name of {setting}")
    top = {} if command is None else {"": command}
    if readers := describe_readers(targets if chosen else top):
        lines += ["", "Settings that are read only in some cases:", *readers]
    lines += [""]
    if usual and not chosen:
        group = next((group for group in usual if group in targets), next(iter(usual)))
        lines += [f"{group} --help, or {group}=OPTION --help, shows the settings of a group."]
    lines += ["--multirun (-m) runs every combination of key=a,b; --cfg job prints the settings."]
    return "\n".join(lines)


def classes_of(chosen: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Yield (group, its class) for the files chosen of each group, or for those they extend."""
    for group, choice in chosen.items():
        option = choice
        while option is not None:
            file = _find(f"{group}/{option}")
            if file is None:
                break
            target = _load(file).get("_target_")
            if target is not None:
                yield group, target
                break
            texts = (key for key, named in _defaults(file) if named == "")
            option = next((text for text in texts if text != "_self_" and "@" not in text), None)


def _with_nested(file: Path | None, kind: Any = None) -> list[str]:
    """Return a file's settings followed by those that it takes from another group's file.

    Args:
        kind: the class that takes them, unless the file names one.
    """
    if file is None:
        return []
    lines = _body(file, kind)
    for key, option in _defaults(file):
        group, _, package = key.removeprefix(BESIDE).strip().partition("@")
        if option == "" and not package and group != "_self_":  # the file that this one extends
            lines = [*_with_nested(_find(f"{file.parent.name}/{group}"), kind), *lines]
        if package and option is not None and not group.startswith("override"):
            # `- option@package` is of the file's own group.
            beside = _find(f"{file.parent.name}/{group}")
            taken = _find(f"{group.lstrip('/')}/{option}") if option else beside
            if package == HERE or taken is None:
                lines += _with_nested(taken, kind)
                continue
            named = package.removeprefix("_global_.")
            lines += [f"  {named}:", *(f"  {line}" for line in _with_nested(taken))]
    return lines


def _body(file: Path, kind: Any = None) -> list[str]:
    """Return a file's settings, indented, without the defaults list and Hydra's own section.

    A line without a comment gets what the class says of its setting.
    """
    text = file.read_text(encoding="utf-8")
    root = yaml.compose(text, yaml.SafeLoader)
    meanings = dict(_meanings(root, kind))
    kept: list[str] = []
    skipping = False
    for number, line in enumerate(text.splitlines()):
        if line and not line[0].isspace():
            skipping = line.startswith(("defaults:", "hydra:"))
        if not skipping and line.strip() and not line.strip().startswith(OWN_LINES):
            meaning = "" if "#" in line else meanings.get(number, "")
            kept.append(f"  {line}  # {meaning}" if meaning else f"  {line}")
    return kept


SENTENCE = re.compile(r"(?<!\.)\.\s(?=[A-Z])")
"""The end of a sentence that another one follows."""


def _meanings(node: yaml.Node | None, kind: Any) -> Iterator[tuple[int, str]]:
    """Yield (number of a line, first sentence about its setting) of a node of YAML."""
    if not isinstance(node, yaml.MappingNode):
        return
    target = next((value.value for key, value in node.value if key.value == TARGET), None)
    with suppress(UserError):  # of a class that needs a package which is not here
        kind = kind if target is None else locate(target)
    if kind is None:
        return
    meanings = meanings_of(kind)
    for key, value in node.value:
        yield key.start_mark.line, SENTENCE.split(meanings.get(key.value, ""))[0]
        inner = base_of(annotation_of(kind, key.value))
        yield from _meanings(value, inner if is_typeddict(inner) else None)


NO_MATCH = re.compile(r"^Could not override '([^'@]+)'\. No match in the defaults list")
"""Hydra's message about a group that no chosen file names."""
MISSING = re.compile(r"^Interpolation key '([^']+)' not found")
"""OmegaConf's message about a missing setting that another one refers to."""
SEARCH_PATH = "hydra.searchpath="
Compose = Callable[[Sequence[str]], Mapping[str, Any]]
"""Composes overrides to settings; raises Hydra's errors."""
Options = Callable[[str], Sequence[str]]
"""Returns the choices of a group, by its name; empty for anything else."""


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
    where = [word for word in words if word.startswith(SEARCH_PATH)]
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
    place, _, last = key.rpartition(".")
    if others := _name_variants(tree, key):
        return f"no setting is called {key!r} here: {others}"
    renamed = f"{place}.{RENAMED.get(last)}"
    if renamed in known:
        return f"no setting is called {key!r}: it is called {renamed} now; type {_rename(word)}"
    if last in OF_RESUMING:
        return f"no setting is called {key!r}: {HOW_RUNS_RESUME}"
    near = nearest(key, [*known, *sorted(nodes)])
    hint = f"did you mean {near}?" if near else "--help lists them all"
    return f"no setting is called {key!r}: {hint}"


def _rename(word: str) -> str:
    """Return a word of the command line with the new name of its setting, ready to paste.

    >>> _rename("+model.name_or_path=my model")
    "'model.weights=my model'"
    """
    place, _, last = key_of(word).rpartition(".")
    return shlex.quote(f"{place}.{RENAMED[last]}={word.partition('=')[2]}")


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
