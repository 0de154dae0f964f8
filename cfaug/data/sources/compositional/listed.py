"""Readers of compositional items: photos as files, read in place, or inside tables."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from cfaug.core.errors import UserError, name_some
from cfaug.core.files import require_regular
from cfaug.core.pixels import CHUNK, MAX_PIXELS, Digest, content_digest, open_image
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.captions import replaced_run
from cfaug.data.sources.coco import coco_photo
from cfaug.data.sources.compositional.item import Box, Item, ItemForm, ItemPhoto, ItemRecord
from cfaug.data.sources.folders import IMAGE_FOLDERS, file_digest, locate
from cfaug.data.sources.parquet import (
    MAX_BYTES,
    holds_images,
    image_of,
    open_parquet,
    parquet_files,
)
from cfaug.data.sources.parquet_splits import split_files, split_of
from cfaug.data.sources.question_sets.rows import ArrowStream
from cfaug.data.sources.row import (
    Description,
    ErrorCollector,
    Reader,
    Row,
    clean_key,
    files_identity,
    split_home,
)
from cfaug.data.sources.splits import SplitChoice, SplitSurvey, choose_split

NAMED = 5
"""Number of items that a message names."""
MANY = 12
"""Number of folders that a message names."""


LEFT_OUT = {
    "equal": "{:,} items of which two captions are equal ({})",
    "unused": "{:,} entries that the authors of the test leave out ({})",
    "same": "{:,} items whose two photos are equal, so that no caption is of one alone ({})",
    "boxes": "{:,} items whose box shows nothing of its photo or is far too large ({})",
    "missing": "{:,} items whose photo is missing or unreadable ({})",
    "empty": "{:,} lists without an item ({})",
    "padded": "nothing beyond the photo where {:,} boxes reach out of it: black there, as in the "
    "released code ({})",
}
"""Phrases about the items that were left out, and about padded boxes, which were not."""


def _describe(left_out: Mapping[str, list[str]]) -> Description:
    phrases = (
        phrase.format(len(left_out[reason]), name_some(left_out[reason], NAMED))
        for reason, phrase in LEFT_OUT.items()
        if left_out[reason]
    )
    return Description(left_out=tuple(phrases))


class ItemList(Reader):
    """The reader of one form of items.

    Args:
        without_missing: whether to leave out items whose photo is missing or unreadable.
    """

    has_parts = True

    def __init__(
        self, form: ItemForm, image_roots: Sequence[Path] = (), without_missing: bool = False
    ) -> None:
        self.item_form = form
        self.kind, self.form, self.description = form.kind, form.form, form.description
        self.image_roots = tuple(image_roots)
        self.without_missing = without_missing
        self._left_out = defaultdict[str, list[str]](list)
        self._files: dict[Path, list[Path]] = {}

    def with_roots(self, image_roots: Sequence[Path]) -> ItemList:
        """Return this reader with further folders of photos."""
        roots = (*self.image_roots, *image_roots)
        return ItemList(self.item_form, roots, self.without_missing)

    def recognises(self, path: Path) -> bool:
        return bool(self.item_form.lists(path))

    def files(self, path: Path) -> list[Path]:
        """Return every existing photo that the items name."""
        if path not in self._files:
            finder, files = self._finder(path), dict[Path, None]()
            for photo, where in self.item_form.photos(path):
                with suppress(UserError):
                    files[finder.file(photo, where)] = None
            self._files[path] = list(files)
        return self._files[path]

    def _finder(self, path: Path) -> PhotoFinder:
        return PhotoFinder(split_home(path)[0], self.item_form, self.image_roots)

    def describe(self, path: Path) -> Description:
        return _describe(self._left_out)

    def identity(self, path: Path) -> Any:
        """Return name, size and time of the lists and of every photo."""
        self._files.pop(path, None)  # called first, and again for each source
        form = self.item_form
        files = [*form.lists(path).values(), *form.notes(path), *self.files(path)]
        return [self.without_missing, *files_identity(files)]

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the members of every item."""
        left_out = self._left_out = defaultdict[str, list[str]](list)
        home, errors, finder = split_home(path)[0], ErrorCollector(), self._finder(path)
        count, missing, seen = 0, list[str](), set[str]()
        for entry in self.item_form.entries(path):
            seen.add(entry.category)
            with errors.collect():
                if not self.item_form.is_used(entry):
                    left_out["unused"].append(short_place(entry.where, home))
                    continue
                item = self.item_form.item(entry)
                count += 1
                name = short_place(item.where, home)
                if item.repeats:
                    left_out["equal"].append(name)
                    continue
                try:
                    photos = [finder.read(photo, item.where) for photo in item.photos]
                except EmptyBoxError:
                    left_out["boxes"].append(name)
                    continue
                except MissingPhotoError as error:
                    left_out["missing"].append(name)
                    missing.append(str(error))
                    continue
                if len(photos) > len({photo.digest for photo in photos}):
                    left_out["same"].append(name)
                    continue
                if any(photo.is_padded for photo in photos):
                    left_out["padded"].append(name)
                yield from item_rows(self.kind, item, photos, home)
        errors.report()
        if missing and not self.without_missing:
            raise missing_error(home, missing, count, self.item_form)
        if not count:
            raise UserError(f"{path}: its lists hold no item; fetch them again")
        if seen != {""}:  # entries name their list
            lists = self.item_form.lists(path).items()
            left_out["empty"] = [file.name for name, file in lists if name not in seen]


