"""Plain folders of images with captions: jsonl, csv, or a txt beside each image."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from cfaug.data.lists import list_records
from cfaug.data.sources.row import (
    IMAGES,
    Culprits,
    Description,
    Digest,
    Row,
    caption,
    check_image,
    clean_key,
    files_identity,
)
from cfaug.errors import UserError

IMAGE_COLUMNS = ("image", "file_name", "filename", "filepath", "image_path", "path")
CAPTION_COLUMNS = ("caption", "text", "captions", "title", "sentence")
GROUP_COLUMNS = ("group", "image_id")
LISTS = ("captions", "metadata")


def walk(path: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield (folder, images, texts) for every folder below ``path``, names sorted.

    Links to folders are followed, as torchvision does, each folder once.

    Raises:
        OSError: if a folder cannot be read; it is never passed over.
    """

    def fail(error: OSError) -> None:
        raise error

    seen: set[tuple[int, int]] = set()
    for here, folders, names in os.walk(path, onerror=fail, followlinks=True):
        stat = os.stat(here)
        if (stat.st_dev, stat.st_ino) in seen:
            folders.clear()
            continue
        seen.add((stat.st_dev, stat.st_ino))
        folders.sort()
        names.sort()
        images = [name for name in names if name.lower().endswith(IMAGES)]
        yield Path(here), images, [name for name in names if name.endswith(".txt")]


def images_below(path: Path) -> list[Path]:
    """Return every image file below a folder, folder by folder, in the order of their names."""
    return [folder / name for folder, images, _ in walk(path) for name in images]


def image_rows(
    file: Path, key: str, texts: list[str], group: str, label: str | None = None
) -> Iterator[Row]:
    """Check an image and yield it under each of its texts."""
    digest, length = file_digest(file), file.stat().st_size
    for number, text in enumerate(texts):
        yield Row(
            set=key, member=number, group=group, text=text, label=label, image_id=key,
            file=str(file), offset=0, length=length, digest=digest, where=str(file),
        )  # fmt: skip


def file_digest(file: Path) -> Digest:
    """Check an image file and return its digest."""
    try:
        with file.open("rb") as handle:

            def read(at: int, n: int) -> bytes:
                handle.seek(at)
                return handle.read(n)

            return check_image(read, file.stat().st_size, str(file))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error


class CaptionList:
    """A jsonl or csv with a column for the image and one for its caption or captions.

    Lines that name the same image are captions of one photo. A column ``group`` or ``image_id``
    names the photo's group; without one the image is its own.
    """

    kind = "caption_list"
    form = "a list of images and captions"
    looks_like = "captions.jsonl or captions.csv with columns image, caption (one or a list)"

    def list_file(self, path: Path) -> Path | None:
        """Return captions.* or metadata.*, or the only jsonl, csv or tsv there is."""
        files = sorted(f for f in path.glob("*.*") if f.suffix in (".jsonl", ".csv", ".tsv"))
        named = [f for f in files if f.stem in LISTS]
        if named:
            return named[0]
        return files[0] if len(files) == 1 else None

    def recognises(self, path: Path) -> bool:
        """Say whether there is a list."""
        return self.list_file(path) is not None

    def files(self, path: Path) -> list[Path]:
        """Return every image below the folder, listed or not."""
        return images_below(path)

    def describe(self, path: Path) -> Description:
        """Return which columns of the list are read."""
        file = self.list_file(path)
        assert file is not None
        used, there = dict[str, None](), dict[str, None]()
        for _, record in list_records(file):
            there.update(dict.fromkeys(record))
            for names in (IMAGE_COLUMNS, CAPTION_COLUMNS, GROUP_COLUMNS):
                used.update(dict.fromkeys([n for n in names if record.get(n)][:1]))
        return Description.of_columns(used, there)

    def identity(self, path: Path) -> Any:
        """Return the list's and every image's name, size and time."""
        file = self.list_file(path)
        assert file is not None
        return files_identity([file, *images_below(path)])

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield the captions of each image together, in the order the images first appear."""
        file = self.list_file(path)
        assert file is not None
        culprits = Culprits()
        captions: dict[str, list[str]] = {}
        groups: dict[str, str] = {}
        places: dict[str, str] = {}
        for where, record in list_records(file):
            with culprits.noted():
                image = os.path.normpath(str(_pick(record, IMAGE_COLUMNS, where)))
                captions.setdefault(image, []).extend(_captions(record, where))
                named = next((record[c] for c in GROUP_COLUMNS if record.get(c)), image)
                groups.setdefault(image, str(named))
                places.setdefault(image, where)
        culprits.report()
        for image, texts in captions.items():
            with culprits.noted():
                target = locate(path, image, places[image])
                key = clean_key(str(PurePath(image).with_suffix("")))
                yield from image_rows(target, key, texts, groups[image])
        culprits.report()


def _captions(record: Mapping[str, Any], where: str) -> list[str]:
    found = _pick(record, CAPTION_COLUMNS, where)
    texts = found if isinstance(found, list) else [found]
    return [caption(text, where) for text in texts or [""]]


def locate(path: Path, image: str, where: str) -> Path:
    """Return the file of an image that a list names, in its folder or in ``images/``.

    Raises:
        UserError: naming ``where``, if it leads out of the folder or is not there.
    """
    parts = PurePath(image).parts
    if PurePath(image).is_absolute() or ".." in parts:
        raise UserError(f"{where}: {image!r} leads out of {path}; it is not read")
    for target in (path / image, path / "images" / image):
        if target.is_file():
            return target
    raise UserError(f"{where}: there is no image {image!r} in {path}; add it or remove the line")


def _pick(record: Mapping[str, Any], names: tuple[str, ...], where: str) -> Any:
    for name in names:
        if record.get(name) is not None:
            return record[name]
    raise UserError(
        f"{where} has none of the columns {', '.join(names)}; it has {', '.join(map(str, record))}"
    )


class SidecarText:
    """A ``.txt`` beside each image, a caption a line; each image is its own group."""

    kind = "sidecar_text"
    form = "images with a .txt beside each"
    looks_like = "a .txt beside each image, a caption a line"

    def recognises(self, path: Path) -> bool:
        """Say whether any image has a text beside it."""
        return any(
            {Path(name).stem for name in images} & {Path(name).stem for name in texts}
            for _, images, texts in walk(path)
        )

    def files(self, path: Path) -> list[Path]:
        """Return every image."""
        return images_below(path)

    def describe(self, path: Path) -> Description:
        """Return nothing more: there are no columns."""
        return Description()

    def identity(self, path: Path) -> Any:
        """Return every image's and text's name, size and time."""
        return files_identity(
            [folder / name for folder, images, texts in walk(path) for name in (*images, *texts)]
        )

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield the lines beside each image."""
        culprits = Culprits()
        for image in images_below(path):
            with culprits.noted():
                name = str(image.relative_to(path).with_suffix(""))
                yield from image_rows(image, clean_key(name), _lines(image), name)
        culprits.report()


def _lines(image: Path) -> list[str]:
    file = image.with_suffix(".txt")
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError as error:
        raise UserError(f"{image} has no caption: {file.name} is missing") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    return [caption(line, str(file)) for line in lines or [""]]
