"""Released images with class labels: parquet of the Hub, CIFAR's binary files.

They are test sets: of several splits the test split is read, otherwise the validation split, or,
with captions beside the labels, the training split if it is the only one. ``FOLDER:SPLIT`` names
another one, to train on. CIFAR's Python version is
a pickle and is not read.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.files import visible_files
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.sources.captioned_parquet import SPLIT, split_files
from cfaug.data.sources.columns import CAPTION as CAPTION_COLUMNS
from cfaug.data.sources.parquet import column_names, image_of, open_parquet, parquet_files, records
from cfaug.data.sources.row import (
    Description,
    ErrorCollector,
    Reader,
    captions,
    class_caption,
    files_identity,
    imagenet_names,
    make_distinct,
    split_home,
)

SPLITS = ("test", "validation", "val", "valid")
IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "fine_label", "labels", "class")


def make_labelled_set(
    key: str, label: str, image: bytes, kind: str, texts: Sequence[str] = ()
) -> CounterfactualSet:
    """Return a set of one image with its class.

    Args:
        label: the name of the class.
        kind: the kind of the source, for the set's provenance.
        texts: the captions; if empty, the caption is "a photo of a {c}".
    """
    return CounterfactualSet(
        key=key,
        group=key,
        members=tuple(
            Member(text, "image", key, label=label) for text in texts or [class_caption(label)]
        ),
        images={"image": image},
        provenance={"source": kind},
    )


@dataclass(frozen=True)
class _Columns:
    """The columns of a file that are read; ``text`` is ``None`` if there are only classes."""

    image: str
    label: str
    text: str | None

    @property
    def names(self) -> list[str]:
        return [name for name in (self.image, self.label, self.text) if name is not None]


class LabelledParquet(Reader):
    """Parquet of an image and a class a row, in the folder, its ``data/`` or its only folder.

    A column of captions (texts or lists of texts) gives the captions, and the class becomes the
    label. Class numbers are converted to the names that ``datasets`` keeps in the file's schema;
    for ImageNet, whose names there are lists of synonyms, by WordNet ids.
    """

    imported = True
    has_parts = True
    kind = "labelled_parquet"
    form = "parquet of images with class labels"
    description = "*.parquet with image (or img) and label (or fine_label): classes on the Hub"

    def recognises(self, path: Path) -> bool:
        """Return whether there are parquet files with both columns.

        A split that is named is one of images with captions if there is a column of captions.
        """
        home, split = split_home(path)
        homes = _homes(home)
        if not homes:
            return False
        names = column_names(parquet_files(homes[0])[0])
        found = bool(_first(IMAGE_COLUMNS, names) and _first(LABEL_COLUMNS, names))
        return found and (split is None or _first(CAPTION_COLUMNS, names) is None)

    def identity(self, path: Path) -> Any:
        """Return names, sizes and times of the split's files, and the column of captions."""
        files = _test_files(path)
        text = _columns(files[0]).text
        return [*files_identity(files), *([] if text is None else [text])]

    def describe(self, path: Path) -> Description:
        """Return which columns are read, and which splits are not."""
        files = _test_files(path)
        columns = Description.of_columns(_columns(files[0]).names, column_names(files[0]))
        home, split = split_home(path)
        if split is not None:
            return columns
        others = [file for file in parquet_files(_homes(home)[0]) if file not in files]
        found = [SPLIT.fullmatch(file.name.lower()) for file in others]
        names = dict.fromkeys(one[1] for one in found if one is not None)
        return replace(
            columns, left_out=tuple(f"its split {name}, {path}:{name}" for name in names)
        )

    def open(self, path: Path) -> Iterator[CounterfactualSet]:
        """Yield the image of each row."""
        files, errors = _test_files(path), ErrorCollector()
        columns = _columns(files[0])
        classes = class_names_of(open_parquet(files[0]).schema_arrow.metadata or {}, columns.label)
        for number, (where, record) in enumerate(records(files, columns.names)):
            with errors.collect():
                name = _name(record[columns.label], classes, where)
                image = image_of(record, columns.image, where)
                texts = [] if columns.text is None else captions(record[columns.text], where)
                yield make_labelled_set(f"{number:08d}", name, image, self.kind, texts)
        errors.report()


def _homes(path: Path) -> list[Path]:
    """Return the folder itself, or its subfolders with configurations of a data set on the Hub."""
    if parquet_files(path):
        return [path]
    if visible_files(path.glob("*.tar")):
        return []  # files beside shards are not a source
    folders = visible_files({file.parent for file in path.glob("*/*.parquet")})
    return [folder for folder in folders if parquet_files(folder)]


def _test_files(path: Path) -> list[Path]:
    home, split = split_home(path)
    homes = _homes(home)
    if len(homes) > 1:
        named = ", ".join(map(str, homes))
        raise UserError(f"{path} holds several sets of parquet files; name one of {named}")
    if split is not None:
        return split_files(homes[0].with_name(f"{homes[0].name}:{split}"))
    files = _split(parquet_files(homes[0]))
    train_only = all(_is_of("train", file) for file in files)
    if train_only and _columns(files[0]).text is None:
        raise UserError(
            f"{path} holds a training split only, which is not a test; add the files of its test "
            f"split, or name {path}:train to take it all the same"
        )
    return files


