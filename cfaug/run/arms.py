"""The arms of an experiment: ``experiment=demo/real`` is ``real`` of ``conf/experiment/demo.yaml``.

The file has settings that all arms share, and under ``arms`` the settings of each arm, with a
``defaults`` list of its own where it chooses other options. An arm is named after its entry, unless
it says otherwise. The file itself can be chosen if it names an ``arm``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError

EXPERIMENT, ARMS, DEFAULTS = "experiment", "arms", "defaults"
MARK = f"\n{ARMS}:"
"""Only a file with this text is parsed."""


def read_arms(file: Path) -> dict[str, dict[str, Any]]:
    """Return the settings of each arm of an experiment; empty for a file without arms."""
    content = _parse(file.read_text(encoding="utf-8"))
    if ARMS not in content:
        return {}
    shared = {key: value for key, value in content.items() if key != ARMS}
    arms = content[ARMS]
    if not isinstance(arms, dict) or not all(isinstance(arm, dict | None) for arm in arms.values()):
        raise UserError(f"{file}: arms should hold the settings of each arm by its name")
    return {
        str(name): _join(shared, {"arm": str(name), **(settings or {})})
        for name, settings in arms.items()
    }


def names_itself(file: Path) -> bool:
    """Say whether a file can be chosen: it has no arms, or is one of them itself."""
    content = _parse(file.read_text(encoding="utf-8"))
    return ARMS not in content or "arm" in content


def register_arms(folders: Sequence[Path], experiments: Collection[str]) -> None:
    """Make the arms of experiments known to Hydra, and those of experiments that they extend.

    Args:
        experiments: the names of the chosen experiments, with or without that of an arm.
    """
    from hydra.core.config_store import ConfigStore

    waiting, done = [name.partition("/")[0] for name in experiments], set[str]()
    while waiting:
        experiment = waiting.pop()
        if experiment in done:
            continue
        done.add(experiment)
        for file in (folder / EXPERIMENT / f"{experiment}.yaml" for folder in folders):
            for name, node in (read_arms(file) if file.is_file() else {}).items():
                ConfigStore.instance().store(name, node, f"{EXPERIMENT}/{experiment}", "_global_")
                texts = (entry for entry in node.get(DEFAULTS, ()) if isinstance(entry, str))
                extended = (text.removeprefix(f"/{EXPERIMENT}/") for text in texts)
                waiting += [choice.partition("/")[0] for choice in extended]


@lru_cache(maxsize=64)
def _parse(text: str) -> dict[str, Any]:
    """Return the content of a file with arms; parsing it takes longer than all else here."""
    import yaml

    return (yaml.safe_load(text) or {}) if MARK in text else {}


def _join(shared: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return shared settings with an arm's own: nested ones by key, choices by their group."""
    joined = {**shared, **settings}
    for key, value in settings.items():
        if isinstance(value, dict) and isinstance(shared.get(key), dict):
            joined[key] = _join(shared[key], value)
    if DEFAULTS in shared and DEFAULTS in settings:
        chosen = {group for entry in settings[DEFAULTS] for group in _groups(entry)}
        kept = [entry for entry in shared[DEFAULTS] if not chosen.intersection(_groups(entry))]
        joined[DEFAULTS] = [*kept, *settings[DEFAULTS]]
    return joined


def _groups(entry: Any) -> Iterable[str]:
    return entry if isinstance(entry, dict) else ()
