"""Floating-point operations of image models, counted from their configurations, without weights.

A model is built on torch's meta device, which has shapes and no values, and torch's own counter
counts one call: a multiplication and an addition are two operations, and only matrix products,
convolutions and attention count. Sharing attention neither adds nor saves any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core import weights
from cfaug.core.errors import UserError
from cfaug.core.safety.safe_loading import check_numbers, read_json
from cfaug.core.types import Draw
from cfaug.imaging.instructed_photos import InstructedPhotos, PhotoRequest
from cfaug.imaging.model import WANTED, DiffusionWeights, PipelineFolder
from cfaug.imaging.shared_pipeline import SharedPipeline

if TYPE_CHECKING:
    import torch
    from torch import nn

_STABLE_DIFFUSION = {
    "unet": {"sample_size": 64, "cross_attention_dim": 768, "attention_head_dim": 8},
    "vae": {
        "down_block_types": ["DownEncoderBlock2D"] * 4,
        "up_block_types": ["UpDecoderBlock2D"] * 4,
        "block_out_channels": [128, 256, 512, 512],
        "layers_per_block": 2,
        "sample_size": 512,
    },
    "text_encoder": {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12,
    },
}  # fmt: skip
KNOWN: Mapping[str, Mapping[str, Any]] = {
    "stable-diffusion-v1-5/stable-diffusion-v1-5": _STABLE_DIFFUSION,
    "CompVis/stable-diffusion-v1-4": _STABLE_DIFFUSION,
    "stabilityai/sd-vae-ft-mse": {"": _STABLE_DIFFUSION["vae"]},
    "openai/clip-vit-large-patch14": {
        "": {
            "model_type": "clip",
            "projection_dim": 768,
            "text_config": _STABLE_DIFFUSION["text_encoder"],
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
                "num_attention_heads": 16, "patch_size": 14, "image_size": 224,
            },
        }
    },
}  # fmt: skip
"""Configurations of the models of ``zoo=paper``, by name and part: what differs from the defaults
of their classes. They are used where the models are not on this machine."""


LARGEST = (10_000, 10**12)
"""Tensors and parameters of the largest model that a configuration may describe."""


class UncountedError(Exception):
    """A model whose operations are unknown here, with the reason."""


def count_operations(call: Callable[[], object]) -> int:
    """Return the floating-point operations of a call."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


def read_configuration(name: str, revision: str | None, part: str = "") -> Mapping[str, Any]:
    """Return the configuration of a model, without downloading it.

    Args:
        part: the folder within a pipeline; empty for a model of its own.

    Raises:
        UncountedError: if it is neither on this machine nor known.
    """
    try:
        folder = weights.resolve(name, revision, [f"{part}/config.json".lstrip("/")], fetch=False)
        file: Path | None = folder / part / "config.json"
    except UserError:
        file = None
    if file is not None and file.is_file():
        return _read(file)
    if part in KNOWN.get(name, {}):
        known: Mapping[str, Any] = KNOWN[name][part]
        return known
    raise UncountedError(
        f"no configuration of {name}{part and f' ({part})'} is on this machine; where there is a "
        f"network: hf download {name} --include '*.json'"
    )


def _read(file: Path) -> dict[str, Any]:
    """Read a configuration that somebody else wrote, and that no weights have been checked with."""
    content = read_json(file) if file.is_file() else None
    if not isinstance(content, dict):
        raise UncountedError(f"{file} is not a configuration")
    try:
        check_numbers(content, file, LARGEST)
    except UserError as error:
        raise UncountedError(str(error)) from error
    return content


@dataclass(frozen=True)
class DiffusionOperations:
    """What parts of a diffusion model take.

    Attributes:
        row: a call of the network with one latent and one text.
        gradient: the same, with the gradient by the text; 0 where there is no such use.
        decode: one latent to an image.
        encode: one image to a latent; 0 where there is no such use.
        text: one text.
        weights: parameters of all parts.
        side: the side of an image in pixels.
        guides: whether guidance needs a row without text.
    """

    row: int
    gradient: int
    decode: int
    encode: int
    text: int
    weights: int
    side: int
    guides: bool = True


