"""Two folders of images with equal names: the originals and their counterfactuals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from cfaug.core.errors import UserError
from cfaug.data.sources.caption_list import ListedSet, image_name, set_rows
from cfaug.data.sources.columns import Columns, columns_of
from cfaug.data.sources.folders import images_below, sidecar_lines
from cfaug.data.sources.records import find_list, image_records
from cfaug.data.sources.row import Description, ErrorCollector, Row, files_identity
from cfaug.data.sources.values import caption

ORIGINAL = ("original", "originals", "real", "source", "before")
COUNTERFACTUAL = ("counterfactual", "counterfactuals", "cf", "edited", "after")

Texts = dict[str, tuple[str, str]]
"""(caption, place) by the name of an image without its extension."""


class PairedFolders:
    """``original/a.jpg`` and ``counterfactual/a.jpg`` are a pair; also real/ and cf/ and the like.

    The captions are beside the images, in a ``.txt`` each or a list in either folder; or in a list
    above, with columns image, caption, cf_caption or with the paths of either folder.
    """

    kind = "paired_folders"
    form = "two folders of images with equal names"
    description = (
        "original/ and counterfactual/ (or real/ cf/, source/ edited/, before/ after/) with equal "
        "names, a .txt beside each image, or captions.csv with image, caption, cf_caption"
    )

    def recognises(self, path: Path) -> bool:
        """Return whether there are both folders, and no list that names the images of pairs."""
        if self._sides(path) is None:
            return False
        columns = _columns(path)
        return columns is None or not columns.is_set

    def files(self, path: Path) -> list[Path]:
        """Return every image of either folder."""
        return [image for side in self._known(path) for image in images_below(side)]

    def describe(self, path: Path) -> Description:
        """Return which columns of a list above the folders are read."""
        columns = _columns(path)
        return Description() if columns is None else Description(columns.used, columns.unused)

    def identity(self, path: Path) -> Any:
        """Return name, size and time of every image and of the files of captions."""
        images = self.files(path)
        lists = [find_list(folder) for folder in (path, *self._known(path))]
        texts = [text for image in images if (text := image.with_suffix(".txt")).is_file()]
        return files_identity([*(one for one in lists if one is not None), *texts, *images])

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield the original and the counterfactual of every pair, by name.

        Raises:
            UserError: if an image has no partner or no caption, naming it.
        """
        sides = self._known(path)
        images = [_by_name(side, images_below(side)) for side in sides]
        texts, errors = _texts(path, sides, images), ErrorCollector()
        for name in sorted({*images[0]} | {*images[1]}):
            with errors.collect():
                members = []
                for i, side in enumerate(sides):
                    if name not in images[i]:
                        there = images[1 - i][name]
                        raise UserError(
                            f"{there} has no partner of its name in {side}; add it or remove the "
                            "image"
                        )
                    if name not in texts[i]:
                        raise UserError(f"{images[i][name]} has no caption")
                    image = images[i][name]
                    members.append((str(image.relative_to(path)), texts[i][name][0]))
                one = ListedSet(name, name, texts[0][name][1], members, is_set=True)
                one.check()
                yield from set_rows(path, one)
        errors.report()

    def _known(self, path: Path) -> tuple[Path, Path]:
        found = self._sides(path)
        assert found is not None
        return found

    def _sides(self, path: Path) -> tuple[Path, Path] | None:
        found = []
        for names in (ORIGINAL, COUNTERFACTUAL):
            there = [path / name for name in names if (path / name).is_dir()]
            if len(there) != 1 or not images_below(there[0]):
                return None
            found.append(there[0])
        return found[0], found[1]


def _columns(path: Path) -> Columns | None:
    """Return the columns of the list above the folders, if there is one."""
    file = find_list(path)
    first = None if file is None else next(image_records(file), None)
    return None if first is None else columns_of(first[1], first[0])


def _by_name(side: Path, images: list[Path]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for image in images:
        name = str(image.relative_to(side).with_suffix(""))
        if name in found:
            raise UserError(f"{found[name]} and {image} have one name; rename one and its partner")
        found[name] = image
    return found


def _texts(path: Path, sides: tuple[Path, Path], images: list[dict[str, Path]]) -> list[Texts]:
    """Return the captions of each folder by name."""
    if (above := find_list(path)) is not None:
        return _listed_above(path, above, sides)
    found = []
    for side, there in zip(sides, images, strict=True):
        file = find_list(side)
        if file is not None:
            texts: Texts = {}
            for where, record in image_records(file):
                columns = columns_of(record, where)
                image, text = columns.members[0]
                if columns.is_set or columns.negatives:
                    raise UserError(f"{where}: a list of one folder has one image and one caption")
                _put(texts, image_name(record[image], where), record[text], where)
        else:
            beside = {n: image for n, image in there.items() if image.with_suffix(".txt").is_file()}
            texts = {name: _one_line(image) for name, image in beside.items()}
        if not texts:
            raise UserError(
                f"{side} has no captions, and pairs of images are trained on with theirs: write a "
                f".txt beside each image, or {path / 'captions.csv'} with the columns image, "
                "caption, cf_caption"
            )
        found.append(texts)
    return found


def _listed_above(path: Path, file: Path, sides: tuple[Path, Path]) -> list[Texts]:
    found: list[Texts] = [{}, {}]
    for where, record in image_records(file):
        columns = columns_of(record, where)
        image, text = columns.members[0]
        name = PurePath(image_name(record[image], where))
        side = sides.index(path / name.parts[0]) if path / name.parts[0] in sides else None
        inside = str(name) if side is None else str(PurePath(*name.parts[1:]))
        if len(columns.negatives) > 1 or columns.captions:
            more = ", ".join((*columns.negatives, *columns.captions))
            raise UserError(f"{where}: {more}: each image of a pair has one caption")
        if columns.negatives:  # the caption of the counterfactual with that name
            _put(found[0], inside, record[text], where)
            _put(found[1], inside, record[columns.negatives[0]], where)
        elif side is not None:
            _put(found[side], inside, record[text], where)
        else:
            raise UserError(
                f"{where}: {str(name)!r} says neither in which of {sides[0].name}/ and "
                f"{sides[1].name}/ it lies nor, in a column cf_caption, what the counterfactual "
                "shows"
            )
    return found


def _put(texts: Texts, image: str, text: object, where: str) -> None:
    name = str(PurePath(image).with_suffix(""))
    if name in texts:
        raise UserError(f"{where}: {name!r} is duplicated, first in {texts[name][1]}")
    texts[name] = (caption(text, where), where)


def _one_line(image: Path) -> tuple[str, str]:
    lines, where = sidecar_lines(image), str(image.with_suffix(".txt"))
    if len(lines) > 1:
        raise UserError(f"{where} has {len(lines)} lines; an image of a pair has one caption")
    return lines[0], where
