"""Columns that say which captions are right: sets of right and wrong captions, a row each.

VSR, POPE, FOIL and the like have them; read as plain captions, the wrong ones would be trained on.
"""

from __future__ import annotations

import re
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
UNNAMED = re.compile(r"0*([01])")
"""A class without a name, of a column of 0 and 1."""
ANSWERED = re.compile(r"(?:\?|yes or no\.?)\s+(yes|no)\.?", re.IGNORECASE)
"""The end of a question with its answer, as in the files of MME."""
YES, NO = frozenset({"1", "1.0", "true", "yes"}), frozenset({"0", "0.0", "false", "no"})


class CaptionVerdicts:
    """Counts what the columns of a source say, as far as they may say which captions are right."""

    def __init__(self) -> None:
        self._values: dict[str, Counter[str]] = {}
        self._others: set[str] = set()
        self._rows = self._questions = 0
        self._answers, self._classes = Counter[str](), Counter[str]()

    def count_text(self, text: str, label: str | None) -> None:
        """Count a caption: whether it is a question, with its answer, and what its class says."""
        self._rows += 1
        self._questions += "?" in text
        if "?" in text and (answered := re.search(rf"{ANSWERED.pattern}$", text, re.IGNORECASE)):
            self._answers[answered[1].lower()] += 1
        if label is not None:
            unnamed = UNNAMED.fullmatch(label)
            self._classes[unnamed[1] if unnamed else "another"] += 1

    def notes(self) -> list[str]:
        """Return sentences on captions of two classes without names, and on questions."""
        notes = []
        if self._classes.keys() == {"0", "1"}:
            notes.append(
                f"{self._classes['1']:,} captions are of class 1 and {self._classes['0']:,} of "
                "class 0, which have no names: if the class says which captions are right about "
                "their image, remove the others, since every one is read as a right caption"
            )
        if 2 * self._questions > self._rows:
            notes.append(
                f"{self._questions:,} of {self._rows:,} captions are questions: sets of questions "
                "with answers are read by benchmark=vqa"
            )
        return notes

    def count(self, values: Mapping[str, Any], negatives: Iterable[str] = ()) -> None:
        """Count a row: its further columns, and its negatives, which may be a verdict's words."""
        said = [(name, value) for name, value in values.items() if name.lower() in NAMES]
        for name, value in (*said, *(("negative", text) for text in negatives)):
            text = str(value).strip().lower()
            if text in YES | NO:
                self._values.setdefault(name, Counter())[text] += 1
            elif value is not None and text:
                self._others.add(name)

    def check(self, source: str) -> None:
        """Refuse a source of which a column has nothing but yes and no, and both."""
        if len(self._answers) > 1 and 2 * self._answers.total() > self._rows:
            raise UserError(
                f"{source}: {self._answers.total():,} of {self._rows:,} captions are questions "
                "with their answers, yes and no: they say nothing of their image alone; "
                "benchmark=vqa reads sets of questions (docs/cfmm.md)"
            )
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
