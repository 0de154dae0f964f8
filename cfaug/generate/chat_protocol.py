"""The part of OpenAI's chat protocol over HTTP that is needed here: one question, one answer.

It uses the standard library's client. Redirections are not followed, because the key would follow
them; answers are read up to a limit; temporary errors are retried with exponential backoff.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Literal
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from cfaug.core.errors import UserError, say
from cfaug.core.safety.addresses import without_secrets
from cfaug.core.validation import Count, Positive, PositiveNumber, Weight, check_fields

Structure = Literal["json_schema", "json_object", "none"]

MOST_BYTES = 4 * 2**20
"""Largest size of an answer in bytes; a longer one is an error."""

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
class ChatSettings:
    """The settings of requests to a server.

    Args:
        key_variable: the name of the environment variable with the key; ``None`` sends no key.
        structured: the way to request the form of the answer: ``json_schema``, which vLLM, SGLang,
            llama.cpp, Ollama and OpenAI support, ``json_object`` for older servers, or ``none``,
            only in words. The answer is checked in any case.
        temperature: the temperature of sampling; every question is sent with a seed.
        max_tokens: the largest number of tokens in an answer.
        timeout: the time limit for an answer, in seconds.
        retries: the largest number of retries of a question after temporary errors.
        backoff: the time before the first retry, in seconds; every further retry waits twice as
            long, or as long as the server says.
    """

    key_variable: str | None = None
    structured: Structure = "json_schema"
    temperature: float = 0.7
    max_tokens: Positive = 1024
    timeout: PositiveNumber = 120.0
    retries: Count = 5
    backoff: Weight = 1.0

    def __post_init__(self) -> None:
        check_fields(self, "settings")

    @staticmethod
    def check_url(base_url: str) -> None:
        """Refuse a URL that is invalid or contains a password or a query."""
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            shown = without_secrets(base_url)
            raise UserError(f"base_url={shown} should be such as http://localhost:8000/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise UserError(
                "base_url holds a name, a password or a query: put the key into an environment "
                "variable, and name that in settings.key_variable"
            )

    def answering(self) -> str:
        """Return the settings that change an answer."""
        return f"{self.structured} temperature {self.temperature} max_tokens {self.max_tokens}"

    def headers(self) -> dict[str, str]:
        """Return the headers of a question."""
        found = {"Content-Type": "application/json", "Accept": "application/json"}
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
            found["Authorization"] = f"Bearer {key}"
        return found


@dataclass(frozen=True)
class ChatRequest:
    """One question: the messages so far, and the seed of the answer."""

    messages: Sequence[Mapping[str, Any]]
    seed: int

    def body(self, model: str, settings: ChatSettings, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON to send.

        Args:
            model: the model's name on the server.
            schema: the JSON schema of the answer.
        """
        form: dict[str, Any] = {"type": settings.structured}
        if settings.structured == "json_schema":
            named = {"name": "answer", "schema": dict(schema), "strict": True}
            form["json_schema"] = named
        return {
            "model": model,
            "messages": [dict(message) for message in self.messages],
            "temperature": settings.temperature,
            "max_tokens": settings.max_tokens,
            "seed": self.seed,
            **({} if settings.structured == "none" else {"response_format": form}),
        }


class ChatClient:
    """Sends questions to one server, from several threads at once.

    After the server could not be reached, each further question is sent only once, without retries,
    until one is answered.

    Args:
        base_url: the server's address with the version of its API.
    """

    def __init__(self, base_url: str, settings: ChatSettings) -> None:
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._settings = settings
        self._gone, self._told = threading.Event(), threading.Event()

    def post(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a question; return the answer, or ``{"error": ...}`` if it is not a JSON object.

        Raises:
            ServerError: if the server cannot be reached, or fails at every retry.
            QuestionRefusedError: if the server refuses this question.
        """
        content = json.dumps(body).encode()
        request = Request(self._url, content, self._settings.headers(), method="POST")
        wait = self._settings.backoff
        for left in range(0 if self._gone.is_set() else self._settings.retries, -1, -1):
            try:
                answer = _send(request, self._settings.timeout)
            except _TryAgainError as error:
                if not left:
                    self._gone.set()
                    raise ServerError(f"the server at {self._url} fails: {error}") from error
                if not self._told.is_set():
                    self._told.set()
                    say(f"the server at {self._url} does not answer now ({error}): trying again")
                time.sleep(min(max(wait, error.wait), LONGEST_WAIT))
                wait *= 2
            else:
                break
        self._gone.clear()
        return answer


class _TryAgainError(Exception):
    """A temporary error; ``wait`` is the server's ``Retry-After``, in seconds."""

    def __init__(self, said: object, wait: float = 0.0) -> None:
        super().__init__(str(said))
        self.wait = wait


class _NoRedirection(HTTPRedirectHandler):
    def redirect_request(self, req: Request, fp: Any, code: int, *args: Any) -> None:
        raise UserError(
            f"{req.full_url} redirects ({code}), and the key is not sent elsewhere: give base_url "
            "as the server has it in the end"
        )


def _send(request: Request, timeout: float) -> Mapping[str, Any]:
    until = time.monotonic() + timeout
    try:
        with build_opener(_NoRedirection()).open(request, timeout=timeout) as reply:
            content = _read(reply, until)
    except HTTPError as error:
        what = f"HTTP {error.code} {_explanation(error)}".strip()
        if error.code in PASSING:
            raise _TryAgainError(what, _seconds(error.headers.get("Retry-After"))) from error
        if error.code in ABOUT_THE_QUESTION:
            raise QuestionRefusedError(what) from error
        raise UserError(f"{request.full_url} refuses all questions: {what}") from error
    except (URLError, HTTPException, OSError) as error:  # a timeout is an OSError
        said = str(getattr(error, "reason", "") or error) or type(error).__name__
        raise _TryAgainError(said) from error
    if len(content) > MOST_BYTES:
        return {"error": f"more than {MOST_BYTES} bytes"}
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {"error": content[:200].decode(errors="replace")}
    return found if isinstance(found, dict) else {"error": str(found)[:200]}


def _explanation(error: HTTPError) -> str:
    """Return the beginning of a server's explanation of an error; empty if it cannot be read."""
    with suppress(HTTPException, OSError):
        return error.read(500).decode(errors="replace").strip()
    return ""


def _read(reply: Any, until: float) -> bytes:
    """Read an answer within the limits of size and time: a socket's own timeout is per packet."""
    content = b""
    while part := reply.read1(2**16):
        content += part
        if time.monotonic() > until:
            raise TimeoutError("the answer takes too long")
        if len(content) > MOST_BYTES:
            break
    return content


def _seconds(said: str | None) -> float:
    """Return the seconds of a server's ``Retry-After``; 0 if it is missing or not a number."""
    try:
        return max(0.0, float(said or 0))
    except ValueError:
        return 0.0
