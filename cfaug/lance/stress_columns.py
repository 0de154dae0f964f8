"""The items of a stress test: one row per image; see ``cfaug.lance.stress``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.types import CLUSTER, ITEM, ORIGINAL
from cfaug.evaluation.feature_cache import image_keys
from cfaug.evaluation.item_names import cluster_rows
from cfaug.lance.classifier_answers import SHOWN
from cfaug.lance.stress_sets import JoinedSets

if TYPE_CHECKING:
    from cfaug.lance.classifier_answers import Answers

PASSED_ON = {"prompt": "prompt", "f": "p"}
"""Columns that are copied from a source if it has them: the perturber's prompt, and the share of
denoising steps with the photo's own self-attention, ``p`` of ``Draw``."""


def item_columns(one: JoinedSets, answers: Answers, shown: np.ndarray) -> dict[str, Any]:
    """Return the columns of the items of one folder.

    Args:
        one: the folder's photos and their edits.
        answers: the classifier's answers to all images of the folder, in the order of its rows.
        shown: whether each image is an item, bool (images,).
    """
    photo = np.searchsorted(one.rows, one.photos)
    control = np.where(one.controls < 0, -1, np.searchsorted(one.rows, one.controls))
    columns: dict[str, Any] = {
        **_names(one, photo),
        "class_name": answers.class_name,
        "class_number": answers.number,
        **answers.hits,
        "rank": answers.rank,
        "p": answers.p,
        **_differences(answers, one, photo, control),
        **_top(answers),
        **{
            name: one.column(column)
            for name, column in PASSED_ON.items()
            if column in one.index.extra_names
        },
    }
    return {name: choose(values, shown) for name, values in columns.items()}


def item_names(one: JoinedSets) -> list[str]:
    """Return the name of each row's item."""
    return [f"{part}/{key}" for part, key in zip(one.parts, one.keys, strict=True)]


def _names(one: JoinedSets, photo: np.ndarray) -> dict[str, Any]:
    index, rows = one.index, one.rows
    keys = one.keys
    before, after = one.column("edit_before"), one.column("edit_after")
    texts = [index.text(int(row)) for row in rows]
    return {
        ITEM: item_names(one),
        CLUSTER: cluster_rows(index, rows),
        "set": one.parts,
        "photo": [f"{ORIGINAL}/{keys[at]}" for at in photo],
        "photos": one.counted,
        "kind": one.kinds,
        "class": one.labels,
        "before": ["" if word is None else str(word) for word in before],
        "after": ["" if word is None else str(word) for word in after],
        "text_before": [texts[at] for at in photo],
        "text": texts,
        "source": [index.source] * len(rows),
        "key": [key.rpartition("_")[0] for key in keys],
        "member": np.array([int(key.rpartition("_")[2]) for key in keys]),
        "image": [digest.hex() for digest in image_keys(index, rows)],
    }


def _differences(
    answers: Answers, one: JoinedSets, photo: np.ndarray, control: np.ndarray
) -> dict[str, np.ndarray]:
    """Return each image's differences from its photo and its reconstruction.

    ``nan`` if there is nothing to compare with: for photos, for reconstructions, and for images
    without a reconstruction.
    """

    def of_photo(values: np.ndarray) -> np.ndarray:
        return np.where(one.is_photo, np.nan, values[photo])

    def of_control(values: np.ndarray) -> np.ndarray:
        return np.where(one.is_edit & (control >= 0), values[control], np.nan)

    found = {
        "p_photo": of_photo(answers.p),
        "p_reconstruction": np.where(one.is_photo | (control < 0), np.nan, answers.p[control]),
    }
    found["p_drop"] = found["p_photo"] - answers.p
    found["delta_p"] = np.abs(found["p_drop"])
    for name, hits in answers.hits.items():
        k = name.removeprefix("acc")
        found[f"photo_{name}"] = of_photo(hits)
        found[f"paired_drop{k}"] = of_photo(hits) - hits
        found[f"net_drop{k}"] = of_control(hits) - hits
    return found


def _top(answers: Answers) -> dict[str, np.ndarray]:
    columns: dict[str, np.ndarray] = {}
    for n in range(min(SHOWN, answers.top.shape[1])):
        columns[f"top{n + 1}"] = answers.top[:, n]
        columns[f"top{n + 1}_p"] = answers.top_p[:, n]
    return columns


def choose(values: Any, shown: np.ndarray) -> Any:
    """Return the values of a column that are shown."""
    if isinstance(values, np.ndarray):
        return values[shown]
    return [value for value, chosen in zip(values, shown, strict=True) if chosen]


def concatenate_columns(pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Concatenate the columns of items; ``None`` where a piece lacks a column."""
    names = dict.fromkeys(name for piece in pieces for name in piece)
    found: dict[str, Any] = {}
    for name in names:
        values = [piece.get(name, [None] * len(piece[ITEM])) for piece in pieces]
        if all(isinstance(one, np.ndarray) for one in values):
            found[name] = np.concatenate(values)
        else:
            found[name] = [value for one in values for value in one]
    return found
