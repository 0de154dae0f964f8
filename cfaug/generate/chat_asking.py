"""Questions to a server that speaks OpenAI's protocol: vLLM, llama.cpp, Ollama, ...

The standard library's client sends them. Redirections are not followed, because the key would
follow them; answers are read up to a limit; temporary errors are retried with exponential backoff.

Requests ask for JSON of a given schema, and answers are checked against it. Answers are cached on
disk by content, so that an interrupted run does not repeat a question: a server may answer it
differently the second time.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
)

from cfaug.core.errors import UnavailableError, UserError, say
from cfaug.core.safety.addresses import (
    hide_in_answer,
    hide_keys,
    remember_key,
    without_secrets,
)
from cfaug.core.validation import Count, Positive, PositiveNumber, Processes, Weight, check_fields
from cfaug.core.weights import sha256_text
from cfaug.editing.edit_prompts import unique
from cfaug.editing.protocols import VariationRequest, Variations
from cfaug.generate.annotators import AnnotationCache

MOST_BYTES = 4 * 2**20
"""Largest size of an answer in bytes; a longer one is an error."""
BEARER = "Bearer "
LONGEST_WAIT = 60.0
"""Longest time between two attempts, in seconds."""
PASSING = frozenset([408, 409, 425, 429, 500, 502, 503, 504])
"""HTTP statuses of temporary errors."""
ABOUT_THE_QUESTION = frozenset([400, 413, 422])
"""HTTP statuses with which a server refuses a single question, such as one that is too long."""


class ServerError(Exception):
    """The server is unreachable or keeps failing: no question can be answered now."""


class QuestionRefusedError(Exception):
    """The server refuses a question; it may accept others."""


@dataclass(frozen=True)
class ServerSettings:
    """The settings of requests to a server of any kind.

    Args:
        key_variable: the name of the environment variable with the key; ``None`` sends no key.
        timeout: the time limit for an answer from the request to its last byte, in seconds.
        backoff: the time before the first retry, in seconds; every further retry waits twice as
            long, or as long as the server says.
    """

    key_variable: str | None = None
    timeout: PositiveNumber = 120.0
    retries: Count = 5
    backoff: Weight = 1.0

    def __post_init__(self) -> None:
        check_fields(self, "settings")

    @staticmethod
    def check_url(base_url: str) -> None:
        """Refuse a URL that is invalid or contains a password or a query."""
        try:
            parts = urlsplit(base_url)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # such as a port of letters
            valid = False
        if not valid or not base_url.isascii() or not base_url.isprintable() or " " in base_url:
            shown = without_secrets(base_url)
            raise UserError(f"base_url={shown} should be such as http://localhost:8000/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise UserError(
                "base_url holds a name, a password or a query: put the key into an environment "
                "variable, and name that in settings.key_variable"
            )

    def headers(self, content_type: str = "application/json") -> dict[str, str]:
        """Return the headers of a question whose content has the given type."""
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        if self.key_variable is not None:
            key = os.environ.get(self.key_variable, "").strip()
            if not key:
                raise UserError(
                    f"the environment variable {self.key_variable}, which should hold the server's "
                    "key, is missing"
                )
            if not (key.isascii() and key.isprintable()):
                raise UserError(
                    f"the environment variable {self.key_variable} holds an invalid key: letters, "
                    "digits and signs of ASCII in one line"
                )
            remember_key(key)
            headers["Authorization"] = f"{BEARER}{key}"
        return headers


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


class ServerClient:
    """Sends questions to one server, from several threads at once.

    After the server could not be reached, each further question is sent only once, without retries,
    until one is answered.

    Args:
        most_bytes: the largest size of an answer; a longer one is an error.
    """

    def __init__(
        self, base_url: str, settings: ServerSettings, most_bytes: int = MOST_BYTES
    ) -> None:
        self._base, self._most = base_url.rstrip("/"), most_bytes
        self._settings = settings
        self._gone, self._told = threading.Event(), threading.Event()

    def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a question as JSON; see ``send``."""
        return self.send(path, json.dumps(body).encode())

    def send(
        self, path: str, content: bytes, content_type: str = "application/json"
    ) -> Mapping[str, Any]:
        """Send a question; return the answer, or ``{"error": ...}`` if it is not a JSON object.

        Args:
            path: the path below the server's address, such as ``chat/completions``.

        Raises:
            ServerError: if the server cannot be reached, or fails at every retry.
            QuestionRefusedError: if the server refuses this question.
        """
        url = f"{self._base}/{path}"
        request = Request(url, content, self._settings.headers(content_type), method="POST")
        wait = self._settings.backoff
        for left in range(0 if self._gone.is_set() else self._settings.retries, -1, -1):
            try:
                answer = _send(request, self._settings.timeout, self._most)
            except _TryAgainError as error:
                if not left:
                    self._gone.set()
                    raise ServerError(f"the server at {url} fails: {error}") from error
                if not self._told.is_set():
                    self._told.set()
                    say(f"the server at {url} does not answer now ({error}): trying again")
                time.sleep(min(max(wait, error.wait), LONGEST_WAIT))
                wait *= 2
            else:
                break
        self._gone.clear()
        return answer


