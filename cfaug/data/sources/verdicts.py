"""Columns that say which captions are right: sets of right and wrong captions, a row each.

VSR, POPE, FOIL, SNLI-VE and the like have them; read as plain captions, the wrong ones would be
trained on. Columns that say how well a caption fits, as of CrissCrossed Captions, are said.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from cfaug.core.errors import UserError, name_some
from cfaug.core.types import ENTAILMENT
from cfaug.data.sources.row import is_number
from cfaug.data.sources.splits import flat

NAMES = frozenset({
    "label", "labels", "gold_label", "itm_label", "itm", "match", "matched", "matches", "is_match",
    "matching", "aligned", "is_aligned", "foil", "is_foil", "hallucinated", "is_hallucinated",
    "correct", "is_correct", "right", "wrong", "is_wrong", "true", "is_true", "is_false",
    "positive", "is_positive", "is_negative", "negative", "valid", "is_valid", "entailed", "gt",
    "ground_truth", "answer", "target", "falsified", "is_falsified", "verdict", "consistent",
    "is_consistent", "misaligned", "supported",
})  # fmt: skip
"""Names of such columns, in lower case."""
UNNAMED = re.compile(r"0*([01])")
"""A class without a name, of a column of 0 and 1."""
ANSWERED = re.compile(r"(?:\?|yes or no\.?)\s+(yes|no)\.?", re.IGNORECASE)
"""The end of a question with its answer, as in the files of MME."""
RIGHT = {
    ENTAILMENT[0], "aligned", "consistent", "entails", "match", "matched", "supported", "supports",
}  # fmt: skip
WRONG = {
    *ENTAILMENT[1:], "contradicts", "inconsistent", "misaligned", "mismatch", "mismatched",
    "refuted", "refutes",
}  # fmt: skip
UNSURE = {"-", "nei", "not enough info", "not_enough_info", "unsure"}
"""What SNLI, FEVER and sets of their kind say of a sentence: "-" if annotators did not agree."""
LETTERS = {label[0]: label for label in ENTAILMENT}
"""Labels of entailment by their first letters."""
LANGUAGES = frozenset({"lang", "language", "language_id", "locale"})
"""Names of the language of a text."""
OTHER_SENTENCE = frozenset({"hypothesis", "sentence2", "sentence_2", "statement"})
"""Names of the sentence that is judged, if the caption is what it is judged by."""
PREMISES = frozenset({"premise", "sentence1", "sentence_1"})
"""Names of the sentence by which another one is judged."""
QUESTIONS = frozenset({"question", "questions"})
"""Names of the question that a text may answer."""
RATINGS = re.compile(
    r"(?:agg(?:regated?)?_|mean_|avg_|human_|clip_?|sim_|itm_|caption_|relevance_|match(?:ing)?_)?"
    r"(?:scores?|ratings?|similarity|relevance|likert)|expert_?\d+|clip_?similarity\w*|agreement"
)
"""Names of columns that may say how well a caption fits its image, as agg_score does in CxC."""
VOTES = {"mturk.caption", "mturk.foil"}
"""Numbers of annotators who found the caption and its foil right, as in VALSE."""
ENOUGH_VOTES = 2
"""Number of votes, of three, from which VALSE's authors use an item."""
YES, NO = frozenset({"1", "1.0", "true", "yes"}), frozenset({"0", "0.0", "false", "no"})


@lru_cache(maxsize=1024)
def is_rating(column: str) -> bool:
    """Return whether a column may say how well a caption fits its image.

    >>> [is_rating(name) for name in ("agg_score", "Rating", "clip_similarity_vitb32", "width")]
    [True, True, True, False]
    """
    return RATINGS.fullmatch(column.lower()) is not None


