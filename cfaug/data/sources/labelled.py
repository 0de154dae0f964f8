"""Released images with class labels: parquet of the Hub, CIFAR's binary files.

They are test sets: of several splits the test split is read, otherwise the validation split, or,
with captions beside the labels, the training split if it is the only one. ``FOLDER:SPLIT`` names
another one, to train on. CIFAR's Python version is
a pickle and is not read.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.files import visible_files
from cfaug.core.safety.json_text import load_json
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.sources.columns import CAPTION as CAPTION_COLUMNS
from cfaug.data.sources.fields import field_names, paths_in, value_at
from cfaug.data.sources.parquet import column_names, image_of, open_parquet, parquet_files, records
from cfaug.data.sources.parquet_splits import SPLIT, ParquetSplit, split_of, survey_files
from cfaug.data.sources.row import (
    Description,
    ErrorCollector,
    Reader,
    captions,
    class_caption,
    files_identity,
    imagenet_names,
    known,
    make_distinct,
    split_home,
)
from cfaug.data.sources.splits import choose_split

SPLITS = ("test", "validation", "val", "valid")
IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "fine_label", "labels", "class")


def _labelled_set(
    key: str, label: str, image: bytes, kind: str, texts: Sequence[str] = ()
) -> CounterfactualSet:
    return CounterfactualSet(
        key=key,
        group=key,
        members=tuple(
            Member(text, "image", key, label=label) for text in texts or [class_caption(label)]
        ),
        images={"image": image},
        provenance={"source": kind},
    )


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
        fits = bool(_first(IMAGE_COLUMNS, names) and _first(LABEL_COLUMNS, names))
        return fits and (split is None or _first(CAPTION_COLUMNS, names) is None)

    def identity(self, path: Path) -> Any:
        """Return names, sizes and times of the split's files, and the column of captions."""
        files = _test_split(path).files
        _, _, text = _columns(files[0])
        return [*files_identity(files), *([] if text is None else [text])]

    def describe(self, path: Path) -> Description:
        """Return which columns are read, and which splits are not."""
        read = _test_split(path)
        files, choice = read.files, read.choice
        used = (*filter(None, _columns(files[0])), *choice.used)
        described = Description.of_columns(used, column_names(files[0]))
        columns = replace(described, notes=choice.notes)
        home, split = split_home(path)
        if split is not None:
            return columns
        others = [file for file in parquet_files(_homes(home)[0]) if file not in files]
        matches = [SPLIT.fullmatch(file.name.lower()) for file in others]
        names = dict.fromkeys(match[1] for match in matches if match is not None)
        return replace(
            columns, left_out=tuple(f"its split {name}, {path}:{name}" for name in names)
        )

    def open(self, path: Path) -> Iterator[CounterfactualSet]:
        """Yield the image of each row."""
        read, errors = _test_split(path), ErrorCollector()
        files = read.files
        image, label, text = _columns(files[0])
        classes = class_names_of(open_parquet(files[0]).schema_arrow.metadata or {}, label)
        names = [name for name in (image, label, text) if name is not None]
        for number, (where, record) in enumerate(read.records(names)):
            with errors.collect():
                value = record[label]
                if isinstance(value, str) and value.strip():
                    name = value.strip()
                elif not isinstance(value, int) or value < 0:
                    raise UserError(
                        f"{where}: {value!r} is not a class; if the test split has none, leave its "
                        "files out of the folder"
                    )
                elif classes is None:
                    name = f"{value:05d}"  # a classnames.txt names them, in this order
                elif value < len(classes):
                    name = classes[value]
                else:
                    raise UserError(
                        f"{where}: class {value}; the file's schema names {len(classes)}"
                    )
                data = image_of(record, image, where)
                texts = [] if text is None else captions(record[text], where)
                yield _labelled_set(f"{number:08d}", name, data, self.kind, texts)
        errors.report()


def _homes(path: Path) -> list[Path]:
    if parquet_files(path):
        return [path]
    if visible_files(path.glob("*.tar")):
        return []  # files beside shards are not a source
    folders = visible_files({file.parent for file in path.glob("*/*.parquet")})
    return [folder for folder in folders if parquet_files(folder)]


