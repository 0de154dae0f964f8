"""Items whose images are inside tables: parquet of the Hub, Arrow of ``save_to_disk``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.pixels import content_digest
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.core.words import replaced_run
from cfaug.data.sources.captioned_parquet import split_files
from cfaug.data.sources.coco import coco_photo
from cfaug.data.sources.compositional.item import Item, ItemForm, ItemPhoto, ItemRecord
from cfaug.data.sources.compositional.listed import (
    LeftOut,
    MissingPhotoError,
    PhotoFinder,
    missing_error,
    short_place,
)
from cfaug.data.sources.parquet import holds_images, image_of, open_parquet, parquet_files, records
from cfaug.data.sources.question_sets.columns import ArrowStream
from cfaug.data.sources.row import (
    Description,
    ErrorCollector,
    Reader,
    clean_key,
    files_identity,
    split_home,
)

ARROW_FOLDERS = ("", "test", "data", "data/test")
"""Folders with the streams of ``save_to_disk``."""


class ItemTable(Reader):
    """The reader of one form of items whose images are inside a table.

    Args:
        image_roots: absolute folders in which photos named by a table may be.
    """

    imported = True
    has_parts = True

    def __init__(self, form: ItemForm, image_roots: Sequence[Path] = ()) -> None:
        self.item_form, self.image_roots = form, tuple(image_roots)
        self.kind, self.form, self.description = form.kind, form.form, form.description
        self._left_out = LeftOut()

    def with_roots(self, image_roots: Sequence[Path]) -> ItemTable:
        """Return this reader with other folders of photos."""
        return ItemTable(self.item_form, image_roots)

    def recognises(self, path: Path) -> bool:
        """Return whether there are tables with the form's columns."""
        home, _ = split_home(path)
        if files := parquet_files(home):
            return self.item_form.fits(_parquet_columns(files[0]))
        streams = arrow_files(home)
        return bool(streams) and self.item_form.fits(_arrow_columns(streams[0]))

    def describe(self, path: Path) -> Description:
        """Return the items that were left out, with reasons; called after ``open``."""
        return Description(left_out=self._left_out.phrases())

    def identity(self, path: Path) -> Any:
        """Return names, sizes and times of the tables."""
        return files_identity(_files(path))

    def open(self, path: Path) -> Iterator[CounterfactualSet]:
        """Yield the set of every row."""
        left_out, errors = LeftOut(), ErrorCollector()
        self._left_out = left_out
        home, missing, count = split_home(path)[0], list[str](), 0
        finder = PhotoFinder(home, self.item_form, self.image_roots)
        for number, (where, record) in enumerate(_rows(_files(path))):
            count += 1
            with errors.collect():
                item = self.item_form.item(ItemRecord(f"{number:08d}", where, record))
                if item.repeats:
                    left_out.equal.append(short_place(where, home))
                    continue
                try:
                    yield item_set(self.kind, item, finder)
                except MissingPhotoError as error:
                    missing.append(str(error))
        errors.report()
        if missing:
            raise missing_error(home, missing, count, self.item_form)


def item_set(kind: str, item: Item, finder: PhotoFinder) -> CounterfactualSet:
    """Return the set of an item of a table.

    Raises:
        MissingPhotoError: if a photo that it names is missing or unreadable.
    """
    images = {
        str(number): finder.found(photo, item.where).file.read_bytes()
        if photo.names
        else image_of({"image": photo.data}, "image", item.where)
        for number, photo in enumerate(item.photos)
    }
    return CounterfactualSet(
        key=clean_key(item.name),
        group=item.group or _photo_name(item.photos[0]) or content_digest(images["0"]).hex(),
        members=tuple(
            Member(
                text,
                str(item.photo_of(i)),
                item.name,
                Edit("text", *replaced_run(item.texts[0], text)) if item.is_edit(i) else None,
                item.labels[i] if item.labels else None,
                item.extra(kind, i),
            )
            for i, text in enumerate(item.texts)
        ),
        images=images,
        provenance={"source": kind},
    )


def _photo_name(photo: ItemPhoto) -> str:
    """Return the id of the COCO photo in the path of a table's image, or ""."""
    path = photo.data.get("path") if isinstance(photo.data, dict) else next(iter(photo.names), "")
    return coco_photo(path.rpartition("/")[2]) if isinstance(path, str) else ""


def arrow_files(path: Path) -> list[Path]:
    """Return the Arrow streams of a folder in the layout of ``save_to_disk``."""
    for folder in ARROW_FOLDERS:
        home = path / folder
        if (home / "state.json").is_file() and (files := sorted(home.glob("*.arrow"))):
            return files
    return []


def _files(path: Path) -> list[Path]:
    home, _ = split_home(path)
    return split_files(path) if parquet_files(home) else arrow_files(home)


def _rows(files: list[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in files:
        if file.suffix == ".parquet":
            yield from records([file])
            continue
        stream = ArrowStream(file)
        for number, record in enumerate(stream.records(stream.names), 1):
            yield f"{file}, row {number}", record


def _parquet_columns(file: Path) -> Mapping[str, bool]:
    with open_parquet(file) as table:
        return {field.name: _is_image(field.type) for field in table.schema_arrow}


def _arrow_columns(file: Path) -> Mapping[str, bool]:
    try:
        stream = ArrowStream(file)
    except UserError:
        return {}
    return {name: name in stream.images for name in stream.names}


def _is_image(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    return holds_images(kind)
