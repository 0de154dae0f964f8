"""A folder of images per class: any ImageFolder, and Food-101 by its list of the test split."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cfaug.data.sources.folders import image_rows, images_below, locate, walk
from cfaug.data.sources.row import (
    Culprits,
    Description,
    Row,
    class_caption,
    clean_key,
    files_identity,
)
from cfaug.errors import UserError

FOOD_TEST = "meta/test.txt"
SPLITS = {"train", "training", "val", "valid", "validation", "test", "dev"}


class ImageFolder:
    """A folder per class; the class name is the label, and "a photo of a {c}" the caption.

    Where all of them lie in one folder more, as Caltech-101's in ``101_ObjectCategories/``, that is
    none of the names. Each image is its own group.
    """

    kind = "image_folder"
    form = "class folders"
    looks_like = "a folder of images per class (ImageFolder)"

    def recognises(self, path: Path) -> bool:
        """Say whether there are class folders with images, and no images beside them."""
        return next((folder != path for folder, images, _ in walk(path) if images), False)

    def files(self, path: Path) -> list[Path]:
        """Return every image."""
        return images_below(path)

    def describe(self, path: Path) -> Description:
        """Return nothing more: there are no columns."""
        return Description()

    def identity(self, path: Path) -> Any:
        """Return the captions of the classes, and every image's name, size and time."""
        images = images_below(path)
        home = _class_home(path, images)
        captions = sorted({class_caption(_top(image, home)) for image in images})
        return [captions, *files_identity(images)]

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield every image with its class.

        Raises:
            UserError: if the folders are splits with classes inside, and none is named.
        """
        culprits, images = Culprits(), images_below(path)
        home = _class_home(path, images)
        tops = _tops(images, home)
        if _are_splits(tops):
            named = ", ".join(str(home / top) for top in sorted(tops))
            raise UserError(f"{path} has splits, not classes; name one of {named}")
        for image in images:
            with culprits.noted():
                label, name = _top(image, home), str(image.relative_to(path).with_suffix(""))
                yield from image_rows(image, clean_key(name), [class_caption(label)], name, label)
        culprits.report()


def _top(image: Path, path: Path) -> str:
    return image.relative_to(path).parts[0]


def _tops(images: list[Path], path: Path) -> set[str]:
    return {_top(image, path) for image in images}


def _are_splits(names: set[str]) -> bool:
    return {name.lower() for name in names} <= SPLITS


def _class_home(path: Path, images: list[Path]) -> Path:
    """Return the folder whose folders are the classes: as deep as all images have one folder."""
    while len(tops := _tops(images, path)) == 1 and not _are_splits(tops):
        if any(len(image.relative_to(path).parts) == 2 for image in images):
            return path  # the images lie in it: it is the only class
        path /= tops.pop()
    return path


class Food101:
    """Food-101 as released: the images that ``meta/test.txt`` lists, a folder per class.

    The archive's own folder ``food-101`` may be named, or the one it was unpacked in.
    """

    kind = "food101"
    form = "Food-101's test split"
    looks_like = "images/CLASS/ and meta/test.txt (Food-101, whose test split is read)"

    def recognises(self, path: Path) -> bool:
        """Say whether the list and the images are there."""
        return self._home(path) is not None

    def files(self, path: Path) -> list[Path]:
        """Return every image, of either split."""
        return images_below(self._known(path) / "images")

    def describe(self, path: Path) -> Description:
        """Return nothing more: there are no columns."""
        return Description()

    def identity(self, path: Path) -> Any:
        """Return name, size and time of the list and of every image."""
        return files_identity([self._known(path) / FOOD_TEST, *self.files(path)])

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield the images of the test split with their classes, in the list's order.

        Raises:
            UserError: naming the line, for what leads out of the folder or is not there.
        """
        home, culprits = self._known(path), Culprits()
        lines = (home / FOOD_TEST).read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            name, where = line.strip(), f"{home / FOOD_TEST}, line {number}"
            if name:
                with culprits.noted():
                    label = name.partition("/")[0]
                    file = locate(home, f"images/{name}.jpg", where)
                    texts = [class_caption(label)]
                    yield from image_rows(file, clean_key(name), texts, name, label)
        culprits.report()

    def _known(self, path: Path) -> Path:
        home = self._home(path)
        assert home is not None
        return home

    def _home(self, path: Path) -> Path | None:
        for home in (path, path / "food-101"):
            if (home / FOOD_TEST).is_file() and (home / "images").is_dir():
                return home
        return None
