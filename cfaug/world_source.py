"""How a source names a part of the embedded world: ``shapescapes:PART`` or ``...:PART@STYLE``.

Every other name of a source is a folder.
"""

from __future__ import annotations

PREFIX = "shapescapes:"


def is_world(source: str) -> bool:
    """Say whether a source is a part of the embedded world.

    >>> is_world("shapescapes:ood"), is_world("/photos")
    (True, False)
    """
    return source.startswith(PREFIX)


def world_part(source: str) -> str:
    """Return the part that a source of the world names, its style included.

    >>> world_part("shapescapes:ood@photo")
    'ood@photo'
    """
    return source.removeprefix(PREFIX)
