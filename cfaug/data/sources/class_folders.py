"""Folders of images by class: any ImageFolder, and Food-101 by its list of the test split."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import visible_files
from cfaug.data.sources.caption_list import (
    CaptionList,
    ListedMember,
    ListedSet,
    image_name,
    set_rows,
    source_home,
)
from cfaug.data.sources.columns import (
    CAPTION,
    IMAGE,
    find_list,
    image_records,
    one_column,
    other_lists,
)
from cfaug.data.sources.folders import image_rows, images_below, locate, unread_images, walk
from cfaug.data.sources.lists import LISTS
from cfaug.data.sources.row import (
    NAMED_AT_ONCE,
    Description,
    ErrorCollector,
    Reader,
    Row,
    caption,
    class_caption,
    clean_key,
    files_identity,
    keep_json,
    known,
    one_class_error,
)

FOOD_TEST = "meta/test.txt"
SPLITS = {"train", "training", "val", "valid", "validation", "test", "dev"}
HOLD_IMAGES = {
    "images", "imgs", "jpegimages", "jpegs", "masks", "photos", "pics", "pictures", "pngs",
    "thumbnails", "thumbs",
}  # fmt: skip
"""Names of folders of any images: if one folder has such a name, folders are not classes."""
NO_CLASSES = HOLD_IMAGES | {
    "after", "annotations", "before", "cf", "counterfactual", "counterfactuals", "data", "edited",
    "edits", "fake", "generated", "image", "img", "input", "inputs", "jpeg", "jpg", "labels",
    "original", "originals", "output", "outputs", "photo", "png", "real", "source", "sources",
    "synthetic", "target", "targets",
}  # fmt: skip
"""Names of folders by content; if all folders have such names, they are not classes."""
CAPTIONED = re.compile(
    rb"\b(captions?|conversations|descriptions?|raw|sentences?|text|title)\b", re.IGNORECASE
)
"""Names of captions in a list."""
LARGEST_LIST = 256 * 2**20
SAMPLE = 20
"""Number of images whose names are searched in a list."""


class ImageFolder(Reader):
    """A folder per class; the class name is the label, and "a photo of a {c}" the caption.

    If all of them are in one more folder, such as Caltech-101's ``101_ObjectCategories/``, its name
    is not a class. Each image is a group.
    """

    kind = "image_folder"
    form = "class folders"
    description = "a folder of images per class (ImageFolder)"

    def recognises(self, path: Path) -> bool:
        """Return whether there are class folders with images, and no images beside them."""
        return next((folder != path for folder, images, _ in walk(path) if images), False)

    def files(self, path: Path) -> list[Path]:
        """Return every image."""
        return images_below(path)

    def describe(self, path: Path) -> Description:
        """Return what is left out: lists beside the folders, and images of unsupported formats."""
        images = images_below(path)
        lists = [str(file.relative_to(path)) for file in _lists(path, _class_home(path, images))]
        return Description(left_out=(*lists, *unread_images(path)))

    def identity(self, path: Path) -> Any:
        """Return the captions of the classes; name, size and time of lists and of every image."""
        images = images_below(path)
        home = _class_home(path, images)
        captions = sorted({class_caption(_top(image, home)) for image in images})
        return [captions, *files_identity([*_lists(path, home), *images])]

    def open(self, path: Path) -> Iterator[Row]:
        """Yield every image with its class."""
        errors, images = ErrorCollector(), images_below(path)
        home = _class_home(path, images)
        tops = {_top(image, home) for image in images}
        if _are_splits(tops):
            named = ", ".join(str(home / top) for top in sorted(tops))
            raise UserError(f"{path} has splits, not classes; name one of {named}")
        _check_classes(path, home, images, tops)
        for image in images:
            with errors.collect():
                label, name = _top(image, home), str(image.relative_to(path).with_suffix(""))
                yield from image_rows(image, clean_key(name), [class_caption(label)], name, label)
        errors.report()


def _check_classes(path: Path, home: Path, images: list[Path], tops: set[str]) -> None:
    names = ", ".join(sorted(tops)[:NAMED_AT_ONCE])
    sample = images[:: max(1, len(images) // SAMPLE)]
    for file in _lists(path, home):
        if file.stat().st_size > LARGEST_LIST:
            continue
        content = file.read_bytes()
        named = any(os.fsencode(image.name) in content for image in sample)
        if named and CAPTIONED.search(content) is not None:
            raise UserError(
                f"{path}: {file.relative_to(path)} seems to hold captions of these images, and its "
                f"form is not known; without it they would be read as class folders ({names}). "
                "Write captions.csv or captions.jsonl with image and caption instead; if the "
                "folders are the classes, move the list out of the folder"
            )
    if len(tops) == 1:
        raise one_class_error(str(path), ImageFolder.form, len(images), *tops)
    plain = {name.lower() for name in tops}
    if plain <= NO_CLASSES or plain & HOLD_IMAGES:
        raise UserError(
            f"{path}: {len(images):,} images in folders called {names}, which are not classes. "
            "Images need captions: captions.csv or captions.jsonl (image, caption) beside the "
            "folders, or a .txt beside each image. If they are classes, give them other names"
        )


def _lists(path: Path, home: Path) -> list[Path]:
    """Return the unread lists beside class folders, or in a folder beside them."""
    between = [
        folder for folder in (home, *home.parents) if folder == path or path in folder.parents
    ]
    beside = [folder for folder, images, _ in walk(path) if not images and folder.parent == path]
    files = (file for folder in dict.fromkeys([*between, *beside]) for file in folder.iterdir())
    return visible_files(f for f in files if f.suffix.lower() in (*LISTS, ".txt") and f.is_file())


def _top(image: Path, path: Path) -> str:
    return image.relative_to(path).parts[0]


def _are_splits(names: set[str]) -> bool:
    return {name.lower() for name in names} <= SPLITS


def _class_home(path: Path, images: list[Path]) -> Path:
    """Return the folder of the class folders: the deepest one that contains all images."""
    while len(tops := {_top(image, path) for image in images}) == 1 and not _are_splits(tops):
        if any(len(image.relative_to(path).parts) == 2 for image in images):
            return path  # it contains the images directly: it is the only class
        path /= tops.pop()
    return path


class Food101(Reader):
    """Food-101 as released: the images listed in ``meta/test.txt``, a folder per class.

    The source is the archive's folder ``food-101``, or the folder into which it was unpacked.
    """

    kind = "food101"
    form = "Food-101's test split"
    description = "images/CLASS/ and meta/test.txt (Food-101, whose test split is read)"

    def recognises(self, path: Path) -> bool:
        """Return whether the list and the images are there."""
        return self._home(path) is not None

    def files(self, path: Path) -> list[Path]:
        """Return every image, of either split."""
        return images_below(known(self._home(path)) / "images")

    def identity(self, path: Path) -> Any:
        """Return name, size and time of the list and of every image."""
        return files_identity([known(self._home(path)) / FOOD_TEST, *self.files(path)])

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the images of the test split with their classes, in the list's order."""
        home, errors = known(self._home(path)), ErrorCollector()
        lines = (home / FOOD_TEST).read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            name, where = line.strip(), f"{home / FOOD_TEST}, line {number}"
            if name:
                with errors.collect():
                    label = name.partition("/")[0]
                    file = locate(home, f"images/{name}.jpg", where)
                    texts = [class_caption(label)]
                    yield from image_rows(file, clean_key(name), texts, name, label)
        errors.report()

    def _home(self, path: Path) -> Path | None:
        homes = (path, path / "food-101")
        return next(
            (h for h in homes if (h / FOOD_TEST).is_file() and (h / "images").is_dir()), None
        )


