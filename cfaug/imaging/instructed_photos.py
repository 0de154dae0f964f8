"""Edits of photos by instructions: any pipeline of diffusers that takes an image and a prompt."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.files import find_prompt_file, read_keys
from cfaug.core.known_names import nearest
from cfaug.core.types import Draw, Edit, ImageJob, Images, Proposal
from cfaug.core.validation import Positive, check, check_fields
from cfaug.core.weights import sha256_text
from cfaug.data.grids import ATTRIBUTES
from cfaug.imaging.model import PipelineFolder, without_advice
from cfaug.imaging.photo_editing import PhotoPreparation, UnfitPhotoError
from cfaug.imaging.select import UNSAFE

if TYPE_CHECKING:
    from numpy.typing import NDArray


SHIPPED = ("instructions", "captions")
ATTRIBUTE, OTHER, UNCHANGED = "attribute", "other", "unchanged"
KINDS = ("subject", "object", "background", "adjective", "domain", ATTRIBUTE, OTHER, UNCHANGED)
"""The keys of a file of instructions: kinds of edits, and the control."""
PLACES = ("before", "after", "original", "caption")
OTHER_SHAPE = "other_shape"
"""The reason why an image is rejected whose proportions are not those of the photo."""
MOST_STRETCHED = 1.1
"""The largest ratio of the proportions of an answer and its photo: resizing does not show yet."""
GIVEN_HERE = (
    "image", "prompt", "generator", "output_type", "return_dict", "num_images_per_prompt",
    "latents", "prompt_embeds", "negative_prompt_embeds", "callback_on_step_end",
)  # fmt: skip
"""Arguments of pipelines that no setting may give."""
Plain = bool | int | float | str
Arguments = Mapping[str, Plain | Sequence[Plain] | None]
"""Arguments of a pipeline or fields of a request by name, as YAML has them."""


@dataclass(frozen=True)
class Instructions:
    """The instructions of an editor, by the kind of edit.

    Args:
        templates: a text for each of ``KINDS``, with any of ``{before}``, ``{after}``,
            ``{original}`` and ``{caption}``.
    """

    templates: Mapping[str, str]

    @classmethod
    def read(cls, name: str) -> Instructions:
        """Read shipped instructions, or a user's YAML file with the same keys."""
        file = find_prompt_file(
            name, SHIPPED, "editing/photo_instructions", "recipe.image_editor.instructions",
            f"the keys {', '.join(KINDS)}",
        )  # fmt: skip
        templates = read_keys(file, KINDS)
        for kind, template in templates.items():
            if not isinstance(template, str) or not template.strip():
                raise UserError(f"{file}: {kind} should be a text, not {template!r}")
            for place in re.findall(r"\{([^{}]*)\}", template):
                if place not in PLACES:
                    choices = ", ".join(f"{{{name}}}" for name in PLACES)
                    raise UserError(f"{file}: {kind} has {{{place}}}; choose from {choices}")
        return cls(templates)

    def fill(self, proposal: Proposal, text: int) -> str:
        """Return the instruction that turns a proposal's first text into another.

        An edit that only inserts or removes words has the instruction of ``other``, as have kinds
        without an instruction. A combination of attributes, whose kind is the names of what
        changed, has that of ``attribute``.

        Args:
            text: the index of the other text.
        """
        original, caption = proposal.texts[0], proposal.texts[text]
        edit = proposal.edits[text] or Edit(UNCHANGED, "", "")
        kind = edit.kind
        if caption == original:
            kind = UNCHANGED
        elif kind not in KINDS:
            of_grid = bool(proposal.details) and ATTRIBUTES in proposal.details[text]
            kind = ATTRIBUTE if of_grid else OTHER
        template = self.templates[kind]
        words = {"before": edit.before, "after": edit.after}
        if kind != UNCHANGED and any(f"{{{w}}}" in template and not words[w] for w in words):
            template = self.templates[OTHER]
        given = {**words, "original": original.rstrip(" ."), "caption": caption.rstrip(" .")}
        # In one pass: a caption may have braces.
        return re.sub(r"\{(\w+)\}", lambda match: given[match[1]], template)


@dataclass(frozen=True)
class PhotoRequest:
    """One image to be made.

    Attributes:
        photo: uint8 (height, width, 3); ``None`` for an image from the prompt alone.
        size: height and width of the image in pixels.
    """

    prompt: str
    photo: NDArray[np.uint8] | None
    draw: Draw
    size: tuple[int, int]


