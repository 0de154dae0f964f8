"""How a run's sources were read: print it, record it, and refuse what must be a mistake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cfaug.core.errors import UserError
from cfaug.core.world_source import is_questions, is_world, world_part
from cfaug.planning.sources import say_once

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.settings import DataSettings
    from cfaug.planning.sources import Opened


def describe_sources(data: DataSettings, opened: Opened) -> dict[str, dict[str, Any]]:
    """Return {role of a source: the form in which it was read} for every source that is read."""
    named = {"real": data.real, "counterfactual": data.counterfactual}
    named["control"] = data.control_source
    found = {}
    for role, name in named.items():
        index: Index | None = getattr(opened, role)
        if index is not None and index.reading is not None:
            found[role] = {"source": name, **index.reading.json()}
    return found


def say_sources(sources: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a line for each source on stderr, once; no line for parts of the embedded world.

    Args:
        sources: {role: the form in which its source was read}, from ``describe_sources``.
    """
    from cfaug.data.index.reading import ScanReport

    for role, about in sources.items():
        if not is_world(about["source"]):
            say_once(ScanReport.of_json(about).line(role, about["source"]))


def say_source(role: str, name: str, index: Index) -> None:
    """Print a line for one source, once; no line for a part of the embedded world."""
    if index.reading is not None and not is_world(name):
        say_once(index.reading.line(role, name))


def check_sources(data: DataSettings, opened: Opened) -> None:
    """Refuse sources that must have been named by mistake."""
    real, counterfactual = opened.real, opened.counterfactual
    if real is not None and counterfactual is not None and real.hash == counterfactual.hash:
        raise UserError(
            f"data.real={data.real} and data.counterfactual={data.counterfactual} hold the same "
            "images with the same captions: name the counterfactuals, or train on real data only "
            "with data.cf_ratio=0. If it is pairs, list their originals alone in a captions.csv of "
            "their own for data.real, which takes every image of a source"
        )
    sources = {"data.real": real, "data.counterfactual": counterfactual}
    _refuse_choices(sources)
    _check_classes({**sources, "data.control_source": opened.control})
    _warn_of_pairs(data.real, real)
    # A source that says which captions were edited may have any number of them.
    singles = data.counterfactual_members in ("singles", "edited")
    # Its wrong captions have no image: a setting for them means single images.
    wrong = counterfactual is not None and data.negatives is not None
    wrong = wrong and cast("Index", counterfactual).has_negatives
    if counterfactual is not None and not singles and not wrong:
        _refuse_singles("data.counterfactual", data.counterfactual, counterfactual)
    if data.control == "counterfactual" and opened.control is not None and not singles:
        _refuse_singles("data.control_source", data.control_source, opened.control)
    if data.pairs_in_batch and counterfactual is not None:
        _refuse_no_pair(data, counterfactual)
    if data.counterfactual_members == "singles" and counterfactual is not None:
        _refuse_pairs(data, counterfactual)


def check_undrawn(data: DataSettings, words: Sequence[str]) -> None:
    """Refuse a typed source that does not exist, though nothing is drawn from it.

    It names the source of the experiment's other arms, so that an arm of real data alone has it on
    its command line, too.

    """
    from cfaug.data.sources.remote import is_remote
    from cfaug.data.sources.row import split_home
    from cfaug.shapescapes.parts import check_part

    for role, needed in zip(("real", "counterfactual"), data.needed, strict=True):
        name = getattr(data, role)
        typed = any(word.startswith(f"data.{role}=") for word in words)
        if needed or not typed or name is None or is_remote(name):
            continue
        if is_world(name):
            check_part(world_part(name).partition("@")[0])
        elif not is_questions(name) and not split_home(Path(name).expanduser())[0].exists():
            raise UserError(
                f"data.{role}={name} does not exist; nothing is drawn from it at "
                f"data.cf_ratio={data.cf_ratio:g}, so it may also be left out"
            )


def _refuse_choices(sources: Mapping[str, Index | None]) -> None:
    """Refuse tests with false captions, which would be trained on as true ones."""
    from cfaug.data.sources.compositional import FORMS

    choices = {form.kind: form.form for form in FORMS if form.is_choice}
    for setting, index in sources.items():
        if index is not None and index.kind in choices:
            raise UserError(
                f"{setting}={index.source} holds {choices[index.kind]}, a test whose false "
                "captions would be trained on as true ones: ask it with benchmark=choice"
            )


def _check_classes(sources: Mapping[str, Index | None]) -> None:
    """Refuse captions that name classes by numbers, and warn of classes with equal captions."""
    from cfaug.data.index.index import all_captioned_classes
    from cfaug.data.sources.row import (
        class_caption,
        class_words,
        equal_names_warning,
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
        if (warning := equal_names_warning(words, where)) is not None:
            say_once(warning)


def _warn_of_pairs(name: str | None, real: Index | None) -> None:
    """Warn that counterfactuals in ``data.real`` count as real data."""
    reading = None if real is None else real.reading
    if name is None or is_world(name) or reading is None or not reading.counterfactual_sets:
        return
    say_once(
        f"warning: data.real={name} has {reading.counterfactual_sets:,} counterfactual sets, whose "
        "counterfactuals count as real data, too: for a baseline without them list the originals "
        "alone in a captions.csv of their own"
    )


def _refuse_singles(setting: str, name: str | None, index: Index) -> None:
    from cfaug.data.sources import PAIRED

    reading = index.reading
    if name is None or is_world(name) or reading is None:
        return  # parts of the world without pairs are meant as controls
    if 2 * reading.counterfactual_sets >= reading.sets:
        return
    forms = "\n".join(f"  {one.description}" for one in PAIRED)
    found = f"{reading.counterfactual_sets:,} of its {reading.sets:,} sets are"
    raise UserError(
        f"{setting}={name} holds no counterfactual pairs: it was read as {reading.form}, and "
        f"{found if reading.counterfactual_sets else 'none of its sets is'} an image and its "
        f"counterfactual, each with its caption (first: {reading.example[0]!r}). Forms of pairs:"
        f'\n{forms}\n(README, "Your own data"). If you want single images, as a control without '
        "pairs, add data.counterfactual_members=singles"
    )


def _refuse_pairs(data: DataSettings, index: Index) -> None:
    reading = index.reading
    if reading is not None and 2 * reading.counterfactual_sets >= reading.sets:
        raise UserError(
            "data.counterfactual_members=singles is for sources of single images, and "
            f"data.counterfactual={data.counterfactual} holds pairs (it was read as "
            f"{reading.form}), all of which are drawn without it: leave it out, or choose edited "
            "or unedited"
        )


def _refuse_no_pair(data: DataSettings, index: Index) -> None:
    reading = index.reading
    if reading is not None and not reading.counterfactual_sets:
        raise UserError(
            f"data.pairs_in_batch=true keeps the members of a counterfactual set in one batch, and "
            f"data.counterfactual={data.counterfactual} has no set of two (it was read as "
            f"{reading.form}): leave it out, or name a source of pairs"
        )