class CaptionVerdicts:
    """Counts what the columns of a source say, as far as they may say which captions are right."""

    def __init__(self) -> None:
        self._values: dict[str, Counter[str]] = {}
        self._others: set[str] = set()
        self._rows = self._questions = 0
        self._answers, self._classes = Counter[str](), Counter[str]()
        self._entailed: dict[str, Counter[str]] = {}
        self._columns, self._no_entailment = set[str](), set[str]()
        self._ratings: dict[str, array[float]] = {}
        self._voted = self._unsure = 0
        self._languages = Counter[str]()

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
        """Return sentences on what may say which captions fit, and is not read."""
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
        for name, values in self._ratings.items():
            if (low := min(values)) < (high := max(values)):
                below = sum(value < (low + high) / 2 for value in values)
                notes.append(
                    f"{name} is {low:g} to {high:g} and below the middle in {below:,} of "
                    f"{len(values):,} rows, and every row is read: if it says how well the caption "
                    "fits its image, remove the low ones"
                )
        if self._unsure:
            notes.append(
                f"mturk says that of {self._voted:,} captions {self._unsure:,} were found right by "
                f"fewer than {ENOUGH_VOTES} annotators, and all are read: VALSE's authors use the "
                "others alone"
            )
        notes += [
            f"{name} seems to say what follows from the caption ({self._named(counts)}): read is "
            f"the caption, not {name_some(sorted(OTHER_SENTENCE & self._columns))}"
            for name, counts in self._judging()
            if OTHER_SENTENCE & self._columns
        ]
        if len(self._languages) > 1:
            languages = self._named(self._languages)
            notes.append(
                f"texts are of {len(self._languages):,} languages ({languages}), and all are read: "
                "keep those that the model was trained on"
            )
        if QUESTIONS & self._columns:
            notes.append(
                f"{name_some(sorted(QUESTIONS & self._columns))} is not read: a caption that is "
                "the answer to it may say nothing of its image alone; benchmark=vqa reads sets of "
                "questions"
            )
        if PREMISES & self._columns:
            notes.append(
                f"{name_some(sorted(PREMISES & self._columns))} is not read: if the caption is the "
                "hypothesis that is judged by it, it need not be true of its image"
            )
        return notes

    def _judging(self) -> list[tuple[str, Counter[str]]]:
        """Return the columns that say which texts follow and which do not."""
        return [
            (name, counts)
            for name, counts in self._entailed.items()
            if name not in self._no_entailment
            and counts.keys() & WRONG
            and (len(counts.keys() - UNSURE) > 1 or ENTAILMENT[1] not in counts)
        ]

    @staticmethod
    def _named(counts: Counter[str]) -> str:
        return name_some(f"{value} in {rows:,} rows" for value, rows in counts.most_common())

    def count(self, values: Mapping[str, Any], negatives: Iterable[str] = ()) -> None:
        """Count a row: its further columns, and its negatives, which may be a verdict's words."""
        # Entailment, how well the caption fits, and annotators' votes.
        votes = {}
        for name, value in flat(values):
            self._columns.add(name)
            if name.lower() in LANGUAGES and isinstance(value, str) and value:
                self._languages[value] += 1
            if name not in self._no_entailment:
                text = str(value).strip().lower()
                text = LETTERS.get(text, text) if name.lower() in NAMES else text
                if text in RIGHT | WRONG | UNSURE:
                    self._entailed.setdefault(name, Counter())[text] += 1
                elif text and value is not None:
                    self._no_entailment.add(name)
            if (is_rating(name) or name in VOTES) and is_number(str(value)):
                number = float(str(value))
                if name in VOTES:
                    votes[name] = number
                else:
                    self._ratings.setdefault(name, array("d")).append(number)
        if votes.keys() == VOTES:
            self._voted += 1
            self._unsure += votes["mturk.caption"] < ENOUGH_VOTES
        # Yes and no.
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
                "benchmark=vqa reads sets of questions (docs/models.md)"
            )
        for name, counts in self._judging():
            if not OTHER_SENTENCE & self._columns:
                raise UserError(
                    f"{source}: {name!r} is {self._named(counts)}: it seems to say which texts "
                    "follow from their image, and every one would be read as a right caption. Keep "
                    f"the rows with {name_some(sorted(counts.keys() & RIGHT)) or ENTAILMENT[0]}; "
                    "benchmark=entailment reads SNLI-VE as released (docs/models.md)"
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
