"""Lists of texts about photos: what their readers share, and SNLI-VE.

The source is the folder with the list, or the list itself, ``FOLDER/NAME.csv``, if there are
several. The photos are beside it, in ``images/`` and the like, or in a folder that
``paths.image_roots`` permits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path, PurePath
from sys import intern
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import check_link, visible_files
from cfaug.core.pixels import Digest, content_digest
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.sources.folders import IMAGE_FOLDERS, file_digest, images_below, locate
from cfaug.data.sources.labelled import class_names_of
from cfaug.data.sources.lists import LONGEST_LINE, Record, json_lines, list_records
from cfaug.data.sources.parquet import (
    cell_bytes,
    column_names,
    image_of,
    open_parquet,
    parquet_files,
    text_field,
)
from cfaug.data.sources.parquet_splits import split_files, split_of
from cfaug.data.sources.row import (
    Description,
    ErrorCollector,
    Reader,
    Row,
    caption,
    clean_key,
    entailment_label,
    files_identity,
    split_home,
)
from cfaug.data.sources.splits import SplitChoice, SplitSurvey, choose_split

ENDINGS = (".csv", ".jsonl", ".tsv")
"""Extensions of such lists, which are all read line by line."""
FOLDERS = ("", "annotations", "data")
"""Folders in which the list may be."""


@dataclass(frozen=True)
class PhotoText:
    """A text about a photo.

    Attributes:
        label: the class of the text; ``None`` without one.
        extra: {name: value}, further values of the list, JSON.
    """

    text: str
    label: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    edited: bool = False


class PhotoList(Reader):
    """A reader of one form of such lists; a subclass recognises the form and yields the rows."""

    has_parts = True
    used: tuple[str, ...]
    """The columns that are read, some of which a list may lack."""

    def __init__(self, image_roots: Sequence[Path] = ()) -> None:
        self.image_roots = tuple(image_roots)
        self.left_out: dict[str, int] = {}
        """Content of the list that is not read, counted by ``open``."""

    def with_roots(self, image_roots: Sequence[Path]) -> PhotoList:
        return type(self)(image_roots)

    def is_form(self, record: Mapping[str, Any]) -> bool:
        """Return whether the first record of a list has this form."""
        raise NotImplementedError

    def recognises(self, path: Path) -> bool:
        return bool(self.lists(path))

    def lists(self, path: Path) -> list[Path]:
        """Return the lists of a folder, or the path if it is itself a list."""
        path = split_home(path)[0]
        if path.is_file():
            return [path] if self._has_form(path) else []
        for folder in FOLDERS:
            home = path / folder
            # Names are checked first, because there may be a hundred thousand photos.
            names = os.listdir(home) if home.is_dir() else []
            lists = (home / name for name in names if name.lower().endswith(ENDINGS))
            files = [file for file in visible_files(lists) if self._has_form(file)]
            if files:
                return files
        return []

    def _has_form(self, file: Path) -> bool:
        if file.suffix.lower() not in ENDINGS or not file.is_file():
            return False
        try:
            return any(self.is_form(record) for _, record in islice(self.records(file), 1))
        except UserError:
            return False

    def records(self, file: Path) -> Iterator[Record]:
        """Yield (place, fields) for every line of a list; a cell may contain an image."""
        return list_records(file, LONGEST_LINE)

    def choose(self, path: Path) -> SplitChoice:
        """Return which lines of the list are read, if a column says the split."""
        records = self.records(self.list_of(path))
        return choose_split(path, SplitSurvey.of(record for _, record in records))

    def chosen_records(self, path: Path) -> Iterator[Record]:
        """Yield the lines of the list that are read."""
        choice = self.choose(path)
        return (line for line in self.records(self.list_of(path)) if choice.reads(line[1]))

    def list_of(self, path: Path) -> Path:
        """Return the list to read."""
        files = self.lists(path)
        if len(files) > 1:
            raise UserError(f"{path} has several lists; name one of {', '.join(map(str, files))}")
        return files[0]

    def home(self, path: Path) -> Path:
        """Return the folder in which photos are searched: the list's, or the named one."""
        path = split_home(path)[0]
        if path.is_dir():
            return path
        folder = path.parent
        return folder.parent if folder.name in FOLDERS[1:] else folder

    def files(self, path: Path) -> list[Path]:
        return images_below(self.home(path))

    def describe(self, path: Path) -> Description:
        """Return which columns are read, and what is left out from the list."""
        _, first = next(iter(self.records(self.list_of(path))))
        choice = self.choose(path)
        described = Description.of_columns((*self.used, *choice.used), first)
        left_out = (f"{count:,} {reason}" for reason, count in self.left_out.items() if count)
        return replace(described, left_out=tuple(left_out), notes=choice.notes)

    def identity(self, path: Path) -> Any:
        return files_identity([self.list_of(path), *self.files(path)])

    def photo(self, path: Path, name: str, where: str) -> Path:
        """Return the file of a photo that the list names."""
        return find_photo(self.home(path), name, where, self.image_roots)


