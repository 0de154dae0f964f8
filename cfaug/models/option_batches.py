"""Answer options as rows of a batch: the model's inputs, and the tokens of each option.

They are for training, which processes every row completely for its gradient; ``option_scores``
computes the same for evaluation, with shared prefixes processed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cfaug.models.option_scores import Continued, EncodedQuestion
from cfaug.models.prompts import Option
from cfaug.models.translated import Translated

IGNORED = -100
"""Marks a place that does not predict a token of the option."""

DECODED = "decoder_input_ids"
"""The name of a separate decoder's input."""


@dataclass(frozen=True)
class OptionRow:
    """A question with one option.

    Attributes:
        inputs: the model's inputs by name, each of one row.
        targets: the next token of the option for every place with an output; ``IGNORED`` in the
            image, the prompt and the padding.
    """

    inputs: dict[str, Tensor]
    targets: list[int]

    @property
    def shapes(self) -> tuple[tuple[str, object], ...]:
        """The shapes that have to be equal within a batch: all except the length of texts."""
        length = self.inputs["input_ids"].shape
        return tuple(
            (name, "text" if one.shape == length or name == DECODED else tuple(one.shape))
            for name, one in sorted(self.inputs.items())
        )


def option_row(
    asked: EncodedQuestion, option: Option, scoring: Continued | Translated
) -> OptionRow:
    """Return a question with one of its options.

    Args:
        asked: the question.
        option: one of ``asked.options``.
        scoring: the model, which reads options after the prompt (``Continued``) or by a separate
            decoder (``Translated``).
    """
    wanted = option.ids[option.start :]
    if isinstance(scoring, Translated):
        said = torch.tensor([[scoring.start, *wanted[:-1]]])
        return OptionRow({**asked.inputs, DECODED: said}, list(wanted))
    inputs = asked.whole(option)
    targets = [IGNORED] * inputs["input_ids"].shape[1]
    first = asked.head + option.start - 1  # the place that predicts the option's first token
    targets[first : first + len(wanted)] = wanted
    return OptionRow(inputs, targets)


def stack_rows(rows: Sequence[OptionRow], fill: int) -> dict[str, Any]:
    """Return rows of equal ``shapes`` as one batch, texts padded on the right.

    Args:
        rows: the rows of a batch, at least one, all with equal ``shapes``.
        fill: the token with which texts are padded.

    Returns:
        ``inputs``, the model's keyword arguments, and ``targets``, int64 (rows, places).
    """
    texts = [name for name, what in rows[0].shapes if what == "text"]
    inputs = {}
    for name in rows[0].inputs:
        own = [row.inputs[name] for row in rows]
        if name in texts:
            longest = max(one.shape[1] for one in own)
            behind = fill if name in ("input_ids", DECODED) else 0
            own = [functional.pad(one, (0, longest - one.shape[1]), value=behind) for one in own]
        inputs[name] = torch.cat(own)
    targets = torch.full((len(rows), max(len(row.targets) for row in rows)), IGNORED)
    for number, row in enumerate(rows):
        targets[number, : len(row.targets)] = torch.tensor(row.targets)
    return {"inputs": inputs, "targets": targets}


def mean_costs(
    scoring: Continued | Translated, inputs: dict[str, Tensor], targets: Tensor
) -> Tensor:
    """Return the mean negative log-likelihood of each option: (rows,), float32, nats per token.

    Args:
        scoring: the model.
        inputs: the inputs of a batch, on the model's device.
        targets: the next token at every place, or ``IGNORED``, int64 (rows, places).
    """
    logits: Tensor = scoring.model_of(inputs)(**inputs).logits
    learnt = targets != IGNORED
    costs = functional.cross_entropy(logits[learnt].float(), targets[learnt], reduction="none")
    spread = torch.zeros(targets.shape, device=costs.device).masked_scatter(learnt, costs)
    return spread.sum(1) / learnt.sum(1)
