"""The place of the settings (``conf/``) and sweeps (``sweeps/``): in the repository or the wheel.

They are at the top level of the repository, where people look for them; a wheel has them inside
the package.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from cfaug.core.errors import UserError

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


EXTRAS = {
    "diffusers": "generate",
    "textblob": "generate",
    "open_clip": "open_clip",
    "wandb": "loggers",
    "tensorboard": "loggers",
    "tensorboardX": "loggers",
    "torch_fidelity": "fid",
    "hydra_plugins": "slurm",
}
"""The extra that has each module, as ``pyproject.toml`` lists them."""
LOGGERS = {"wandb": ("wandb",), "tensorboard": ("tensorboard", "tensorboardX")}
"""{logger: its modules, any of which suffices}."""


def explain_missing(error: Exception) -> str | None:
    """Say which extra has a module that could not be imported; ``None`` for any other error.

    Args:
        error: the error of an import; some libraries name the module only in the message.
    """
    if not isinstance(error, ImportError):
        return None
    named = (error.name or "").partition(".")[0]
    words = [named, *re.findall(r"\w+", str(error))]
    module = next((word for word in words if word in EXTRAS), None)
    if module is None:
        return None
    return _say_missing(module)


def check_logger(kind: str) -> None:
    """Refuse a logger whose package is missing, before there is anything to log.

    Args:
        kind: the kind of the logger; a logger without a package of its own passes.
    """
    modules = LOGGERS.get(kind, ())
    # A folder ./wandb of earlier runs is found as well, as a namespace package without a file.
    if modules and not any((spec := find_spec(module)) and spec.origin for module in modules):
        raise UserError(_say_missing(modules[0]))


def _say_missing(module: str) -> str:
    return f"{module} is missing, which this command needs: pip install 'cfaug[{EXTRAS[module]}]'"
