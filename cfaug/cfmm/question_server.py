"""Counterfactual questions written by a server that speaks OpenAI's protocol."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cfaug.cfmm.question_expansion import QuestionRequest, WrittenQuestion, WrittenQuestions
from cfaug.core.errors import RejectedError, UserError
from cfaug.core.types import SourceImage
from cfaug.core.weights import sha256_text
from cfaug.data.shards.codec import image_extension
from cfaug.generate.annotators import BROKEN_PHOTO
from cfaug.generate.chat_asking import (
    EMPTY,
    WRONG_FORM,
    ChatAnswer,
    ChatAsker,
    ChatTask,
    UnusableError,
    is_text,
)

FIELDS = ("question", "presupposition", "right_answer", "wrong_answer")

FORM = (
    'Answer with JSON: {{"questions": [{{"question": ..., "presupposition": (the condition alone), '
    '"right_answer": ..., "wrong_answer": ...}}, ...]}}, at most {count} of them, and nothing else.'
)

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "questions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in FIELDS},
                "required": list(FIELDS),
                "additionalProperties": False,
            },
        }
    },
    "required": ["questions"],
    "additionalProperties": False,
}

MIME = {"jpg": "image/jpeg", "png": "image/png", "webp": "image/webp"}


@dataclass(frozen=True)
class QuestionServer(ChatAsker):
    """Requests questions from a server; the other arguments are those of ``ChatAsker``.

    Args:
        images: whether the image is sent with the text, for a vision-language model.
    """

    images: bool = False

    def write(self, requests: Sequence[QuestionRequest]) -> list[WrittenQuestions]:
        """Return the answer to each request, in order; answered requests are not sent again.

        Raises:
            UnavailableError: if the server is unreachable, or refuses every question; the answers
                so far are kept.
            RejectedError: if an image to send is missing or broken.
        """
        return [_written(one) for one in self.ask([self._task(request) for request in requests])]

    def describe(self) -> dict[str, str]:
        """Return the model and the settings, without the server's address and key."""
        shown = "with images" if self.images else "texts alone"
        return {"question_writer": f"chat server {self.identity()}, {shown}"}

    def _task(self, request: QuestionRequest) -> ChatTask:
        parts: list[Any] = ["questions", request.prompt, request.count, request.seed]
        if self.images:
            parts.append(_digest(request.image))
        return ChatTask(
            key=sha256_text(json.dumps(parts)),
            text=request.prompt,
            form=FORM.format(count=request.count),
            schema=SCHEMA,
            seed=request.seed,
            read=partial(_read, request.count),
            image=partial(_address, request.image) if self.images else None,
        )


def _digest(image: SourceImage | None) -> str:
    """Return the digest of an image to send.

    Raises:
        RejectedError: if the image is missing or broken, which affects only its questions.
    """
    if image is None:
        raise RejectedError("no image", "a question without an image: ask with images: false")
    try:
        return image.digest
    except UserError as error:
        raise RejectedError(BROKEN_PHOTO, str(error)) from error


def _address(image: SourceImage | None) -> str:
    assert image is not None
    data = image.read()
    mime = MIME[image_extension(data, "the image of a question")]
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def _read(count: int, found: Any) -> dict[str, Any]:
    """Return the valid questions of an answer, with white space normalised."""
    questions = found.get("questions") if isinstance(found, dict) else None
    if not isinstance(questions, list) or not all(map(_is_question, questions)):
        raise UnusableError(WRONG_FORM)
    lines = [{name: " ".join(one[name].split()) for name in FIELDS} for one in questions]
    whole = [one for one in lines if all(one.values())][:count]
    if not whole:
        raise UnusableError(EMPTY)
    return {"questions": whole}


def _is_question(found: Any) -> bool:
    return isinstance(found, dict) and all(is_text(found.get(name)) for name in FIELDS)


def _written(answer: ChatAnswer) -> WrittenQuestions:
    if answer.found is None:
        return WrittenQuestions(problem=answer.problem, extra=answer.extra)
    return WrittenQuestions(
        tuple(WrittenQuestion(*(one[name] for name in FIELDS)) for one in answer.found["questions"])
    )
