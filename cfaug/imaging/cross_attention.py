"""Prompt-to-prompt's control of cross-attention, as two small matrices per edit.

Let ``A_b`` and ``A_e`` be the softmaxed maps (pixels x tokens) of the base and the edited image.
All edits of Hertz et al. (2022) have the form ``A_b @ from_source + A_e @ from_own``: *replace*
moves the columns of the base's map to the new places of its words, *refine* keeps the base's
columns for common words and the edited image's own columns for new words, and a weight scales the
columns of edited words. Maps are not renormalised, as in the reference. Two errors of the reference
are not repeated: after an edit that changed the number of tokens, *replace* took shifted columns
for all later words; and if the base is longer, *refine* used real words of the base as padding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.data.captions import caption_changes, word_spans

if TYPE_CHECKING:
    from transformers import CLIPTokenizer

Matrix = NDArray[np.float64]
StepSpan = float | Sequence[float]
"""The steps during which maps are edited: the share from the first on, or [from, to] as shares."""
UNEQUAL, MISSING = "words_unequal", "words_missing"
"""Reasons why a control does not apply to an edit: the texts have different numbers of words; words
with their own share of the steps or their own weight are not in the text, or are truncated."""

DEFAULT = "default_"


@dataclass(frozen=True)
class Tokens:
    """A text as the encoder sees it: padded and truncated to the encoder's length.

    Attributes:
        spans: the characters (start, end) of each token; (0, 0) for special tokens.
        length: the number of tokens without padding, including start and end of text.
    """

    text: str
    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    length: int

    def covering(self, start: int, end: int) -> list[int]:
        """Return the tokens that overlap the characters [start, end)."""
        return [i for i, (a, b) in enumerate(self.spans) if a < end and start < b and a < b]


def tokenize(tokenizer: CLIPTokenizer, text: str) -> Tokens:
    """Tokenize one text, with the characters of each token."""
    length = tokenizer.model_max_length
    encoding = tokenizer(
        text, padding="max_length", truncation=True, max_length=length, return_offsets_mapping=True
    )
    spans = tuple((int(a), int(b)) for a, b in encoding["offset_mapping"])
    return Tokens(text, tuple(encoding["input_ids"]), spans, int(sum(encoding["attention_mask"])))


def find_phrase(tokens: Tokens, phrase: str) -> list[int]:
    """Return the tokens of every occurrence of ``phrase`` as whole words, ignoring case."""
    pattern = re.compile(rf"(?<!\w){re.escape(phrase)}(?!\w)", re.IGNORECASE)
    positions = {t for m in pattern.finditer(tokens.text) for t in tokens.covering(*m.span())}
    if not positions:
        raise UserError(f"the text {tokens.text!r} has no words {phrase!r} (that reach the model)")
    return sorted(positions)


def replace_matrix(base: Tokens, edited: Tokens) -> Matrix:
    """Return M (tokens of base x tokens of edited): the edited map is ``A_b @ M``.

    Words correspond one to one. If two words have the same number of tokens, they map token by
    token; otherwise each token of the new word gets an equal share of every token of the old one.
    """
    before, after = word_spans(base.text), word_spans(edited.text)
    if len(before) != len(after):
        raise UserError(
            f"cross-attention can be replaced only between texts of equally many words, not "
            f"{base.text!r} and {edited.text!r}: use kind: refine"
        )
    size = len(base.ids)
    matrix = np.zeros((size, size))
    matrix[0, 0] = 1
    i = j = 1
    for old, new in zip(before, after, strict=True):
        sources, targets = base.covering(*old), edited.covering(*new)
        if not sources or not targets:
            continue  # one of the texts was truncated before this word
        if len(sources) == len(targets):
            matrix[sources, targets] = 1
        else:
            matrix[np.ix_(sources, targets)] = 1 / len(targets)
        i, j = sources[-1] + 1, targets[-1] + 1
    # The tokens after the words: end of text and padding, in order.
    left = size - max(i, j)
    matrix[np.arange(i, i + left), np.arange(j, j + left)] = 1
    return matrix


def refine_alignment(base: Tokens, edited: Tokens) -> NDArray[np.int64]:
    """Return, for each token of ``edited``, the equal token of ``base``, or -1 for a new one.

    It is the alignment of Needleman and Wunsch with the reference's scores (match 1, mismatch -1,
    gap 0): a gap is cheaper than a mismatch, so a swapped word is new. Padding maps to padding: to
    the same position, as in the reference, if the edit is at least as long as the base, otherwise
    counted from the end of each text, and what is left over is new.
    """
    x, y = base.ids[: base.length], edited.ids[: edited.length]
    score = np.zeros((len(x) + 1, len(y) + 1))
    for i in range(1, len(x) + 1):
        for j in range(1, len(y) + 1):
            match = score[i - 1, j - 1] + (1 if x[i - 1] == y[j - 1] else -1)
            score[i, j] = max(score[i, j - 1], score[i - 1, j], match)
    alignment = np.full(len(edited.ids), -1, dtype=np.int64)
    i, j = len(x), len(y)
    while i and j:
        if score[i, j] == score[i, j - 1]:
            j -= 1
        elif score[i, j] == score[i - 1, j]:
            i -= 1
        else:
            i, j = i - 1, j - 1
            alignment[j] = i
    padding = np.arange(max(len(x), len(y)), len(base.ids))
    alignment[len(y) : len(y) + len(padding)] = padding
    return alignment


@dataclass(frozen=True)
class CrossAttention:
    """The control of cross-attention.

    Args:
        kind: ``replace`` (a new word takes the place of the old one), ``refine`` (a new word finds
            its own place), or ``auto``: replace if the texts differ by the exchange of one word,
            otherwise refine.
        steps: the share of the steps, from the first, during which maps are edited: a number, or
            ``{words of the edited text: number or [from, to], default_: ...}``.
        edited_weight: the factor on the maps of the changed words (LANCE: 2).
        weights: {words of the edited text: factor on their maps}.
    """

    kind: str = "replace"
    steps: float | Mapping[str, StepSpan] = 0.8
    edited_weight: float = 1.0
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in ("replace", "refine", "auto"):
            raise UserError(f"cross.kind={self.kind!r} is not one of: replace, refine, auto")
        for span in self._spans().values():
            low, high = _bounds(span)
            if not 0 <= low <= high <= 1:
                raise UserError(f"cross.steps={self.steps} must be shares between 0 and 1")

    def _spans(self) -> dict[str, StepSpan]:
        steps = self.steps if isinstance(self.steps, Mapping) else {DEFAULT: self.steps}
        return {DEFAULT: 1.0, **steps}

    def schedule(self, edited: Tokens, steps: int) -> NDArray[np.bool_]:
        """Return (steps, tokens): whether a step edits the map of a token of ``edited``.

        Bounds are counted as in the reference, in steps + 1 rows: 0.8 of 50 steps is 40 steps.
        """
        table = np.zeros((steps + 1, len(edited.ids)), dtype=bool)
        for phrase, span in self._spans().items():
            at = slice(None) if phrase == DEFAULT else find_phrase(edited, phrase)
            low, high = (int(bound * (steps + 1)) for bound in _bounds(span))
            table[:, at] = False
            table[low:high, at] = True
        return table[:steps]

    def factors(self, base: Tokens, edited: Tokens) -> Matrix:
        """Return the factor on the map of each token of ``edited``, (tokens,)."""
        factors = np.ones(len(edited.ids))
        for change in caption_changes(base.text, edited.text):
            factors[edited.covering(*change.after)] = self.edited_weight
        for phrase, factor in self.weights.items():
            factors[find_phrase(edited, phrase)] = factor
        return factors

    def _replaces(self, base: str, edited: str) -> bool:
        changes = caption_changes(base, edited)
        if self.kind != "auto" or len(changes) != 1:
            return self.kind == "replace"
        sides = (base[slice(*changes[0].before)], edited[slice(*changes[0].after)])
        return all(len(word_spans(side)) == 1 for side in sides)

    def misfit(self, base: Tokens, edited: Tokens) -> str:
        """Return the reason, in one word, why an edit cannot be controlled; empty if it can."""
        sides = [len(word_spans(text)) for text in (base.text, edited.text)]
        if self._replaces(base.text, edited.text) and sides[0] != sides[1]:
            return UNEQUAL
        try:
            for phrase in {*self._spans(), *self.weights} - {DEFAULT}:
                find_phrase(edited, phrase)
        except UserError:
            return MISSING
        return ""

    def matrices(self, base: Tokens, edited: Tokens, active: NDArray[np.bool_]) -> Matrix:
        """Return ``from_source`` and ``from_own``, stacked (2, tokens, tokens)."""
        size = len(edited.ids)
        if self._replaces(base.text, edited.text):
            moved, taken = replace_matrix(base, edited), np.ones(size)
        else:
            alignment = refine_alignment(base, edited)
            taken = (alignment >= 0).astype(np.float64)
            moved = np.zeros((size, size))
            moved[alignment, np.arange(size)] = taken
        factor = self.factors(base, edited)
        from_source = moved * (taken * factor * active)
        from_own = np.diag((1 - taken) * factor * active + (1 - active))
        return np.stack([from_source, from_own])


def _bounds(span: StepSpan) -> tuple[float, float]:
    if isinstance(span, (int, float)):
        return 0.0, float(span)
    low, high = span
    return float(low), float(high)
