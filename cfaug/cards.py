"""Model and dataset cards by huggingface_hub, filled in from Jinja templates.

Text from data is given to a template as a value, never as a part of it, and ``code`` keeps it from
being read as Markdown. A card ends in a line with its own digest, so that one which somebody edited
is known and kept.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.files import require_regular, write_file

if TYPE_CHECKING:
    from huggingface_hub import RepoCard
    from huggingface_hub.repocard_data import CardData

CARD = "README.md"
"""The name of a card, which the Hub shows."""

STAMP = "<!-- cfaug sha256:{digest} of the text above. A card that was edited is kept. -->\n"
STAMPED = re.compile(rb"<!-- cfaug sha256:([0-9a-f]{64}) [^\n]*-->\s*\Z")


def code(text: object) -> str:
    r"""Return a text of unknown content as code on one line of a table.

    >>> code("a | b `c`")
    "`a \\| b 'c'`"
    """
    line = " ".join(str(text).split()).replace("`", "'").replace("|", "\\|")
    return f"`{line}`" if line else ""


def number(value: int) -> str:
    """Return a count as people read it.

    >>> number(17410)
    '17,410'
    """
    return f"{value:,}"


def fill_card(kind: type[RepoCard], data: CardData, templates: list[Path], **values: Any) -> str:
    """Return a card: its metadata, and the templates one after the other.

    Args:
        kind: ``huggingface_hub.ModelCard`` or ``DatasetCard``.
        data: the metadata, which templates place as ``card_data``.
        templates: Jinja files that make one template together.
        values: what they name; ``code`` and ``number`` are there.
    """
    template = "".join(file.read_text(encoding="utf-8") for file in templates)
    card = kind.from_template(data, template_str=template, code=code, number=number, **values)
    return f"{str(card).rstrip()}\n"


def write_card(file: Path, text: str) -> bool:
    """Write a card with its digest, unless somebody edited the one that is there.

    A card without a digest counts as edited: another program or a person wrote it.

    Args:
        file: the card.
        text: what it is to say.

    Returns:
        Whether it was written.

    Raises:
        OSError: if the card cannot be read, or the disk is full.
    """
    if file.exists() and is_edited(file):
        return False
    content = f"{text}\n".encode()
    digest = hashlib.sha256(content).hexdigest()
    write_file(file, content + STAMP.format(digest=digest).encode())
    return True


def is_edited(file: Path) -> bool:
    """Say whether a card is not as ``write_card`` wrote it."""
    content = require_regular(file).read_bytes()
    found = STAMPED.search(content)
    return (
        found is None or found[1].decode() != hashlib.sha256(content[: found.start()]).hexdigest()
    )
