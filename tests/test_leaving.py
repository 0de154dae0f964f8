"""The end of a command: exit handlers run, and what is printed and the exit code arrive."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CYCLE = (
    "import atexit\n"
    "from cfaug.core.errors import exit_with\n"
    "class Searched:\n"
    "    def __del__(self):\n"
    "        print('searched for garbage')\n"
    "one = Searched()\n"
    "one.itself = one\n"
    "atexit.register(print, 'handled')\n"
)


@pytest.mark.parametrize(
    ("end", "code", "printed"),
    [
        ("exit_with(3)", 3, "handled\n"),
        ("exit_with(0)", 0, "handled\n"),
        ("raise SystemExit(3)", 3, "handled\nsearched for garbage\n"),
        ("raise ValueError", 1, "handled\nsearched for garbage\n"),
    ],
)
def test_an_ended_command_is_not_searched_for_garbage(end, code, printed):
    done = subprocess.run([sys.executable, "-c", CYCLE + end], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, printed)


def test_output_that_cannot_be_written_is_told_of():
    code = "from cfaug.core.errors import exit_with; print('kept back'); exit_with(0)"
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], env=buffered, stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 120
    assert b"the output could not be written: [Errno 28] No space left on device" in done.stderr
