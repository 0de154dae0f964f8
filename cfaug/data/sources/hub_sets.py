"""Parquet of pairs, and of counterfactual sets in the format of ``cfaug.data.export.hub``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cfaug.core.caption_difference import replaced_run
from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.shards.codec import build_set
from cfaug.data.sources.lists import parse_json
from cfaug.data.sources.parquet import ParquetImporter, Record, image_of
from cfaug.data.sources.released import text_field
from cfaug.data.sources.values import caption, clean_key

# Pairs: image_0, image_1, caption_0, caption_1.


def build_pair(rows: list[Record]) -> CounterfactualSet:
    """Make a set from a row; in our own export, ``about`` has the whole set."""
    ((where, record),) = rows
    if record.get("about"):
        return _read_about([(where, record, i) for i in (0, 1)])
    captions = [caption(record.get(f"caption_{i}"), where) for i in (0, 1)]
    before, after = replaced_run(*captions)
    if not before and not after:
        raise UserError(f"{where}: both captions are the same; remove the row")
    name = text_field(record, "id", where)
    photo = re.fullmatch(r"(\d+)_\d+", name)
    edits = (None, Edit("noun", before, after))
    return CounterfactualSet(
        key=clean_key(name),
        group=photo.group(1) if photo else name,
        members=tuple(
            Member(text, str(i), name, edit)
            for i, (text, edit) in enumerate(zip(captions, edits, strict=True))
        ),
        images={str(i): image_of(record, f"image_{i}", where) for i in (0, 1)},
        provenance={"source": "parquet"},
    )


# Members: one a row.


def build_members(rows: list[Record]) -> CounterfactualSet:
    """Make a set from the rows of our own export."""
    numbered = sorted(rows, key=lambda row: _member_number(*row))
    for number, (where, record) in enumerate(numbered):
        if record["member"] != number:
            raise UserError(
                f"{where}: member {number} of {record['id']!r} is missing or duplicated"
            )
    return _read_about([(where, record, None) for where, record in numbered])


def _member_number(where: str, record: dict[str, Any]) -> int:
    number = record["member"]
    if isinstance(number, bool) or not isinstance(number, int):
        raise UserError(f"{where}: 'member' should be a whole number from 0, not {number!r}")
    return number


Part = tuple[str, dict[str, Any], int | None]
"""A member of a set: the place of its row, the row, and its number if the row has several
members."""


def _read_about(members: list[Part]) -> CounterfactualSet:
    """Reverse ``cfaug.data.export.hub``: values without their own column are in ``about``."""
    where, first, _ = members[0]
    about = parse_json(text_field(first, "about", where), f"{where}: about")
    named = {name: text_field(first, name, where) for name in ("id", "group")}
    return rebuild_set(members, named, about)


def rebuild_set(
    members: list[Part], named: Mapping[str, str], about: Mapping[str, Any]
) -> CounterfactualSet:
    """Return the set from which an export was made.

    Args:
        members: the members, in order.
        named: the set's ``id`` and ``group``.
        about: the values without their own column.

    Raises:
        UserError: if something is missing or invalid, naming the row.
    """
    where = members[0][0]
    rows = []
    try:
        for (place, record, i), own in zip(members, about["members"], strict=True):
            suffix = "" if i is None else f"_{i}"
            text = text_field(record, f"caption{suffix}", place)
            rows.append((text, image_of(record, f"image{suffix}", place), own))
        return build_set(
            named["id"], named["group"], rows,
            scores=about["scores"], provenance=about["provenance"],
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{where}: the row is invalid ({error!r})") from error
    except UserError as error:
        placed = str(error).startswith(where.rpartition(",")[0])
        raise UserError(str(error) if placed else f"{where}: {error}") from error


PAIR_COLUMNS = ("id", "image_0", "image_1", "caption_0", "caption_1")

HUB_SETS = (
    ParquetImporter(
        "pairs",
        "parquet of pairs",
        "*.parquet with id, image_0, image_1, caption_0, caption_1 (pairs on the Hub)",
        PAIR_COLUMNS,
        (),
        build_pair,
        also=("about",),
    ),
    ParquetImporter(
        "members",
        "parquet of counterfactual sets",
        "*.parquet with id, member, image, caption, about (sets of any size, ours)",
        ("id", "member", "image", "caption", "about"),
        ("id",),
        build_members,
    ),
)