# A list of images and their classes, ``labels.csv`` with columns image, label.

LABEL = ("label", "class", "class_name", "classname", "category")
CAPTIONS = ("captions", "pairs")
"""Names of lists in which a missing caption is a mistake."""
BY_LINE = (".csv", ".tsv", ".jsonl")
"""Extensions of lists whose first line can be read without the others."""


class LabelList(CaptionList):
    """A csv, tsv or jsonl with a column for the image and one for its class, and no caption."""

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
        if first is None:
            return False
        names = {name.lower() for name, value in first[1].items() if value not in (None, "")}
        return bool(names & {*IMAGE} and names & {*LABEL} and not names & {*CAPTION})

    def describe(self, path: Path) -> Description:
        """Return which columns of the list are read, and which other lists are not."""
        used, there = dict[str, None](), dict[str, None]()
        for where, record in image_records(self._list(path)):
            there.update(dict.fromkeys(record))
            used.update(dict.fromkeys(_columns(record, where)))
        return replace(Description.of_columns(used, there), left_out=tuple(other_lists(path)))

    def open(self, path: Path) -> Iterator[Row]:
        """Yield every image with its class."""
        errors, sets = ErrorCollector(), self._sets(path)
        labels = {listed.members[0].text for listed in sets}
        if len(labels) == 1:
            raise one_class_error(str(self._list(path)), self.form, len(sets), labels.pop())
        for listed in sets:
            with errors.collect():
                label = listed.members[0].text
                for row in set_rows(source_home(path), listed, self.image_roots):
                    yield row._replace(text=class_caption(label), label=label)
        errors.report()

    def _sets(self, path: Path) -> list[ListedSet]:
        by_image: dict[str, ListedSet] = {}
        errors = ErrorCollector()
        for where, record in image_records(self._list(path)):
            with errors.collect():
                image_column, label_column = _columns(record, where)
                image = image_name(record[image_column], where)
                label = record[label_column]
                if isinstance(label, int) and not isinstance(label, bool):
                    label = str(label)
                elif isinstance(label, str) and label.strip():
                    label = caption(label, where)
                else:
                    raise UserError(
                        f"{where}: the class {label!r} is invalid: write its name, such as polar "
                        "bear"
                    )
                if image in by_image:
                    raise UserError(
                        f"{where}: duplicated image {image!r}, which {by_image[image].where} has "
                        "too"
                    )
                unused = [name for name in record if name not in (image_column, label_column)]
                member = ListedMember(image, label, (), keep_json(record, unused))
                name = str(Path(image).with_suffix(""))
                by_image[image] = ListedSet(name, image, where, [member])
        errors.report()
        return list(by_image.values())


def _columns(record: Mapping[str, Any], where: str) -> Sequence[str]:
    names = [name for name, value in record.items() if value not in (None, "")]
    columns = [one_column(names, IMAGE, "image", where), one_column(names, LABEL, "class", where)]
    for kind, column, wanted in zip(("image", "class"), columns, (IMAGE, LABEL), strict=True):
        if column is None:
            raise UserError(
                f"{where}: the {kind} is missing: none of the columns {', '.join(wanted)}; there "
                f"are {', '.join(names) or 'none'}"
            )
    return [column for column in columns if column is not None]
