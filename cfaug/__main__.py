"""``python -m cfaug train|generate|evaluate ...``: the scripts of this repository, by one name."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from cfaug import __version__

COMMANDS = {
    "train": "fine-tune a model on a mixture of real and counterfactual pairs",
    "generate": "make counterfactual image-text sets",
    "evaluate": "evaluate runs or a checkpoint, and test whether the arms differ",
}

USERS_MISTAKE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, or say which there are; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--version"]:
        from cfaug.run.launch import version_lines

        print(version_lines())
        return 0
    if not words or words[0] in {"-h", "--help"}:
        print(usage())
        return 0
    name, *rest = words
    script = Path(__file__).resolve().parents[1] / f"{name}.py"
    if name not in COMMANDS:
        print(f"error: no command is called {name!r}\n{usage()}", file=sys.stderr)
        return USERS_MISTAKE
    if not script.is_file():
        print(
            f"error: there is no {script}: the commands and their settings (conf/) are part of the "
            "repository; clone it and run them there",
            file=sys.stderr,
        )
        return USERS_MISTAKE
    found: int = runpy.run_path(str(script))["main"](rest)
    return found


def usage() -> str:
    """Return what the commands are."""
    lines = [f"  {name:9} {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            f"cfaug {__version__}: counterfactual data for vision-language models",
            *lines,
            "python -m cfaug COMMAND --help lists a command's settings; COMMAND.py is the same.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
