"""How a source names a part of the embedded world: ``shapescapes:PART`` or ``...:PART@STYLE``.

Of the questions about it a part is ``shapescapes_vqa:PART``, of its compositional tests
``shapescapes_compositional:PART``. Every other name of a source is a folder or file.
"""

from __future__ import annotations

PREFIX = "shapescapes:"

QUESTIONS_PREFIX = "shapescapes_vqa:"

COMPOSITIONAL_PREFIX = "shapescapes_compositional:"

COMPOSITIONAL = "compositional_"
"""How the parts that ``shapescapes_compositional:`` names begin among those of the world."""


def is_world(source: str) -> bool:
    """Say whether a source is a part of the embedded world.

    >>> [is_world(one) for one in ("shapescapes:ood", "shapescapes_compositional:pairs", "/photos")]
    [True, True, False]
    """
    return source.startswith((PREFIX, COMPOSITIONAL_PREFIX))


def world_part(source: str) -> str:
    """Return the part that a source of the world names, its style included.

    >>> world_part("shapescapes:ood@photo")
    'ood@photo'
    >>> world_part("shapescapes_compositional:pairs")
    'compositional_pairs'
    """
    if source.startswith(COMPOSITIONAL_PREFIX):
        return COMPOSITIONAL + source.removeprefix(COMPOSITIONAL_PREFIX)
    return source.removeprefix(PREFIX)


def is_questions(source: str) -> bool:
    """Say whether a source is a part of the questions about the embedded world.

    >>> is_questions("shapescapes_vqa:test"), is_questions("shapescapes:ood")
    (True, False)
    """
    return source.startswith(QUESTIONS_PREFIX)


def questions_part(source: str) -> str:
    """Return the part that a source of questions names, its style included.

    >>> questions_part("shapescapes_vqa:test@photo")
    'test@photo'
    """
    return source.removeprefix(QUESTIONS_PREFIX)
