"""Conversion of images and questions to a vision-language model's inputs: tensors on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from PIL.Image import Image
from torch import Tensor

from cfaug.core.errors import RejectedError, UserError
from cfaug.core.questions import Answered, Question
from cfaug.models.option_batches import is_text
from cfaug.models.option_scores import EncodedQuestion
from cfaug.models.prompts import Option, Prompts


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
            asked = replace(question, options=())
            text = self.prompts.text(asked, image is not None)
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
        asked = EncodedQuestion(inputs, head, tuple(options))
        return Answered(left_out="context") if self.is_too_long(asked) else asked

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
        asked: dict[str, Any] = {"text": [text], "add_special_tokens": added}
        if images:
            given = self.processor(images=images, return_tensors="pt", **asked)
        else:
            given = self.processor.tokenizer(**asked, return_tensors="pt")
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

    def is_too_long(self, asked: EncodedQuestion) -> bool:
        """Return whether a question with its longest option exceeds the model's limit."""
        query = asked.inputs.get("qformer_input_ids")
        limit = self.longest_query
        if query is not None and limit is not None and query.shape[1] > limit:
            return True
        return (
            asked.head + max((len(option.ids) for option in asked.options), default=0)
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
        asked = tuple(_flatten(images))
        same = len(asked) == len(self._images) and all(
            image is other for image, other in zip(asked, self._images, strict=True)
        )
        if self._made is None or not same or settings != self._settings:
            self._made = self._processor(images, **settings)
            self._images, self._settings = asked, settings
        return self._made.copy()  # processors remove entries


def _flatten(images: Any) -> list[Any]:
    if isinstance(images, Sequence) and not isinstance(images, str):
        return [image for part in images for image in _flatten(part)]
    return [images]
