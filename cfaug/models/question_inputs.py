"""A vision-language model's inputs: images and questions, and answer options as rows of a batch.

Rows of options are for training, which processes every row completely for its gradient;
``option_scores`` computes the same for evaluation, with shared prefixes processed once.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import pad

from cfaug.core.answers import Answered, Question
from cfaug.core.devices import send
from cfaug.core.errors import RejectedError, UserError
from cfaug.core.types import OptionScore
from cfaug.models.option_scores import (
    Continued,
    EncodedQuestion,
    Shape,
    chunks,
    copy_rows,
    score_options,
)
from cfaug.models.prompts import Option, Prompts

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
    question: EncodedQuestion, option: Option, scoring: Continued | Translated
) -> OptionRow:
    """Return a question with one of its options.

    The model reads options after the prompt (``Continued``) or by a separate decoder
    (``Translated``).
    """
    wanted = option.ids[option.start :]
    if isinstance(scoring, Translated):
        decoded = torch.tensor([[scoring.start, *wanted[:-1]]])
        return OptionRow({**question.inputs, DECODED: decoded}, list(wanted))
    inputs = question.whole(option)
    targets = [IGNORED] * inputs["input_ids"].shape[1]
    first = question.head + option.start - 1  # the place that predicts the option's first token
    targets[first : first + len(wanted)] = wanted
    return OptionRow(inputs, targets)


def stack_rows(rows: Sequence[OptionRow], fill: int) -> dict[str, Any]:
    """Return rows of equal ``shapes`` as one batch, texts padded on the right.

    Returns:
        ``inputs``, the model's keyword arguments; ``targets``, int64 (rows, places); and
        ``learnt``, the row and the place of every target that is not ``IGNORED``, int64 (2, n).
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
    return {"inputs": inputs, "targets": targets, "learnt": (targets != IGNORED).nonzero().T}


def mean_costs(
    scoring: Continued | Translated, inputs: dict[str, Tensor], targets: Tensor, learnt: Tensor
) -> Tensor:
    """Return the mean negative log-likelihood of each option: (rows,), float32, nats per token.

    The arguments after the first are those of ``stack_rows``: for the places in a mask, the host
    would wait for a GPU.
    """
    logits: Tensor = scoring.model_of(inputs)(**inputs, use_cache=False).logits
    return spread_costs(logits, targets, learnt).sum(1) / (targets != IGNORED).sum(1)


def spread_costs(logits: Tensor, targets: Tensor, learnt: Tensor) -> Tensor:
    """Return the negative log-likelihood of each learnt target, and 0 elsewhere: (rows, places).

    Only the logits of learnt places are converted to float32.

    Args:
        logits: (rows, places, words).
        targets: the next token at every place, int64 (rows, places).
        learnt: the row and the place of each learnt target, int64 (2, n), in order.
    """
    row, place = learnt
    costs = functional.cross_entropy(
        logits[row, place].float(), targets[row, place], reduction="none"
    )
    return torch.zeros(targets.shape, device=costs.device).index_put((row, place), costs)


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

    def shape(self, question: EncodedQuestion) -> Shape:
        """Return the shapes that have to be equal within a batch: all except lengths of texts."""
        return tuple(sorted(
            (name, tuple(tensor.shape)) if not is_text(tensor) else (name, ())
            for name, tensor in question.inputs.items()
        ))  # fmt: skip

    def check(self, question: EncodedQuestion, owner: object) -> None:
        """Accept every model: an encoder may look ahead, because its input has no options."""

    def whole(self, question: EncodedQuestion) -> list[OptionScore]:
        """Score options one at a time, encoding image and prompt again for each."""
        answers = []
        for option in question.options:
            device = question.inputs[IDS].device
            decoded = send(torch.tensor([[self.start, *option.ids[:-1]]]), device)
            output = self.model_of(question.inputs)(**question.inputs, decoder_input_ids=decoded)
            answers.append((output.logits[0].float().log_softmax(-1), option.ids))
        return score_options(answers)

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
            rows = send(torch.tensor([options[number][0] for number in some]), memory.device)
            before = [options[number][1].ids[:-1] for number in some]
            decoded = torch.zeros((len(some), max(map(len, before))), dtype=torch.int64)
            for row, ids in enumerate(before):  # padding comes last and is not seen
                decoded[row, : len(ids)] = torch.tensor(ids)
            logits: Tensor = self.language(
                encoder_outputs=(memory[rows],),
                attention_mask=mask[rows],
                decoder_input_ids=send(decoded, rows.device),
                past_key_values=copy_rows(output.past_key_values, rows),
            ).logits
            log_probs.update(zip(some, logits.float().log_softmax(-1), strict=True))
        answers = []
        for number, (row, option) in enumerate(options):
            ahead = first[row][None]
            log_p = torch.cat([ahead, log_probs[number]]) if number in log_probs else ahead
            answers.append((log_p[: len(option.ids)], option.ids))
        scores: list[list[OptionScore]] = [[] for _ in every]
        for (row, _), option_score in zip(options, score_options(answers), strict=True):
            scores[row].append(option_score)
        remaining = iter(scores)
        return [[next(remaining) for _ in questions] for questions in images]

    def _encode(self, questions: Sequence[EncodedQuestion]) -> tuple[Any, Tensor]:
        """Encode questions, and decode up to the first token of an answer.

        Returns:
            The output of the language model, and the mask of its texts and images: 1 for text or
            image and 0 for padding, int64 (questions, places).
        """
        first = questions[0].inputs
        # The features of an image may depend on the question, as in InstructBLIP.
        asks = any(name.startswith("qformer") for name in first)
        shared = PIXELS in first and self._takes_features and not asks
        inputs: dict[str, Any] = {}
        for name in first:
            rows = [question.inputs[name] for question in questions]
            if shared and name == PIXELS:
                # Equal images are processed once.
                distinct = {id(row): row for row in rows}
                places = {key: number for number, key in enumerate(distinct)}
                seen = self.model.get_image_features(
                    torch.cat(list(distinct.values())), return_dict=True
                ).pooler_output
                chosen = torch.tensor([places[id(row)] for row in rows])
                features = seen[send(chosen, seen.device)]
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
        start = torch.full((len(questions), 1), self.start, device=mask.device)
        output = self.model_of(first)(**inputs, decoder_input_ids=start, use_cache=True)
        return getattr(output, "language_model_outputs", output), mask

    def model_of(self, inputs: dict[str, Tensor]) -> Any:
        """Return the model to call: without an image, it is the language model alone."""
        return self.model if PIXELS in inputs else self.language


