"""Parquet of the Hub with captions or sets in each row, SocialCounterfactuals among them.

A caption may be a text or a list of texts. Adjacent rows with the same image are captions of one
photo. For a folder with several splits, name ``FOLDER:SPLIT``.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.pixels import check_images_differ
from cfaug.core.safety.json_text import parse_json
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.captions import replaced_run, right_articles
from cfaug.data.grids import GridMember, grid_edit, require_attributes
from cfaug.data.shards.codec import build_set
from cfaug.data.sources.caption_list import with_negatives
from cfaug.data.sources.columns import CAPTION, IMAGE, Columns, columns_of, read_columns
from cfaug.data.sources.parquet import (
    ParquetRecord,
    cell_bytes,
    column_kinds,
    column_names,
    holds_images,
    image_of,
    parquet_files,
    text_field,
)
from cfaug.data.sources.parquet_splits import ParquetSplit, split_files, split_of, survey_files
from cfaug.data.sources.row import (
    NEGATIVES,
    Description,
    ErrorCollector,
    Reader,
    caption,
    captions,
    clean_key,
    files_identity,
    group_name,
    keep_json,
    split_home,
    whole,
)
from cfaug.data.sources.splits import choose_split, split_kind

PENDING_BYTES = 2 * 2**30
"""Maximum size, in bytes, of the images of unfinished sets, whose rows may be far apart."""


class CaptionedParquet(Reader):
    """Reads images with captions, and sets of them, by the names of the columns."""

    imported = True
    has_parts = True
    kind = "captioned_parquet"
    form = "parquet of images and captions"
    description = (
        "*.parquet with image and caption or text (the Hub; of pairs also cf_image, cf_caption)"
    )

    def recognises(self, path: Path) -> bool:
        """Return whether there are parquet files with a column of images and one of captions."""
        files = parquet_files(split_home(path)[0])
        if not files:
            return False
        kinds = column_kinds(files[0])
        images = [name for name, kind in kinds.items() if holds_images(kind)]
        return _is_called(images, IMAGE) and _is_called(kinds, (*CAPTION, "prompt"))

    def describe(self, path: Path) -> Description:
        split = split_of(path)
        columns, chosen = self._columns(split.files[0]), split.choice.used
        unused = tuple(name for name in columns.unused if name not in chosen)
        return Description((*columns.used, *chosen), unused, notes=split.choice.notes)

    def identity(self, path: Path) -> Any:
        """Return names, sizes and times of the split's files, after checking its columns."""
        files = split_files(path)
        self._columns(files[0])
        return files_identity(files)

    def open(self, path: Path) -> Iterator[CounterfactualSet]:
        """Yield the sets: the captions of each photo, and the members of each set."""
        split, errors = split_of(path), ErrorCollector()
        columns = self._columns(split.files[0])
        image, _ = columns.members[0]
        number = count()
        together = groupby(
            split.records(needed=columns.used),
            lambda row: next(number) if columns.is_set else row[1][image],
        )
        for i, (_, rows) in enumerate(together):
            with errors.collect():
                yield _photo(list(rows), i)
        errors.report()

    def _columns(self, file: Path) -> Columns:
        try:
            return read_columns(tuple(column_names(file)))
        except UserError as error:
            raise UserError(f"{file}: {error}") from error


def _is_called(columns: Iterable[str], usual: Iterable[str]) -> bool:
    form = re.compile(rf"(?:^|_)(?:{'|'.join(usual)})(?:_|\d|$)")
    return any(form.search(name.lower()) for name in columns)


