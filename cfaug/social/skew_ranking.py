"""The images of a subject in order of their cosine to its neutral prompt, and their labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.grids import ATTRIBUTES, GRID, SUBJECT, SUBJECT_TYPE
from cfaug.core.labellings import find_labellings
from cfaug.core.types import CLUSTER, ITEM, Column
from cfaug.social.grid_sets import GridImages, GridSets
from cfaug.social.skew_metrics import rank_images
from cfaug.social.skew_rows import GridLabels, RankedSubject
from cfaug.stats.ranking import Candidates, first_equal, unit


def rank_subject(
    sets: GridSets, grid: GridImages, number: int, query: np.ndarray, images: np.ndarray
) -> RankedSubject:
    """Rank a subject's images; equal embeddings tie, ordered by a hash of the image's key.

    Args:
        sets: the sets of all grids, with the subjects.
        grid: the grid to rank images of.
        number: the subject's position in ``sets.subjects``.
        query: embedding (dim,) of the subject's neutral prompts.
        images: embeddings (images, dim) of all images of the grid.

    Raises:
        UserError: if an embedding is NaN, infinite or zero, naming its image.
    """
    places = np.flatnonzero(grid.subjects == number)
    names = [sets.index.key(int(row)) for row in grid.rows[places]]
    own = images[places]
    try:
        direction = unit(query, f"the prompts of {sets.subjects[number]!r}")
        scores = Candidates(unit(own, "images"), first_equal(own)).score(direction[None])[0]
        order = rank_images(scores, names)
    except ValueError as error:
        wrong = places[~np.isfinite(own).all(axis=1) | ~own.any(axis=1)].tolist()
        such = [f", such as {sets.index.image_name(int(grid.rows[at]))}" for at in wrong[:1]]
        raise UserError(f"{error}{''.join(such)}; images cannot be ranked by it") from error
    return RankedSubject(
        grid=grid.name,
        members=int(np.prod([len(some) for some in grid.attributes.values()])),
        subject=sets.subjects[number],
        subject_type=sets.subject_types[number],
        places=places[order],
        sets=grid.sets[places][order],
        scores=scores[order],
        names=[names[at] for at in order.tolist()],
    )


def label_grid(grid: GridImages, asked: Sequence[str] | None) -> list[GridLabels]:
    """Return every requested labelling of a grid's images.

    Args:
        grid: the grid of the images.
        asked: the labellings, such as ``gender|race``, as for ``find_labellings``; ``None`` for the
            usual ones.

    Raises:
        UserError: as ``find_labellings`` does.
    """
    names = list(grid.attributes)
    found = []
    for labelling in find_labellings(grid.attributes, asked):
        codes, labels = grid.label(labelling.attributes)
        chosen = np.ones(len(grid.rows), bool)
        for name, value in labelling.given.items():
            chosen &= grid.values[:, names.index(name)] == grid.attributes[name].index(value)
        found.append(GridLabels(labelling, codes, labels, chosen))
    return found


def ranking_columns(sets: GridSets, ranked: Sequence[RankedSubject]) -> dict[str, Column]:
    """Return the rankings of a skew benchmark, one row per image; see ``bench.skew``.

    Args:
        sets: the sets that the ranked images belong to.
        ranked: the ranked images of every subject of every grid.
    """
    said: dict[str, list[list[str]]] = {name: [] for name in (ITEM, CLUSTER, ATTRIBUTES)}
    for one in ranked:
        grid = sets.grids[one.grid]
        said[ITEM].append(list(one.names))
        said[CLUSTER].append([sets.set_names[number] for number in one.sets.tolist()])
        kinds, place = np.unique(grid.values[one.places], axis=0, return_inverse=True)
        texts = [_attributes(grid, kind) for kind in kinds.tolist()]
        said[ATTRIBUTES].append([texts[at] for at in place.reshape(-1).tolist()])
    of_subject = {
        GRID: [one.grid for one in ranked],
        SUBJECT: [one.subject for one in ranked],
        SUBJECT_TYPE: [one.subject_type for one in ranked],
    }
    sizes = [len(one.places) for one in ranked]
    return {
        **{name: list(chain(*texts)) for name, texts in said.items()},
        **{name: np.repeat(np.array(texts, object), sizes) for name, texts in of_subject.items()},
        "place": np.concatenate([np.arange(size) for size in sizes]),
        "score": np.concatenate([one.scores for one in ranked]).astype(np.float64),
    }


def _attributes(grid: GridImages, numbers: Sequence[int]) -> str:
    """Return the values of an image's attributes by name, as JSON."""
    every = zip(grid.attributes.items(), numbers, strict=True)
    return json.dumps({name: some[number] for (name, some), number in every}, ensure_ascii=False)
