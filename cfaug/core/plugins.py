"""Papers and worlds: plug-in folders, each with its code, and with ``conf/``, ``sweeps/`` and more.

A plug-in folder is one of ``cfaug/papers``, one of ``cfaug/worlds``, a package that an installed
distribution names in the entry point group ``cfaug.papers`` or ``cfaug.worlds``, or a folder that a
command line names by ``--config-dir``. The tool reads what such a folder holds. It imports packages
for what they declare (``WORLD``, ``SETTINGS_OF_A_RUN``), and of their modules and of the folders
only what settings name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from cfaug.core.errors import say_once

PACKAGE = Path(__file__).resolve().parents[1]
KINDS = ("papers", "worlds")
"""The folders of shipped plug-ins, whose names are also those of groups of entry points."""


@dataclass(frozen=True)
class Plugin:
    """A plug-in: its folder, and the package to import; ``None`` for a folder of the user's."""

    kind: str
    package: str | None
    folder: Path


_named: list[Plugin] = []


def add_folder(folder: Path) -> None:
    """Make a folder of the user's a plug-in of this process, once."""
    plugin = Plugin("papers", None, folder.resolve())
    if plugin not in _named:
        _named.append(plugin)


def plugins() -> tuple[Plugin, ...]:
    """Return every plug-in: the shipped ones, those of other packages, and the user's folders."""
    return (*_installed(), *_named)


@cache
def _installed() -> tuple[Plugin, ...]:
    installed = [
        Plugin(kind, f"cfaug.{kind}.{folder.name}", folder)
        for kind in KINDS
        for folder in sorted((PACKAGE / kind).glob("*/"))
        if (folder / "__init__.py").is_file()
    ]
    every = entry_points()  # which reads the metadata of every package that is installed
    for kind in KINDS:
        for entry in sorted(every.select(group=f"cfaug.{kind}"), key=lambda entry: entry.name):
            # The current folder is on sys.path for modules that settings name: what lies there is
            # not installed, and may be somebody's data.
            if entry.dist is None or Path(str(entry.dist.locate_file(""))).resolve() == Path.cwd():
                continue
            try:
                spec = find_spec(entry.module)  # of a package inside another one, imports that one
            except ImportError:
                spec = None
            if spec is None or not spec.submodule_search_locations:
                say_once(
                    f"note: the entry point {entry.name} = {entry.value} of {entry.dist.name} "
                    f"(group cfaug.{kind}) names no package that can be imported"
                )
                continue
            installed += [
                Plugin(kind, entry.module, Path(at)) for at in spec.submodule_search_locations
            ]
    return tuple(installed)


def plugin_files(pattern: str) -> list[Path]:
    """Return the files or folders of all plug-ins that match a pattern, such as ``conf``."""
    return [path for plugin in plugins() for path in sorted(plugin.folder.glob(pattern))]
