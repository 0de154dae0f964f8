"""Questions to a server that speaks OpenAI's protocol: vLLM, llama.cpp, Ollama, ...

Requests ask for JSON of a given schema, and answers are checked against it. Answers are cached on
disk by content, so that an interrupted run does not repeat a question: a server may answer it
differently the second time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal

from cfaug.core.annotations import NO_RESULT
from cfaug.core.errors import UnavailableError
from cfaug.core.safety.json_text import load_json
from cfaug.core.validation import Positive, Processes, check_fields
from cfaug.core.weights import sha256_text
from cfaug.editing.edit_prompts import unique
from cfaug.editing.protocols import VariationRequest, Variations
from cfaug.generate.annotators import AnnotationCache
from cfaug.generate.server_requests import (
    QuestionRefusedError,
    ServerClient,
    ServerError,
    ServerSettings,
    ask_at_once,
)


@dataclass(frozen=True)
class ChatSettings(ServerSettings):
    """The settings of requests to a chat server; the others are those of ``ServerSettings``.

    Args:
        structured: the way to request the form of the answer: ``json_schema``, which vLLM, SGLang,
            llama.cpp, Ollama and OpenAI support, ``json_object`` for older servers, or ``none``,
            only in words. The answer is checked in any case.
    """

    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    temperature: float = 0.7
    max_tokens: Positive = 1024

    def answering(self) -> str:
        """Return the settings that change an answer."""
        return f"{self.structured} temperature {self.temperature} max_tokens {self.max_tokens}"


NO_CHAT, NO_JSON, WRONG_FORM, EMPTY, REFUSED, CUT_OFF = (
    "no chat answer", "no JSON", "wrong JSON", "empty answer", "refused", "answer cut off",
)  # fmt: skip
"""The reasons why an answer cannot be used."""
AT_RISK = 64
"""Number of answers requested between two writes to disk: a killed run loses no more."""


class UnusableError(Exception):
    """An answer that follows the protocol but cannot be used; its text is counted."""


@dataclass(frozen=True)
class ChatTask:
    """One request, repeated until the answer is valid.

    Attributes:
        key: the hash of everything that the answer depends on, other than the server.
        text: the message, without the description of the answer's form.
        seed: the seed of the first attempt; later attempts add 1 each.
        read: a function that converts the answer's JSON to the JSON to keep, or raises
            ``UnusableError``.
        image: a function that returns the data URL of an image to send
            (``data:image/png;base64,...``); ``None`` sends no image.
    """

    key: str
    text: str
    form: str
    schema: Mapping[str, Any]
    seed: int
    read: Callable[[Any], Mapping[str, Any]]
    image: Callable[[], str] | None = None


@dataclass(frozen=True)
class ChatAnswer:
    """The result of a task.

    Attributes:
        content: the JSON of a valid answer; ``None`` if no answer was valid.
        problem: the reason why no answer was valid, a short text that is counted.
        extra: an excerpt of the invalid answer, under ``answer``.
    """

    content: Mapping[str, Any] | None = None
    problem: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ChatAsker:
    """Sends requests to a server, several at once.

    After an invalid answer, the request is repeated with a description of the problem; when all
    attempts are used up, the request is counted as rejected. If the server is unreachable, the run
    stops: its answers are kept, and the same command resumes from there.

    Args:
        base_url: the server's address with the version of its API: ``http://localhost:8000/v1``.
        cache: the folder in which answers are kept, such as ``paths.cache``; ``None`` keeps them
            only in memory.
        attempts: the largest number of times that a request is sent until its answer is valid.
    """

    base_url: Annotated[str, NO_RESULT]
    model: str
    """the name of the model as its server knows it"""
    cache: Annotated[str | None, NO_RESULT] = None
    attempts: Positive = 3
    concurrency: Annotated[Processes, NO_RESULT] = 8
    """requests at once"""
    settings: ChatSettings = field(default_factory=ChatSettings)
    """temperature, length and retries of a request"""

    def __post_init__(self) -> None:
        check_fields(self)
        self.settings.check_url(self.base_url)

    def ask(self, tasks: Sequence[ChatTask]) -> list[ChatAnswer]:
        """Return the answer to each task, in order; answered tasks are not sent again.

        Raises:
            UnavailableError: if the server is unreachable, or refuses every question; the answers
                so far are kept.
        """
        missing = {task.key: task for task in tasks if task.key not in self._kept}
        refused: dict[str, ChatAnswer] = {}
        unanswered = list(missing.items())
        for start in range(0, len(unanswered), AT_RISK):
            refused |= self._ask_some(unanswered[start : start + AT_RISK])
        return [
            refused[task.key] if task.key in refused else ChatAnswer(self._kept[task.key])
            for task in tasks
        ]

    def _ask_some(self, batch: Sequence[tuple[str, ChatTask]]) -> dict[str, ChatAnswer]:
        """Send several tasks, keep the valid answers, and return the invalid ones."""
        tasks = [task for _, task in batch]
        answers, gone = ask_at_once(tasks, self._ask, self.concurrency)
        valid: dict[str, Mapping[str, Any]] = {}
        invalid: dict[str, ChatAnswer] = {}
        for (key, _), answer in zip(batch, answers, strict=True):
            if answer is not None and answer.content is not None:
                valid[key] = answer.content
            elif answer is not None:
                invalid[key] = answer
        self._kept.add(valid)
        if isinstance(gone, ServerError):
            where = f" in {self.cache}" if self.cache is not None else ""
            raise UnavailableError(
                f"{gone}. {len(self._kept)} answers are kept{where}: start the server, and run the "
                "same command again"
            ) from gone
        if gone is not None:
            raise UnavailableError(str(gone)) from gone
        # A few invalid answers may be all that an earlier run left to ask.
        if not valid and (len(batch) == AT_RISK or not len(self._kept)):
            first = str(next(iter(invalid.values())).extra["answer"])
            problems = {answer.problem for answer in invalid.values()}
            if problems == {REFUSED}:
                raise UnavailableError(
                    f"the server at {self.base_url} refuses every question: {first}. If it does "
                    "not know json_schema, try settings.structured=json_object, or none"
                )
            if problems == {NO_CHAT}:
                raise UnavailableError(
                    f"{self.base_url} does not answer as a chat server does, but: {first}. Give "
                    "base_url with its version, such as http://localhost:8000/v1"
                )
        return invalid

    def _ask(self, task: ChatTask) -> ChatAnswer:
        """Send one task until its answer is valid, or its attempts are used up."""
        content: Any = f"{task.text}\n\n{task.form}"
        if task.image is not None:
            shown = {"type": "image_url", "image_url": {"url": task.image()}}
            content = [shown, {"type": "text", "text": content}]
        messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
        settings = self.settings
        form: dict[str, Any] = {"type": settings.structured}
        if settings.structured == "json_schema":
            form["json_schema"] = {"name": "answer", "schema": dict(task.schema), "strict": True}
        answer = ChatAnswer(problem=EMPTY)
        for attempt in range(self.attempts):
            body = {
                "model": self.model,
                "messages": messages,
                "temperature": settings.temperature,
                "max_tokens": settings.max_tokens,
                "seed": (task.seed + attempt) % 2**31,
                **({} if settings.structured == "none" else {"response_format": form}),
            }
            try:
                reply = self._client.post("chat/completions", body)
            except QuestionRefusedError as error:
                return _problem(REFUSED, str(error))
            answer = _read(reply, task)
            if answer.content is not None:
                break
            messages = [
                *messages[:1],
                {"role": "assistant", "content": str(answer.extra.get("answer", ""))},
                {"role": "user", "content": f"That was not valid ({answer.problem}). {task.form}"},
            ]
        return answer

    @cached_property
    def _client(self) -> ServerClient:
        return ServerClient(self.base_url, self.settings)

    @cached_property
    def _kept(self) -> AnnotationCache:
        folder = None if self.cache is None else Path(self.cache).expanduser()
        return AnnotationCache(folder, sha256_text(f"chat {self.identity()}"))

    def identity(self) -> str:
        """Return the model, and the settings that change an answer."""
        return f"{self.model} {self.settings.answering()}"


def _read(reply: Mapping[str, Any], task: ChatTask) -> ChatAnswer:
    """Return the content of a reply, or its problem."""
    try:
        choice = reply["choices"][0]
        message = choice["message"]
        content = message["content"]
    except (KeyError, IndexError, TypeError):
        return _problem(NO_CHAT, str(reply.get("error") or json.dumps(reply)))
    if isinstance(message.get("refusal"), str) and message["refusal"]:
        return _problem(REFUSED, message["refusal"])
    if not isinstance(content, str) or not content.strip():
        return _problem(EMPTY, "")
    if choice.get("finish_reason") == "length":
        return _problem(CUT_OFF, content)
    # Some servers leave the reasoning of reasoning models in the answer.
    text = content.rpartition("</think>")[2].strip()
    if text.startswith("```") and text.endswith("```") and len(text) > 6:
        text = text[3:-3].removeprefix("json")  # a fenced Markdown block
    try:
        answer = load_json(text)
    except ValueError:
        return _problem(NO_JSON, content)
    try:
        return ChatAnswer(task.read(answer))
    except UnusableError as error:
        return _problem(str(error), content)


def _problem(problem: str, answer: str) -> ChatAnswer:
    # JSON may contain a lone surrogate, which cannot be encoded.
    excerpt = answer[:200].encode(errors="replace").decode()
    return ChatAnswer(problem=problem, extra={"answer": excerpt})


def is_text(value: Any) -> bool:
    """Return whether a value is a text that every file can hold: no NUL, no lone surrogate."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


