"""Questions to a server that speaks OpenAI's protocol: vLLM, llama.cpp, Ollama, ...

Requests ask for JSON of a given schema, and answers are checked against it. Answers are cached on
disk by content, so that an interrupted run does not repeat a question: a server may answer it
differently the second time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from cfaug.core.errors import UnavailableError, UserError
from cfaug.core.validation import Positive, Processes, check_fields
from cfaug.core.weights import sha256_text
from cfaug.editing.edit_prompts import unique
from cfaug.editing.protocols import VariationRequest, Variations
from cfaug.generate.annotators import AnnotationCache
from cfaug.generate.chat_protocol import (
    ChatClient,
    ChatRequest,
    ChatSettings,
    QuestionRefusedError,
    ServerError,
)

NO_CHAT, NO_JSON, WRONG_FORM, EMPTY, REFUSED, CUT_OFF = (
    "no chat answer", "no JSON", "wrong JSON", "empty answer", "refused", "answer cut off",
)  # fmt: skip
"""The reasons why an answer cannot be used."""
THOUGHT = "</think>"
"""The mark after the reasoning of reasoning models, for servers that leave it in the answer."""
EXCERPT = 200
"""Length in characters of the excerpt that is kept of an unusable answer."""
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
        form: the sentence that describes the form.
        schema: the JSON schema of the answer.
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

    def opening(self) -> dict[str, Any]:
        """Return the first message."""
        text = f"{self.text}\n\n{self.form}"
        if self.image is None:
            return {"role": "user", "content": text}
        shown = {"type": "image_url", "image_url": {"url": self.image()}}
        return {"role": "user", "content": [shown, {"type": "text", "text": text}]}

    def again(self, problem: str) -> str:
        """Return the reply to an invalid answer."""
        return f"That was not valid ({problem}). {self.form}"


@dataclass(frozen=True)
class ChatAnswer:
    """The result of a task.

    Attributes:
        found: the JSON of a valid answer; ``None`` if no answer was valid.
        problem: the reason why no answer was valid, a short text that is counted.
        extra: an excerpt of the invalid answer, under ``answer``.
    """

    found: Mapping[str, Any] | None = None
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
        model: the model's name on the server.
        cache: the folder in which answers are kept, such as ``paths.cache``; ``None`` keeps them
            only in memory.
        attempts: the largest number of times that a request is sent until its answer is valid.
        concurrency: the number of simultaneous requests.
        settings: the settings of requests: key, form of the answer, sampling, retries.
    """

    base_url: str
    model: str
    cache: str | None = None
    attempts: Positive = 3
    concurrency: Processes = 8
    settings: ChatSettings = field(default_factory=ChatSettings)

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
        asked = list(missing.items())
        pool = ThreadPoolExecutor(self.concurrency)
        try:
            for start in range(0, len(asked), AT_RISK):
                refused |= self._ask_some(asked[start : start + AT_RISK], pool)
        finally:
            pool.shutdown(cancel_futures=True)
        return [
            refused[task.key] if task.key in refused else ChatAnswer(self._kept[task.key])
            for task in tasks
        ]

    def _ask_some(
        self, asked: Sequence[tuple[str, ChatTask]], pool: ThreadPoolExecutor
    ) -> dict[str, ChatAnswer]:
        """Send several tasks, keep the valid answers, and return the invalid ones."""
        waiting = [(key, pool.submit(self._ask, one)) for key, one in asked]
        valid: dict[str, Mapping[str, Any]] = {}
        invalid: dict[str, ChatAnswer] = {}
        gone: Exception | None = None
        for key, future in waiting:
            if future.cancelled():
                continue
            try:
                answer = future.result()
            except QuestionRefusedError as error:
                answer = _problem(REFUSED, str(error))
            except (ServerError, UserError) as error:
                gone = gone or error
                for _, other in waiting:  # their requests would fail as well
                    other.cancel()
                continue
            if answer.found is not None:
                valid[key] = answer.found
            else:
                invalid[key] = answer
        self._kept.add(valid)
        if gone is not None:
            raise self._unavailable(gone) from gone
        # A few invalid answers may be all that an earlier run left to ask.
        if not valid and (len(asked) == AT_RISK or not len(self._kept)):
            self._stop_if_useless(invalid)
        return invalid

    def _unavailable(self, error: Exception) -> UnavailableError:
        """Return the error that stops the run, because every other request would fail as well."""
        if not isinstance(error, ServerError):
            return UnavailableError(str(error))
        where = f" in {self.cache}" if self.cache is not None else ""
        return UnavailableError(
            f"{error}. {len(self._kept)} answers are kept{where}: start the server, and run the "
            "same command again"
        )

    def _stop_if_useless(self, invalid: Mapping[str, ChatAnswer]) -> None:
        """Stop the run if the server refuses every request, or is not a chat server."""
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

    def _ask(self, task: ChatTask) -> ChatAnswer:
        """Send one task until its answer is valid, or its attempts are used up."""
        messages = [task.opening()]
        answer = ChatAnswer(problem=EMPTY)
        for attempt in range(self.attempts):
            question = ChatRequest(messages, (task.seed + attempt) % 2**31)
            body = question.body(self.model, self.settings, task.schema)
            answer = _read(self._client.post(body), task)
            if answer.found is not None:
                break
            messages = [
                *messages[:1],
                {"role": "assistant", "content": str(answer.extra.get("answer", ""))},
                {"role": "user", "content": task.again(answer.problem)},
            ]
        return answer

    @cached_property
    def _client(self) -> ChatClient:
        return ChatClient(self.base_url, self.settings)

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
        said = message["content"]
    except (KeyError, IndexError, TypeError):
        return _problem(NO_CHAT, str(reply.get("error") or json.dumps(reply)))
    if isinstance(message.get("refusal"), str) and message["refusal"]:
        return _problem(REFUSED, message["refusal"])
    if not isinstance(said, str) or not said.strip():
        return _problem(EMPTY, "")
    if choice.get("finish_reason") == "length":
        return _problem(CUT_OFF, said)
    try:
        found = json.loads(_unfence(said))
    except (ValueError, RecursionError):
        return _problem(NO_JSON, said)
    try:
        return ChatAnswer(task.read(found))
    except UnusableError as error:
        return _problem(str(error), said)


