"""Rendering of chat templates from somebody else, in a process with limits of time and memory."""

from __future__ import annotations

import atexit
import builtins
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("chat_renderer.py")

START_S = 60.0
"""Time limit of the start of the process in seconds; it takes 0.2 s."""


class TemplateFailureError(Exception):
    """An error of a template that is not a built-in exception; its message names the class."""


class ChatRenderer:
    """A process that renders templates, one after the other; it is started when it is needed.

    Args:
        seconds: the time limit of a rendering.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """Return the text that a template makes of its variables, which are JSON.

        Raises:
            TimeoutError: if it takes longer than the limit.
            MemoryError: if it needs more memory than the limit.
            Exception: any other built-in exception of the template.
            TemplateFailureError: for an error of Jinja, or if the process was ended.
        """
        request = json.dumps({"template": template, "variables": variables}).encode() + b"\n"
        with self._lock:
            answer = self._ask(request) or self._ask(request)  # a signal may have ended the first
        if answer is None:
            raise TemplateFailureError("the process that renders it was ended twice")
        if "text" in answer:
            return str(answer["text"])
        error: Exception = TemplateFailureError(f"{answer['error']}: {answer['message']}")
        kind = getattr(builtins, answer["error"], None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            with suppress(TypeError):  # of UnicodeDecodeError, say, which takes five arguments
                error = kind(answer["message"])
        raise error

    def _ask(self, request: bytes) -> dict[str, Any] | None:
        """Return the answer to a request; ``None`` if the process ended without one."""
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._start()
        try:
            answer = self._exchange(request, self._seconds)
        except BaseException:  # also an interruption, after which an answer would be unasked for
            self.stop()
            raise
        if answer is None:
            self.stop()
        return answer

    def _start(self) -> None:
        command = [sys.executable, "-P", str(SCRIPT), str(self._seconds)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._owner = os.getpid()
        atexit.register(self.stop)
        try:
            if self._exchange(b"", START_S) is None:
                raise RuntimeError(f"{SCRIPT} does not start; it needs jinja2")
        except BaseException:
            self.stop()
            raise

    def _exchange(self, request: bytes, seconds: float) -> dict[str, Any] | None:
        """Send a request and return its answer; ``None`` if the process ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        until, parts = time.monotonic() + seconds, []
        while True:
            ready, _, _ = select.select([output], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError(f"it takes more than {seconds:g} s")
            part = os.read(output, 2**20)
            if not part:
                return None
            parts.append(part)
            if part.endswith(b"\n"):
                answer: dict[str, Any] = json.loads(b"".join(parts))
                return answer

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        atexit.unregister(self.stop)
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
