"""``cfaug COMMAND ...``, also ``python -m cfaug COMMAND ...``: train, generate, evaluate, ..."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from cfaug import __version__
from cfaug.core.errors import CALLED_BY, USERS_MISTAKE, exit_with

COMMANDS = {
    "train": ("cfaug.run.train", "fine-tune a model on real and counterfactual examples"),
    "generate": ("cfaug.run.generate", "make counterfactual image-text sets"),
    "evaluate": ("cfaug.run.evaluate", "evaluate runs or a checkpoint, and compare arms"),
    "compare": (
        "cfaug.run.compare_answers",
        "compare models item by item, from any evaluator's logs",
    ),
    "table": ("cfaug.run.table", "make a table or figure of a paper from finished evaluations"),
    "annotate": ("cfaug.run.annotate", "let people answer questions about pairs, and read them"),
    "settings": ("cfaug.run.list_settings", "say what every setting means, and its values"),
    "zoo": ("cfaug.run.zoo", "list the tiny models that are shipped"),
    "new": ("cfaug.run.new_recipe", "write a working recipe of your own to start from"),
    "doctor": ("cfaug.run.doctor", "say which optional parts are here, and how to get the others"),
}
"""The module of each command, which has ``main(argv) -> int``, and a line of help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, or list the commands; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--version"]:
        from cfaug.run.launch import version_lines

        print(version_lines())
        return 0
    if not words or words[0] in {"-h", "--help"}:
        print(usage())
        return 0
    name, *rest = words
    if name not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f": did you mean {near[0]}?" if near else ""
        print(f"error: no command is called {name!r}{hint}\n{usage()}", file=sys.stderr)
        return USERS_MISTAKE
    code: int = import_module(COMMANDS[name][0]).main(rest)
    return code


def run() -> NoReturn:
    """Run as the installed command, so that messages name commands as they are typed here."""
    installed = Path(sys.argv[0]).stem == "cfaug"
    os.environ.setdefault(CALLED_BY, "cfaug" if installed else "python -m cfaug")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # the user's own modules, as python -m does
    exit_with(main())


def usage() -> str:
    """Return the list of commands, with a line of help for each."""
    lines = [f"  {name:9} {what}" for name, (_, what) in COMMANDS.items()]
    return "\n".join(
        [
            f"cfaug {__version__}: counterfactual data for vision-language models",
            *lines,
            "cfaug COMMAND --help lists a command's settings.",
        ]
    )


if __name__ == "__main__":
    run()