def is_text(tensor: Tensor) -> bool:
    """Return whether an input consists of tokens, (1, places), which are padded in a batch."""
    return tensor.ndim == 2 and not tensor.is_floating_point()


@dataclass
class Known:
    """A processor's outputs for one image, cached for further questions about it.

    Attributes:
        prompts: {common part of prompts: (inputs, number of tokens up to the image)}.
        pixels: {(name, images): tensor} for inputs that are not text, so that each is kept once.
    """

    prompts: dict[object, tuple[dict[str, Tensor], int]] = field(default_factory=dict)
    pixels: dict[object, Tensor] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size of all tensors in bytes."""
        every = {
            id(tensor): tensor for inputs, _ in self.prompts.values() for tensor in inputs.values()
        }
        return sum(tensor.element_size() * tensor.numel() for tensor in every.values())


class QuestionReader:
    """Tokenizes questions about images, without the model's weights.

    Args:
        longest: the largest number of tokens that the model reads.
        longest_query: the largest number of a question's tokens that the Q-Former reads; ``None``
            for models without a Q-Former.
    """

    def __init__(
        self,
        prompts: Prompts,
        longest: int,
        *,
        translates: bool,
        longest_query: int | None = None,
    ) -> None:
        self.longest_query = longest_query
        self.prompts = prompts
        self.processor = prompts.processor
        self.folder: Path = prompts.folder
        self.longest = longest
        self.translates = translates
        # InstructBLIP's queries and all encoders see the question before they produce output.
        self.reads_whole_prompt = translates or hasattr(self.processor, "qformer_tokenizer")
        if self.reads_whole_prompt:  # a copy: the processor is saved as it was loaded
            self.processor = copy.copy(self.processor)
            self.processor.image_processor = ImageMemory(prompts.processor.image_processor)

    def read(
        self, image: Image | None, questions: Sequence[Question], known: Known | None = None
    ) -> list[EncodedQuestion | Answered]:
        """Tokenize an image's questions; common beginnings share the processor's output.

        Args:
            image: an RGB image of any size; ``None`` asks without an image.

        Returns:
            For each question the model's input, or the reason why it was left out: ``context`` if
            it is too long, ``special_token`` if a text holds a special token of the model,
            ``no_token`` if an option has no token.
        """
        known = Known() if known is None else known
        made: list[EncodedQuestion | Answered] = []
        for question in questions:
            try:
                made.append(self._read(image, question, known))
            except RejectedError as error:
                made.append(Answered(left_out=error.reason))
        return made

    def read_prompt(
        self, image: Image | None, question: Question, room: int
    ) -> dict[str, Tensor] | Answered:
        """Tokenize a question whose answer the model writes.

        Args:
            room: the number of tokens reserved for the answer.
        """
        try:
            without_options = replace(question, options=())
            text = self.prompts.text(without_options, image is not None)
            inputs, head = self.inputs(text, self.prompts.images(question, image), [])
        except RejectedError as error:
            return Answered(left_out=error.reason)
        if self.is_too_long(EncodedQuestion(inputs, head + room, ())):
            return Answered(left_out="context")
        return inputs

    def _read(
        self, image: Image | None, question: Question, known: Known
    ) -> EncodedQuestion | Answered:
        text = self.prompts.text(question, image is not None)
        ids = self.prompts.tokens(text)
        images = self.prompts.images(question, image)
        position = self.prompts.last_place(ids, bool(images))
        begin = (tuple(ids[: position + 1]), tuple(id(picture) for picture in images))
        key = text if self.reads_whole_prompt else begin
        if key not in known.prompts:
            inputs, head = self.inputs(text, images, ids[position + 1 :])
            for name, tensor in inputs.items():
                if not is_text(tensor):  # equal pixels are one tensor
                    inputs[name] = known.pixels.setdefault((name, begin[1]), tensor)
            known.prompts[key] = inputs, head
        inputs, head = known.prompts[key]
        options = self.options(text, ids, question.options)
        if not self.translates:  # the tokens after the image
            options = [Option(o.ids[position + 1 :], o.start - position - 1) for o in options]
        encoded = EncodedQuestion(inputs, head, tuple(options))
        return Answered(left_out="context") if self.is_too_long(encoded) else encoded

    def options(self, text: str, ids: Sequence[int], options: Sequence[str]) -> list[Option]:
        """Return the tokens of options: after the prompt, or alone for a separate decoder."""
        if self.translates:
            alone = [Option(self.prompts.tokens(option), 0) for option in options]
            for encoded, option in zip(alone, options, strict=True):
                if not encoded.ids:
                    raise RejectedError(
                        "no_token", f"{self.folder}: the option {option!r} has no token"
                    )
            return alone
        return [self.prompts.option(text, ids, option) for option in options]

    def inputs(
        self, text: str, images: list[Image], tail: list[int]
    ) -> tuple[dict[str, Tensor], int]:
        """Return the processor's output for a prompt, and the number of tokens up to the tail.

        ``tail`` is the prompt's tokens after the last image.
        """
        added = self.prompts.adds_special_tokens(text)
        text_inputs: dict[str, Any] = {"text": [text], "add_special_tokens": added}
        if images:
            given = self.processor(images=images, return_tensors="pt", **text_inputs)
        else:
            given = self.processor.tokenizer(**text_inputs, return_tensors="pt")
        shape = given["input_ids"].shape
        ids = given["input_ids"][0].tolist()
        ids = self.prompts.without_end(ids) if added else ids
        if tail and ids[-len(tail) :] != tail:
            raise UserError(
                f"{self.folder}: its processor changes the text after an image, so that the "
                "tokens of an answer are unknown"
            )
        inputs = {
            name: tensor[:, : len(ids)] if tensor.shape == shape else tensor
            for name, tensor in given.items()
            if name != "labels"
        }
        return inputs, len(ids) if self.translates else len(ids) - len(tail)

    def is_too_long(self, question: EncodedQuestion) -> bool:
        """Return whether a question with its longest option exceeds the model's limit."""
        query = question.inputs.get("qformer_input_ids")
        limit = self.longest_query
        if query is not None and limit is not None and query.shape[1] > limit:
            return True
        return (
            question.head + max((len(option.ids) for option in question.options), default=0)
            > self.longest
        )


