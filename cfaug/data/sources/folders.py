"""Plain folders of images, and captions in a txt beside each image."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

from cfaug.core.errors import UserError, name_some
from cfaug.core.files import is_hidden, require_regular
from cfaug.core.pixels import IMAGES, UNREAD_IMAGES, Digest, check_image
from cfaug.core.safety.addresses import ADDRESS, without_secrets
from cfaug.data.sources.row import (
    Description,
    ErrorCollector,
    Reader,
    Row,
    caption,
    clean_key,
    files_identity,
    split_home,
)
from cfaug.data.sources.splits import SplitChoice, SplitSurvey, choose_split

IMAGE_FOLDERS = (
    "", "images", "Images", "photos", "imgs", "img", "flickr30k_images", "flickr30k-images",
    "Flicker8k_Dataset",
)  # fmt: skip
"""Folders beside a list in which its images may be."""


def walk(path: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield (folder, images, texts) for every folder that ``list_folders`` yields."""
    for folder, names in list_folders(path):
        images = [name for name in names if name.lower().endswith(IMAGES)]
        yield folder, images, [name for name in names if name.endswith(".txt")]


def list_folders(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield (folder, names of its files) for every folder below ``path``, names sorted.

    Links to folders are followed, as in torchvision, each folder once. Hidden files and folders are
    left out; ``hidden_below`` counts them.

    Raises:
        OSError: if a folder cannot be read; it is never skipped.
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
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        yield Path(here), sorted(name for name in names if not is_hidden(name))


def hidden_below(path: Path, named: Collection[str] = ()) -> list[str]:
    """Return a phrase about the hidden images below a folder, which are left out.

    Args:
        named: the paths of images that are read all the same, because a list names them.
    """
    counts = Counter[str]()
    for here, folders, names in os.walk(path):
        inside = Path(here).relative_to(path).parts
        owner = next((part for part in inside if is_hidden(part)), None)
        for name in names:
            hidden = name.lower().endswith(IMAGES) and (owner is not None or is_hidden(name))
            if hidden and os.path.join(here, name) not in named:
                counts[owner or name] += 1
        if owner is None:
            folders.sort()
    return [hidden_phrase(counts)] if counts else []


def hidden_phrase(counts: Mapping[str, int], kind: str = "image") -> str:
    """Return a phrase about what is hidden, counted by the folders or files with such names.

    >>> hidden_phrase({".thumbnails": 2, "._a.jpg": 1})
    '3 hidden images (._a.jpg, .thumbnails)'
    """
    count = sum(counts.values())
    return f"{count:,} hidden {kind}{'s' * (count > 1)} ({name_some(sorted(counts))})"


def unread_images(path: Path) -> list[str]:
    """Return a phrase with the number of images of unsupported formats below a folder."""
    endings = Counter(
        ending
        for _, names in list_folders(path)
        for name in names
        if (ending := Path(name).suffix.lower()) in UNREAD_IMAGES
    )
    return [f"{count:,} images in {ending}" for ending, count in sorted(endings.items())]


def images_below(path: Path) -> list[Path]:
    """Return every image file below a folder, folder by folder, in the order of names."""
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
        with require_regular(file).open("rb") as handle:

            def read(at: int, n: int) -> bytes:
                handle.seek(at)
                return handle.read(n)

            return check_image(read, file.stat().st_size, str(file))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error


def locate(
    path: Path,
    image: str,
    where: str,
    roots: Sequence[Path] = (),
    folders: Sequence[str] = IMAGE_FOLDERS,
) -> Path:
    """Return the file of an image that a list names, in its folder or in ``images/`` and the like.

    Args:
        roots: further absolute folders in which a list may name images; no others are searched, so
            that a list from others cannot probe this disk.
        folders: folders below the list's in which the image may be.
    """
    inside = not PurePath(image).is_absolute() and ".." not in PurePath(image).parts

    def target_in(folder: str) -> Path:
        return Path(os.path.normpath(os.path.join(path, folder, image)))

    for folder in folders if inside else folders[:1]:  # the first one nearly always has it
        target = target_in(folder)
        if not any(target.is_relative_to(home) for home in (path, *roots)):
            raise UserError(
                f"{where}: {image!r} leads out of {path}; it is not read. To permit the folder "
                f"such images lie in: 'paths.image_roots=[{target.parent}]'"
                f"{_elsewhere(path, image)}"
            )
        if target.is_file():
            return target
    if ADDRESS.fullmatch(image):
        raise UserError(
            f"{where}: {without_secrets(image)} is an address, and the images that a list names "
            "are not fetched: download them, for instance by img2dataset, whose shards are read"
        )
    hint = "; folders are separated by / here, not by \\" if "\\" in image else ""
    hint = hint or _alike(map(target_in, folders)) or _elsewhere(path, image)
    raise UserError(
        f"{where}: there is no image {image!r} in {path}; add it or remove the line{hint}"
    )


def _alike(targets: Iterable[Path]) -> str:
    def plain(stem: str) -> str:
        return unicodedata.normalize("NFC", stem).casefold()

    for target in targets:
        stems = plain(target.name), plain(target.stem)
        for file in sorted(target.parent.glob("*.*")):
            if plain(file.stem) in stems:
                return f"; {file.name!r} differs from it in case, ending or Unicode form"
    return ""


def _elsewhere(path: Path, image: str) -> str:
    """Return a phrase that names the images of this name in other folders of the list's own."""
    name = PurePath(image).name.lstrip("0")
    there = _by_name(path, path.stat().st_mtime_ns).get(name, [])[:3] if path.is_dir() else []
    if not there:
        return ""
    verb = "has this name" if len(there) == 1 else "have this name"
    return f"; {' and '.join(there)} {verb}: write the path from {path}, as {there[0]}"


@lru_cache(maxsize=2)
def _by_name(path: Path, changed: int) -> dict[str, list[str]]:
    by_name: dict[str, list[str]] = {}
    for image in images_below(path):
        by_name.setdefault(image.name.lstrip("0"), []).append(str(image.relative_to(path)))
    return by_name


class SidecarText(Reader):
    """A ``.txt`` beside each image with a caption on each line; each image is a group."""

    has_parts = True
    kind = "sidecar_text"
    form = "images with a .txt beside each"
    description = "a .txt beside each image, a caption a line"

    def recognises(self, path: Path) -> bool:
        """Return whether any image has a text beside it."""
        home = split_home(path)[0]
        return home.is_dir() and any(
            {Path(name).stem for name in images} & {Path(name).stem for name in texts}
            for _, images, texts in walk(home)
        )

    def files(self, path: Path) -> list[Path]:
        return images_below(split_home(path)[0])

    def describe(self, path: Path) -> Description:
        """Return what is left out: images of unsupported formats."""
        home = split_home(path)[0]
        notes = choose_folders(path, self.files(path)).notes
        return Description(left_out=tuple(unread_images(home)), notes=notes)

    def identity(self, path: Path) -> Any:
        """Return every image's and text's name, size and time."""
        home = split_home(path)[0]
        return files_identity(
            [folder / name for folder, images, texts in walk(home) for name in (*images, *texts)]
        )

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the lines beside each image."""
        errors, home, images = ErrorCollector(), split_home(path)[0], self.files(path)
        choice = choose_folders(path, images)
        for image in images:
            if not choice.reads({}, str(image.relative_to(home))):
                continue
            with errors.collect():
                name = str(image.relative_to(home).with_suffix(""))
                yield from image_rows(image, clean_key(name), sidecar_lines(image), name)
        errors.report()


def choose_folders(path: Path, images: Sequence[Path]) -> SplitChoice:
    """Return which images of a source are read, by folders that are called as splits are.

    Args:
        path: the folder, or ``FOLDER:SPLIT``.
    """
    home, survey = split_home(path)[0], SplitSurvey()
    for image in images:
        survey.add({}, str(image.relative_to(home)))
    return choose_split(path, survey)


def sidecar_lines(image: Path) -> list[str]:
    """Return the captions in the text beside an image, one from each line."""
    file = image.with_suffix(".txt")
    try:
        text = require_regular(file).read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise UserError(f"{image} has no caption: {file.name} is missing") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    lines = [line for line in text.split("\n") if line.strip()]
    return [caption(line, str(file)) for line in lines or [""]]
