"""Filters of candidate edits, and rankers that choose among the remaining ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.protocols import LanguageModel
from cfaug.core.rng import generator
from cfaug.core.types import Edited, Proposal
from cfaug.core.validation import Seed
from cfaug.editing.edit_checks import EditCounts, table_lines
from cfaug.editing.protocols import TAGS, Candidate, SentenceEmbedder, Tagger, round_digits
from cfaug.editing.sentence import normalise


@dataclass(frozen=True)
class PartOfSpeech:
    """Keeps candidates whose new word has the replaced word's part of speech (section 3.1)."""

    tagger: Tagger
    """the tagger of parts of speech"""
    name: ClassVar[str] = "part_of_speech"

    def keep(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates whose new word has a tag of that part of speech."""
        tags = self.tagger.tag([c.edited.words for c in candidates])
        return [
            c
            for c, sentence_tags in zip(candidates, tags, strict=True)
            if sentence_tags[c.slot.first].startswith(TAGS[c.part_of_speech])
        ]

    def describe(self) -> dict[str, str]:
        return self.tagger.describe()


@dataclass(frozen=True)
class SimilarityBand:
    """Keeps candidates whose caption is similar to the original, but not too similar (B.1.1).

    Args:
        encoder: a sentence encoder; all-MiniLM-L6-v2 in the paper.
        low: the lower bound of the cosine, exclusive.
        high: the upper bound of the cosine, exclusive.
    """

    encoder: SentenceEmbedder
    low: float = 0.8
    high: float = 0.91
    name: ClassVar[str] = "similarity"

    def __post_init__(self) -> None:
        if not -1 <= self.low < self.high <= 1:
            raise UserError(
                f"similarity band ({self.low}, {self.high}): give -1 <= low < high <= 1"
            )

    def keep(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates within the band, with their ``similarity`` as a note."""
        texts = {c.original.text: None for c in candidates}
        texts |= {c.edited.text: None for c in candidates}
        rows = {text: i for i, text in enumerate(texts)}
        if not rows:
            return []
        vectors = self.encoder.encode(list(rows))
        originals = vectors[[rows[c.original.text] for c in candidates]]
        edited = vectors[[rows[c.edited.text] for c in candidates]]
        cosines = np.einsum("nd,nd->n", originals, edited, dtype=np.float64)
        return [
            replace(candidate, notes={**candidate.notes, "similarity": cosine})
            for candidate, cosine in zip(candidates, map(round_digits, cosines), strict=True)
            if self.low < cosine < self.high
        ]

    def describe(self) -> dict[str, str]:
        return self.encoder.describe()


@dataclass(frozen=True)
class NotASibling:
    """Drops candidates that equal another caption of the same image.

    The other captions are ``example.extra["siblings"]``, a list of texts; without it no candidate
    is dropped. The paper does not have this filter.
    """

    name: ClassVar[str] = "sibling"
    needs_siblings: ClassVar[bool] = True

    def keep(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates that differ from every sibling, ignoring case and white space."""
        siblings = {
            c.row: {normalise(str(text)).lower() for text in c.example.extra.get("siblings", ())}
            for c in candidates
        }
        return [c for c in candidates if c.edited.text.lower() not in siblings[c.row]]

    def describe(self) -> dict[str, str]:
        return {}


@dataclass(frozen=True)
class LowestPerplexity:
    """Ranks candidates by the perplexity of a causal language model (gpt2-large in B.1.1).

    Ties go to the lower rank of the masked language model, then to the earlier noun.
    """

    model: LanguageModel
    """the language model"""

    def rank(self, groups: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Return each group by rising perplexity, with notes ``perplexity_0``, ``perplexity_1``."""
        texts = {c.original.text: None for group in groups for c in group}
        texts |= {c.edited.text: None for group in groups for c in group}
        values = self.model.perplexity(list(texts)) if texts else np.empty(0)
        known = {text: round_digits(float(v)) for text, v in zip(texts, values, strict=True)}

        ranked: list[list[Candidate]] = []
        for group in groups:
            ranked.append([])
            for c in sorted(group, key=lambda c: (known[c.edited.text], c.rank, c.position)):
                before, after = known[c.original.text], known[c.edited.text]
                notes = {**c.notes, "perplexity_0": before, "perplexity_1": after}
                ranked[-1].append(replace(c, notes=notes))
        return ranked

    def describe(self) -> dict[str, str]:
        return self.model.describe()


@dataclass(frozen=True)
class KeyedChoice:
    """Ranks candidates at random: for worlds in which no caption is surprising."""

    seed: Seed = 0
    """the seed of what is drawn"""

    def rank(self, groups: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Return each group in an order that depends only on the seed and the caption's key."""
        draws = [generator(self.seed, "edit", group[0].example.key) for group in groups]
        return [
            [group[i] for i in draw.permutation(len(group))]
            for group, draw in zip(groups, draws, strict=True)
        ]

    def describe(self) -> dict[str, str]:
        return {}


def caption_report(
    shards: Sequence[Iterable[Edited]], *, examples: int = 100, seed: int = 0
) -> str:
    """Return a Markdown page: captions and candidates left by stage, and random edits.

    Args:
        shards: the results of each shard, iterated once, and again where an edit is shown.
        examples: the largest number of edits to show, drawn without replacement.
        seed: the seed of the draw, which depends only on it and on the number of edits.
    """
    captions, candidates, rejected = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    ended = Counter[str | None]()
    numbers, with_edit, counts = [], 0, EditCounts()
    for shard in shards:
        number = 0
        for result in shard:
            chosen = sum(not is_control(proposal) for proposal in result.proposals)
            number += chosen
            with_edit += chosen > 0
            for stage, left in result.survivors.items():
                captions[stage] += left > 0
                candidates[stage] += left
            ended[result.rejected_by] += 1
            rejected.update((lost.reason, lost.edit.kind) for lost in result.rejected)
            counts.add(result)
        numbers.append(number)
    of, proposals = ended.total(), sum(numbers)
    share = f" ({with_edit / of:.1%})" if of else ""
    lines = [
        "# Caption edits",
        "",
        f"{with_edit:,} of {of:,} captions have an edit{share}.",
        "",
        "| after | captions with a candidate | candidates | captions that ended here |",
        "|---|---:|---:|---:|",
    ]
    for stage in candidates:
        lines.append(
            f"| {stage} | {captions[stage]:,} | {candidates[stage]:,} | {ended[stage]:,} |"
        )
    unchosen = ended["nothing chosen"]
    lines += [f"| choice | {with_edit:,} | {proposals:,} | {unchosen:,} |", ""]
    if rejected:
        kinds = sorted({kind for _, kind in rejected})
        named = " | ".join(map(_escape, kinds))
        lines += ["## Rejected edits", "", f"| reason | {named} |", f"|---|{'---:|' * len(kinds)}"]
        for reason in dict.fromkeys(reason for reason, _ in rejected):
            cells = " | ".join(f"{rejected[reason, kind]:,}" for kind in kinds)
            lines.append(f"| {_escape(reason)} | {cells} |")
        lines.append("")
    if measures := counts.measures():
        sentence = (
            "Every variation that changes something, before the guards; the filter is the label's."
        )
        lines += ["## How good the edits are", "", sentence, "", *table_lines(measures), ""]
    rows = np.sort(generator(seed, "caption report").permutation(proposals)[:examples])
    lines += [f"## {len(rows)} random edits", ""]
    ends = np.cumsum(numbers, dtype=np.int64)
    of_row = np.searchsorted(ends, rows, side="right")
    for shown in dict.fromkeys(of_row.tolist()):
        edits = [p for result in shards[shown] for p in result.proposals if not is_control(p)]
        for row in rows[of_row == shown] - (ends[shown] - numbers[shown]):
            lines += _show_proposal(edits[row])
    return "\n".join(lines) + "\n"


def _show_proposal(proposal: Proposal) -> Iterator[str]:
    details = proposal.extra.get("edits", ())
    source = _mark(proposal.texts[0], details[0]["span_0"] if details else (0, 0))
    yield f"- `{proposal.key}` {source}"
    for i, (edit, text) in enumerate(zip(proposal.edits[1:], proposal.texts[1:], strict=True)):
        scores = ""
        if i < len(details):
            detail = details[i]
            text = _mark(text, detail["span_1"])
            scores = ", ".join(
                f"{name} {detail[name]:.4g}"
                for name in ("similarity", "perplexity_0", "perplexity_1")
                if name in detail
            )
        else:
            text = _escape(text)
        change = f"{edit.before} → {edit.after}" if edit is not None else ""
        yield f"  - {text} ({_escape(change)}{'; ' + scores if scores else ''})"


def _mark(text: str, span: Sequence[int]) -> str:
    start, end = span
    if start == end:  # an insertion or a deletion
        return _escape(text)
    return f"{_escape(text[:start])}**{_escape(text[start:end])}**{_escape(text[end:])}"


def _escape(text: str) -> str:
    """Escape a caption, so that it is not read as Markdown or HTML."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{sign}" if sign in "\\`*_[]#|" else sign for sign in text)


def is_control(proposal: Proposal) -> bool:
    """Return whether a proposal has several texts, all equal."""
    return len(proposal.texts) > 1 and len(set(proposal.texts)) == 1
