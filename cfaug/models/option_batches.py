"""Options as rows of a batch: what a model reads of each, and which tokens are its own.

For training, where every row is read whole and its gradient is wanted; ``option_scores`` asks the
same of models that are tested, with all that rows share read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cfaug.models.option_scores import Asked, Continued
from cfaug.models.prompts import Option
from cfaug.models.translated import Translated

IGNORED = -100
"""Stands for a place that says nothing of the option."""

DECODED = "decoder_input_ids"
"""What a decoder of its own reads."""


@dataclass(frozen=True)
class OptionRow:
    """A question with one option.

    Attributes:
        inputs: what the model takes, each of one row.
        targets: of every place that the model says something of, the token of the option that
            comes next, or ``IGNORED``: of the image, the prompt and what is padded.
    """

    inputs: dict[str, Tensor]
    targets: list[int]

    @property
    def shapes(self) -> tuple[tuple[str, object], ...]:
        """What must be equal for rows to be read together: all but their length."""
        length = self.inputs["input_ids"].shape
        return tuple(
            (name, "text" if one.shape == length or name == DECODED else tuple(one.shape))
            for name, one in sorted(self.inputs.items())
        )


def option_row(asked: Asked, option: Option, scoring: Continued | Translated) -> OptionRow:
    """Return a question with one of its options.

    Args:
        asked: the question.
        option: one of ``asked.options``.
        scoring: how the model reads options: behind the prompt, or by a decoder of its own.
    """
    wanted = option.ids[option.start :]
    if isinstance(scoring, Translated):
        said = torch.tensor([[scoring.start, *wanted[:-1]]])
        return OptionRow({**asked.inputs, DECODED: said}, list(wanted))
    inputs = asked.whole(option)
    targets = [IGNORED] * inputs["input_ids"].shape[1]
    first = asked.head + option.start - 1  # which says the option's first token
    targets[first : first + len(wanted)] = wanted
    return OptionRow(inputs, targets)


def stack_rows(rows: Sequence[OptionRow], fill: int) -> dict[str, Any]:
    """Return rows of equal ``shapes`` as one batch, texts padded on the right.

    Args:
        rows: one or more.
        fill: the token that stands behind a text's end.

    Returns:
        ``inputs``, as the model takes them, and ``targets`` int64 (rows, places).
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
    """Return the mean negative log-likelihood of each row's option: (rows,), float32, nats a token.

    Args:
        scoring: the model.
        inputs: of a batch, on its device.
        targets: int64 (rows, places).
    """
    logits: Tensor = scoring.model_of(inputs)(**inputs).logits
    learnt = targets != IGNORED
    costs = functional.cross_entropy(logits[learnt].float(), targets[learnt], reduction="none")
    spread = torch.zeros(targets.shape, device=costs.device).masked_scatter(learnt, costs)
    return spread.sum(1) / learnt.sum(1)
