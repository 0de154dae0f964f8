"""Benchmarks whose answers are shown on a page, with their images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cfaug.core.errors import UserError

if TYPE_CHECKING:
    from typing import Any

    from cfaug.report.model_pages import ImageSource, ModelPage

Found = TypeVar("Found")


class WritesModelPage:
    """A benchmark with a page of each model's answers, and one of all models of an experiment.

    It is a ``KeepsPages``. A benchmark says how the page is made
    (``model_page``), and where its pictures come from (``page_images``).

    Attributes:
        page: number of items to show; ``None`` writes no page.
    """

    name: str | None
    page: int | None

    def model_page(self) -> ModelPage[Any]:
        """Return how to make the page."""
        raise NotImplementedError

    def page_images(self) -> ImageSource:
        """Return a reader of its pictures, by their names in the items."""
        raise NotImplementedError

    @property
    def page_files(self) -> tuple[str, ...]:
        """Names of the files that ``write_page`` writes beside a run's results."""
        from cfaug.report.model_pages import page_file

        return () if self.page is None else (page_file(str(self.name)),)

    def write_page(self, folder: Path, title: str) -> Path | None:
        """Write the page of a run's answers, and that of all models of its experiment.

        Args:
            folder: the folder of the run, to which its items have been written.
            title: the model's name on the page.

        Returns:
            The page; ``None`` if the benchmark writes no page.
        """
        if self.page is None:
            return None
        images = self.page_images()
        return self.model_page().write_for_run(folder, title, str(self.name), images)

    def reader(self, find: Callable[[str], Found | None], source: object) -> Callable[[str], Found]:
        """Return a function that finds an image by name and refuses names that are not in the data.

        Args:
            find: a function that returns the image of a name; ``None`` if the name is unknown.
            source: the data that hold the images, for the error.
        """
        from cfaug.report.items import how_to_renew

        def read(name: str) -> Found:
            found = find(name)
            if found is None:
                raise UserError(
                    f"{self.name}: its items name {name!r}, which is not an image of {source}; "
                    f"{how_to_renew(str(self.name))}"
                )
            return found

        return read
