"""TROHN-Text and TROHN-Img (Miranda et al., 2024): training sets about photos of COCO train2017."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.data.sources.captioned_parquet import split_files
from cfaug.data.sources.compositional.item import (
    Item,
    ItemForm,
    ItemPhoto,
    ItemRecord,
    file_entries,
)
from cfaug.data.sources.lists import list_records
from cfaug.data.sources.parquet import column_names, parquet_files, records
from cfaug.data.sources.row import split_home

PHOTO, CAPTION, WRONG, WRONG_IMAGE = "image_id", "caption", "negative_caption", "negative_image"
"""Columns of both; the last is TROHN-Img's."""

FOLDERS = ("train2017", "coco/train2017", "coco/images/train2017")
"""Places of COCO's train2017 photos below a folder, and beside it."""

LISTS = ("trohn_text.json", "trohn_text.jsonl", "trohn_text.csv")


class _Trohn(ItemForm):
    folders, beside = FOLDERS, FOLDERS

    def photo_of(self, entry: ItemRecord) -> ItemPhoto:
        """Return the COCO photo: ``image_id`` is the name of its file, or its number."""
        name = entry.word(PHOTO)
        if not name:
            raise UserError(f"{entry.where}: {PHOTO!r} is missing or empty")
        return ItemPhoto(entry.file_names(f"{name:0>12}.jpg" if name.isdecimal() else name, PHOTO))


class TrohnText(_Trohn):
    """``imirandam/TROHN-Text``: a photo, its caption, and a caption that is wrong about it.

    The wrong caption is a negative without an image, not a member. A list with the same columns is
    read too: ``trohn_text.jsonl``, .json or .csv.
    """

    kind = "trohn_text"
    form = "TROHN-Text"
    get = (
        "imirandam/TROHN-Text on the Hub: data/train-*.parquet; the photos, COCO's train2017, "
        "beside as coco/train2017/"
    )
    description = (
        "*.parquet with image_id, caption, negative_caption (TROHN-Text), train2017/ inside or "
        "beside"
    )

    def lists(self, path: Path) -> dict[str, Path]:
        """Return the parquet files of the split, or the list; of several splits, name one."""
        home, _ = split_home(path)
        for name in LISTS:
            if (home / name).is_file():
                return {"": home / name}
        files = parquet_files(home)
        if not files or not _is_text(set(column_names(files[0]))):
            return {}
        return {f"{number}": file for number, file in enumerate(split_files(path))}

    def entries(self, path: Path) -> Iterator[ItemRecord]:
        """Yield the rows of the files, in order."""
        yield from self._entries(path, None)

    def _entries(self, path: Path, columns: list[str] | None) -> Iterator[ItemRecord]:
        for file in self.lists(path).values():
            for number, (where, fields) in enumerate(_records(file, columns)):
                yield ItemRecord(f"{file.stem}-{number}", where, fields)

    def photos(self, path: Path) -> Iterator[tuple[ItemPhoto, str]]:
        """Yield each photo once, reading only its column, because there are millions of rows."""
        seen = set[str]()
        for entry in self._entries(path, [PHOTO]):
            name = str(entry.fields.get(PHOTO))
            if name not in seen:
                seen.add(name)
                yield self.photo_of(entry), entry.where

    def item(self, entry: ItemRecord) -> Item:
        """Read a row: the photo and its caption; the wrong caption is a negative."""
        return Item(
            entry.name, entry.where, (self.photo_of(entry),), (entry.text(CAPTION),),
            negatives=(entry.text(WRONG),),
        )  # fmt: skip


class TrohnImg(_Trohn):
    """``imirandam/TROHN-Img``: a photo and its caption, a wrong caption and an image made of it."""

    kind = "trohn_img"
    form = "TROHN-Img"
    get = (
        "imirandam/TROHN-Img on the Hub: data/train-*.parquet; the photos, COCO's train2017, "
        "beside as coco/train2017/"
    )
    description = (
        "*.parquet with image_id, caption, negative_caption, negative_image (TROHN-Img), "
        "train2017/ inside or beside"
    )
    columns = (PHOTO, CAPTION, WRONG, WRONG_IMAGE)

    def fits(self, names: Mapping[str, bool]) -> bool:
        """Return whether a table has the columns, but not the photo."""
        return super().fits(names) and "image" not in names and names[WRONG_IMAGE]

    def item(self, entry: ItemRecord) -> Item:
        """Read a row: the photo and its caption, the made image and the wrong caption."""
        return Item(
            entry.name, entry.where, (self.photo_of(entry), entry.photo(WRONG_IMAGE)),
            (entry.text(CAPTION), entry.text(WRONG)),
            of_members={"image_kind": ("real", "synthetic")},
        )  # fmt: skip


def _is_text(names: set[str]) -> bool:
    return {PHOTO, CAPTION, WRONG} <= names and not names & {WRONG_IMAGE, "image", "images"}


def _records(file: Path, columns: list[str] | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if file.suffix == ".parquet":
        yield from records([file], columns or [PHOTO, CAPTION, WRONG])
    elif file.suffix == ".json":
        yield from ((entry.where, entry.fields) for entry in file_entries(file))
    else:
        yield from list_records(file)
