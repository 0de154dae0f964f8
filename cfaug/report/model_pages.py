"""The common base of pages about models' answers: one per model, and one of all models together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

from cfaug.core.errors import UserError, say
from cfaug.core.types import ITEM
from cfaug.report.gallery import ShownPicture, contrast, show_picture
from cfaug.report.items import ModelItems, read_items
from cfaug.report.page import render, script_data, write_page

ReadImage = Callable[[str], bytes]
"""A function that returns an encoded image by its name."""

Own = TypeVar("Own", bound=ModelItems)

MODELS = 8
"""Most runs of an experiment that a page shows side by side."""


@dataclass(frozen=True)
class ImageSource:
    """The source of a page's images.

    Attributes:
        read: function that returns an encoded image by its name.
        describe: function that returns its caption by its name; ``None`` for no captions.
    """

    read: ReadImage
    describe: Callable[[str], str] | None = None

    def once(self) -> ImageSource:
        """Return a source of the same images that reads each image only once, for several pages."""
        return ImageSource(cache(self.read), self.describe)


class PageContent(Protocol):
    """The content of a page before its pictures are read."""

    @property
    def verdicts(self) -> Sequence[str]:
        """Return the sentences at the top of the page; the first is its heading."""

    @property
    def subtitle(self) -> str:
        """Return how many of the items are shown."""

    @property
    def images(self) -> Mapping[str, str]:
        """Return {digest or name: name} of the images, in the order of their numbers."""

    def content(self) -> dict[str, Any]:
        """Return the script's data without the pictures; afterwards ``images`` is complete."""


def page_file(benchmark: str) -> str:
    """Return the file name of a benchmark's page beside a run's results.

    >>> page_file("sets/social_skew")
    'sets%2Fsocial_skew.html'
    """
    return f"{quote(benchmark, safe='')}.html"


@dataclass(frozen=True)
class ModelPage(Generic[Own]):
    """The definition of the page of a benchmark's answers, for one model or several.

    Attributes:
        template: file name of the template, which extends ``models.html``.
        kind: class that reads a run's items.
        what: word for items, in the plural.
        make: function that makes the content of the page from answers.
        side: longest side of the pictures, in pixels.
        most: most models on one page; with more runs in an experiment no common page is written, as
            a sweep would rewrite it after each of them. ``None`` for any number.
        remedy: advice in the error about models with different items.
    """

    template: str
    kind: type[Own]
    what: str
    make: Callable[[Sequence[Own]], PageContent]
    side: int
    most: int | None = MODELS
    remedy: str = "evaluate both with the same benchmark.data and settings"

    def write(self, answers: Sequence[Own], file: Path, images: ImageSource, *, title: str) -> Path:
        """Write the page and return its path; equal answers give equal bytes.

        Args:
            answers: answers of one model or several to the same items.
            file: destination; its folder is created if missing.
        """
        require_same_items(answers, self.what, self.remedy)
        text = draw_page(self.template, title, self.make(answers), images, self.side)
        return write_page(file, text)

    def write_for_run(
        self, folder: Path, model: str, benchmark: str, images: ImageSource, name: str | None = None
    ) -> Path:
        """Write the page of one model beside its results, and one of all above their folders.

        "All" are the models of its experiment with the same items, if there are several.

        Args:
            folder: folder of the run, with its ``items``; its page is written there.
            model: the model's name on the page.
            benchmark: the benchmark's name; its items lie in the folder.
            images: source of the pictures; each is read once.
            name: file name of the pages; ``None`` is the benchmark's, see ``page_file``.

        Returns:
            The page of the model.
        """
        own = read_own(folder, model, benchmark, self.kind)
        once = images.once()

        def write(answers: Sequence[Own], file: Path, title: str) -> Path:
            return self.write(answers, file, once, title=title)

        return write_with_siblings(folder, own, name or page_file(benchmark), write, self.most)


def draw_page(template: str, title: str, page: PageContent, images: ImageSource, side: int) -> str:
    """Return a page that extends ``models.html``; equal answers give equal text.

    Args:
        side: longest side of the pictures, in pixels.
    """
    content = page.content()
    pictures = show_pictures(page.images, images.read, side)
    shown = [dict(picture.about) for picture in pictures]
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
    """Return the answers of a run's model.

    Args:
        folder: folder of the run, with its ``items``.
        model: the model's name on pages.
        benchmark: the benchmark's name; its items lie in the folder.
    """
    items = read_items(folder, benchmark)
    if items is None:
        raise UserError(
            f"{folder} has no items of {benchmark}: run evaluate.py benchmark={kind.ASKED_BY}"
        )
    return kind(model, items)


def require_names(answers: Sequence[ModelItems]) -> None:
    """Refuse a page without models, or with two of the same name."""
    if not answers:
        raise UserError("a page of no model's answers cannot be written")
    names = [answer.model for answer in answers]
    if len(set(names)) < len(names):
        raise UserError(f"models have duplicated names: {', '.join(names)}")


def require_same_items(answers: Sequence[ModelItems], what: str, remedy: str) -> None:
    """Refuse a page of models with different items, without models, or with equal names.

    Args:
        answers: answers of several models, which should be to the same items.
        remedy: advice in the error on making the models comparable.
    """
    require_names(answers)
    first = answers[0]
    for answer in answers[1:]:
        if answer.texts(ITEM) != first.texts(ITEM):
            raise UserError(
                f"{first.model} and {answer.model} answered different {what} and cannot share a "
                f"page: {remedy}"
            )


def write_with_siblings(
    folder: Path,
    own: Own,
    name: str,
    write: Callable[[Sequence[Own], Path, str], Path],
    most: int | None = None,
) -> Path:
    """Write the page of one model beside its results, and one of all models above their folders.

    Those are the models of its experiment with the same items, if there are several.

    Args:
        folder: folder of the run; its page is written there.
        own: answers of the run's model.
        write: function that writes the page of some answers into a file, with a title.
        most: most models on one page; with more runs in an experiment no common page is written, as
            a sweep would rewrite it after each of them. ``None`` for any number.

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
    """Return the answers of the experiment's other models to the same items.

    Args:
        folder: folder of the run, beside those of the other models.
        own: answers of the run's model.
        page: path of the page, for messages about runs that cannot be read, which are left out.
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
    """Return the folders of an experiment's runs, including that of the run itself."""
    return sorted(folder.parent.parent.glob("*/seed=*"))


def show_pictures(
    images: Mapping[str, str], read_image: ReadImage, side: int
) -> list[ShownPicture]:
    """Return small copies of images in order, made on all cores.

    Args:
        side: longest side of the copies, in pixels.
    """

    def small(name: str) -> ShownPicture:
        return show_picture(read_image(name), name, side)

    # Pillow releases the interpreter's lock while it decodes, shrinks and encodes.
    with ThreadPoolExecutor() as pool:
        return list(pool.map(small, images.values()))
