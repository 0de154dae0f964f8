"""Prompt-to-prompt in bulk: the image editor of COCO-Counterfactuals (section 3.2, B.1.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from cfaug.core.annotations import NO_RESULT, OneOf
from cfaug.core.errors import UserError
from cfaug.core.pixels import round_pixels
from cfaug.core.processes import check_device, choose_device
from cfaug.core.protocols import Progressive
from cfaug.core.types import ImageJob, Images
from cfaug.core.validation import Positive, check_fields
from cfaug.imaging.cross_attention import CrossAttention, Tokens, tokenize
from cfaug.imaging.model import (
    Diffusion,
    DiffusionWeights,
    PipelineFolder,
    load_part,
    load_tools,
    resolve,
    without_advice,
)
from cfaug.imaging.tree import Branches, Tree, find_parents, plan

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.imaging.attention import Folds
    from cfaug.imaging.sampler import Sampler, Texts


Keep = Callable[[Sequence[int], "list[Tensor]"], Sequence[int]]
"""Chooses which of the remaining jobs continue, by predictions of their final latents."""
SAFETY_DEVICE = "recipe.image_editor.safety.device"
KEPT = 1024
"""Number of cached text embeddings: every batch of a set's candidates needs the same texts."""


class LatentEditor:
    """An image editor whose calls must not overlap: attention layers share one object's rows."""

    model: DiffusionWeights | PipelineFolder

    @cached_property
    def _one_at_a_time(self) -> Lock:
        return Lock()

    def _check_finite(self, latents: Tensor) -> None:
        if not latents.isfinite().all():
            raise FloatingPointError(
                f"a latent is not finite with model.dtype={self.model.dtype}: use bf16 or fp32"
            )


class DiffusionEditor(LatentEditor):
    """The model of an image editor, loaded at first use, with its texts embedded once."""

    model: DiffusionWeights
    self_max_tokens: int | None
    cross: CrossAttention | None

    @cached_property
    def _diffusion(self) -> Diffusion:
        return self.model.load()

    @cached_property
    def _embed(self) -> Callable[[str], Tensor]:
        return lru_cache(KEPT)(self._diffusion.encode)

    @cached_property
    def _tokens(self) -> Callable[[str], Tokens]:
        return lru_cache(KEPT)(partial(tokenize, self._diffusion.tokenizer))

    def _sampler_parts(self) -> dict[str, Any]:
        """Return the arguments that all samplers have, with shared attention in the UNet."""
        import torch

        from cfaug.imaging.attention import SharedAttention

        loaded = self._diffusion
        shared = SharedAttention(self.self_max_tokens, cross=self.cross is not None)
        shared.attach(loaded.unet)
        unet = torch.compile(loaded.unet) if self.model.compile else loaded.unet
        return {"unet": unet, "shared": shared, "dtype": loaded.dtype}

    def _folds(self, tree: Branches, steps: int) -> Folds | None:
        if self.cross is None:
            return None
        from cfaug.imaging.attention import Folds

        tokens = [self._tokens(text) for text in tree.texts]
        loaded = self._diffusion
        return Folds(self.cross, tokens, steps, loaded.device, loaded.dtype)


