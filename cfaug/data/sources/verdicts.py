"""Columns that say which captions are right: sets of right and wrong captions, a row each.

VSR, POPE, FOIL and the like have them; read as plain captions, the wrong ones would be trained on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from cfaug.core.errors import UserError

NAMES = frozenset({
    "label", "labels", "gold_label", "itm_label", "itm", "match", "matched", "matches", "is_match",
    "matching", "aligned", "is_aligned", "foil", "is_foil", "hallucinated", "is_hallucinated",
    "correct", "is_correct", "right", "wrong", "is_wrong", "true", "is_true", "is_false",
    "positive", "is_positive", "is_negative", "negative", "valid", "is_valid", "entailed", "gt",
    "ground_truth", "answer", "target",
})  # fmt: skip
"""Names of such columns, in lower case."""
YES, NO = frozenset({"1", "1.0", "true", "yes"}), frozenset({"0", "0.0", "false", "no"})


class CaptionVerdicts:
    """Counts what the columns of a source say, as far as they may say which captions are right."""

    def __init__(self) -> None:
        self._values: dict[str, Counter[str]] = {}
        self._others: set[str] = set()

    def count(self, values: Mapping[str, Any], negatives: Iterable[str] = ()) -> None:
        """Count a row: its further columns, and its negatives, which may be a verdict's words."""
        said = [(name, value) for name, value in values.items() if name.lower() in NAMES]
        for name, value in (*said, *(("negative", text) for text in negatives)):
            text = str(value).strip().lower()
            if text in YES or text in NO:
                self._values.setdefault(name, Counter())[text] += 1
            elif value is not None and text:
                self._others.add(name)

    def check(self, source: str) -> None:
        """Refuse a source of which a column has nothing but yes and no, and both."""
        for name, counts in self._values.items():
            if name in self._others or not (counts.keys() & YES and counts.keys() & NO):
                continue
            said = " and ".join(f"{value} in {rows:,}" for value, rows in counts.most_common())
            raise UserError(
                f"{source}: {name!r} is {said} rows: it seems to say which texts are right about "
                "their image, and every one would be read as a right caption. Keep the rows whose "
                "text is right, with the wrong ones of their image as neg_caption beside them; if "
                f"the column says something else, call it otherwise, such as {name}_of_image"
            )