def _columns(file: Path) -> _Columns:
    names = column_names(file)
    image, label = _first(IMAGE_COLUMNS, names), _first(LABEL_COLUMNS, names)
    if image is None or label is None:
        raise UserError(
            f"{file} has no column of images or none of classes; it has {', '.join(names)}"
        )
    return _Columns(image, label, _first(CAPTION_COLUMNS, names))


def _first(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)


def _is_of(split: str, file: Path) -> bool:
    return file.name.startswith((f"{split}-", f"{split}."))


def _split(files: list[Path]) -> list[Path]:
    """Return the files of the test split, or the validation split, or all if no split is named.

    A split without classes, such as ImageNet's test split, is skipped.
    """
    named = [[file for file in files if _is_of(split, file)] for split in SPLITS]
    there = [own for own in named if own]
    return next((own for own in there if _has_classes(own[0])), there[0] if there else files)


def _has_classes(file: Path) -> bool:
    """Return whether a file's first row names a class."""
    label = _columns(file).label
    return next((row[label] for _, row in records([file], [label])), None) not in (None, -1)


def class_names_of(metadata: dict[bytes, bytes], label: str) -> list[str] | None:
    """Return the names of a ``ClassLabel`` column, which ``datasets`` writes to the schema."""
    try:
        about = json.loads(metadata.get(b"huggingface", b"{}"))
        names = about["info"]["features"][label]["names"]
    except (ValueError, KeyError, TypeError):
        return None
    found = [str(name) for name in names]
    ids = list(imagenet_names())
    return ids if len(found) == len(ids) and found[0].startswith("tench") else make_distinct(found)


def _name(value: Any, classes: list[str] | None, where: str) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    if not isinstance(value, int) or value < 0:
        raise UserError(
            f"{where}: {value!r} is not a class; if the test split has none, leave its "
            "files out of the folder"
        )
    if classes is None:
        return f"{value:05d}"  # a classnames.txt names them, in this order
    if value >= len(classes):
        raise UserError(f"{where}: class {value}; the file's schema names {len(classes)}")
    return classes[value]


@dataclass(frozen=True)
class _Cifar:
    """One of the two binary releases: its file names, and the bytes before a record's pixels."""

    test: str
    names: str
    labels: int


CIFARS = (
    _Cifar("test_batch.bin", "batches.meta.txt", 1),
    _Cifar("test.bin", "fine_label_names.txt", 2),
)
SIDE = 32
PIXELS = 3 * SIDE * SIDE


CIFAR_FOLDERS = ("", "cifar-10-batches-bin", "cifar-100-binary")
"""Folders of the files: the folder itself, or those in the archives."""


class CifarBinary(Reader):
    """The test split of CIFAR-10 or CIFAR-100 in their binary version.

    https://www.cs.toronto.edu/~kriz/cifar.html: a record is the label (CIFAR-100: the coarse, then
    the fine one) and 3,072 bytes of red, green and blue, row by row.
    """

    imported = True
    kind = "cifar_binary"
    form = "CIFAR's binary files"
    description = (
        "test_batch.bin and batches.meta.txt, or test.bin and fine_label_names.txt (CIFAR)"
    )

    def recognises(self, path: Path) -> bool:
        """Return whether a test file and its class names exist."""
        return self._layout(path) is not None

    def describe(self, path: Path) -> Description:
        """Return an empty description: the files have no columns."""
        return Description()

    def identity(self, path: Path) -> Any:
        """Return names, sizes and times of both files."""
        home, layout = self._known(path)
        return files_identity([home / layout.test, home / layout.names])

    def open(self, path: Path) -> Iterator[CounterfactualSet]:
        """Yield every test image as PNG."""
        home, layout = self._known(path)
        file = home / layout.test
        names = [
            line.strip() for line in (home / layout.names).read_text(encoding="utf-8").splitlines()
        ]
        classes = [name for name in names if name]
        length, record = file.stat().st_size, layout.labels + PIXELS
        if not length or length % record:
            raise UserError(
                f"{file} has {length} bytes, which is not a number of records of {record}; fetch "
                "it again"
            )
        with file.open("rb") as handle:
            for number in range(length // record):
                data = handle.read(record)
                label = data[layout.labels - 1]
                if label >= len(classes):
                    raise UserError(
                        f"{file}, record {number}: class {label}; {layout.names} has {len(classes)}"
                    )
                image = _png(data[layout.labels :])
                yield make_labelled_set(f"{number:06d}", classes[label], image, self.kind)

    def _known(self, path: Path) -> tuple[Path, _Cifar]:
        found = self._layout(path)
        assert found is not None
        return found

    def _layout(self, path: Path) -> tuple[Path, _Cifar] | None:
        for home in (path / folder for folder in CIFAR_FOLDERS):
            for one in CIFARS:
                if (home / one.test).is_file() and (home / one.names).is_file():
                    return home, one
        return None


def _png(planes: bytes) -> bytes:
    pixels = np.frombuffer(planes, np.uint8).reshape(3, SIDE, SIDE).transpose(1, 2, 0)
    buffer = io.BytesIO()
    from PIL import Image

    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
