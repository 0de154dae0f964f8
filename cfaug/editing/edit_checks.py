"""Checks of whether an edit is of the requested kind, by explicit rules for any English caption.

LANCE's authors judged 500 edits by hand (Table 3). The rules here judge every edit by the changed
words and their places. Captions of ShapeScapes are judged exactly
(``cfaug.worlds.shapescapes.language``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from cfaug.core.types import Edited
from cfaug.data.captions import ARTICLES, WORD, caption_changes
from cfaug.editing.instructed_edit import TOO_LONG, UNCHANGED
from cfaug.editing.label_guard import CHANGES_LABEL
from cfaug.editing.paraphrase import MEDIUM, PREPOSITIONS, Phrases, find_phrases
from cfaug.editing.protocols import CaptionEdit, Tagger, Verdict
from cfaug.editing.sentence import Slot, split

KIND_CORRECT, LABEL_KEPT = "kind_correct", "label_kept"
"""Names of the notes of checks: whether an edit is of its kind, and whether it keeps the label."""
OTHER_KIND = "another kind"


@dataclass(frozen=True)
class StructureCheck:
    """Checks whether an edit changes the part that its kind names, and no other part.

    ``subject``: only the first noun changed. ``object``: only another noun changed. ``adjective``:
    only words that describe a noun were added or exchanged. ``background``: a prepositional phrase
    after the subject was added or exchanged, or one before it was added. ``domain``: only the
    medium of the picture changed. Other kinds are not judged. The note is ``kind_correct``; edits
    are rejected only if ``reject`` is set.

    Args:
        reject: whether an edit of another kind is rejected if the check is used as a guard.
    """

    tagger: Tagger
    """the tagger of parts of speech"""
    reject: bool = False

    name = "structure"

    def judge(self, edits: Sequence[CaptionEdit]) -> list[Verdict]:
        """Return a verdict on whether each edit is of its kind."""
        texts = [split(text) for edit in edits for text in (edit.caption, edit.text)]
        tags = self.tagger.tag([sentence.words for sentence in texts])
        phrases = map(find_phrases, texts, tags)
        verdicts = []
        for edit, before, after in zip(edits, phrases, phrases, strict=True):
            if edit.kind not in _RULES:
                verdicts.append(Verdict())
                continue
            correct = _RULES[edit.kind](before, after)
            reason = OTHER_KIND if self.reject and not correct else ""
            verdicts.append(Verdict(reason, {KIND_CORRECT: correct}))
        return verdicts

    def describe(self) -> dict[str, str]:
        return {f"check {name}": value for name, value in self.tagger.describe().items()}


def _subject(before: Phrases, after: Phrases) -> bool:
    noun, other = before.subject, after.subject
    return noun is not None and other is not None and _swapped(before, noun, after, other)


def _object(before: Phrases, after: Phrases) -> bool:
    pairs = product(before.nouns[1:], after.nouns[1:])
    return any(_swapped(before, noun, after, other) for noun, other in pairs)


def _swapped(before: Phrases, noun: Slot, after: Phrases, other: Slot) -> bool:
    """Return whether only a noun, with the words that describe it, has changed."""
    heads, rests = [], []
    for phrases, slot in ((before, noun), (after, other)):
        words = _lower(phrases)
        heads.append(words[slot.last])
        rests.append([_plain(words[: phrases.begin(slot)]), _plain(words[slot.last + 1 :])])
    return rests[0] == rests[1] and heads[0] != heads[1]


def _lower(phrases: Phrases) -> list[str]:
    return [word.lower() for word in phrases.sentence.words]


def _plain(words: Iterable[str]) -> list[str]:
    """Return words without indefinite articles and full stops, which depend on other words."""
    return [word for word in words if word not in ("a", "an", ".")]


def _adjective(before: Phrases, after: Phrases) -> bool:
    change = _one_change(before, after)
    if change is None or not change[1] or len(change[1]) > 4:
        return False
    went, came = change
    articles, words = ("a", "an"), _lower(after)
    # The tags of words that stand before a noun and describe it.
    describes = ("JJ", "VBN", "VBG", "RB", "CC", "NN", "CD")
    described = all(after.tags[i].startswith(describes) or words[i] in articles for i in came)
    removed = all(
        before.tags[i].startswith(("JJ", "VBN", "NN", "CD"))
        or before.sentence.words[i].lower() in articles
        for i in went
    )
    behind = after.tags[came[-1] + 1 : came[-1] + 2]
    follows = any(tag.startswith(("NN", "JJ", "VBN")) for tag in behind)
    heads = [[_lower(p)[noun.last] for noun in p.nouns] for p in (before, after)]
    return described and removed and follows and heads[0] == heads[1]


def _background(before: Phrases, after: Phrases) -> bool:
    change = _one_change(before, after)
    subject = before.subject
    if change is None or not change[1] or subject is None:
        return False
    went, came = change
    words = _lower(after)
    if not went and came[0] <= after.start:
        return words[came[0]] in PREPOSITIONS
    if min([*went, *came]) <= subject.last or any(before.tags[i].startswith("VB") for i in went):
        return False
    for word in range(came[0], -1, -1):  # back to the preposition of the phrase
        if words[word] in PREPOSITIONS:
            return True
        if after.tags[word].startswith("VB") or words[word] in (",", "and"):
            return False
    return False


def _domain(before: Phrases, after: Phrases) -> bool:
    text, edited = before.sentence.text, after.sentence.text
    medium = MEDIUM.match(text)
    other = re.match(r"^\W*(?:an?|the)\s+(?:[\w-]+\s+){1,5}?of\s+", edited, re.IGNORECASE)
    if other is None:
        return False
    end = 0 if medium is None else medium.end()
    named = _content(text[:end])
    return _content(text[end:]) == _content(edited[other.end() :]) and named != _content(
        other.group()
    )


def _content(text: str) -> list[str]:
    """Return the words of a text without articles and a beginning such as "there is"."""
    words = [match.group().lower() for match in WORD.finditer(text)]
    words = [word for word in words if word not in ARTICLES and re.match(r"\w", word)]
    return words[2:] if words[:1] in (["there"], ["this"]) and len(words) > 2 else words


def _one_change(before: Phrases, after: Phrases) -> tuple[list[int], list[int]] | None:
    """Return the old and the new words of the only change; ``None`` if there are several."""
    text, edited = before.sentence.text, after.sentence.text
    changes = [
        (change.before, change.after)
        for change in caption_changes(text, edited)
        if any(
            _plain(match.group().lower() for match in WORD.finditer(side[slice(*span)]))
            for side, span in ((text, change.before), (edited, change.after))
        )
    ]
    if len(changes) != 1:
        return None
    return _inside(before, changes[0][0]), _inside(after, changes[0][1])


def _inside(phrases: Phrases, span: tuple[int, int]) -> list[int]:
    """Return the words in a span of characters, without full stops at its end."""
    spans = phrases.sentence.spans
    inside = [i for i, (start, end) in enumerate(spans) if start < span[1] and end > span[0]]
    while inside and phrases.sentence.words[inside[-1]] in ".,":
        inside.pop()
    return inside


_RULES: Mapping[str, Callable[[Phrases, Phrases], bool]] = {
    "subject": _subject,
    "object": _object,
    "adjective": _adjective,
    "background": _background,
    "domain": _domain,
}


# Measures of edits and their guards: LANCE's Table 3, for any writer of edits.
#
# They count the notes that checks leave on every edit, proposed or rejected.

OVERALL = "overall"


@dataclass(frozen=True)
class EditMeasures:
    """The counts of one kind of edit.

    Attributes:
        kind: the kind of edit, or ``overall``.
        edits: the number of judged edits: a model's distinct variations.
        correct: the number of edits of the requested kind.
        labelled: the number of edits that a check of the label judged.
        kept: the number of edits that keep the label.
        caught: the number of edits that change the label and were rejected for it.
        rejected: the number of edits that were rejected for the label.
    """

    kind: str
    edits: int = 0
    correct: int = 0
    labelled: int = 0
    kept: int = 0
    caught: int = 0
    rejected: int = 0

    @property
    def success(self) -> float | None:
        """The share of judged edits that are of the requested kind (Table 3, "Edit Success")."""
        return _share(self.correct, self.edits)

    @property
    def label_kept(self) -> float | None:
        """The share of edits that keep the label, before any guard."""
        return _share(self.kept, self.labelled)

    @property
    def precision(self) -> float | None:
        """The share of edits rejected for the label that change it (Table 3, "Filter prec.")."""
        return _share(self.caught, self.rejected)

    @property
    def recall(self) -> float | None:
        """The share of label-changing edits that were rejected for the label."""
        return _share(self.caught, self.labelled - self.kept)


class EditCounts:
    """Counts the results of an ``InstructedEdit`` with checks as they come.

    Edits without a check's note are not counted; if no edit has a note, there are no measures.
    """

    def __init__(self) -> None:
        self._noted = False
        self._of_kind: dict[str, Counter[str]] = {}

    def add(self, result: Edited) -> None:
        """Count the edits of one example."""
        for proposal in result.proposals:
            edit = proposal.edits[-1]
            if edit is not None and proposal.details:
                self._count(edit.kind, "", proposal.details[-1])
        for lost in result.rejected:
            if lost.text:
                self._count(lost.edit.kind, lost.reason, lost.extra)

    def _count(self, kind: str, reason: str, notes: Mapping[str, Any]) -> None:
        counts = self._of_kind.setdefault(kind, Counter())
        self._noted |= KIND_CORRECT in notes or LABEL_KEPT in notes
        counts["judged"] += KIND_CORRECT in notes
        # Unsuccessful without any check; not representative for a kind that no check judges.
        counts["failed"] += KIND_CORRECT not in notes and reason in (UNCHANGED, TOO_LONG)
        counts["correct"] += notes.get(KIND_CORRECT) is True
        if LABEL_KEPT in notes:
            counts["labelled"] += 1
            counts["kept"] += notes[LABEL_KEPT] is True
            if reason == CHANGES_LABEL:
                counts["rejected"] += 1
                counts["caught"] += notes[LABEL_KEPT] is False

    def measures(self) -> list[EditMeasures]:
        """Return the measures of each kind, by name, and finally of all kinds together."""
        if not self._noted:
            return []
        measures = [
            EditMeasures(
                kind,
                edits=counts["judged"] and counts["judged"] + counts["failed"],
                **{name: counts[name] for name in COUNTED},
            )
            for kind, counts in sorted(self._of_kind.items())
        ]
        names = ("edits", *COUNTED)
        sums = {name: sum(getattr(measure, name) for measure in measures) for name in names}
        return [*measures, EditMeasures(OVERALL, **sums)]


def measure_edits(edited: Iterable[Edited]) -> list[EditMeasures]:
    """Return the measures of each kind, by name, and finally of all kinds together."""
    counts = EditCounts()
    for result in edited:
        counts.add(result)
    return counts.measures()


COUNTED = ("correct", "labelled", "kept", "caught", "rejected")
"""The counts of ``EditMeasures`` that add up edit by edit."""


def table_lines(measures: Sequence[EditMeasures]) -> list[str]:
    """Return the measures as rows of a Markdown table, in per cent; "-" if nothing was counted."""
    lines = [
        "| kind | edits | of that kind % | keep the label % | filter precision % | recall % |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for measure in measures:
        shares = (measure.success, measure.label_kept, measure.precision, measure.recall)
        shown = " | ".join("-" if share is None else f"{100 * share:.1f}" for share in shares)
        lines.append(f"| {measure.kind} | {measure.edits:,} | {shown} |")
    return lines


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
