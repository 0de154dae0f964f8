"""Names of sources in the embedded world: ``shapescapes:PART`` or ``shapescapes:PART@STYLE``.

``shapescapes_vqa:PART`` is a part of the questions about the world,
``shapescapes_compositional:PART`` one of its compositional tests. Every other name of a source is a
folder or a file.
"""

from __future__ import annotations

PREFIX = "shapescapes:"

QUESTIONS_PREFIX = "shapescapes_vqa:"

COMPOSITIONAL_PREFIX = "shapescapes_compositional:"

COMPOSITIONAL = "compositional_"
"""Prefix of the world's parts that ``shapescapes_compositional:`` names."""


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


def world_family(source: str) -> str | None:
    """Return the family of parts that a source belongs to; ``None`` for a folder or a file.

    The parts of a family are drawn by the same settings of a world: see
    ``cfaug.shapescapes.settings.READ_BY``.

    >>> [world_family(one) for one in ("shapescapes:ve_test", "shapescapes:ood@photo", "/photos")]
    ['entailment', 'photos', None]
    """
    if is_questions(source):
        return "questions"
    if source.startswith(COMPOSITIONAL_PREFIX):
        return "compositional"
    if not is_world(source):
        return None
    part = world_part(source).partition("@")[0]
    if part.startswith(COMPOSITIONAL):
        return "compositional"
    return "entailment" if part in ("ve", "ve_test") else "photos"


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
