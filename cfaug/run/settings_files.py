"""The files of settings: ``conf/`` of the tool, of each plug-in, and of a folder of the user's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.core.plugins import add_folder, plugin_files, plugins
from cfaug.core.processes import find_folder

CONF, SWEEPS = "conf", "sweeps"


def settings_folders(users: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the folders in which files of settings are chosen, the tool's first.

    Args:
        users: folders of the user's, as ``--config-dir`` names them.
    """
    return (find_folder(CONF), *_of_plugins(), *users)


@cache
def _of_plugins() -> tuple[Path, ...]:
    shipped = (plugin.folder / CONF for plugin in plugins() if plugin.package is not None)
    return tuple(folder for folder in shipped if folder.is_dir())


def find_settings(folders: Iterable[Path], name: str) -> Path | None:
    """Return the file of a choice, such as ``recipe/NAME``; ``None`` without one."""
    files = (folder / f"{name}.yaml" for folder in folders)
    return next((file for file in files if file.is_file()), None)


def settings_of(folder: Path) -> Path:
    """Return where a folder of the user's has its settings: in ``conf/``, or in itself."""
    return folder / CONF if (folder / CONF).is_dir() else folder


def use_folders(users: Sequence[Path]) -> None:
    """Make folders of the user's plug-ins, and refuse files that are chosen by a name in use."""
    shipped = {name for folder in settings_folders() for name in _names(folder)}
    for folder in users:
        for name in _names(folder):
            if name in shipped:
                group, _, choice = name.partition("/")
                raise UserError(
                    f"{folder / name}: {group}={choice.removesuffix('.yaml')} is shipped with "
                    "cfaug, or in another folder: choose another name for the file"
                )
        shipped.update(_names(folder))
        add_folder(folder.parent if folder.name == CONF else folder)


def _names(folder: Path) -> list[str]:
    groups = {group.name for known in settings_folders() for group in known.glob("*/")}
    files = (file for group in groups for file in (folder / group).rglob("*.yaml"))
    return [file.relative_to(folder).as_posix() for file in files]


def find_sweep(name: str) -> Path | None:
    """Return the shipped sweep ``sweeps/NAME``, of the tool or of a plug-in."""
    return next((file for file in sweep_files() if file.name == name), None)


def sweep_files() -> list[Path]:
    """Return the sweeps of the tool and of every plug-in."""
    return [*sorted(find_folder(SWEEPS).glob("*.yaml")), *plugin_files(f"{SWEEPS}/*.yaml")]


def register_search_path() -> None:
    """Make Hydra look for files of settings in every plug-in."""
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin

    class PluginFolders(SearchPathPlugin):
        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            for folder in settings_folders()[1:]:
                search_path.append("cfaug", f"file://{folder}")

    if not any(kind.__name__ == PluginFolders.__name__ for kind in Plugins.instance().discover()):
        Plugins.instance().register(PluginFolders)