def short_place(where: str, path: Path) -> str:
    """Return a place without the folder of its source."""
    return where.replace(f"{path}/", "")


def missing_error(path: Path, missing: Sequence[str], count: int, form: ItemForm) -> UserError:
    """Return the error for items whose photos are missing or unreadable."""
    looked = [
        path,
        *(path / folder for folder in form.folders),
        *(path.parent / name for name in form.beside),
    ]
    return UserError(
        f"{len(missing):,} of {count:,} items have a photo that is missing or unreadable: "
        f"{'; '.join(missing[:NAMED])}{'; ...' if len(missing) > NAMED else ''}. Put the photos "
        f"into one of {name_some(looked, MANY)}, or name their folder: benchmark.images=FOLDER "
        "(of a suite, or for training: 'paths.image_roots=[FOLDER]'); benchmark.missing=skip "
        "leaves these items out"
    )


def item_rows(kind: str, item: Item, photos: Sequence[FoundPhoto], path: Path) -> Iterator[Row]:
    """Yield the members of an item whose photos were found."""
    key = clean_key(item.name)
    file = photos[0].file
    name = str(file.relative_to(path)) if file.is_relative_to(path) else file.name
    group = item.group or coco_photo(file.name) or name
    for member, text in enumerate(item.texts):
        number = item.photo_of(member)
        photo = photos[number]
        yield Row(
            set=key, member=member, group=group, text=text,
            label=item.labels[member] if item.labels else None, image_id=str(number),
            file=str(photo.file), offset=0, length=photo.length, digest=photo.digest,
            where=str(photo.file), edited=member > 0 and item.is_edit(member),
            negatives=item.negatives if member == 0 else (),
            extra=item.extra(kind, member), box=item.photos[number].box,
        )  # fmt: skip


class MissingPhotoError(UserError):
    """A missing photo; the message names it and its record."""


class EmptyBoxError(UserError):
    """A box outside its photo, or far too large; the message names it."""


@dataclass(frozen=True)
class FoundPhoto:
    """A photo that was found.

    Attributes:
        length: the size of the file in bytes.
        digest: the digest of the visible part.
        is_padded: whether the box reaches beyond the photo.
    """

    file: Path
    length: int
    digest: Digest
    is_padded: bool = False


