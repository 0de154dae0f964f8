"""Log-likelihoods of options after a prompt, computed one by one or with shared prefixes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from cfaug.core.devices import send
from cfaug.core.errors import UserError
from cfaug.core.types import OptionScore
from cfaug.models.prompts import Option

Shape: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class EncodedQuestion:
    """A question as a model's input.

    Attributes:
        inputs: the processor's output for images and prompt, tensors of one row by name.
        head: the number of tokens up to and including the last one of an image; 1 for a prompt
            without images.
        options: the tokens of prompt and option after the head; no option begins within the head.
    """

    inputs: dict[str, Tensor]
    head: int
    options: tuple[Option, ...]

    @property
    def common(self) -> list[int]:
        """The tokens after the head that all options have in common, before any option begins."""
        first = self.options[0].ids
        length = min(option.start for option in self.options)
        for option in self.options:
            pairs = zip(first[:length], option.ids, strict=False)
            length = next((n for n, (a, b) in enumerate(pairs) if a != b), length)
        return first[:length]

    def whole(self, option: Option) -> dict[str, Tensor]:
        """Return the model's inputs for prompt and option together."""
        ids = self.inputs["input_ids"]
        behind = torch.tensor([option.ids], dtype=ids.dtype, device=ids.device)
        made = {}
        for name, tensor in self.inputs.items():
            if tensor.shape != ids.shape:
                made[name] = tensor
                continue
            more = behind if name == "input_ids" else torch.zeros_like(behind).to(tensor.dtype)
            more = torch.ones_like(more) if name == "attention_mask" else more
            made[name] = torch.cat([tensor[:, : self.head], more], dim=1)
        return made


