"""The examples of ``generate.py``: captions, grids, any source of images, the embedded world."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from cfaug.core.errors import UserError, say
from cfaug.core.types import Example
from cfaug.core.worlds import is_world, local_source, world_of
from cfaug.data.sources.fields import Fields, fields_phrase, reading_by, refuse_unused
from cfaug.data.sources.lists import LISTS
from cfaug.data.sources.row import Description, split_home
from cfaug.generate.recipe import ExamplePer
from cfaug.generate.source import group_by_image, read_captions
from cfaug.planning.build import build
from cfaug.planning.sources import (
    part_folder,
    permitted_roots,
    say_planned,
    say_source,
    settle_part,
)

MODIFIED = "modified_captions"
"""The kind of an index of texts and their edits."""
Reader = Callable[[str, "ExampleSettings"], Sequence[Example]]
"""A function that reads the examples of a source or grid by its name."""


@dataclass(frozen=True)
class ExampleSettings:
    """The settings of the examples.

    Attributes:
        source: a list of captions, a list about photos that has a form of its own (SNLI-VE's, the
            csv of XMAI's authors), a folder in any form that ``cfaug.data.sources`` knows, or
            ``shapescapes:PART``; a question set if examples are questions; ``None`` if no examples
            are needed, or a grid is named.
        world: node of the embedded world's settings; ``None`` for no world.
        extra: columns of a list of captions that become ``Example.extra``; all columns of a folder
            do.
        per: ``text``, ``image`` or ``questions``, as in ``cfaug.generate.recipe.Recipe``.
        limit: number of examples to take from the start; ``None`` takes all.
        seed: the seed of a world without a seed of its own.
        paths: ``worlds``, ``cache`` and ``image_roots``.
        grid: a grid of captions, by its name or file (``caption_grids``); ``None`` for
            no grid.
        leave_out: {``colour`` or ``background``: share of the world's captions that omit it};
            ``None`` omits nothing.
        fields: the names of the source's own columns (``cfaug.data.sources.fields``).
        reader: a reader of the user's own (``cfaug.data.sources.own_rows``).
    """

    source: str | None
    world: Mapping[str, Any] | None
    extra: Sequence[str]
    per: ExamplePer
    images: bool
    limit: int | None
    seed: int
    paths: Mapping[str, Any]
    grid: str | None = None
    keep_duplicates: bool = False
    leave_out: Mapping[str, float] | None = None
    fields: Fields = field(default_factory=dict)
    reader: Any = None


def open_examples(settings: ExampleSettings) -> Callable[[], Sequence[Example]]:
    """Return the reader of the examples, in the source's order."""
    name = settings.source
    if settings.grid is not None:
        if name is not None:
            raise UserError(
                f"data.source={name} and data.grid={settings.grid} both name examples: give one, "
                "the other null"
            )
        return partial(_read_grid, settings.grid, settings)
    if settings.keep_duplicates:
        raise UserError("data.keep_duplicates=true is about a grid's subjects: it needs data.grid")
    if name is None:
        raise UserError(
            "say which examples: data.source=FILE (captions: jsonl, csv, tsv or txt) or FOLDER, or "
            "data.grid=NAME or FILE.yaml, for a recipe of grids"
        )
    reader = _choose_reader(name, settings)
    if reader is _read_world and settings.world is None:
        raise UserError(f"data.source={name} needs data.world: choose zoo=shapescapes")
    if reader not in (_read_world, _read_questions) and settings.leave_out is not None:
        raise UserError(
            f"data.leave_out is about captions of the embedded world: with data.source={name} give "
            "zoo=captions or data.leave_out=null"
        )
    return partial(reader, name, settings)


def settings_read(settings: ExampleSettings) -> tuple[str, ...]:
    """Return the settings of ``data`` that are read beside ``source`` and ``grid``."""
    if settings.grid is not None:
        return READ_BY[_read_grid]
    if settings.source is None:
        return ()
    return READ_BY[_choose_reader(settings.source, settings)]


def _choose_reader(name: str, settings: ExampleSettings) -> Reader:
    if settings.per == "questions":
        return _read_questions
    if is_world(name):
        return _read_world
    home = split_home(Path(local_source(name)).expanduser())[0]
    if settings.reader is not None:
        return _read_folder
    if home.suffix.lower() not in (".txt", *LISTS) or home.is_dir():
        return _read_folder
    # A list of captions, or a list about photos in a format of its own.
    from cfaug.data.sources import is_photo_list
    from cfaug.data.sources.xmai import is_modified_list

    with reading_by(settings.fields):
        has_photos = is_photo_list(home)
        if is_modified_list(home) and not (settings.images and has_photos):
            return _read_originals
    return _read_folder if has_photos else _read_list


def _read_questions(name: str, settings: ExampleSettings) -> Sequence[Example]:
    from cfaug.data.questions import example_of
    from cfaug.data.sources.question_sets import read_questions

    images = read_questions(name, permitted_roots(settings.paths))
    say_planned(
        f"questions: {sum(len(image.questions) for image in images):,} about {len(images):,} images"
    )
    return tuple(example_of(image) for image in images[: settings.limit])


def _read_originals(name: str, settings: ExampleSettings) -> Sequence[Example]:
    """Return the original texts of a list of edited captions."""
    from cfaug.data.sources.xmai import original_examples, read_modified_captions

    with reading_by(settings.fields) as names:
        captions = read_modified_captions(name)
    refuse_unused(settings.fields, None, {name: names.describe(Description())})
    if captions.duplicates:
        say(f"{name}: {captions.duplicates} duplicated captions are left out", sys.stdout)
    examples = original_examples(captions)
    return (group_by_image(examples) if settings.per == "image" else examples)[: settings.limit]


def _read_grid(name: str, settings: ExampleSettings) -> Sequence[Example]:
    from cfaug.editing.caption_grids import read_grid

    grid = read_grid(name, keep_duplicates=settings.keep_duplicates)
    say_planned(grid.line())
    return tuple(islice(grid.examples(), settings.limit))


def _read_list(name: str, settings: ExampleSettings) -> Sequence[Example]:
    limit = settings.limit if settings.per == "text" else None
    with reading_by(settings.fields) as names:
        caption_list = read_captions(name, limit, settings.extra)
    described = names.describe(Description())
    refuse_unused(settings.fields, None, {name: described})
    if caption_list.duplicates:
        say(f"{name}: {caption_list.duplicates} duplicated captions are left out", sys.stdout)
    by_fields = f"; {fields_phrase(described.renamed)}" if described.renamed else ""
    say_planned(caption_list.line(name) + by_fields)
    if settings.per == "text":
        return caption_list.captions
    return group_by_image(caption_list.captions)[: settings.limit]


def _read_folder(name: str, settings: ExampleSettings) -> Sequence[Example]:
    from cfaug.data.index import open_index

    roots = permitted_roots(settings.paths)
    with reading_by(settings.fields, settings.reader):
        index = open_index(local_source(name), Path(settings.paths["cache"]), roots)
    refuse_unused(settings.fields, settings.reader, {name: index.reading})
    say_source("source", name, index)
    if index.kind == MODIFIED:  # only the original text of each pair
        every = _read_index(index, replace(settings, limit=None))
        return tuple(example for example in every if example.key.endswith("_0"))[: settings.limit]
    return _read_index(index, settings)


def _read_index(index: Any, settings: ExampleSettings) -> Sequence[Example]:
    from cfaug.data.index.index import examples

    per: Literal["image", "text"] = "text" if settings.per == "text" else "image"
    limited = islice(examples(index, per), settings.limit)
    return tuple(
        limited if settings.images else (replace(example, image=None) for example in limited)
    )


def _read_world(name: str, settings: ExampleSettings) -> Sequence[Example]:
    """Return the unedited examples of a part of the world: the first member of each set, or all."""
    from cfaug.data.index import open_index
    from cfaug.data.shards.shards import read_sets

    assert settings.world is not None
    worlds, known = Path(settings.paths["worlds"]), world_of(name)
    part, world = known.find_part(name), build(settings.world)
    every: Iterator[Example]
    whole = part.partition("@")[0] in known.unedited
    if settings.images or whole:
        folder = part_folder(name, world, settings.seed, worlds)
        index = open_index(folder, Path(settings.paths["cache"]))
        unedited = _read_index(index, replace(settings, limit=None))
        every = (example for example in unedited if whole or example.key.endswith("_0"))
    else:
        if settings.limit is None:
            sets = read_sets(part_folder(name, world, settings.seed, worlds))
        else:  # a few captions need no drawing of the whole part
            plain, settled = settle_part(world, settings.seed, part)
            sets = known.draw_sets(settled, plain)
        every = (
            Example(counterfactual.key, counterfactual.group, (counterfactual.members[0].text,))
            for counterfactual in sets
        )
    if settings.leave_out is not None:
        seed = settings.seed if world.seed is None else world.seed
        every = map(known.shorten_captions(settings.leave_out, seed), every)
    return tuple(islice(every, settings.limit))


READ_BY: Mapping[Reader, tuple[str, ...]] = {
    _read_grid: ("keep_duplicates",),
    _read_questions: (),
    _read_world: ("world", "leave_out"),
    _read_list: ("extra", "fields"),
    _read_originals: ("fields",),
    _read_folder: ("fields", "reader"),
}
"""The settings of ``data`` that each reader uses beside the name of what it reads."""