class SetEditor(LatentEditor):
    """What editors share that draw the images of a set from its texts, step by step."""

    steps: int
    mode: str
    decode_rows: int

    def sample(self, jobs: Sequence[ImageJob]) -> list[Tensor]:
        """Return each job's final latents, float32 (texts, channels, height, width).

        Jobs with equal texts, seed and guidance form a tree and share identical computations.
        """
        final = self.sample_halving(jobs, 0, lambda numbers, _: numbers)
        return [final[number] for number in range(len(jobs))]

    def sample_halving(
        self, jobs: Sequence[ImageJob], rounds: int, keep: Keep
    ) -> dict[int, Tensor]:
        """Draw jobs, and drop some of them on the way: an approximation.

        The steps are split into ``rounds + 1`` equal parts. After each part except the last,
        ``keep`` gets predictions of the final latents, and only the jobs that it returns continue,
        with the same results as alone. Whether a dropped job would have become better is unknown.

        Args:
            keep: a function that maps the numbers of the remaining jobs and their predictions
                (texts, channels, height, width) to the numbers of those that continue, in order.

        Returns:
            Final latents, float32 (texts, channels, height, width), by number of the job.

        Raises:
            FloatingPointError: if a latent is not finite.
        """
        import torch

        if rounds >= self.steps:
            raise UserError(
                f"recipe.image_editor.steps={self.steps} cannot be halved {rounds} times"
            )
        left = list(range(len(jobs)))
        if not jobs:
            return {}
        bounds = [self.steps * i // (rounds + 1) for i in range(rounds + 2)]
        with self._one_at_a_time, torch.inference_mode():
            tree = self._plan(jobs)
            texts = self._embed_all(tree)
            latents = self._sampler.begin(tree, texts[0].device)
            for steps in map(range, bounds[:-1], bounds[1:]):
                folds = self._control(tree)
                latents, guess = self._sampler.denoise(tree, texts, folds, latents, steps)
                self._check_finite(latents)
                if steps.stop == self.steps:
                    break
                born = find_parents(tree, tree, range(len(left)), steps.stop)
                better = list(keep(left, [guess[born[list(job)]] for job in tree.jobs]))
                places = [left.index(number) for number in better]
                fewer = self._plan([jobs[number] for number in better])
                latents = latents[find_parents(tree, fewer, places, steps.stop)]
                tree, left, texts = fewer, better, self._embed_all(fewer)
            return {number: latents[list(job)] for number, job in zip(left, tree.jobs, strict=True)}

    def decode(self, latents: Tensor) -> Tensor:
        """Map latents (n, channels, height, width) to images float32 (n, 3, H, W) in [0, 1]."""
        import torch

        with torch.inference_mode():
            return torch.cat([self._decode(part) for part in latents.split(self.decode_rows)])

    def unsafe(self, images: Tensor) -> list[bool]:
        """Return whether a safety checker flags each image; false without a checker."""
        return [False] * len(images)

    @property
    def _sampler(self) -> Sampler:
        raise NotImplementedError

    def _plan(self, jobs: Sequence[ImageJob]) -> Tree:
        return plan(jobs, self.steps, self.mode)

    def _embed_all(self, tree: Tree) -> Texts:
        """Return what the network is told about the texts of a tree, the empty text first."""
        raise NotImplementedError

    def _control(self, tree: Tree) -> Folds | None:
        return None

    def _decode(self, latents: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class PromptToPrompt(DiffusionEditor, SetEditor):
    """Draws the images of a set with shared noise and shared self-attention.

    The model is loaded at the first call. All methods may be called from several threads: one
    thread samples at a time, while others run ``decode`` and ``unsafe``.

    Args:
        steps: the number of denoising steps (InstructPix2Pix: 100).
        max_rows: the largest number of rows in one UNet call; a latent is two rows, without and
            with its text.
        row_multiple: the number whose multiples the rows of a call are padded to; worth it only
            with ``model.compile``, which compiles once for every shape.
        mode: ``ip2p`` shares attention with and without text, while p > i / (steps - 1); ``p2p``
            shares it with text only, during int(p * steps) steps.
        self_max_tokens: the largest number of tokens up to which self-attention is shared
            (prompt-to-prompt: 1024 or 256); ``null`` for no limit, as in InstructPix2Pix.
        cross: the control of cross-attention; ``null`` for no control, as in InstructPix2Pix.
        noise: ``shared`` within a set, or ``independent`` for every image (an ablation).
        noise_on_device: whether noise is drawn with the device's generator: it is not copied, but
            the images differ.
        eta: the share of the ancestral noise: 1 is Euler-ancestral, 0 is Euler (DDIM).
    """

    model: DiffusionWeights
    """the weights of the pipeline"""
    steps: Annotated[int, Ge(2)] = 100
    max_rows: Annotated[int, Ge(2)] = 64
    row_multiple: Annotated[int, Ge(2)] = 2
    mode: Annotated[str, OneOf(("ip2p", "p2p"))] = "ip2p"
    self_max_tokens: int | None = None
    cross: CrossAttention | None = None
    noise: Annotated[str, OneOf(("shared", "independent"))] = "shared"
    noise_on_device: bool = False
    eta: float = 1.0
    decode_rows: Positive = 16
    """the number of latents decoded at once: memory"""
    safety: SafetyChecker | None = None
    """a check of the images; null: none"""

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor")
        if self.row_multiple % 2 or self.max_rows % self.row_multiple:
            raise UserError(
                f"recipe.image_editor.row_multiple={self.row_multiple} must be even (a latent is "
                f"two rows) and divide recipe.image_editor.max_rows={self.max_rows}"
            )

    @cached_property
    def _sampler(self) -> Sampler:
        from cfaug.imaging.sampler import Batching, Sampler, UNet
        from cfaug.imaging.schedules import noise_levels

        config = self._diffusion.unet.config
        parts = self._sampler_parts()
        return Sampler(
            network=UNet(parts["unet"]),
            shared=parts["shared"],
            dtype=parts["dtype"],
            levels=noise_levels(self._diffusion.scheduler, self.steps),
            shape=(config.in_channels, config.sample_size, config.sample_size),
            batching=Batching(self.max_rows, self.row_multiple, self.mode == "ip2p"),
            independent=self.noise == "independent",
            on_device=self.noise_on_device,
            eta=self.eta,
        )

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        return edit_at_once(self, jobs)

    def _embed_all(self, tree: Tree) -> Texts:
        import torch

        return (torch.stack([self._embed(text) for text in ("", *tree.texts)]),)

    def _control(self, tree: Tree) -> Folds | None:
        return self._folds(tree, self.steps)

    def _decode(self, latents: Tensor) -> Tensor:
        return self._diffusion.decode(latents)

    def unsafe(self, images: Tensor) -> list[bool]:
        if self.safety is None:
            return [False] * len(images)
        return self.safety.flag(images)

    def same_text(self, texts: Sequence[str]) -> bool:
        """Return whether an edited text equals the base for the model, for example when truncated.

        The first text is the base. Such a set would show the same image twice.
        """
        base, *edited = (self._tokens(text).ids for text in texts)
        return base in edited

    def describe(self) -> dict[str, str]:
        """Return names, revisions and hashes of the weights, and the sampler's settings."""
        described = {**self.model.describe(), "sampler": "euler" if self.eta == 0 else "euler_a"}
        described |= {"steps": str(self.steps), "sharing": self.mode, "noise": self.noise}
        if self.cross is not None:
            described["cross_attention"] = self.cross.kind
        return described


def edit_at_once(editor: Progressive, jobs: Sequence[ImageJob]) -> list[Images]:
    """Return the images of each job, one for each text, all decoded and checked."""
    made = []
    for latents in editor.sample(jobs):
        images = editor.decode(latents)
        flagged = frozenset(i for i, unsafe in enumerate(editor.unsafe(images)) if unsafe)
        made.append(Images(tuple(round_pixels(images)), unsafe=flagged))
    return made


@dataclass(frozen=True)
class SafetyChecker:
    """Flags images whose CLIP embedding is close to concepts that the checker's authors chose.

    Args:
        weights: the folder or Hub id of a StableDiffusionPipeline that contains a
            ``safety_checker`` and a ``feature_extractor``.
        device: ``auto`` (CUDA where there is one), or another name that
            ``cfaug.core.processes.choose_device`` knows.
    """

    weights: str
    revision: str | None = None
    """the commit on the Hub; null: the newest"""
    device: Annotated[str, NO_RESULT] = "auto"

    def __post_init__(self) -> None:
        check_device(self.device, SAFETY_DEVICE)

    @cached_property
    def _parts(self) -> tuple[Any, Any]:
        import torch
        from diffusers.pipelines.stable_diffusion.safety_checker import (
            StableDiffusionSafetyChecker,
        )
        from transformers import CLIPImageProcessor

        folder = resolve(self.weights, self.revision, ("safety_checker", "feature_extractor"))
        checker = load_part(StableDiffusionSafetyChecker, folder / "safety_checker", torch.float32)
        processor = load_tools(CLIPImageProcessor, folder / "feature_extractor")
        return checker.to(choose_device(self.device, SAFETY_DEVICE)).eval(), processor

    def flag(self, images: Tensor) -> list[bool]:
        """Return whether each image, float32 (n, 3, H, W) in [0, 1], is flagged."""
        import torch

        checker, processor = self._parts
        pixels = (images.clamp(0, 1) * 255).round().byte().cpu()
        inputs = processor(list(pixels), return_tensors="pt").pixel_values.to(checker.device)
        with torch.inference_mode(), without_advice():
            # The checker blackens its image argument; only its verdicts are used.
            _, flags = checker(clip_input=inputs, images=torch.zeros(len(images), 1))
        return [bool(flag) for flag in flags]