class InstructedEditor:
    """What editors by instructions share: the photos, the words, and the images of a job.

    The image of a job's first text is the photo. Without a photo it is made from the text alone.
    Every other image is an edit of the first; the image of a text that equals the first one is the
    reconstruction, the answer to the instruction to change nothing. All images of a job have the
    same seed, and the same size.
    """

    instructions: str
    guidance: str | None
    side: int
    square: bool
    multiple: int
    photos: PhotoPreparation

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        """Return, for each job, the photo as the model saw it, and the image of every other text.

        A job whose photo cannot be edited, or of whose images one cannot be used, gets ``Images``
        without images and with the reason (``Images.rejected``). Others are unaffected.
        """
        for job in jobs:  # refuse what a card would name and nothing would read
            if job.draw.p:
                raise UserError(
                    f"recipe.draws draws p={job.draw.p:.3g}, the share of the steps with shared "
                    "attention, and this image editor shares none: "
                    "recipe.draws.p2p_threshold=[0,0], or recipe.draws.self_replace_steps=[0.0] of "
                    "a grid"
                )
            if self.guidance is None and job.draw.cfg not in (0, 1):
                raise UserError(
                    f"recipe.draws draws the guidance scale {job.draw.cfg:.3g}, and "
                    "recipe.image_editor.guidance=null passes none on: name the argument there, "
                    "such as guidance_scale, or set recipe.draws.guidance_scale to 1 ([1,1] as "
                    "bounds)"
                )
        photos: dict[str, NDArray[np.uint8] | str] = {}
        for job in jobs:
            if job.image is None or job.image.digest in photos:
                continue
            data, name = job.image.read(), f"the photo of {job.proposal.example.key!r}"
            try:
                if self.square:
                    seen = self.photos.prepare(data, self.side, name)
                else:
                    seen = self.photos.prepare_whole(data, self.side, self.multiple, name)
                photos[job.image.digest] = seen
            except UnfitPhotoError as error:
                photos[job.image.digest] = error.reason
        # The first image of each job: its photo, or an image from its first text.
        size = (self.side, self.side)
        drawn = iter(
            self._answer_fitting(
                [PhotoRequest(j.texts[0], None, j.draw, size) for j in jobs if j.image is None]
            )
        )
        first = [next(drawn) if job.image is None else photos[job.image.digest] for job in jobs]
        requests = [
            PhotoRequest(
                self._instructions.fill(job.proposal, text), photo, job.draw, photo.shape[:2]
            )
            for job, photo in zip(jobs, first, strict=True)
            if not isinstance(photo, str)
            for text in range(1, len(job.texts))
        ]
        answers = iter(self._answer_fitting(requests))
        made = []
        for job, photo in zip(jobs, first, strict=True):
            if isinstance(photo, str):
                made.append(Images((), rejected=photo))
                continue
            edits = [next(answers) for _ in job.texts[1:]]
            reason = next((edit for edit in edits if isinstance(edit, str)), "")
            images = [image for image in edits if not isinstance(image, str)]
            made.append(Images((), rejected=reason) if reason else Images((photo, *images)))
        return made

    def answer(self, requests: Sequence[PhotoRequest]) -> list[NDArray[np.uint8] | str]:
        """Return an image, uint8 (height, width, 3), or a reason, for each request, in order."""
        raise NotImplementedError

    @cached_property
    def _instructions(self) -> Instructions:
        return Instructions.read(self.instructions)

    def _describe_instructions(self) -> str:
        """Return the name of shipped instructions, or the hash of the user's own."""
        if self.instructions in SHIPPED:
            return self.instructions
        return f"sha256:{sha256_text(json.dumps(dict(self._instructions.templates)))}"

    def _check_side(self) -> None:
        if self.side % self.multiple:
            raise UserError(
                f"recipe.image_editor.side={self.side} should be a multiple of "
                f"recipe.image_editor.multiple={self.multiple}"
            )

    def _answer_fitting(self, requests: Sequence[PhotoRequest]) -> list[NDArray[np.uint8] | str]:
        answers = self.answer(requests) if requests else []
        return [
            answer if isinstance(answer, str) else fit(answer, request.size)
            for request, answer in zip(requests, answers, strict=True)
        ]