class Continued:
    """The likelihood of options as continuations of a prompt, for decoders such as LLaVA's."""

    translates = False

    def __init__(self, model: Any) -> None:
        self.decoder = Decoder(model)

    def model_of(self, inputs: dict[str, Tensor]) -> Any:
        """Return the model to call; with a Q-Former and no image it is the language model alone."""
        return self.decoder.model_of(inputs)

    def shape(self, question: EncodedQuestion) -> Shape:
        """Return the values that have to be equal for questions of one batch."""
        ids = question.inputs["input_ids"].shape
        rest = sorted((n, tuple(t.shape)) for n, t in question.inputs.items() if t.shape != ids)
        return (question.head, *rest)

    def check(self, question: EncodedQuestion, owner: object) -> None:
        """Refuse a model whose outputs for the prompt depend on the option after it."""
        option = max(question.options, key=lambda each: len(each.ids))
        prompt = Option(option.ids[: option.start], option.start)
        alone = self.decoder.tell(question.whole(prompt))[0]
        before = self.decoder.tell(question.whole(option))[0][: len(alone)]
        if not torch.allclose(alone, before, rtol=1e-3, atol=1e-3):  # beyond rounding
            raise UserError(
                f"{owner} holds a {type(self.decoder.model).__name__}, whose outputs for a prompt "
                "depend on the option after it (as with PaliGemma's prefix): the likelihood of an "
                "option after the prompt is undefined for it"
            )

    def whole(self, question: EncodedQuestion) -> list[OptionScore]:
        """Score a question's options one at a time, without sharing: slow and simple."""
        answers = []
        for option in question.options:
            log_probs = self.decoder.tell(question.whole(option))[0]
            wanted = option.ids[option.start :]
            first = question.head + option.start - 1
            answers.append((log_probs[first : first + len(wanted)], wanted))
        return score_options(answers)

    def shared(
        self, images: Sequence[Sequence[EncodedQuestion]], tokens_at_once: int
    ) -> list[list[list[OptionScore]]]:
        """Score all options of several images' questions; an image is processed once.

        Args:
            images: the questions of each image, which are equal up to the head; the inputs of all
                images have the same shapes up to the head.
            tokens_at_once: the largest number of places in the caches of a batch; a single text may
                have more.

        Returns:
            The scores by image, question and option.
        """
        head = images[0][0].head
        firsts = [questions[0].inputs for questions in images]
        inputs = {
            name: torch.cat([
                part[name][:, :head] if part[name].shape == part["input_ids"].shape else part[name]
                for part in firsts
            ])
            for name in firsts[0]
        }  # fmt: skip
        read = self.decoder.read(inputs, head)
        pairs = [
            (image, question) for image, questions in enumerate(images) for question in questions
        ]
        scored: list[list[OptionScore]] = []
        longest = head + max(len(question.common) for _, question in pairs)
        for rows in chunks(pairs, max(1, tokens_at_once // longest)):
            scored += self._questions(read, rows, tokens_at_once)
        scores = iter(scored)
        return [[next(scores) for _ in questions] for questions in images]

    def _questions(
        self, read: PrefixState, rows: Sequence[tuple[int, EncodedQuestion]], tokens_at_once: int
    ) -> list[list[OptionScore]]:
        common = [question.common for _, question in rows]
        if not all(common):
            raise ValueError("options differ in their first token after the image")
        before, _ = self.decoder.read_on(read.take([image for image, _ in rows]), common, "left")
        assert before.ahead is not None
        options = [
            (row, option) for row, (_, question) in enumerate(rows) for option in question.options
        ]
        # The log-probabilities after the tokens of each option of several tokens.
        rest = [(row, option.ids[len(common[row]) : -1]) for row, option in options]
        longer = [number for number, (_, ids) in enumerate(rest) if ids]
        width = before.mask.shape[1] + max((len(ids) for _, ids in rest), default=0)
        log_probs: dict[int, Tensor] = {}
        for some in chunks(longer, max(1, tokens_at_once // width)):
            part = before.take([rest[number][0] for number in some])
            _, log_p = self.decoder.read_on(part, [rest[number][1] for number in some], "right")
            log_probs.update(zip(some, log_p, strict=True))
        answers = []
        for number, (row, option) in enumerate(options):
            ahead = before.ahead[row][None]
            every = torch.cat([ahead, log_probs[number]]) if number in log_probs else ahead
            skipped = option.start - len(common[row])
            wanted = option.ids[option.start :]
            answers.append((every[skipped : skipped + len(wanted)], wanted))
        scores: list[list[OptionScore]] = [[] for _ in rows]
        for (row, _), option_score in zip(options, score_options(answers), strict=True):
            scores[row].append(option_score)
        return scores


def score_options(answers: Sequence[tuple[Tensor, Sequence[int]]]) -> list[OptionScore]:
    """Return the scores of options; the host waits once for a GPU.

    Args:
        answers: log-probabilities (places, words) and the wanted word of each place, by option.
    """
    costs = []
    for log_p, wanted in answers:
        index = send(torch.tensor(list(wanted)), log_p.device)[:, None]
        costs.append(-log_p.gather(-1, index).double().sum())
    nlls = torch.stack(costs).tolist() if costs else []
    return [OptionScore(nll, len(wanted)) for nll, (_, wanted) in zip(nlls, answers, strict=True)]


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yield items in parts of a size."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


@dataclass(frozen=True)
class PrefixState:
    """Rows of text that a decoder has processed.

    Attributes:
        mask: 1 for text and 0 for padding, int64 (rows, places).
        next: the position of each row's next token, int64 (rows,).
        ahead: the log-probabilities of each row's next token, float32 (rows, words); ``None`` if
            they were not computed.
    """

    cache: Any
    mask: Tensor
    next: Tensor
    ahead: Tensor | None = None

    def take(self, rows: Sequence[int]) -> PrefixState:
        """Return a copy of some rows, each repeated as often as it is named; see ``copy_rows``."""
        index = send(torch.tensor(list(rows)), self.mask.device)
        cache = copy_rows(self.cache, index)
        ahead = None if self.ahead is None else self.ahead[index]
        return PrefixState(cache, self.mask[index], self.next[index], ahead)


def copy_rows(cache: Any, rows: Tensor) -> Any:
    """Return a copy of some rows of a cache, each repeated as often as it is named.

    Args:
        rows: the numbers of the rows, int64 (n,), on the cache's device.

    Raises:
        TypeError: for a cache with more than keys and values.
    """
    from transformers import DynamicCache, EncoderDecoderCache
    from transformers.cache_utils import DynamicLayer

    if isinstance(cache, EncoderDecoderCache):
        parts = (cache.self_attention_cache, cache.cross_attention_cache)
        return EncoderDecoderCache(*(copy_rows(part, rows) for part in parts))
    copied = DynamicCache()
    for number, layer in enumerate(cache.layers):
        if type(layer) is not DynamicLayer:
            raise TypeError(f"a cache of {type(layer).__name__} cannot be shared")
        copied.update(layer.keys[rows], layer.values[rows], number)
    return copied


class Decoder:
    """A model that continues from a cache of the keys and values of common prefixes of texts.

    Args:
        model: a transformers model of images and text; if it has a Q-Former, only its language
            model continues.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.reader = model.language_model if hasattr(model, "qformer") else model
        self._keeps = "logits_to_keep" in inspect.signature(self.reader.forward).parameters

    def read(self, inputs: dict[str, Tensor], length: int) -> PrefixState:
        """Process the first tokens of prompts of the same shape, including images."""
        from transformers import DynamicCache

        shape = inputs["input_ids"].shape
        cut = {
            name: tensor[:, :length] if tensor.shape == shape else tensor
            for name, tensor in inputs.items()
        }
        holders = [part for part in self.model.modules() if hasattr(part, "rope_deltas")]
        for part in holders:  # left over from earlier texts
            part.rope_deltas = None
        cache = DynamicCache()
        model = self.model_of(cut)
        model(**cut, past_key_values=cache, use_cache=True, **self._keep_last(model))
        after = torch.full((shape[0],), length, device=cut["input_ids"].device)
        for part in holders:  # an image of many tokens takes fewer positions in Qwen-VL's models
            if part.rope_deltas is not None:
                after = after + part.rope_deltas.reshape(-1).to(after)
        return PrefixState(cache, torch.ones_like(cut["input_ids"]), after)

    def read_on(
        self, before: PrefixState, texts: Sequence[Sequence[int]], pad: Literal["left", "right"]
    ) -> tuple[PrefixState, Tensor]:
        """Process a text after each row; the cache of ``before`` grows and is passed on.

        Args:
            pad: the side of the padding: left for texts to be continued, where only the last token
                matters; right for texts to be scored.

        Returns:
            The processed rows, and log-probabilities float32 (rows, places, words) of the last
            place only (``left``), or of all places.
        """
        width = max(len(text) for text in texts)
        ids, mask = torch.zeros((2, len(texts), width), dtype=torch.int64)
        for row, text in enumerate(texts):
            span = slice(width - len(text), width) if pad == "left" else slice(0, len(text))
            ids[row, span] = torch.tensor(list(text))
            mask[row, span] = 1
        ids, mask = send(torch.stack([ids, mask]), before.mask.device)
        positions = (mask.cumsum(1) - 1).clamp(min=0) + before.next[:, None]
        whole = torch.cat([before.mask, mask], dim=1)
        output = self.reader(
            input_ids=ids, attention_mask=whole, position_ids=positions,
            past_key_values=before.cache, use_cache=True,
            **(self._keep_last(self.reader) if pad == "left" else {}),
        )  # fmt: skip
        logits = output.logits[:, -1:] if pad == "left" else output.logits
        log_probs = logits.float().log_softmax(-1)
        ahead = log_probs[:, -1] if pad == "left" else None
        return PrefixState(before.cache, whole, before.next + mask.sum(1), ahead), log_probs

    def tell(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return log-probabilities of each next token: float32 (rows, places, words)."""
        logits: Tensor = self.model_of(inputs)(**inputs).logits
        return logits.float().log_softmax(-1)

    def model_of(self, inputs: dict[str, Tensor]) -> Any:
        """Return the model to call; with a Q-Former and no image it is the language model alone."""
        return self.model if "pixel_values" in inputs else self.reader

    def _keep_last(self, model: Any) -> dict[str, int]:
        if model is self.reader:
            return {"logits_to_keep": 1} if self._keeps else {}
        return {}  # some models pass it on to the language model, others ignore it
