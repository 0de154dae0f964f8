"""Every command of the README and of the pages in docs composes; those marked offline run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cfaug.planning.training import TrainSettings
from cfaug.run.arguments import read
from cfaug.run.compose import compose_jobs
from cfaug.run.evaluate import EvaluateSettings
from cfaug.run.generate import GenerateSettings
from cfaug.run.usage import usage

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {"train": TrainSettings, "evaluate": EvaluateSettings, "generate": GenerateSettings}


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


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
OFFLINE = [command for command, offline in ALL if offline]


def test_the_readme_has_commands_of_both_kinds():
    assert len(OFFLINE) >= 3
    assert len(ALL) > len(OFFLINE)


@pytest.mark.slow
@pytest.mark.parametrize("command", [command for command, _ in ALL if ".py" in command])
def test_every_command_composes(command):
    script, *words = shlex.split(command)[1:]
    name = Path(script).stem
    assert name in COMMANDS, f"{command}: no such script"
    if "--help" in words:
        assert "key=value" in usage(name, "", ROOT / "conf")
        return
    line = read(words)
    # Composing takes a while a job; one seed tells as much as all.
    overrides = [re.sub(r"^seed=(range\()?(\d+),.*", r"seed=\2", word) for word in line.overrides]
    compose_jobs(ROOT / "conf", name, overrides, multirun=line.multirun, command=COMMANDS[name])


@pytest.mark.slow
def test_offline_commands_run_in_order(tmp_path, monkeypatch, script):
    monkeypatch.chdir(tmp_path)
    for name in ("conf", "sweeps"):
        (tmp_path / name).symlink_to(ROOT / name)
    for command in OFFLINE:
        file, *words = shlex.split(command)[1:]
        assert script(Path(file).stem)(words) == 0, command
