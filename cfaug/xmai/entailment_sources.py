"""Sources of labelled hypotheses: sets of two texts, SNLI-VE itself, lists without photos."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.messages import say
from cfaug.core.types import ENTAILMENT
from cfaug.data.sources.modified_captions import read_modified_captions
from cfaug.data.sources.snli_ve import PREMISE
from cfaug.evaluation.feature_cache import image_keys
from cfaug.evaluation.fingerprint import fingerprint
from cfaug.evaluation.item_names import cluster_rows, name_rows
from cfaug.xmai.text_pairs import EDIT, TextPairs, read_caption_list

if TYPE_CHECKING:
    from cfaug.data.index import Index

NAMED = 3
"""Texts that a message names."""


def holds_changes(index: Index) -> bool:
    """Return whether a source has texts before and after a change, not just hypotheses."""
    if EDIT[0] in index.extra_names and index.extra(EDIT[0]).null_count < len(index):
        return True
    sets, images = np.asarray(index.sets), np.asarray(index.images)
    if len(sets) % 2 or (np.bincount(sets) != 2).any() or (images[::2] != images[1::2]).any():
        return False
    return all(index.text(row) == index.text(row + 1) for row in range(0, len(index), 2))


def read_hypotheses(method: str, index: Index, rows: np.ndarray | None) -> TextPairs:
    """Return unchanged hypotheses: each is its own text before and after.

    A hypothesis that is duplicated for a photo counts once, as for XMAI's authors (42 of 17,901 in
    SNLI-VE's test part).

    Args:
        method: the source's name in tables.
        index: the source.
        rows: the rows to use; ``None`` for all.

    Raises:
        UserError: if there are no hypotheses.
    """
    chosen = np.arange(len(index)) if rows is None else np.sort(rows)
    if not len(chosen):
        raise UserError(f"{index.source} has no hypotheses")
    first: dict[tuple[bytes, str], int] = {}
    for key, row in zip(image_keys(index, chosen), chosen.tolist(), strict=True):
        first.setdefault((key, index.text(row)), row)
    if len(first) < len(chosen):
        say(
            f"{index.source}: {len(chosen) - len(first):,} hypotheses are duplicates for the same "
            "photo and are left out"
        )
    chosen = np.array(sorted(first.values()))
    texts = tuple(index.text(int(row)) for row in chosen)
    return TextPairs(
        method=method,
        source=index.source,
        keys=tuple(name_rows(index, chosen)),
        originals=texts,
        changed=texts,
        clusters=tuple(cluster_rows(index, chosen)),
        kinds=("",) * len(chosen),
        labels=tuple(index.label(int(row)) or "" for row in chosen),
        index=index,
        rows=np.stack([chosen, chosen], axis=1),
        hash=fingerprint(index.hash, chosen),
    )


def lacks_photos(file: Path) -> bool:
    """Return whether a list of modified texts does not name the photos."""
    try:
        rows = read_modified_captions(file).rows
    except UserError:  # another kind of list, which its reader will report
        return False
    return bool(rows) and all(row.image is None and row.premise == row.group for row in rows)


def find_photos(method: str, file: Path, index: Index) -> TextPairs:
    """Return the texts of a list, each with the photo of the same hypothesis in another source.

    Args:
        method: the name of the method that changed the texts; "" takes the file's name.
        file: a list of modified hypotheses.
        index: labelled hypotheses with their premises and photos.

    Raises:
        UserError: if the source has no premises, or none of the texts is in it.
    """
    if PREMISE not in index.extra_names:
        raise UserError(
            f"benchmark.photos: {index.source} has no premises to find texts by: name SNLI-VE "
            "itself, as in benchmark.photos=SNLI_VE:test"
        )
    if not file.is_file():
        raise UserError(
            f"benchmark.data={file}: there is no such file; with benchmark.photos it is a list of "
            "modified hypotheses"
        )
    premises = index.extra(PREMISE).to_pylist()
    row_of: dict[tuple[str, str], int] = {}
    for row, premise in enumerate(premises):
        row_of.setdefault((str(premise).strip(), index.text(row).strip()), row)
    pairs = read_caption_list(method, file)
    asked = [
        ((one.premise or "").strip(), one.original.strip())
        for one in read_modified_captions(file).rows
    ]
    places = [at for at, words in enumerate(asked) if words in row_of]
    if not places:
        raise UserError(
            f"{file}: none of its {len(asked):,} hypotheses is among those of {index.source}, such "
            f"as {asked[0][1][:80]!r}: is it of another part?"
        )
    if len(places) < len(asked):
        say(
            f"{file}: {len(asked) - len(places):,} of {len(asked):,} hypotheses are not in "
            f"{index.source} and are left out"
        )
    found = pairs.choose(places)
    rows = np.array([row_of[asked[at]] for at in places])
    return TextPairs(
        method=found.method, source=found.source, keys=found.keys, originals=found.originals,
        changed=found.changed, clusters=tuple(cluster_rows(index, rows)), kinds=found.kinds,
        labels=found.labels, index=index, rows=np.stack([rows, rows], axis=1),
        hash=fingerprint(found.hash, index.hash, rows),
    )  # fmt: skip


def check_entailment_labels(pairs: TextPairs) -> None:
    """Refuse texts whose label is not one of the three.

    Raises:
        UserError: naming the source, how many, and one of them.
    """
    wrong = [at for at, label in enumerate(pairs.labels) if label not in ENTAILMENT]
    if wrong:
        label = pairs.labels[wrong[0]]
        what = f"the label {label[:40]!r}" if label else "no label"
        names = ", ".join(pairs.keys[at] for at in wrong[:NAMED])
        raise UserError(
            f"{pairs.source}: {len(wrong):,} of {len(pairs):,} hypotheses have no label of "
            f"{', '.join(ENTAILMENT)} ({names}{', ...' if len(wrong) > NAMED else ''}), the first "
            f"has {what}: benchmark=entailment asks about labelled hypotheses, such as SNLI-VE's, "
            "or those that a recipe made from them"
        )
