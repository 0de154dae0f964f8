"""Headless Chromium over its debugging pipe: open a page, run JavaScript in it, take its picture.

No package is needed: messages are JSON, ended by a zero byte, on two pipes of the process.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-sync", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip


def find() -> str | None:
    """Return the path of the browser's program; ``None`` if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab; it records the page's logs and errors, and every address that it requests.

    Args:
        profile: an empty folder for the browser's own files.
        width: the width of the window in CSS pixels.
        height: the height of the window in CSS pixels.
    """

    def __init__(self, profile: Path, width: int = 1200, height: int = 900) -> None:
        program = find()
        if program is None:
            raise RuntimeError(f"none of {', '.join(NAMES)} is installed")
        self.errors: list[str] = []
        self.requests: list[str] = []
        read_commands, write_commands = os.pipe()
        read_answers, write_answers = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4; a shell puts them there.
        script = f'exec "$@" 3<&{read_commands} 4>&{write_answers}'
        flags = [*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, "browser", program, *flags, "about:blank"],
            pass_fds=(read_commands, write_answers),
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_answers)
        self._commands = os.fdopen(write_commands, "wb")
        self._answers = os.fdopen(read_answers, "rb")
        self._count, self._session, self._rest = 0, "", b""
        self._events: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._commands.close()
        self._answers.close()
        self._process.kill()
        self._process.wait()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command of the DevTools protocol and return its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._answers.fileno(), 1 << 20)
            if not piece:
                raise RuntimeError("the browser is gone")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        method, about = message.get("method", ""), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(about["exceptionDetails"])[:2000])
        elif method == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(about["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"][:100])
        return message

    def open(self, file: Path) -> None:
        """Open a file and wait until it has loaded."""
        self._events.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._receive()

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression, or of its promise."""
        reply = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in reply:
            raise RuntimeError(json.dumps(reply["exceptionDetails"])[:2000])
        return reply["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key at the focused element."""
        text = {"text": key} if len(key) == 1 else {}
        names = {"Enter": {"text": "\r"}}.get(key, text)
        codes = {"ArrowLeft": 37, "ArrowRight": 39, "Tab": 9, "Escape": 27, "Enter": 13}
        for kind in ("keyDown", "keyUp"):
            fields = names if kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key,
                windowsVirtualKeyCode=codes.get(key, 0), **fields,
            )  # fmt: skip

    def view(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """Set the window's size and the preferred colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=2 if phone else 1, mobile=phone,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, file: Path, top: int = 0) -> None:
        """Write a screenshot of the window as a PNG, without its first ``top`` CSS pixels."""
        self.run("Promise.all([...document.images].map((i) => i.decode().catch(() => 0)))")
        width, height = self.run("[innerWidth, innerHeight]")
        clip = {"x": 0, "y": top, "width": width, "height": height - top, "scale": 1}
        picture = self.call("Page.captureScreenshot", clip=clip)
        file.write_bytes(base64.b64decode(picture["data"]))