def fit(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8] | str:
    """Return an image in the size of its photo: many models have preferred sizes of their own.

    Args:
        image: uint8 (height, width, 3).
        size: height and width.

    Returns:
        The image, or ``OTHER_SHAPE`` if it would be visibly stretched.
    """
    height, width = image.shape[:2]
    if (height, width) == size:
        return image
    stretched = (height / width) / (size[0] / size[1])
    if max(stretched, 1 / stretched) > MOST_STRETCHED:
        return OTHER_SHAPE
    resized = Image.fromarray(image).resize(size[::-1], Image.Resampling.BICUBIC)
    return np.asarray(resized)


@dataclass(frozen=True)
class InstructedPhotos(InstructedEditor):
    """Edits photos by instructions, with any pipeline that takes an image and a prompt.

    Images are made one at a time: in a batch, an image's pixels would depend on the others.
    ``Draw.seed`` seeds the generator, on the CPU, so that the noise is the same on every device;
    ``Draw.cfg`` is the guidance scale, and ``Draw.parameters`` are further arguments by name.
    ``Draw.p`` has to be 0, because no attention is shared.

    Args:
        settings: arguments of the pipeline's call by name, such as ``num_inference_steps``;
            ``None`` for the pipeline's defaults.
        guidance: the name of the argument that is ``Draw.cfg``: ``guidance_scale``, or
            ``true_cfg_scale`` of Qwen-Image, which needs ``settings.negative_prompt`` as well;
            ``null`` for a distilled model, which reads none.
        instructions: ``instructions``, ``captions`` (for image-to-image pipelines, which read
            descriptions), or a YAML file with the same keys.
        side: every photo gets about side x side pixels, in its own proportions.
        square: whether photos are cropped to their central square, as by ``InvertAndEdit``.
        multiple: the number of pixels whose multiples height and width are.
    """

    model: PipelineFolder
    """the weights of the pipeline"""
    settings: Arguments | None = None
    guidance: str | None = "guidance_scale"
    instructions: str = "instructions"
    side: Positive = 1024
    square: bool = False
    multiple: Positive = 16
    photos: PhotoPreparation = field(default_factory=PhotoPreparation)
    """how photos are cropped and scaled"""

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor")
        self._check_side()
        _ = self._instructions
        if self.model.is_here():  # otherwise before the weights are downloaded
            _ = self._taken

    @cached_property
    def _taken(self) -> Mapping[str, inspect.Parameter]:
        """The arguments of the pipeline's call; the settings are checked against them."""
        kind = self.model.kind
        taken = dict(inspect.signature(kind.__call__).parameters)
        del taken["self"]
        lacking = [name for name in ("image", "prompt", "generator") if name not in taken]
        if lacking:
            others = _editing_pipelines(kind.__name__, self.model.index)
            raise UserError(
                f"{self.model.weights}: {kind.__name__} is not an editing pipeline, as it takes no "
                f"{' and no '.join(lacking)}; it takes {', '.join(taken)}. Choose other weights, or"
                " recipe.image_editor.model.pipeline from the classes that are built from the same "
                f"parts: {', '.join(others) or 'there is none'}"
            )
        if "mask_image" in taken:
            raise UserError(
                f"{self.model.weights}: {kind.__name__} paints inside a mask, and no recipe makes "
                "masks. Choose weights, or a recipe.image_editor.model.pipeline, of whole photos"
            )
        settings: Mapping[str, Any] = self.settings or {}
        for name, value in settings.items():
            self._check_argument(taken, name, f"settings.{name}", value)
        steps, strength = settings.get("num_inference_steps"), settings.get("strength", 1)
        if steps is not None and steps * strength < 1:
            raise UserError(
                f"recipe.image_editor.settings: num_inference_steps={steps} with strength="
                f"{strength} leaves no step: their product should be at least 1"
            )
        if self.guidance is not None:
            self._check_argument(taken, self.guidance, "guidance")
        if self.guidance in settings:
            raise UserError(
                f"recipe.image_editor.settings.{self.guidance}: recipe.draws.guidance_scale gives "
                f"it already (recipe.image_editor.guidance={self.guidance})"
            )
        if self.guidance is not None and self.model.index.get("is_distilled"):
            raise UserError(
                f"{self.model.weights} is distilled and reads no guidance: "
                "recipe.image_editor.guidance=null and recipe.draws.guidance_scale=1 ([1,1] as "
                "bounds)"
            )
        if self.guidance == "true_cfg_scale" and not settings.get("negative_prompt"):
            raise UserError(
                "recipe.image_editor.guidance=true_cfg_scale guides only with "
                "recipe.image_editor.settings.negative_prompt, such as ' '"
            )
        return taken

    def _check_argument(
        self, taken: Mapping[str, inspect.Parameter], name: str, place: str, value: Any = None
    ) -> None:
        """Refuse an argument that the pipeline does not take, or a value of another type."""
        choices = [name for name in taken if name not in GIVEN_HERE and name != "kwargs"]
        if name not in choices:
            near = nearest(name, choices)
            meant = f"; {near} is meant?" if near else "."
            raise UserError(
                f"recipe.image_editor.{place}: {self.model.kind.__name__} takes no {name} from "
                f"settings{meant} Choose from {', '.join(choices)}"
            )
        if value is not None and _is_plain(annotation := taken[name].annotation):
            check(value, annotation, f"recipe.image_editor.{place}")

    @cached_property
    def _pipeline(self) -> Any:
        _ = self._taken
        return self.model.load()

    def answer(self, requests: Sequence[PhotoRequest]) -> list[NDArray[np.uint8] | str]:
        return [self._make(request) for request in requests]

    def describe(self) -> dict[str, str]:
        """Return names, revision, licence and class of the weights, and the settings."""
        settings = json.dumps(dict(self.settings or {}), sort_keys=True)
        return {
            **self.model.describe(),
            "settings": settings,
            "guidance": str(self.guidance),
            "instructions": self._describe_instructions(),
        }

    def _make(self, request: PhotoRequest) -> NDArray[np.uint8] | str:
        import torch

        height, width = request.size
        taken, draw = self._taken, request.draw
        # Kontext would choose another size, of about a million pixels.
        sizes = {"height": height, "width": width, "max_area": height * width}
        arguments: dict[str, Any] = {**sizes, "_auto_resize": False}
        arguments = {name: value for name, value in arguments.items() if name in taken}
        arguments |= self.settings or {}
        if self.guidance is not None:
            arguments[self.guidance] = draw.cfg
        for name, value in draw.parameters.items():
            if name not in taken or name in GIVEN_HERE:
                raise UserError(
                    f"recipe.draws.parameters.{name}: {self.model.kind.__name__} takes no {name}; "
                    f"it takes {', '.join(taken)}"
                )
            arguments[name] = value
        if request.photo is not None:
            arguments["image"] = Image.fromarray(request.photo)
        pipeline = self._pipeline
        try:
            with without_advice():
                result = pipeline(
                    prompt=request.prompt,
                    generator=torch.Generator("cpu").manual_seed(draw.seed),
                    output_type="np",
                    **arguments,
                )
        except (TypeError, ValueError, AttributeError) as error:
            if request.photo is not None:
                raise
            raise UserError(
                f"{self.model.kind.__name__} makes no image without a photo ({error}): give "
                "photos (data.source=FOLDER recipe.source_images=true), or weights that also make "
                "images from texts, such as FLUX.2 klein's"
            ) from error
        images = getattr(result, "images", None)
        if images is None:
            raise UserError(f"{self.model.kind.__name__} returns no images, but {list(result)}")
        if any(getattr(result, "nsfw_content_detected", None) or ()):
            return UNSAFE
        image = np.asarray(images[0])
        if not np.isfinite(image).all():
            raise FloatingPointError(
                f"an image is not finite with model.dtype={self.model.dtype}: use bf16 or fp32"
            )
        return (image * 255).round().astype(np.uint8)


def _is_plain(annotation: Any) -> bool:
    """Say whether an annotation is of plain values, against which a setting can be held."""
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return all(kind in (int, float, str, bool, NoneType) for kind in kinds)


def _editing_pipelines(name: str, parts: Collection[str]) -> list[str]:
    """Return the image-to-image pipelines of a family that are built from some parts."""
    import diffusers

    others = []
    for other in dir(diffusers):
        if other.startswith(name.removesuffix("Pipeline")) and other.endswith("Img2ImgPipeline"):
            needed = inspect.signature(getattr(diffusers, other)).parameters.values()
            if all(
                argument.name in parts or argument.default is not argument.empty
                for argument in needed
            ):
                others.append(other)
    return others
