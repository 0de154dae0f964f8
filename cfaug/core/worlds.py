"""Worlds: sources that are drawn on demand, ``NAME:PART``, whose truth is known.

A world is a plug-in (``cfaug.core.plugins``) whose package holds an object ``WORLD``. The tool asks
this object, and imports no world. A world that was drawn by others has a folder ``pack`` instead:
its parts are folders of ordinary data. Every other name of a source is a folder or a file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cfaug.core.errors import UserError
from cfaug.core.plugins import plugins
from cfaug.core.stores import local_name

if TYPE_CHECKING:
    from cfaug.core.types import CounterfactualSet, Example

QUESTIONS = "questions"
"""The family of the parts that are sets of questions about images."""
PACK = "pack"
"""The folder of a world whose data are shipped."""


class WorldSource(Protocol):
    """What the tool asks of a world. ``settings`` is the node ``data.world``, with a seed.

    Attributes:
        name: the name of the world, the beginning of its sources.
        settings: the class of its settings, as ``_target_`` names it.
        drawn_by: {family of parts: the settings that draw them}.
        unedited: the parts in which no member is an edit of another.
    """

    name: str
    settings: str
    drawn_by: Mapping[str, Collection[str]]
    unedited: Collection[str]

    def find_family(self, source: str) -> str | None:
        """Return the family of the part that a source names; ``None`` for other sources."""

    def find_part(self, source: str) -> str:
        """Return the part that a source of this world names, its style included."""

    def check_part(self, part: str) -> None:
        """Raise a ``UserError`` unless the world has the part."""

    def write_part(self, settings: Any, part: str, root: Path) -> Path:
        """Return the folder with a part's shards, making it first if it does not exist."""

    def draw_sets(self, settings: Any, part: str) -> Iterator[CounterfactualSet]:
        """Yield the sets of a part, drawn on demand."""

    def draw_questions(self, settings: Any, part: str) -> Iterator[Any]:
        """Yield the pictures of a part with their questions, each a ``QuestionImage``."""

    def write_labels(self, settings: Any, part: str, root: Path) -> Path:
        """Return a file with the true label of each member of a part of pairs."""

    def shorten_captions(
        self, shares: Mapping[str, float], seed: int
    ) -> Callable[[Example], Example]:
        """Return a function that leaves words out of captions (``data.leave_out``)."""

    def make_edit_oracle(self) -> Any:
        """Return the ``EditOracle`` of this world's pictures; ``None`` without one."""


@cache
def worlds() -> tuple[WorldSource, ...]:
    """Return every world that is installed."""
    installed = (
        plugin.package
        for plugin in plugins()
        if plugin.kind == "worlds" and not (plugin.folder / PACK).is_dir()
    )
    modules = [import_module(package) for package in installed if package is not None]
    for module in modules:
        if not hasattr(module, "WORLD"):
            raise UserError(
                f"{module.__name__}, which an entry point of cfaug.worlds names, has no WORLD"
            )
    return tuple(module.WORLD for module in modules)


@cache
def _packs() -> Mapping[str, Path]:
    packs: dict[str, Path] = {}
    for plugin in plugins():
        pack = plugin.folder / PACK
        if plugin.kind != "worlds" or not pack.is_dir():
            continue
        other = packs.setdefault(plugin.folder.name, pack)
        if other != pack:
            raise UserError(
                f"two installed worlds are called {plugin.folder.name}, {other.parent} and "
                f"{plugin.folder}: uninstall one of them"
            )
    return packs


def local_source(source: str) -> str:
    """Return the path of shipped data, ``NAME:PART``, or of a ``file://`` address to be read.

    Any other name of a source is unchanged.

    Raises:
        UserError: if there is no such part, or a folder here has the name of the world.
    """
    name, colon, part = source.partition(":")
    if not colon or name not in _packs():
        return local_name(source)
    if Path(name).exists():
        raise UserError(
            f"{source} is data that come with cfaug, and {name} is also a file or folder here: "
            f"rename it, or write ./{source} to read it"
        )
    pack = _packs()[name]
    parts = sorted(
        folder.relative_to(pack).as_posix()
        for folder in pack.rglob("*")
        if folder.is_dir() and any(file.is_file() for file in folder.iterdir())
    )
    if part not in parts:
        raise UserError(f"{source}: {name} has no part {part!r}; choose {', '.join(parts)}")
    return str(pack / part)


def find_world(source: str) -> WorldSource | None:
    """Return the world of which a source is a part; ``None`` for a folder or a file."""
    if ":" not in source:
        return None
    return next((world for world in worlds() if world.find_family(source) is not None), None)


def world_of(source: str) -> WorldSource:
    """Return the world of which a source is a part, which it has to be."""
    world = find_world(source)
    assert world is not None, source
    return world


def world_family(source: str) -> str | None:
    """Return the family of parts that a source belongs to; ``None`` for a folder or a file.

    The parts of a family are drawn by the same settings of a world.
    """
    world = find_world(source)
    return None if world is None else world.find_family(source)


def is_world(source: str) -> bool:
    """Say whether a source is a part of a world that holds images with texts.

    >>> is_world("/data")
    False
    """
    return world_family(source) not in (None, QUESTIONS)


def is_questions(source: str) -> bool:
    """Say whether a source is a part of a world that holds questions about images.

    >>> is_questions("questions.jsonl")
    False
    """
    return world_family(source) == QUESTIONS


def find_drawn(sources: Iterable[str], node: str) -> set[str]:
    """Return the settings of a world, at a node, that draw the parts that sources name."""
    drawn = set[str]()
    for source in sources:
        world = find_world(source)
        family = None if world is None else world.find_family(source)
        if world is not None and family is not None:
            drawn.update(f"{node}.{setting}" for setting in world.drawn_by[family])
    return drawn


def world_part(source: str) -> str:
    """Return the part that a source of a world names, its style included."""
    return world_of(source).find_part(source)


def name_world(node: Mapping[str, Any]) -> str:
    """Return the name of the world of a node ``data.world``; the name of its class for others."""
    target = str(node.get("_target_"))
    return next((world.name for world in worlds() if world.settings == target), target)