@cache
def count_diffusion(model: DiffusionWeights) -> DiffusionOperations:
    """Count the operations of the parts of a Stable Diffusion model.

    Raises:
        UncountedError: if a configuration is missing or invalid.
    """
    import torch
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    name, revision = model.weights, model.revision
    own_vae = (name, revision, "vae")
    of_vae = own_vae if model.vae is None else (model.vae, model.vae_revision, "")
    unet = build_empty(
        lambda: UNet2DConditionModel.from_config(read_configuration(name, revision, "unet"))
    )
    vae = build_empty(lambda: AutoencoderKL.from_config(read_configuration(*of_vae)))
    encoder = build_empty(
        lambda: CLIPTextModel(CLIPTextConfig(**read_configuration(name, revision, "text_encoder")))
    )
    latent = torch.empty(
        1, unet.config.in_channels, *[int(unet.config.sample_size)] * 2, device="meta"
    )
    length = encoder.config.max_position_embeddings
    text = torch.empty(1, length, unet.config.cross_attention_dim, device="meta")
    step = torch.zeros((), device="meta")
    scale = 2 ** (len(vae.config.block_out_channels) - 1)
    side = int(unet.config.sample_size) * scale
    image = torch.empty(1, 3, side, side, device="meta")
    tokens = torch.zeros(1, length, dtype=torch.long, device="meta")

    def differentiate() -> None:
        given = text.clone().requires_grad_()
        unet(latent, step, given, return_dict=False)[0].sum().backward()

    with torch.no_grad():
        row = count_operations(lambda: unet(latent, step, text))
        decode = count_operations(lambda: vae.decode(latent))
        encode = count_operations(lambda: vae.encode(image))
        words = count_operations(lambda: encoder(tokens))
    return DiffusionOperations(
        row, count_operations(differentiate), decode, encode, words,
        sum(map(count_weights, (unet, vae, encoder))), side,
    )  # fmt: skip


@dataclass(frozen=True)
class EncoderOperations:
    """What a dual encoder takes: for an image, for a text; and its parameters."""

    image: int
    text: int
    weights: int


@cache
def count_encoder(name: str, revision: str | None) -> EncoderOperations:
    """Count the operations of a dual encoder of transformers.

    Raises:
        UncountedError: if its configuration is missing or invalid.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    def build() -> nn.Module:
        settings = dict(read_configuration(name, revision))
        config = AutoConfig.for_model(settings.pop("model_type"), **settings)
        model: nn.Module = AutoModel.from_config(config, trust_remote_code=False)
        return model

    model: Any = build_empty(build)
    side = _image_side(name, revision) or model.config.vision_config.image_size
    length = model.config.text_config.max_position_embeddings
    image = torch.empty(1, 3, side, side, device="meta")
    tokens = torch.zeros(1, length, dtype=torch.long, device="meta")
    with torch.no_grad():
        return EncoderOperations(
            count_operations(lambda: model.get_image_features(pixel_values=image)),
            count_operations(lambda: model.get_text_features(input_ids=tokens)),
            count_weights(model),
        )


def _image_side(name: str, revision: str | None) -> int | None:
    """Return the side of the images of a model's own processor; ``None`` if it is not here."""
    try:
        folder = weights.resolve(name, revision, ["*.json"], fetch=False)
    except UserError:
        return None
    for file in ("processor_config.json", "preprocessor_config.json"):
        if (folder / file).is_file():
            content = read_json(folder / file)
            content = content.get("image_processor", content)
            size = content.get("crop_size") or content["size"]
            return int(size if isinstance(size, int) else next(iter(size.values())))
    return None


def build_empty(build: Callable[[], Any]) -> Any:
    """Build a model without values, as it is used: not trained.

    Raises:
        UncountedError: if its configuration is invalid.
    """
    import torch

    try:
        with torch.device("meta"):
            return build().float().requires_grad_(False).eval()
    except UncountedError:
        raise
    except Exception as error:  # a configuration of others may raise anything
        raise UncountedError(f"its configuration is invalid: {error}") from error


