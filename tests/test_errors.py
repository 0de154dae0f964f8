"""What a command prints, and how it ends."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError, say, visible
from cfaug.core.progress import Progress
from cfaug.run.launch import report
from tests.scripts import ROOT

TITLE = "\x1b]0;owned\x07"


@given(st.text(st.characters()))
def test_a_terminal_gets_no_control_characters(text):
    shown = visible(text)
    assert visible(shown) == shown
    shown.encode()
    assert not any(ord(c) < 32 and c not in "\t\n" for c in shown)
    assert not any(127 <= ord(c) < 160 for c in shown)


def test_what_people_write_stays():
    for text in (
        "höhe 日本 a\nb\tc",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "👩\u200d🚀",
    ):
        assert visible(text) == text


def test_a_name_that_is_no_unicode_can_be_said():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")
    say("wrote \udcff.html", stream)
    stream.seek(0)
    assert stream.read() == "wrote \\udcff.html\n"


def test_errors_and_bars_hold_none(capsys):
    assert report(UserError(f"there is no folder {TITLE}")) == 2
    assert report(RuntimeError(TITLE)) == 1
    Progress(f"indexing {TITLE}", 3, "images").print_line()
    assert "\x1b" not in capsys.readouterr().err


def test_a_command_goes_on_when_its_reader_has_left():
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w", encoding="utf-8")
    say("a line that nobody reads", stream)
    say("another", stream)
    stream.close()


def test_a_help_page_that_is_cut_off_is_no_error():
    command = [sys.executable, str(ROOT / "train.py"), "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


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
        ("raise SystemExit(3)", 3, "handled\nsearched for garbage\n"),
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
