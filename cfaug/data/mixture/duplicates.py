"""Images with several names: an image belongs to one group, whatever its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from cfaug.data.mixture.keys import is_among


class Pictured(Protocol):
    """The parts of an index that are needed here."""

    @property
    def groups(self) -> np.ndarray:
        """Code of each row's group, uint64."""
        ...

    @property
    def contents(self) -> np.ndarray:
        """Code of each row's image by its bytes, uint64."""
        ...


def join_groups(sources: Sequence[Pictured | None]) -> list[np.ndarray]:
    """Return the group codes of each source, uint64 (rows,), equal for groups that share an image.

    So no split separates two copies of an image, or a photo from a set that shows it under another
    name. Joined groups have the code of a group in the first source that has one: a source's groups
    stay unchanged unless other sources join them.

    Args:
        sources: the indexes; ``None`` has no rows.
    """
    groups = [np.empty(0, np.uint64) if one is None else np.asarray(one.groups) for one in sources]
    linked = _links(sources, groups)
    if not linked.size:
        return groups
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    nodes, ends = np.unique(linked, return_inverse=True)
    first, second = ends.reshape(linked.shape)
    pairs = coo_array((np.ones(len(first), bool), (first, second)), shape=(len(nodes),) * 2)
    _, component = connected_components(pairs, directed=False)
    rank = np.full(len(nodes), len(sources))  # the first source that has the group
    places = [_places(own, nodes) for own in groups]
    for number, (at, found) in reversed(list(enumerate(places))):
        rank[at[found]] = number
    order = np.lexsort((nodes, rank, component))
    starts = np.flatnonzero(np.r_[True, np.diff(component[order]) != 0])
    code = nodes[order][starts][component]
    return [np.where(found, code[at], own) for own, (at, found) in zip(groups, places, strict=True)]


def _places(groups: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each group's place among the ascending nodes, and whether it is there."""
    at = np.minimum(np.searchsorted(nodes, groups), len(nodes) - 1)
    return at, nodes[at] == groups


def _links(sources: Sequence[Pictured | None], groups: Sequence[np.ndarray]) -> np.ndarray:
    """Return pairs of codes of groups that share an image, uint64 (2, links)."""
    contents = [
        np.empty(0, np.uint64) if one is None else np.asarray(one.contents) for one in sources
    ]
    image = np.concatenate([np.empty(0, np.uint64), *contents])
    group = np.concatenate([np.empty(0, np.uint64), *groups])
    # Captions of one image are adjacent: a row that repeats the one before links nothing new.
    new = np.ones(len(image), bool)
    new[1:] = (image[1:] != image[:-1]) | (group[1:] != group[:-1])
    image, group = image[new], group[new]
    ordered = np.sort(image)  # a tenth of the time of an argsort; most sources end here
    again = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    some = is_among(image, again)
    image, group = image[some], group[some]
    order = np.argsort(image)
    image, group = image[order], group[order]
    same = (image[1:] == image[:-1]) & (group[1:] != group[:-1])
    return np.stack([group[:-1][same], group[1:][same]])


def count_joined_groups(sources: Sequence[Pictured | None]) -> int:
    """Return the number of groups that share an image with another group."""
    before = [np.empty(0, np.uint64) if one is None else np.asarray(one.groups) for one in sources]
    after = join_groups(sources)
    codes = [np.concatenate(groups) for groups in (before, after)]
    pairs = np.unique(np.stack(codes, axis=1), axis=0)
    _, sizes = np.unique(pairs[:, 1], return_counts=True)
    return int(sizes[sizes > 1].sum())
