"""Attention with queries and keys from other rows: shared self-attention, cross-attention control.

Copying a row's attention map is the same as copying its queries and keys (in exact arithmetic, when
the map is taken whole from one row): values, output projection and residual stay the row's own.
Every row has the index of the row whose map it uses, so that pairs, sets and different p fit in one
batch, and results do not depend on the order of rows (InstructPix2Pix asserts a batch of four).

Control of cross-attention folds into the values: after the softmax every prompt-to-prompt edit is
linear in the columns of the map, so ``(A @ W) @ V`` is computed as ``A @ (W @ V)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.core.words import caption_changes, word_spans

if TYPE_CHECKING:
    from diffusers import UNet2DConditionModel
    from diffusers.models.attention_processor import Attention
    from torch import Tensor
    from transformers import CLIPTokenizer

    from cfaug.imaging.tree import Branches


Heads = tuple["Tensor", "Tensor"]
"""Queries and keys, each (rows, heads, tokens, width)."""


@dataclass(frozen=True)
class CrossRows:
    """Cross-attention control of some rows of a call; matrices are (rows, tokens, tokens).

    Attributes:
        rows: the rows whose maps are changed.
        source: the row that lends the other map to each of these rows; a number after the call's
            own rows is a row of an earlier call.
        from_source: the matrices ``W_b`` for the maps of the sources.
        from_own: the matrices ``W_e`` for the rows' own maps.
    """

    rows: Tensor
    source: Tensor
    from_source: Tensor
    from_own: Tensor


@dataclass(frozen=True)
class CallRows:
    """Information about the rows of one call for the attention layers.

    Attributes:
        source: (rows,) the row whose queries and keys a row uses in self-attention; its own index
            if it shares no attention. ``rows`` and ``rows + 1`` are the two rows lent by an earlier
            call.
        text: (rows,) the index of a row's text among the call's distinct texts.
        lend: (2,) the rows that later calls of the same step borrow; ``None`` if they borrow none.
        borrow: whether this call uses rows lent by an earlier call.
        cross: the control of cross-attention; ``None`` for no control.
    """

    source: Tensor
    text: Tensor
    lend: Tensor | None = None
    borrow: bool = False
    cross: CrossRows | None = None


class SharedAttention:
    """State shared by all layers of one UNet: the rows of the current call, and the lent rows.

    The sampler sets ``rows`` before each call; no layer counts steps or calls.

    Args:
        max_tokens: the largest number of tokens up to which self-attention is shared; ``None`` for
            no limit (prompt-to-prompt: 32 * 32 or 16 * 16; InstructPix2Pix: no limit).
        cross: whether cross-attention is controlled, so that its maps are lent too.
    """

    def __init__(self, max_tokens: int | None = None, *, cross: bool = False) -> None:
        self.max_tokens, self.cross = max_tokens, cross
        self.rows: CallRows | None = None
        self.lent: dict[str, Heads] = {}

    def attach(self, unet: UNet2DConditionModel) -> None:
        """Replace the UNet's attention processors."""
        layers = {name: module for name, module in unet.named_modules() if hasattr(module, "to_q")}
        for name, layer in layers.items():
            odd = [
                part for part in ("group_norm", "spatial_norm", "norm_cross", "norm_q", "norm_k")
                if getattr(layer, part) is not None
            ]  # fmt: skip
            if odd or not name.endswith(("attn1", "attn2")):
                raise UserError(
                    f"the UNet's layer {name} is not an attention layer of Stable Diffusion "
                    f"({', '.join(odd) or 'neither attn1 nor attn2'}): sharing is not defined"
                )
        unet.set_attn_processor({f"{name}.processor": _Processor(self, name) for name in layers})

    def pool(self, name: str, heads: Heads, rows: CallRows) -> Heads:
        """Return the call's queries and keys, then the borrowed ones; lend the requested rows."""
        query, key = heads
        if rows.borrow:
            lent_query, lent_key = self.lent[name]
            heads = torch.cat([query, lent_query]), torch.cat([key, lent_key])
        if rows.lend is not None:
            self.lent[name] = query[rows.lend], key[rows.lend]
        return heads


