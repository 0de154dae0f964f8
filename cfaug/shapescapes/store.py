"""Shards of a world, made on first use and cached by content."""

from __future__ import annotations

from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.core.files import replace_folder
from cfaug.core.locks import hold_lock
from cfaug.core.messages import say
from cfaug.core.progress import watch
from cfaug.data.shards.shards import write_shards
from cfaug.shapescapes.parts import check_part, make_part, part_size
from cfaug.shapescapes.settings import WorldSettings


def part_folder(world: WorldSettings, part: str, root: Path) -> Path:
    """Return the folder of a part's shards, without making it."""
    check_part(part)
    return root / f"shapescapes-{world.content_hash()}" / part


def ensure(world: WorldSettings, part: str, root: Path) -> Path:
    """Return the folder with a part's shards, making it first if it does not exist.

    Several processes may call this at once: one draws, the others wait. A part is drawn in a
    private folder that is renamed when complete, so that a killed process leaves no incomplete
    folder under the final name, and no lock.

    Args:
        world: the settings, with a seed.
        part: a name of ``cfaug.shapescapes.parts``.
        root: the folder of all shards (``paths.shards``).

    Raises:
        UserError: for an unknown part, a world without a seed, or a root that cannot be written.
    """
    folder = part_folder(world, part, root)
    if folder.exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder.parent / f".{part}.lock"):
            if not folder.exists():
                _make(world, part, folder)
    except OSError as error:
        raise UserError(f"cannot write shards to {folder}: {error.strerror}") from error
    return folder


def _make(world: WorldSettings, part: str, folder: Path) -> None:
    """Draw a part into its folder, all of it or nothing; only called under the part's lock."""
    count = part_size(world, part)
    say(f"drawing {count} sets of ShapeScapes ({part}) into {folder}")
    sets = watch(make_part(world, part), f"drawing {part}", count, "sets")
    with replace_folder(folder) as fresh:
        write_shards(sets, fresh)
