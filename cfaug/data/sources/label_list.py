"""A list of images and their classes, ``labels.csv`` with columns image, label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.data.sources.caption_list import (
    CaptionList,
    ListedSet,
    image_name,
    set_rows,
    source_home,
)
from cfaug.data.sources.columns import CAPTION, IMAGE, one_column
from cfaug.data.sources.records import find_list, image_records, other_lists
from cfaug.data.sources.row import Description, ErrorCollector, Row
from cfaug.data.sources.values import caption, class_caption, keep_json, one_class_error

LABEL = ("label", "class", "class_name", "classname", "category")


CAPTIONS = ("captions", "pairs")
"""Names of lists in which a missing caption is a mistake."""


BY_LINE = (".csv", ".tsv", ".jsonl")
"""Extensions of lists whose first line can be read without the others."""


class LabelList(CaptionList):
    """A csv, tsv or jsonl with a column for the image and one for its class, and no caption.

    Args:
        image_roots: absolute folders, besides the list's own, in which it may name images.
    """

    kind = "label_list"
    form = "a list of images and classes"
    description = "labels.csv, .tsv or .jsonl with columns image, label (a class's name)"

    def recognises(self, path: Path) -> bool:
        """Return whether there is a list whose first line has an image, a class and no caption."""
        file = find_list(path)
        if file is None or file.suffix.lower() not in BY_LINE or file.stem.lower() in CAPTIONS:
            return False
        try:
            first = next(islice(image_records(file), 1), None)
        except UserError:
            return False  # reported by the reader of captions
        return first is not None and _has_label_alone(first[1])

    def describe(self, path: Path) -> Description:
        """Return which columns of the list are read, and which other lists are not."""
        used, there = dict[str, None](), dict[str, None]()
        for where, record in image_records(self._list(path)):
            there.update(dict.fromkeys(record))
            used.update(dict.fromkeys(_columns(record, where)))
        return replace(Description.of_columns(used, there), left_out=tuple(other_lists(path)))

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield every image with its class.

        Raises:
            UserError: if a line is invalid, naming it.
        """
        errors, sets = ErrorCollector(), self._sets(path)
        labels = {one.members[0][1] for one in sets}
        if len(labels) == 1:
            raise one_class_error(str(self._list(path)), self.form, len(sets), labels.pop())
        for one in sets:
            with errors.collect():
                label = one.members[0][1]
                for row in set_rows(source_home(path), one, self.image_roots):
                    yield row._replace(text=class_caption(label), label=label)
        errors.report()

    def _sets(self, path: Path) -> list[ListedSet]:
        """Return each image with its class in place of a caption."""
        found: dict[str, ListedSet] = {}
        errors = ErrorCollector()
        for where, record in image_records(self._list(path)):
            with errors.collect():
                image_column, label_column = _columns(record, where)
                image = image_name(record[image_column], where)
                label = _read_label(record[label_column], where)
                if image in found:
                    raise UserError(
                        f"{where}: duplicated image {image!r}, which {found[image].where} has too"
                    )
                unused = [name for name in record if name not in (image_column, label_column)]
                extra = keep_json(record, unused)
                found[image] = ListedSet(
                    _stem(image), image, where, [(image, label)], extra={0: extra} if extra else {}
                )
        errors.report()
        return list(found.values())


def _stem(image: str) -> str:
    """Return an image's name without its extension, which names the example."""
    return str(Path(image).with_suffix(""))


def _has_label_alone(record: Mapping[str, Any]) -> bool:
    names = {name.lower() for name, value in record.items() if value not in (None, "")}
    return bool(names & set(IMAGE) and names & set(LABEL) and not names & set(CAPTION))


def _columns(record: Mapping[str, Any], where: str) -> Sequence[str]:
    """Return the columns of the image and of the class.

    Raises:
        UserError: if one is missing or ambiguous.
    """
    names = [name for name, value in record.items() if value not in (None, "")]
    found = [one_column(names, IMAGE, "image", where), one_column(names, LABEL, "class", where)]
    for what, column, wanted in zip(("image", "class"), found, (IMAGE, LABEL), strict=True):
        if column is None:
            raise UserError(
                f"{where}: the {what} is missing: none of the columns {', '.join(wanted)}; there "
                f"are {', '.join(names) or 'none'}"
            )
    return [column for column in found if column is not None]


def _read_label(value: object, where: str) -> str:
    """Return the name of a class.

    Raises:
        UserError: if it is neither a text nor a whole number, which a file of names may explain.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip():
        return caption(value, where)
    raise UserError(f"{where}: the class {value!r} is invalid: write its name, such as polar bear")
