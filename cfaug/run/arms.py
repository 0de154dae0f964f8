"""The arms of an experiment: ``experiment=demo/real`` is ``real`` of ``conf/experiment/demo.yaml``.

The file has settings that all arms share, and under ``arms`` the settings of each arm, with a
``defaults`` list of its own where it chooses other options. An arm is named after its entry, unless
it says otherwise. The file itself can be chosen if it names an ``arm``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError

EXPERIMENT, ARMS, DEFAULTS = "experiment", "arms", "defaults"
MARK = f"\n{ARMS}:"
"""Only a file with this text is parsed."""


def read_arms(file: Path) -> dict[str, dict[str, Any]]:
    """Return the settings of each arm of an experiment; empty for a file without arms.

    Raises:
        UserError: if the arms are not a mapping of settings.
    """
    import yaml

    text = file.read_text(encoding="utf-8")
    if MARK not in text:
        return {}
    content = yaml.safe_load(text)
    shared = {key: value for key, value in content.items() if key != ARMS}
    arms = content[ARMS]
    if not isinstance(arms, dict) or not all(isinstance(one, dict | None) for one in arms.values()):
        raise UserError(f"{file}: arms should hold the settings of each arm by its name")
    return {
        str(name): _join(shared, {"arm": str(name), **(own or {})}) for name, own in arms.items()
    }


def names_itself(file: Path) -> bool:
    """Say whether a file can be chosen: it has no arms, or is one of them itself."""
    import yaml

    text = file.read_text(encoding="utf-8")
    return MARK not in text or "arm" in yaml.safe_load(text)


def register_arms(folders: Iterable[Path]) -> None:
    """Make the arms in folders of settings known to Hydra, as options of their groups.

    Raises:
        UserError: as ``read_arms``.
    """
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for folder in folders:
        for file in sorted(folder.glob(f"{EXPERIMENT}/*.yaml")):
            for name, node in read_arms(file).items():
                store.store(name, node, f"{EXPERIMENT}/{file.stem}", "_global_")


def _join(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return shared settings with an arm's own: nested ones by key, choices by their group."""
    joined = {**shared, **own}
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(shared.get(key), dict):
            joined[key] = _join(shared[key], value)
    if DEFAULTS in shared and DEFAULTS in own:
        chosen = {group for entry in own[DEFAULTS] for group in _groups(entry)}
        kept = [entry for entry in shared[DEFAULTS] if not chosen.intersection(_groups(entry))]
        joined[DEFAULTS] = [*kept, *own[DEFAULTS]]
    return joined


def _groups(entry: Any) -> Iterable[str]:
    return entry if isinstance(entry, dict) else ()
