"""Every command of the README and of the pages in docs composes; those marked offline run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cfaug.planning.training import TrainSettings
from cfaug.run.arguments import read
from cfaug.run.compose import compose_jobs, first_values
from cfaug.run.evaluate import EvaluateSettings
from cfaug.run.generate import GenerateSettings
from cfaug.run.usage import usage

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {"train": TrainSettings, "evaluate": EvaluateSettings, "generate": GenerateSettings}


README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
SHORT = {"train": "trainer.max_steps=2", "generate": "limit=2"}
"""What makes a command of a page in docs short, unless it says as much itself."""
LONG = {"limit=100": "limit=6"}
"""What stands in for words of a page that take minutes."""


def readme_commands(pages: list[Path] = PAGES) -> list[tuple[str, bool]]:
    """Return (command, marked offline) for every line of a bash block that starts with python."""
    found = []
    text = "\n".join(page.read_text() for page in pages)
    for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            command, _, comment = line.partition("  # ")
            if command.startswith("python "):
                found.append((command.strip(), comment.strip().startswith("offline")))
    return found


ALL = readme_commands()
OFFLINE = [command for command, offline in readme_commands([README]) if offline]


def test_the_readme_has_commands_of_both_kinds():
    assert len(OFFLINE) >= 3
    assert len(ALL) > len(OFFLINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", dict.fromkeys(text for text, offline in ALL if ".py" in text and not offline)
)
def test_every_command_that_is_not_run_composes(command):
    script, *words = shlex.split(command)[1:]
    name = Path(script).stem
    assert name in COMMANDS, f"{command}: no such script"
    if "--help" in words:
        assert "key=value" in usage(name, "", ROOT / "conf")
        return
    line = read(words)
    # Composing takes a while a job; one seed tells as much as all.
    overrides = [re.sub(r"^seed=(range\()?(\d+),.*", r"seed=\2", word) for word in line.overrides]
    several = line.multirun
    if any(word.startswith("hydra/sweeper=") for word in overrides):  # it chooses the values
        several, settings = False, [word for word in overrides if not word.startswith("hydra")]
        overrides = first_values(settings)
    compose_jobs(ROOT / "conf", name, overrides, multirun=several, command=COMMANDS[name])


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder in which the commands of the pages run as in a clone."""
    monkeypatch.chdir(tmp_path)
    for name in ("conf", "sweeps"):
        (tmp_path / name).symlink_to(ROOT / name)


@pytest.mark.slow
def test_offline_commands_of_the_readme_run_in_order(checkout, script):
    for command in OFFLINE:
        file, *words = shlex.split(command)[1:]
        assert script(Path(file).stem)(words) == 0, command


WITH_TESTS = ("controls", "social", "xmai")
"""Pages whose every command is run by ``tests/run/test_docs_PAGE.py``."""


@pytest.mark.slow
def test_offline_commands_of_the_pages_run_in_order_if_shortened(checkout, script):
    pages = [page for page in PAGES[1:] if page.stem not in WITH_TESTS]
    commands = [command for command, offline in readme_commands(pages) if offline]
    assert len(commands) > 15
    for command in commands:
        file, *words = (LONG.get(word, word) for word in shlex.split(command)[1:])
        name = Path(file).stem
        short = SHORT.get(name)
        if short and not any(word.partition("=")[0] == short.partition("=")[0] for word in words):
            words.append(short)
        assert script(name)(words) == 0, command