def _photo(rows: list[ParquetRecord], number: int) -> CounterfactualSet:
    """Make a set from the rows of one image, or from the row of one set."""
    (where, record), columns = rows[0], columns_of(rows[0][1], rows[0][0])
    images = {
        str(i): image_of(record, image, where) for i, (image, _) in enumerate(columns.members)
    }
    texts: list[tuple[int, str, dict[str, Any]]] = []
    for position, row in rows:
        row_columns = columns_of(row, position)
        names = (row_columns.members[0][1], *row_columns.captions)
        every = [text for name in names for text in captions(row[name], position)]
        for text, wrong in with_negatives(every, row_columns, row, position):
            negatives = {NEGATIVES: list(wrong)} if wrong else {}
            texts.append((0, text, {**keep_json(row, row_columns.unused), **negatives}))
    extra = keep_json(record, columns.unused)
    texts += [
        (i, caption(record[text], f"{where}: {text}"), extra)
        for i, (_, text) in enumerate(columns.members[1:], 1)
    ]
    for i, member in enumerate(record[columns.sets] if columns.sets is not None else ()):
        position = f"{where}: [{i}]"
        if not isinstance(member, dict):
            raise UserError(f"{position} should have an image and a caption")
        image, text = columns_of(member, position).members[0]
        images[str(len(images))] = image_of(member, image, position)
        texts.append((len(images) - 1, caption(member[text], position), extra))
    name = str(whole(record[columns.id])) if columns.is_set and columns.id else f"{number:08d}"
    first = texts[0][1]
    if columns.is_set and any(text == first for _, text, _ in texts[1:]):
        raise UserError(f"{where}: a counterfactual's caption is the original's; remove the row")
    if columns.is_set:
        check_images_differ([(f"image {i}", image) for i, image in images.items()], where)
    # An image is one group, however many rows show it, so that no split separates its captions.
    group = hashlib.blake2b(images["0"], digest_size=16).hexdigest()
    if columns.group is not None and record[columns.group] not in (None, ""):
        group = group_name(record[columns.group])
    return CounterfactualSet(
        key=clean_key(name),
        group=group,
        members=tuple(
            Member(
                text,
                str(i),
                name,
                Edit("text", *replaced_run(first, text)) if i else None,
                extra=values,
            )
            for i, text, values in texts
        ),
        images=images,
        provenance={"source": CaptionedParquet.kind},
    )


@dataclass(frozen=True, eq=False)
class ParquetSets(Reader):
    """A reader of parquet files with certain columns, in the folder itself or its ``data/``.

    Args:
        also: further columns that are read if they exist.
        set_columns: the columns that identify a set of several rows; empty if a row is a set.
        path_name: a function that returns a part of a set's name from the path of a row's image, or
            ""; ``None`` for no such part.
    """

    imported = True
    has_parts = True
    kind: str
    form: str
    description: str
    columns: Sequence[str]
    set_columns: Sequence[str]
    build: Callable[[list[ParquetRecord]], CounterfactualSet]
    also: Sequence[str] = ()
    path_name: Callable[[Mapping[str, Any]], str] | None = None

    def recognises(self, path: Path) -> bool:
        """Return whether there are parquet files with the columns, and no tars beside them."""
        files = parquet_files(split_home(path)[0])
        return bool(files) and set(self.columns) <= set(column_names(files[0]))

    def describe(self, path: Path) -> Description:
        split = self._split(path)
        used = (*self.columns, *self.also, *split.choice.used)
        described = Description.of_columns(used, column_names(split.files[0]))
        return replace(described, notes=split.choice.notes)

    def identity(self, path: Path) -> Any:
        return files_identity(self._split(path).files)

    def open(self, path: Path) -> Iterator[CounterfactualSet]:
        """Yield every set as soon as its last row is read."""
        errors = ErrorCollector()
        for rows in self._rows_of_sets(self._split(path)):
            with errors.collect():
                yield self.build(rows)
        errors.report()

    def _split(self, path: Path) -> ParquetSplit:
        """Return the part that is read: files of parts other than splits are read together."""
        home, named = split_home(path)
        files = parquet_files(home)
        kinds = {split_kind(re.split("[-.]", file.name)[0]) for file in files} - {None}
        if named is None and len(kinds) < 2:
            return ParquetSplit(files, choose_split(home, survey_files(files)))
        return split_of(path)

    def _rows_of_sets(self, split: ParquetSplit) -> Iterator[list[ParquetRecord]]:
        names, path_name = self.set_columns, self.path_name
        if not names:
            yield from ([record] for record in split.records(needed=self.columns))
            return

        def set_name(record: dict[str, Any]) -> tuple[str, ...]:
            name = tuple(str(record[column]) for column in names)
            return name if path_name is None else (*name, path_name(record))

        few = split.records(columns=[*names, *([] if path_name is None else ["image.path"])])
        sizes = Counter(set_name(record) for _, record in few)
        pending: dict[tuple[str, ...], list[ParquetRecord]] = {}
        held = 0
        for where, record in split.records(needed=self.columns):
            name = set_name(record)
            pending.setdefault(name, []).append((where, record))
            held += _image_bytes(record)
            if len(pending[name]) == sizes[name]:
                rows = pending.pop(name)
                held -= sum(_image_bytes(row) for _, row in rows)
                yield rows
            elif held > PENDING_BYTES:
                raise UserError(
                    f"{where}: {len(pending)} sets are unfinished, their rows lie too far apart; "
                    f"sort the files by {', '.join(names)} first"
                )


