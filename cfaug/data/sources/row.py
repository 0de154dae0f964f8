"""The rows that every reader yields, and the collection of errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from cfaug.core.errors import UserError
from cfaug.data.sources.image_check import Digest

NEGATIVES = "negatives"
"""Key in a member's ``extra``: a list of captions that are wrong about its image."""

NAMED_AT_ONCE = 5
"""Number of errors that a message names: enough to see a pattern, few enough to read."""


class Row(NamedTuple):
    """One image-text pair: the place of its image, its text, and its set.

    Rows of a set are adjacent, with ``member`` counting from 0, and only they may share an image,
    which then has the same ``image_id``. ``digest`` identifies the image's content; ``where`` names
    it in messages. ``edited`` marks a caption that is an edit of another member's; ``negatives``
    are captions that are wrong about the image and have no image themselves; ``extra`` has further
    values of the pair, JSON by name, which become columns of the index. ``box`` is the visible part
    of the image (left, top, right, bottom in pixels), if that is not all; the digest is then that
    of the box, ``Digest.of_box``.
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
    box: tuple[int, int, int, int] | None = None


@dataclass(frozen=True)
class Description:
    """The content of a folder that a reader reads, and the content that it leaves out.

    Attributes:
        used: the columns that are read, by their names there; empty for a form without columns.
        unused: the columns that are not read.
        left_out: other content that is not read, a phrase each.
    """

    used: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @classmethod
    def of_columns(cls, used: Iterable[str], there: Iterable[str]) -> Description:
        """Divide the existing columns into used and unused ones, each once, in their order.

        >>> Description.of_columns(["image", "text"], ["image", "width", "text"])
        Description(used=('image', 'text'), unused=('width',), left_out=())
        """
        names, wanted = tuple(dict.fromkeys(there)), set(used)
        return cls(
            tuple(name for name in names if name in wanted),
            tuple(name for name in names if name not in wanted),
        )


class Reader(Protocol):
    """A reader of one form of data.

    Attributes:
        kind: the name of the reader in an index.
        form: the name of the form in reports: "112 images read as FORM".
        description: the content of a folder of this form, for the error that lists the forms.
    """

    kind: str
    form: str
    description: str

    def recognises(self, path: Path) -> bool:
        """Return whether a folder has this form, by its file names alone."""
        ...

    def files(self, path: Path) -> list[Path]:
        """Return the files with the images, in the order of reading."""
        ...

    def describe(self, path: Path) -> Description:
        """Return what is read from a folder and what is not; called once, at the scan."""
        ...

    def identity(self, path: Path) -> Any:
        """Return JSON that changes whenever the content may have changed."""
        ...

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield every pair, or raise UserError naming the invalid example."""
        ...


class ErrorCollector:
    """Collects errors of single examples, so that one error names several of them."""

    def __init__(self) -> None:
        self._messages: list[str] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Note a UserError and continue, until there are enough of them."""
        try:
            yield
        except UserError as error:
            self._messages.append(str(error))
            if len(self._messages) == NAMED_AT_ONCE:
                self._messages.append("(there may be more)")
                self.report()

    def report(self) -> None:
        """Raise the collected errors, if there are any."""
        if self._messages:
            raise UserError("\n".join(self._messages))


def files_identity(files: list[Path]) -> list[list[Any]]:
    """Return name, size and time of each file, which identify a cached index."""
    about = ((file, file.stat()) for file in files)
    return [[str(file), stat.st_size, stat.st_mtime_ns] for file, stat in about]
