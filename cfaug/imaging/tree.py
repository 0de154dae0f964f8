"""Plans of latents and steps for captions and for edits of photos, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.core.types import ImageJob

# Candidates with the same texts, seed and guidance differ only in the number of steps that share
# attention: the base image does not depend on p, and two edits are the same until the smaller p
# ends. Therefore they form a tree: one base, one trunk that shares longest, and a branch for every
# other p that starts as a copy of the trunk. Every candidate is the same as if it were drawn alone.

Integers = NDArray[np.int64]


def shared_steps(p: float, steps: int, mode: str = "ip2p") -> int:
    """Return the number of first steps during which attention is shared.

    In the mode ``ip2p``, step i shares attention iff p > i / (steps - 1), so that the last step
    never does (InstructPix2Pix, generate_img_dataset.py). In the mode ``p2p``, the first
    int(p * steps) steps do (prompt-to-prompt's ``self_replace_steps``).

    >>> [shared_steps(p, 5) for p in (0, 0.25, 0.26, 0.5, 1)]
    [0, 1, 2, 2, 4]
    """
    if not 0 <= p <= 1:
        raise UserError(f"p={p}: the share of steps with shared attention lies between 0 and 1")
    if mode == "p2p":
        return int(p * steps)
    return sum(p > i / (steps - 1) for i in range(steps))


@dataclass(frozen=True, kw_only=True)
class Branches:
    """Latents in the order in which they are denoised; each array has one entry for each latent.

    Latents of one base are adjacent, the base first.

    Attributes:
        text: the number of each latent's text.
        image: the number of each latent's image in its set; 0 is the base.
        base: the latent that lends its attention; a base's own number for a base.
        parent: the latent that each latent starts as a copy of; its own number if it has no parent.
        birth: the first step at which a latent differs from its parent; 0 if it has no parent.
        shared: the number of first steps in which attention comes from ``base``.
        jobs: the latents of each job's images, the base first.
    """

    texts: tuple[str, ...]
    text: Integers
    image: Integers
    base: Integers
    parent: Integers
    birth: Integers
    shared: Integers
    jobs: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.text)

    def active(self, step: int) -> Integers:
        """Return the latents denoised at ``step``."""
        return np.flatnonzero(self.birth <= step)

    def born(self, step: int) -> Integers:
        """Return the latents that are copied from their parents before ``step``."""
        return np.flatnonzero((self.birth == step) & (self.parent != np.arange(len(self))))

    def changes(self) -> set[int]:
        """Return the steps at which latents are added or stop sharing."""
        return {0, *self.birth.tolist(), *self.shared.tolist()}

    @property
    def guided(self) -> NDArray[np.bool_]:
        """The latents that are also denoised without their text, for guidance."""
        raise NotImplementedError

    @property
    def empty_text(self) -> Integers:
        """The number of each latent's unconditional embedding."""
        return np.zeros(len(self), dtype=np.int64)

    @property
    def lent(self) -> Integers:
        """The place of the base's row with text among lent rows, if another call computed it."""
        return np.ones(len(self), dtype=np.int64)

    @property
    def empty_texts(self) -> int:
        """The number of unconditional embeddings."""
        return 1


@dataclass(frozen=True, kw_only=True)
class Tree(Branches):
    """Latents that start from noise: jobs of equal texts, seed and guidance are a family.

    Attributes:
        cfg: the guidance scale of each family, float64.
        family: the number of each latent's family.
        guides: whether guidance needs a row without text.
    """

    seeds: tuple[int, ...]
    cfg: NDArray[np.float64]
    family: Integers
    guides: bool = True

    @property
    def guided(self) -> NDArray[np.bool_]:
        """The latents that are also denoised without their text: all or none."""
        return np.full(len(self), self.guides)

    def latent_steps(self, steps: int) -> int:
        """Return the number of latents denoised over all steps; each needs two rows of the UNet."""
        return int((steps - self.birth).sum())


def plan(jobs: Sequence[ImageJob], steps: int, mode: str = "ip2p", *, guides: bool = True) -> Tree:
    """Return the tree of ``jobs``: jobs with equal texts, seed and cfg are one family.

    A job with a single text is a family with only a base, whatever its p.

    Args:
        guides: whether guidance needs a row without text.
    """
    families: dict[tuple[tuple[str, ...], int, float], list[int]] = {}
    for number, job in enumerate(jobs):
        families.setdefault((job.texts, job.draw.seed, job.draw.cfg), []).append(number)
    texts: dict[str, int] = {}
    rows: list[tuple[int, ...]] = []
    by_job: dict[int, tuple[int, ...]] = {}
    for family, ((words, _, _), members) in enumerate(families.items()):
        shows = [texts.setdefault(word, len(texts)) for word in words]
        lengths = {number: shared_steps(jobs[number].draw.p, steps, mode) for number in members}
        base, trunk = len(rows), len(rows) + 1
        rows.append((shows[0], family, 0, base, base, 0, 0))
        images: dict[int, tuple[int, ...]] = {}
        for length in sorted(set(lengths.values()), reverse=True):
            first = len(rows)
            for image in range(1, len(words)):
                latent = first + image - 1
                # The longest branch is the trunk: it starts from noise, the others from the trunk.
                parent = latent if first == trunk else trunk + image - 1
                birth = 0 if first == trunk else length
                rows.append((shows[image], family, image, base, parent, birth, length))
            images[length] = (base, *range(first, len(rows)))
        by_job |= {number: images[length] for number, length in lengths.items()}
    text, owner, image, base_of, parent, birth, shared = np.array(rows, dtype=np.int64).T
    return Tree(
        texts=tuple(texts),
        seeds=tuple(seed for _, seed, _ in families),
        cfg=np.array([cfg for _, _, cfg in families]),
        text=text,
        family=owner,
        image=image,
        base=base_of,
        parent=parent,
        birth=birth,
        shared=shared,
        jobs=tuple(by_job[number] for number in range(len(jobs))),
        guides=guides,
    )


def find_parents(old: Tree, new: Tree, kept: Sequence[int], step: int) -> Integers:
    """Return, for each latent of a smaller tree, the latent of the larger one to continue from.

    A branch that has not diverged yet continues from its parent, even if the parent is dropped.

    Args:
        kept: the numbers of these jobs in ``old``, in the order of ``new``'s jobs.
        step: the first step of ``new``.
    """
    latents = np.empty(len(new), dtype=np.int64)
    for number, job in zip(kept, new.jobs, strict=True):
        latents[list(job)] = old.jobs[number]
    return np.where(old.birth[latents] < step, latents, old.parent[latents])


# All edits of a photo use one source. Edits by the same text that differ in the share of steps with
# the source's self-attention are the same until the smaller share ends, so that they form a tree,
# as in ``tree``, without approximation. The source is computed only as long as an edit uses it.


@dataclass(frozen=True)
class InversionKey:
    """The key of an inversion; jobs with equal sources share it.

    Attributes:
        guidance: the guidance scale of the edits; ``None`` if the inversion does not depend on it.
    """

    digest: str
    text: str
    guidance: float | None


@dataclass(frozen=True, kw_only=True)
class PhotoTree(Branches):
    """Latents that start from the inversion of a photo.

    Attributes:
        source: the number of each latent's source.
        cfg: the guidance scale of each latent, float64; it is not used for sources.
        end: the first step at which a latent is no longer denoised.
        empty_texts: the number of unconditional embeddings: one, or one for each source.
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
        return self.source if self.empty_texts > 1 else self.source * 0

    @property
    def lent(self) -> Integers:
        """The place of the source's row among lent rows; stored sources are lent in order."""
        return self.source if self.remembered else super().lent

    def active(self, step: int) -> Integers:
        return np.flatnonzero((self.birth <= step) & (step < self.end))

    def changes(self) -> set[int]:
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
        controlled: a function that returns the number of first steps in which an edited text's
            cross-attention uses the source.
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
    texts: dict[str, int] = {}
    rows: list[tuple[int, ...]] = []
    cfgs: list[float] = []
    at: dict[tuple[InversionKey, tuple[str, float, int] | None], int] = {}
    for number, (source, edits) in enumerate(wanted.items()):
        base = at[source, None] = len(rows)
        looks = [max(max(lengths), controlled(text)) for (text, _), lengths in edits.items()]
        last = 0 if remembered else max(looks, default=0)
        shows = texts.setdefault(source.text, len(texts))
        rows.append((shows, number, 0, base, base, 0, 0, last))
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
        jobs=tuple(tuple(at[source, edit] for edit in shown) for source, shown in places),
        sources=tuple(wanted),
        source=owner,
        cfg=np.array(cfgs),
        end=end,
        steps=steps,
        empty_texts=len(wanted) if by_guidance else 1,
        remembered=remembered,
    )
