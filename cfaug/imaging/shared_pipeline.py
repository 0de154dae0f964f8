"""Sets of images from captions by newer text-to-image pipelines, with shared attention."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from cfaug.core.annotations import OneOf
from cfaug.core.errors import UserError
from cfaug.core.types import ImageJob, Images
from cfaug.core.validation import Positive, check_fields
from cfaug.imaging.model import PipelineFolder
from cfaug.imaging.prompt_to_prompt import KEPT, SetEditor, edit_at_once
from cfaug.imaging.tree import Tree, plan

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.imaging.sampler import Sampler, Texts
    from cfaug.imaging.text_to_image import TextToImage


FAMILIES = {
    "StableDiffusion3Pipeline": "StableDiffusion3",
    "Flux2KleinPipeline": "Flux2",
    "Flux2Pipeline": "Flux2",
    "StableDiffusionXLPipeline": "StableDiffusionXL",
}
"""The pipelines whose attention can be shared, and their classes in ``text_to_image``."""
GIVEN_HERE = ("self", "device", "do_classifier_free_guidance")
"""Arguments of ``encode_prompt``, besides those about prompts, that no setting may give."""


@dataclass(frozen=True)
class SharedPipeline(SetEditor):
    """Draws the images of a set with shared noise and shared attention of SD 3.5, FLUX.2 or SDXL.

    During the first steps, the queries and keys of an image's own tokens are those of the set's
    first image; its values, and all text tokens, stay its own (for SD 3: ConsistEdit, SIGGRAPH Asia
    2025). Noise levels and guidance are the pipeline's own. Only the initial latents are random.

    Args:
        model: the pipeline; its class is one of ``FAMILIES``.
        side: the height and width of an image in pixels; ``null`` for the pipeline's own.
        max_rows: the largest number of rows in one call of the network; a latent counts as two,
            without and with its text.
        mode: ``ip2p`` shares attention with and without text, while p > i / (steps - 1); ``p2p``
            shares it with text only, during int(p * steps) steps.
        noise: ``shared`` within a set, or ``independent`` for every image (an ablation).
        text_settings: further arguments of the pipeline's ``encode_prompt``, such as
            ``max_sequence_length``.
        decode_rows: the number of latents that are decoded at once.
    """

    model: PipelineFolder
    steps: Annotated[int, Ge(2)] = 28
    """denoising steps"""
    side: Positive | None = None
    max_rows: Annotated[int, Ge(2)] = 16
    mode: Annotated[str, OneOf(("ip2p", "p2p"))] = "ip2p"
    noise: Annotated[str, OneOf(("shared", "independent"))] = "shared"
    text_settings: Mapping[str, Any] | None = None
    decode_rows: Positive = 4

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor")
        if self.model.is_here():  # otherwise before the weights are downloaded
            self._check_kind()

    def _check_kind(self) -> None:
        name = self.model.kind.__name__
        if name not in FAMILIES:
            raise UserError(
                f"{self.model.weights}: attention of a {name} cannot be shared; choose weights of "
                f"{', '.join(FAMILIES)}, or edit by instructions (InstructedPhotos)"
            )
        kind: Any = self.model.kind
        taken = [
            argument
            for argument in inspect.signature(kind.encode_prompt).parameters
            if argument not in GIVEN_HERE and "prompt" not in argument
        ]
        for setting in self.text_settings or {}:
            if setting not in taken:
                raise UserError(
                    f"recipe.image_editor.text_settings.{setting}: {name} takes no such argument "
                    f"for its texts; choose from {', '.join(taken)}"
                )

    @cached_property
    def _loaded(self) -> TextToImage:
        from cfaug.imaging import text_to_image
        from cfaug.imaging.attention import SharedAttention

        self._check_kind()
        pipeline = self.model.load()
        network = getattr(pipeline, "unet", None) or pipeline.transformer
        family = getattr(text_to_image, FAMILIES[self.model.kind.__name__])
        loaded: TextToImage = family(
            pipeline, network, SharedAttention(), self.side, dict(self.text_settings or {})
        )
        if loaded.pixels % loaded.multiple:
            raise UserError(
                f"recipe.image_editor.side={loaded.pixels} should be a multiple of "
                f"{loaded.multiple} pixels"
            )
        loaded.attach()
        return loaded

    @cached_property
    def _embed(self) -> Callable[[str], Texts]:
        return lru_cache(KEPT)(self._loaded.encode)

    def _embed_all(self, tree: Tree) -> Texts:
        import torch

        embedded = [self._embed(text) for text in ("", *tree.texts)]
        return tuple(map(torch.stack, zip(*embedded, strict=True)))

    @cached_property
    def _sampler(self) -> Sampler:
        from cfaug.imaging.sampler import Batching, Sampler

        loaded = self._loaded
        return Sampler(
            network=loaded,
            shared=loaded.shared,
            dtype=loaded.network.dtype,
            levels=loaded.levels(self.steps),
            shape=loaded.shape,
            batching=Batching(self.max_rows, 2, self.mode == "ip2p"),
            independent=self.noise == "independent",
            eta=0.0,
        )

    def _plan(self, jobs: Sequence[ImageJob]) -> Tree:
        loaded = self._loaded
        for job in jobs:
            if not loaded.reads_guidance and job.draw.cfg not in (0, 1):
                raise UserError(
                    f"{self.model.weights} is distilled and reads no guidance, but recipe.draws "
                    f"draws the scale {job.draw.cfg:.3g}: recipe.draws.guidance_scale=[1,1]"
                )
        return plan(jobs, self.steps, self.mode, guides=loaded.guides)

    def _decode(self, latents: Tensor) -> Tensor:
        return self._loaded.decode(latents)

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        return edit_at_once(self, jobs)

    def same_text(self, texts: Sequence[str]) -> bool:
        """Return whether an edited text equals the base for the model, for example when truncated.

        The first text is the base. Such a set would show the same image twice.
        """
        import torch

        with torch.inference_mode():
            base, *edited = map(self._embed, texts)
        return any(all(map(torch.equal, base, other)) for other in edited)

    def describe(self) -> dict[str, str]:
        """Return the names, revision or hash and licence of the weights, and the settings."""
        return {
            **self.model.describe(),
            "sampler": "euler",
            "steps": str(self.steps),
            "sharing": self.mode,
            "noise": self.noise,
            "side": str(self.side),
            "text_settings": json.dumps(dict(self.text_settings or {}), sort_keys=True),
        }
