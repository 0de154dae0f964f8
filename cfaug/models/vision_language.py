"""Vision-language models of transformers that answer questions by ranking options or by writing.

An image is processed once for all its questions, and a question once for all its options, if the
model supports a cache; otherwise every prompt is processed completely for every option.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor, nn

from cfaug.core.answers import Answered, Question
from cfaug.core.devices import send
from cfaug.core.errors import UserError, say
from cfaug.core.processes import lacks_memory
from cfaug.core.types import OptionScore
from cfaug.models.checkpoints import load_model, longest_text
from cfaug.models.encoder import Wrapped, load_processor
from cfaug.models.option_scores import Continued, EncodedQuestion, Shape
from cfaug.models.prompts import Prompts
from cfaug.models.question_inputs import QuestionReader, Translated, is_translator, longest_query

CLOSE = 1e-3
"""Tolerance between shared and complete processing of a prompt: absolute in nats, and relative."""

Place: TypeAlias = tuple[int, int]
"""The number of an image, and of one of its questions."""

Batch: TypeAlias = list[list[tuple[Place, EncodedQuestion]]]
"""For each image, questions with a common beginning and their places."""


class VisionLanguageModel(Wrapped):
    """``AutoModelForImageTextToText`` as a :class:`cfaug.core.protocols.Answerer`.

    LLaVA, Qwen-VL, InternVL, SmolVLM and similar models are asked with their chat templates, BLIP-2
    and InstructBLIP with a prompt.

    Args:
        prompt: the template, with ``{question}`` and ``{image}``; ``None`` is the chat template.
        sharing: ``auto`` processes common prefixes of prompts once, if the first questions' scores
            equal those of complete processing; ``none`` processes every prompt completely.
        tokens_at_once: the largest number of places in the caches of a batch, which bounds memory.
    """

    transformers_class = "AutoModelForImageTextToText"

    def __init__(
        self,
        model: nn.Module,
        processor: Any,
        folder: Path,
        *,
        prompt: str | None = None,
        sharing: str = "auto",
        tokens_at_once: int = 16384,
    ) -> None:
        super().__init__(model)
        self.processor = processor
        self.folder = folder
        self.prompts = Prompts(processor, prompt, folder)
        self.tokens_at_once = tokens_at_once
        kind = Translated if is_translator(self.model) else Continued
        self.scoring: Translated | Continued = kind(self.model)
        self.longest = longest_text(model, processor.tokenizer)
        self.reader = QuestionReader(
            self.prompts, self.longest, translates=kind.translates,
            longest_query=longest_query(model),
        )  # fmt: skip
        self.shares = {True: sharing == "auto", False: sharing == "auto"}
        self._checked: set[bool] = set()

    @classmethod
    def load(cls, folder: Path, *, dtype: str = "float32", **settings: Any) -> Self:
        """Load a folder in evaluation mode, its weights in a number format such as ``bfloat16``."""
        processor = load_processor(folder)
        model = load_model(cls.transformers_class, folder, dtype=dtype)
        cls.check_model(model, folder)
        return cls(model, processor, folder, **settings).eval()

    def answer(
        self, images: Sequence[Image | None], questions: Sequence[Sequence[Question]]
    ) -> list[list[Answered]]:
        """Score every option of every question; the smallest NLL is the model's answer.

        Args:
            images: RGB images of any size; ``None`` asks without an image.

        Returns:
            For each image and question, the scores of its options, or why it was left out.
        """
        with torch.inference_mode(), self._explain_memory():
            encoded = [
                self._ask(image, of_image)
                for image, of_image in zip(images, questions, strict=True)
            ]
            by_place: dict[Place, list[OptionScore]] = {}
            for batch in self._batches(encoded):
                with_image = "pixel_values" in batch[0][0][1].inputs
                if with_image not in self._checked:
                    ends = [batch[0], batch[-1]] if len(batch) > 1 else [batch[0]]
                    self._check([group[:2] for group in ends], with_image)
                of_images = [[question for _, question in group] for group in batch]
                if self.shares[with_image]:
                    scored = self.scoring.shared(of_images, self.tokens_at_once)
                else:
                    scored = [[self.scoring.whole(q) for q in of_image] for of_image in of_images]
                by_place |= {
                    place: of_options
                    for group, of_image in zip(batch, scored, strict=True)
                    for (place, _), of_options in zip(group, of_image, strict=True)
                }
        answers: list[list[Answered]] = []
        for i, of_image in enumerate(encoded):
            answers.append([])
            for j, question in enumerate(of_image):
                if isinstance(question, Answered):
                    answers[i].append(question)
                    continue
                scores = by_place.get((i, j), [])
                for option, score in zip(questions[i][j].options, scores, strict=True):
                    if not math.isfinite(score.nll):
                        raise UserError(
                            f"{self.folder}: the option {option!r} of {questions[i][j].text!r} has "
                            f"a likelihood of {score.nll}: its weights are damaged, or too large "
                            "for their number format (try model.dtype=float32)"
                        )
                answers[i].append(Answered(tuple(scores)))
        return answers

    def write(
        self, images: Sequence[Image | None], questions: Sequence[Question], max_new_tokens: int
    ) -> list[Answered]:
        """Write an answer to each question, greedily; its options are ignored.

        Returns:
            The answers, without special tokens and with normalised white space, or the reason why a
            question was left out.
        """
        by_shape: dict[object, list[tuple[int, dict[str, Tensor]]]] = {}
        answers = [Answered(left_out="context")] * len(questions)
        for row, (image, question) in enumerate(zip(images, questions, strict=True)):
            encoded = self.reader.read_prompt(image, question, max_new_tokens)
            if isinstance(encoded, Answered):
                answers[row] = encoded
            else:
                inputs = self._place(encoded, {})
                shape = tuple(
                    (name, tuple(tensor.shape)) for name, tensor in sorted(inputs.items())
                )
                by_shape.setdefault(shape, []).append((row, inputs))
        for alike in by_shape.values():
            size = max(1, self.tokens_at_once // alike[0][1]["input_ids"].shape[1])
            for start in range(0, len(alike), size):
                part = alike[start : start + size]
                given = {
                    name: torch.cat([tensors[name] for _, tensors in part]) for name in part[0][1]
                }
                with self._explain_memory(), torch.inference_mode():
                    ids = self.scoring.model_of(given).generate(
                        **given, max_new_tokens=max_new_tokens, do_sample=False
                    )
                prompt_ids = given["input_ids"]
                if not self.scoring.translates and torch.equal(
                    ids[:, : prompt_ids.shape[1]], prompt_ids
                ):
                    ids = ids[:, prompt_ids.shape[1] :]
                texts = self.processor.tokenizer.batch_decode(ids, skip_special_tokens=True)
                for (row, _), text in zip(part, texts, strict=True):
                    answers[row] = Answered(text=" ".join(text.split()))
        return answers

    def _ask(
        self, image: Image | None, questions: Sequence[Question]
    ) -> list[EncodedQuestion | Answered]:
        """Return an image's questions as tensors on the model's device, with shared tensors."""
        tensors: dict[int, Tensor] = {}
        placed: dict[int, dict[str, Tensor]] = {}
        made: list[EncodedQuestion | Answered] = []
        for question in self.reader.read(image, questions):
            if isinstance(question, EncodedQuestion):
                key = id(question.inputs)
                if key not in placed:
                    placed[key] = self._place(question.inputs, tensors)
                made.append(replace(question, inputs=placed[key]))
            else:
                made.append(question)
        return made

    def _place(self, inputs: dict[str, Tensor], known: dict[int, Tensor]) -> dict[str, Tensor]:
        """Return tensors on the model's device, pixels in its number format.

        Args:
            known: {id of a tensor: its copy on the device}, extended here, so that a shared tensor
                is moved only once.
        """
        dtype = self.model.dtype
        for tensor in inputs.values():
            if id(tensor) not in known:
                format_ = dtype if tensor.is_floating_point() else tensor.dtype
                known[id(tensor)] = send(tensor.to(format_), self.device)
        return {name: known[id(tensor)] for name, tensor in inputs.items()}

    def _batches(self, encoded: Sequence[Sequence[EncodedQuestion | Answered]]) -> Iterator[Batch]:
        """Yield batches of images: for each image, its questions with a common beginning."""
        by_shape: dict[Shape, Batch] = {}
        for i, of_image in enumerate(encoded):
            together: dict[int, list[tuple[Place, EncodedQuestion]]] = {}
            for j, question in enumerate(of_image):
                if isinstance(question, EncodedQuestion) and question.options:
                    together.setdefault(id(question.inputs), []).append(((i, j), question))
            for questions in together.values():
                shape = self.scoring.shape(questions[0][1])
                by_shape.setdefault(shape, []).append(questions)
        for images in by_shape.values():
            batch: Batch = []
            for own_questions in sorted(images, key=lambda each: each[0][1].head):  # a stable sort
                head = own_questions[0][1].head
                if batch and (len(batch) + 1) * head > self.tokens_at_once:
                    yield batch
                    batch = []
                batch.append(own_questions)
            yield batch

    def _check(self, images: Batch, with_image: bool) -> None:
        """Check on the first images whether the model can score options, and share prefixes."""
        self._checked.add(with_image)
        encoded = [[question for _, question in questions] for questions in images]
        self.scoring.check(encoded[0][0], self.folder)
        if not self.shares[with_image]:
            return
        whole = [
            score.nll
            for questions in encoded
            for question in questions
            for score in self.scoring.whole(question)
        ]
        try:
            shared_scores = self.scoring.shared(encoded, self.tokens_at_once)
            shared = [
                score.nll
                for of_image in shared_scores
                for of_question in of_image
                for score in of_question
            ]
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            if lacks_memory(error):
                raise
            why = f"{type(error).__name__}: {error}"
        else:
            if np.allclose(whole, shared, rtol=CLOSE, atol=CLOSE, equal_nan=True):
                return
            why = f"{whole} becomes {shared}"
        self.shares[with_image] = False
        say(
            f"{self.folder}: prompts are processed completely for every option, which is several "
            f"times as slow: this {type(self.model).__name__} cannot share prefixes ({why:.200})"
        )

    @contextmanager
    def _explain_memory(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if not lacks_memory(error):
                raise
            raise UserError(
                f"{self.folder}: there is not enough memory ({str(error).splitlines()[0]:.120}): "
                f"lower model.tokens_at_once={self.tokens_at_once} or choose model.dtype=bfloat16; "
                "the answers so far are kept"
            ) from error
