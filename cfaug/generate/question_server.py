"""Questions about images, written by a server that speaks OpenAI's protocol."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cfaug.core.errors import RejectedError, UserError
from cfaug.core.types import SourceImage
from cfaug.core.weights import sha256_text
from cfaug.data.shards.codec import image_extension
from cfaug.generate.annotators import BROKEN_PHOTO
from cfaug.generate.chat_asking import (
    EMPTY,
    WRONG_FORM,
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
class QuestionRequest:
    """A request to a writer of questions.

    Attributes:
        image: the image of the questions, for writers that see images; ``None`` without an image.
        seed: the seed of everything random about the answer, only for this request.
    """

    prompt: str
    image: SourceImage | None
    count: int
    seed: int


@dataclass(frozen=True)
class WrittenQuestion:
    """A question that a writer proposed.

    Attributes:
        presupposition: the condition without the question.
    """

    text: str
    presupposition: str
    right: str
    wrong: str


@dataclass(frozen=True)
class WrittenQuestions:
    """A writer's answer to one request.

    Attributes:
        questions: the questions as written, without empty texts, but otherwise unchecked.
        problem: the reason why there are none, a short text that is counted; empty on success.
        extra: further details as JSON: an excerpt of an answer that could not be parsed.
    """

    questions: tuple[WrittenQuestion, ...] = ()
    problem: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


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
        tasks = []
        for request in requests:
            parts: list[Any] = ["questions", request.prompt, request.count, request.seed]
            image = None
            if self.images:
                if request.image is None:
                    raise RejectedError(
                        "no image", "a question without an image: ask with images: false"
                    )
                try:
                    parts.append(request.image.digest)
                except UserError as error:
                    raise RejectedError(BROKEN_PHOTO, str(error)) from error
                image = partial(_address, request.image)
            task = ChatTask(
                key=sha256_text(json.dumps(parts)),
                text=request.prompt,
                form=FORM.format(count=request.count),
                schema=SCHEMA,
                seed=request.seed,
                read=partial(_read, request.count),
                image=image,
            )
            tasks.append(task)
        written = []
        for answer in self.ask(tasks):
            listed = [] if answer.content is None else answer.content["questions"]
            questions = tuple(
                WrittenQuestion(*(entry[name] for name in FIELDS)) for entry in listed
            )
            written.append(
                WrittenQuestions(questions)
                if answer.content is not None
                else WrittenQuestions(problem=answer.problem, extra=answer.extra)
            )
        return written

    def describe(self) -> dict[str, str]:
        """Return the model and the settings, without the server's address and key."""
        shown = "with images" if self.images else "texts alone"
        return {"question_writer": f"chat server {self.identity()}, {shown}"}


def _address(image: SourceImage) -> str:
    data = image.read()
    mime = MIME[image_extension(data, "the image of a question")]
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def _read(count: int, reply: Any) -> dict[str, Any]:
    questions = reply.get("questions") if isinstance(reply, dict) else None
    if not isinstance(questions, list) or not all(
        isinstance(question, dict) and all(is_text(question.get(name)) for name in FIELDS)
        for question in questions
    ):
        raise UnusableError(WRONG_FORM)
    lines = [{name: " ".join(question[name].split()) for name in FIELDS} for question in questions]
    whole = [line for line in lines if all(line.values())][:count]
    if not whole:
        raise UnusableError(EMPTY)
    return {"questions": whole}