def _image_bytes(record: dict[str, Any]) -> int:
    data = cell_bytes(record.get("image"))
    return len(data) if isinstance(data, bytes) else 0


def build_pair(rows: list[ParquetRecord]) -> CounterfactualSet:
    """Make a set from a row; in our own export, ``about`` has the whole set."""
    ((where, record),) = rows
    if record.get("about"):
        return _read_about([(where, record, i) for i in (0, 1)])
    texts = [caption(record.get(f"caption_{i}"), where) for i in (0, 1)]
    edit = noun_edit(texts, where, "row")
    name = text_field(record, "id", where)
    photo = re.fullmatch(r"(\d+)_\d+", name)
    images = {str(i): image_of(record, f"image_{i}", where) for i in (0, 1)}
    members = (Member(texts[0], "0", name), Member(texts[1], "1", name, edit))
    group, source = photo.group(1) if photo else name, {"source": "parquet"}
    return CounterfactualSet(clean_key(name), group, members, images, provenance=source)


def noun_edit(texts: Sequence[str], where: str, line: str) -> Edit:
    """Return the edit of a noun between two captions, which must differ.

    Args:
        line: the word for what to remove if they are the same, ``row`` or ``line``.
    """
    before, after = replaced_run(*texts)
    if not before and not after:
        raise UserError(f"{where}: both captions are the same; remove the {line}")
    return Edit("noun", before, after)


def build_members(rows: list[ParquetRecord]) -> CounterfactualSet:
    """Make a set from the rows of our own export."""
    for where, record in rows:
        number = record["member"]
        if isinstance(number, bool) or not isinstance(number, int):
            raise UserError(f"{where}: 'member' should be a whole number from 0, not {number!r}")
    numbered = sorted(rows, key=lambda row: row[1]["member"])
    for number, (where, record) in enumerate(numbered):
        if record["member"] != number:
            raise UserError(
                f"{where}: member {number} of {record['id']!r} is missing or duplicated"
            )
    return _read_about([(where, record, None) for where, record in numbered])


Part = tuple[str, dict[str, Any], int | None]
"""A member of a set: the place of its row, the row, and its number if the row has several
members."""


def _read_about(members: list[Part]) -> CounterfactualSet:
    where, first, _ = members[0]
    about = parse_json(text_field(first, "about", where), f"{where}: about")
    named = {name: text_field(first, name, where) for name in ("id", "group")}
    return rebuild_set(members, named, about)


def rebuild_set(
    members: list[Part], named: Mapping[str, str], about: Mapping[str, Any]
) -> CounterfactualSet:
    """Return the set from which an export was made.

    Args:
        named: the set's ``id`` and ``group``.
        about: the values without their own column.
    """
    where = members[0][0]
    rows = []
    try:
        for (position, record, i), fields in zip(members, about["members"], strict=True):
            suffix = "" if i is None else f"_{i}"
            text = text_field(record, f"caption{suffix}", position)
            rows.append((text, image_of(record, f"image{suffix}", position), fields))
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
    ParquetSets(
        "pairs",
        "parquet of pairs",
        "*.parquet with id, image_0, image_1, caption_0, caption_1 (pairs on the Hub)",
        PAIR_COLUMNS,
        (),
        build_pair,
        also=("about", "group"),
    ),
    ParquetSets(
        "members",
        "parquet of counterfactual sets",
        "*.parquet with id, member, image, caption, about (sets of any size, ours)",
        ("id", "member", "image", "caption", "about"),
        ("id",),
        build_members,
        also=("group",),
    ),
)


