"""Continuations sampled from a causal language model, each with its own seed.

transformers samples a whole batch from one stream of random numbers, so that a text would depend on
the rest of the batch. Here every row has its own stream: the largest logit after adding Gumbel
noise is a draw from the softmax (Gumbel, 1954), and the noise is keyed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Interval

from cfaug.core.read_with import GIVEN, ReadWith
from cfaug.core.validation import Positive, Weight, check_fields
from cfaug.editing.batching import by_length
from cfaug.editing.causal_lm import CausalLM

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class SampledLM(CausalLM):
    """A causal language model that continues prompts.

    Args:
        temperature: the temperature of the softmax; 0 always takes the most probable token.
        top_p: the probability of nucleus sampling: only the most probable tokens that together
            reach it are drawn.
        max_new_tokens: the largest number of tokens added to a prompt (400 in LANCE's released
            code).
    """

    temperature: Weight = 0.7
    top_p: Annotated[float, Interval(gt=0, le=1)] = 0.95
    max_new_tokens: Positive = 400

    role = "perturber"

    read_with: ClassVar[ReadWith] = {"top_p": {"temperature": GIVEN}, "share_prefixes": []}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self)

    def sample(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[str | None]:
        """Return a continuation of each prompt, without the prompt.

        A continuation depends on the prompt and its seed; it depends on other prompts only through
        rounding, if two tokens are equally probable to the last digits.

        Args:
            prompts: the prompts as the model sees them; special tokens may be spelt out.
            seeds: the seed of each prompt's draws.

        Returns:
            The continuations; ``None`` for a prompt that leaves no room for an answer.
        """
        every = self._prompt_ids(prompts)
        texts: list[str | None] = [None] * len(prompts)
        for some in self._batches([len(row) for row in every]):
            found = self._draw([every[i] for i in some], [seeds[i] for i in some])
            for i, text in zip(some, found, strict=True):
                texts[i] = text
        return texts

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield batches of prompts that leave room for an answer.

        If the room is smaller than ``max_new_tokens``, a batch has prompts of one length, so that
        no prompt loses room because of another.
        """
        roomy = [i for i, n in enumerate(lengths) if 0 < n <= self._longest - self.max_new_tokens]
        tight: dict[int, list[int]] = {}
        for i, length in enumerate(lengths):
            if self._longest - self.max_new_tokens < length < self._longest and length > 0:
                tight.setdefault(length, []).append(i)
        for some in (roomy, *tight.values()):
            for rows in by_length([lengths[i] for i in some], self._tokens_at_once):
                yield [some[row] for row in rows]

    def _prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        """Return each prompt's tokens, after the beginning-of-text token if there is one."""
        first = [self.tokenizer.bos_token_id] if self.add_start_token else []
        first = [token for token in first if token is not None]
        found = self._ids(prompts, max_length=self._longest + 1, add_special_tokens=False)
        return [[*first, *ids] for ids in found]

    def _draw(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[str]:
        import torch
        from transformers import GenerationConfig, LogitsProcessorList

        longest = max(map(len, prompts))
        end = self._ends()
        fill = self.tokenizer.pad_token_id
        fill = (end[0] if end else 0) if fill is None else fill
        ids = torch.full((len(prompts), longest), fill, dtype=torch.long)
        shown = torch.zeros_like(ids)
        for row, tokens in enumerate(prompts):  # all answers begin at the same place
            ids[row, longest - len(tokens) :] = torch.tensor(tokens)
            shown[row, longest - len(tokens) :] = 1
        settings = GenerationConfig(
            do_sample=False, num_beams=1, pad_token_id=fill, eos_token_id=end or None,
            max_new_tokens=min(self.max_new_tokens, self._longest - longest),
        )  # fmt: skip
        with torch.inference_mode():
            found = self.model.generate(
                input_ids=ids.to(self._place),
                attention_mask=shown.to(self._place),
                generation_config=settings,
                logits_processor=LogitsProcessorList(self._processors(seeds)),
            )
        new = found[:, longest:].cpu()
        return list(self.tokenizer.batch_decode(new, skip_special_tokens=True))

    def _processors(self, seeds: Sequence[int]) -> list[object]:
        """Return the processors of a step's logits; the largest logit after them is drawn."""
        from transformers import TemperatureLogitsWarper, TopPLogitsWarper

        if self.temperature == 0:
            return []
        parts: list[object] = [TemperatureLogitsWarper(float(self.temperature))]
        parts += [TopPLogitsWarper(float(self.top_p))] if self.top_p < 1 else []
        return [*parts, KeyedNoise(seeds)]

    def _ends(self) -> list[int]:
        """Return the tokens that end an answer, by the generation settings and the tokenizer."""
        said = getattr(self.model.generation_config, "eos_token_id", None)
        listed = list(said) if isinstance(said, list | tuple) else [said]
        listed.append(self.tokenizer.eos_token_id)
        return list(dict.fromkeys(int(token) for token in listed if token is not None))


class KeyedNoise:
    """Adds Gumbel noise to the logits of each row, from its own stream.

    Args:
        seeds: the seed of each row.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        import torch

        # torch takes seeds of 63 bits plus a sign.
        self._streams = [torch.Generator().manual_seed(seed % 2**63) for seed in seeds]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the logits (rows, vocabulary) with noise, in float64."""
        import torch

        noise = torch.stack([self._gumbel(stream, scores.shape[1]) for stream in self._streams])
        return scores.double() + noise.to(scores.device)

    @staticmethod
    def _gumbel(stream: torch.Generator, count: int) -> Tensor:
        import torch

        return -torch.empty(count, dtype=torch.float64).exponential_(generator=stream).log()
