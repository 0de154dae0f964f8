"""The sources of the node data: opened, described, and refused where that must be a mistake."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from cfaug.core.errors import UserError, say_once
from cfaug.core.processes import hold_lock, speaks
from cfaug.core.safety.addresses import find_typed, hide
from cfaug.core.stores import (
    is_store,
    lock_of,
    mirror_folder,
    open_mirror,
)
from cfaug.core.worlds import is_questions, is_world, local_source, world_of, world_part
from cfaug.data.mixture.settings import LabelData, Sources
from cfaug.stats.ranking import KS

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.near_duplicates import NearDuplicates
    from cfaug.data.mixture.records import HeldOutTest, Join
    from cfaug.data.mixture.settings import DataSettings
    from cfaug.data.questions import QuestionImage
    from cfaug.train.settings import LossSettings


NAMED = 3
"""Most captions that a message names."""
SMALL_FILE = re.compile(r"(?:\d+|card|chosen|run|imported)\.json")
"""Names of the files of a folder of shards that are copied before it is indexed."""
SOURCE = "data.source"
"""The setting of ``generate.py`` that names the source of the examples."""


def open_source(
    name: str,
    world: Any | None,
    data_seed: int | None,
    shards: Path,
    cache: Path,
    image_roots: Sequence[Path] = (),
    *,
    fetch: bool = False,
) -> Index:
    """Open the index of a folder, or of ``shapescapes:PART``, which is drawn on first use.

    Args:
        name: a folder, the address of remote shards or of a folder of an object store, or
            ``shapescapes:PART``.
        data_seed: the seed of a world without a seed of its own.
        fetch: whether remote shards may be copied: only for names on the command line, never for
            names from a run's folder, which could hold any address or program.
    """
    from cfaug.data.index import open_index
    from cfaug.data.sources.remote import check_scheme, fetch_shards, find_copies, is_remote

    name = hide(local_source(name))  # from a run's folder, or Python; a command hid its own
    folder: str | Path | None = name
    if is_store(name):
        folder = _mirror_shards(name, cache, fetch=fetch)
    elif is_remote(name):
        folder = fetch_shards(name, cache) if fetch else find_copies(name, cache)
    elif is_world(name):
        settings = _require_world(world, name)
        folder = part_folder(name, settings, data_seed, shards)
        image_roots = ()  # it names no images elsewhere
    else:
        check_scheme(name)
    if folder is None:
        same = "" if find_typed(name) is None else " that was made with the same secrets"
        raise UserError(
            f"{name} is remote, and paths.cache={cache} has no copy{same}: evaluate.py fetches "
            "nothing; `python train.py data=folder data.cf_ratio=0 dry_run=true data.real=...` "
            "does"
        )
    return open_index(folder, cache, image_roots)


def _mirror_shards(name: str, cache: Path, *, fetch: bool) -> Path:
    """Return the mirror of a store's folder of shards, whose tars may all be only in the store.

    Args:
        fetch: whether it is brought up to date; otherwise it is taken as it was left.
    """
    folder = mirror_folder(name, cache, "read")
    if not fetch and not folder.is_dir():
        raise UserError(
            f"{name} is in an object store, and paths.cache={cache} knows nothing of it: "
            "evaluate.py asks no store that a run names; `python train.py data=folder "
            "data.cf_ratio=0 dry_run=true data.real=...` does"
        )
    mirror = open_mirror(name, cache, "read")
    if fetch:
        with hold_lock(lock_of(folder)):
            mirror.pull(lambda name: SMALL_FILE.fullmatch(name) is not None)
    if next(folder.glob("[0-9]*.json"), None) is None:
        raise UserError(
            f"{name} holds no committed shards of cfaug (NNNNN.tar with NNNNN.json). Tars of other "
            "origin are named one by one, as in .../{00000..00099}.tar, and copied"
        )
    return folder


def open_questions(
    name: str,
    world: Any | None,
    data_seed: int | None,
    image_roots: Sequence[Path] = (),
) -> list[QuestionImage]:
    """Open a set of questions about images: a file, a folder, or ``shapescapes_vqa:PART``.

    Args:
        data_seed: the seed of a world without a seed of its own.
    """
    from cfaug.data.sources.question_sets import read_questions

    if not is_questions(name):
        return read_questions(name, image_roots)
    part, settled = settle_part(_require_world(world, name), data_seed, world_part(name))
    return list(world_of(name).draw_questions(settled, part))


def permitted_roots(paths: Mapping[str, Any]) -> tuple[Path, ...]:
    """Return the folders in which a list may name images, beside its own.

    Only the command line permits them: a run's folder has no ``paths``.
    """
    named = paths.get("image_roots") or []
    if isinstance(named, str) or not all(isinstance(folder, str) for folder in named):
        raise UserError(
            f"paths.image_roots={named} should be a list of folders: 'paths.image_roots=[/photos]'"
        )
    roots = tuple(Path(os.path.abspath(Path(folder).expanduser())) for folder in named)
    missing = next((root for root in roots if not root.is_dir()), None)
    if missing is not None:
        raise UserError(f"paths.image_roots: there is no folder {missing}")
    return roots


def _require_world(world: Any | None, name: str) -> Any:
    if world is None:
        raise UserError(f"{name} needs data.world: choose data=shapescapes, or name a file")
    return world


class Opened(Sources):
    """The sources of data settings, and their part in a run's identity."""

    @property
    def content(self) -> dict[str, str]:
        """The hash of each source by name, which replaces paths in a run's identity."""
        return {name: index.hash for name, index in vars(self).items() if index is not None}


