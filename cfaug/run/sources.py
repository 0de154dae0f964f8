"""What ``data.real=`` and ``data.counterfactual=`` may name: a folder, or a part of the world."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cfaug.errors import UserError
from cfaug.generate.folder import read_record

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.shapescapes import WorldSettings

WORLD = "shapescapes:"

CAPTIONS = "data.captions"
"""The setting of ``generate.py`` that names where captions came from."""


def open_source(
    name: str, world: WorldSettings | None, data_seed: int | None, shards: Path, cache: Path
) -> Index:
    """Open the index of a folder, or of ``shapescapes:PART``, which is drawn on first use.

    Raises:
        UserError: for a folder no reader knows, or a world part without a world.
    """
    from cfaug.data.index import open_index

    if not name.startswith(WORLD):
        return open_index(name, cache)
    if world is None:
        raise UserError(f"{name} needs data.world: choose data=shapescapes, or name a folder")
    return open_index(part_folder(world, data_seed, name.removeprefix(WORLD), shards), cache)


def of_the_world(name: str) -> bool:
    """Say whether a source shows the embedded world: a part of it, or images made for its captions.

    Raises:
        UserError: if the record of a folder that ``generate.py`` made cannot be read.
    """
    if name.startswith(WORLD):
        return True
    made = read_record(Path(name))
    return made is not None and str(made.captions.get(CAPTIONS, "")).startswith(WORLD)


def part_folder(world: WorldSettings, data_seed: int | None, part: str, shards: Path) -> Path:
    """Return the shards of one part of the world; a world without a seed takes the data seed.

    ``PART@STYLE`` is the part as the world of that style has it: the same scenes, shown otherwise.
    """
    from cfaug.shapescapes import ensure

    part, _, style = part.partition("@")
    settled = world if world.seed is not None else replace(world, seed=data_seed)
    return ensure(replace(settled, style=style) if style else settled, part, shards)