def count_weights(model: nn.Module) -> int:
    """Return the number of a model's parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


# Any pipeline of diffusers: it is run as it is, on the CPU, with models that answer by zeros.


@dataclass(frozen=True)
class PipelineOperations:
    """What an image takes, made from a text and edited by an instruction, and the parameters.

    Attributes:
        missing: the parts that are called and not counted.
    """

    image: int
    edit: int
    weights: int
    missing: tuple[str, ...] = ()


def count_pipeline(editor: InstructedPhotos, draw: Draw, *, from_texts: bool) -> PipelineOperations:
    """Count the operations of one image, for the first and for every other text of a set.

    Args:
        from_texts: whether the first image is made from its text; otherwise it is a photo.

    Raises:
        UncountedError: if files of the pipeline are missing, or it needs the values of its models.
    """
    import numpy as np

    size = (editor.side, editor.side)
    photo = np.zeros((*size, 3), np.uint8)
    made = []
    with _without_values(editor.model) as hollow:
        pipeline = replace(editor, model=hollow)
        for given in (None, photo) if from_texts else (photo,):
            before = hollow.operations
            pipeline.answer([PhotoRequest("a", given, draw, size)])
            made.append(hollow.operations - before)
    missing = tuple(dict.fromkeys(hollow.missing))
    return PipelineOperations(made[0] if from_texts else 0, made[-1], hollow.parameters, missing)


def count_shared(editor: SharedPipeline) -> DiffusionOperations:
    """Count the operations of the parts of a pipeline whose attention is shared.

    Raises:
        UncountedError: as ``count_pipeline``.
    """
    import torch

    from cfaug.imaging.attention import CallRows

    only = torch.zeros(1, dtype=torch.long)
    with _without_values(editor.model) as hollow, torch.no_grad():
        loaded = replace(editor, model=hollow)._loaded
        loaded.shared.rows = CallRows(source=only, text=only)
        counts = [hollow.operations]
        texts = tuple(tensor[None] for tensor in loaded.encode("a"))
        counts.append(hollow.operations)
        latent = torch.zeros(1, *loaded.shape)
        loaded(latent, torch.zeros(()), texts, only, torch.ones(1))
        counts.append(hollow.operations)
        loaded.decode(latent)
        counts.append(hollow.operations)
        text, row, decode = (last - first for first, last in pairwise(counts))
        return DiffusionOperations(
            row, 0, decode, 0, text, hollow.parameters, loaded.pixels, loaded.guides
        )


@contextmanager
def _without_values(model: PipelineFolder) -> Iterator[HollowPipeline]:
    """Yield the pipeline without weights; its errors, too, become ``UncountedError``."""
    try:
        folder = weights.resolve(model.weights, model.revision, WANTED, fetch=False)
        hollow = HollowPipeline(str(folder), None, model.pipeline, device="cpu")
        yield hollow
    except UserError as error:
        raise UncountedError(
            f"{model.weights}: {error}; its configurations alone: "
            f"hf download {model.weights} --exclude '*.safetensors' '*.bin' '*.ckpt'"
        ) from error
    except Exception as error:  # pipelines raise anything where a value matters
        raise UncountedError(
            f"{model.weights}: {hollow.kind.__name__} needs the values of its models, which a plan "
            f"does not load ({type(error).__name__})"
        ) from error


@dataclass(frozen=True)
class HollowPipeline(PipelineFolder):
    """A pipeline whose models count the operations of each call and return zeros.

    They are built as fake tensors, which have shapes and a device. Calls of equal shapes are
    counted once and remembered.
    """

    @cached_property
    def _counts(self) -> dict[str, int]:
        return {"operations": 0, "weights": 0}

    @cached_property
    def missing(self) -> list[str]:
        """The parts that are called and not counted."""
        return []

    @property
    def operations(self) -> int:
        """The operations of all calls so far."""
        return self._counts["operations"]

    @property
    def parameters(self) -> int:
        """The number of parameters of all models."""
        return self._counts["weights"]

    def _load_model(self, kind: Any, folder: Path, dtype: torch.dtype) -> Any:
        import torch
        from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
        from torch.utils._pytree import tree_flatten, tree_map

        config = _read(folder / "config.json")
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        with fake:
            made = (
                kind.from_config(config)
                if hasattr(kind, "load_config")
                else kind(kind.config_class.from_dict(config))
            )
        model = made.requires_grad_(False).eval()
        self._counts["weights"] += count_weights(model)
        for part in model.modules():  # of whose statistics pipelines read the values
            if isinstance(part, torch.nn.BatchNorm2d):
                part.running_mean = torch.zeros(part.num_features, dtype=dtype)
                part.running_var = torch.ones(part.num_features, dtype=dtype)
        known: dict[object, tuple[int, Any]] = {}

        def stand_in(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any, **named: Any) -> Any:
                shapes = tree_map(
                    lambda x: (tuple(x.shape), x.dtype) if isinstance(x, torch.Tensor) else x,
                    (name, given, named),
                )
                key = repr(tree_flatten(shapes))
                if key not in known:
                    with fake, torch.no_grad():
                        inputs = tree_map(
                            lambda x: fake.from_tensor(x) if isinstance(x, torch.Tensor) else x,
                            (given, named),
                        )
                        answer: list[Any] = []

                        def ask(**left_out: None) -> int:
                            taken = {**inputs[1], **left_out}
                            return count_operations(
                                lambda: answer.append(method(*inputs[0], **taken))
                            )

                        try:
                            count = ask()
                        except DataDependentOutputException:
                            if named.get("input_ids") is None:
                                raise
                            # Qwen2.5-VL reads the sizes of its pictures; their tokens stay.
                            count = ask(pixel_values=None, image_grid_thw=None)
                            self.missing.append(f"the pictures' encoder of {kind.__name__}")
                    known[key] = count, answer[0]
                count, answer_of = known[key]
                self._counts["operations"] += count
                return _as_zeros(answer_of)

            return call

        for name in ("forward", "encode", "decode"):
            method = getattr(model, name, None)
            if method is not None:
                setattr(model, name, stand_in(name, method))
        model.to = lambda *_, **__: model
        return model


def _as_zeros(value: Any) -> Any:
    """Return a model's answer with zeros of the same shapes."""
    import torch
    from torch.utils._pytree import tree_map

    spread = getattr(value, "latent_dist", None)
    if spread is not None:
        zeros = torch.zeros(spread.parameters.shape, dtype=spread.parameters.dtype)
        return type(value)(latent_dist=type(spread)(zeros))
    return tree_map(
        lambda x: torch.zeros(x.shape, dtype=x.dtype) if isinstance(x, torch.Tensor) else x, value
    )