def open_data(data: DataSettings, open_one: Callable[[str], Index], shards: Path) -> Opened:
    """Open the sources that the settings need, and no others."""
    from cfaug.data.mixture.pool import read_labels

    real, counterfactual = needed_sources(data)
    labels = None
    if data.human_labels is not None and counterfactual is not None:
        labels = read_labels(label_file(data.human_labels, data.world, data.seed, shards))
    opened = Opened(
        real=None if real is None else open_one(real),
        counterfactual=None if counterfactual is None else open_one(counterfactual),
        control=None if data.control_source is None else open_one(data.control_source),
        labels=labels,
    )
    index = opened.counterfactual
    if is_store(str(real)) or is_store(str(counterfactual)):
        places = [
            opened_index.source if opened_index is not None and is_store(str(name)) else name
            for name, opened_index in ((real, opened.real), (counterfactual, index))
        ]
        _refuse_mixed_worlds([real, counterfactual], places)
    if labels is not None and index is not None and (missing := labels.count_unlabelled(index)):
        say_planned(
            f"{missing:,} of {len(index):,} images of {index.source} have no label in "
            f"{labels.file}: none of them is drawn"
        )
    return opened


def check_negatives(opened: Opened, loss: LossSettings | None) -> None:
    """Refuse captions without an image if no setting says how to use them."""
    if loss is not None and loss.negative_captions is not None:
        return
    for name in ("real", "counterfactual", "control"):
        index: Index | None = getattr(opened, name)
        if index is not None and index.has_negatives:
            raise UserError(
                f"{index.source} has captions without an image beside those of its images. "
                "loss=negatives takes them as negatives of every image in their batch (NegCLIP); "
                "with loss.negative_captions=ignored as well, the same data are trained on without "
                "them"
            )


def needed_sources(data: DataSettings) -> tuple[str | None, str | None]:
    """Return the names of the sources that are read, with ``None`` for one that is not."""
    names = []
    setting = f"plan={data.plan.name}" if data.plan else f"cf_ratio={data.cf_ratio}"
    for role, needed in zip(("real", "counterfactual"), data.needed, strict=True):
        name = getattr(data, role) if needed else None
        if needed and name is None:
            raise UserError(f"data.{setting} needs data.{role}=FOLDER")
        names.append(name)
    if not any(is_store(str(name)) for name in names):  # known once they are opened
        _refuse_mixed_worlds(names, names)
    return names[0], names[1]


def _refuse_mixed_worlds(names: Sequence[str | None], folders: Sequence[str | None]) -> None:
    if all(folders) and len({shows_world(str(folder)) for folder in folders}) == 2:
        raise UserError(
            f"data.real={names[0]} and data.counterfactual={names[1]} mix the embedded world with "
            "your own data: give both, or data.cf_ratio=0 for real data only"
        )


