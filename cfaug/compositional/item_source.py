"""The source of a compositional test's items: its lists, and photos in another folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from cfaug.compositional.item_counts import describe_count
from cfaug.core.errors import UserError
from cfaug.core.messages import say_once
from cfaug.core.read_with import FOLDER, ReadWith
from cfaug.core.world_source import is_world
from cfaug.data.sources import detect, importer_of, item_list
from cfaug.data.sources.captioned_parquet import split_home
from cfaug.data.sources.compositional import FORMS, ITEM_LISTS, ItemList
from cfaug.evaluation.source import SourceBenchmark

if TYPE_CHECKING:
    from cfaug.core.protocols import Benchmark
    from cfaug.data.index import Index
    from cfaug.evaluation.context import EvaluationContext

Missing = Literal["refuse", "skip"]


@dataclass
class ItemSource(SourceBenchmark):
    """A benchmark of items whose photos may be in another folder.

    Args:
        data: the folder of the items.
        name: the name in tables, ending in the kind; ``None`` takes the folder's name.
        batch_size: number of images or texts computed at once.
        without_leaks: whether to leave out items that show an image that the run was trained on;
            otherwise they are only reported.
        images: the folder of the photos that are named in lists; ``None`` looks in the usual places
            in and beside ``data``.
        missing: whether items whose photo is missing or unreadable are refused or skipped.
        form: the name of the test, if a folder holds several, such as ``aro_relation``; ``None``
            recognises it.

    Raises:
        UserError: if ``missing`` or ``form`` is invalid.
    """

    images: str | None = None
    missing: Missing = "refuse"
    form: str | None = None

    read_with: ClassVar[ReadWith] = {
        name: {"data": FOLDER} for name in ("images", "missing", "form")
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = [form.kind for form in FORMS]
        if self.form is not None and self.form not in kinds:
            raise UserError(
                f"benchmark.form={self.form} is invalid: choose from {', '.join(kinds)}"
            )

    @property
    def layout(self) -> str:
        """Where to get the files of the form and how to lay them out; "" without a form."""
        return next((one.get for one in FORMS if one.kind == self.form), "")

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        """Open the items and return a list of this benchmark.

        Raises:
            UserError: if no folder is given, it holds another test or does not fit, or photos are
                missing.
        """
        source = self.source()
        if is_world(source):
            return super().open(context)
        reader = self._reader(Path(source).expanduser())
        if reader is None:
            self._refuse_settings_of_lists(context.open(source))
        else:
            if context.read is None:
                raise UserError(f"benchmark={self.kind} cannot be run here: evaluate.py runs it")
            index = context.read(reader, source)
            context = replace(context, open=lambda _: index)
        self._check_form(context.open(source))
        opened = super().open(context)
        if said := describe_count(context.open(source)):
            say_once(said, str(Path(source).absolute()))
        return opened

    def _reader(self, folder: Path) -> ItemList | None:
        """Return the reader of lists, if the settings say more than the folder does."""
        if self.images is None and self.missing == "refuse" and self.form is None:
            return None
        if not split_home(folder)[0].is_dir():
            raise UserError(f"there is no folder {folder}{self.layout and f': {self.layout}'}")
        named = [one for one in ITEM_LISTS if one.kind == self.form]
        found = next((one for one in named if one.recognises(folder)), None)
        if self.form is None:
            found = item_list(folder)
        if found is None:
            self._check_known(folder)
            return None
        images = () if self.images is None else (_images(self.images),)
        return ItemList(found.item_form, images, self.missing == "skip")

    def _check_known(self, folder: Path) -> None:
        """Refuse a folder that no reader recognises, saying what it should contain."""
        if not self.layout or ":" in folder.name or importer_of(folder.resolve()) is not None:
            return
        try:
            detect(folder.resolve())
        except UserError as error:
            form = next(one.form for one in FORMS if one.kind == self.form)
            raise UserError(f"{folder} does not hold {form}: {self.layout}") from error

    def _refuse_settings_of_lists(self, index: Index) -> None:
        """Refuse settings of photos that a list names, for a source that holds its photos."""
        given = [] if self.images is None else [f"images={self.images}"]
        given += [] if self.missing == "refuse" else [f"missing={self.missing}"]
        if given:
            raise UserError(
                f"benchmark.{given[0]} would have no effect: it is about the photos that the lists "
                f"of a released set name, and {index.source} ({_form(index)}) is no such list; "
                "leave it out"
            )

    def _check_form(self, index: Index) -> None:
        """Refuse a folder that contains a test other than the one named, or none of them."""
        kinds = {form.kind: form.form for form in FORMS}
        if self.form is None or index.kind in (self.form, *NEARLY.get(self.form, ())):
            return
        if index.kind not in kinds:
            raise UserError(
                f"{index.source} ({_form(index)}) does not hold {kinds[self.form]}: name another "
                "folder, or benchmark.form=null for sets of your own"
            )
        raise UserError(
            f"{index.source} holds {kinds[index.kind]}, not {kinds[self.form]}: name another "
            f"folder, or benchmark.form={index.kind}"
        )


NEARLY = {"aro_relation": ("aro_order",), "aro_attribution": ("aro_order",)}
"""Forms that also count as another form."""


def _form(index: Index) -> str:
    return index.kind if index.reading is None else index.reading.form


def _images(folder: str) -> Path:
    found = Path(folder).expanduser().resolve()
    if not found.is_dir():
        raise UserError(f"benchmark.images: there is no folder {found}")
    return found
