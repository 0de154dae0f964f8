"""The split of a step's latents into calls of the UNet: rows, attention sources, texts.

A guided latent is two rows, without and with its text; a latent without guidance needs only the row
with text. A call has all rows without text, then all rows with text. Latents of a family are
adjacent, so that at most one family spans two calls: its base is computed in the first and lends
its queries and keys to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from cfaug.imaging.attention import CallRows, CrossRows
from cfaug.imaging.tree import Branches, Integers

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.imaging.attention_edit_matrices import Folds


@dataclass(frozen=True)
class Call:
    """Rows of the UNet that are computed together.

    Attributes:
        latents: (n,) the numbers of the latents, padding included.
        real: the number of latents without padding.
        guided: (g,) the places in the call of latents with a row without text.
        texts: (m,) the numbers of the call's distinct texts, the empty ones first.
        rows: the information for the attention layers about g + n rows.
    """

    latents: Tensor
    real: int
    guided: Tensor
    texts: Tensor
    rows: CallRows


@dataclass(frozen=True)
class Batching:
    """The rules by which a step is split into calls.

    Attributes:
        max_rows: the largest number of rows in a call; a multiple of ``multiple``.
        multiple: the even number whose multiples the rows of a call are padded to, so that few
            shapes occur.
        both_halves: whether the rows without text share attention too (InstructPix2Pix does,
            prompt-to-prompt does not).
    """

    max_rows: int = 64
    multiple: int = 2
    both_halves: bool = True

    def pieces(self, active: Integers) -> list[Integers]:
        """Split latents into as few calls as possible, of nearly equal size."""
        if not len(active):
            return []
        count = -(-len(active) // (self.max_rows // 2))
        return list(np.array_split(active, count))

    def padding(self, latents: int) -> int:
        """Return the number of latents of padding for a call of ``latents``."""
        return -(2 * latents) % self.multiple // 2


def calls(
    tree: Branches, step: int, batching: Batching, device: torch.device, folds: Folds | None = None
) -> list[Call]:
    """Return the calls of one step, in the order in which they have to be made."""
    pieces = batching.pieces(tree.active(step))
    made = []
    for number, piece in enumerate(pieces):
        following = pieces[number + 1][0] if number + 1 < len(pieces) else -1
        made.append(_call(tree, step, piece, int(following), batching, device, folds))
    return made


def _call(
    tree: Branches,
    step: int,
    piece: Integers,
    following: int,
    batching: Batching,
    device: torch.device,
    folds: Folds | None,
) -> Call:
    padding = batching.padding(len(piece))
    latents = np.append(piece, np.repeat(piece[:1], padding))
    n, real = len(latents), len(piece)
    guided = np.flatnonzero(tree.guided[latents])
    g = len(guided)
    where = {int(latent): at for at, latent in reversed(list(enumerate(latents)))}
    # Rows of each latent; a latent without guidance uses its only row for both.
    with_text = g + np.arange(n)
    without_text = with_text.copy()
    without_text[guided] = np.arange(g)
    base = tree.base[latents]
    base_at = np.array([where.get(int(b), -1) for b in base])
    # A base computed by an earlier call is lent as the two rows after the call's own.
    base_without = np.where(base_at < 0, g + n, without_text[base_at])
    base_with = np.where(base_at < 0, g + n + tree.lent[latents], with_text[base_at])
    cross = None
    if folds is not None:
        cross = _cross(tree, step, latents[:real], base_with[:real], g, folds)
    shares = tree.shared[latents] > step
    controlled = np.zeros(n, dtype=np.bool_)
    if cross is not None:
        controlled[cross.rows.cpu().numpy() - g] = True
    without = np.where(shares & batching.both_halves, base_without, without_text)[guided]
    source = np.concatenate([without, np.where(shares, base_with, with_text)])
    shown = np.concatenate(
        [tree.empty_text[latents[guided]], tree.empty_texts + tree.text[latents]]
    )
    texts, text = np.unique(shown, return_inverse=True)
    lends = None
    if following >= 0 and int(tree.base[following]) in where:
        at = where[int(tree.base[following])]
        lends = torch.tensor([without_text[at], with_text[at]], device=device)
    rows = CallRows(
        source=torch.from_numpy(source).to(device),
        text=torch.from_numpy(text).to(device),
        lend=lends,
        borrow=bool(((base_at < 0) & (shares | controlled)).any()),
        cross=cross,
    )
    return Call(
        latents=torch.from_numpy(latents).to(device),
        real=real,
        guided=torch.from_numpy(guided).to(device),
        texts=torch.from_numpy(texts).to(device),
        rows=rows,
    )


def _cross(
    tree: Branches, step: int, latents: Integers, base_with: Integers, first: int, folds: Folds
) -> CrossRows | None:
    found: list[tuple[int, int, Tensor]] = []
    for at, latent in enumerate(latents):
        if tree.image[latent] > 0:
            texts = int(tree.text[tree.base[latent]]), int(tree.text[latent])
            matrices = folds(*texts, step)
            if matrices is not None:
                found.append((first + at, int(base_with[at]), matrices))
    if not found:
        return None
    rows, sources, folded = zip(*found, strict=True)
    both = torch.stack(folded, dim=1)
    return CrossRows(
        rows=torch.tensor(rows, device=both.device),
        source=torch.tensor(sources, device=both.device),
        from_source=both[0],
        from_own=both[1],
    )