def report_join(join: Join, opened: Opened, kept: Path) -> None:
    """Print how many real captions were edited, and some originals that are not among them.

    All of these originals are written to a file in ``kept``, named after both sources' content.
    """
    from cfaug.core.atomic_files import write_file

    assert opened.real is not None
    assert opened.counterfactual is not None
    line = f"{int(join.rows.sum()):,} captions of {opened.real.source} were edited"
    if join.missed:
        named = ", ".join(f"{key} {text!r}" for key, text in join.missed[:NAMED])
        more = ", ..." if len(join.missed) > NAMED else ""
        both = hashlib.sha256((opened.real.hash + opened.counterfactual.hash).encode())
        file = kept.expanduser() / f"missed-{both.hexdigest()[:16]}.jsonl"
        lines = [json.dumps({"key": key, "caption": text}) for key, text in join.missed]
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_file(file, ("\n".join(lines) + "\n").encode())
        except OSError as error:
            raise UserError(f"cannot write what the join missed to {file}: {error}") from error
        line += (
            f"; {len(join.missed):,} of {int(opened.counterfactual.sets[-1]) + 1:,} originals of "
            f"{opened.counterfactual.source} are not among them ({named}{more}): all in {file}"
        )
    say_planned(line)


def report_held_out(held: HeldOutTest, data: DataSettings) -> None:
    """Print what is held out as the test set of every arm, and what is not drawn because of it."""
    every = len(np.unique(held.source.images))
    line = (
        f"held out as the test set of every arm (data.holdout={data.holdout}): {held.images:,} of "
        f"{every:,} images of {held.source.source}"
    )
    if data.held_out_role == "counterfactual":
        line += ", the counterfactual source, as there is no data.real"
    roles = ("real", "counterfactual", "control")
    for role, count in zip(roles, held.not_drawn, strict=True):
        if count:
            line += f"; {count:,} {role} examples of these photos are not drawn"
    if held.copies:
        line += f"; {held.copies:,} of these show one of them under another name"
    if held.images <= max(KS):  # of text to image, which is always right among so few
        *others, last = (f"at {k}" for k in KS if k >= held.images)
        which = f"{', '.join(others)} and {last}" if others else last
        few = f"recall {which} among so few is always 1"
        if isinstance(data, LabelData):
            few = f"accuracy moves by {100 / held.images:.0f} points with each of so few images"
        line += f"; {few}: a larger data.holdout is a better test"
    say_planned(line)


def report_near(near: NearDuplicates) -> None:
    """Print how many images nearly equal images of the held-out test, or refuse them."""
    if near.pairs and near.rule.action == "refuse":
        raise UserError(
            f"{near}, such as {near.pairs[0]}: data.near_duplicates=leave_out leaves them out of "
            "the training, report lists them with pictures in the folder of the run"
        )
    say_planned(f"near-duplicates of the held-out test: {near}")


def say_planned(line: str) -> None:
    """Print a line of the plan once for all runs of a sweep and all processes."""
    if speaks():
        say_once(line)


def label_file(name: str, world: Any | None, data_seed: int | None, shards: Path) -> Path:
    """Return a file of human labels, or of the world oracle's answers for a part of pairs.

    Args:
        name: a file, or ``shapescapes:PART``, whose answers are written on first use.
        data_seed: the seed of a world without a seed of its own.
    """
    if not is_world(name):
        return Path(name)
    part, settled = settle_part(_require_world(world, name), data_seed, world_part(name))
    return world_of(name).write_labels(settled, part, shards)


def shows_world(name: str) -> bool:
    """Say whether a source shows the embedded world: a part of it, or images of its captions."""
    if is_world(name):
        return True
    from cfaug.generate.folder import read_record

    folder = Path(local_source(name))
    made = None if folder.is_file() else read_record(folder)
    return made is not None and is_world(str(made.captions.get(SOURCE, "")))


