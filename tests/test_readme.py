"""Every command of the README and of the pages in docs composes; those marked offline run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cfaug.run.launch import choose_named
from cfaug.settings.arguments import read
from cfaug.settings.compose import compose_jobs
from cfaug.settings.settings_files import find_settings, find_sweep, settings_folders
from cfaug.settings.sweep_jobs import first_values
from cfaug.settings.usage import usage
from tests.files_of_settings import is_whole
from tests.run.conftest import COMMANDS, SCENES

ROOT = Path(__file__).resolve().parent.parent

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
WITH_TESTS = (
    "cfmm",
    "controls",
    "first_study",
    "own_edits",
    "repair",
    "sets",
    "social",
    "visogender",
    "xmai",
)
"""Pages of which a ``test_docs_PAGE.py`` runs the commands: all but those of
``zoo=paper`` and of ``xmai_training``."""
SMALL = {
    "train.py": ["trainer.max_steps=2"],
    "generate.py": ["limit=2"],
    "data=shapescapes_ve": ["data.world.ve_photos=40"],
    "data.cf_ratio=": SCENES,
    "recipe=photo_edits": ["recipe.draws.self_replace_steps=[0.8]"],
    "world@data.world=compositional": ["data.world.compositional_test_pairs=24"],
    "world@data.world=questions": ["data.world.vqa_test_pairs=4"],
}
"""{beginning of a word: what makes its command short, unless the command says as much itself}."""
LONG = {
    "data.size=1500": "data.size=60", "data.size=600": "data.size=60", "limit=6": "limit=2",
    "limit=12": "limit=4", "limit=20": "limit=2", "limit=100": "limit=2",
    "engine.workers=2": "engine.workers=1",
}  # fmt: skip
"""What stands in for words that take long."""


def readme_commands(pages: list[Path] = PAGES) -> list[tuple[str, bool]]:
    """Return (command, marked offline) for the commands of bash blocks that are composed by files.

    ``cfaug compare`` and the commands without settings have tests of their own.
    """
    commands = []
    text = "\n".join(page.read_text() for page in pages)
    for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            command, _, comment = line.partition("  # ")
            if command.startswith(("python ", "cfaug table ", "cfaug annotate ")):
                commands.append((command.strip(), comment.strip().startswith("offline")))
    return commands


def words_of(command: str) -> tuple[str, list[str]]:
    """Return a command's script or name, and its words as they are composed."""
    script, *words = shlex.split(command)[1:]
    name = Path(script).stem
    return script, choose_named(name, words) if name in ("table", "annotate") else words


def is_there(word: str) -> bool:
    """Say whether a word chooses a file of settings or a sweep that there is."""
    group, _, choice = word.partition("=")
    if group == "sweep":
        return find_sweep(Path(choice).name) is not None
    if group not in ("recipe", "experiment", "benchmark", "table", "data", "annotate/question"):
        return True
    return all(
        find_settings(settings_folders(), f"{group}/{name.partition('/')[0]}") is not None
        for name in choice.split(",")
    )


ALL = [
    (command, offline)
    for command, offline in readme_commands()
    if is_whole() or all(is_there(word) for word in words_of(command)[1])
]


RUN_ELSEWHERE = {
    command
    for command, _ in readme_commands([page for page in PAGES if page.stem in WITH_TESTS])
    if not re.search("zoo=paper|xmai_training", command)
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    dict.fromkeys(
        text
        for text, offline in ALL
        if not (offline or text in RUN_ELSEWHERE or text.startswith("python -"))
    ),
)
def test_every_command_that_is_not_run_composes(command):
    script, words = words_of(command)
    name = Path(script).stem
    if Path(script).parent.name == "benchmarks":  # which tests/test_benchmarks.py runs
        help_text = subprocess.check_output([sys.executable, script, "--help"], cwd=ROOT, text=True)
        assert not [word for word in words if word[:2] == "--" and word not in help_text]
        return
    assert name in COMMANDS, f"{command}: no such script"
    if "--help" in words:
        assert "key=value" in usage(name, "")
        return
    line = read(words)
    # Composing takes a while a job; one seed tells as much as all.
    overrides = [re.sub(r"^seed=(range\()?(\d+),.*", r"seed=\2", word) for word in line.overrides]
    # Every job of a sweep's file is composed by tests/test_conf.py; a sweeper chooses the values.
    if any(word.startswith(("sweep=", "hydra/sweeper=")) for word in words):
        sweeper = ("hydra/sweeper", "hydra.sweeper")
        overrides = first_values([word for word in overrides if not word.startswith(sweeper)])
    compose_jobs(name, overrides, multirun=line.multirun, command=COMMANDS[name])


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder in which the commands of the pages run as in a clone."""
    monkeypatch.chdir(tmp_path)
    for name in ("conf", "sweeps"):
        (tmp_path / name).symlink_to(ROOT / name)


def shortened(command: str) -> list[str]:
    """Return the script and the words of a command as it is run here."""
    words = [LONG.get(word, word) for word in shlex.split(command)[1:]]
    keys = {word.partition("=")[0] for word in words}
    small = [some for start, some in SMALL.items() if any(w.startswith(start) for w in words)]
    return [
        *words,
        *(word for some in small for word in some if word.partition("=")[0] not in keys),
    ]


@pytest.mark.slow
def test_offline_commands_of_the_readme_run_in_order(checkout, script):
    commands = [command for command, offline in readme_commands([README]) if offline]
    assert len(commands) >= 3
    for command in commands:
        file, *words = shlex.split(command)[1:]
        assert script(Path(file).stem)(words) == 0, command


@pytest.mark.slow
def test_offline_commands_of_the_pages_run_in_order_if_shortened(checkout, script):
    pages = [page for page in PAGES[1:] if page.stem not in WITH_TESTS]
    commands = [command for command, offline in readme_commands(pages) if offline]
    assert len(commands) > 10
    for command in commands:
        file, *words = shortened(command)
        assert script(Path(file).stem)(words) == 0, command