def longest_query(model: Any) -> int | None:
    """Return the limit of a question's tokens in a Q-Former; ``None`` for models without one."""
    limit = getattr(getattr(model.config, "qformer_config", None), "max_position_embeddings", None)
    return None if limit is None else int(limit)


class ImageMemory:
    """A cache of an image processor's output for its last images.

    A processor of images and text processes both again for every text, and spends most of the time
    on the images. Everything except calls is delegated to the image processor.
    """

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self._images: tuple[Any, ...] = ()
        self._settings: dict[str, Any] = {}
        self._made: Any = None

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the image processor."""
        if name.startswith("__") or name == "_processor":  # not for copying and pickling
            raise AttributeError(name)
        return getattr(self._processor, name)

    def __call__(self, images: Any, **settings: Any) -> Any:
        """Return the image processor's output for images; the last output is cached."""
        flat_images = tuple(_flatten(images))
        same = len(flat_images) == len(self._images) and all(
            image is other for image, other in zip(flat_images, self._images, strict=True)
        )
        if self._made is None or not same or settings != self._settings:
            self._made = self._processor(images, **settings)
            self._images, self._settings = flat_images, settings
        return self._made.copy()  # processors remove entries


def _flatten(images: Any) -> list[Any]:
    if isinstance(images, Sequence) and not isinstance(images, str):
        return [image for part in images for image in _flatten(part)]
    return [images]
