"""Edits of photos by text: inversion and prompt-to-prompt (LANCE), or the photo as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge
from PIL import Image, ImageOps

from cfaug.core.errors import RejectedError, UserError
from cfaug.core.pixels import MAX_PIXELS, decode_image, open_image, round_pixels
from cfaug.core.types import ImageJob, Images, SourceImage
from cfaug.core.validation import Positive, Share, check_fields
from cfaug.imaging.cross_attention import CrossAttention
from cfaug.imaging.model import DiffusionWeights
from cfaug.imaging.prompt_to_prompt import DiffusionEditor, SafetyChecker
from cfaug.imaging.tree import PhotoTree, plan_edits

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from cfaug.imaging.inversion import Inversion, Inverter, Predictor
    from cfaug.imaging.sampler import PhotoSampler


GREY, TINY, ANIMATED, BROKEN = "photo_grey", "photo_tiny", "photo_animated", "photo_broken"
"""Reasons why a photo is not edited, as in cards and candidate logs."""
WhatToDo = Literal["take", "reject"]


class UnfitPhotoError(Exception):
    """A photo that is not edited, with the reason in one word, which cards and logs count."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


@dataclass(frozen=True)
class PhotoPreparation:
    """Converts photos to squares, as in LANCE's released code.

    The central square is cropped and resized with Pillow's default filter, bicubic.

    Args:
        grey: the treatment of photos without colour: ``take`` gives them three equal channels;
            ``reject``, as in the released code, rejects them.
        animated: the treatment of photos with several frames: ``take`` uses the first frame;
            ``reject`` rejects them.
        smallest: the smallest length of a photo's shorter side, as a share of the model's side;
            smaller photos have too little detail to be enlarged.
        max_pixels: the largest number of pixels by a photo's header; larger photos are not decoded.
    """

    grey: WhatToDo = "take"
    animated: WhatToDo = "take"
    smallest: Share = 0.125
    max_pixels: Positive = MAX_PIXELS

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor.photos")

    def prepare(self, data: bytes, side: int, name: str) -> NDArray[np.uint8]:
        """Return the photo as uint8 (side, side, 3).

        Raises:
            UnfitPhotoError: if the photo is broken, too large, too small, or of a rejected kind.
        """
        image = self._decode(data, side, name)
        short = min(image.size)
        left, top = (image.width - short) // 2, (image.height - short) // 2
        square = image.crop((left, top, left + short, top + short))
        if short != side:
            square = square.resize((side, side), Image.Resampling.BICUBIC)
        return np.asarray(square)

    def prepare_whole(self, data: bytes, side: int, multiple: int, name: str) -> NDArray[np.uint8]:
        """Return the photo in its own proportions, with about as many pixels as a square has.

        Args:
            side: the side of that square.
            multiple: the number of pixels whose multiples height and width are; what is left over
                is cropped.

        Returns:
            uint8 (height, width, 3).

        Raises:
            UnfitPhotoError: if the photo is broken, too large, too small, or of a rejected kind.
        """
        image = self._decode(data, side, name)
        scale = side / (image.width * image.height) ** 0.5
        width, height = (
            max(1, round(length * scale / multiple)) * multiple for length in image.size
        )
        return np.asarray(ImageOps.fit(image, (width, height), Image.Resampling.BICUBIC))

    def _decode(self, data: bytes, side: int, name: str) -> Image.Image:
        try:
            header = open_image(data, name, self.max_pixels)
            width, height = header.size
            if min(width, height) < self.smallest * side:
                raise UnfitPhotoError(
                    TINY, f"{name}: {width} x {height} pixels are too few for a square of {side}"
                )
            # Pillow's modes without colour.
            grey = header.mode in ("1", "L", "LA", "I", "F", "I;16", "I;16L", "I;16B")
            if self.grey == "reject" and grey:
                raise UnfitPhotoError(GREY, f"{name} is grey (mode {header.mode})")
            if self.animated == "reject" and getattr(header, "n_frames", 1) > 1:
                raise UnfitPhotoError(ANIMATED, f"{name} is animated")
            return decode_image(data, name, self.max_pixels)
        except UserError as error:
            raise UnfitPhotoError(BROKEN, str(error)) from error


def _direct() -> Inverter:
    from cfaug.imaging.inversion import DirectInversion

    return DirectInversion()


