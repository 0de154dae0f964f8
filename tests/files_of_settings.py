"""The files of settings, in ``conf/`` or that of a paper or a world; other values of settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from cfaug.core.annotations import (
    alternatives_of,
    annotation_of,
    choices_of,
    item_annotation,
    signature_of,
)
from cfaug.core.validation import accepts
from cfaug.settings.settings_files import find_settings, settings_folders
from tests.scripts import ROOT


def settings_file(name: str) -> Path:
    """Return the file of a choice, such as ``table/social_oracle``."""
    file = find_settings(settings_folders(), name)
    assert file is not None, name
    return file


def read_settings(name: str) -> Any:
    """Return the content of the file of a choice, such as ``table/social_oracle``."""
    return yaml.safe_load(settings_file(name).read_text(encoding="utf-8"))


def settings_files(group: str) -> list[Path]:
    """Return the files of a group, of all folders."""
    return sorted(file for folder in settings_folders() for file in (folder / group).glob("*.yaml"))


def is_whole() -> bool:
    """Say whether every page is there that the documentation lists.

    A copy without one of the papers, which ``tests/test_border.py`` makes, lacks the paper's page.
    """
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    pages = re.findall(r"(?m)^([\w-]+)$", "".join(index.split("```")[1::2]))
    assert len(pages) > 10
    return all((ROOT / f"docs/{page}.md").is_file() for page in pages)


def other_values(value: Any, target: Any = None, name: str = "") -> list[Any]:
    """Return other values of a setting, first those that the class takes."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [0.9] * (isinstance(value, float) and value != 0.9) + [value + 1, value / 2 + 0.01]
    values: list[Any] = []
    if isinstance(value, list):
        values += [value[:1]] if len(value) > 1 else []
        values += [[*value[:-1], value[-1] + 1]] if value and isinstance(value[-1], int) else []
        values += [["other"], [0.3, 0.3]]
    values += ["other", 2, 0.25, True, ["other"], {"other": 1}, {"other": [0, 1]}]
    if target is None or name not in signature_of(target):
        return values
    annotation = annotation_of(target, name)
    listed: list[Any] = [choice for choice in _choices(annotation) if choice != value]
    if isinstance(value, list):
        each = _choices(item_annotation(annotation, value, 0))
        listed += [[choice] for choice in each if [choice] != value]
    return sorted([*listed, *values], key=lambda other: not accepts(other, annotation))


def _choices(annotation: Any) -> list[Any]:
    """Return the texts that an annotation lists."""
    return [choice for kind in alternatives_of(annotation) for choice in choices_of(kind)]
