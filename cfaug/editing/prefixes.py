"""Shared computation for texts with common prefixes: rows of a causal model as trees.

The candidates of one caption differ in one word, and many captions begin with "a man". The tokens
of sorted texts form a tree whose nodes are distinct prefixes; a causal model in which every node
sees only its ancestors gives each text the same result as alone (to 3e-13 in float64).

transformers shares no prefixes across a batch: its caches extend one prefix at a time. For 160
candidates, 40 edits of the first or the last noun of each of 4 captions, trees take a fifth of the
time (0.4 s instead of 2 s with 6 layers of width 768 on one core).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NODES = 96
"""Largest number of prefixes in a tree: more share more, but attention costs grow quadratically."""


@dataclass(frozen=True)
class PrefixTree:
    """The distinct prefixes of some texts, parents before children.

    Attributes:
        texts: the indices of its texts in the given list.
        tokens: (nodes,) the last token of each prefix.
        depths: (nodes,) the number of tokens before it.
        parents: (nodes,) the node of the prefix that is one token shorter; -1 for the first token.
        paths: (texts, longest) the nodes of each text, -1 after its end.
    """

    texts: NDArray[np.int64]
    tokens: NDArray[np.int64]
    depths: NDArray[np.int64]
    parents: NDArray[np.int64]
    paths: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.tokens)

    def sums(self, costs: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the total cost of each text's nodes from its start on, (texts,).

        Args:
            costs: (nodes,) the cost of each node.
            starts: (texts,) the place of the first token that counts, at least 1: the very first
                token has no context and therefore no cost.
        """
        paths = self.paths[:, 1:]
        counted = (paths >= 0) & (np.arange(1, paths.shape[1] + 1) >= starts[:, None])
        return np.where(counted, costs[paths], 0.0).sum(1)


@dataclass(frozen=True)
class Stacked:
    """Trees side by side, padded to the largest.

    Attributes:
        tokens: (trees, nodes) the last token of each prefix.
        depths: (trees, nodes) the number of tokens before it.
        parents: (trees, nodes) the node's parent; -1 for first tokens and padding.
        shown: (trees, nodes) ``False`` for padding.
        rows: (followed nodes,) the tree of each node that has children.
        followed: (followed nodes,) the place in its tree of each node that has children.
        slots: (edges,) for each node with a parent, the parent's index in ``rows``, rising.
        children: (2, edges) the tree and the place of each node with a parent, in that order.
    """

    tokens: NDArray[np.int64]
    depths: NDArray[np.int64]
    parents: NDArray[np.int64]
    shown: NDArray[np.bool_]
    rows: NDArray[np.int64]
    followed: NDArray[np.int64]
    slots: NDArray[np.int64]
    children: NDArray[np.int64]

    def seen(self) -> NDArray[np.bool_]:
        """Return whether each node sees another, itself or an ancestor: (trees, nodes, nodes)."""
        trees, nodes = self.parents.shape
        seen = np.broadcast_to(np.eye(nodes, dtype=bool), (trees, nodes, nodes)).copy()
        for node in range(1, nodes):
            has = np.flatnonzero(self.parents[:, node] >= 0)
            # Parents come before children, so a parent's row is complete when it is copied.
            seen[has, node] |= seen[has, self.parents[has, node]]
        return seen


def stack(batch: Sequence[PrefixTree], fill: int) -> Stacked:
    """Stack trees; padding has the token ``fill`` and sees itself."""
    shape = len(batch), max(map(len, batch))
    tokens, depths, parents = np.full(shape, fill), np.zeros(shape, int), np.full(shape, -1)
    shown = np.zeros(shape, dtype=bool)
    for row, tree in enumerate(batch):
        tokens[row, : len(tree)] = tree.tokens
        depths[row, : len(tree)] = tree.depths
        parents[row, : len(tree)] = tree.parents
        shown[row, : len(tree)] = True
    children = np.stack(np.nonzero(parents >= 0))
    owners = children[0], parents[children[0], children[1]]
    followed = np.zeros(shape, dtype=bool)
    followed[owners] = True
    slots = (followed.cumsum().reshape(shape) - 1)[owners]
    order = slots.argsort(kind="stable")
    rows, places = np.nonzero(followed)
    return Stacked(tokens, depths, parents, shown, rows, places, slots[order], children[:, order])


def trees(texts: Sequence[Sequence[int]], nodes: int = NODES) -> Iterator[PrefixTree]:
    """Yield trees that contain each text once, of up to ``nodes`` prefixes or of a single text.

    >>> [tree.tokens.tolist() for tree in trees([[5, 1, 2], [5, 3], [5, 1, 4]])]
    [[5, 1, 2, 4, 3]]
    """
    order = sorted(range(len(texts)), key=lambda i: tuple(texts[i]))
    chosen: list[int] = []
    count = 0
    for i in order:
        shared = _shared(texts[chosen[-1]], texts[i]) if chosen else 0
        if chosen and count + len(texts[i]) - shared > nodes:
            yield _tree(chosen, texts)
            chosen, count, shared = [], 0, 0
        chosen.append(i)
        count += len(texts[i]) - shared
    if chosen:
        yield _tree(chosen, texts)


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix of two texts, in tokens."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))


def _tree(chosen: Sequence[int], texts: Sequence[Sequence[int]]) -> PrefixTree:
    """Return the tree of sorted texts."""
    tokens: list[int] = []
    depths: list[int] = []
    parents: list[int] = []
    paths = np.full((len(chosen), max(len(texts[i]) for i in chosen)), -1, dtype=np.int64)
    path: list[int] = []
    for row, i in enumerate(chosen):
        kept = _shared(texts[chosen[row - 1]], texts[i]) if row else 0
        path = path[:kept]
        for token in texts[i][kept:]:
            parents.append(path[-1] if path else -1)
            depths.append(len(path))
            path.append(len(tokens))
            tokens.append(token)
        paths[row, : len(path)] = path
    return PrefixTree(
        np.array(chosen, dtype=np.int64),
        np.array(tokens, dtype=np.int64),
        np.array(depths, dtype=np.int64),
        np.array(parents, dtype=np.int64),
        paths,
    )
