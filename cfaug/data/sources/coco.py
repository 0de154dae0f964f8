"""MS-COCO as downloaded: ``annotations/captions_val2017.json`` beside the folder ``val2017/``.

The source is the folder of images (``coco/val2017``), or its parent if that has only one split.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.safety.json_text import json_file
from cfaug.data.sources.folders import image_rows, images_below, locate
from cfaug.data.sources.parquet import text_field
from cfaug.data.sources.row import (
    Description,
    ErrorCollector,
    Reader,
    Row,
    caption,
    clean_key,
    files_identity,
    known,
    split_home,
)
from cfaug.data.sources.verdicts import CaptionVerdicts

ANNOTATIONS = "annotations"
REJECTED = "is_rejected"
"""VizWiz' mark of an annotation whose author could not say what the photo shows."""
COCO_NAME = re.compile(r"(?:COCO_(?:train|val|test)\d{4}_)?(\d{12})")
"""Names of photo files without extension; the number is the photo's id."""


class Coco(Reader):
    """Captions and images of one split; a set is a photo with its captions, in the file's order.

    The group is the photo's id, as in COCO-Counterfactuals, so that no split separates them. Photos
    without a caption are skipped.
    """

    kind = "coco"
    form = "captions of MS-COCO"
    description = "SPLIT/ beside annotations/captions_SPLIT.json (COCO; name the folder SPLIT)"

    def recognises(self, path: Path) -> bool:
        return self._split(path) is not None

    def files(self, path: Path) -> list[Path]:
        return images_below(known(self._split(path))[1])

    def describe(self, path: Path) -> Description:
        return Description(left_out=rejected_phrase(known(self._split(path))[0]))

    def identity(self, path: Path) -> Any:
        """Return name, size and time of the annotations and of every image."""
        annotations, images = known(self._split(path))
        return files_identity([annotations, *images_below(images)])

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the captions of each photo together, photos in the order of ``images``."""
        annotations, folder = known(self._split(path))
        errors = ErrorCollector()
        for photo in photos_of(json_file(annotations), annotations):
            if photo.texts:
                with errors.collect():
                    file = locate(folder, photo.file_name, photo.where)
                    yield from image_rows(file, photo_key(photo.id), photo.texts, photo.id)
        errors.report()

    def caption_ids(self, path: Path) -> dict[str, str]:
        """Return the id of each caption by its row's key, ``<set>_<member>``."""
        listing = known(self._split(path))[0]
        ids: dict[str, str] = {}
        members = Counter[str]()
        for where, entry in entries(json_file(listing), "annotations", listing):
            if entry.get(REJECTED) is not True:
                key = photo_key(text_field(entry, "image_id", where))
                ids[f"{key}_{members[key]}"] = str(entry.get("id", ""))
                members[key] += 1
        return ids

    def _split(self, path: Path) -> tuple[Path, Path] | None:
        listing = path.parent / ANNOTATIONS / f"captions_{path.name}.json"
        if listing.is_file():
            return listing, path
        lists = sorted((path / ANNOTATIONS).glob("captions_*.json"))
        splits = [(file, path / file.stem.removeprefix("captions_")) for file in lists]
        there = [(file, images) for file, images in splits if images.is_dir()]
        if len(there) > 1:
            named = ", ".join(str(images) for _, images in there)
            raise UserError(f"{path} has several splits; name one: {named}")
        if splits and not there:
            named = ", ".join(str(images) for _, images in splits)
            raise UserError(f"{path} has annotations without their images: there is no {named}")
        return there[0] if there else None


@dataclass(frozen=True)
class Photo:
    """A photo with its captions, from a list."""

    id: str
    file_name: str
    texts: list[str]
    where: str
    fields: Mapping[str, Any]


def photos_of(about: Any, file: Path) -> list[Photo]:
    """Return the photos of a JSON with ``images`` and ``annotations``, in ``images``' order."""
    errors = ErrorCollector()
    photos: dict[str, Photo] = {}
    verdicts = CaptionVerdicts()
    for where, entry in entries(about, "images", file):
        with errors.collect():
            photo = text_field(entry, "id", where)
            if photo in photos:
                raise UserError(f"{where}: the photo {photo} is duplicated")
            name = text_field(entry, "file_name", where)
            photos[photo] = Photo(photo, name, [], f"{file}, photo {photo}", entry)
    for where, entry in entries(about, "annotations", file):
        if entry.get(REJECTED) is True:
            continue
        with errors.collect():
            photo = text_field(entry, "image_id", where)
            if photo not in photos:
                raise UserError(f"{where}: there is no photo {photo} in 'images'")
            photos[photo].texts.append(caption(entry.get("caption"), where))
            verdicts.count(entry)
    errors.report()
    verdicts.check(str(file))
    return list(photos.values())


def rejected_phrase(file: Path) -> tuple[str, ...]:
    """Return a phrase with the number of captions that a list marks as rejected, if there are."""
    about = json_file(file)
    listed = about.get("annotations") if isinstance(about, dict) else None
    entries_there = listed if isinstance(listed, list) else []
    count = sum(isinstance(e, dict) and e.get(REJECTED) is True for e in entries_there)
    return (f"{count:,} captions marked {REJECTED}",) if count else ()


def coco_photo(file_name: str) -> str:
    """Return the id of the COCO photo that a file is named after; "" for any other name.

    >>> coco_photo("COCO_val2014_000000391895.jpg"), coco_photo("dog.jpg")
    ('391895', '')
    """
    match = COCO_NAME.fullmatch(PurePath(file_name).stem)
    return str(int(match[1])) if match else ""