class PhotoFinder:
    """Finds the photos of a source, and checks each once.

    Args:
        form: the form of the source, which defines the folders of photos.
    """

    def __init__(self, path: Path, form: ItemForm, roots: Sequence[Path] = ()) -> None:
        # A list cannot choose a folder: in folders beside its own only plain names are searched.
        near = [up / name for up in (path.parent, path.parent.parent) for name in form.beside]
        homes = (path, *(folder for folder in near if folder.is_dir()), *roots)
        inside = (*IMAGE_FOLDERS, *form.folders)
        folders = (home / name for home in homes for name in inside)
        self._folders = [str(folder) for folder in dict.fromkeys(folders) if folder.is_dir()]
        self._path, self._roots = path, tuple(roots)
        self._files: dict[tuple[str, ...], Path] = {}
        self._checked: dict[Path, tuple[int, Digest]] = {}
        self._sizes: dict[Path, tuple[int, int]] = {}

    def file(self, photo: ItemPhoto, where: str) -> Path:
        """Return the file of a photo, without reading it.

        Raises:
            MissingPhotoError: if it is not found.
        """
        for name in photo.names if photo.names not in self._files else ():
            plain = PurePath(name)
            if plain.is_absolute() or ".." in plain.parts:
                self._files[photo.names] = locate(self._path, name, where, self._roots)
                break
            places = (f"{folder}/{name}" for folder in self._folders)
            if (path := next(filter(os.path.isfile, places), None)) is not None:
                self._files[photo.names] = Path(os.path.normpath(path))
                break
        if photo.names not in self._files:
            raise MissingPhotoError(f"{where}: there is no photo {photo.names[0]!r}")
        return self._files[photo.names]

    def read(self, photo: ItemPhoto, where: str) -> FoundPhoto:
        """Return a photo, after reading and checking its file.

        Raises:
            MissingPhotoError: if it is not found, or is not an image that can be read.
            EmptyBoxError: if its box is outside the photo, or far too large.
        """
        file = self.file(photo, where)
        try:
            if file not in self._checked:
                length = file.stat().st_size
                if length > MAX_BYTES:
                    raise UserError(f"{file}: {length} bytes are too many; at most {MAX_BYTES}")
                self._checked[file] = length, file_digest(file)
            length, digest = self._checked[file]
            if photo.box is None:
                return FoundPhoto(file, length, digest)
            if file not in self._sizes:
                with require_regular(file).open("rb") as handle:
                    head = handle.read(CHUNK)
                self._sizes[file] = open_image(head, str(file)).size
            width, height = self._sizes[file]
        except UserError as error:
            raise MissingPhotoError(f"{where}: {error}") from error
        left, top, right, bottom = photo.box
        if (right - left) * (bottom - top) > MAX_PIXELS:
            raise EmptyBoxError(f"{where}: the box has more than {MAX_PIXELS} pixels")
        if min(right, width) <= max(left, 0) or min(bottom, height) <= max(top, 0):
            raise EmptyBoxError(
                f"{where}: the box {left}, {top} to {right}, {bottom} shows nothing of {file.name} "
                f"({width} x {height} pixels)"
            )
        padded = left < 0 or top < 0 or right > width or bottom > height
        return FoundPhoto(file, length, digest.of_box(photo.box), padded)


def box_of(left: int, top: int, width: int, height: int) -> Box:
    """Return the box of a corner and a size.

    >>> box_of(10, 20, 30, 40)
    (10, 20, 40, 60)
    """
    return left, top, left + width, top + height


# Items whose images are inside tables: parquet of the Hub, Arrow of ``save_to_disk``.

ARROW_FOLDERS = ("", "test", "data", "data/test")
"""Folders with the streams of ``save_to_disk``."""


