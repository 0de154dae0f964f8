"""Sets of two texts on one photo: the original, and what a method made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cfaug.data.index import Index
from cfaug.data.index.text_pairs import pair_rows


@dataclass(frozen=True)
class TwoTexts:
    """A photo with its text before and after a change.

    Attributes:
        key: of the set.
        rows: of the index: the original text, the changed one.
        texts: those two.
    """

    key: str
    rows: tuple[int, int]
    texts: tuple[str, str]

    @property
    def is_changed(self) -> bool:
        """Whether the method found anything to change."""
        return self.texts[0] != self.texts[1]


def known_truth(scores: Mapping[str, Mapping[str, float]], key: str, member: int) -> float | None:
    """Return whether a text of a set is true of its photo, by an oracle: 1 or 0, or ``None``.

    Args:
        scores: {key: scores} of the sets; ``truth_0`` is of the original text, ``truth_1`` of the
            changed one. A set lacks one whose words the oracle cannot judge.
        key: of the set.
        member: 0 or 1.
    """
    return scores.get(key, {}).get(f"truth_{member}")


def read_two_texts(index: Index) -> list[TwoTexts]:
    """Return the sets of a folder that a recipe for texts made.

    Args:
        index: of the folder.

    Raises:
        UserError: if there is no set, or one has not two texts on one image.
    """
    keys, rows = pair_rows(index)
    return [
        TwoTexts(key, (before, after), (index.text(before), index.text(after)))
        for key, (before, after) in zip(keys, rows.tolist(), strict=True)
    ]