def _problem(problem: str, answer: str) -> ChatAnswer:
    # JSON may contain a lone surrogate, which cannot be encoded.
    excerpt = answer[:EXCERPT].encode(errors="replace").decode()
    return ChatAnswer(problem=problem, extra={"answer": excerpt})


def is_text(found: Any) -> bool:
    """Return whether a value is a text that every file can hold: no NUL, no lone surrogate."""
    if not isinstance(found, str) or "\0" in found:
        return False
    try:
        found.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unfence(text: str) -> str:
    """Return the content of a fenced Markdown block, if the text is one.

    A model's reasoning before the answer is removed.
    """
    text = text.rpartition(THOUGHT)[2].strip()
    if text.startswith("```") and text.endswith("```") and len(text) > 6:
        return text[3:-3].removeprefix("json")
    return text


# Variations of captions by a server that speaks OpenAI's protocol: vLLM, llama.cpp, Ollama, ...

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
        return [
            _variations(answer) for answer in self.ask([_task(request) for request in requests])
        ]

    def describe(self) -> dict[str, str]:
        """Return the model and the settings, without the server's address and key."""
        return {"perturber": f"chat server {self.identity()}"}


def _task(request: VariationRequest) -> ChatTask:
    parts = [request.prompt.text, request.caption, request.count, request.seed]
    return ChatTask(
        key=sha256_text(json.dumps(parts)),
        text=request.prompt.say(request.caption),
        form=ASK.format(count=request.count),
        schema=SCHEMA,
        seed=request.seed,
        read=partial(_read_variations, request.count),
    )


def _read_variations(count: int, found: Any) -> dict[str, Any]:
    texts = found.get("variations") if isinstance(found, dict) else None
    if not isinstance(texts, list) or not all(map(is_text, texts)):
        raise UnusableError(WRONG_FORM)
    good = unique(texts)[:count]
    if not good:
        raise UnusableError(EMPTY)
    return {"texts": list(good)}


def _variations(answer: ChatAnswer) -> Variations:
    if answer.found is None:
        return Variations(problem=answer.problem, extra=answer.extra)
    return Variations(tuple(answer.found["texts"]))