def find_photo(
    home: Path,
    name: str,
    where: str,
    roots: Sequence[Path],
    folders: Sequence[str] = IMAGE_FOLDERS,
) -> Path:
    """Return the file of a photo that a list names, in its folder or in a permitted one.

    Args:
        roots: absolute folders, besides the list's own, in which photos may lie.
        folders: folders below each of these in which the photo may be.
    """
    try:
        file = locate(home, name, where, roots, folders)
    except UserError as missing:
        for root in roots:
            with suppress(UserError):
                file = locate(root, name, where, folders=folders)
                break
        else:
            raise UserError(
                f"{missing}. Photos in another folder: name it: 'paths.image_roots=[FOLDER]'"
            ) from missing
    check_link(file, home, roots)
    return file


def rows_of(
    key: str, group: str, file: Path, texts: Sequence[PhotoText], digest: Digest | None = None
) -> Iterator[Row]:
    """Check a photo and yield it with each of its texts.

    Args:
        digest: the digest of a photo that was checked before; ``None`` checks it.
    """
    digest, length = digest or file_digest(file), file.stat().st_size
    for number, photo_text in enumerate(texts):
        yield Row(
            set=key, member=number, group=group, text=photo_text.text, label=photo_text.label,
            image_id=key, file=str(file), offset=0, length=length, digest=digest, where=str(file),
            edited=photo_text.edited, extra=photo_text.extra,
        )  # fmt: skip


# SNLI-VE (Xie et al., 2019): does a hypothesis follow from a photo of Flickr30k?
#
# ``snli_ve_train.jsonl``, ``snli_ve_dev.jsonl`` and ``snli_ve_test.jsonl`` beside the photos, as
# made by https://github.com/necla-ml/SNLI-VE and on the Hub; the source is the folder,
# ``FOLDER:dev`` if there are several files, or one of the files.

PHOTO = ("Flickr30K_ID", "Flickr30kID", "Flikr30kID")
"""Names of the column of the photo's number in two releases of the data and one of its mirrors."""
READ = ("gold_label", "pairID", "sentence1", "sentence2")
UNDECIDED = "-"
"""The gold label of a pair on which the annotators did not agree."""
PREMISE, PAIR = "premise", "pair_id"
"""Names of a row's extra values: the photo's caption, and the pair's id."""


