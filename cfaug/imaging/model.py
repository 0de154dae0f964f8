"""The configuration nodes of diffusion models; no torch and no diffusers at import."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cfaug.core import weights
from cfaug.core.annotations import NO_RESULT, OneOf
from cfaug.core.devices import send
from cfaug.core.errors import UserError, say_once
from cfaug.core.processes import check_device, choose_device, uncollected
from cfaug.core.safety.safe_loading import (
    check_finite,
    check_folder,
    from_folder,
    read_json,
    skeleton,
)
from cfaug.core.safety.yaml_text import parse_yaml
from cfaug.core.validation import check_fields
from cfaug.models.checkpoints import quiet
from cfaug.settings.read_if import GIVEN, ReadIf

if TYPE_CHECKING:
    import torch
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from torch import Tensor
    from transformers import CLIPTextModel, CLIPTokenizer


DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}
SAFE_WEIGHTS = ("diffusion_pytorch_model.safetensors", "model.safetensors")
PARTS = ("unet", "vae", "text_encoder", "tokenizer", "scheduler")
MODEL_INDEX = "model_index.json"
DEVICE = "recipe.image_editor.model.device"
WANTED = (
    MODEL_INDEX, "README.md", "*/*.json", "*/*.txt", "*/*.model", "*/*.jinja",
    "*/diffusion_pytorch_model*.safetensors", "*/model*.safetensors",
)  # fmt: skip
"""Patterns of the files of a pipeline: what its model_index.json names, and its model card."""


@dataclass(frozen=True)
class Diffusion:
    """A loaded model, on its device, in evaluation mode.

    Attributes:
        text_encoder: the encoder whose last hidden state the UNet attends to.
    """

    unet: UNet2DConditionModel
    vae: AutoencoderKL
    text_encoder: CLIPTextModel
    tokenizer: CLIPTokenizer
    scheduler: dict[str, Any]
    device: torch.device
    dtype: torch.dtype

    def encode(self, text: str) -> Tensor:
        """Return the embedding (tokens, width) of one text.

        One text is encoded at a time, so that results do not depend on other texts; callers encode
        each text only once anyway.
        """
        tokens = self.tokenizer(
            text,
            padding="max_length",
            truncation=True,
            max_length=self.tokenizer.model_max_length,
            return_tensors="pt",
        )
        hidden: Tensor = self.text_encoder(send(tokens["input_ids"], self.device))[0][0]
        return hidden

    @property
    def pixels_per_latent(self) -> int:
        """Return the side of the square of pixels that one place of the latents stands for."""
        return int(2 ** (len(self.vae.config.block_out_channels) - 1))

    def encode_image(self, image: Tensor) -> Tensor:
        """Map an image float32 (3, H, W) in [0, 1] to latents (channels, height, width).

        The latents are the autoencoder's mean, scaled for the UNet, in float32, or in float64 for a
        float64 model. One image is encoded at a time, so that results do not depend on others.
        """
        config = self.vae.config
        pixels = send((image * 2 - 1)[None].to(self.dtype), self.device)
        mean = self.vae.encode(pixels).latent_dist.mean[0]
        exact = mean.float() if self.dtype.itemsize < 4 else mean
        tensor: Tensor = (exact - (config.get("shift_factor") or 0.0)) * config.scaling_factor
        return tensor

    def decode(self, latents: Tensor) -> Tensor:
        """Map latents (n, channels, height, width) to images float32 (n, 3, H, W) in [0, 1]."""
        config = self.vae.config
        scaled = latents / config.scaling_factor + (config.get("shift_factor") or 0.0)
        pixels: Tensor = self.vae.decode(scaled.to(self.dtype), return_dict=False)[0]
        return as_image(pixels, self.vae)


def as_image(pixels: Tensor, vae: AutoencoderKL) -> Tensor:
    """Map the output of an autoencoder's decoder to float32 in [0, 1].

    Raises:
        UserError: if a value is infinite or NaN: what follows, such as a score of CLIP, would be.
    """
    if not pixels.isfinite().all():
        number_format = str(vae.dtype).removeprefix("torch.")
        raise UserError(
            f"the autoencoder (VAE), a {type(vae).__name__} in {number_format}, makes images that "
            "are infinite or not numbers (NaN): it overflows in that format. Choose dtype=bf16 or "
            "fp32 beside its weights (zoo.diffusion.dtype), or a VAE that is made for fp16, as "
            "zoo.diffusion.vae=madebyollin/sdxl-vae-fp16-fix of Stable Diffusion XL; in fp32 its "
            "weights are damaged"
        )
    return (pixels.float() / 2 + 0.5).clamp(0, 1)


@dataclass(frozen=True)
class DiffusionWeights:
    """A Stable Diffusion model, its number format and its device.

    Args:
        weights: a folder written by ``StableDiffusionPipeline.save_pretrained``, ``zoo:NAME``, or a
            Hub id.
        vae: the folder, ``zoo:NAME`` or Hub id of another AutoencoderKL (COCO-Counterfactuals:
            ft-MSE); ``None`` is the pipeline's own.
        dtype: ``fp32``, ``bf16`` or ``fp16``; latents and the sampler's arithmetic stay float32.
            ``fp64`` is for comparing with a reference.
        device: ``auto`` (CUDA where there is one), or another name that
            ``cfaug.core.processes.choose_device`` knows.
        compile: whether the UNet is compiled; the first calls then take minutes.
    """

    weights: str
    revision: str | None = None
    """the commit on the Hub; null: the newest"""
    vae: str | None = None
    vae_revision: Annotated[str | None, ReadIf({"vae": GIVEN})] = None
    """the commit of ``vae`` on the Hub; null: the newest"""
    dtype: Annotated[str, OneOf(DTYPES)] = "fp32"
    device: Annotated[str, NO_RESULT] = "auto"
    channels_last: bool = False
    """the memory format of convolutions, faster on some GPUs"""
    compile: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor.model")
        check_device(self.device, DEVICE)

    @cached_property
    def _folder(self) -> Path:
        return resolve(self.weights, self.revision, self._needs)

    @property
    def _needs(self) -> tuple[str, ...]:
        return PARTS if self.vae is None else tuple(part for part in PARTS if part != "vae")

    @cached_property
    def _vae_folder(self) -> Path:
        if self.vae is None:
            return self._folder / "vae"
        return resolve(self.vae, self.vae_revision, ())

    def load(self) -> Diffusion:
        """Load all parts, from safetensors only."""
        with uncollected():
            import torch
            from diffusers import AutoencoderKL, UNet2DConditionModel
            from transformers import CLIPTextModel, CLIPTokenizer

        device = choose_device(self.device, DEVICE)
        dtype: torch.dtype = getattr(torch, DTYPES[self.dtype])
        folder = self._folder
        file = folder / "scheduler" / "scheduler_config.json"
        layout = torch.channels_last if self.channels_last else torch.preserve_format
        parts: dict[str, Any] = {}
        for name, kind, where in (
            ("unet", UNet2DConditionModel, folder / "unet"),
            ("vae", AutoencoderKL, self._vae_folder),
            ("text_encoder", CLIPTextModel, folder / "text_encoder"),
        ):
            part = load_part(kind, where, dtype).to(device).requires_grad_(False).eval()
            parts[name] = part if name == "text_encoder" else part.to(memory_format=layout)
        # A UNet that needs other inputs than the latents and one text is refused.
        config, latents = parts["unet"].config, parts["vae"].config.latent_channels
        width, reads = parts["text_encoder"].config.hidden_size, ""
        if config.in_channels != latents:
            reads = f"reads {config.in_channels} channels, and the autoencoder makes {latents}"
        elif config.addition_embed_type or config.class_embed_type:
            reads = "needs more than a text, as those of SDXL do"
        elif config.cross_attention_dim != width:
            reads = f"reads texts of width {config.cross_attention_dim}, not {width}"
        if reads:
            raise UserError(
                f"recipe.image_editor.model.weights={self.weights}: its UNet {reads}, so "
                "this is not Stable Diffusion 1 or 2. For SDXL and newer pipelines take "
                "zoo=sd35 zoo.set_editor.model.weights=NAME, for InstructPix2Pix zoo=flux2_klein "
                "zoo.photo_editor.model.weights=NAME (docs/editors.md)"
            )
        scheduler = read_json(file)
        if not isinstance(scheduler, dict):
            raise UserError(f"{file} is not the configuration of a scheduler")
        return Diffusion(
            **parts,
            tokenizer=load_tools(CLIPTokenizer, folder / "tokenizer"),
            scheduler=scheduler,
            device=device,
            dtype=dtype,
        )

    def describe(self) -> dict[str, str]:
        return dict(self._described)

    @cached_property
    def _described(self) -> dict[str, str]:
        described = {"diffusion": self.weights, **identity("diffusion", self._folder, self._needs)}
        if self.vae is not None:
            described |= {"vae": self.vae, **identity("vae", self._vae_folder, ())}
        return described | {"dtype": self.dtype}


@contextmanager
def without_advice() -> Iterator[None]:
    """Silence diffusers' advice, which it would repeat for every image."""
    from diffusers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def load_tools(kind: Any, folder: Path) -> Any:
    """Load a tokenizer or an image processor of a pipeline."""
    try:
        return from_folder(kind, folder)
    except UserError:
        raise
    except Exception as error:  # a broken folder may raise anything
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise UserError(f"{folder} has no {kind.__name__} that can be loaded: {reason}") from error


