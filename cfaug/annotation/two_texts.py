"""Sets of two texts on one photo: the original, and a method's changed text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cfaug.data.index import Index
from cfaug.data.index.text_pairs import pair_rows


@dataclass(frozen=True)
class TwoTexts:
    """A photo's text before and after a change.

    Attributes:
        key: the key of the set.
        rows: the rows of the original and of the changed text in the index.
        texts: the original and the changed text.
    """

    key: str
    rows: tuple[int, int]
    texts: tuple[str, str]

    @property
    def is_changed(self) -> bool:
        """Whether the method changed the text."""
        return self.texts[0] != self.texts[1]


def known_truth(scores: Mapping[str, Mapping[str, float]], key: str, member: int) -> float | None:
    """Return whether a text of a set is true of its photo, by an oracle: 1 or 0, or ``None``.

    Args:
        scores: {key of the set: scores}; the score ``truth_0`` is for the original text,
            ``truth_1`` for the changed one. Scores that the oracle cannot give are missing.
        key: the key of the set.
        member: the number of the text: 0 for the original, 1 for the changed one.
    """
    return scores.get(key, {}).get(f"truth_{member}")


def read_two_texts(index: Index) -> list[TwoTexts]:
    """Return the sets of a folder that a recipe for texts made.

    Args:
        index: the index of the folder.

    Raises:
        UserError: if there is no set, or a set does not have two texts on one image.
    """
    keys, rows = pair_rows(index)
    return [
        TwoTexts(key, (before, after), (index.text(before), index.text(after)))
        for key, (before, after) in zip(keys, rows.tolist(), strict=True)
    ]
