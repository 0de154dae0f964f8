"""Answer options as rows of a batch: the model's inputs, and the tokens of each option.

They are for training, which processes every row completely for its gradient; ``option_scores``
computes the same for evaluation, with shared prefixes processed once.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import pad

from cfaug.core.types import OptionScore
from cfaug.models.option_scores import Continued, EncodedQuestion, Shape, chunks, copy_rows, score
from cfaug.models.prompts import Option

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
            (name, "text" if tensor.shape == length or name == DECODED else tuple(tensor.shape))
            for name, tensor in sorted(self.inputs.items())
        )


def option_row(
    asked: EncodedQuestion, option: Option, scoring: Continued | Translated
) -> OptionRow:
    """Return a question with one of its options.

    The model reads options after the prompt (``Continued``) or by a separate decoder
    (``Translated``).
    """
    wanted = option.ids[option.start :]
    if isinstance(scoring, Translated):
        decoded = torch.tensor([[scoring.start, *wanted[:-1]]])
        return OptionRow({**asked.inputs, DECODED: decoded}, list(wanted))
    inputs = asked.whole(option)
    targets = [IGNORED] * inputs["input_ids"].shape[1]
    first = asked.head + option.start - 1  # the place that predicts the option's first token
    targets[first : first + len(wanted)] = wanted
    return OptionRow(inputs, targets)


def stack_rows(rows: Sequence[OptionRow], fill: int) -> dict[str, Any]:
    """Return rows of equal ``shapes`` as one batch, texts padded on the right.

    Returns:
        ``inputs``, the model's keyword arguments, and ``targets``, int64 (rows, places).
    """
    texts = [name for name, kind in rows[0].shapes if kind == "text"]
    inputs = {}
    for name in rows[0].inputs:
        parts = [row.inputs[name] for row in rows]
        if name in texts:
            longest = max(part.shape[1] for part in parts)
            behind = fill if name in ("input_ids", DECODED) else 0
            parts = [
                functional.pad(part, (0, longest - part.shape[1]), value=behind) for part in parts
            ]
        inputs[name] = torch.cat(parts)
    targets = torch.full((len(rows), max(len(row.targets) for row in rows)), IGNORED)
    for number, row in enumerate(rows):
        targets[number, : len(row.targets)] = torch.tensor(row.targets)
    return {"inputs": inputs, "targets": targets}


def mean_costs(
    scoring: Continued | Translated, inputs: dict[str, Tensor], targets: Tensor
) -> Tensor:
    """Return the mean negative log-likelihood of each option: (rows,), float32, nats per token.

    Args:
        targets: the next token at every place, or ``IGNORED``, int64 (rows, places).
    """
    logits: Tensor = scoring.model_of(inputs)(**inputs).logits
    learnt = targets != IGNORED
    costs = functional.cross_entropy(logits[learnt].float(), targets[learnt], reduction="none")
    spread = torch.zeros(targets.shape, device=costs.device).masked_scatter(learnt, costs)
    return spread.sum(1) / learnt.sum(1)


PIXELS, IDS = "pixel_values", "input_ids"
"""Names of a processor's outputs."""


def is_translator(model: Any) -> bool:
    """Return whether a model encodes the prompt and answers by a separate decoder."""
    text = getattr(model.config, "text_config", model.config)
    return bool(getattr(text, "is_encoder_decoder", False))