def load_part(kind: Any, folder: Path, dtype: torch.dtype) -> Any:
    """Load one part of a pipeline from safetensors."""
    options: dict[str, Any] = {"use_safetensors": True, "dtype": dtype}
    if kind.__module__.startswith("diffusers.models"):
        # Set explicitly, because diffusers otherwise prints advice if accelerate is not installed.
        options["torch_dtype"] = options.pop("dtype")
        options["low_cpu_mem_usage"] = find_spec("accelerate") is not None
    check_folder(folder)
    try:
        if not any(list(folder.glob(f"{name}*")) for name in SAFE_WEIGHTS):
            raise FileNotFoundError("there is no such file")
        skeleton(kind, folder, SAFE_WEIGHTS)
        with quiet(), without_advice():
            part = from_folder(kind, folder, **options)
        check_finite(part, folder)
        return part
    except UserError:
        raise
    except Exception as error:  # diffusers and transformers raise many unrelated types
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise UserError(
            f"{folder} holds no {kind.__name__} in safetensors ({reason}); convert pickled weights "
            "with the model's own save_pretrained(folder, safe_serialization=True)"
        ) from error


def resolve(name: str, revision: str | None, parts: tuple[str, ...]) -> Path:
    """Return the folder of a ``zoo:NAME``, a folder, or a Hub id (downloaded if necessary).

    Args:
        parts: the required subfolders; empty for a folder of one model.
    """
    wanted = ("*.json", "*.txt", "diffusion_pytorch_model*.safetensors", "model*.safetensors")
    of_parts = [f"{part}/{pattern}" for part in parts for pattern in wanted]
    folder = weights.resolve(name, revision, of_parts or wanted)
    missing = [part for part in parts or ("config.json",) if not (folder / part).exists()]
    if missing:
        raise UserError(
            f"recipe.image_editor.model: {name} is not a Stable Diffusion folder: {folder} lacks "
            + ", ".join(missing)
        )
    return folder


