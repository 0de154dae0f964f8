"""Prompt-to-prompt's mapper of *refine* as the released code computes it, cell by cell.

``get_refinement_mapper`` (Hertz et al., 2022, seq_aligner.py) for one edit, in plain Python: scores
and directions of Needleman and Wunsch, a walk back, and padding by position.
"""

from __future__ import annotations

from collections.abc import Sequence

GAP, MATCH, MISMATCH = 0, 1, -1
LEFT, UP, DIAGONAL, START = range(4)


def refinement_mapper(
    base: Sequence[int], edited: Sequence[int], size: int
) -> tuple[list[int], list[float]]:
    """Return the released mapper and alphas.

    Args:
        base: token ids of the base, with start and end of text and without padding.
        edited: token ids of the edit, likewise.
        size: the number of tokens with padding.

    Returns:
        For each token of the edit, the place of the base's token whose map it takes (-1 for none),
        and the share that it takes of it (0 or 1).
    """
    scores = {(i, 0): GAP * i for i in range(len(base) + 1)}
    scores |= {(0, j): GAP * j for j in range(len(edited) + 1)}
    ways = {(i, 0): UP for i in range(len(base) + 1)}
    ways |= {(0, j): LEFT for j in range(len(edited) + 1)}
    ways[0, 0] = START
    for i, old in enumerate(base, 1):
        for j, new in enumerate(edited, 1):
            left, up = scores[i, j - 1] + GAP, scores[i - 1, j] + GAP
            diagonal = scores[i - 1, j - 1] + (MATCH if old == new else MISMATCH)
            best = max(left, up, diagonal)
            scores[i, j] = best
            if best == left:
                ways[i, j] = LEFT
            elif best == up:
                ways[i, j] = UP
            else:
                ways[i, j] = DIAGONAL
    i, j = len(base), len(edited)
    sources = []
    while ways[i, j] != START:
        if ways[i, j] == DIAGONAL:
            i, j = i - 1, j - 1
            sources.append(i)
        elif ways[i, j] == LEFT:
            j -= 1
            sources.append(-1)
        else:
            i -= 1
    sources.reverse()
    alphas = [0.0 if source == -1 else 1.0 for source in sources]
    for place in range(len(edited), size):
        sources.append(place)
        alphas.append(1.0)
    return sources, alphas
