"""Filters of candidate edits, and rankers that choose among the remaining ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.protocols import LanguageModel
from cfaug.core.rng import generator
from cfaug.core.types import Edited, Proposal
from cfaug.core.validation import Seed
from cfaug.editing.edit_checks import measure_edits, table_lines
from cfaug.editing.protocols import TAGS, Candidate, SentenceEmbedder, Tagger, round_digits
from cfaug.editing.rule_edits import is_control
from cfaug.editing.sentence import normalise


def _new_tags(tagger: Tagger, candidates: Sequence[Candidate]) -> list[str]:
    """Return the tag of each new word, for which the whole edited caption is tagged again."""
    tags = tagger.tag([candidate.edited.words for candidate in candidates])
    return [its[c.slot.first] for c, its in zip(candidates, tags, strict=True)]


@dataclass(frozen=True)
class PartOfSpeech:
    """Keeps candidates whose new word has the replaced word's part of speech (section 3.1)."""

    tagger: Tagger
    name: ClassVar[str] = "part_of_speech"

    def keep(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates whose new word has a tag of that part of speech."""
        tags = _new_tags(self.tagger, candidates)
        return [
            candidate
            for candidate, tag in zip(candidates, tags, strict=True)
            if tag.startswith(TAGS[candidate.part_of_speech])
        ]

    def describe(self) -> dict[str, str]:
        """Return the description of the tagger."""
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
        noted = zip(candidates, (round_digits(float(cosine)) for cosine in cosines), strict=True)
        return [
            replace(candidate, notes={**candidate.notes, "similarity": cosine})
            for candidate, cosine in noted
            if self.low < cosine < self.high
        ]

    def describe(self) -> dict[str, str]:
        """Return the encoder's description."""
        return self.encoder.describe()


@dataclass(frozen=True)
class NotASibling:
    """Drops candidates that equal another caption of the same image.

    The other captions are ``example.extra["siblings"]``, a list of texts; without it no candidate
    is dropped. The paper does not have this filter.
    """

    name: ClassVar[str] = "sibling"

    def keep(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates that differ from every sibling, ignoring case and white space."""
        siblings = {
            c.row: {normalise(str(text)).lower() for text in c.example.extra.get("siblings", ())}
            for c in candidates
        }
        return [c for c in candidates if c.edited.text.lower() not in siblings[c.row]]

    def describe(self) -> dict[str, str]:
        """Return an empty mapping: a plain rule."""
        return {}


@dataclass(frozen=True)
class LowestPerplexity:
    """Ranks candidates by the perplexity of a causal language model (gpt2-large in B.1.1).

    Ties go to the lower rank of the masked language model, then to the earlier noun.
    """

    model: LanguageModel

    def rank(self, groups: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Return each group by rising perplexity, with notes ``perplexity_0``, ``perplexity_1``."""
        texts = {c.original.text: None for group in groups for c in group}
        texts |= {c.edited.text: None for group in groups for c in group}
        values = self.model.perplexity(list(texts)) if texts else np.empty(0)
        known = {text: round_digits(float(v)) for text, v in zip(texts, values, strict=True)}

        def surprise(candidate: Candidate) -> tuple[float, int, int]:
            return known[candidate.edited.text], candidate.rank, candidate.position

        return [
            [
                replace(
                    c,
                    notes={
                        **c.notes,
                        "perplexity_0": known[c.original.text],
                        "perplexity_1": known[c.edited.text],
                    },
                )
                for c in sorted(group, key=surprise)
            ]
            for group in groups
        ]

    def describe(self) -> dict[str, str]:
        """Return the model's description."""
        return self.model.describe()


@dataclass(frozen=True)
class KeyedChoice:
    """Ranks candidates at random: for worlds in which no caption is surprising.

    Args:
        seed: the seed of the draw, together with the caption's key.
    """

    seed: Seed = 0

    def rank(self, groups: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Return each group in an order that depends only on the seed and the caption's key."""
        return [
            [group[i] for i in self._order(group[0].example.key, len(group))] for group in groups
        ]

    def _order(self, key: str, count: int) -> list[int]:
        return generator(self.seed, "edit", key).permutation(count).tolist()

    def describe(self) -> dict[str, str]:
        """Return an empty mapping: a plain rule."""
        return {}


# A readable report of the caption stage: captions left after each filter, and random edits.


def caption_report(edited: Sequence[Edited], *, examples: int = 100, seed: int = 0) -> str:
    """Return a Markdown page: captions and candidates left by stage, and random edits.

    Args:
        examples: the largest number of edits to show, drawn without replacement.
        seed: the seed of the draw, which depends only on it and on the number of edits.
    """
    found = [proposal for one in edited for proposal in _edits(one)]
    with_one = sum(bool(_edits(one)) for one in edited)
    share = f" ({with_one / len(edited):.1%})" if edited else ""
    lines = [
        "# Caption edits",
        "",
        f"{with_one:,} of {len(edited):,} captions have an edit{share}.",
        "",
        *_stages(edited),
        "",
        *_rejected(edited),
        *_measures(edited),
        *_examples(found, examples, seed),
    ]
    return "\n".join(lines) + "\n"


def _edits(edited: Edited) -> list[Proposal]:
    """Return the proposals with a changed text."""
    return [proposal for proposal in edited.proposals if not is_control(proposal)]


def _rejected(edited: Sequence[Edited]) -> list[str]:
    """Return a table of the rejected edits by reason and kind, if the editor keeps them."""
    counts = Counter((lost.reason, lost.edit.kind) for one in edited for lost in one.rejected)
    if not counts:
        return []
    kinds = sorted({kind for _, kind in counts})
    lines = [
        "## Rejected edits",
        "",
        f"| reason | {' | '.join(map(_escape, kinds))} |",
        f"|---|{'---:|' * len(kinds)}",
    ]
    for reason in dict.fromkeys(reason for reason, _ in counts):
        row = " | ".join(f"{counts[reason, kind]:,}" for kind in kinds)
        lines.append(f"| {_escape(reason)} | {row} |")
    return [*lines, ""]


def _measures(edited: Sequence[Edited]) -> list[str]:
    """Return the measures of edits and guards, if checks judged the edits."""
    found = measure_edits(edited)
    if not found:
        return []
    said = "Every variation that changes something, before the guards; the filter is the label's."
    return ["## How good the edits are", "", said, "", *table_lines(found), ""]


def _stages(edited: Sequence[Edited]) -> list[str]:
    names = dict.fromkeys(name for one in edited for name in one.survivors)
    captions: Counter[str] = Counter()
    candidates: Counter[str] = Counter()
    for one in edited:
        for name, left in one.survivors.items():
            captions[name] += left > 0
            candidates[name] += left
    ended = Counter(one.rejected_by for one in edited)
    lines = [
        "| after | captions with a candidate | candidates | captions that ended here |",
        "|---|---:|---:|---:|",
    ]
    for name in names:
        lines.append(f"| {name} | {captions[name]:,} | {candidates[name]:,} | {ended[name]:,} |")
    chosen = [len(_edits(one)) for one in edited if _edits(one)]
    unchosen = ended["nothing chosen"]
    return [*lines, f"| choice | {len(chosen):,} | {sum(chosen):,} | {unchosen:,} |"]


def _examples(proposals: Sequence[Proposal], count: int, seed: int) -> list[str]:
    rows = generator(seed, "caption report").permutation(len(proposals))[:count]
    lines = [f"## {len(rows)} random edits", ""]
    for row in sorted(rows.tolist()):
        lines.extend(_show_proposal(proposals[row]))
    return lines


def _show_proposal(proposal: Proposal) -> list[str]:
    details = proposal.extra.get("edits", ())
    lines = [f"- `{proposal.key}` {_mark_source(proposal, 0)}"]
    for i, (edit, text) in enumerate(zip(proposal.edits[1:], proposal.texts[1:], strict=True)):
        if i < len(details):
            detail = details[i]
            text = _mark(text, detail["span_1"])
            scores = ", ".join(
                f"{name} {detail[name]:.4g}"
                for name in ("similarity", "perplexity_0", "perplexity_1")
                if name in detail
            )
        else:
            text, scores = _escape(text), ""
        what = f"{edit.before} → {edit.after}" if edit is not None else ""
        lines.append(f"  - {text} ({_escape(what)}{'; ' + scores if scores else ''})")
    return lines


def _mark_source(proposal: Proposal, detail: int) -> str:
    details = proposal.extra.get("edits", ())
    if detail >= len(details):
        return _escape(proposal.texts[0])
    return _mark(proposal.texts[0], details[detail]["span_0"])


def _mark(text: str, span: Sequence[int]) -> str:
    start, end = span
    if start == end:  # an insertion or a deletion
        return _escape(text)
    return f"{_escape(text[:start])}**{_escape(text[start:end])}**{_escape(text[end:])}"


def _escape(text: str) -> str:
    """Escape a caption, so that it is not read as Markdown or HTML."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{sign}" if sign in "\\`*_[]#|" else sign for sign in text)