def identity(prefix: str, folder: Path, parts: tuple[str, ...]) -> dict[str, str]:
    """Return the Hub's revision of a fetched folder, or the sha256 of a local one's files."""
    if folder.parent.name == "snapshots":  # the Hub's cache names a snapshot by its commit
        return {f"{prefix}_revision": folder.name}
    digest = hashlib.sha256()
    for path in sorted(p for part in parts or (".",) for p in (folder / part).rglob("*")):
        if path.suffix in (".safetensors", ".json", ".txt"):
            digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
            with path.open("rb") as handle:
                digest.update(hashlib.file_digest(handle, "sha256").digest())
    return {f"{prefix}_sha256": digest.hexdigest()}


@dataclass(frozen=True)
class PipelineFolder:
    """A pipeline of diffusers with all its parts, as ``save_pretrained`` writes it.

    The pipeline's class is the one that ``model_index.json`` names. Every part is loaded from
    safetensors by the class that is named there, which has to be one of diffusers or transformers:
    a folder's own code is never run.

    Args:
        weights: a folder, ``zoo:NAME``, or a Hub id.
        revision: the commit of a Hub id; ``None`` for the newest.
        pipeline: another class of diffusers that is built from the same parts, such as
            ``StableDiffusion3Img2ImgPipeline`` from the weights of a text-to-image pipeline.
        dtype: ``fp32``, ``bf16`` or ``fp16``; ``fp64`` is for comparing with a reference.
        device: ``auto`` (CUDA where there is one), or another name that
            ``cfaug.core.processes.choose_device`` knows.
    """

    weights: str
    revision: str | None = None
    pipeline: str | None = None
    dtype: Annotated[str, OneOf(DTYPES)] = "fp32"
    device: Annotated[str, NO_RESULT] = "auto"

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor.model")
        check_device(self.device, DEVICE)

    def is_here(self) -> bool:
        """Say whether the folder is on this machine, without downloading anything."""
        try:
            weights.resolve(self.weights, self.revision, [MODEL_INDEX], fetch=False)
        except UserError:
            return False
        return True

    @cached_property
    def index(self) -> Mapping[str, Any]:
        """The content of ``model_index.json``, the first file that is downloaded."""
        folder = weights.resolve(self.weights, self.revision, [MODEL_INDEX])
        file = folder / MODEL_INDEX
        content = read_json(file) if file.is_file() else None
        if not isinstance(content, dict) or not isinstance(content.get("_class_name"), str):
            raise UserError(
                f"recipe.image_editor.model: {folder} is not a pipeline of diffusers: it has no "
                f"{MODEL_INDEX} that names a class. Single files of weights are converted by "
                "from_single_file and save_pretrained"
            )
        return content

    @cached_property
    def kind(self) -> type:
        """The pipeline's class."""
        with uncollected():
            import diffusers

        name = self.pipeline or str(self.index["_class_name"])
        kind = getattr(diffusers, name, None)
        if not isinstance(kind, type) or not issubclass(kind, diffusers.DiffusionPipeline):
            where = MODEL_INDEX if self.pipeline is None else "recipe.image_editor.model.pipeline"
            raise UserError(
                f"{where} of {self.weights} names {name}, which diffusers {diffusers.__version__} "
                "does not have as a pipeline: a newer diffusers may have it"
            )
        return kind

    @cached_property
    def _folder(self) -> Path:
        return weights.resolve(self.weights, self.revision, WANTED)

    def load(self) -> Any:
        """Build the pipeline on its device."""
        import torch

        check_folder(self._folder)
        taken = inspect.signature(self.kind).parameters
        dtype = getattr(torch, DTYPES[self.dtype])
        given: dict[str, Any] = {}
        for name, value in self.index.items():
            if name.startswith("_") or name not in taken:
                continue
            given[name] = self._part(name, value, dtype) if isinstance(value, list) else value
        if "add_watermarker" in taken:  # otherwise what is installed would decide
            given["add_watermarker"] = False
        optional = getattr(self.kind, "_optional_components", ())
        missing = [
            name
            for name, parameter in taken.items()
            if parameter.default is parameter.empty
            and given.setdefault(name) is None
            and name not in optional
        ]
        if missing:
            raise UserError(
                f"{self._folder} lacks {', '.join(missing)}, which a {self.kind.__name__} needs"
            )
        pipeline = self.kind(**given).to(choose_device(self.device, DEVICE))
        pipeline.set_progress_bar_config(disable=True)
        return pipeline

    def _part(self, name: str, value: Sequence[Any], dtype: torch.dtype) -> Any:
        """Load one part by the class that ``model_index.json`` names."""
        import diffusers
        import transformers

        library, kind_name = map(str, value) if len(value) == 2 else ("", "")
        if kind_name in ("None", ""):
            return None
        known: dict[str, Any] = {"diffusers": diffusers, "transformers": transformers}
        if kind_name == "StableDiffusionSafetyChecker":
            from diffusers.pipelines.stable_diffusion import safety_checker

            known["stable_diffusion"] = safety_checker
        kind = getattr(known.get(library), kind_name, None)
        folder = self._folder / name
        if isinstance(kind, type):
            if issubclass(kind, diffusers.ModelMixin | transformers.PreTrainedModel):
                return load_part(kind, folder, dtype).requires_grad_(False).eval()
            if issubclass(
                kind,
                diffusers.SchedulerMixin
                | transformers.PreTrainedTokenizerBase
                | transformers.ProcessorMixin
                | transformers.FeatureExtractionMixin
                | transformers.image_processing_utils.BaseImageProcessor,
            ):
                return load_tools(kind, folder)
        raise UserError(
            f"{self._folder / MODEL_INDEX}: {name} is {library}.{kind_name}, which is not a model, "
            "tokenizer, processor or scheduler of diffusers or transformers: code of others is "
            "never run"
        )

    def describe(self) -> dict[str, str]:
        return dict(self._described)

    @cached_property
    def _described(self) -> dict[str, str]:
        licence = read_licence(self._folder / "README.md")
        if re.search(r"non-?commercial|research", licence, re.IGNORECASE):
            say_once(f"{self.weights}: its licence, {licence}, restricts the use of its images")
        return {
            "diffusion": self.weights,
            **identity("diffusion", self._folder, ()),
            "licence": licence,
            "pipeline": self.kind.__name__,
            "dtype": self.dtype,
        }


def read_licence(card: Path) -> str:
    """Return the licence that a model card names; ``unknown`` without a card."""
    if not card.is_file():
        return "unknown"
    text = card.read_text(encoding="utf-8", errors="replace")[:100_000]
    match = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
    try:
        said = parse_yaml(match[1], card) if match else None
    except UserError:
        said = None
    if not isinstance(said, Mapping):
        return "unknown"
    names = [str(said[key]) for key in ("license", "license_name") if said.get(key)]
    return " ".join(names)[:200] or "unknown"