class _Processor:
    """One layer's attention; the interface is diffusers' ``AttnProcessor2_0``."""

    def __init__(self, shared: SharedAttention, name: str) -> None:
        self.shared, self.name = shared, name

    def __call__(
        self,
        attn: Attention,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        temb: Tensor | None = None,
    ) -> Tensor:
        rows = self.shared.rows
        if rows is None or attention_mask is not None:
            raise RuntimeError("set SharedAttention.rows before the call, and pass no mask")
        if encoder_hidden_states is None:
            mixed = self._self(attn, hidden_states, rows)
        else:
            mixed = self._cross(attn, hidden_states, encoder_hidden_states, rows)
        joined = mixed.transpose(1, 2).flatten(2)
        out: Tensor = attn.to_out[1](attn.to_out[0](joined))
        return out

    def _self(self, attn: Attention, hidden: Tensor, rows: CallRows) -> Tensor:
        value = _heads(attn.to_v(hidden), attn.heads)
        query, key = _heads(attn.to_q(hidden), attn.heads), _heads(attn.to_k(hidden), attn.heads)
        limit = self.shared.max_tokens
        if limit is None or hidden.shape[1] <= limit:
            query, key = self.shared.pool(self.name, (query, key), rows)
            query, key = query[rows.source], key[rows.source]
        return F.scaled_dot_product_attention(query, key, value)

    def _cross(self, attn: Attention, hidden: Tensor, texts: Tensor, rows: CallRows) -> Tensor:
        # Distinct texts are projected once and then distributed to the rows.
        query = _heads(attn.to_q(hidden), attn.heads)
        key = _heads(attn.to_k(texts), attn.heads)[rows.text]
        value = _heads(attn.to_v(texts), attn.heads)[rows.text]
        if not self.shared.cross:
            return F.scaled_dot_product_attention(query, key, value)
        pool_query, pool_key = self.shared.pool(self.name, (query, key), rows)
        control = rows.cross
        if control is None:
            return F.scaled_dot_product_attention(query, key, value)
        edited = value[control.rows]
        value = value.index_copy(0, control.rows, control.from_own[:, None] @ edited)
        mixed = F.scaled_dot_product_attention(query, key, value)
        other = F.scaled_dot_product_attention(
            pool_query[control.source],
            pool_key[control.source],
            control.from_source[:, None] @ edited,
        )
        return mixed.index_add(0, control.rows, other)


def _heads(flat: Tensor, heads: int) -> Tensor:
    """Map (rows, tokens, heads * width) to (rows, heads, tokens, width)."""
    return flat.unflatten(-1, (heads, -1)).transpose(1, 2)


@dataclass(frozen=True)
class Folds:
    """The matrices of cross-attention control for the texts of one tree.

    Attributes:
        tokens: the tokens of each text of the tree.
        steps: the number of the sampler's steps.
        dtype: the number format of the matrices, the UNet's own.
    """

    control: CrossAttention
    tokens: Sequence[Tokens]
    steps: int
    device: torch.device
    dtype: torch.dtype

    @cached_property
    def _made(self) -> dict[tuple[int, int, bytes], Tensor]:
        return {}

    @cached_property
    def _schedules(self) -> dict[int, NDArray[np.bool_]]:
        return {}

    def _schedule(self, text: int) -> NDArray[np.bool_]:
        if text not in self._schedules:
            self._schedules[text] = self.control.schedule(self.tokens[text], self.steps)
        return self._schedules[text]

    def changes(self, tree: Branches) -> set[int]:
        """Return the steps at which any edit's matrices change."""
        found: set[int] = set()
        for text in set(tree.text[tree.image > 0].tolist()):
            table = self._schedule(text)
            found |= set((np.flatnonzero((table[1:] != table[:-1]).any(1)) + 1).tolist())
        return found

    def __call__(self, base: int, edited: int, step: int) -> Tensor | None:
        """Return the matrices for source and edited text, (2, tokens, tokens); ``None`` for none.

        Maps are not edited at a step without active tokens.
        """
        active = self._schedule(edited)[step]
        if not active.any():
            return None
        key = base, edited, active.tobytes()
        if key not in self._made:
            both = self.control.matrices(self.tokens[base], self.tokens[edited], active)
            self._made[key] = torch.from_numpy(both).to(self.device, self.dtype)
        return self._made[key]


