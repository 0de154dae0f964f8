"""Lists of what can be seen in an image: names of objects, and attributes of them.

A list is a text file with a name a line, as Visual Genome's vocabularies are; what follows a comma
is a synonym and is not read, and neither is a line that begins with ``#``.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal

from cfaug.errors import UserError
from cfaug.files import read_lines

SHIPPED = Path(str(files("cfaug"))) / "vocabularies"
"""The folder of the shipped lists."""

Kind = Literal["objects", "attributes"]


def visual_words(kind: Kind, file: str | None = None) -> tuple[str, ...]:
    """Return a list of names, lower case, each once, in the file's order.

    Args:
        kind: which of the shipped lists.
        file: one of your own; ``None`` is the shipped one.

    Raises:
        UserError: if the file cannot be read or holds no name.

    >>> visual_words("attributes")[:3]
    ('black', 'white', 'gray')
    """
    path = SHIPPED / f"{kind}.txt" if file is None else Path(file).expanduser()
    lines = (line for line in read_lines(path) if not line.startswith("#"))
    names = (" ".join(line.partition(",")[0].lower().split()) for line in lines)
    found = tuple(dict.fromkeys(name for name in names if name))
    if not found:
        raise UserError(f"{path} holds no names of {kind}: it should have one a line")
    return found
