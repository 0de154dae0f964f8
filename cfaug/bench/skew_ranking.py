"""The images of a subject in order of their cosine to its neutral prompt, and their labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfaug.bench.grid_sets import GridImages, GridSets
from cfaug.bench.skew_labellings import find_labellings
from cfaug.bench.skew_rows import GridLabels, RankedSubject
from cfaug.errors import UserError
from cfaug.metrics.ranking import Candidates, first_equal, unit
from cfaug.metrics.skew import rank_images


def rank_subject(
    sets: GridSets, grid: GridImages, number: int, query: np.ndarray, images: np.ndarray
) -> RankedSubject:
    """Rank a subject's images; equal embeddings tie, and ties go by a hash of the image's key.

    Args:
        sets: whose subjects and names.
        grid: whose images.
        number: of the subject.
        query: embedding (dim,) of its neutral prompts.
        images: embeddings (images, dim) of the grid.

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
        raise UserError(f"{error}{''.join(such)}; nothing can be ranked by it") from error
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
    """Return every labelling of a grid's images that is asked for.

    Args:
        grid: whose images.
        asked: as for ``find_labellings``.

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