class Translated:
    """The likelihood of options as decoded answers to an encoded prompt, without the end token.

    Questions of any length are encoded in one batch, and an image once for all its questions if the
    model takes image features; all options of a question share the decoder's cache.
    """

    translates = True

    def __init__(self, model: Any) -> None:
        self.model = model
        self.language = getattr(model, "language_model", model)
        text = getattr(model.config, "text_config", model.config)
        self.start = int(text.decoder_start_token_id)
        self.padding = int(getattr(text, "pad_token_id", None) or 0)
        self._takes_features = "mm_encoder_outputs" in inspect.signature(model.forward).parameters

    def shape(self, asked: EncodedQuestion) -> Shape:
        """Return the shapes that have to be equal within a batch: all except lengths of texts."""
        return tuple(sorted(
            (name, tuple(tensor.shape)) if not is_text(tensor) else (name, ())
            for name, tensor in asked.inputs.items()
        ))  # fmt: skip

    def check(self, asked: EncodedQuestion, owner: object) -> None:
        """Accept every model: an encoder may look ahead, because its input has no options."""

    def whole(self, asked: EncodedQuestion) -> list[OptionScore]:
        """Score options one at a time, encoding image and prompt again for each."""
        scores = []
        for option in asked.options:
            device = asked.inputs[IDS].device
            decoded = torch.tensor([[self.start, *option.ids[:-1]]], device=device)
            output = self.model_of(asked.inputs)(**asked.inputs, decoder_input_ids=decoded)
            scores.append(score(output.logits[0].float().log_softmax(-1), option.ids))
        return scores

    def shared(
        self, images: Sequence[Sequence[EncodedQuestion]], tokens_at_once: int
    ) -> list[list[list[OptionScore]]]:
        """Score all options of several images' questions; each question is encoded once."""
        every = [question for questions in images for question in questions]
        output, mask = self._encode(every)
        memory = output.encoder_last_hidden_state
        first = output.logits[:, -1].float().log_softmax(-1)  # of an answer's first token
        options = [
            (row, option) for row, question in enumerate(every) for option in question.options
        ]
        longer = [number for number, (_, option) in enumerate(options) if len(option.ids) > 1]
        width = memory.shape[1] + max((len(option.ids) for _, option in options), default=0)
        log_probs: dict[int, Tensor] = {}
        for some in chunks(longer, max(1, tokens_at_once // width)):
            rows = torch.tensor([options[number][0] for number in some]).to(memory.device)
            before = [options[number][1].ids[:-1] for number in some]
            decoded = torch.zeros((len(some), max(map(len, before))), dtype=torch.int64)
            for row, ids in enumerate(before):  # padding comes last and is not seen
                decoded[row, : len(ids)] = torch.tensor(ids)
            logits: Tensor = self.language(
                encoder_outputs=(memory[rows],),
                attention_mask=mask[rows],
                decoder_input_ids=decoded.to(rows.device),
                past_key_values=copy_rows(output.past_key_values, rows),
            ).logits
            log_probs.update(zip(some, logits.float().log_softmax(-1), strict=True))
        scores: list[list[OptionScore]] = [[] for _ in every]
        for number, (row, option) in enumerate(options):
            ahead = first[row][None]
            log_p = torch.cat([ahead, log_probs[number]]) if number in log_probs else ahead
            scores[row].append(score(log_p[: len(option.ids)], option.ids))
        remaining = iter(scores)
        return [[next(remaining) for _ in questions] for questions in images]

    def _encode(self, asked: Sequence[EncodedQuestion]) -> tuple[Any, Tensor]:
        """Encode questions, and decode up to the first token of an answer.

        Returns:
            The output of the language model, and the mask of its texts and images: 1 for text or
            image and 0 for padding, int64 (questions, places).
        """
        first = asked[0].inputs
        # The features of an image may depend on the question, as in InstructBLIP.
        asks = any(name.startswith("qformer") for name in first)
        shared = PIXELS in first and self._takes_features and not asks
        inputs: dict[str, Any] = {}
        for name in first:
            rows = [question.inputs[name] for question in asked]
            if shared and name == PIXELS:
                # Equal images are processed once.
                distinct = {id(row): row for row in rows}
                places = {key: number for number, key in enumerate(distinct)}
                seen = self.model.get_image_features(
                    torch.cat(list(distinct.values())), return_dict=True
                ).pooler_output
                features = seen[torch.tensor([places[id(row)] for row in rows], device=seen.device)]
                image = SimpleNamespace(
                    pooler_output=features, qformer_outputs=None, vision_outputs=None
                )
                inputs |= {PIXELS: None, "mm_encoder_outputs": {"image": image}}
                continue
            if is_text(rows[0]):
                longest = max(row.shape[1] for row in rows)
                value = self.padding if name == IDS else 0
                rows = [pad(row, (0, longest - row.shape[1]), value=value) for row in rows]
            inputs[name] = torch.cat(rows)
        mask: Tensor = inputs["attention_mask"]
        start = torch.full((len(asked), 1), self.start, device=mask.device)
        output = self.model_of(first)(**inputs, decoder_input_ids=start, use_cache=True)
        return getattr(output, "language_model_outputs", output), mask

    def model_of(self, inputs: dict[str, Tensor]) -> Any:
        """Return the model to call: without an image, it is the language model alone."""
        return self.model if PIXELS in inputs else self.language


def is_text(tensor: Tensor) -> bool:
    """Return whether an input consists of tokens, (1, places), which are padded in a batch."""
    return tensor.ndim == 2 and not tensor.is_floating_point()
