"""Minimal edits of captions by replacing one word (COCO-Counterfactuals, section 3.1 and B.1.1).

Every word of a part of speech is masked in turn and a masked language model fills the blank;
filters drop unsuitable candidates, and the least surprising one is chosen. All captions of a call
go through each model in batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from cfaug.core.annotations import NO_RESULT
from cfaug.core.errors import UserError
from cfaug.core.text import normalise_caption
from cfaug.core.types import Edit, Edited, Example, Proposal
from cfaug.core.validation import Positive, check_fields
from cfaug.editing.protocols import (
    TAGS,
    Blank,
    Candidate,
    CandidateFilter,
    MaskFiller,
    Ranker,
    Tagger,
    round_digits,
)
from cfaug.editing.sentence import Sentence, Slot, copy_case, normalise, replace_slot, split
from cfaug.settings.read_if import ReadIf

AUXILIARIES = frozenset(
    ("be", "am", "is", "are", "was", "were", "been", "being", "'s", "'re", "'m",
     "have", "has", "had", "having", "'ve", "do", "does", "did", "doing")
)  # fmt: skip
"""Auxiliary verbs, whose replacement does not change the content."""
FRAME_WORDS = frozenset(
    ("photo", "photograph", "picture", "pic", "image", "view", "shot", "snapshot", "closeup",
     "close-up")
)  # fmt: skip
"""Nouns that name the picture itself where "of" follows, as in "a photo of an ostrich"."""
TOO_LONG = "max_words"
"""The stage at which a text of too many words is rejected."""
USUAL_WORDS = 60
"""Length in words that few captions exceed: ``chunk`` captions of this length go through the models
together."""


@dataclass(frozen=True)
class Substitution:
    """Replaces one word of a caption: the paper's ``Editor``.

    Args:
        ranker: the part that orders the candidates that pass the filters, the best first.
        filters: the filters, applied in turn; with a mapping, a configuration can override a filter
            by name, or leave it out (``None``).
        part_of_speech: ``noun`` as in the paper, ``adjective`` or ``verb`` (without auxiliaries).
        top_k: the number of the filler's guesses (10 in B.1.1).
        refill_to_k: whether further guesses, up to five times ``top_k``, are used until ``top_k``
            are words other than the original; the paper has no such refill.
        noun_runs: the part to replace of a run such as "fire hydrant": ``each`` of its nouns as in
            the paper, only the ``head``, or the ``whole`` run by one word.
        keep_frame: whether ``FRAME_WORDS`` before "of" stay: "a picture of an ostrich" shows what
            "a photo of an ostrich" shows. The paper edits them, too.
        repair_article: whether "a" becomes "an" where the new word needs it; not in the paper.
        edits: the number of edits of a set, each of one word; captions with fewer get no set.
        kind: the kind of the edits in the records; ``None`` is the part of speech.
        chunk: the number of captions that go through the models together, fewer if they are long;
            it bounds memory without changing results.
        max_words: the largest number of words of a text to edit: every candidate is a copy of the
            whole, so that work and memory grow with the square of its length.
    """

    tagger: Tagger
    """the tagger of parts of speech"""
    filler: MaskFiller
    """the masked language model that proposes words"""
    ranker: Ranker
    filters: Sequence[CandidateFilter] | Mapping[str, CandidateFilter | None] = ()
    part_of_speech: Literal["noun", "adjective", "verb"] = "noun"
    top_k: Positive = 10
    refill_to_k: bool = False
    noun_runs: Annotated[
        Literal["each", "head", "whole"], ReadIf({"part_of_speech": ("noun",)})
    ] = "each"
    keep_frame: bool = True
    repair_article: bool = False
    edits: Positive = 1
    kind: str | None = None
    chunk: Annotated[Positive, NO_RESULT] = 1000
    max_words: Positive = 1500
    _parts: tuple[CandidateFilter, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")
        given = self.filters.values() if isinstance(self.filters, Mapping) else self.filters
        object.__setattr__(self, "_parts", tuple(part for part in given if part is not None))
        names = [part.name for part in self._parts]
        if len(set(names)) < len(names):
            raise UserError(f"two filters have one name: {', '.join(names)}")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal, or none, for the first text of each example, in order."""
        lengths = [len(example.text.split()) for example in examples]
        results = [Edited((), {TOO_LONG: 0}) for _ in examples]
        chunks: list[list[int]] = []
        left = 0
        for row, length in enumerate(lengths):
            if length > self.max_words:
                continue
            if not chunks or len(chunks[-1]) == self.chunk or length**2 > left:
                chunks.append([])
                left = self.chunk * USUAL_WORDS**2
            chunks[-1].append(row)
            left -= length**2
        for rows in chunks:
            for row, result in zip(rows, self._edit([examples[i] for i in rows]), strict=True):
                results[row] = result
        return results

    def describe(self) -> dict[str, str]:
        """Return the descriptions of the parts, for the card."""
        described: dict[str, str] = {}
        for part in (self.tagger, self.filler, *self._parts, self.ranker):
            described |= part.describe()
        return described

    def _edit(self, examples: Sequence[Example]) -> list[Edited]:
        sentences = [split(normalise(example.text)) for example in examples]
        tags = self.tagger.tag([sentence.words for sentence in sentences])
        prepared = [
            (example, sentence, sentence_tags, self._slots(sentence, sentence_tags))
            for example, sentence, sentence_tags in zip(examples, sentences, tags, strict=True)
        ]
        blanks = [
            Blank(sentence.text, *slot.span(sentence))
            for _, sentence, _, slots in prepared
            for slot in slots
        ]
        reach = 5 * self.top_k if self.refill_to_k else self.top_k
        fills = iter(self.filler.fill(blanks, reach))
        survivors: list[dict[str, int]] = []
        candidates: list[Candidate] = []
        for row, (example, sentence, sentence_tags, slots) in enumerate(prepared):
            survivors.append({"positions": len(slots), "masks": 0})
            for position, slot in enumerate(slots):
                guesses = next(fills)
                survivors[row]["masks"] += min(len(guesses), self.top_k)
                start, end = slot.span(sentence)
                before = sentence.text[start:end]
                # Distinct words other than the original.
                seen = {normalise_caption(before)}
                for rank, fill in enumerate(guesses):
                    if fill.word is None or (name := normalise_caption(fill.word)) in seen:
                        continue
                    if len(seen) > self.top_k:
                        break
                    seen.add(name)
                    after = copy_case(fill.word, before)
                    candidates.append(
                        Candidate(
                            row=row,
                            example=example,
                            original=sentence,
                            part_of_speech=self.part_of_speech,
                            position=position,
                            slot=slot,
                            tag=sentence_tags[slot.last],
                            after=after,
                            edited=replace_slot(sentence, slot, after, article=self.repair_article),
                            rank=rank,
                            probability=fill.probability,
                        )
                    )
        _count("words", candidates, survivors)
        for part in self._parts:
            candidates = part.keep(candidates)
            _count(part.name, candidates, survivors)
        groups: dict[int, list[Candidate]] = {}
        for candidate in candidates:
            groups.setdefault(candidate.row, []).append(candidate)
        groups = {row: group for row, group in groups.items() if len(group) >= self.edits}
        ranked = dict(zip(groups, self.ranker.rank(list(groups.values())), strict=True))
        return [
            Edited((self._propose(ranked[row][: self.edits]),) if row in ranked else (), counts)
            for row, counts in enumerate(survivors)
        ]

    def _slots(self, sentence: Sentence, tags: Sequence[str]) -> list[Slot]:
        prefix = TAGS[self.part_of_speech]
        fit = [
            tag.startswith(prefix)
            and word.replace("-", "").isalpha()
            and not (self.part_of_speech == "verb" and word.lower() in AUXILIARIES)
            for word, tag in zip(sentence.words, tags, strict=True)
        ]
        if self.keep_frame:
            follows = ""
            for index, word in reversed([*enumerate(map(str.lower, sentence.words))]):
                if follows == "of" and word in FRAME_WORDS:
                    fit[index] = False  # and so is "close-up" in "a close-up view of"
                else:
                    follows = word
        every = [i for i, fits in enumerate(fit) if fits]
        if self.noun_runs == "each" or self.part_of_speech != "noun":
            return [Slot(i, i) for i in every]
        ends = [i for i in every if not (i + 1 < len(fit) and fit[i + 1])]
        if self.noun_runs == "head":
            return [Slot(i, i) for i in ends]
        starts = [i for i in every if not (i > 0 and fit[i - 1])]
        return [Slot(first, last) for first, last in zip(starts, ends, strict=True)]

    def _propose(self, chosen: Sequence[Candidate]) -> Proposal:
        example, original = chosen[0].example, chosen[0].original.text
        kind = self.kind or self.part_of_speech
        details = [
            {
                "span_0": list(candidate.slot.span(candidate.original)),
                "span_1": list(candidate.edited.spans[candidate.slot.first]),
                "word_0": candidate.before,
                "word_1": candidate.after,
                "tag": candidate.tag,
                "rank": candidate.rank,
                "probability": round_digits(candidate.probability),
                **candidate.notes,
            }
            for candidate in chosen
        ]
        return Proposal(
            example,
            texts=(original, *(c.edited.text for c in chosen)),
            edits=(None, *(Edit(kind, c.before, c.after) for c in chosen)),
            extra={"edits": details} | ({"raw": example.text} if example.text != original else {}),
        )


def _count(name: str, candidates: Sequence[Candidate], survivors: Sequence[dict[str, int]]) -> None:
    for counts in survivors:
        counts[name] = 0
    for candidate in candidates:
        survivors[candidate.row][name] += 1