def photo_key(photo: str) -> str:
    """Return the key of a COCO photo, as its files are named.

    >>> photo_key("391895")
    '000000391895'
    """
    return clean_key(photo.zfill(12))


def entries(about: Any, name: str, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, entry) of a list of objects in a JSON file."""
    listed = about.get(name) if isinstance(about, dict) else None
    if not isinstance(listed, list):
        raise UserError(f"{file}: there should be a list {name!r}")
    for number, entry in enumerate(listed):
        where = f"{file}, {name}[{number}]"
        if not isinstance(entry, dict):
            raise UserError(f"{where} should be a JSON object")
        yield where, entry


# The Karpathy splits: ``dataset_coco.json`` or ``dataset_flickr30k.json`` beside the images.
#
# The source is ``FOLDER:SPLIT``, as in ``data/flickr30k:test`` or ``data/coco:train+restval``.
# COCO's images are in ``train2014/`` and ``val2014/``, Flickr30k's in ``flickr30k-images/`` or
# ``images/``, or in the folder itself.

LISTS = ("", "karpathy", "caption_datasets", "annotations")
"""Folders in which the list may be."""
OTHER_LISTS = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json")
"""Files of the library ``datasets``, none of which is a list of images."""
IMAGES = ("images", "flickr30k-images", "flickr30k_images", "train2014", "val2014")
"""Folders of images; if none of them exists, images may be anywhere below."""


class Karpathy(Reader):
    """Captions and images of one split, or several joined by ``+``; a set is a photo.

    The group is the COCO id if there is one, as in other sources of COCO, otherwise the file's name
    with its extension: Flickr30k's names are numbers too, some of them equal to COCO ids.
    """

    has_parts = True
    kind = "karpathy"
    form = "a split of Karpathy's"
    description = "dataset_NAME.json beside its images (Karpathy's splits; name it FOLDER:test)"

    def recognises(self, path: Path) -> bool:
        """Return whether there is a list, with or without a named split."""
        return self._list(split_home(path)[0]) is not None

    def files(self, path: Path) -> list[Path]:
        """Return every image, of any split."""
        home = split_home(path)[0]
        folders = [home / name for name in IMAGES if (home / name).is_dir()] or [home]
        return [image for folder in folders for image in images_below(folder)]

    def identity(self, path: Path) -> Any:
        """Return the split, and name, size and time of the list and of every image."""
        home, split = split_home(path)
        return [split, *files_identity([known(self._list(home)), *self.files(path)])]

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the rows with the captions of each photo adjacent, in the list's order."""
        home, named = split_home(path)
        file, errors = known(self._list(home)), ErrorCollector()
        photos: list[tuple[str, str, dict[str, Any]]] = []
        for where, photo in entries(json_file(file), "images", file):
            with errors.collect():
                photos.append((where, text_field(photo, "split", where), photo))
        errors.report()
        counts = Counter(split for _, split, _ in photos)
        there = ", ".join(f"{home}:{name} ({n:,} photos)" for name, n in sorted(counts.items()))
        if named is None and len(counts) > 1:
            raise UserError(f"{home} has several splits; name one or several (a+b): {there}")
        wanted = {*counts} if named is None else {*named.split("+")}
        if unknown := sorted(wanted - {*counts}):
            raise UserError(f"{home} has no split {', '.join(unknown)}: {there}")
        for where, split, photo in photos:
            if split not in wanted:
                continue
            with errors.collect():
                name = text_field(photo, "filename", where)
                folder = text_field(photo, "filepath", where) if photo.get("filepath") else ""
                sentences = photo.get("sentences")
                if not isinstance(sentences, list) or not sentences:
                    raise UserError(
                        f"{where}: there should be a list 'sentences' with a caption or more"
                    )
                texts = [
                    caption(sentence.get("raw") if isinstance(sentence, dict) else None, where)
                    for sentence in sentences
                ]
                group = text_field(photo, "cocoid", where) if "cocoid" in photo else name
                key = photo_key(group) if "cocoid" in photo else clean_key(PurePath(name).stem)
                image = str(PurePath(folder) / name)
                homes = [home / subfolder for subfolder in ("flickr30k-images", "flickr30k_images")]
                homes = [root for root in homes if root.is_dir() and not (home / image).is_file()]
                yield from image_rows(locate([*homes, home][0], image, where), key, texts, group)
        errors.report()

    def caption_ids(self, path: Path) -> dict[str, str]:
        """Return the id of each caption by its row's key, ``<set>_<member>``, of every split."""
        listing = known(self._list(split_home(path)[0]))
        ids: dict[str, str] = {}
        for where, photo in entries(json_file(listing), "images", listing):
            name = text_field(photo, "filename", where)
            of_coco = "cocoid" in photo
            key = photo_key(text_field(photo, "cocoid", where)) if of_coco else None
            for member, sentence in enumerate(photo.get("sentences", ())):
                place = f"{key or clean_key(PurePath(name).stem)}_{member}"
                ids[place] = str(sentence.get("sentid", ""))
        return ids

    def _list(self, home: Path) -> Path | None:
        for folder in LISTS:
            lists = (home / folder).glob("dataset_*.json")
            files = sorted(file for file in lists if file.name not in OTHER_LISTS)
            if len(files) > 1:
                raise UserError(
                    f"{home} has several lists; keep one of {', '.join(map(str, files))}"
                )
            if files:
                return files[0]
        return None
