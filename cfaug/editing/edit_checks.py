"""Checks of whether an edit is of the requested kind, by explicit rules for any English caption.

LANCE's authors judged 500 edits by hand (Table 3). The rules here judge every edit by the changed
words and their places. Captions of ShapeScapes are judged exactly
(``cfaug.shapescapes.language``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from cfaug.core.types import Edited
from cfaug.core.words import ARTICLES, WORD, caption_changes
from cfaug.editing.instructed_edit import TOO_LONG, UNCHANGED
from cfaug.editing.label_guard import CHANGES_LABEL
from cfaug.editing.paraphrase import MEDIUM, PREPOSITIONS, Phrases, find_phrases
from cfaug.editing.protocols import CaptionEdit, Tagger, Verdict
from cfaug.editing.sentence import Slot, split

KIND_CORRECT, LABEL_KEPT = "kind_correct", "label_kept"
"""Names of the notes of checks: whether an edit is of its kind, and whether it keeps the label."""
OTHER_KIND = "another kind"
_OF = re.compile(r"^\W*(?:an?|the)\s+(?:[\w-]+\s+){1,5}?of\s+", re.IGNORECASE)
_DESCRIBES = ("JJ", "VBN", "VBG", "RB", "CC", "NN", "CD")
"""Tags of words that stand before a noun and describe it."""


@dataclass(frozen=True)
class StructureCheck:
    """Checks whether an edit changes the part that its kind names, and no other part.

    ``subject``: only the first noun changed. ``object``: only another noun changed. ``adjective``:
    only words that describe a noun were added or exchanged. ``background``: a prepositional phrase
    after the subject was added or exchanged, or one before it was added. ``domain``: only the
    medium of the picture changed. Other kinds are not judged. The note is ``kind_correct``; edits
    are rejected only if ``reject`` is set.

    Args:
        tagger: the part-of-speech tagger.
        reject: whether an edit of another kind is rejected if the check is used as a guard.
    """

    tagger: Tagger
    reject: bool = False

    name = "structure"

    def judge(self, edits: Sequence[CaptionEdit]) -> list[Verdict]:
        """Return a verdict on whether each edit is of its kind."""
        texts = [split(text) for edit in edits for text in (edit.caption, edit.text)]
        tags = self.tagger.tag([sentence.words for sentence in texts])
        found = iter([find_phrases(*pair) for pair in zip(texts, tags, strict=True)])
        return [self._verdict(edit.kind, next(found), next(found)) for edit in edits]

    def _verdict(self, kind: str, before: Phrases, after: Phrases) -> Verdict:
        rule = _RULES.get(kind)
        if rule is None:
            return Verdict()
        correct = rule(before, after)
        reason = OTHER_KIND if self.reject and not correct else ""
        return Verdict(reason, {KIND_CORRECT: correct})

    def describe(self) -> dict[str, str]:
        """Return the description of the tagger."""
        return {f"check {name}": said for name, said in self.tagger.describe().items()}


def _subject(before: Phrases, after: Phrases) -> bool:
    one, other = before.subject, after.subject
    return one is not None and other is not None and _swapped(before, one, after, other)


def _object(before: Phrases, after: Phrases) -> bool:
    pairs = ((noun, other) for noun in before.nouns[1:] for other in after.nouns[1:])
    return any(_swapped(before, one, after, other) for one, other in pairs)


def _swapped(before: Phrases, one: Slot, after: Phrases, other: Slot) -> bool:
    """Return whether only a noun, with the words that describe it, has changed."""
    parts = [_cut(before, one), _cut(after, other)]
    heads = [p.sentence.words[slot.last].lower() for p, slot in ((before, one), (after, other))]
    return parts[0] == parts[1] and heads[0] != heads[1]


def _cut(phrases: Phrases, noun: Slot) -> tuple[list[str], list[str]]:
    """Return the words before a noun and its describing words, and the words after it."""
    words = [word.lower() for word in phrases.sentence.words]
    return _plain(words[: phrases.begin(noun)]), _plain(words[noun.last + 1 :])


def _plain(words: Sequence[str]) -> list[str]:
    """Return words without indefinite articles and full stops, which depend on other words."""
    return [word for word in words if word not in ("a", "an", ".")]


def _adjective(before: Phrases, after: Phrases) -> bool:
    change = _one_change(before, after)
    if change is None or not change[1] or len(change[1]) > 4:
        return False
    went, came = change
    described = all(
        after.tags[i].startswith(_DESCRIBES) for i in came if not _is(after, i, ("a", "an"))
    )
    removed = all(
        before.tags[i].startswith(("JJ", "VBN", "NN", "CD")) or _is(before, i, ("a", "an"))
        for i in went
    )
    follows = came[-1] + 1 < len(after.tags) and after.tags[came[-1] + 1].startswith(
        ("NN", "JJ", "VBN")
    )
    return described and removed and follows and _heads(before) == _heads(after)


def _background(before: Phrases, after: Phrases) -> bool:
    change = _one_change(before, after)
    subject = before.subject
    if change is None or not change[1] or subject is None:
        return False
    went, came = change
    words = [word.lower() for word in after.sentence.words]
    if not went and came[0] <= after.start:
        return words[came[0]] in PREPOSITIONS
    behind = min([*went, *came]) > subject.last
    verb = any(before.tags[i].startswith("VB") for i in went)
    return behind and not verb and _after_preposition(after, came[0])


def _after_preposition(phrases: Phrases, word: int) -> bool:
    """Return whether a word is a preposition, or part of a prepositional phrase."""
    words = [one.lower() for one in phrases.sentence.words]
    while word > 0 and words[word] not in PREPOSITIONS:
        if phrases.tags[word].startswith("VB") or words[word] in (",", "and"):
            return False
        word -= 1
    return words[word] in PREPOSITIONS


def _domain(before: Phrases, after: Phrases) -> bool:
    text, edited = before.sentence.text, after.sentence.text
    medium, other = MEDIUM.match(text), _OF.match(edited)
    if other is None:
        return False
    shown = text if medium is None else text[medium.end() :]
    named = "" if medium is None else _said(text[: medium.end()])
    return _said(shown) == _said(edited[other.end() :]) and named != _said(other.group())


def _said(text: str) -> list[str]:
    """Return the words of a text without articles and a beginning such as "there is"."""
    words = [match.group().lower() for match in WORD.finditer(text)]
    words = [word for word in words if word not in ARTICLES and re.match(r"\w", word)]
    return words[2:] if words[:1] in (["there"], ["this"]) and len(words) > 2 else words


def _one_change(before: Phrases, after: Phrases) -> tuple[list[int], list[int]] | None:
    """Return the old and the new words of the only change; ``None`` if there are several."""
    text, edited = before.sentence.text, after.sentence.text
    changes = [
        change
        for change in caption_changes(text, edited)
        if _plain(_words(text, change.before)) or _plain(_words(edited, change.after))
    ]
    if len(changes) != 1:
        return None
    [one] = changes
    return _inside(before, one.before), _inside(after, one.after)


def _words(text: str, span: tuple[int, int]) -> list[str]:
    return [match.group().lower() for match in WORD.finditer(text[slice(*span)])]


def _inside(phrases: Phrases, span: tuple[int, int]) -> list[int]:
    """Return the words in a span of characters, without full stops at its end."""
    spans = phrases.sentence.spans
    found = [i for i, (start, end) in enumerate(spans) if start < span[1] and end > span[0]]
    while found and phrases.sentence.words[found[-1]] in ".,":
        found.pop()
    return found


def _is(phrases: Phrases, word: int, words: Sequence[str]) -> bool:
    return phrases.sentence.words[word].lower() in words


def _heads(phrases: Phrases) -> list[str]:
    return [phrases.sentence.words[noun.last].lower() for noun in phrases.nouns]


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

FAILED = (UNCHANGED, TOO_LONG)
"""Reasons of rejected edits that are unsuccessful without any check."""
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


def measure_edits(edited: Sequence[Edited]) -> list[EditMeasures]:
    """Return the measures of each kind, by name, and finally of all kinds together.

    Args:
        edited: the results of an ``InstructedEdit`` with checks. Edits without a check's note are
            not counted; if no edit has a note, the result is empty.
    """
    kinds: dict[str, list[_Judged]] = {}
    for one in edited:
        for judged in _judged(one):
            kinds.setdefault(judged.kind, []).append(judged)
    if not any(one.checked for some in kinds.values() for one in some):
        return []
    found = [_count(kind, some) for kind, some in sorted(kinds.items())]
    counts = (field.name for field in fields(EditMeasures) if field.name != "kind")
    sums = {name: sum(getattr(one, name) for one in found) for name in counts}
    return [*found, EditMeasures(OVERALL, **sums)]


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


@dataclass(frozen=True)
class _Judged:
    """An edit with its judgements."""

    kind: str
    reason: str
    notes: Mapping[str, Any]

    @property
    def checked(self) -> bool:
        return KIND_CORRECT in self.notes or LABEL_KEPT in self.notes

    @property
    def counts(self) -> bool:
        return KIND_CORRECT in self.notes or self.reason in FAILED


def _judged(edited: Edited) -> Iterator[_Judged]:
    for proposal in edited.proposals:
        edit, details = proposal.edits[-1], proposal.details
        if edit is not None and details:
            yield _Judged(edit.kind, "", details[-1])
    for lost in edited.rejected:
        if lost.text:
            yield _Judged(lost.edit.kind, lost.reason, lost.extra)


def _count(kind: str, edits: Sequence[_Judged]) -> EditMeasures:
    labelled = [edit for edit in edits if LABEL_KEPT in edit.notes]
    # For a kind that no check judges, failed edits are not representative.
    judged = any(KIND_CORRECT in edit.notes for edit in edits)
    rejected = [one for one in labelled if one.reason == CHANGES_LABEL]
    return EditMeasures(
        kind,
        edits=sum(edit.counts for edit in edits) if judged else 0,
        correct=sum(edit.notes.get(KIND_CORRECT) is True for edit in edits),
        labelled=len(labelled),
        kept=sum(one.notes[LABEL_KEPT] is True for one in labelled),
        caught=sum(one.notes[LABEL_KEPT] is False for one in rejected),
        rejected=len(rejected),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
