"""The command ``cfaug`` itself: what is typed after it."""

from __future__ import annotations

import pytest

from cfaug.__main__ import COMMANDS, main


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
