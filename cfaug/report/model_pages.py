"""What pages about models' answers share: one page a model, and one of all models together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

from cfaug.errors import UserError
from cfaug.messages import say
from cfaug.report.gallery import ShownPicture, contrast, show_picture
from cfaug.report.items import read_items
from cfaug.report.model_items import ModelItems
from cfaug.report.page import render, script_data, write_page
from cfaug.types import ITEM

ReadImage = Callable[[str], bytes]
"""Gives an encoded image by its name."""

Own = TypeVar("Own", bound=ModelItems)

MODELS = 8
"""Runs of an experiment that a page shows side by side at most."""


@dataclass(frozen=True)
class ImageSource:
    """Where a page's images come from.

    Attributes:
        read: gives an encoded image by its name.
        describe: gives what the page says of it, by its name; ``None`` says nothing.
    """

    read: ReadImage
    describe: Callable[[str], str] | None = None

    def once(self) -> ImageSource:
        """Return a source of the same images that reads each only once, for several pages."""
        return ImageSource(cache(self.read), self.describe)


class PageContent(Protocol):
    """What a page shows, before its pictures are read."""

    @property
    def verdicts(self) -> Sequence[str]:
        """Return sentences on top of the page, the first of them its heading."""

    @property
    def subtitle(self) -> str:
        """Return how much of what was asked is shown."""

    @property
    def images(self) -> Mapping[str, str]:
        """Return {digest or name: name} of the images, in the order of their numbers."""

    def content(self) -> dict[str, Any]:
        """Return what the script reads, without the pictures; afterwards ``images`` is whole."""


def page_file(benchmark: str) -> str:
    """Return what the page of a benchmark is called, beside a run's results.

    >>> page_file("sets/social_skew")
    'sets%2Fsocial_skew.html'
    """
    return f"{quote(benchmark, safe='')}.html"


@dataclass(frozen=True)
class ModelPage(Generic[Own]):
    """The page of a benchmark's answers: how it is made, for one model or for several.

    Attributes:
        template: its file, which extends ``models.html``.
        kind: how a run's items are read.
        what: what an item is, in the plural.
        make: makes what the page shows of some answers.
        side: longest side of the pictures, in pixels.
        most: models that one page holds; of an experiment with more runs no page of all is written,
            for a sweep would write it again after each of them. ``None`` is any number.
        remedy: what makes models comparable that were asked about other items.
    """

    template: str
    kind: type[Own]
    what: str
    make: Callable[[Sequence[Own]], PageContent]
    side: int
    most: int | None = MODELS
    remedy: str = "evaluate both with the same benchmark.data and settings"

    def write(self, answers: Sequence[Own], file: Path, images: ImageSource, *, title: str) -> Path:
        """Write the page and return its path; the same answers give the same bytes.

        Args:
            answers: of one model or several that were asked about the same items.
            file: where to; its folder is made if missing.
            images: where pictures come from.
            title: what the page is called.

        Raises:
            UserError: if there is no model, two were asked about other items or have one name, or
                an image cannot be decoded.
        """
        require_same_items(answers, self.what, self.remedy)
        text = draw_page(self.template, title, self.make(answers), images, self.side)
        return write_page(file, text)

    def write_for_run(
        self, folder: Path, model: str, benchmark: str, images: ImageSource, name: str | None = None
    ) -> Path:
        """Write the page of one model beside its results, and one of all above their folders.

        "All" are the models of its experiment that were asked the same, where there are several.

        Args:
            folder: of the run.
            model: what the page calls the model.
            benchmark: the benchmark's name; its items lie in the folder.
            images: where pictures come from; each is read once.
            name: of the pages' files; ``None`` is the benchmark's, see ``page_file``.

        Returns:
            The page of the model.

        Raises:
            UserError: if there are no items, or what ``write`` refuses.
        """
        own = read_own(folder, model, benchmark, self.kind)
        once = images.once()

        def write(answers: Sequence[Own], file: Path, title: str) -> Path:
            return self.write(answers, file, once, title=title)

        return write_with_siblings(folder, own, name or page_file(benchmark), write, self.most)


def draw_page(template: str, title: str, page: PageContent, images: ImageSource, side: int) -> str:
    """Return a page that extends ``models.html``; the same answers give the same text.

    Args:
        template: its file.
        title: what the page is called.
        page: what it shows.
        images: where its pictures come from.
        side: longest side of the pictures, in pixels.

    Raises:
        UserError: if an image cannot be decoded.
    """
    content = page.content()
    pictures = show_pictures(page.images, images.read, side)
    shown = [dict(one.about) for one in pictures]
    if images.describe is not None:
        for about, name in zip(shown, page.images.values(), strict=True):
            about["t"] = images.describe(name)
    return render(
        template,
        title=title,
        verdicts=list(page.verdicts),
        subtitle=page.subtitle,
        contrast=contrast(pictures),
        data=script_data({**content, "pictures": shown}),
    )


def read_own(folder: Path, model: str, benchmark: str, kind: type[Own]) -> Own:
    """Return what a run's model answered.

    Args:
        folder: of the run.
        model: what pages call the model.
        benchmark: the benchmark's name; its items lie in the folder.
        kind: how its items are read.

    Raises:
        UserError: if there are no items, or they are not of that kind.
    """
    items = read_items(folder, benchmark)
    if items is None:
        raise UserError(
            f"{folder} has no items of {benchmark}: run evaluate.py benchmark={kind.ASKED_BY}"
        )
    return kind(model, items)


def require_names(answers: Sequence[ModelItems]) -> None:
    """Refuse a page of no model, or of two of one name.

    Raises:
        UserError: naming the models.
    """
    if not answers:
        raise UserError("a page of no model's answers cannot be written")
    names = [one.model for one in answers]
    if len(set(names)) < len(names):
        raise UserError(f"models have duplicated names: {', '.join(names)}")


def require_same_items(answers: Sequence[ModelItems], what: str, remedy: str) -> None:
    """Refuse a page of models that were asked about different items, of none, or of equal names.

    Args:
        answers: of the models.
        what: what an item is, in the plural.
        remedy: what makes them comparable.

    Raises:
        UserError: naming the models.
    """
    require_names(answers)
    first = answers[0]
    for one in answers[1:]:
        if one.texts(ITEM) != first.texts(ITEM):
            raise UserError(
                f"{first.model} and {one.model} were asked about other {what} and cannot stand on "
                f"one page: {remedy}"
            )


def write_with_siblings(
    folder: Path,
    own: Own,
    name: str,
    write: Callable[[Sequence[Own], Path, str], Path],
    most: int | None = None,
) -> Path:
    """Write the page of one model beside its results, and one of all models above their folders.

    Those are the models of its experiment that were asked the same, where there are several.

    Args:
        folder: of the run.
        own: what its model answered.
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
    others = read_siblings(folder, own, together)
    if others:
        write(sorted([own, *others], key=lambda one: one.model), together, benchmark)
    return page


def read_siblings(folder: Path, own: Own, page: Path) -> list[Own]:
    """Return the answers of other models of an experiment to the same questions.

    Args:
        folder: of the run.
        own: what its model answered.
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
                found[name] = type(own)(name, items)
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