class _TryAgainError(Exception):
    """A temporary error; ``wait`` is the server's ``Retry-After``, in seconds."""

    def __init__(self, message: object, wait: float = 0.0) -> None:
        super().__init__(str(message))
        self.wait = wait


TOO_LONG = "the answer takes too long"


class _Deadline:
    """The time limit of a whole request: its connections are shut down when it has passed.

    A socket's own timeout is that of one packet, and a server may send a header, an error text or
    an answer by single bytes.
    """

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._connections: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._shut_down)
        self._timer.daemon = True
        self._timer.start()

    def watch(self, connection: socket.socket) -> None:
        """Have a connection shut down at the deadline; a copy, as urllib closes its own early."""
        self._connections.append(socket.socket(fileno=os.dup(connection.fileno())))
        if self.passed:
            self._shut_down()

    def _shut_down(self) -> None:
        self.passed = True
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def check(self) -> None:
        """Refuse an answer that the deadline has cut off."""
        if self.passed:
            raise TimeoutError(TOO_LONG)

    def end(self) -> None:
        """Forget the connections."""
        self._timer.cancel()
        for connection in self._connections:
            connection.close()


class _Http(HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: Request) -> Any:
        return self.do_open(partial(_watched, HTTPConnection, self._deadline), req)


class _Https(HTTPSHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: Request) -> Any:
        return self.do_open(partial(_watched, HTTPSConnection, self._deadline), req)


def _watched(kind: type[HTTPConnection], deadline: _Deadline, host: str, **given: Any) -> Any:
    """Return a connection that a deadline shuts down."""
    connection = kind(host, **given)
    connect = connection.connect

    def connect_and_watch() -> None:
        connect()
        deadline.watch(connection.sock)

    connection.connect = connect_and_watch  # type: ignore[method-assign]
    return connection


class _NoRedirection(HTTPRedirectHandler):
    def redirect_request(self, req: Request, fp: Any, code: int, *args: Any) -> None:
        raise UserError(
            f"{req.full_url} redirects ({code}), and the key is not sent elsewhere: give base_url "
            "as the server has it in the end"
        )


def _send(request: Request, timeout: float, most_bytes: int) -> Mapping[str, Any]:
    content, deadline = b"", _Deadline(timeout)
    try:
        opener = build_opener(_NoRedirection(), _Http(deadline), _Https(deadline))
        with opener.open(request, timeout=timeout) as reply:
            # Within a limit of size: an answer may have no end.
            while len(content) <= most_bytes and (part := reply.read1(2**16)):
                content += part
            deadline.check()
            if reply.length and len(content) <= most_bytes:  # read1 is silent about it
                raise ConnectionError("the connection broke in the middle of the answer")
    except HTTPError as error:
        explanation = ""
        with suppress(HTTPException, OSError):
            explanation = error.read(5000).decode(errors="replace").strip()
        # Some servers repeat the key; a part of it could be left if the text were cut first.
        explanation = hide_keys(explanation)[:500]
        problem = f"HTTP {error.code} {explanation}".strip()
        if error.code in PASSING:
            wait = 0.0
            with suppress(ValueError):
                wait = max(0.0, float(error.headers.get("Retry-After") or 0))
            raise _TryAgainError(problem, wait) from error
        if error.code in ABOUT_THE_QUESTION:
            raise QuestionRefusedError(problem) from error
        raise UserError(f"{request.full_url} refuses all questions: {problem}") from error
    except (URLError, HTTPException, OSError) as error:  # a timeout is an OSError
        reason = str(getattr(error, "reason", "") or error) or type(error).__name__
        reason = TOO_LONG if deadline.passed else hide_keys(reason)
        raise _TryAgainError(reason) from error
    finally:
        deadline.end()
    if len(content) > most_bytes:
        return {"error": f"more than {most_bytes} bytes"}
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return {"error": hide_keys(content[:5000].decode(errors="replace"))[:200]}
    answer = hide_in_answer(answer)
    return answer if isinstance(answer, dict) else {"error": str(answer)[:200]}


