"""SocialCounterfactuals: grids of two attributes over one subject, a row an image."""

from __future__ import annotations

import re
from typing import Any

from cfaug.data.sources.parquet import ParquetImporter, Record, image_of
from cfaug.data.sources.released import text_field
from cfaug.data.sources.values import caption, clean_key
from cfaug.types import CounterfactualSet, Edit, Member

SOCIAL = ("dataset_segment", "counterfactual_set", "a1_type", "a2_type", "caption", "a1", "a2")


def build_social(rows: list[Record]) -> CounterfactualSet:
    """Make a set of the grid of two attributes over one subject; its first row is the base.

    The group is the subject where the caption shows it ("A photo of an Indian male barber"): most
    subjects have many sets, and a split must not put them on both sides.
    """
    where, first = rows[0]
    segment, name = (text_field(first, column, where) for column in SOCIAL[:2])
    members, images = [], {}
    for i, (place, record) in enumerate(rows):
        text = caption(record.get("caption"), place)
        extra = {column: _plain(record, column, place) for column in (*SOCIAL[:4], "a1", "a2")}
        edit = _changed_attributes(first, record, place) if i else None
        members.append(Member(text, str(i), f"{segment}_{name}", edit, extra=extra))
        images[str(i)] = image_of(record, "image", place)
    return CounterfactualSet(
        key=clean_key(f"{segment}-{name}".lower()),
        group=_subject(first, where) or f"{segment}-{name}",
        members=tuple(members),
        images=images,
        provenance={"source": "social_counterfactuals"},
    )


def _plain(record: dict[str, Any], name: str, where: str) -> str | int | None:
    """Return a text or whole number as it is; ``None`` stays ``None``."""
    value = record.get(name)
    if value is not None:
        text_field(record, name, where)
    return value


def _changed_attributes(first: dict[str, Any], other: dict[str, Any], where: str) -> Edit | None:
    changed = [a for a in ("a1", "a2") if first.get(a) != other.get(a)]
    if not changed:
        return None
    kind = "+".join(str(other.get(f"{a}_type") or a) for a in changed)
    before, after = (" ".join(text_field(r, a, where) for a in changed) for r in (first, other))
    return Edit(kind, before, after)


def _subject(record: dict[str, Any], where: str) -> str | None:
    words = [re.escape(text_field(record, a, where)) for a in ("a1", "a2")]
    found = re.search(
        rf"\b{words[0]}\s+{words[1]}\s+(\S.*)$", str(record["caption"]), re.IGNORECASE
    )
    return found.group(1).strip(" .").lower() if found else None


SOCIAL_COUNTERFACTUALS = ParquetImporter(
    "social_counterfactuals",
    "SocialCounterfactuals",
    "*.parquet with image, caption, counterfactual_set, a1, a2 (SocialCounterfactuals)",
    ("image", *SOCIAL),
    SOCIAL[:2],
    build_social,
    also=("a1_type", "a2_type"),
)
