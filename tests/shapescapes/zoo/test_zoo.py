"""``cfaug zoo``: what is shipped, and what trains it."""

from __future__ import annotations

import json
from importlib import import_module

import pytest

from cfaug.core.weights import zoo_shelf
from cfaug.shapescapes.zoo import __main__ as zoo


def test_every_shipped_model_is_listed(capsys):
    assert zoo.main([]) == 0
    said = capsys.readouterr().out
    shipped = [card.parent.name for card in zoo_shelf().glob("*/card.json")]
    assert len(shipped) > 20
    for name in shipped:
        assert f"zoo:{name} " in said


@pytest.mark.slow
def test_every_command_has_a_main():
    for module in zoo.COMMANDS.values():
        assert callable(import_module(module).main)


def test_every_card_names_a_command_of_the_zoo():
    for card in zoo_shelf().glob("*/card.json"):
        command = json.loads(card.read_text())["command"]
        assert command.split()[:4] == ["python", "-m", "cfaug", "zoo"]
        assert command.split()[4] in zoo.COMMANDS


def test_a_mistake_is_a_sentence(capsys):
    assert zoo.main(["clipp"]) == 2
    assert "the zoo has no command 'clipp'" in capsys.readouterr().err
    assert zoo.main(["clip", "sed=1"]) == 2
    assert "unknown setting 'sed'" in capsys.readouterr().err
    assert zoo.main(["clip", "--help"]) == 0
    assert "out=" in capsys.readouterr().out
