"""What pages about models' answers share: one page a model, and one of all models together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from cfaug.errors import UserError
from cfaug.messages import say
from cfaug.report.gallery import ShownPicture, show_picture
from cfaug.report.items import Items, read_items

ReadImage = Callable[[str], bytes]
"""Gives an encoded image by its name."""


class Answers(Protocol):
    """What one model answered."""

    @property
    def model(self) -> str:
        """Return what pages call the model."""

    @property
    def items(self) -> Items:
        """Return its items."""


Own = TypeVar("Own", bound=Answers)


def require_names(answers: Sequence[Answers]) -> None:
    """Refuse a page of no model, or of two of one name.

    Raises:
        UserError: naming the models.
    """
    if not answers:
        raise UserError("a page of no model's answers cannot be written")
    names = [one.model for one in answers]
    if len(set(names)) < len(names):
        raise UserError(f"models have duplicated names: {', '.join(names)}")


def write_with_siblings(
    folder: Path,
    own: Own,
    wrap: Callable[[str, Items], Own],
    name: str,
    write: Callable[[Sequence[Own], Path, str], Path],
    most: int | None = None,
) -> Path:
    """Write the page of one model beside its results, and one of all models above their folders.

    Those are the models of its experiment that were asked the same, where there are several.

    Args:
        folder: of the run.
        own: what its model answered.
        wrap: makes answers of a model's name and its items.
        name: of the pages' files.
        write: writes the page of some answers into a file, with a title.
        most: models that one page holds; of an experiment with more runs no page of all is written,
            for a sweep would write it again after each of them. ``None`` is any number.

    Returns:
        The page of the model.
    """
    benchmark = own.items.benchmark
    page = write([own], folder / name, f"{own.model}, {benchmark}")
    together = folder.parent.parent / name
    if most is not None and len(_runs_beside(folder)) > most:
        return page
    others = read_siblings(folder, own, wrap, together)
    if others:
        write(sorted([own, *others], key=lambda one: one.model), together, benchmark)
    return page


def read_siblings(
    folder: Path, own: Own, wrap: Callable[[str, Items], Own], page: Path
) -> list[Own]:
    """Return the answers of other models of an experiment to the same questions.

    Args:
        folder: of the run.
        own: what its model answered.
        wrap: makes answers of a model's name and its items.
        page: what they are for: named with those that cannot be read, which are left out.
    """
    found: dict[str, Own] = {}
    for other in _runs_beside(folder):
        if other.resolve() == folder.resolve():
            continue
        try:
            items = read_items(other, own.items.benchmark)
            if items is not None and items.data == own.items.data:
                name = other.parent.name
                name = f"{name}, {other.name}" if name in (own.model, *found) else name
                found[name] = wrap(name, items)
        except UserError as error:
            say(f"left out of {page}: {error}")
    return list(found.values())


def _runs_beside(folder: Path) -> list[Path]:
    """Return the folders of an experiment's runs, that of the run itself among them."""
    return sorted(folder.parent.parent.glob("*/seed=*"))


def show_pictures(
    images: Mapping[str, str], read_image: ReadImage, side: int
) -> list[ShownPicture]:
    """Return small copies of images in order, on every core.

    Args:
        images: {digest or name: name}.
        read_image: gives the images.
        side: longest side of the copies, in pixels.

    Raises:
        UserError: if an image cannot be decoded.
    """

    def small(name: str) -> ShownPicture:
        return show_picture(read_image(name), name, side)

    # Pillow lets go of the interpreter while it decodes, shrinks and encodes.
    with ThreadPoolExecutor() as pool:
        return list(pool.map(small, images.values()))
