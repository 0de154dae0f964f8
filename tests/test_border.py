"""The border is tested by deletion: without any one paper everything else works as before.

A copy of the repository lacks a paper's folder, its tests and its page of the documentation. In it
the floors of imports hold, everything that is left composes, and the quick tests pass.

``make border`` runs the tool's quick tests with no paper at all, those that ask what is installed
(whole commands, contracts, documentation) and those of the other papers without each paper in turn,
and the tool without its world: of the tests those that do not name one. CI, as a part of ``make
test-slow``, holds the floors, the names and the settings without each paper in turn, and without
one of them runs a quarter of the quick tests that ask what is installed. The commit's hash chooses
the paper and the quarter. Tests of other parts of the tool differ only if they or what they import
name the paper, for which every file is searched.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfaug.settings.settings_files import settings_folders
from tests.hygiene import tracked
from tests.skips import ALLOWED

ROOT = Path(__file__).resolve().parent.parent
PAPERS = sorted(folder.parent.name for folder in (ROOT / "cfaug/papers").glob("*/__init__.py"))
ALL = "CFAUG_BORDER"
"""The variable that ``make border`` sets, to ``all``."""
QUICK = ("-m", "not slow", "-p", "no:cacheprovider")
ASKING = ("test_*.py", "contracts/test_*.py", "run/test_*.py")
"""Tests that ask what is installed."""
QUARTERS = 4


def places_of(paper: str) -> tuple[str, ...]:
    """Return where files of a paper are: its code with its settings, its tests and its page."""
    return (f"cfaug/papers/{paper}/", f"tests/papers/{paper}/", f"docs/{paper}.md")


OF_THE_WORLD = ("cfaug/worlds/shapescapes/", "tests/worlds/shapescapes/", "docs/shapescapes")


def copy_tracked(folder: Path, wanted: Callable[[str], bool]) -> Path:
    """Copy to a folder what git tracks and is wanted by its name."""
    for file in tracked():
        name = file.relative_to(ROOT).as_posix()
        if wanted(name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, folder / name)
    return folder


def copy_without(places: tuple[str, ...], folder: Path) -> Path:
    """Copy the repository to a folder, as one of its own, without some places."""
    copy_tracked(folder, lambda name: not name.startswith(places))
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    subprocess.run(["git", "-C", folder, "add", "--all"], check=True)
    return folder


@contextmanager
def set_aside(places: tuple[str, ...], code: Path, folder: Path) -> Iterator[None]:
    """Move some places of a copy to a folder, and back at the end."""
    moved = [place for place in places if (code / place).exists()]
    for number, place in enumerate(moved):
        (code / place).rename(folder / str(number))
    try:
        yield
    finally:
        for number, place in enumerate(moved):
            (folder / str(number)).rename(code / place)


def run(folder: Path, *command: str) -> None:
    """Run a command of this environment in a copy; its output is the message if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "CFAUG_EXAMPLES": "few"}
    environment.pop(ALL, None)
    # A test of what is away is skipped here, which a run of everything does not allow.
    environment.pop(ALLOWED, None)
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


TRIES_ALL = os.environ.get(ALL) == "all"


def number_of_commit() -> int:
    """Return the hash of the commit as a number; 0 where there is no commit."""
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    return int(commit, 16) if re.fullmatch(r"[0-9a-f]+", commit) else 0


def papers_to_try() -> list[str]:
    """Return every paper for ``make border``, else the one that the commit's hash chooses."""
    if TRIES_ALL or not PAPERS:  # a copy may lack them all
        return PAPERS
    return [PAPERS[number_of_commit() % len(PAPERS)]]