@dataclass(frozen=True)
class InvertAndEdit(DiffusionEditor):
    """Edits photos: the image of a job's first text is the photo, those of other texts are edits.

    The image of a text that equals the first one is the photo's reconstruction. ``Draw.p`` is
    LANCE's f, the share of the steps taken during which edits use the source's self-attention, and
    ``Draw.cfg`` their guidance (7.5, Table 6). Jobs of one call share all common computations: a
    photo is inverted once and its source denoised once, and edits that differ only in p are the
    same until they diverge. Each job's result is the same as alone, up to rounding.

    The model is loaded at the first call. Calls may come from several threads: one runs at a time.

    Args:
        model: the diffusion model (LANCE: Stable Diffusion 1.4, Table 6).
        inversion: the method that inverts photos; the default is ``DirectInversion``.
        steps: the number of DDIM's steps (Table 6: 50).
        cross: the control of cross-attention; ``null`` for no control. The default is that of
            LANCE's released code: new words find their own place, and edited words have weight 2,
            during 0.8 of the steps (Table 6).
        self_max_tokens: the largest number of tokens up to which self-attention is shared
            (prompt-to-prompt's notebook for photos: 32 x 32); ``null`` for no limit.
        remember: whether a source's queries and keys are kept from an inversion that has computed
            them (Stable Diffusion, 50 steps, bf16: about 2 GiB for each photo while it is edited);
            otherwise each source is an additional row.
        max_rows: the largest number of rows in one UNet call.
    """

    model: DiffusionWeights
    inversion: Inverter = field(default_factory=_direct)
    steps: Annotated[int, Ge(2)] = 50
    cross: CrossAttention | None = field(
        default_factory=lambda: CrossAttention("refine", steps=0.8, edited_weight=2.0)
    )
    self_max_tokens: int | None = 1024
    remember: bool = True
    max_rows: Annotated[int, Ge(2)] = 64
    decode_rows: Positive = 16
    """the number of latents decoded at once: memory"""
    photos: PhotoPreparation = field(default_factory=PhotoPreparation)
    """how photos are cropped and scaled"""
    safety: SafetyChecker | None = None
    """a check of the images; null: none"""

    shares_examples = True
    """Jobs of one example belong in one call: see ``cfaug.core.protocols.SharesExamples``."""

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor")
        self.inversion.skip(self.steps)

    @cached_property
    def _engine(self) -> tuple[Predictor, PhotoSampler]:
        from cfaug.imaging.inversion import Predictor
        from cfaug.imaging.sampler import Batching, PhotoSampler
        from cfaug.imaging.schedules import ddim_schedule

        schedule = ddim_schedule(self._diffusion.scheduler, self.steps)
        parts = {**self._sampler_parts(), "schedule": schedule}
        batching = Batching(self.max_rows, both_halves=False)
        return (
            Predictor(**parts, max_rows=self.max_rows),
            PhotoSampler(**parts, batching=batching, eta=self.inversion.eta),
        )

    @property
    def _taken(self) -> int:
        return self.steps - self.inversion.skip(self.steps)

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        """Return, for each job, the photo as the model saw it, and the image of every other text.

        For a photo that cannot be edited and for an edit that ``cross`` cannot control, it returns
        ``Images`` without images and with the reason (``Images.rejected``). Others are unaffected.

        Raises:
            FloatingPointError: if a latent is not finite.
        """
        photos: dict[str, NDArray[np.uint8] | UnfitPhotoError] = {}
        for job in jobs:
            digest = _photo_of(job).digest
            if digest not in photos:
                photos[digest] = self._prepare(job)
        images: dict[int, Images] = {}
        used: dict[str, NDArray[np.uint8]] = {}
        for j, job in enumerate(jobs):
            digest = _photo_of(job).digest
            photo = photos[digest]
            reason = photo.reason if isinstance(photo, UnfitPhotoError) else ""
            if not reason and self.cross is not None:
                base, *edited = job.texts
                misfits = (
                    self.cross.misfit(self._tokens(base), self._tokens(text))
                    for text in edited
                    if text != base
                )
                reason = next(filter(None, misfits), "")
            if reason:
                images[j] = Images((), rejected=reason)
            elif not isinstance(photo, UnfitPhotoError):
                used[digest] = photo
        fit = [j for j in range(len(jobs)) if j not in images]
        if not fit:
            return list(images.values())

        import torch

        tree, latents = self._denoise([jobs[j] for j in fit], used)
        # Each latent is decoded once.
        wanted = sorted({latent for places in tree.jobs for latent in places[1:]})
        pixels: dict[int, NDArray[np.uint8]] = {}
        unsafe: set[int] = set()
        for start in range(0, len(wanted), self.decode_rows):
            some = wanted[start : start + self.decode_rows]
            with torch.no_grad():
                made = self._diffusion.decode(latents[torch.tensor(some, device=latents.device)])
            pixels.update(zip(some, round_pixels(made), strict=True))
            if self.safety is not None:
                flags = zip(some, self.safety.flag(made), strict=True)
                unsafe.update(latent for latent, flag in flags if flag)
        for j, places in zip(fit, tree.jobs, strict=True):
            shown = [used[_photo_of(jobs[j]).digest], *(pixels[latent] for latent in places[1:])]
            flagged = frozenset(i for i, latent in enumerate(places) if i and latent in unsafe)
            images[j] = Images(tuple(shown), unsafe=flagged)
        return [images[j] for j in range(len(jobs))]

    def describe(self) -> dict[str, str]:
        """Return names, revisions and hashes of the weights, and the settings of the edit."""
        described = {**self.model.describe(), "inversion": self.inversion.name}
        described |= {"sampler": "ddim" if self.inversion.eta == 0 else "ddpm"}
        described |= {"steps": str(self.steps), "sharing": "p2p"}
        if self.cross is not None:
            described["cross_attention"] = self.cross.kind
        return described

    @property
    def _side(self) -> int:
        """Side of the model's images in pixels."""
        loaded = self._diffusion
        return int(loaded.unet.config.sample_size) * loaded.pixels_per_latent

    def _prepare(self, job: ImageJob) -> NDArray[np.uint8] | UnfitPhotoError:
        try:
            name = f"the photo of {job.proposal.example.key!r}"
            return self.photos.prepare(_photo_of(job).read(), self._side, name)
        except UnfitPhotoError as error:
            return error

    def _denoise(
        self, jobs: Sequence[ImageJob], photos: Mapping[str, NDArray[np.uint8]]
    ) -> tuple[PhotoTree, Tensor]:
        """Return the tree of jobs and its final latents.

        Args:
            photos: {digest: prepared photo, uint8 (side, side, 3)}.
        """
        import torch

        tree = plan_edits(
            jobs,
            self._taken,
            by_guidance=self.inversion.depends_on_guidance,
            remembered=self.remember and self.inversion.remembers,
            controlled=self._controlled,
        )
        _, sampler = self._engine
        with self._one_at_a_time, torch.no_grad():
            texts = torch.stack([self._embed(text) for text in ("", *tree.texts)])
            inversions = self._invert(tree, photos)
            latents = sampler.denoise(tree, texts, inversions, self._folds(tree, self._taken))
        self._check_finite(latents)
        return tree, latents

    def _invert(self, tree: PhotoTree, photos: Mapping[str, NDArray[np.uint8]]) -> list[Inversion]:
        import torch

        from cfaug.imaging.inversion import PhotoBatch

        predictor, _ = self._engine
        # Photos are encoded one by one, so that their latents do not depend on the others.
        latents = {
            name: self._diffusion.encode_image(
                torch.from_numpy(np.array(photo)).permute(2, 0, 1).float() / 255
            )
            for name, photo in photos.items()
        }
        batch = PhotoBatch(
            latents=torch.stack([latents[source.digest] for source in tree.sources]),
            texts=torch.stack([self._embed(source.text) for source in tree.sources]),
            empty=self._embed(""),
            guidance=tuple(source.guidance or 0.0 for source in tree.sources),
            digests=tuple(source.digest for source in tree.sources),
            remember=tree.remembered,
        )
        return self.inversion.invert(batch, predictor)

    def _controlled(self, text: str) -> int:
        """Return the number of first steps in which a text's cross-attention uses the source."""
        if self.cross is None:
            return 0
        active = self.cross.schedule(self._tokens(text), self._taken).any(axis=1)
        return int(np.flatnonzero(active).max(initial=-1)) + 1


