"""Prompt files: shipped ones by name, and the user's own YAML files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular

MOST_BYTES = 2**20
"""The largest size of a file of prompts or demonstrations."""


def find_prompt_file(
    name: str, shipped: Sequence[str], folder: str, setting: str, holds: str
) -> Path:
    """Return a shipped prompt file by its name, or the user's own by its path.

    Args:
        name: one of ``shipped``, or the path of a file.
        shipped: the names of the files in ``folder``.
        folder: the folder of the shipped files within the package.
        setting: the setting that gives the name, for the error.
        holds: the required content of the user's own file, for the error.
    """
    if name in shipped:
        return Path(str(files("cfaug"))) / folder / f"{name}.yaml"
    file = Path(name).expanduser()
    if not file.is_file():
        raise UserError(
            f"{setting}={name}: there is no such file; choose {', '.join(shipped)}, or a YAML file "
            f"with {holds}"
        )
    return file


def read_keys(file: Path, wanted: Collection[str]) -> dict[str, Any]:
    """Return the mapping that a YAML file holds.

    Args:
        file: a YAML file of at most ``MOST_BYTES``.
        wanted: the required keys; no others are allowed.
    """
    found = read_yaml(file)
    if not isinstance(found, dict) or sorted(map(str, found)) != sorted(wanted):
        raise UserError(f"{file} should have the keys {', '.join(wanted)}, and no other")
    return found


def read_yaml(file: Path) -> Any:
    """Return the content of a YAML file of at most ``MOST_BYTES``.

    Args:
        file: a regular file.
    """
    try:
        if (size := require_regular(file).stat().st_size) > MOST_BYTES:
            raise UserError(f"{file} has {size:,} bytes; at most {MOST_BYTES:,} are read")
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{file} is not YAML: {error}") from error
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
