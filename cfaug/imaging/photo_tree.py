"""The plan of latents and steps for edits of photos, as plain data.

All edits of a photo use one source. Edits by the same text that differ in the share of steps with
the source's self-attention are the same until the smaller share ends, so that they form a tree, as
in ``tree``, without approximation. The source is computed only as long as an edit uses
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cfaug.core.types import ImageJob
from cfaug.imaging.tree import Branches, Integers, shared_steps


@dataclass(frozen=True)
class InversionKey:
    """The key of an inversion; jobs with equal sources share it.

    Attributes:
        digest: the digest of the photo's file.
        text: the caption of the photo.
        guidance: the guidance scale of the edits; ``None`` if the inversion does not depend on it.
    """

    digest: str
    text: str
    guidance: float | None


@dataclass(frozen=True, kw_only=True)
class PhotoTree(Branches):
    """Latents that start from the inversion of a photo.

    Attributes:
        sources: the distinct sources of the tree.
        source: the number of each latent's source.
        cfg: the guidance scale of each latent, float64; it is not used for sources.
        end: the first step at which a latent is no longer denoised.
        steps: the number of steps taken.
        empty_texts: the number of unconditional embeddings: one, or one for each source.
        remembered: whether the sources' attention is stored, so that no source is computed.
    """

    sources: tuple[InversionKey, ...]
    source: Integers
    cfg: NDArray[np.float64]
    end: Integers
    steps: int
    empty_texts: int = 1
    remembered: bool = False

    @property
    def guided(self) -> NDArray[np.bool_]:
        """The latents that need a row without text: edits, because a source's latents are known."""
        return self.image > 0

    @property
    def empty_text(self) -> Integers:
        """The number of each latent's unconditional embedding."""
        return self.source if self.empty_texts > 1 else self.source * 0

    @property
    def lent(self) -> Integers:
        """The place of the source's row among lent rows; stored sources are lent in order."""
        return self.source if self.remembered else super().lent

    def active(self, step: int) -> Integers:
        """Return the latents that are denoised or used at ``step``."""
        return np.flatnonzero((self.birth <= step) & (step < self.end))

    def changes(self) -> set[int]:
        """Return the steps at which latents are added, stop sharing or end."""
        return super().changes() | set(self.end.tolist())

    def row_steps(self) -> int:
        """Return the number of rows that the model computes over all steps."""
        return int((np.maximum(self.end - self.birth, 0) * (1 + self.guided)).sum())


def plan_edits(
    jobs: Sequence[ImageJob],
    steps: int,
    *,
    by_guidance: bool = False,
    remembered: bool = False,
    controlled: Callable[[str], int] = lambda _: 0,
) -> PhotoTree:
    """Return the tree of jobs with photos; the first text of each job describes the photo.

    The image of a text that equals the first is the source itself, the reconstruction.

    Args:
        jobs: the images to make.
        steps: the number of steps taken.
        by_guidance: whether an inversion depends on the guidance of its edits.
        remembered: whether the sources' attention is stored.
        controlled: a function that returns the number of first steps in which an edited text's
            cross-attention uses the source.

    Raises:
        UserError: for a p outside [0, 1].
    """
    wanted: dict[InversionKey, dict[tuple[str, float], set[int]]] = {}
    places: list[tuple[InversionKey, list[tuple[str, float, int] | None]]] = []
    for job in jobs:
        assert job.image is not None
        caption, *edited = job.texts
        length = shared_steps(job.draw.p, steps, "p2p")
        source = InversionKey(job.image.digest, caption, job.draw.cfg if by_guidance else None)
        edits = wanted.setdefault(source, {})
        shown: list[tuple[str, float, int] | None] = [None]
        for text in edited:
            if text == caption:
                shown.append(None)
                continue
            edits.setdefault((text, job.draw.cfg), set()).add(length)
            shown.append((text, job.draw.cfg, length))
        places.append((source, shown))
    tree = _lay_out(wanted, places, steps, controlled)
    return replace(
        tree,
        end=np.where(remembered & (tree.image == 0), 0, tree.end),
        empty_texts=len(wanted) if by_guidance else 1,
        remembered=remembered,
    )


def _lay_out(
    wanted: dict[InversionKey, dict[tuple[str, float], set[int]]],
    places: list[tuple[InversionKey, list[tuple[str, float, int] | None]]],
    steps: int,
    controlled: Callable[[str], int],
) -> PhotoTree:
    texts: dict[str, int] = {}
    rows: list[tuple[int, ...]] = []
    cfgs: list[float] = []
    at: dict[tuple[InversionKey, tuple[str, float, int] | None], int] = {}
    for number, (source, edits) in enumerate(wanted.items()):
        base = at[source, None] = len(rows)
        looks = [max(max(lengths), controlled(text)) for (text, _), lengths in edits.items()]
        caption = texts.setdefault(source.text, len(texts))
        rows.append((caption, number, 0, base, base, 0, 0, max(looks, default=0)))
        cfgs.append(0.0)
        for (text, cfg), lengths in edits.items():
            trunk = len(rows)
            shows = texts.setdefault(text, len(texts))
            for length in sorted(lengths, reverse=True):
                # The longest branch is the trunk: it starts from noise, the others from the trunk.
                birth = 0 if len(rows) == trunk else length
                at[source, (text, cfg, length)] = len(rows)
                rows.append((shows, number, 1, base, trunk, birth, length, steps))
                cfgs.append(cfg)
    table = np.array(rows, dtype=np.int64).reshape(-1, 8).T
    shows_text, owner, image, base_of, parent, births, shared, end = table
    return PhotoTree(
        texts=tuple(texts),
        text=shows_text,
        image=image,
        base=base_of,
        parent=parent,
        birth=births,
        shared=shared,
        jobs=tuple(tuple(at[source, one] for one in shown) for source, shown in places),
        sources=tuple(wanted),
        source=owner,
        cfg=np.array(cfgs),
        end=end,
        steps=steps,
    )
