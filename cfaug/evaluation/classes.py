"""The classes of a labelled folder: its test split, its labels, and their names in prompts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cfaug.core.errors import UserError, name_some
from cfaug.core.files import read_lines
from cfaug.core.hidden import is_hidden
from cfaug.core.messages import say_once
from cfaug.data.sources import split_folder
from cfaug.data.sources.class_names import (
    WNID,
    class_words,
    is_number,
    make_distinct,
    prompt_names,
    require_names,
)

if TYPE_CHECKING:
    from cfaug.data.index import Index

TEMPLATES = "zeroshot_classification_templates.txt"
CLASS_NAMES = "classnames.txt"
TEST_SPLITS = ("test", "val", "validation", "valid")


def tested_folder(source: str) -> str:
    """Return the test split of a folder of images per class, or the folder itself.

    ImageNet's ``test/`` has images but no classes; ``val/`` is used for testing.
    """
    folder = split_folder(Path(source).expanduser())
    if not folder.is_dir():
        return source
    source = str(folder)
    folders = {one.name for one in os.scandir(folder) if one.is_dir() and not is_hidden(one.name)}
    if not folders <= {"train", *TEST_SPLITS}:
        return source
    there = (folder / name for name in TEST_SPLITS if name in folders)
    return next((str(one) for one in there if _has_class_folders(one)), source)


def _has_class_folders(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any(entry.is_dir() and not is_hidden(entry.name) for entry in entries)


def prompt_templates(templates: Sequence[str] | str, folder: Path) -> list[str]:
    """Return the templates of prompts; the word ``folder`` stands for those of a folder's file.

    Raises:
        UserError: if there are no templates, or one has no ``{c}`` for the class name.
    """
    given = [templates] if isinstance(templates, str) else list(templates)
    where: object = "benchmark.templates"
    if templates == "folder":
        where = _beside(folder, TEMPLATES)
        if where is None:
            raise UserError(
                f"benchmark.templates=folder: there is no {TEMPLATES} in {folder} or above"
            )
        given = read_lines(where)
    wrong = [one for one in given if not isinstance(one, str) or "{c}" not in one]
    if wrong or not given:
        raise UserError(
            f"{where}: {wrong[0]!r} has no {{c}}, where the class name goes"
            if wrong
            else f"{where} is empty: give a template as in ['A photo of a {{c}}'], or folder"
        )
    return given


def classes_of(index: Index, folder: Path, file: Path | None) -> tuple[list[str], list[str]]:
    """Return the labels to choose from, and their names in prompts.

    Args:
        index: the labelled source.
        folder: the folder of the images; ``classnames.txt`` is looked for here and above it.
        file: a file of class names, one per line; ``None`` looks for one in ``folder``.

    Raises:
        UserError: if there is only one class, a label is not a name, or the file does not fit.
    """
    labels = sorted({index.label(row) or "" for row in range(len(index))} - {""})
    if len(labels) == 1:
        raise UserError(
            f"{folder}: every image is of the class {labels[0]!r}; classification needs two. Name "
            "the folder whose folders are the classes"
        )
    file = _beside(folder, CLASS_NAMES) if file is None else file
    if file is not None:
        return _named_by(file, labels, folder)
    names = prompt_names(labels)
    remedy = (
        f"ask for: put a {CLASS_NAMES} into the folder with a line for each label, in their sorted "
        f"order ({name_some(labels)}), or name such a file with benchmark.classes=FILE"
    )
    require_names(names, str(folder), remedy)
    unknown = [name for name in names if WNID.fullmatch(name)]
    if unknown:
        raise UserError(
            f"{folder}: {name_some(unknown)} are not among ImageNet's classes and not names to "
            f"{remedy}"
        )
    return labels, names


def _named_by(file: Path, labels: Sequence[str], folder: Path) -> tuple[list[str], list[str]]:
    """Return (labels, names) from a file of the labels as words, or of names in their order.

    A file of the labels themselves may list more classes than the images show.
    """
    lines = read_lines(file)
    by_words = {_words(label): label for label in labels}
    own = [by_words.get(_words(line), line) for line in make_distinct(lines)]
    if set(labels) <= set(own):
        return own, lines
    if len(labels) != len(lines):
        raise UserError(
            f"{file} has {len(lines)} class names and {folder} has {len(labels)} labels, not all "
            f"among them ({', '.join(labels[:5])}); it needs a line for each label, in their order"
        )
    for label, line in zip(labels, own, strict=True):
        if line in labels and line != label:
            raise UserError(
                f"{file}: {line!r} stands where {label!r} belongs; the lines should be in the "
                "sorted order of the labels"
            )
    _say_order(file, labels)
    return list(labels), lines


def _say_order(file: Path, labels: Sequence[str]) -> None:
    """Say which line names which label if people count otherwise: 0, 1, 10, 2."""
    if all(is_number(label) for label in labels) and [*labels] != sorted(labels, key=float):
        say_once(f"{file}: its lines name the labels in this order: {name_some(labels, 12)}")


def _words(label: str) -> str:
    return class_words(label).casefold()


def _beside(folder: Path, name: str) -> Path | None:
    """Return a file of the folder, or of the folder above it (that of a split)."""
    return next((p / name for p in (folder, folder.parent) if (p / name).is_file()), None)
