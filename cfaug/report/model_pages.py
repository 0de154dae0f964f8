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
        what: word for items, in the plural.
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
        """Write the page and return its path; equal answers give equal bytes."""
        require_same_items(answers, self.what, self.remedy)
        page = self.make(answers)
        content = page.content()

        def small(name: str) -> ShownPicture:
            return show_picture(images.read(name), name, self.side)

        # Pillow releases the interpreter's lock while it decodes, shrinks and encodes.
        with ThreadPoolExecutor() as pool:
            pictures = list(pool.map(small, page.images.values()))
        shown = [dict(picture.about) for picture in pictures]
        if images.describe is not None:
            for about, name in zip(shown, page.images.values(), strict=True):
                about["t"] = images.describe(name)
        text = render(
            self.template,
            title=title,
            verdicts=list(page.verdicts),
            subtitle=page.subtitle,
            contrast=contrast(pictures),
            data=script_data({**content, "pictures": shown}),
        )
        return write_page(file, text)

    def write_for_run(
        self, folder: Path, model: str, benchmark: str, images: ImageSource, name: str | None = None
    ) -> Path:
        """Write the page of one model beside its results, and one of all above their folders.

        "All" are the models of its experiment with the same items, if there are several; runs that
        cannot be read are left out.

        Args:
            folder: folder of the run, with its ``items``; its page is written there, and returned.
            images: source of the pictures; each is read once.
            name: file name of the pages; ``None`` is the benchmark's, see ``page_file``.
        """
        current = read_own(folder, model, benchmark, self.kind)
        once, name = images.once(), name or page_file(benchmark)
        page = self.write([current], folder / name, once, title=f"{model}, {benchmark}")
        together = folder.parent.parent / name
        runs = sorted(folder.parent.parent.glob("*/seed=*"))
        if self.most is not None and len(runs) > self.most:
            return page
        others: dict[str, Own] = {}
        for other in runs:
            if other.resolve() == folder.resolve():
                continue
            try:
                items = read_items(other, benchmark)
                if items is not None and items.data == current.items.data:
                    arm = other.parent.name
                    arm = f"{arm}, {other.name}" if arm in (model, *others) else arm
                    others[arm] = self.kind(arm, items)
            except UserError as error:
                say(f"left out of {together}: {error}")
        if others:
            answers = sorted([current, *others.values()], key=lambda answer: answer.model)
            self.write(answers, together, once, title=benchmark)
        return page


def read_own(folder: Path, model: str, benchmark: str, kind: type[Own]) -> Own:
    """Return the answers of a run's model, from the ``items`` in its folder."""
    items = read_items(folder, benchmark)
    if items is None:
        raise UserError(
            f"{folder} has no items of {benchmark}: run evaluate.py benchmark={kind.ASKED_BY}"
        )
    return kind(model, items)


def require_same_items(answers: Sequence[ModelItems], noun: str, remedy: str) -> None:
    """Refuse a page of models with different items, without models, or with equal names."""
    if not answers:
        raise UserError("a page of no model's answers cannot be written")
    names = [answer.model for answer in answers]
    if len(set(names)) < len(names):
        raise UserError(f"models have duplicated names: {', '.join(names)}")
    first = answers[0]
    for answer in answers[1:]:
        if answer.texts(ITEM) != first.texts(ITEM):
            raise UserError(
                f"{first.model} and {answer.model} answered different {noun} and cannot share a "
                f"page: {remedy}"
            )
