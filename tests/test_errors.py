"""What a command prints, how far long work is, and how a command ends."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.__main__ import COMMANDS, main
from cfaug.core import progress
from cfaug.core.errors import CALLED_BY, UserError, name_commands, say, visible
from cfaug.core.progress import MIB, Progress, watch
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


def test_a_mistyped_command_is_answered_with_the_nearest(capsys):
    assert main(["trian"]) == 2
    assert "no command is called 'trian': did you mean train?" in capsys.readouterr().err
    assert main(["xyz"]) == 2
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_names_every_command(capsys, words):
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(capsys, name):
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.strip()


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def slowly(clock, count, seconds):
    for number in range(count):
        yield number
        clock.now += seconds


def test_a_log_gets_lines_at_first_often_and_then_each_minute(clock, capsys):
    """With rate and time left: the first after four seconds, the next after twice as long."""
    assert list(watch(slowly(clock, 30, 10.0), "embedding", 30, "images")) == list(range(30))
    lines = capsys.readouterr().err.splitlines()
    seconds = [10 * (int(line.split("/")[0].split()[-1]) - 1) for line in lines]
    assert seconds == [10, 20, 40, 80, 140, 200, 260]
    assert lines[4] == "embedding: 15/30 images, 0.1 images/s, 0:02:20 left"


def test_work_of_a_few_seconds_leaves_no_line(clock, capsys):
    assert len(list(watch(slowly(clock, 5, 0.7), "embedding", 5, "images"))) == 5
    assert capsys.readouterr().err == ""


def test_what_an_earlier_process_did_says_nothing_of_the_speed(clock):
    with Progress("training", 100, "steps") as shown:
        shown.skip(50)
        clock.now += 10
        shown.advance(10, "loss 0.412")
        assert shown.status() == "60/100 steps, 1.0 steps/s, 0:00:40 left, loss 0.412"


def test_bytes_are_told_in_mib_and_an_unknown_total_is_left_out(clock):
    with Progress("indexing", None, "bytes") as shown:
        clock.now += 2
        shown.advance(3 * MIB)
        assert shown.status() == "3.0 MiB, 1.5 MiB/s"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_after_a_moment_and_loses_it_at_the_end(clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("embedding", 10, "images") as shown:
        shown.advance()
        assert shown._bar is None
        clock.now += 3
        shown.advance()
        assert shown._bar is not None
        shown.advance(3)
    assert shown._bar is None
    assert "embedding" in terminal.getvalue()
    assert "5/10 images" in terminal.getvalue()


def test_a_terminal_that_cannot_draw_gets_lines(clock, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    list(watch(slowly(clock, 3, 100.0), "embedding", 3, "images"))
    assert terminal.getvalue().startswith("embedding: ")


@given(st.lists(st.integers(0, 50)), st.integers(0, 100))
def test_counts_add_up(units, known):
    shown = Progress("work", None, "items", shown=False)
    shown.skip(known)
    for count in units:
        shown.advance(count)
    assert (shown.done, shown.known) == (sum(units) + known, known)


def test_commands_are_named_by_the_path_that_the_user_typed(tmp_path, monkeypatch):
    monkeypatch.delenv(CALLED_BY, raising=False)
    clone = tmp_path / "my clone"
    clone.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["my clone/evaluate.py"])
    assert name_commands("python train.py a") == "python 'my clone'/train.py a"
    monkeypatch.chdir(clone)
    for called in ("evaluate.py", "./evaluate.py", f"{clone}/evaluate.py", "/bin/pytest"):
        monkeypatch.setattr("sys.argv", [called])
        assert name_commands("python train.py a") == "python train.py a"
