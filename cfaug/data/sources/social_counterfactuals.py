"""SocialCounterfactuals: grids of two attributes over one subject, with an image in each row.

The released files, and our own export in their columns (``cfaug.data.export.hub``), give the
same records: see ``cfaug.core.grids``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.grids import GridMember, grid_edit, require_attributes
from cfaug.core.types import CounterfactualSet, Member
from cfaug.core.words import right_articles
from cfaug.data.sources.captioned_parquet import rebuild_set
from cfaug.data.sources.lists import parse_json
from cfaug.data.sources.parquet import ParquetSets, Record, image_of
from cfaug.data.sources.released import text_field
from cfaug.data.sources.row import caption, clean_key

SOCIAL = ("dataset_segment", "counterfactual_set", "a1_type", "a2_type", "caption", "a1", "a2")

OCCUPATION = "occupation"
"""The type of the subjects of the released sets."""

ABOUT = "about"
"""A column that only our own export has."""

PATH = re.compile(r"(?P<file>.+)_(?P<rank>\d+)_(?P<caption>\d{1,9})_(?P<seed>\d+)\.\w+")
"""The released generator's name of an image: the file of captions, the rank among the kept sets,
the caption's number, the seed."""

READER = 3
"""Reader 1 had no subject, prefix, neutral prompt and attributes of a member; reader 2 took them
for all members from the caption of the first."""


class SocialCounterfactuals(ParquetSets):
    """The reader, with a version number, because its output differs from that of earlier ones."""

    def identity(self, path: Any) -> Any:
        """Return names, sizes and times of the files, and the number of this reader."""
        return [READER, super().identity(path)]


def seed_of(record: Mapping[str, Any]) -> str:
    """Return the file of captions and the seed in an image's path, or "".

    Some names of sets are duplicated; file and seed are unique.
    """
    found = _path(record)
    return "" if found is None else f"{found['file']}-{found['seed']}"


def _path(record: Mapping[str, Any]) -> re.Match[str] | None:
    image = record.get("image")
    path = image.get("path") if isinstance(image, Mapping) else None
    return PATH.fullmatch(path.rpartition("/")[2]) if isinstance(path, str) else None


def build_social(rows: list[Record]) -> CounterfactualSet:
    """Make a set of the grid of two attributes over one subject; the first caption is the base.

    Captions are in the order of their numbers, if the images' paths have them, otherwise in the
    order of the rows. The group is the subject if the caption shows it ("A photo of an Indian male
    barber"): most subjects have many sets, and a split must not put them on both sides.
    """
    if any(record.get(ABOUT) for _, record in rows):
        return _rebuild(rows)
    paths = [_path(record) for _, record in rows]
    if all(path is not None for path in paths):
        numbers = [int(path["caption"]) for path in paths if path is not None]
        rows = [row for _, row in sorted(zip(numbers, rows, strict=True), key=lambda one: one[0])]
    where, first = rows[0]
    segment, name = (text_field(first, column, where) for column in SOCIAL[:2])
    base = _attributes(first, where)
    group = None
    members, images = [], {}
    for i, (place, record) in enumerate(rows):
        text = caption(record.get("caption"), place)
        values = _attributes(record, place)
        extra = {column: _plain(record, column, place) for column in (*SOCIAL[:4], "a1", "a2")}
        label = None
        known = _read_caption(text, values)
        if known is not None:
            label, prefix, neutral = known
            group = group or label.lower()
            about = GridMember(label, OCCUPATION, segment, prefix, neutral, values)
            extra |= about.extra
        edit = grid_edit(base, values) if i and list(values) == list(base) else None
        members.append(Member(text, str(i), f"{segment}_{name}", edit, label, extra))
        images[str(i)] = image_of(record, "image", place)
    return CounterfactualSet(
        key=clean_key((seed_of(first) or f"{segment}-{name}").lower()),
        group=group or f"{segment}-{name}",
        members=tuple(members),
        images=images,
        provenance={"source": "social_counterfactuals"},
    )


def _plain(record: dict[str, Any], name: str, where: str) -> str | int | None:
    """Return a text or whole number unchanged; ``None`` stays ``None``."""
    value = record.get(name)
    if value is not None:
        text_field(record, name, where)
    return value


def _attributes(record: dict[str, Any], where: str) -> dict[str, str]:
    """Return the attributes of a row by their types, or by a1 and a2 if the types are ambiguous."""
    types = [str(record.get(f"{a}_type") or a) for a in ("a1", "a2")]
    names = types if types[0] != types[1] else ["a1", "a2"]
    values = (text_field(record, a, where) for a in ("a1", "a2"))
    return require_attributes(dict(zip(names, values, strict=True)), where)


def _read_caption(text: str, attributes: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Return subject, prefix and neutral prompt of a caption that has the attributes in order."""
    words = r"\s+".join(map(re.escape, attributes.values()))
    found = re.fullmatch(
        rf"(?:(?P<prefix>\S.*?)\s+)??(?:(?P<article>an?)\s+)?{words}\s+(?P<subject>\S.*)",
        text,
        re.IGNORECASE,
    )
    subject = found["subject"].strip(" .") if found else ""
    if found is None or not subject:
        return None
    prefix = found["prefix"] or ""
    article = "a" if found["article"] else ""
    return subject, prefix, right_articles(" ".join(filter(None, (prefix, article, subject))))


def _rebuild(rows: list[Record]) -> CounterfactualSet:
    """Reverse our own export: each row has its place, and the first one all about the set."""
    known = []
    for where, record in rows:
        about = parse_json(text_field(record, ABOUT, where), f"{where}: {ABOUT}")
        if not isinstance(about, dict) or not isinstance(about.get("member"), int):
            raise UserError(f"{where}: {ABOUT!r} does not say which member of its set this is")
        known.append((about["member"], where, record, about))
    known.sort(key=lambda one: one[0])
    for number, (member, where, record, _) in enumerate(known):
        if member != number:
            name = record["counterfactual_set"]
            raise UserError(f"{where}: member {number} of {name!r} is missing or duplicated")
    _, where, first, about = known[0]
    named = {
        "id": text_field(first, "counterfactual_set", where),
        "group": text_field(about, "group", where),
    }
    return rebuild_set([(where, record, None) for _, where, record, _ in known], named, about)


SOCIAL_COUNTERFACTUALS = SocialCounterfactuals(
    "social_counterfactuals",
    "SocialCounterfactuals",
    "*.parquet with image, caption, counterfactual_set, a1, a2 (SocialCounterfactuals)",
    ("image", *SOCIAL),
    SOCIAL[:2],
    build_social,
    also=("a1_type", "a2_type", ABOUT),
    path_name=seed_of,
)
