"""What the classes of a job's nodes say of their own settings, for ``cfaug.run.unread``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cfaug.core.read_with import describe_conditions, find_unread
from cfaug.run.binding import locate
from cfaug.run.tested import CheckpointFacts, knowing

Config = Mapping[str, Any]


def declared_unread(config: Config, about: CheckpointFacts | None) -> Iterator[tuple[str, str]]:
    """Yield (setting, with what it is read) for all that their classes leave out.

    Args:
        config: the settings of a job.
        about: the model to evaluate, where it is known.
    """
    for place, node in nodes_of(config, ""):
        target = locate(node["_target_"])
        tested = knowing(about, target) if place.startswith("benchmark.") else {}
        for name, conditions in find_unread(target, node, tested).items():
            yield place + name, f"with {describe_conditions(conditions, place)}"
        for name, reason in getattr(target, "find_left_out", lambda _: {})(node).items():
            yield place + name, f"with {place}{reason}"


def nodes_of(value: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place with its dot, node) of every node with a target."""
    if isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from nodes_of(one, f"{path[:-1]}[{number}].")
    elif isinstance(value, Mapping):
        if "_target_" in value and not value.get("_partial_"):
            yield path, value
        for key, one in value.items():
            yield from nodes_of(one, f"{path}{key}.")


def is_under(key: str, nodes: Iterable[str]) -> bool:
    """Say whether a setting is among some nodes."""
    return any(key == node or key.startswith(node + ".") for node in nodes)


def touches(key: str, nodes: Iterable[str]) -> bool:
    """Say whether a setting is among some nodes, or holds one of them."""
    return any(is_under(key, [node]) or node.startswith(key + ".") for node in nodes)
