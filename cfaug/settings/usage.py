"""``--help``: the choices of a command, its settings, and what each of them means.

Values are those that the files give, sentences those of the classes. A group beside ``--help``,
``trainer`` or ``benchmark=vqa``, shows the settings of its choice as they are composed.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, is_typeddict

from cfaug.core.annotations import annotation_of, base_of
from cfaug.core.errors import UserError
from cfaug.core.targets import OF_NODES, TARGET, locate
from cfaug.core.validation import write_value
from cfaug.settings.arguments import PRESET, SHORT_NAMES, flatten
from cfaug.settings.choices import (
    DEFAULTS,
    NOTHING,
    default_choices,
    options_in,
    read_root,
)
from cfaug.settings.compose import compose_files
from cfaug.settings.declarations import declarations
from cfaug.settings.read_if import declared_by, describe_conditions
from cfaug.settings.settings_files import find_settings, settings_folders
from cfaug.settings.unread import is_under

WIDTH, COLUMN = 120, 28
"""The characters of a line, and those before the sentence of a setting."""
SENTENCE = re.compile(r"(?<!\.)\.\s(?=[A-Z])")
"""The end of a sentence that another one follows."""


Line = tuple[str, str]
"""What is typed, and its sentence."""


def usage(
    name: str,
    examples: str,
    users: Sequence[Path] = (),
    words: Sequence[str] = (),
    command: Callable[..., Any] | None = None,
) -> str:
    """Return the help text of a command, or of the groups that are named beside ``--help``.

    Args:
        name: the root configuration, ``train`` for ``train.py``.
        examples: the purpose of the command, and words to start from.
        users: the user's own folders of settings.
        words: the words beside ``--help``.
        command: the class of its settings at the top.
    """
    usual, options, root = default_choices(name), options_in(name, users), read_root(name)
    top = {key: value for key, value in root.items() if key not in (DEFAULTS, "hydra")}
    nodes = [key for key, value in top.items() if isinstance(value, Mapping) and value]
    chosen: dict[str, str | None] = {}
    within: list[str] = []
    for key, _, typed in (word.partition("=") for word in words):
        inner = SHORT_NAMES.get(name, {}).get(key, key)
        group = inner.partition("/")[0]
        if "/" in inner and group in usual and typed:  # a choice within a group
            if find_settings(settings_folders(users), f"{inner}/{typed}") is None:
                raise UserError(f"{key}={typed}: choose from{_list_within(inner, users)[1:]}")
            chosen.setdefault(group, usual[group])
            within.append(f"{inner}={typed}")
        elif key in usual:
            known = find_settings(settings_folders(users), f"{key}/{typed}")
            if typed and typed not in options(key) and known is None:
                raise UserError(f"{key}={typed}: choose from {', '.join(options(key))}")
            chosen[key] = typed or usual[key]
        elif key in nodes and not typed:
            chosen[key] = None
    ends = ["--multirun (-m) runs every combination of key=a,b; --cfg job prints the settings."]
    if chosen:
        lists = [_list_options(key, usual, options(key)) for key in usual if key in words]
        lists += [
            _wrap(short + _list_within(full, users), 2, 8)
            for short, full in SHORT_NAMES.get(name, {}).items()
            if full.partition("/")[0] in words
        ]
        shown = _describe_nodes(name, chosen, users, command, within)
        return "\n".join([*(line for lines in lists for line in lines), *shown, "", *ends]).lstrip(
            "\n"
        )
    lines = [examples.strip()]
    if usual:
        lines += ["", "Choices (group=option; the default is marked *):"]
        for group in usual:
            folded = (re.sub("/.*", "/...", option) for option in options(group))
            lines += _list_options(group, usual, list(dict.fromkeys(folded)))
    if usual or nodes:
        example = next(key for key in ("trainer", *usual, *nodes) if key in {*usual, *nodes})
        ends.insert(0, f"{example} --help, and the like, shows the settings of a part.")
    settings = list(_settings(top, command, "", nested=False))
    short = [
        (key, f"the short name of {full}{_list_within(full, users)}")
        for key, full in SHORT_NAMES.get(name, {}).items()
    ]
    lines += ["", "Settings (key=value) and their defaults:", *_write([*settings, *short])]
    readers = describe_readers({"": command})
    return "\n".join([*lines, *readers, "", *ends])


def _list_within(group: str, users: Sequence[Path]) -> str:
    """Return the options of a group within another one, after a colon; empty for a setting."""
    files = (file for folder in settings_folders(users) for file in (folder / group).glob("*.yaml"))
    options = ", ".join(sorted(file.stem for file in files))
    return f": {options}" if options else ""


def _list_options(group: str, usual: Mapping[str, str | None], options: Sequence[str]) -> list[str]:
    """Return the lines with the options of a group, such as the arms of all experiments."""
    default = str(usual[group])
    marked = [f"{name}*" if name == default else name for name in options if name != NOTHING]
    return _wrap(f"{group}: {', '.join(marked)}", 2, 8)


def _wrap(text: str, first: int, then: int) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=" " * first, subsequent_indent=" " * then,
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def _write(settings: Iterable[Line]) -> list[str]:
    """Return lines in two columns: what is typed, and beside or under it its sentence."""
    lines = []
    for typed, meaning in settings:
        words = _wrap(SENTENCE.split(meaning)[0], COLUMN, COLUMN)
        if words and len(typed) < COLUMN:
            lines.append(typed.ljust(COLUMN) + words.pop(0).lstrip())
        else:
            lines.append(typed)
        lines += words
    return lines


def _describe_nodes(
    name: str,
    chosen: Mapping[str, str | None],
    users: Sequence[Path],
    command: Callable[..., Any] | None,
    within: Sequence[str] = (),
) -> list[str]:
    """Return the settings of some nodes of a command, and what else their choices set.

    Args:
        chosen: {node: the choice of its group; ``None`` if nothing is chosen}.
        within: words that choose a file within a group.
    """
    words = [f"{group}={option}" for group, option in chosen.items() if option is not None]
    words += within
    tree, usual = compose_files(name, words, users), flatten(compose_files(name, [], users))
    lines: list[str] = []
    targets, shown = {"": command}, []
    for key, option in chosen.items():
        if isinstance(tree.get(key), Mapping):
            targets[key] = _class_of(tree[key], _typed(command, key))
            settings = list(_settings(tree[key], targets[key], f"{key}."))
            title = key if option is None else f"{key}={option}"
            lines += ["", f"Settings of {title}, and their defaults:", *_write(settings)]
            shown += [typed for typed, _ in settings]
    others = {
        key: value
        for key, value in flatten(tree).items()
        if key.partition(".")[0] not in {*chosen, PRESET} and usual.get(key, ...) != value
    }
    if others:
        lines += ["", f"Settings elsewhere that {' '.join(words)} changes:"]
        lines += [f"{key}={write_value(value)}" for key, value in others.items()]
    return [*lines, *describe_readers(targets, shown)]


def _class_of(node: Mapping[str, Any], usual: Any = None) -> Any:
    """Return the class that a node names, or else the usual one; ``None`` if that is not here."""
    with suppress(UserError):
        return locate(node[TARGET]) if TARGET in node else usual
    return None


def _typed(kind: Any, key: str) -> Any:
    """Return the dictionary with declared keys that a class takes as a setting, if it is one."""
    inner = None if kind is None else base_of(annotation_of(kind, key))
    return inner if is_typeddict(inner) else None


def _settings(
    node: Mapping[str, Any], kind: Any, place: str, *, nested: bool = True
) -> Iterator[Line]:
    """Yield the settings of a node; of one that names a class also those that it leaves out.

    Args:
        kind: the class that takes them.
        place: the place of the node, with its dot.
        nested: whether to yield those of nodes in it as well, in place of their names.
    """
    declared = {} if kind is None else {setting.name: setting for setting in declarations(kind)}
    absent = [key for key in declared if TARGET in node and key not in node]
    for key in [*(key for key in node if key not in OF_NODES), *absent]:
        value, meaning = node.get(key), declared[key].meaning if key in declared else ""
        if not isinstance(value, Mapping) or not value:
            typed = write_value(value) if key in node else declared[key].default
            yield f"{place}{key}={typed}", meaning
            continue
        names = ", ".join(name for name in value if name not in OF_NODES)
        if meaning or not nested:
            yield place + key, meaning if nested else f"{meaning} ({names})".lstrip()
        if nested:
            inner = _class_of(value, _typed(kind, key))
            yield from _settings(value, inner, f"{place}{key}.")


def describe_readers(
    targets: Mapping[str, Callable[..., Any] | None], shown: Sequence[str] | None = None
) -> list[str]:
    """Return a line for each condition under which only settings are read, after a title.

    Args:
        targets: {node: its class}; the class of a command has no node, "".
        shown: the settings to tell of, or what holds them; ``None`` for all.
    """
    readers: dict[str, list[str]] = {}
    keys = None if shown is None else [typed.partition("=")[0] for typed in shown]
    for node, target in targets.items():
        place = f"{node}." if node else ""
        for name, conditions in ({} if target is None else declared_by(target)).items():
            listed = keys is None or any(is_under(key, [place + name]) for key in keys)
            if conditions != [{}] and listed:
                words = describe_conditions(conditions, place)
                readers.setdefault(words, []).append(place + name)
    lines = [f"  {', '.join(names)}: {words}" for words, names in readers.items()]
    return ["", "Settings that are read only in some cases:", *lines] if lines else []
