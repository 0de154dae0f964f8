"""The files of settings, wherever they are: in ``conf/``, or in that of a paper or a world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from cfaug.run.settings_files import find_settings, settings_folders


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
