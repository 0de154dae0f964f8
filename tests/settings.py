"""The files of settings, wherever they are: in ``conf/``, or in that of a paper or a world."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from cfaug.run.settings_files import find_settings, settings_folders
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