def part_folder(name: str, settings: Any, data_seed: int | None, shards: Path) -> Path:
    """Return the shards of the part that a source names, made first if they do not exist.

    ``PART@STYLE`` is the same part in another style: the same scenes, rendered differently. A
    world without a seed takes the data seed.
    """
    part, settled = settle_part(settings, data_seed, world_part(name))
    return world_of(name).write_part(settled, part, shards)


def settle_part(world: Any, data_seed: int | None, part: str) -> tuple[str, Any]:
    """Return a part's name without its style, and its world with the seed and the style."""
    part, _, style = part.partition("@")
    settled = world if world.seed is not None else replace(world, seed=data_seed)
    return part, replace(settled, style=style) if style else settled


# How a run's sources were read: print it, record it, and refuse what must be a mistake.


def describe_sources(data: DataSettings, opened: Opened) -> dict[str, dict[str, Any]]:
    """Return {role of a source: the form in which it was read} for every source that is read."""
    named = {"real": data.real, "counterfactual": data.counterfactual}
    named["control"] = data.control_source
    forms = {}
    for role, name in named.items():
        index: Index | None = getattr(opened, role)
        if index is not None and index.reading is not None:
            forms[role] = {"source": name, **index.reading.json()}
    return forms


def say_sources(sources: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a line for each source on stderr, once; no line for parts of the embedded world.

    Args:
        sources: {role: the form in which its source was read}, from ``describe_sources``.
    """
    from cfaug.data.index.reading import ScanReport

    for role, about in sources.items():
        if not is_world(about["source"]):
            say_planned(ScanReport.of_json(about).line(role, about["source"]))


def say_source(role: str, name: str, index: Index) -> None:
    """Print a line for one source, once; no line for a part of the embedded world."""
    if index.reading is not None and not is_world(name):
        say_planned(index.reading.line(role, name))


def check_sources(data: DataSettings, opened: Opened) -> None:
    """Refuse sources that must have been named by mistake."""
    from cfaug.data.sources.compositional import choice_of

    real, counterfactual = opened.real, opened.counterfactual
    if real is not None and counterfactual is not None and real.hash == counterfactual.hash:
        raise UserError(
            f"data.real={data.real} and data.counterfactual={data.counterfactual} hold the same "
            "images with the same captions: name the counterfactuals, or train on real data only "
            "with data.cf_ratio=0. If it is pairs, list their originals alone in a captions.csv of "
            "their own for data.real, which takes every image of a source"
        )
    sources = {"data.real": real, "data.counterfactual": counterfactual}
    for setting, index in sources.items():
        choice = None if index is None else choice_of(index.kind)
        if index is not None and choice is not None:
            raise UserError(
                f"{setting}={index.source} holds {choice}, a test whose false "
                "captions would be trained on as true ones: ask it with benchmark=choice"
            )
    _check_classes({**sources, "data.control_source": opened.control})
    reading = None if real is None or is_world(str(data.real)) else real.reading
    if reading is not None and reading.counterfactual_sets:
        say_planned(
            f"warning: data.real={data.real} has {reading.counterfactual_sets:,} counterfactual "
            "sets, whose counterfactuals count as real data, too: for a baseline without them list "
            "the originals alone in a captions.csv of their own"
        )
    # A source that says which captions were edited may have any number of them.
    singles = data.counterfactual_members in ("singles", "edited")
    # Its wrong captions have no image: a setting for them means single images.
    wrong = counterfactual is not None and data.negatives is not None
    wrong = wrong and cast("Index", counterfactual).has_negatives
    if counterfactual is not None and not singles and not wrong:
        _refuse_singles("data.counterfactual", data.counterfactual, counterfactual)
    if data.control == "counterfactual" and opened.control is not None and not singles:
        _refuse_singles("data.control_source", data.control_source, opened.control)
    read = None if counterfactual is None else counterfactual.reading
    if data.pairs_in_batch and read is not None and not read.counterfactual_sets:
        raise UserError(
            f"data.pairs_in_batch=true keeps the members of a counterfactual set in one batch, and "
            f"data.counterfactual={data.counterfactual} has no set of two (it was read as "
            f"{read.form}): leave it out, or name a source of pairs"
        )
    asks_singles = data.counterfactual_members == "singles"
    if asks_singles and read is not None and 2 * read.counterfactual_sets >= read.sets:
        raise UserError(
            "data.counterfactual_members=singles is for sources of single images, and "
            f"data.counterfactual={data.counterfactual} holds pairs (it was read as {read.form}), "
            "all of which are drawn without it: leave it out, or choose edited or unedited"
        )


def check_names(data: DataSettings, opened: Opened) -> None:
    """Refuse fields and a reader that no source uses; say so if one is named that is not read."""
    from cfaug.data.sources.fields import refuse_unused

    named = [data.real, data.counterfactual, data.control_source]
    indexes = [opened.real, opened.counterfactual, opened.control]
    pairs = zip(named, indexes, strict=True)
    unread = [n for n, index in pairs if index is None and n is not None and not is_world(n)]
    read = {index.source: index.reading for index in indexes if index is not None}
    try:
        refuse_unused(data.fields, data.reader, read)
    except UserError as error:
        if not unread:
            raise
        say_planned(f"note: {error} ({', '.join(unread)} is not read by this run)")


def check_undrawn(data: DataSettings, words: Sequence[str]) -> None:
    """Refuse a typed source that does not exist, though nothing is drawn from it.

    It names the source of the experiment's other arms, so that an arm of real data alone has it on
    its command line, too.
    """
    from cfaug.data.sources.remote import is_remote
    from cfaug.data.sources.row import split_home

    for role, needed in zip(("real", "counterfactual"), data.needed, strict=True):
        name = getattr(data, role)
        name = None if name is None else local_source(name)
        typed = any(word.startswith(f"data.{role}=") for word in words)
        if needed or not typed or name is None or is_remote(name) or is_store(name):
            continue
        if is_world(name):
            world_of(name).check_part(world_part(name).partition("@")[0])
        elif not is_questions(name) and not split_home(Path(name).expanduser())[0].exists():
            raise UserError(
                f"data.{role}={name} does not exist; nothing is drawn from it at "
                f"data.cf_ratio={data.cf_ratio:g}, so it may also be left out"
            )


def _check_classes(sources: Mapping[str, Index | None]) -> None:
    """Refuse captions that name classes by numbers, and warn of classes with equal captions."""
    from cfaug.data.index.index import all_captioned_classes
    from cfaug.data.sources.row import (
        class_caption,
        class_words,
        equal_names_warning,
        names_warning,
        require_names,
    )

    for setting, index in sources.items():
        classes = None if index is None else all_captioned_classes(index)
        if index is None or not classes:
            continue
        words, where = [class_words(label) for label in classes], f"{setting}={index.source}"
        require_names(
            words, where,
            f"learn from: captions would be like {class_caption(classes[0])!r}. Write names as "
            "labels (folders called by them, labels.csv, classnames.txt beside tars, ClassLabel "
            "names in parquet), or captions.csv (image, caption)",
        )  # fmt: skip
        names = "Name folders by their classes, or write captions.csv (image, caption)"
        for warning in (
            equal_names_warning(words, where),
            names_warning(classes, words, where, names),
        ):
            if warning is not None:
                say_planned(warning)


def _refuse_singles(setting: str, name: str | None, index: Index) -> None:
    from cfaug.data.sources import PAIRED

    reading = index.reading
    if name is None or is_world(name) or reading is None:
        return  # parts of the world without pairs are meant as controls
    if 2 * reading.counterfactual_sets >= reading.sets:
        return
    forms = "\n".join(f"  {form.description}" for form in PAIRED)
    share = f"{reading.counterfactual_sets:,} of its {reading.sets:,} sets are"
    raise UserError(
        f"{setting}={name} holds no counterfactual pairs: it was read as {reading.form}, and "
        f"{share if reading.counterfactual_sets else 'none of its sets is'} an image and its "
        f"counterfactual, each with its caption (first: {reading.example[0]!r}). Forms of pairs:"
        f'\n{forms}\n(README, "Your own data"). If you want single images, as a control without '
        "pairs, add data.counterfactual_members=singles"
    )
