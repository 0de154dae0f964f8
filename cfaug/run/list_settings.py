r"""Say what every setting means, which values it takes, and when it is read.

cfaug settings                      # all of them: docs/settings.md
cfaug settings trainer              # a group
cfaug settings benchmark=retrieval  # a choice of it, your own with --config-dir
cfaug settings evaluate             # the top of a command
cfaug settings --json > settings.schema.json   # a JSON Schema, for an editor of YAML files
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from cfaug.core.annotations import annotation_of, base_of
from cfaug.core.errors import UserError, say
from cfaug.core.known_names import nearest
from cfaug.core.processes import find_folder
from cfaug.core.safety.yaml_text import parse_yaml
from cfaug.core.targets import TARGET, locate
from cfaug.core.validation import write_value
from cfaug.run.launch import DONE, report
from cfaug.settings.arguments import FOLDER_FLAGS, SHORT_NAMES, own_settings
from cfaug.settings.choices import entries, read_settings
from cfaug.settings.declarations import Declaration, declarations, schema_of
from cfaug.settings.settings_files import (
    CONF,
    find_settings,
    settings_folders,
    settings_groups,
    settings_of,
    use_folders,
)

COMMANDS = ("train", "generate", "evaluate", "compare", "table", "annotate")
"""The commands with settings, each with a ``SCRIPT`` in its module."""
MODULES = {"compare": "compare_answers"}
NAMED = 4
"""Most places of a class that are named."""
HEAD = """# Settings

Every setting of the tool: its values, its default, and what it means, as the classes declare them
(`cfaug settings` prints this page). `cfaug settings benchmark=retrieval` prints a part of it, also
of the papers and of your own. A setting is typed as `key=value`, with the names before it:
`trainer.max_steps=100`; files in `conf/` choose classes and values that differ from these defaults.

`cfaug settings --json > settings.schema.json` writes a JSON Schema of all settings. With the line
`# yaml-language-server: $schema=settings.schema.json` an editor completes and checks a YAML file.
"""


class SettingsPart(NamedTuple):
    """Settings that belong together: of a class, or at the top of a command.

    Attributes:
        group: the command, or the group of files that choose the class.
        kind: the class.
        places: words that choose it, such as ``benchmark=retrieval``.
        values: {setting: its default}, of those that a command's file gives.
    """

    group: str
    kind: Callable[..., Any]
    places: tuple[str, ...]
    values: Mapping[str, Any] = {}


def list_parts(
    folders: Sequence[Path], groups: Collection[str] | None = None
) -> list[SettingsPart]:
    """Return the commands' settings, then the classes that files name, by the first that does.

    Classes of Lightning are left out: its own pages describe them.

    Args:
        groups: the commands and groups to look at; ``None`` for all.
    """
    parts = []
    for name in COMMANDS:
        if groups is not None and name not in groups:
            continue
        command = import_module(f"cfaug.run.{MODULES.get(name, name)}").SCRIPT.command
        file = find_folder(CONF) / f"{name}.yaml"
        values = parse_yaml(file.read_text(encoding="utf-8"), file)
        for entry in values.pop("defaults"):
            values |= entry if isinstance(entry, Mapping) else {}
        parts.append(SettingsPart(name, command, (f"cfaug {name}",), values))
        for setting in declarations(command):
            inner = base_of(annotation_of(command, setting.name))
            if hasattr(inner, "__required_keys__"):  # a dictionary with declared keys
                place = f"cfaug {name} {setting.name}.NAME"
                parts.append(SettingsPart(name, inner, (place,), values[setting.name]))
    places: dict[tuple[str, Any], list[str]] = {}
    for file, group, home in sorted(
        (file, file.relative_to(folder).parts[0], folder)
        for folder in folders
        for file in folder.glob("*/**/*.yaml")
        if groups is None or file.relative_to(folder).parts[0] in groups
    ):
        name = file.relative_to(home).with_suffix("").as_posix()
        home_group, _, option = name.rpartition("/")
        typed = [
            short for names in SHORT_NAMES.values() for short in names if names[short] == home_group
        ]
        choice = f"{typed[0]}={option}" if typed else name.replace("/", "=", 1)
        content = read_settings(file)
        if target := class_of(name, folders):
            content = {TARGET: target, **content}
        for path, target in _targets(content, ""):
            place = f"{choice}{f' ({path})' if path else ''}"
            known = next((key for key in places if key[1] == target), (group, target))
            places.setdefault(known, []).append(place)
    for (group, target), where in places.items():
        if target.startswith("lightning."):
            continue
        try:
            kind = locate(target)
        except UserError:  # of a package that is not here
            continue
        if declarations(kind):
            parts.append(SettingsPart(group, kind, tuple(dict.fromkeys(where))))
    return parts


def class_of(choice: str, folders: Sequence[Path]) -> str | None:
    """Return the class of a file such as ``model/open_clip``, or of the one that it extends."""
    group = choice.partition("/")[0]
    file = find_settings(folders, choice)
    while file is not None:
        content = read_settings(file)
        if TARGET in content:
            return str(content[TARGET])
        names = (key for key, option in entries(content) if option == "" and "@" not in key)
        extended = next((name for name in names if name != "_self_"), None)
        file = None if extended is None else find_settings(folders, f"{group}/{extended}")
    return None


def _targets(node: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield (path, class) of every node that names a class of cfaug's or of the user's."""
    if isinstance(node, Mapping):
        target = node.get(TARGET)
        if isinstance(target, str) and "${" not in target:
            yield path, target
        for key, value in node.items():
            yield from _targets(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list):
        for item in node:
            yield from _targets(item, path)