T = TypeVar("T")
R = TypeVar("R")


def ask_at_once(
    questions: Sequence[T], ask: Callable[[T], R], at_once: int
) -> tuple[list[R | None], Exception | None]:
    """Ask several questions at once; after the first failure, no further one is sent.

    Ctrl-C does not wait for the answers that are under way, which may take minutes.

    Args:
        ask: a function that asks one question; a ``ServerError`` or ``UserError`` of it is a
            failure of the server, and any other error is raised.
        at_once: the number of questions that are sent at once.

    Returns:
        The answers in order, ``None`` where there is none, and the first failure.
    """
    answers: list[R | None] = [None] * len(questions)
    errors: dict[int, Exception] = {}
    stopped = threading.Event()
    waiting = deque(enumerate(questions))

    def work() -> None:
        while not stopped.is_set():
            try:
                number, question = waiting.popleft()
            except IndexError:
                return
            try:
                answers[number] = ask(question)
            except Exception as error:  # a further question would fail as well
                errors[number] = error
                stopped.set()

    # Daemons, unlike a pool's threads: the interpreter does not wait for them at its end.
    threads = [
        threading.Thread(target=work, daemon=True) for _ in range(min(at_once, len(questions)))
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stopped.set()
    error = errors[min(errors)] if errors else None
    if error is not None and not isinstance(error, ServerError | UserError):
        raise error
    return answers, error


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
        cache: the folder in which answers are kept, such as ``paths.cache``; ``None`` keeps them
            only in memory.
        attempts: the largest number of times that a request is sent until its answer is valid.
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
        for start in range(0, len(asked), AT_RISK):
            refused |= self._ask_some(asked[start : start + AT_RISK])
        return [
            refused[task.key] if task.key in refused else ChatAnswer(self._kept[task.key])
            for task in tasks
        ]

    def _ask_some(self, asked: Sequence[tuple[str, ChatTask]]) -> dict[str, ChatAnswer]:
        """Send several tasks, keep the valid answers, and return the invalid ones."""
        tasks = [task for _, task in asked]
        answers, gone = ask_at_once(tasks, self._ask_or_refuse, self.concurrency)
        valid: dict[str, Mapping[str, Any]] = {}
        invalid: dict[str, ChatAnswer] = {}
        for (key, _), answer in zip(asked, answers, strict=True):
            if answer is not None and answer.found is not None:
                valid[key] = answer.found
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
        if not valid and (len(asked) == AT_RISK or not len(self._kept)):
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

    def _ask_or_refuse(self, task: ChatTask) -> ChatAnswer:
        try:
            return self._ask(task)
        except QuestionRefusedError as error:
            return _problem(REFUSED, str(error))

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
            answer = _read(self._client.post("chat/completions", body), task)
            if answer.found is not None:
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
        answer = json.loads(text)
    except (ValueError, RecursionError):
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
        return [
            Variations(problem=answer.problem, extra=answer.extra)
            if answer.found is None
            else Variations(tuple(answer.found["texts"]))
            for answer in self.ask([_task(request) for request in requests])
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


def _read_variations(count: int, answer: Any) -> dict[str, Any]:
    texts = answer.get("variations") if isinstance(answer, dict) else None
    if not isinstance(texts, list) or not all(map(is_text, texts)):
        raise UnusableError(WRONG_FORM)
    good = unique(texts)[:count]
    if not good:
        raise UnusableError(EMPTY)
    return {"texts": list(good)}