def _photo_of(job: ImageJob) -> SourceImage:
    if job.image is None:
        raise UserError(
            f"the image of {job.proposal.example.key!r} is missing: InvertAndEdit needs a source "
            "with images (data.source=FOLDER) and a recipe that asks for them (source_images: true)"
        )
    return job.image


@dataclass(frozen=True)
class SameImage:
    """An image editor for methods that change only texts: it returns the source's file unchanged.

    Args:
        max_pixels: the largest number of pixels by an image's header; larger images are invalid.
    """

    max_pixels: int = MAX_PIXELS

    keeps_files: ClassVar[bool] = True
    uses_models: ClassVar[bool] = False

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        """Return the source image of each job, once for each of its texts.

        Raises:
            RejectedError: if an image cannot be decoded.
        """
        made = []
        for job in jobs:
            name = f"the image of {job.proposal.example.key!r}"
            if job.image is None:
                raise UserError(
                    f"{name} is missing: SameImage needs a source with images (data.source=FOLDER) "
                    "and a recipe that asks for them (source_images: true)"
                )
            data = job.image.read()
            # Shards have no other formats (GIF, BMP, TIFF): these are re-encoded losslessly.
            kept = open_image(data, name, self.max_pixels).format in ("PNG", "JPEG", "WEBP")
            try:
                image = decode_image(data, name, self.max_pixels)
            except UserError as error:  # damaged in the middle
                raise RejectedError(BROKEN, str(error)) from error
            file = data if kept else np.asarray(image)
            made.append(Images((file,), (0,) * len(job.texts)))
        return made

    def describe(self) -> dict[str, str]:
        return {"images": "the source's own"}