class SnliVe(PhotoList):
    """Hypotheses about photos, each with its label; a set is a photo with all its hypotheses.

    The text is the hypothesis; the premise, a caption of the photo, is an extra value, as is the
    pair's id. The group is the name of the photo's file, as in other sources of Flickr30k. Pairs
    without a gold label, and repeated lines, are left out.
    """

    kind = "snli_ve"
    form = "SNLI-VE"
    description = (
        "snli_ve_SPLIT.jsonl beside Flickr30k's photos (SNLI-VE; of several splits FOLDER:dev)"
    )

    used = (*PHOTO, *READ)

    def is_form(self, record: Mapping[str, Any]) -> bool:
        return set(READ) <= set(record) and any(name in record for name in PHOTO)

    def records(self, file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield every line; lists in other formats than ``.jsonl`` do not belong to SNLI-VE."""
        return json_lines(file) if file.suffix.lower() == ".jsonl" else iter(())

    def lists(self, path: Path) -> list[Path]:
        """Return the files of a folder or of its named split, or the path if it is a file."""
        home, split = split_home(path)
        files = super().lists(home)
        return [f for f in files if split is None or f.stem.rpartition("_")[2] == split]

    def list_of(self, path: Path) -> Path:
        """Return the file to read."""
        files = self.lists(path)
        if len(files) > 1:
            splits = (f"{path}:{file.stem.rpartition('_')[2]}" for file in files)
            raise UserError(f"{path} has several splits; name one: {', '.join(splits)}")
        return files[0]

    def choose(self, path: Path) -> SplitChoice:
        """Return the choice of every line: a split is a file."""
        return super().choose(self.list_of(path))

    def home(self, path: Path) -> Path:
        return super().home(split_home(path)[0])

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the hypotheses of each photo together, photos as the list first names them."""
        errors = ErrorCollector()
        photos: dict[str, tuple[str, list[PhotoText]]] = {}
        pairs: dict[str, tuple[str, PhotoText]] = {}
        undecided = twice = 0
        for where, record in self.chosen_records(path):
            with errors.collect():
                if record.get("gold_label") == UNDECIDED:
                    undecided += 1
                    continue
                column = next((name for name in PHOTO if name in record), PHOTO[0])
                name = text_field(dict(record), column, where)
                name = intern(name if PurePath(name).suffix else f"{name}.jpg")
                hypothesis = caption(record.get("sentence2"), where)
                label = intern(entailment_label(record.get("gold_label"), where))
                premise = intern(caption(record.get("sentence1"), f"{where}, sentence1"))
                pair = text_field(dict(record), "pairID", where)
                photo_text = PhotoText(hypothesis, label, {PREMISE: premise, PAIR: pair})
                if pair in pairs:
                    if pairs[pair][1] != photo_text:
                        raise UserError(
                            f"{where}: the pair {pair!r} is duplicated, with another text or label "
                            f"in {pairs[pair][0]}; remove one"
                        )
                    twice += 1
                    continue
                pairs[pair] = where, photo_text
                photos.setdefault(name, (where, []))[1].append(photo_text)
        errors.report()
        self.left_out = {
            "examples without a gold label": undecided, "examples that are there twice": twice,
        }  # fmt: skip
        for name, (where, texts) in photos.items():
            with errors.collect():
                file = self.photo(path, name, where)
                yield from rows_of(clean_key(PurePath(name).stem), name, file, texts)
        errors.report()


IMAGE, HYPOTHESIS, LABEL, FILE = "image", "hypothesis", "label", "filename"
NO_LABEL = (-1, None, UNDECIDED)


class EntailmentParquet(Reader):
    """Reads images with hypotheses; adjacent rows with the same image are a set."""

    imported = True
    has_parts = True
    kind = "entailment_parquet"
    form = "parquet of images, hypotheses and labels"
    description = "*.parquet with image, hypothesis, label, and premise (SNLI-VE on the Hub)"

    def __init__(self) -> None:
        self._undecided = 0

    def recognises(self, path: Path) -> bool:
        """Return whether there are parquet files with the columns."""
        files = parquet_files(split_home(path)[0])
        return bool(files) and {IMAGE, HYPOTHESIS, LABEL} <= set(column_names(files[0]))

    def describe(self, path: Path) -> Description:
        """Return which columns are read, and the number of rows without a label."""
        split = split_of(path)
        used = (IMAGE, HYPOTHESIS, LABEL, PREMISE, FILE, *split.choice.used)
        description = Description.of_columns(used, column_names(split.files[0]))
        left = (f"{self._undecided:,} examples without a gold label",) if self._undecided else ()
        return replace(description, left_out=left, notes=split.choice.notes)

    def identity(self, path: Path) -> Any:
        return files_identity(split_files(path))

    def open(self, path: Path) -> Iterator[CounterfactualSet]:
        """Yield the hypotheses of each image together."""
        split, errors, self._undecided = split_of(path), ErrorCollector(), 0
        classes = class_names_of(open_parquet(split.files[0]).schema_arrow.metadata or {}, LABEL)
        rows_of_all = split.records(needed=(IMAGE, HYPOTHESIS, LABEL))
        together = groupby(rows_of_all, lambda row: cell_bytes(row[1][IMAGE]))
        for number, (_, rows) in enumerate(together):
            with errors.collect():
                some = list(rows)
                decided = [row for row in some if row[1][LABEL] not in NO_LABEL]
                self._undecided += len(some) - len(decided)
                if not decided:
                    continue
                (where, first), key = decided[0], f"{number:08d}"
                image, file = image_of(first, IMAGE, where), first.get(FILE)
                members = []
                for position, row in decided:
                    label = row[LABEL]
                    if isinstance(label, int) and not isinstance(label, bool):
                        if classes is None or not 0 <= label < len(classes):
                            raise UserError(
                                f"{position}: the label {label} has no name: the file's schema "
                                f"names {', '.join(classes or ()) or 'no classes'}"
                            )
                        label = classes[label]
                    text = caption(row[HYPOTHESIS], position)
                    label, premise = entailment_label(label, position), row.get(PREMISE)
                    extra = {PREMISE: caption(premise, f"{position}: {PREMISE}")} if premise else {}
                    members.append(Member(text, IMAGE, key, label=label, extra=extra))
                yield CounterfactualSet(
                    key=key,
                    group=file if isinstance(file, str) and file else content_digest(image).hex(),
                    members=tuple(members),
                    images={IMAGE: image},
                    provenance={"source": self.kind},
                )
        errors.report()
