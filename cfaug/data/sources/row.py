"""What every reader yields, and the checks that every reader makes."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from cfaug.data.sources.class_names import class_words
from cfaug.data.sources.lists import require_unicode
from cfaug.errors import UserError
from cfaug.pixels import decode_image, open_image
from cfaug.types import KEY_PATTERN

HEAD = 4096
"""Bytes of an image that its digest was made of before indexes of format 3."""

CHUNK = 4 * 2**20
"""Bytes of an image that are read at once: all of it, but for the very largest."""

DIGEST_BYTES = 16

IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
"""Endings of what ``cfaug.pixels`` decodes."""

UNREAD_IMAGES = (
    ".avif", ".eps", ".heic", ".heif", ".ico", ".jfif", ".jp2", ".jxl", ".pbm", ".pgm", ".ppm",
    ".psd", ".svg", ".tga", ".cr2", ".dng", ".nef", ".arw",
)  # fmt: skip
"""Endings of images that nothing here decodes; a folder that holds them is told so."""

LIST_IN_A_CELL = re.compile(r"\s*\[\s*(['\"]).*\1\s*,?\s*\]\s*", re.DOTALL)
"""A list of captions in a field of a csv: NegCLIP's negatives, what pandas writes of a list."""

NEGATIVES = "negatives"
"""Of a member's ``extra``: a list of captions that are wrong about its image."""

NAMED_AT_ONCE = 5
"""Culprits one message names: enough to see a pattern, few enough to read."""


class Digest(NamedTuple):
    """What stands for an image's content.

    Attributes:
        whole: of all its bytes, hexadecimal; equal for equal images and no others.
        head: of its length and first 4 KiB alone, by which runs made before were identified.
    """

    whole: str
    head: str

    @classmethod
    def of(cls, data: bytes) -> Digest:
        """Return the digest of an encoded image."""
        return cls(content_digest(data).hex(), _head_digest(data[:HEAD], len(data)))


def content_digest(data: bytes) -> bytes:
    """Return 16 bytes that stand for content, all of it: an image's key in every cache."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def _head_digest(head: bytes, length: int) -> str:
    return hashlib.blake2b(
        head + length.to_bytes(8, "little"), digest_size=DIGEST_BYTES
    ).hexdigest()


class Row(NamedTuple):
    """One image-text pair: where its image lies, and whom it belongs to.

    Rows of a set follow each other, ``member`` counting from 0, and only they share an image: where
    they do, their ``image_id`` is equal. ``digest`` stands for the image's content; ``where`` names
    it for a message. ``edited`` says that the caption is an edit of another member's; ``negatives``
    are captions that are wrong about the image and have no image of their own; ``extra`` is what
    else the source says of the pair, JSON under names, which becomes columns of the index.
    """

    set: str
    member: int
    group: str
    text: str
    label: str | None
    image_id: str
    file: str
    offset: int
    length: int
    digest: Digest
    where: str
    edited: bool = False
    negatives: tuple[str, ...] = ()
    extra: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Description:
    """What a reader takes of a folder, and what it leaves.

    Attributes:
        used: the columns that are read, by the names they have there; none of a form without
            columns.
        unused: the columns that are there and are not read.
        left_out: what else lies there and is not read, a phrase each.
    """

    used: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @classmethod
    def of_columns(cls, used: Iterable[str], there: Iterable[str]) -> Description:
        """Divide the columns that are there, each once, in their order.

        >>> Description.of_columns(["image", "text"], ["image", "width", "text"])
        Description(used=('image', 'text'), unused=('width',), left_out=())
        """
        names, wanted = tuple(dict.fromkeys(there)), set(used)
        return cls(
            tuple(name for name in names if name in wanted),
            tuple(name for name in names if name not in wanted),
        )


class Reader(Protocol):
    """One form that data comes in.

    Attributes:
        kind: its name in an index.
        form: what it is called in a report: "112 images read as FORM".
        description: what a folder of this form holds, for the error that lists the forms.
    """

    kind: str
    form: str
    description: str

    def recognises(self, path: Path) -> bool:
        """Say whether a folder has this form, from its names alone."""
        ...

    def files(self, path: Path) -> list[Path]:
        """Return the files that hold the images, in the order they are read."""
        ...

    def describe(self, path: Path) -> Description:
        """Return what is read of a folder and what is not; asked once, when it is scanned."""
        ...

    def identity(self, path: Path) -> Any:
        """Return JSON that changes when the content may have changed."""
        ...

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield every pair, or raise UserError naming what is wrong."""
        ...