def files_to_try(paper: str) -> list[str]:
    """Return the files of tests to run without a paper."""
    files = sorted(file for pattern in ASKING for file in (ROOT / "tests").glob(pattern))
    names = [str(file.relative_to(ROOT)) for file in files if file != Path(__file__)]
    if TRIES_ALL:
        return [*names, *(f"tests/papers/{other}" for other in PAPERS if other != paper)]
    return names[number_of_commit() // len(PAPERS) % QUARTERS :: QUARTERS]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("paper", papers_to_try())
def test_without_a_paper_the_quick_tests_pass(paper, tmp_path):
    run(copy_without(places_of(paper), tmp_path), "-m", "pytest", *QUICK, *files_to_try(paper))


LINT = "from importlinter.cli import lint_imports_command as lint; lint()"
SEARCHED = ("cfaug", "conf", "sweeps", "zoo", "tests", "tools")
EMOJI = ("cfaug/worlds/emoji/", "tests/worlds/emoji/", "docs/emoji")


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """A copy of what imports, composes and is searched for names."""
    names = (*(f"{place}/" for place in SEARCHED), "pyproject.toml", "train.py")
    return copy_tracked(tmp_path_factory.mktemp("code"), lambda name: name.startswith(names))


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_without_a_paper_the_floors_hold(paper, code, tmp_path):
    named = re.compile(rf"\b(?:cfaug|tests)[./]papers[./]{paper}\b")
    with set_aside(places_of(paper), code, tmp_path):
        run(code, "-c", LINT)
        files = [file for place in SEARCHED for file in (code / place).rglob("*")]
        texts = [file for file in files if file.suffix in (".py", ".yaml", ".mk", ".jinja")]
        assert not [file for file in texts if named.search(file.read_text())]


COMPOSE = """
from cfaug.settings.settings_files import settings_folders
from tests.run.conftest import compose
conf = settings_folders()[0]
def choices(group):
    files = sorted((conf / group).glob("*.yaml"))
    return [file.stem for file in files if "shapescapes" not in file.read_text()]
for name in choices("recipe"):
    compose("generate", f"recipe={name}", "zoo=paper", "data.source=photos")
for name in choices("benchmark"):
    compose("evaluate", "weights=x", "data=folder", f"benchmark={name}")
for name in choices("model"):
    compose("train", "data=folder", "data.real=photos", "data.cf_ratio=0", f"model={name}")
"""


@pytest.mark.slow
def test_without_the_emoji_the_rest_composes_and_the_floors_hold(code, tmp_path):
    with set_aside(EMOJI, code, tmp_path):
        run(code, "-c", LINT)
        run(code, "-c", COMPOSE)


WORLD = re.compile(r"shapescapes|\bzoo\b|\bdemo\b|SCENES|WORLD|\bplace\b|\bscript\b", re.IGNORECASE)
HELPER = re.compile(
    r"^from tests\.([\w.]+) import|^from (tests(?:\.\w+)*) import (\w+)", re.MULTILINE
)


@functools.cache
def names_a_world(file: Path) -> bool:
    """Say whether a file of tests, or one that it imports, names the world or what it gives."""
    text = file.read_text(encoding="utf-8")
    if WORLD.search(text):
        return True
    parts = [
        first or f"{where.removeprefix('tests')}.{name}"
        for first, where, name in HELPER.findall(text)
    ]
    helpers = [
        (ROOT / "tests" / part.strip(".").replace(".", "/")).with_suffix(".py") for part in parts
    ]
    return any(helper.is_file() and names_a_world(helper) for helper in helpers)


if TRIES_ALL:

    @pytest.mark.slow
    @pytest.mark.timeout(3600)
    def test_without_any_paper_the_tool_s_tests_pass(tmp_path):
        places = tuple(place for paper in PAPERS for place in places_of(paper))
        run(copy_without(places, tmp_path), "-m", "pytest", *QUICK)

    @pytest.mark.slow
    @pytest.mark.timeout(3600)
    def test_without_the_world_the_tool_s_own_tests_pass(tmp_path):
        code = copy_without((*OF_THE_WORLD, "cfaug/papers/", "tests/papers/"), tmp_path)
        (code / "cfaug/papers").mkdir()
        (code / "cfaug/papers/__init__.py").write_text('"""None."""')
        run(code, "-c", LINT)
        run(code, "-c", COMPOSE)
        files = [
            file
            for file in sorted((ROOT / "tests").rglob("test_*.py"))
            if not {"papers", "worlds", "zoo"} & set(file.parts) and not names_a_world(file)
        ]
        assert len(files) > 30
        run(code, "-m", "pytest", *QUICK, *(str(file.relative_to(ROOT)) for file in files))


def choices_named(tree: Any, group: str) -> Iterator[str]:
    """Yield each choice that the defaults lists of a file need, such as ``model/tiny_clip``.

    Args:
        tree: the file's content.
        group: the group of the file, of which a relative choice is.
    """
    if isinstance(tree, dict):
        for entry in tree.get("defaults", ()) if isinstance(tree.get("defaults"), list) else ():
            place, chosen = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
            words = f"{place}/{{}}" if place else "{}"
            for choice in chosen if isinstance(chosen, list) else [chosen]:
                name = re.sub(r"@[^/]*(?=/\{|$)", "", words).format(str(choice).partition("@")[0])
                name = name.removeprefix("override ")
                if choice is not None and not name.startswith("optional "):
                    yield name[1:] if name.startswith("/") else f"{group}/{name}".lstrip("/")
        for value in tree.values():
            yield from choices_named(value, group)
    for value in tree if isinstance(tree, list) else ():
        yield from choices_named(value, group)


@functools.cache
def choices_by_folder() -> dict[Path, list[str]]:
    return {
        folder: [
            file.relative_to(folder).with_suffix("").as_posix() for file in folder.rglob("*.yaml")
        ]
        for folder in settings_folders()
    }


@functools.cache
def needs() -> list[tuple[Path, str, frozenset[Path]]]:
    """Return (folder, file and choice, folders of the choice) of each choice that a file names."""
    rows = []
    for folder, names in choices_by_folder().items():
        for name in names:
            content = yaml.safe_load((folder / f"{name}.yaml").read_text())
            for choice in choices_named(content, name.rpartition("/")[0]):
                pattern = re.sub(r"\$\{[^}]*\}", "*", choice)
                homes = frozenset(
                    home
                    for home, others in choices_by_folder().items()
                    if any(fnmatch(other, pattern) for other in others)
                )
                rows.append((folder, f"{name}: {choice}", homes))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_no_settings_outside_a_paper_need_its_own(paper):
    """Settings compose without a paper if no defaults list of others names a file of its own.

    ``make border`` composes them all in a copy.
    """
    conf = ROOT / "cfaug/papers" / paper / "conf"
    lost = [text for folder, text, homes in needs() if folder != conf and homes == {conf}]
    assert not lost