def _test_split(path: Path) -> ParquetSplit:
    def has_classes(file: Path) -> bool:
        _, label, _ = _columns(file)
        return next((row[label] for _, row in records([file], [label])), None) not in (None, -1)

    home, split = split_home(path)
    homes = _homes(home)
    if len(homes) > 1:
        named = ", ".join(map(str, homes))
        raise UserError(f"{path} holds several sets of parquet files; name one of {named}")
    if split is not None:
        return split_of(homes[0].with_name(f"{homes[0].name}:{split}"))
    # The test split, or the validation split, or all files if no split is named. A split without
    # classes, such as ImageNet's test split, is skipped.
    files = parquet_files(homes[0])
    named_splits = [
        [file for file in files if file.name.startswith((f"{name}-", f"{name}."))]
        for name in SPLITS
    ]
    there = [part for part in named_splits if part]
    if there:
        files = next((part for part in there if has_classes(part[0])), there[0])
    survey = survey_files(files)
    choice = choose_split(homes[0], survey)
    if survey.columns():  # whatever the files are called
        return ParquetSplit(files, choice)
    train_only = all(file.name.startswith(("train-", "train.")) for file in files)
    if train_only and _columns(files[0])[2] is None:
        raise UserError(
            f"{path} holds a training split only, which is not a test; add the files of its test "
            f"split, or name {path}:train to take it all the same"
        )
    return ParquetSplit(files, choice)


def _columns(file: Path) -> tuple[str, str, str | None]:
    """Return the columns of the image, the class, and the captions, if there are any."""
    names = column_names(file)
    image, label = _first(IMAGE_COLUMNS, names), _first(LABEL_COLUMNS, names)
    if image is None or label is None:
        raise UserError(
            f"{file} has no column of images or none of classes; it has {', '.join(names)}"
        )
    return image, label, _first(CAPTION_COLUMNS, names)


def _first(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)


def class_names_of(metadata: dict[bytes, bytes], label: str) -> list[str] | None:
    """Return the names of a ``ClassLabel`` column, which ``datasets`` writes to the schema."""
    try:
        about = load_json(metadata.get(b"huggingface", b"{}"))
        features = about["info"]["features"]
        origin = field_names().origin(label)
        names = value_at(features, paths_in(features, origin.count("."))[origin])["names"]
    except (ValueError, KeyError, TypeError):
        return None
    texts = [str(name) for name in names]
    ids = list(imagenet_names())
    return ids if len(texts) == len(ids) and texts[0].startswith("tench") else make_distinct(texts)


CIFARS = (
    ({"test": "test_batch.bin", "train": "data_batch_*.bin"}, "batches.meta.txt", 1),
    ({"test": "test.bin", "train": "train.bin"}, "fine_label_names.txt", 2),
)
"""Both binary releases: files of each split, that of the names, bytes before a record's pixels."""
SIDE = 32


class CifarBinary(Reader):
    """CIFAR-10 or CIFAR-100 in their binary version: the test split, or ``FOLDER:train``.

    https://www.cs.toronto.edu/~kriz/cifar.html: a record is the label (CIFAR-100: the coarse, then
    the fine one) and 3,072 bytes of red, green and blue, row by row.
    """

    has_parts = True
    imported = True
    kind = "cifar_binary"
    form = "CIFAR's binary files"
    description = (
        "test_batch.bin and batches.meta.txt, or test.bin and fine_label_names.txt (CIFAR); "
        "FOLDER:train is the training split"
    )

    def recognises(self, path: Path) -> bool:
        return self._layout(path) is not None

    def identity(self, path: Path) -> Any:
        """Return names, sizes and times of the split's files and of that of the names."""
        files, names, _ = known(self._layout(path))
        return files_identity([*files, names])

    def open(self, path: Path) -> Iterator[CounterfactualSet]:
        """Yield every image of the split as PNG."""
        from PIL import Image

        files, names, labels = known(self._layout(path))
        lines = names.read_text(encoding="utf-8").splitlines()
        classes = [line.strip() for line in lines if line.strip()]
        record, number = labels + 3 * SIDE * SIDE, 0
        for file in files:
            length = file.stat().st_size
            if not length or length % record:
                raise UserError(
                    f"{file} has {length} bytes, which is not a number of records of {record}; "
                    "fetch it again"
                )
            with file.open("rb") as handle:
                for at in range(length // record):
                    data = handle.read(record)
                    label = data[labels - 1]
                    if label >= len(classes):
                        raise UserError(
                            f"{file}, record {at}: class {label}; {names.name} has {len(classes)}"
                        )
                    planes = np.frombuffer(data, np.uint8, offset=labels).reshape(3, SIDE, SIDE)
                    pixels = np.ascontiguousarray(planes.transpose(1, 2, 0))
                    png = io.BytesIO()
                    Image.fromarray(pixels).save(png, "PNG", compress_level=1)
                    key = f"{number:06d}"
                    yield _labelled_set(key, classes[label], png.getvalue(), self.kind)
                    number += 1

    def _layout(self, path: Path) -> tuple[list[Path], Path, int] | None:
        folder, split = split_home(path)
        for home in (folder, folder / "cifar-10-batches-bin", folder / "cifar-100-binary"):
            for splits, names, labels in CIFARS:
                pattern = splits.get(split or "test")
                files = [] if pattern is None else sorted(home.glob(pattern))
                if files and (home / names).is_file():
                    return files, home / names, labels
        return None