def keep_json(record: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the values of a record that JSON can hold, times and the like as texts.

    >>> keep_json({"width": 3, "image": b"PNG", "boxes": [[0, 1]]}, ["width", "image", "boxes"])
    {'width': 3, 'boxes': [[0, 1]]}
    """
    found = {}
    for name in names:
        try:
            found[name] = json.loads(json.dumps(record[name], default=_as_text))
        except (TypeError, ValueError):
            continue
    return found


def _as_text(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return str(value)


class ErrorCollector:
    """Collects what is wrong with single examples, so that one error names several of them."""

    def __init__(self) -> None:
        self._messages: list[str] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Note a UserError and go on, until there are enough of them."""
        try:
            yield
        except UserError as error:
            self._messages.append(str(error))
            if len(self._messages) == NAMED_AT_ONCE:
                self._messages.append("(there may be more)")
                self.report()

    def report(self) -> None:
        """Raise what was noted, if anything was."""
        if self._messages:
            raise UserError("\n".join(self._messages))


def files_identity(files: list[Path]) -> list[list[Any]]:
    """Return name, size and time of each file: what a cached index was made of."""
    about = ((file, file.stat()) for file in files)
    return [[str(file), stat.st_size, stat.st_mtime_ns] for file, stat in about]


def clean_key(name: str) -> str:
    """Return a key that WebDataset, tar and a file system all take.

    A name that has to be changed gets a suffix made from it: different names stay different.

    >>> clean_key("000123"), clean_key("Cats/IMG 001.v2")
    ('000123', 'cats-img-001-v2-10ff5d71')
    """
    if KEY_PATTERN.fullmatch(name):
        return name
    readable = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{readable}-{digest}" if readable else digest


def caption(text: object, where: str) -> str:
    """Return a caption as one line.

    Raises:
        UserError: naming ``where``, if it is no text or nothing is left.
    """
    if not isinstance(text, str):
        raise UserError(f"{where}: the caption should be a text, not {text!r}")
    line = " ".join(text.split())
    if not line:
        raise UserError(f"{where}: the caption is empty; write one or remove the example")
    return require_unicode(line, where)


def captions(found: object, where: str) -> list[str]:
    """Return the captions in a field: one, or a list of them, also one written out in a csv.

    Raises:
        UserError: as ``caption`` does; an empty list has an empty caption.
    """
    if isinstance(found, str) and LIST_IN_A_CELL.fullmatch(found):
        found = _list_in_a_cell(found, where)
    texts = found if isinstance(found, list) else [found]
    return [caption(text, where) for text in texts or [""]]


def _list_in_a_cell(text: str, where: str) -> object:
    """Return the list that a field of a csv holds, as JSON has it or as Python prints it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text.strip())  # literals only: nothing of it can be run
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise UserError(
            f"{where}: {text[:80]!r} begins and ends as a list of captions and is none"
        ) from error


def check_images_differ(images: Iterable[tuple[str, Hashable]], where: str) -> None:
    """Refuse a counterfactual that has no image of its own: its caption is wrong about that image.

    Args:
        images: what each member's image is called, and what stands for its content.
        where: names the set.

    Raises:
        UserError: naming ``where`` and both images, if two members show the same.
    """
    seen: dict[Hashable, str] = {}
    for name, content in images:
        if content in seen:
            raise UserError(
                f"{where}: a counterfactual shows the same image as another member ({seen[content]}"
                f" and {name}); correct or remove it. Captions without an image of their own are "
                "called neg_caption"
            )
        seen[content] = name


def class_caption(label: str) -> str:
    """Return the caption of an example that has a class only.

    >>> class_caption("polar_bear")
    'a photo of a polar bear'
    """
    return f"a photo of a {class_words(label)}"


def one_class_error(source: str, form: str, images: int, label: str) -> UserError:
    """Return the error for images that have no captions and are all of one class."""
    return UserError(
        f"{source}: {images:,} images read as {form}, all of one class, {label!r}: each caption "
        f"would be {class_caption(label)!r}, from which nothing can be learned or tested. If "
        f"{label!r} is no class, the images need captions: captions.csv or captions.jsonl (image, "
        "caption) beside them, or a .txt beside each image. If it is, name the folder that holds "
        "the folders of all classes"
    )


def check_image(read: Callable[[int, int], bytes], length: int, where: str) -> Digest:
    """Read an image once: its digest, a look at its header and its end.

    It is decoded only where header and end leave doubt.

    Args:
        read: gives (offset, length) bytes of the image.
        length: of the whole image, in bytes.
        where: names it.

    Returns:
        The digest of all its bytes.

    Raises:
        UserError: naming ``where``, if it is no image, claims too many pixels, is truncated, or is
            shorter than ``length``.
    """
    if length == 0:
        raise UserError(f"{where}: the image is empty (0 bytes)")
    first = tail = read(0, min(CHUNK, length))
    digest, done = hashlib.blake2b(first, digest_size=DIGEST_BYTES), len(first)
    while done < length and tail:
        tail = read(done, min(CHUNK, length - done))
        digest.update(tail)
        done += len(tail)
    if done != length:
        raise UserError(f"{where}: {done:,} of {length:,} bytes can be read; is it being written?")
    try:
        open_image(first, where)
    except UserError:
        open_image(read(0, length), where)  # a header longer than a chunk, or no image
    end = first[-12:] if length == len(first) else read(length - 12, 12)
    if not _is_whole(first, end, length):
        data = first if length == len(first) else read(0, length)
        decode_image(data, where)
        if data.startswith(b"\x89PNG") and b"IEND" not in data:  # Pillow does not miss it
            raise UserError(f"{where}: the image is truncated; replace or remove it")
    return Digest(digest.hexdigest(), _head_digest(first[:HEAD], length))


def _is_whole(head: bytes, tail: bytes, length: int) -> bool:
    """Say whether the end of a JPEG, PNG or WebP is there; a "no" may be only bytes after it."""
    if head[:4] == b"RIFF":
        return int.from_bytes(head[4:8], "little") + 8 == length
    return tail.endswith(b"\xff\xd9") or tail[4:8] == b"IEND"
