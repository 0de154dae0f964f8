"""Hold the tree's text files to what a commit may contain; used by pre-commit and by a test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LARGE = 200_000
LARGE_ALLOWED = ("cfaug/weights/", "cfaug/worlds/emoji/pack/", "cfaug/editing/wordnet.zip")
TEXT = {".py", ".md", ".yaml", ".yml", ".toml", ".txt", ".json", ".cfg", ".html", ".jinja", ""}
# Written in pieces, so that this file does not find itself.
ADDRESSES = re.compile(
    "|".join(["pypi" + r"\.org", "files" + r"\.pythonhosted", "/wo" + "rk/", "/ro" + "ot/"])
)


def tracked() -> list[Path]:
    """Return every file git tracks."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def problems(files: list[Path]) -> list[str]:
    """Return one line per problem found."""
    messages = []
    for file in files:
        name = str(file.relative_to(ROOT))
        if file.stat().st_size > LARGE and not name.startswith(LARGE_ALLOWED):
            messages.append(f"{name}: larger than {LARGE} bytes")
        if file.suffix not in TEXT or name.startswith(LARGE_ALLOWED):
            continue
        text = file.read_text(encoding="utf-8")
        if text and not text.endswith("\n"):
            messages.append(f"{name}: no newline at the end")
        for number, line in enumerate(text.splitlines(), 1):
            if line != line.rstrip() and file.suffix != ".md":
                messages.append(f"{name}:{number}: trailing whitespace")
            if ADDRESSES.search(line):
                messages.append(f"{name}:{number}: names a registry or a path of one machine")
    return messages


if __name__ == "__main__":
    lines = problems(tracked())
    print("\n".join(lines))
    sys.exit(bool(lines))
