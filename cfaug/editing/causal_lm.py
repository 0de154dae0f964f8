"""A causal language model: scores of texts, with shared prefixes computed once, and continuations.

Configurations name it ``cfaug.editing.causal_lm.CausalLM``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.protocols import LanguageModel
from cfaug.editing.batching import by_length
from cfaug.editing.prefixes import NODES, PrefixTree, Stacked, stack, trees
from cfaug.editing.pretrained import Pretrained
from cfaug.models.checkpoints import continuation

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


LOGITS = 1_000_000
"""Number of logits computed at once: 4 MB, which fit into a processor's cache."""


@dataclass(frozen=True)
class CausalLM(Pretrained):
    """A causal language model such as GPT-2 (gpt2-large in B.1.1).

    Args:
        share_prefixes: whether the common beginnings of texts are computed once
            (``cfaug.editing.prefixes``), which needs a model that takes custom positions and masks.
        add_start_token: whether the beginning-of-text token comes before every text, so that its
            first token is scored as well. COCO-Counterfactuals does not say whether it did; it is
            also the default of Hugging Face's ``evaluate``. ``False`` leaves the first token out of
            every score, and changes the candidate with the lowest perplexity for 22 % of captions.
    """

    share_prefixes: bool = True
    add_start_token: bool = True

    role = "causal_lm"
    transformers_class = "AutoModelForCausalLM"
    provides = (LanguageModel,)
    ineffective = Pretrained.ineffective | {"share_prefixes"}

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return exp of the mean negative log-likelihood per scored token: (texts,).

        Raises:
            UserError: if a text has no token to score, if the model cannot share prefixes, or if
                its tokenizer lacks the beginning-of-text token that ``add_start_token`` needs.
        """
        every = self._rows(texts)
        for text, row in zip(texts, every, strict=True):
            if len(row) < 2:
                raise UserError(
                    f"the perplexity of {text!r} is undefined: it has no token that is scored"
                    + (", for add_start_token=false" if row else "")
                )
        return np.exp(self._sums(every, [1] * len(every)) / [len(row) - 1 for row in every])

    def log_likelihood(
        self, texts: Sequence[str], contexts: Sequence[str] | None = None
    ) -> NDArray[np.float64]:
        """Return the natural log of the probability of each text: float64 (texts,).

        Args:
            texts: the texts to score.
            contexts: the unscored text directly before each text, with the space between the two;
                ``None`` for no context. Both are tokenised together; a token that joins the two
                belongs to the text.

        Raises:
            UserError: if a context and its text are longer than the model can read, or for the
                reasons of ``perplexity``.
        """
        before = ["" for _ in texts] if contexts is None else list(contexts)
        every = self._rows([a + b for a, b in zip(before, texts, strict=True)], cut=False)
        starts = [continuation(a, b) for a, b in zip(self._rows(before), every, strict=True)]
        return -self._sums(every, [max(1, start) for start in starts])

    def generate(self, prompts: Sequence[str], max_new_tokens: int) -> list[str]:
        """Return the greedy continuation of each prompt, without the prompt itself.

        Prompts of equal length form a batch, so that no prompt is padded.

        Args:
            prompts: any texts; a text that is too long for the model is cut at its end.
            max_new_tokens: the largest number of tokens added to a prompt; there are fewer if the
                model ends its text or reaches its length limit.
        """
        import torch

        most = min(max_new_tokens, self._longest - 1)
        every = [row[: self._longest - most] for row in self._rows(prompts)]
        texts = ["" for _ in prompts]
        for rows in by_length([len(row) for row in every], self._tokens_at_once):
            for length in sorted({len(every[row]) for row in rows}):
                alike = [row for row in rows if len(every[row]) == length]
                ids = torch.tensor([every[row] for row in alike], device=self._place)
                found = self._continue(ids, most)
                for row, text in zip(alike, found, strict=True):
                    texts[row] = text
        return texts

    def _continue(self, ids: Tensor, most: int) -> list[str]:
        import torch

        end, fill = self.tokenizer.eos_token_id, self.tokenizer.pad_token_id
        with torch.inference_mode():
            found = self.model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1,
                max_new_tokens=most, pad_token_id=end if fill is None else fill,
            )  # fmt: skip
        new = found[:, ids.shape[1] :]
        return list(self.tokenizer.batch_decode(new, skip_special_tokens=True))

    def _rows(self, texts: Sequence[str], *, cut: bool = True) -> list[list[int]]:
        """Return each text's tokens, after the beginning-of-text token if it is configured.

        Raises:
            UserError: if there is no such token, or a text that may not be cut is too long.
        """
        first = [self.tokenizer.bos_token_id] if self.add_start_token else []
        if None in first:
            raise UserError(
                f"{self.name_or_path}: its tokenizer has no beginning-of-text token; set "
                "add_start_token=false to leave the first token of every text unscored"
            )
        longest = self._longest - len(first)
        limit = longest if cut else longest + 1
        found = self._ids(texts, add_special_tokens=False, max_length=limit)
        for text, ids in zip(texts, found, strict=True):
            if len(ids) > longest:
                raise UserError(
                    f"{self.name_or_path} reads at most {self._longest} tokens, and this text with "
                    f"its context is longer: {text[:60]!r}..."
                )
        return [[*first, *ids] for ids in found]

    def _sums(self, every: Sequence[Sequence[int]], starts: Sequence[int]) -> NDArray[np.float64]:
        """Return each text's negative log-likelihood from its start token on, in nats."""
        if self.share_prefixes:
            self._check_sharing()
        return self._surprise(every, starts, self.share_prefixes)

    def _surprise(
        self, every: Sequence[Sequence[int]], starts: Sequence[int], share: bool
    ) -> NDArray[np.float64]:
        """Return each text's negative log-likelihood from its start token on."""
        planned = list(trees(every, min(NODES, self._tokens_at_once) if share else 0))
        sums = np.zeros(len(every))
        from_token = np.asarray(starts)
        for rows in by_length([len(tree) for tree in planned], self._tokens_at_once):
            batch = [planned[row] for row in rows]
            for tree, costs in zip(batch, self._surprises(batch, share), strict=True):
                sums[tree.texts] = tree.sums(costs, from_token[tree.texts])
        return sums

    def _surprises(self, batch: Sequence[PrefixTree], share: bool) -> NDArray[np.float64]:
        """Return (trees, nodes): the negative log-likelihood of each node after its ancestors."""
        import torch

        stacked = stack(batch, self.tokenizer.pad_token_id or 0)
        costs = np.zeros(stacked.tokens.shape)
        child = tuple(stacked.children)
        with torch.inference_mode():
            states = self._states(stacked, share)[stacked.rows, stacked.followed]
            tokens = torch.from_numpy(stacked.tokens[child]).to(self._place)
            # Only nodes with children need the head, the most expensive product.
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
            # In place: copying the logits costs more than the sum.
            top = logits.amax(-1, keepdim=True)
            totals = logits.sub_(top).exp_().sum(-1).log_() + top.squeeze(-1)
            found.append(totals[rows] - chosen)
        return torch.cat(found).double().cpu().numpy() if found else np.empty(0)

    def _check_sharing(self) -> None:
        """Refuse a model that mixes the branches of a tree; the check runs once."""
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
        together, alone = (self._surprise(probe, [1, 1], share) for share in (True, False))
        exact = self.dtype in ("float32", "float64")
        return bool(np.allclose(together, alone, rtol=1e-3 if exact else 0.1))