class ItemTable(Reader):
    """The reader of one form of items whose images are inside a table."""

    imported = True
    has_parts = True

    def __init__(self, form: ItemForm, image_roots: Sequence[Path] = ()) -> None:
        self.item_form, self.image_roots = form, tuple(image_roots)
        self.kind, self.form, self.description = form.kind, form.form, form.description
        self._left_out = defaultdict[str, list[str]](list)

    def with_roots(self, image_roots: Sequence[Path]) -> ItemTable:
        return ItemTable(self.item_form, image_roots)

    def recognises(self, path: Path) -> bool:
        """Return whether there are tables with the form's columns."""
        home, _ = split_home(path)
        if files := parquet_files(home):
            with open_parquet(files[0]) as table:
                columns = {field.name: _holds_image(field.type) for field in table.schema_arrow}
            return self.item_form.fits(columns)
        streams = arrow_files(home)
        if not streams:
            return False
        try:
            stream = ArrowStream(streams[0])
        except UserError:
            return False
        return self.item_form.fits({name: name in stream.images for name in stream.names})

    def describe(self, path: Path) -> Description:
        return replace(_describe(self._left_out), notes=_choose(path).notes)

    def identity(self, path: Path) -> Any:
        return files_identity(_files(path))

    def open(self, path: Path) -> Iterator[CounterfactualSet]:
        left_out = self._left_out = defaultdict[str, list[str]](list)
        errors = ErrorCollector()
        home, missing, count = split_home(path)[0], list[str](), 0
        finder = PhotoFinder(home, self.item_form, self.image_roots)
        for number, (where, record) in enumerate(_rows(path)):
            count += 1
            with errors.collect():
                item = self.item_form.item(ItemRecord(f"{number:08d}", where, record))
                if item.repeats:
                    left_out["equal"].append(short_place(where, home))
                    continue
                try:
                    images = {
                        str(i): finder.read(photo, where).file.read_bytes()
                        if photo.names
                        else image_of({"image": photo.data}, "image", where)
                        for i, photo in enumerate(item.photos)
                    }
                except MissingPhotoError as error:
                    missing.append(str(error))
                    continue
                if len({*images.values()}) < len(images):
                    left_out["same"].append(short_place(where, home))
                    continue
                first = item.photos[0]
                names = next(iter(first.names), "")
                path_of = first.data.get("path") if isinstance(first.data, dict) else names
                coco = coco_photo(path_of.rpartition("/")[2]) if isinstance(path_of, str) else ""
                members = []
                for i, text in enumerate(item.texts):
                    edited = item.is_edit(i)
                    edit = Edit("text", *replaced_run(item.texts[0], text)) if edited else None
                    label = item.labels[i] if item.labels else None
                    image = str(item.photo_of(i))
                    extra = item.extra(self.kind, i)
                    members.append(Member(text, image, item.name, edit, label, extra))
                yield CounterfactualSet(
                    key=clean_key(item.name),
                    group=item.group or coco or content_digest(images["0"]).hex(),
                    members=tuple(members),
                    images=images,
                    provenance={"source": self.kind},
                )
        errors.report()
        if missing:
            raise missing_error(home, missing, count, self.item_form)


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


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if parquet_files(split_home(path)[0]):
        yield from split_of(path).records()
        return
    choice = _choose(path)
    for file in _files(path):
        stream = ArrowStream(file)
        for number, record in enumerate(stream.records(stream.names), 1):
            if choice.reads(record):
                yield f"{file}, row {number}", record


def _choose(path: Path) -> SplitChoice:
    """Return which rows of a source's tables are read, if a column says the split."""
    home = split_home(path)[0]
    if parquet_files(home):
        return split_of(path).choice
    survey = SplitSurvey.of(
        record
        for stream in map(ArrowStream, arrow_files(home))
        for record in stream.records([n for n in stream.names if n not in stream.images])
    )
    return choose_split(path if survey.named_columns() or survey.columns() else home, survey)


def _holds_image(kind: Any) -> bool:
    import pyarrow as pa

    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return holds_images(kind.value_type if is_list else kind)
