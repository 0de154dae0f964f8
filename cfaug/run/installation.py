"""The place of the settings (``conf/``) and sweeps (``sweeps/``): in the repository or the wheel.

They are at the top level of the repository, where people look for them; a wheel has them inside
the package.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]

CHECKOUT = PACKAGE.parent
"""The repository, if ``cfaug`` is used from a clone."""


def find_folder(name: str) -> Path:
    """Return a folder of the repository's top level, as it is installed.

    Args:
        name: ``conf`` or ``sweeps``.

    Raises:
        FileNotFoundError: if the installation lacks it.
    """
    for folder in (CHECKOUT / name, PACKAGE / name):
        # Beside an installed package, a folder of that name may belong to another package.
        if folder.is_dir() and (folder.parent == PACKAGE or is_checkout()):
            return folder
    raise FileNotFoundError(f"{name}/ is missing: the installation of cfaug is incomplete")


def is_checkout() -> bool:
    """Say whether the package is used from a clone of its repository."""
    return (CHECKOUT / "pyproject.toml").is_file() and (CHECKOUT / "train.py").is_file()
