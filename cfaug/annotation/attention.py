"""Attention checks: items that say which answer to give, shown to everyone (XMAI, A.1).

All answers of an annotator who fails a check are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from annotated_types import Interval

from cfaug.annotation.answers import Answer
from cfaug.annotation.question import ImageItem
from cfaug.annotation.screening import Screening
from cfaug.core.errors import UserError
from cfaug.core.rng import derive

PREFIX = "attention"
MOST = 20
"""Maximum number of checks on a page."""

ASKS = "This is a check of attention. Whatever the photo shows, "


Checks = Annotated[int, Interval(ge=0, le=MOST)]
"""The number of checks in a form."""


def draw_check(number: int, choices: Sequence[str], rows: Sequence[int]) -> tuple[str, int]:
    """Return the answer that a check asks for, and the row of the photo that it is shown with.

    They depend only on these arguments, so that they are known when answers are read.

    Args:
        number: the number of the check, from 0.
        choices: the valid answers.
        rows: the rows of the photos in the source, at least one.
    """
    expected = choices[derive(0, PREFIX, "answer", number) % len(choices)]
    return expected, rows[derive(0, PREFIX, "photo", number) % len(rows)]


def split_checks(items: Sequence[ImageItem]) -> tuple[list[ImageItem], list[ImageItem]]:
    """Return the real items and the checks."""
    return [one for one in items if not one.expected], [one for one in items if one.expected]


def who_failed(answers: Sequence[Answer], items: Sequence[ImageItem]) -> dict[str, float]:
    """Return {annotator: share of checks answered as asked} of those who failed a check.

    A check without an answer counts as failed, as everyone was asked.

    Args:
        answers: the answers to all items, including checks.
        items: all items that were asked about.
    """
    known = {place: item.expected for place, item in enumerate(items) if item.expected}
    if not known:
        return {}
    shares = Screening(known, 1.0).shares(answers)
    return {name: share for name, share in shares.items() if share < 1}


def require_somebody(failed: object, left: object) -> None:
    """Refuse answers if every annotator failed a check.

    Raises:
        UserError: if nobody passed.
    """
    if failed and not left:
        raise UserError(
            "no answers are left: every annotator failed a check of attention; ask other people"
        )
