"""Short ways to write records in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cfaug.core.types import Draw, Edit, Example, ImageJob, Proposal


@dataclass(frozen=True)
class Photo:
    """A source image in memory."""

    content: bytes

    @property
    def digest(self) -> str:
        return self.content.hex()

    def read(self) -> bytes:
        return self.content


def example(text: str, key: str = "k", group: str = "g", **changes: Any) -> Example:
    return Example(key, group, (text,), **changes)


def proposal(
    texts: Sequence[str],
    edits: Sequence[Edit | None] | None = None,
    key: str = "k",
    group: str = "g",
    extra: Mapping[str, Any] | None = None,
) -> Proposal:
    """Return a proposal whose example has its first text."""
    edits = [None] * len(texts) if edits is None else edits
    return Proposal(example(texts[0], key, group), tuple(texts), tuple(edits), extra or {})


def image_job(texts: Sequence[str], draw: Draw) -> ImageJob:
    return ImageJob(proposal(texts), draw)
