"""``cfaug zoo``: what is shipped, and the arguments, cards and exit codes of its commands."""

from __future__ import annotations

import json
import platform
from importlib import import_module
from pathlib import Path

import pytest
import torch

import zoo
from cfaug.core.errors import UserError
from cfaug.core.weights import zoo_shelf
from cfaug.run.zoo import main as list_zoo
from zoo.clip import PretrainSettings
from zoo.command import make_model, read, write_card
from zoo.diffusion_settings import DiffusionSettings
from zoo.language import LanguageSettings

CARDS = sorted(zoo_shelf().glob("*/card.json"))


def test_every_shipped_model_is_listed_and_its_card_names_a_command(capsys) -> None:
    assert list_zoo([]) == 0
    said = capsys.readouterr().out
    assert len(CARDS) > 20
    for card in CARDS:
        assert f"zoo:{card.parent.name} " in said
        words = json.loads(card.read_text())["command"].split()
        assert words[:3] == ["python", "-m", "zoo"]
        assert words[3] in zoo.COMMANDS


@pytest.mark.slow
def test_every_command_has_a_main_and_its_help_names_it(capsys) -> None:
    for name, function in zoo.COMMANDS.items():
        module, _, main = function.rpartition(".")
        assert callable(getattr(import_module(f"zoo.{module}"), main))
        assert zoo.main([name, "--help"]) == 0
        assert f"python -m zoo {name} " in capsys.readouterr().out.replace("\n", " ")


def test_a_mistake_is_a_sentence(capsys) -> None:
    assert zoo.main(["clipp"]) == 2
    assert "the zoo has no command 'clipp'" in capsys.readouterr().err
    assert zoo.main(["clip", "sed=1"]) == 2
    assert "unknown setting 'sed'" in capsys.readouterr().err


def test_settings_are_read_with_their_types() -> None:
    assert read(PretrainSettings, ["out=x", "seed=3", "lr=2e-3"]) == PretrainSettings(
        out="x", seed=3, lr=2e-3
    )
    assert read(LanguageSettings, ["captions=a=b", "out=x"]) == LanguageSettings(
        out="x", captions="a=b"
    )


@pytest.mark.parametrize("kind", [PretrainSettings, DiffusionSettings])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("step=3", "unknown setting 'step'; choose from .*batch_size"),
        ("seed=many", "'seed=many': seed takes a number"),
        ("seed", "'seed': seed takes a number"),
        ("out=", "say where to write: out=FOLDER"),
    ],
)
def test_mistakes_are_named(kind, wrong: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        read(kind, ["out=x", wrong])


def test_what_is_needed_is_asked_for() -> None:
    with pytest.raises(UserError, match="out=FOLDER"):
        read(LanguageSettings, ["captions=y"])
    with pytest.raises(UserError, match="say what to read: captions=FILE"):
        read(LanguageSettings, ["out=x"])


def test_a_model_is_trained_saved_measured_and_has_a_card_unless_its_folder_exists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = []

    def train(settings: PretrainSettings) -> torch.nn.Module:
        done.append(settings.seed)
        return torch.nn.Linear(2, 3)

    def make() -> int:
        return make_model(
            "clip",
            PretrainSettings,
            train,
            lambda model, folder: (folder / "weights").touch(),
            lambda folder, settings: {"held": settings.held_out, "there": folder.is_dir()},
            [f"out={tmp_path / 'x'}", "seed=3"],
            leave_out=("held_out",),
        )

    assert make() == 0
    card = json.loads((tmp_path / "x" / "card.json").read_text())
    assert card["metrics"] == json.loads(capsys.readouterr().out) == {"held": 800, "there": True}
    assert card["parameters"] == 9
    assert "seed=3" in card["command"]
    assert "held_out" not in card["settings"]
    with pytest.raises(UserError, match="already"):
        make()
    assert done == [3], "nothing was trained for a folder that exists"


def test_a_card_rebuilds_and_keeps_the_callers_paths_to_itself(tmp_path: Path, capsys) -> None:
    settings = LanguageSettings(out="/home/me/out", captions="/home/me/captions", seed=3)
    facts = {"credit": "someone", "metrics": {"acc1": 0.5}}
    hidden = {"libraries": ("torch",), "leave_out": ("held_out",)}
    write_card(tmp_path, "language", settings, facts, **hidden)
    card = json.loads((tmp_path / "card.json").read_text())
    command = card["command"].split()
    assert command[:4] == ["python", "-m", "zoo", "language"]
    assert read(LanguageSettings, command[4:]) == LanguageSettings(
        out="FOLDER", captions="FILE", seed=3
    )
    assert "held_out" not in card["settings"]
    assert "/home/me" not in json.dumps(card)
    assert card["credit"] == "someone"
    assert card["threads"] == torch.get_num_threads()
    assert card["versions"] == {"python": platform.python_version(), "torch": torch.__version__}
    assert json.loads(capsys.readouterr().out) == {"acc1": 0.5}
