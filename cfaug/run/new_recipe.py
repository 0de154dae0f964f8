"""``cfaug new recipe NAME``: a working method of one's own to start from, outside the repository.

It writes a folder NAME in the shape of a paper: a recipe, an editor of captions, an editor of
images, a benchmark, a table with printed numbers, a sweep, targets of make and a test. They swap
two colours; ``--config-dir NAME`` makes all of them known.
"""

from __future__ import annotations

import keyword
import re
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from cfaug.core.atomic_files import write_file
from cfaug.core.errors import USERS_MISTAKE, UserError, say
from cfaug.core.outputs import check_output_folder, output_folder
from cfaug.settings.settings_files import find_settings, settings_folders

EXAMPLE = Path(__file__).parent / "example_recipe"
NAME, CLASS = "swap_colours", "SwapColours"
"""Name of the example, and the beginning of its classes."""
WRITTEN = (".py", ".yaml", ".json", ".mk")
"""Kinds of its files."""
KIND = "a recipe"
"""What the record of outputs calls the folder."""
USAGE = "cfaug new recipe NAME [FOLDER]: a working recipe to start from, in ./NAME or in FOLDER"


def main(argv: Sequence[str]) -> int:
    """Write the folder and say what to type next; return the exit code."""
    words = list(argv)
    if {"-h", "--help"} & set(words):
        say(f"{__doc__}\n{USAGE}", sys.stdout)
        return 0
    try:
        if words[:1] != ["recipe"] or len(words) not in (2, 3):
            raise UserError(f"{' '.join(['cfaug new', *words])!r} is invalid; type\n{USAGE}")
        name = words[1]
        folder = Path(words[2] if len(words) == 3 else name).expanduser()
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
            raise UserError(
                f"{name!r} is invalid: a recipe's name has small letters, digits and underscores, "
                "and begins with a letter, such as swap_colours"
            )
        check_output_folder(folder, KIND, replace=False)
        for group in ("recipe", "benchmark", "table"):
            if find_settings(settings_folders(), f"{group}/{name}") is not None:
                raise UserError(f"{group}={name} is shipped: choose another name")
        if name in sys.stdlib_module_names or find_spec(name) is not None:
            raise UserError(
                f"{name} is the name of an installed Python module: choose another name"
            )
        files = write_example(name, folder)
    except UserError as error:
        say(f"error: {error}")
        return USERS_MISTAKE
    for file in files:
        say(f"wrote {file}", sys.stdout)
    option, shards = f"--config-dir {shlex.quote(str(folder))}", f"shards/{name}"
    say("next:")
    say(f"  python generate.py {option} recipe={name} limit=200 paths.shards={shards}")
    say(
        f"  python evaluate.py {option} benchmark={name} benchmark.data={shards} weights=zoo:clip-0"
    )
    say(f"  pytest {shlex.quote(str(folder))}")
    say(f"  make -f {shlex.quote(str(folder / 'reproduce.mk'))} {name}")
    return 0


def write_example(name: str, folder: Path) -> list[Path]:
    """Write the example into a folder under another name, and return the files."""
    camel = "".join(part.capitalize() for part in name.split("_"))
    written = []
    with output_folder(folder, KIND, replace=False) as fresh:
        for file in sorted(EXAMPLE.rglob("*")):
            if file.suffix not in WRITTEN:
                continue
            target = str(file.relative_to(EXAMPLE)).replace(NAME, name)
            text = file.read_text(encoding="utf-8").replace(NAME, name).replace(CLASS, camel)
            text = text.replace(NAME.upper(), name.upper())
            (fresh / target).parent.mkdir(parents=True, exist_ok=True)
            write_file(fresh / target, text.encode())
            written.append(folder / target)
    return written
