"""The items of a compositional test: their source, their number and their tags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from cfaug.core.binding import FOLDER, ReadWith
from cfaug.core.errors import UserError, say, say_once
from cfaug.core.types import CLUSTER, ITEM
from cfaug.core.weights import is_world
from cfaug.data.sources import find_reader, item_list
from cfaug.data.sources.compositional import FORMS, ITEM_LISTS, ItemList
from cfaug.data.sources.compositional.item import CATEGORY, RELEASED
from cfaug.data.sources.row import split_home
from cfaug.evaluation.benchmark import SourceBenchmark

if TYPE_CHECKING:
    from cfaug.core.protocols import Benchmark
    from cfaug.data.index import Index
    from cfaug.evaluation.context import EvaluationContext


# The source of a compositional test's items: its lists, and photos in another folder.

Missing = Literal["refuse", "skip"]


@dataclass
class ItemSource(SourceBenchmark):
    """A benchmark of items whose photos may be in another folder.

    Args:
        name: the name in tables, ending in the kind; ``None`` takes the folder's name.
        batch_size: number of images or texts computed at once.
        without_leaks: whether to leave out items that show an image that the run was trained on;
            otherwise they are only reported.
        images: the folder of the photos that are named in lists; ``None`` looks in the usual places
            in and beside ``data``.
        missing: whether items whose photo is missing or unreadable are refused or skipped.
        form: the name of the test, if a folder holds several, such as ``aro_relation``; ``None``
            recognises it.
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
        return next((form.get for form in FORMS if form.kind == self.form), "")

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        """Open the items and return a list of this benchmark."""
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
        if text := describe_count(context.open(source)):
            say_once(text, str(Path(source).absolute()))
        return opened

    def _reader(self, folder: Path) -> ItemList | None:
        """Return the reader of lists, if the settings say more than the folder does."""
        if self.images is None and self.missing == "refuse" and self.form is None:
            return None
        if not split_home(folder)[0].is_dir():
            raise UserError(f"there is no folder {folder}{self.layout and f': {self.layout}'}")
        named = [candidate for candidate in ITEM_LISTS if candidate.kind == self.form]
        reader = next((candidate for candidate in named if candidate.recognises(folder)), None)
        if self.form is None:
            reader = item_list(folder)
        if reader is None:
            if self.layout and ":" not in folder.name:
                try:
                    find_reader(folder.resolve())
                except UserError as error:
                    form = next(known.form for known in FORMS if known.kind == self.form)
                    raise UserError(f"{folder} does not hold {form}: {self.layout}") from error
            return None
        images = () if self.images is None else (Path(self.images).expanduser().resolve(),)
        for photos in images:
            if not photos.is_dir():
                raise UserError(f"benchmark.images: there is no folder {photos}")
        return ItemList(reader.item_form, images, self.missing == "skip")

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


# Count the items of a compositional test, and compare with the number in the released files.


def count_items(index: Index) -> Counter[str]:
    """Return the number of items in each category; "" for items without one."""
    if CATEGORY not in index.extra_names:
        return Counter({"": int(index.sets[-1]) + 1})
    of_first = index.extra(CATEGORY).to_pylist()
    sets = index.sets.tolist()
    firsts = [row for row, number in enumerate(sets) if row == 0 or sets[row - 1] != number]
    return Counter(of_first[row] or "" for row in firsts)


def describe_count(index: Index) -> str:
    """Say in a sentence how many items a source has, and the released number.

    Returns:
        The sentence; "" if the released number is unknown, or equal and without a remark.
    """
    known = RELEASED.get(index.kind)
    if known is None:
        return ""
    counts = count_items(index)
    total = sum(counts.values())
    form = index.reading.form if index.reading is not None else index.kind
    if total == known.items and not known.remark:
        return ""
    text = f"{form}: {total:,} items"
    if total != known.items:
        text += f", where the released files have {known.items:,}"
        differing = [
            f"{name} {counts[name]:,} for {count:,}"
            for name, count in known.by_category.items()
            if counts[name] != count and set(counts) != {""}
        ]
        text += f" ({', '.join(differing)})" if differing else ""
    return f"{text}; {known.remark}" if known.remark else text


# A source's tags of test items: their category, and further tags to report by.

Tags = Mapping[str, Sequence[tuple[str, ...]]]
"""{tag: the values of each item}: usually one value, () if the source gives none."""


def read_tags(benchmark: str, index: Index, first: np.ndarray, names: Sequence[str]) -> Tags:
    """Return the category of items, where there is one, and further tags.

    A tag is an extra column of an item's first member: a text, or a list of texts.

    Args:
        first: the row of the first member of each item, int64 (items,).
    """
    wanted = dict.fromkeys([*([CATEGORY] if CATEGORY in index.extra_names else []), *names])
    tags = {name: read_tag(benchmark, index, first, name) for name in wanted}
    without = sum(not values for values in tags.get(CATEGORY, []))
    if without:
        say(f"{benchmark}: {without} of {len(first)} items have no category, and count in none")
    return tags


def check_tags(tags: Collection[str], metrics: Collection[str], *beginnings: str) -> None:
    """Refuse tags with the name of another column of the items or another part of a test.

    Args:
        beginnings: prefixes of the names of the benchmark's other columns, such as ``text``.
    """
    for name in tags:
        if name in (ITEM, CLUSTER, "group", "image", *metrics) or name.startswith(beginnings):
            raise UserError(
                f"benchmark.tags: {name!r} is a name that the benchmark uses itself: rename the "
                "column of the source"
            )


def read_tag(benchmark: str, index: Index, rows: np.ndarray, name: str) -> list[tuple[str, ...]]:
    """Return the values of one tag at some rows.

    Args:
        rows: rows of the source, integers (rows,).
    """
    tags = []
    for value, row in zip(index.extra_values(name, rows), rows, strict=True):
        given = value if isinstance(value, list) else [value]
        if not all(part is None or isinstance(part, str | int | float) for part in given):
            where = f"{benchmark}: {name} of {index.key(int(row))}"
            raise UserError(f"{where} should be a text or a list of texts, not {value!r:.100}")
        texts = (str(part).strip() for part in given if part is not None)
        tags.append(tuple(dict.fromkeys(text for text in texts if text)))
    return tags


def only(values: Sequence[tuple[str, ...]]) -> list[str | None]:
    """Return a column of items: several values joined by commas, ``None`` for no value.

    >>> only([("add",), (), ("hard", "visual")])
    ['add', None, 'hard, visual']
    """
    return [", ".join(texts) if texts else None for texts in values]


def parts_by(tags: Tags) -> Iterator[tuple[dict[str, str], np.ndarray]]:
    """Yield an outcome's ``by`` and a mask of its items, bool (items,), for every value of a tag.

    >>> [(by, own.tolist()) for by, own in parts_by({"tag": [("a",), ("b", "a")]})]
    [({'tag': 'a'}, [True, True]), ({'tag': 'b'}, [False, True])]
    """
    for name, values in tags.items():
        for value in sorted({text for texts in values for text in texts}):
            yield {name: value}, np.array([value in texts for texts in values])
