"""The Karpathy splits: ``dataset_coco.json`` or ``dataset_flickr30k.json`` beside the images.

The source is ``FOLDER:SPLIT``, as in ``data/flickr30k:test`` or ``data/coco:train+restval``. COCO's
images are in ``train2014/`` and ``val2014/``, Flickr30k's in ``flickr30k-images/`` or ``images/``,
or in the folder itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from cfaug.core.errors import UserError
from cfaug.data.sources.coco import entries, photo_key
from cfaug.data.sources.folders import image_rows, images_below, locate
from cfaug.data.sources.lists import json_file
from cfaug.data.sources.released import text_field
from cfaug.data.sources.row import Description, ErrorCollector, Row, files_identity
from cfaug.data.sources.values import caption, clean_key

LISTS = ("", "karpathy", "caption_datasets", "annotations")
"""Folders in which the list may be."""

OTHER_LISTS = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json")
"""Files of the library ``datasets``, none of which is a list of images."""

IMAGES = ("images", "flickr30k-images", "flickr30k_images", "train2014", "val2014")
"""Folders of images; if none of them exists, images may be anywhere below."""


class Karpathy:
    """Captions and images of one split, or several joined by ``+``; a set is a photo.

    The group is the COCO id if there is one, as in other sources of COCO, otherwise the file's name
    with its extension: Flickr30k's names are numbers too, some of them equal to COCO ids.
    """

    kind = "karpathy"
    form = "a split of Karpathy's"
    description = "dataset_NAME.json beside its images (Karpathy's splits; name it FOLDER:test)"

    def recognises(self, path: Path) -> bool:
        """Return whether there is a list, with or without a named split."""
        return self._list(_home(path)[0]) is not None

    def selects(self, path: Path) -> bool:
        """Return whether this is ``FOLDER:SPLIT`` of a folder with a list, not itself a folder."""
        return ":" in path.name and not path.exists() and self.recognises(path)

    def files(self, path: Path) -> list[Path]:
        """Return every image, of any split."""
        home = _home(path)[0]
        folders = [home / name for name in IMAGES if (home / name).is_dir()] or [home]
        return [image for folder in folders for image in images_below(folder)]

    def describe(self, path: Path) -> Description:
        """Return an empty description: the form is fixed."""
        return Description()

    def identity(self, path: Path) -> Any:
        """Return the split, and name, size and time of the list and of every image."""
        home, split = _home(path)
        file = self._list(home)
        assert file is not None
        return [split, *files_identity([file, *self.files(path)])]

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield the rows with the captions of each photo adjacent, in the list's order.

        Raises:
            UserError: if no split is named and there are several, or there is no such split; naming
                the entry, if something is missing or damaged.
        """
        home, named = _home(path)
        file = self._list(home)
        assert file is not None
        errors = ErrorCollector()
        photos: list[tuple[str, str, dict[str, Any]]] = []
        for where, photo in entries(json_file(file), "images", file):
            with errors.collect():
                photos.append((where, text_field(photo, "split", where), photo))
        errors.report()
        wanted = _splits(home, named, Counter(split for _, split, _ in photos))
        for where, split, photo in photos:
            if split in wanted:
                with errors.collect():
                    yield from _captions(home, photo, where)
        errors.report()

    def _list(self, home: Path) -> Path | None:
        """Return the list of a folder.

        Raises:
            UserError: if there are several.
        """
        for folder in LISTS:
            lists = (home / folder).glob("dataset_*.json")
            found = sorted(file for file in lists if file.name not in OTHER_LISTS)
            if len(found) > 1:
                raise UserError(
                    f"{home} has several lists; keep one of {', '.join(map(str, found))}"
                )
            if found:
                return found[0]
        return None


def _home(path: Path) -> tuple[Path, str | None]:
    """Return the folder and the split that a source names."""
    folder, colon, split = path.name.rpartition(":")
    return (
        (path.with_name(folder), split) if colon and folder and not path.exists() else (path, None)
    )


def _splits(home: Path, named: str | None, there: Counter[str]) -> set[str]:
    found = ", ".join(f"{home}:{name} ({count:,} photos)" for name, count in sorted(there.items()))
    if named is None:
        if len(there) > 1:
            raise UserError(f"{home} has several splits; name one or several (a+b): {found}")
        return set(there)
    wanted = set(named.split("+"))
    if wanted - set(there):
        raise UserError(f"{home} has no split {', '.join(sorted(wanted - set(there)))}: {found}")
    return wanted


def _captions(home: Path, photo: dict[str, Any], where: str) -> Iterator[Row]:
    name = text_field(photo, "filename", where)
    inside = PurePath(text_field(photo, "filepath", where) if photo.get("filepath") else "")
    sentences = photo.get("sentences")
    if not isinstance(sentences, list) or not sentences:
        raise UserError(f"{where}: there should be a list 'sentences' with a caption or more")
    texts = [caption(one.get("raw") if isinstance(one, dict) else None, where) for one in sentences]
    group = text_field(photo, "cocoid", where) if "cocoid" in photo else name
    key = photo_key(group) if "cocoid" in photo else clean_key(PurePath(name).stem)
    yield from image_rows(_image(home, inside / name, where), key, texts, group)


def _image(home: Path, image: PurePath, where: str) -> Path:
    """Return the file of a photo."""
    for folder in ("flickr30k-images", "flickr30k_images"):
        if not (home / image).is_file() and (home / folder).is_dir():
            return locate(home / folder, str(image), where)
    return locate(home, str(image), where)
