"""Model and dataset cards by huggingface_hub, filled in from Jinja templates.

Text from data is given to a template as a value, never as a part of it, and ``code`` keeps it from
being read as Markdown. A card ends in a line with its own digest, so that an edited card is
recognised and kept.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cfaug.core.atomic_files import write_file

CARD = "README.md"
"""The name of a card, which the Hub shows."""

STAMP = "<!-- cfaug sha256:{} made of:{} A card that was edited is kept. -->\n"
STAMPED = re.compile(rb"<!-- cfaug sha256:([0-9a-f]{64}) made of:([0-9a-f]{64}) [^\n]*-->\s*\Z")


def code(text: object) -> str:
    r"""Return a text of unknown content as code on one line of a table.

    >>> code("a | b `c`")
    "`a \\| b 'c'`"
    """
    line = " ".join(str(text).split()).replace("`", "'").replace("|", "\\|")
    return f"`{line}`" if line else ""


HUB_CACHE = re.compile(r"(?:models|datasets)--([\w.-]+?)--([\w.-]+)(?=[/\\]|$)")
"""A folder of the Hub's cache, which holds a name in place of a place."""

KIND_OF_PLACE = re.compile(r"[A-Za-z][\w-]+:(?=~|\.\.?[/\\]|/(?!/))")
"""What stands before a folder in ``local-dir:/home/anna/clip``."""


def public_name(name: str) -> str:
    """Return a name for a reader elsewhere: of a folder of this machine its last part.

    >>> public_name("/home/anna/data/photos"), public_name("openai/clip-vit-base-patch32")
    ('photos', 'openai/clip-vit-base-patch32')
    >>> public_name("~/.cache/huggingface/hub/models--openai--clip/snapshots/0f3")
    'openai/clip'
    >>> public_name("/home/anna/runs/main/real/seed=1/checkpoint"), public_name("photos/train")
    ('main/real/seed=1', 'photos/train')
    >>> public_name("local-dir:/home/anna/clip"), public_name("hf-hub:timm/ViT-B-16-SigLIP")
    ('local-dir:clip', 'hf-hub:timm/ViT-B-16-SigLIP')
    """
    cached = HUB_CACHE.search(name)
    if cached is not None:
        return f"{cached[1]}/{cached[2]}"
    kind = KIND_OF_PLACE.match(name)
    if kind is not None:
        return f"{kind[0]}{public_name(name.removeprefix(kind[0]))}"
    path = name.removeprefix("file://")
    parts = [part for part in re.split(r"[/\\]", path) if part not in ("", ".", "..")]
    is_place = path != name or re.match(r"[/\\~]|\.\.?[/\\]|[A-Za-z]:[/\\]", path)
    if not is_place or not parts:
        return name
    return "/".join(parts[-4:-1]) if parts[-1] == "checkpoint" else parts[-1]


def public_settings(value: Any) -> Any:
    """Return settings, as YAML has them, with ``public_name`` of every text.

    >>> public_settings({"data": {"real": "/home/anna/photos", "lists": ["~/a.csv", 1]}})
    {'data': {'real': 'photos', 'lists': ['a.csv', 1]}}
    """
    if isinstance(value, Mapping):
        return {key: public_settings(item) for key, item in value.items()}
    if isinstance(value, list):
        return [public_settings(item) for item in value]
    return public_name(value) if isinstance(value, str) else value


def number(value: int) -> str:
    """Return a count with separators of thousands.

    >>> number(17410)
    '17,410'
    """
    return f"{value:,}"


@dataclass(frozen=True)
class Card:
    """The content of a card, before it is filled in.

    Attributes:
        kind: the class of huggingface_hub that the card is made with.
        metadata: the arguments of its ``ModelCardData`` or ``DatasetCardData``, as JSON.
        templates: the Jinja files that are joined into one template.
        values: the template's variables by name, beside ``card_data``, ``code`` and ``number``.
    """

    kind: Literal["ModelCard", "DatasetCard"]
    metadata: Mapping[str, Any]
    templates: Sequence[Path]
    values: Mapping[str, Any]

    def fill(self) -> str:
        """Return the card's text.

        Raises:
            ValueError: if the metadata are invalid.
        """
        import huggingface_hub

        kind = getattr(huggingface_hub, self.kind)
        data = kind.card_data_class(**self.metadata)
        card = kind.from_template(
            data, template_str=self._template(), code=code, number=number, **self.values
        )
        return f"{str(card).rstrip()}\n"

    def digest(self) -> str:
        """Return the sha256 of the card's content, which must be JSON; filling it in is slow."""
        content = [self._template(), self.metadata, self.values]
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()

    def _template(self) -> str:
        return "".join(file.read_text(encoding="utf-8") for file in self.templates)


def write_card(file: Path, card: Card) -> bool:
    """Write a card, unless somebody edited the one that is there.

    A card without a digest counts as edited: another program or a person wrote it.

    Args:
        card: the card's content, as JSON.

    Returns:
        False if the card was edited and is therefore left as it is.

    Raises:
        OSError: if the card cannot be read, or the disk is full.
    """
    source = card.digest()
    if file.exists():
        known = _read_stamp(file)
        if known in (None, source):
            return known is not None
    content = f"{card.fill()}\n".encode()
    digest = hashlib.sha256(content).hexdigest()
    write_file(file, content + STAMP.format(digest, source).encode())
    return True


def is_edited(file: Path) -> bool:
    """Say whether a card is not as ``write_card`` wrote it."""
    return _read_stamp(file) is None


def _read_stamp(file: Path) -> str | None:
    """Return the digest of a card's content; ``None`` if the card was edited since."""
    if not file.is_file():  # opening a pipe would block
        return None
    content = file.read_bytes()
    match = STAMPED.search(content)
    if match is None or match[1].decode() != hashlib.sha256(content[: match.start()]).hexdigest():
        return None
    return match[2].decode()
