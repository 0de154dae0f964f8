"""``pack=true``: the runs of one process keep decoded images for each other.

Shared are imports, indexes, decoded pixels and tokenised captions; never weights, optimizers or
randomness, so a run's bytes are those it has alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cfaug.errors import UserError

if TYPE_CHECKING:
    from cfaug.data.feeding.pixel_cache import KeptPixels

MIB = 1024 * 1024


def check_pack(pack: Any, pack_mib: Any) -> None:
    """Refuse settings of packing that cannot be.

    Raises:
        UserError: unless they are a yes or no and a whole number from 1.
    """
    if not isinstance(pack, bool):
        raise UserError(f"pack={pack!r}: true keeps decoded images from run to run, or false")
    if isinstance(pack_mib, bool) or not isinstance(pack_mib, int) or pack_mib < 1:
        raise UserError(f"pack_mib={pack_mib!r}: MiB of decoded images, a whole number from 1")


def kept_pixels(pack: bool, pack_mib: int, processes: int) -> KeptPixels | None:
    """Return where this process keeps pixels from run to run; ``None`` keeps them for one run.

    Args:
        pack: whether to.
        pack_mib: of all processes together.
        processes: how many there are.
    """
    return _of_this_process(pack_mib * MIB // processes) if pack else None


@lru_cache(maxsize=1)
def _of_this_process(limit: int) -> KeptPixels:
    from cfaug.data.feeding.pixel_cache import KeptPixels

    return KeptPixels(limit)