ASK = (
    'Answer with JSON: {{"variations": [...]}}, a list of at most {count} whole sentences, and '
    "nothing else."
)
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"variations": {"type": "array", "items": {"type": "string"}}},
    "required": ["variations"],
    "additionalProperties": False,
}


class ChatServer(ChatAsker):
    """Requests variations of captions from a server; the arguments are those of ``ChatAsker``."""

    def vary(self, requests: Sequence[VariationRequest]) -> list[Variations]:
        """Return the answer to each request, in order; answered requests are not sent again.

        Raises:
            UnavailableError: if the server is unreachable, or refuses every question; the answers
                so far are kept.
        """
        tasks = []
        for request in requests:
            parts = [request.prompt.text, request.caption, request.count, request.seed]
            task = ChatTask(
                key=sha256_text(json.dumps(parts)),
                text=request.prompt.say(request.caption),
                form=ASK.format(count=request.count),
                schema=SCHEMA,
                seed=request.seed,
                read=partial(_read_variations, request.count),
            )
            tasks.append(task)
        return [
            Variations(problem=answer.problem, extra=answer.extra)
            if answer.content is None
            else Variations(tuple(answer.content["texts"]))
            for answer in self.ask(tasks)
        ]

    def describe(self) -> dict[str, str]:
        """Return the model and the settings, without the server's address and key."""
        return {"perturber": f"chat server {self.identity()}"}


def _read_variations(count: int, answer: Any) -> dict[str, Any]:
    texts = answer.get("variations") if isinstance(answer, dict) else None
    if not isinstance(texts, list) or not all(map(is_text, texts)):
        raise UnusableError(WRONG_FORM)
    good = unique(texts)[:count]
    if not good:
        raise UnusableError(EMPTY)
    return {"texts": list(good)}
