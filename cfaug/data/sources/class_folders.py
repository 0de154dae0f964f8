"""Folders of images by class: any ImageFolder, and Food-101 by its list of the test split."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.hidden import visible_files
from cfaug.data.sources.folders import image_rows, images_below, locate, unread_images, walk
from cfaug.data.sources.lists import LISTS
from cfaug.data.sources.row import NAMED_AT_ONCE, Description, ErrorCollector, Row, files_identity
from cfaug.data.sources.values import class_caption, clean_key, one_class_error

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


class ImageFolder:
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
        lists = [str(one.relative_to(path)) for one in _lists(path, _class_home(path, images))]
        return Description(left_out=(*lists, *unread_images(path)))

    def identity(self, path: Path) -> Any:
        """Return the captions of the classes; name, size and time of lists and of every image."""
        images = images_below(path)
        home = _class_home(path, images)
        captions = sorted({class_caption(_top(image, home)) for image in images})
        return [captions, *files_identity([*_lists(path, home), *images])]

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield every image with its class.

        Raises:
            UserError: if the folders are splits with classes inside, and none is named; or if they
                are not classes: there is only one, their names mean something else, or a list
                beside them has captions of their images.
        """
        errors, images = ErrorCollector(), images_below(path)
        home = _class_home(path, images)
        tops = _tops(images, home)
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
    for one in _lists(path, home):
        if _captions_of(one, images):
            raise UserError(
                f"{path}: {one.relative_to(path)} seems to hold captions of these images, and its "
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
    """Return the unread lists beside class folders, or in a folder beside them.

    Args:
        path: the source.
        home: the folder of the class folders, ``path`` or below it.
    """
    between = [one for one in (home, *home.parents) if one == path or path in one.parents]
    beside = [folder for folder, images, _ in walk(path) if not images and folder.parent == path]
    found = (file for folder in dict.fromkeys([*between, *beside]) for file in folder.iterdir())
    return visible_files(f for f in found if f.suffix.lower() in (*LISTS, ".txt") and f.is_file())


def _captions_of(file: Path, images: list[Path]) -> bool:
    """Return whether a list has captions and names some of the images."""
    if file.stat().st_size > LARGEST_LIST:
        return False
    content = file.read_bytes()
    sample = images[:: max(1, len(images) // SAMPLE)]
    named = any(os.fsencode(image.name) in content for image in sample)
    return named and CAPTIONED.search(content) is not None


def _top(image: Path, path: Path) -> str:
    return image.relative_to(path).parts[0]


def _tops(images: list[Path], path: Path) -> set[str]:
    return {_top(image, path) for image in images}


def _are_splits(names: set[str]) -> bool:
    return {name.lower() for name in names} <= SPLITS


def _class_home(path: Path, images: list[Path]) -> Path:
    """Return the folder of the class folders: the deepest one that contains all images."""
    while len(tops := _tops(images, path)) == 1 and not _are_splits(tops):
        if any(len(image.relative_to(path).parts) == 2 for image in images):
            return path  # it contains the images directly: it is the only class
        path /= tops.pop()
    return path


class Food101:
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
        return images_below(self._known(path) / "images")

    def describe(self, path: Path) -> Description:
        """Return an empty description: there are no columns."""
        return Description()

    def identity(self, path: Path) -> Any:
        """Return name, size and time of the list and of every image."""
        return files_identity([self._known(path) / FOOD_TEST, *self.files(path)])

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield the images of the test split with their classes, in the list's order.

        Raises:
            UserError: for a path that leads out of the folder or does not exist, naming the line.
        """
        home, errors = self._known(path), ErrorCollector()
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

    def _known(self, path: Path) -> Path:
        home = self._home(path)
        assert home is not None
        return home

    def _home(self, path: Path) -> Path | None:
        for home in (path, path / "food-101"):
            if (home / FOOD_TEST).is_file() and (home / "images").is_dir():
                return home
        return None
