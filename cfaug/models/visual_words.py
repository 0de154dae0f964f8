"""Lists of visible things: names of objects, and of attributes.

A list is a text file with one name per line, like Visual Genome's vocabularies. Synonyms after a
comma and lines that begin with ``#`` are not read.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal

from cfaug.core.errors import UserError
from cfaug.core.files import read_lines

SHIPPED = Path(str(files("cfaug"))) / "models" / "vocabularies"
"""The folder of the shipped lists."""
Kind = Literal["objects", "attributes"]


def visual_words(kind: Kind, file: str | None = None) -> tuple[str, ...]:
    """Return the names of a list in lower case, without duplicates, in the file's order.

    Args:
        kind: the name of a shipped list.
        file: the path of the user's own list; ``None`` takes the shipped one.

    >>> visual_words("attributes")[:3]
    ('black', 'white', 'gray')
    """
    path = SHIPPED / f"{kind}.txt" if file is None else Path(file).expanduser()
    lines = (line for line in read_lines(path) if not line.startswith("#"))
    names = (" ".join(line.partition(",")[0].lower().split()) for line in lines)
    unique = tuple(dict.fromkeys(name for name in names if name))
    if not unique:
        raise UserError(f"{path} holds no names of {kind}: it should have one a line")
    return unique