# SocialCounterfactuals: grids of two attributes over one subject, with an image in each row.
#
# The released files, and our own export in their columns (``cfaug.data.export.hub``), give the
# same records: see ``cfaug.data.grids``.

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
        return [READER, super().identity(path)]


def seed_of(record: Mapping[str, Any]) -> str:
    """Return the file of captions and the seed in an image's path, or "".

    Some names of sets are duplicated; file and seed are unique.
    """
    path = _path(record)
    return "" if path is None else f"{path['file']}-{path['seed']}"


def _path(record: Mapping[str, Any]) -> re.Match[str] | None:
    image = record.get("image")
    path = image.get("path") if isinstance(image, Mapping) else None
    return PATH.fullmatch(path.rpartition("/")[2]) if isinstance(path, str) else None


def build_social(rows: list[ParquetRecord]) -> CounterfactualSet:
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
        rows = [row for _, row in sorted(zip(numbers, rows, strict=True), key=lambda item: item[0])]
    where, first = rows[0]
    segment, name = (text_field(first, column, where) for column in SOCIAL[:2])
    base = _attributes(first, where)
    group = None
    members, images = [], {}
    for i, (position, record) in enumerate(rows):
        text = caption(record.get("caption"), position)
        values = _attributes(record, position)
        extra: dict[str, Any] = {}
        for column in (*SOCIAL[:4], "a1", "a2"):
            extra[column] = record.get(column)
            if extra[column] is not None:
                text_field(record, column, position)
        # The subject is what follows the attributes in the caption, if it has them in order.
        words = r"\s+".join(map(re.escape, values.values()))
        match = re.fullmatch(
            rf"(?:(?P<prefix>\S.*?)\s+)??(?:(?P<article>an?)\s+)?{words}\s+(?P<subject>\S.*)",
            text,
            re.IGNORECASE,
        )
        label = None
        if match is not None and (subject := match["subject"].strip(" .")):
            label, prefix = subject, match["prefix"] or ""
            article = "a" if match["article"] else ""
            neutral = right_articles(" ".join(filter(None, (prefix, article, subject))))
            group = group or subject.lower()
            extra |= GridMember(subject, OCCUPATION, segment, prefix, neutral, values).extra
        edit = grid_edit(base, values) if i and list(values) == list(base) else None
        members.append(Member(text, str(i), f"{segment}_{name}", edit, label, extra))
        images[str(i)] = image_of(record, "image", position)
    return CounterfactualSet(
        key=clean_key((seed_of(first) or f"{segment}-{name}").lower()),
        group=group or f"{segment}-{name}",
        members=tuple(members),
        images=images,
        provenance={"source": "social_counterfactuals"},
    )


def _attributes(record: dict[str, Any], where: str) -> dict[str, str]:
    """Return the attributes of a row by their types, or by a1 and a2 if the types are ambiguous."""
    types = [str(record.get(f"{a}_type") or a) for a in ("a1", "a2")]
    names = types if types[0] != types[1] else ["a1", "a2"]
    values = (text_field(record, a, where) for a in ("a1", "a2"))
    return require_attributes(dict(zip(names, values, strict=True)), where)


def _rebuild(rows: list[ParquetRecord]) -> CounterfactualSet:
    """Reverse our own export: each row has its place, and the first one all about the set."""
    known = []
    for where, record in rows:
        about = parse_json(text_field(record, ABOUT, where), f"{where}: {ABOUT}")
        if not isinstance(about, dict) or not isinstance(about.get("member"), int):
            raise UserError(f"{where}: {ABOUT!r} does not say which member of its set this is")
        known.append((about["member"], where, record, about))
    known.sort(key=lambda item: item[0])
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