# Prompt-to-prompt's control of cross-attention, as two small matrices per edit.
#
# Let ``A_b`` and ``A_e`` be the softmaxed maps (pixels x tokens) of the base and the edited image.
# All edits of Hertz et al. (2022) have the form ``A_b @ from_source + A_e @ from_own``: *replace*
# moves the columns of the base's map to the new places of its words, *refine* keeps the base's
# columns for common words and the edited image's own columns for new words, and a weight scales the
# columns of edited words. Maps are not renormalised, as in the reference. Two errors of the
# reference are not repeated: after an edit that changed the number of tokens, *replace* took
# shifted columns for all later words; and if the base is longer, *refine* used real words of the
# base as padding.

Matrix = NDArray[np.float64]
Share = float | Sequence[float]
KINDS = ("replace", "refine", "auto")
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
    found = tokenizer(
        text, padding="max_length", truncation=True, max_length=length, return_offsets_mapping=True
    )
    spans = tuple((int(a), int(b)) for a, b in found["offset_mapping"])
    return Tokens(text, tuple(found["input_ids"]), spans, int(sum(found["attention_mask"])))


def find_phrase(tokens: Tokens, phrase: str) -> list[int]:
    """Return the tokens of every occurrence of ``phrase`` as whole words, ignoring case."""
    pattern = re.compile(rf"(?<!\w){re.escape(phrase)}(?!\w)", re.IGNORECASE)
    found = {t for m in pattern.finditer(tokens.text) for t in tokens.covering(*m.span())}
    if not found:
        raise UserError(f"the text {tokens.text!r} has no words {phrase!r} (that reach the model)")
    return sorted(found)


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
    found = np.full(len(edited.ids), -1, dtype=np.int64)
    i, j = len(x), len(y)
    while i and j:
        if score[i, j] == score[i, j - 1]:
            j -= 1
        elif score[i, j] == score[i - 1, j]:
            i -= 1
        else:
            i, j = i - 1, j - 1
            found[j] = i
    padding = np.arange(max(len(x), len(y)), len(base.ids))
    found[len(y) : len(y) + len(padding)] = padding
    return found


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

    Raises:
        UserError: for an unknown kind, or shares outside [0, 1].
    """

    kind: str = "replace"
    steps: float | Mapping[str, Share] = 0.8
    edited_weight: float = 1.0
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"cross.kind={self.kind!r} is not one of: {', '.join(KINDS)}")
        for share in self._shares().values():
            low, high = _bounds(share)
            if not 0 <= low <= high <= 1:
                raise UserError(f"cross.steps={self.steps} must be shares between 0 and 1")

    def _shares(self) -> dict[str, Share]:
        steps = self.steps if isinstance(self.steps, Mapping) else {DEFAULT: self.steps}
        return {DEFAULT: 1.0, **steps}

    def schedule(self, edited: Tokens, steps: int) -> NDArray[np.bool_]:
        """Return (steps, tokens): whether a step edits the map of a token of ``edited``.

        Bounds are counted as in the reference, in steps + 1 rows: 0.8 of 50 steps is 40 steps.
        """
        table = np.zeros((steps + 1, len(edited.ids)), dtype=bool)
        for phrase, share in self._shares().items():
            at = slice(None) if phrase == DEFAULT else find_phrase(edited, phrase)
            low, high = (int(bound * (steps + 1)) for bound in _bounds(share))
            table[:, at] = False
            table[low:high, at] = True
        return table[:steps]

    def factors(self, base: Tokens, edited: Tokens) -> Matrix:
        """Return the factor on the map of each token of ``edited``, (tokens,)."""
        found = np.ones(len(edited.ids))
        for change in caption_changes(base.text, edited.text):
            found[edited.covering(*change.after)] = self.edited_weight
        for phrase, factor in self.weights.items():
            found[find_phrase(edited, phrase)] = factor
        return found

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
            for phrase in {*self._shares(), *self.weights} - {DEFAULT}:
                find_phrase(edited, phrase)
        except UserError:
            return MISSING
        return ""

    def matrices(self, base: Tokens, edited: Tokens, active: NDArray[np.bool_]) -> Matrix:
        """Return ``from_source`` and ``from_own``, stacked (2, tokens, tokens).

        Args:
            active: the row of ``schedule`` for a step, (tokens,).
        """
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


def _bounds(share: Share) -> tuple[float, float]:
    if isinstance(share, (int, float)):
        return 0.0, float(share)
    low, high = share
    return float(low), float(high)
