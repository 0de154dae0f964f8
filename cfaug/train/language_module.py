"""A language model that learns to answer prompts: its batches, loss and saved weights.

Imports Lightning, so only ``cfaug.train.task.fit`` imports this, when it is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from cfaug.core.errors import UserError
from cfaug.data.mixture.order import rank_share
from cfaug.editing.edit_prompts import EditAnswer, EditFormat
from cfaug.models import lora as adapters
from cfaug.models.checkpoints import longest_text, quiet, replace_checkpoint
from cfaug.train.module import Batch, KeepsTrained, Steps, TrainingModule
from cfaug.train.pair_modules import gather_all


@dataclass(frozen=True)
class TokenRow:
    """A prompt and its answer as tokens.

    Attributes:
        ids: the tokens of both, with those that begin and end a text.
        start: the index of the answer's first token; only tokens from there on are learnt.
    """

    ids: tuple[int, ...]
    start: int

    @property
    def answered(self) -> int:
        """The number of tokens of the answer."""
        return len(self.ids) - self.start


def collate(rows: Sequence[TokenRow], fill: int, rank: int = 0, world: int = 1) -> dict[str, Any]:
    """Return a process's share of a batch of rows, padded on the right.

    Args:
        rows: the rows of the whole batch.
        fill: the token that pads a row.
        rank: the number of this process.

    Returns:
        ``ids``, the tokens, and ``shown``, 1 where they are not padding, int64 (local, longest);
        ``answer`` bool (local, longest), the tokens that are learnt; ``global_size`` and
        ``tokens``, the numbers of rows and of answers' tokens over all processes.
    """
    mine = [rows[i] for i in rank_share(np.arange(len(rows)), rank, world)]
    longest = max((len(row.ids) for row in mine), default=1)
    ids = np.full((len(mine), longest), fill, dtype=np.int64)
    shown = np.zeros_like(ids)
    answer = np.zeros(ids.shape, dtype=bool)
    for i, row in enumerate(mine):
        ids[i, : len(row.ids)], shown[i, : len(row.ids)] = row.ids, 1
        answer[i, row.start : len(row.ids)] = True
    tensors = {"ids": ids, "shown": shown, "answer": answer}
    return {
        **{name: torch.from_numpy(array) for name, array in tensors.items()},
        "global_size": len(rows),
        "tokens": sum(row.answered for row in rows),
    }


class TunedLanguageModel(KeepsTrained):
    """A causal language model of transformers that is being tuned, with its tokenizer.

    Args:
        longest: the largest number of tokens of a prompt and its answer; longer ones are truncated.
        start: whether the beginning-of-text token, if the tokenizer has one, is put first.
        owner: the model's specification, which errors name.
    """

    held_in_evaluation: tuple[nn.Module, ...] = ()

    def __init__(
        self, model: Any, tokenizer: Any, longest: int, *, start: bool, owner: str
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.longest = min(longest, longest_text(model, tokenizer))
        self.start = start
        self.owner = owner
        if tokenizer.eos_token_id is None:
            raise UserError(f"{owner}: its tokenizer has no token that ends a text")

    @property
    def fill(self) -> int:
        """The token that pads a row."""
        pad = self.tokenizer.pad_token_id
        return int(self.tokenizer.eos_token_id if pad is None else pad)

    def encode(self, asked: EditFormat, answers: Sequence[EditAnswer]) -> list[TokenRow]:
        """Return each prompt followed by its answer, truncated to the model's length.

        Prompt and answer are tokenized separately, like the prompt when the model is used.
        """
        first = [self.tokenizer.bos_token_id] if self.start else []
        first = [token for token in first if token is not None]
        rows = []
        for sample in answers:
            prompt = [*first, *self._ids(asked.prompt(sample.prompt, sample.caption))]
            if len(prompt) >= self.longest:
                raise UserError(
                    f"{self.owner}: the prompt {sample.prompt!r} about {sample.caption[:60]!r} has "
                    f"{len(prompt)} tokens, and {self.longest} are read with the answer: choose "
                    "data.format=short, a larger data.max_length or a model that reads more"
                )
            answer = [*self._ids(asked.response(sample.edits)), self.tokenizer.eos_token_id]
            rows.append(TokenRow(tuple([*prompt, *answer][: self.longest]), len(prompt)))
        return rows

    def _ids(self, text: str) -> list[int]:
        with quiet():
            return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def costs(self, batch: Batch) -> Tensor:
        """Return the negative log-likelihood of each row's answer: (local,), float32, in nats."""
        device = next(self.model.parameters()).device
        ids, shown, answer = (batch[name].to(device) for name in ("ids", "shown", "answer"))
        logits = self.model(input_ids=ids, attention_mask=shown).logits[:, :-1]
        targets, learnt = ids[:, 1:], answer[:, 1:]
        costs = functional.cross_entropy(logits[learnt].float(), targets[learnt], reduction="none")
        spread = torch.zeros(targets.shape, device=device)
        return spread.masked_scatter(learnt, costs).sum(1)

    def save(self, folder: Path, asked: EditFormat, base: adapters.BaseModel | None) -> None:
        """Write a ``save_pretrained`` folder, or only the adapters; whole or not at all.

        Args:
            asked: the format of the prompts in training, written beside the weights.
            base: the base model of the adapters; ``None`` merges them.
        """
        if base is None:
            adapters.merge(self.model)
        with replace_checkpoint(folder) as fresh, quiet():
            if base is None:
                self.model.save_pretrained(fresh)
            else:
                adapters.save(self.model, fresh, base)
            self.tokenizer.save_pretrained(fresh)
            asked.write(fresh)


class LanguageModule(TrainingModule):
    """Fine-tuning of a language model on answers to prompts; all tokens of answers weigh the same.

    Args:
        steps: the optimizer, the length of the run and its seed.
    """

    strict_loading = False  # a checkpoint holds only trained weights

    def __init__(self, tuned: TunedLanguageModel, steps: Steps) -> None:
        super().__init__(steps)
        self.tuned = tuned

    @property
    def trained(self) -> TunedLanguageModel:
        """The language model."""
        return self.tuned

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean negative log-likelihood of the batch's answer tokens."""
        costs = self._costs(batch)
        (every,) = gather_all([costs[:, None]], batch["global_size"])
        return every.sum() / batch["tokens"]

    def _costs(self, batch: Batch) -> Tensor:
        if len(batch["ids"]):
            return self.tuned.costs(batch)
        # The last batch can leave this process without a row, and DDP waits for every parameter:
        # read a blank and discard it.
        blank = torch.zeros((1, 2), dtype=torch.int64)
        whole = {"ids": blank, "shown": blank + 1, "answer": blank == 0}
        return self.tuned.costs(whole)[:0]

    def weight(self, batch: Batch) -> float:
        """Return the number of tokens that are learnt."""
        return float(batch["tokens"])

    def share(self, loss: Tensor, batch: Batch, step: list[Batch]) -> Tensor:
        """Return a batch's share of the step's loss by its tokens, as if all were one batch."""
        return loss * (batch["tokens"] / sum(micro["tokens"] for micro in step))