def describe(part: SettingsPart) -> list[str]:
    """Return a part in Markdown: its places, its purpose, and a table of its settings."""
    shown = [f"`{place}`" for place in part.places[:NAMED]]
    more = [f"{len(part.places) - NAMED} more"] * (len(part.places) > NAMED)
    purpose = (part.kind.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
    lines = [f"### {part.kind.__name__}", "", f"{', '.join([*shown, *more])}. {purpose}", ""]
    lines += ["| setting | values | default | meaning |", "|---|---|---|---|"]
    return [*lines, *(_row(setting, part.values) for setting in declarations(part.kind)), ""]


def _row(setting: Declaration, values: Mapping[str, Any]) -> str:
    typed = setting.default
    if setting.name in values and not isinstance(values[setting.name], Mapping):
        typed = write_value(values[setting.name])
    read = f"read {setting.read_if}" if setting.read_if else ""
    meaning = "; ".join(filter(None, [setting.meaning, read])) or " "
    default = f"`{typed}`" if typed else " " if values else "required"
    cells = [f"`{setting.name}`", setting.values, default, meaning]
    return " | ".join(["", *(cell.replace("|", r"\|") for cell in cells), ""]).strip()


def schema(parts: Sequence[SettingsPart]) -> dict[str, Any]:
    """Return a JSON Schema of nodes with a class, wherever they stand in a file."""
    kinds = {f"{part.kind.__module__}.{part.kind.__qualname__}": part.kind for part in parts}
    named = [
        {
            "if": {"type": "object", "required": [TARGET], "properties": {TARGET: {"const": name}}},
            "then": {"$ref": f"#/$defs/{name}"},
        }
        for name in kinds
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "allOf": [
                    *named,
                    {"if": {"type": "object"},
                     "then": {"additionalProperties": {"$ref": "#/$defs/node"}}},
                    {"if": {"type": "array"}, "then": {"items": {"$ref": "#/$defs/node"}}},
                ]
            },
            **{name: schema_of(kind) for name, kind in kinds.items()},
        },
    }  # fmt: skip


def list_settings(words: Sequence[str]) -> str:
    """Return what is asked for: everything of the tool, or groups, choices and commands."""
    users = [settings_of(folder)] if (folder := own_settings(words)) else []
    wanted = [word for word in words if not word.startswith("-") and word != str(folder)]
    flags = {word.partition("=")[0] for word in words if word.startswith("-")}
    if unknown := sorted(flags - {"--json", *FOLDER_FLAGS}):
        raise UserError(f"unknown option {unknown[0]!r}: cfaug settings --help lists them")
    if folder is not None:
        use_folders(users)
        sys.path += [str(folder.resolve())]
    as_json = "--json" in words
    folders = settings_folders(users) if wanted or as_json else [find_folder(CONF)]
    groups = {word.partition("=")[0] for word in wanted}
    parts = list_parts(folders, groups if wanted else None)
    if wanted:
        names = [{part.group, *(p.partition(" (")[0] for p in part.places)} for part in parts]
        known = sorted({*COMMANDS, *settings_groups()}.union(*names))
        for word in wanted:
            if word not in set().union(*names):
                near = nearest(word, known)
                hint = f"did you mean {near}? " if near else ""
                raise UserError(f"{word} has no settings here: {hint}cfaug settings lists them all")
        parts = [part for part, its in zip(parts, names, strict=True) if its.intersection(wanted)]
    if as_json:
        return json.dumps(schema(parts), indent=1, ensure_ascii=False)
    lines = [] if wanted else [HEAD]
    for group in dict.fromkeys(part.group for part in parts):
        title = f"`cfaug {group}`" if group in COMMANDS else f"`{group}=...`"
        lines += [f"## {title}", ""]
        for short, setting in SHORT_NAMES.get(group, {}).items():
            lines += [f"`{short}=` is the short name of `{setting}=`.", ""]
        lines += [line for part in parts if part.group == group for line in describe(part)]
    return "\n".join(lines).rstrip("\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the settings, and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(words):
        say((__doc__ or "").strip(), sys.stdout)
        return DONE
    try:
        say(list_settings(words), sys.stdout)
    except UserError as error:
        return report(error)
    return DONE
