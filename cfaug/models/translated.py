"""Options scored by models that encode a prompt and decode an answer, such as BLIP-2 with T5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cfaug.models.option_scores import Asked, score
from cfaug.types import OptionScore


def is_translator(model: Any) -> bool:
    """Say whether a model answers by a decoder of its own, behind an encoder of the prompt."""
    text = getattr(model.config, "text_config", model.config)
    return bool(getattr(text, "is_encoder_decoder", False))


class Translated:
    """Options as what a decoder says of an encoded prompt; an end-of-text token is not scored.

    Args:
        model: of transformers, with a Q-Former and a language model of encoder and decoder.
    """

    translates = True

    def __init__(self, model: Any) -> None:
        self.model = model
        self.language = getattr(model, "language_model", model)
        text = getattr(model.config, "text_config", model.config)
        self.start = int(text.decoder_start_token_id)

    def check(self, asked: Asked, owner: object) -> None:
        """Accept every model: an encoder may look ahead, as options are not in its text."""

    def whole(self, asked: Asked) -> list[OptionScore]:
        """Score options one at a time, image and prompt encoded anew for each."""
        scores = []
        for option in asked.options:
            said = torch.tensor([[self.start, *option.ids[:-1]]], device=self._device(asked))
            output = self.model_of(asked.inputs)(**asked.inputs, decoder_input_ids=said)
            scores.append(score(output.logits[0].float().log_softmax(-1), option.ids))
        return scores

    def shared(
        self, images: Sequence[Sequence[Asked]], tokens_at_once: int
    ) -> list[list[list[OptionScore]]]:
        """Score all options of several images' questions; each question is encoded once.

        Args:
            images: of each its questions.
            tokens_at_once: places of what is decoded together, those of the prompt included.

        Returns:
            For each image, for each question, for each option its score.
        """
        return [[self._options(one, tokens_at_once) for one in own] for own in images]

    def _options(self, asked: Asked, tokens_at_once: int) -> list[OptionScore]:
        device = self._device(asked)
        begin = torch.tensor([[self.start]], device=device)
        output = self.model_of(asked.inputs)(**asked.inputs, decoder_input_ids=begin)
        output = getattr(output, "language_model_outputs", output)
        memory, mask = output.encoder_last_hidden_state, asked.inputs["attention_mask"]
        longest = memory.shape[1] + max(len(one.ids) for one in asked.options)
        size = max(1, tokens_at_once // longest)
        scores = []
        for first in range(0, len(asked.options), size):
            options = asked.options[first : first + size]
            said = torch.zeros((len(options), max(len(o.ids) for o in options)), dtype=torch.int64)
            for row, option in enumerate(options):  # what is padded comes last and is not seen
                said[row, : len(option.ids)] = torch.tensor([self.start, *option.ids[:-1]])
            logits: Tensor = self.language(
                encoder_outputs=(memory.expand(len(options), -1, -1),),
                attention_mask=mask.expand(len(options), -1),
                decoder_input_ids=said.to(device),
            ).logits
            told = logits.float().log_softmax(-1)
            scores += [
                score(own[: len(option.ids)], option.ids)
                for own, option in zip(told, options, strict=True)
            ]
        return scores

    def model_of(self, inputs: dict[str, Tensor]) -> Any:
        """Without an image, the language model alone."""
        return self.model if "pixel_values" in inputs else self.language

    def _device(self, asked: Asked) -> torch.device:
        return asked.inputs["input_ids"].device
