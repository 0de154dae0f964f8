"""Requests to a server over HTTP, with a key, limits of time and size, and retries.

The standard library's client sends them. Redirections are not followed, because the key would
follow them; answers are read up to a limit; temporary errors are retried with exponential backoff.
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
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Annotated, Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
)

from cfaug.core.annotations import NO_RESULT
from cfaug.core.deadlines import Deadline
from cfaug.core.errors import UserError, say
from cfaug.core.safety.addresses import (
    hide_in_answer,
    hide_keys,
    remember_key,
    without_secrets,
)
from cfaug.core.safety.json_text import load_json
from cfaug.core.validation import Count, PositiveNumber, Weight, check_fields

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
        timeout: the time limit for an answer from the request to its last byte, in seconds. A
            question has one deadline, after ``1 + retries`` times this, pauses included.
        backoff: the time before the first retry, in seconds; every further retry waits twice as
            long, or as long as the server says.
    """

    key_variable: Annotated[str | None, NO_RESULT] = None
    timeout: Annotated[PositiveNumber, NO_RESULT] = 120.0
    retries: Annotated[Count, NO_RESULT] = 5
    """how often a failed request is sent again"""
    backoff: Annotated[Weight, NO_RESULT] = 1.0

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
        retries = 0 if self._gone.is_set() else self._settings.retries
        deadline = Deadline((1 + retries) * self._settings.timeout)
        for left in range(retries, -1, -1):
            try:
                answer = _send(request, min(self._settings.timeout, deadline.left), self._most)
            except _TryAgainError as error:
                pause = min(max(wait, error.wait), LONGEST_WAIT)
                if not left or pause >= deadline.left:
                    self._gone.set()
                    late = f"; settings.timeout allows no pause of {pause:.0f} seconds more"
                    raise ServerError(
                        f"the server at {url} fails: {error}{late if left else ''}"
                    ) from error
                if not self._told.is_set():
                    self._told.set()
                    say(f"the server at {url} does not answer now ({error}): trying again")
                time.sleep(pause)
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


class _Watchdog:
    """Shuts the connections of a request down when its time has passed.

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
        """Have a connection shut down in time; a copy, as urllib closes its own early."""
        self._connections.append(socket.socket(fileno=os.dup(connection.fileno())))
        if self.passed:
            self._shut_down()

    def _shut_down(self) -> None:
        self.passed = True
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def check(self) -> None:
        """Refuse an answer that was cut off."""
        if self.passed:
            raise TimeoutError(TOO_LONG)

    def end(self) -> None:
        """Forget the connections."""
        self._timer.cancel()
        for connection in self._connections:
            connection.close()


class _WatchedConnections(HTTPHandler, HTTPSHandler):
    """Opens connections that a watchdog shuts down."""

    def __init__(self, watchdog: _Watchdog) -> None:
        super().__init__()
        self._watchdog = watchdog

    def http_open(self, req: Request) -> Any:
        return self.do_open(partial(_watched, HTTPConnection, self._watchdog), req)

    def https_open(self, req: Request) -> Any:
        return self.do_open(partial(_watched, HTTPSConnection, self._watchdog), req)


def _watched(kind: type[HTTPConnection], watchdog: _Watchdog, host: str, **given: Any) -> Any:
    """Return a connection that a watchdog shuts down."""
    connection = kind(host, **given)
    connect = connection.connect

    def connect_and_watch() -> None:
        connect()
        watchdog.watch(connection.sock)

    connection.connect = connect_and_watch  # type: ignore[method-assign]
    return connection


class _NoRedirection(HTTPRedirectHandler):
    def redirect_request(self, req: Request, fp: Any, code: int, *args: Any) -> None:
        raise UserError(
            f"{req.full_url} redirects ({code}), and the key is not sent elsewhere: give base_url "
            "as the server has it in the end"
        )


def _send(request: Request, timeout: float, most_bytes: int) -> Mapping[str, Any]:
    content, watchdog = b"", _Watchdog(timeout)
    try:
        opener = build_opener(_NoRedirection(), _WatchedConnections(watchdog))
        with opener.open(request, timeout=timeout) as reply:
            # Within a limit of size: an answer may have no end.
            while len(content) <= most_bytes and (part := reply.read1(2**16)):
                content += part
            watchdog.check()
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
        reason = TOO_LONG if watchdog.passed else hide_keys(reason)
        raise _TryAgainError(reason) from error
    finally:
        watchdog.end()
    if len(content) > most_bytes:
        return {"error": f"more than {most_bytes} bytes"}
    try:
        answer = load_json(content)
    except ValueError:
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
