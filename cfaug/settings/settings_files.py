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
    if not (folder / CONF).is_dir():
        return folder
    beside = sorted(file for group in settings_groups() for file in (folder / group).glob("*.yaml"))
    if beside:
        raise UserError(
            f"{folder} has settings in {CONF}/ and beside it ({beside[0].relative_to(folder)}): "
            f"move them into {CONF}/, or name {folder / CONF} itself"
        )
    return folder / CONF


def use_folders(users: Sequence[Path]) -> None:
    """Make folders of the user's plug-ins, and refuse files that are chosen by a name in use."""
    homes = dict(_homes())
    for folder in users:
        _add_names(homes, folder)
        add_folder(folder.parent if folder.name == CONF else folder)


@cache
def _homes() -> dict[str, Path]:
    """Return the folder of every file, by its name, without the user's folders."""
    homes: dict[str, Path] = {}
    for folder in settings_folders():
        _add_names(homes, folder)
    return homes


def _add_names(homes: dict[str, Path], folder: Path) -> None:
    for group in settings_groups():
        for file in sorted((folder / group).rglob("*.yaml")):
            name = file.relative_to(folder).as_posix()
            if homes.setdefault(name, folder) != folder:
                choice = name.removeprefix(f"{group}/").removesuffix(".yaml")
                raise UserError(
                    f"{file}: {group}={choice} is also {homes[name] / name}: choose another name "
                    "for the file"
                )


def settings_groups() -> frozenset[str]:
    """Return the groups of which any folder of settings has files."""
    return frozenset(group.name for folder in settings_folders() for group in folder.glob("*/"))


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
