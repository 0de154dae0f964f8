"""Entailers that read image and hypothesis together: a fusion encoder with a head of three logits.

A checkpoint is an ordinary ``save_pretrained`` folder: the encoder's weights under transformers'
names, the head's as ``classifier.*``, and a ``config.json`` that names the encoder's class and the
three labels. transformers itself can load the encoder of such a folder, and
``ViltForQuestionAnswering`` loads a ViLT with its head.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cfaug.core.errors import UserError
from cfaug.core.pixels import Geometry
from cfaug.core.rng import derive
from cfaug.core.safety.safe_loading import check_finite, read_json
from cfaug.core.types import ENTAILMENT
from cfaug.core.weights import find_weights
from cfaug.models.checkpoints import quiet, read_state, replace_checkpoint
from cfaug.models.encoder import Tunable, on_device
from cfaug.models.entailer import label_columns
from cfaug.models.pretrained import FromFolder, inputs, label_names

HEAD = "classifier"
SPREAD = 0.02
"""Standard deviation of a new head's weights, as in METER's ``init_weights``."""


class FusionEntailer(FromFolder, Tunable, ABC):
    """A :class:`cfaug.core.protocols.Entailer` whose premise is an image.

    The head is the one of METER for SNLI-VE (Dou et al., 2022; ``snli_classifier`` of its code):
    linear, layer norm, GELU, linear, on the encoder's pooled features.

    Args:
        model: the encoder, a model that transformers has loaded.
        max_length: hypotheses are truncated to this many tokens; ``None`` is the model's limit.
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
        labels: the label of each logit, in order; ``None`` takes them from ``config.json``.
        head_seed: the seed of a random head for a folder without one; ``None`` refuses the folder.
    """

    def __init__(
        self,
        model: nn.Module,
        processor: Any,
        folder: Path,
        *,
        max_length: int | None = None,
        geometry: Geometry | None = None,
        labels: Sequence[str] | None = None,
        head_seed: int | None = None,
    ) -> None:
        super().__init__()
        self.transform, self.tokenizer = inputs(model, processor, folder, max_length, geometry)
        self.processor = processor
        width = self.pooled_width(model)
        stored = _read_head(folder)
        own: Sequence[str]
        if head_seed is not None and not _answers_three(stored):
            head, own = _draw_head(width, 2 * self.hidden_size(model), head_seed), ENTAILMENT
        else:
            _require_head(stored, folder)
            head = _fill_head(stored, width, folder)
            own = label_names(model, folder) if labels is None else labels
        self.columns = label_columns(own, len(ENTAILMENT), folder)
        self.model = _Assembled(model, head)
        check_finite(self.model, folder)

    @classmethod
    def load(cls, folder: Path, **settings: Any) -> Self:
        """Load a folder in float32, in evaluation mode.

        Args:
            folder: a ``save_pretrained`` folder with weights and processor.
            settings: keyword arguments of the constructor.
        """
        import transformers

        wanted = getattr(transformers, cls.transformers_class).config_class.model_type
        said = read_json(folder / "config.json") if (folder / "config.json").is_file() else None
        there = said.get("model_type") if isinstance(said, dict) else None
        if there not in (None, wanted):
            raise UserError(
                f"{folder} holds a model of the type {there!r}, and this entailer is a {wanted!r}: "
                "choose the model=... of that type"
            )
        return super().load(folder, **settings)

    @staticmethod
    def hidden_size(model: Any) -> int:
        """Return the width of the encoder's layers."""
        return int(model.config.hidden_size)

    @classmethod
    def pooled_width(cls, model: Any) -> int:
        """Return the width of the head's input."""
        return cls.hidden_size(model)

    @property
    def encoder(self) -> Any:
        """The transformers encoder."""
        return self.model.encoder

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.model.parameters()).device

    def entail(
        self, premises: Sequence[str], hypotheses: Sequence[str], pixels: Tensor | None = None
    ) -> Tensor:
        """Return the probabilities of entailment, neutral and contradiction: float32 (n, 3)."""
        return F.softmax(self.logits(check_images(premises, pixels), hypotheses), dim=-1)

    def logits(self, pixels: Tensor, hypotheses: Sequence[str]) -> Tensor:
        """Map uint8 pixels (n, 3, size, size) and n texts to float32 (n, 3), before any softmax."""
        return self._answer(self.pool(self._normalize(pixels), self._tokens(hypotheses)))

    def _normalize(self, pixels: Tensor) -> Tensor:
        return self.transform.normalize(pixels.to(self.device, non_blocking=True))

    def _tokens(self, hypotheses: Sequence[str]) -> dict[str, Tensor]:
        return on_device(self.tokenizer(hypotheses), self.device)

    def _answer(self, pooled: Tensor) -> Tensor:
        logits: Tensor = self.model.classifier(pooled)
        return logits.float()[:, self.columns]

    @abstractmethod
    def pool(self, pixels: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Map normalised float32 (n, 3, size, size) and n tokenised texts to the head's input.

        Returns:
            The pooled features, (n, width).
        """

    def save(self, folder: Path) -> None:
        """Write a ``save_pretrained`` folder with head and processor, atomically."""
        from safetensors.torch import save_file

        encoder = self.encoder
        config = copy.deepcopy(encoder.config)
        config.architectures = [type(encoder).__name__]
        names = sorted(zip(self.columns, ENTAILMENT, strict=True))
        config.id2label = dict(names)
        config.label2id = {name: number for number, name in names}
        state = {name: tensor.contiguous() for name, tensor in self.model.state_dict().items()}
        with replace_checkpoint(folder) as fresh, quiet():
            config.save_pretrained(fresh)
            save_file(state, fresh / "model.safetensors", metadata={"format": "pt"})
            self.processor.save_pretrained(fresh)


class TowerEntailer(FusionEntailer):
    """A fusion encoder with a separate image tower, whose output several hypotheses share."""

    @abstractmethod
    def image_states(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 (n, 3, size, size) to the image input of ``fuse``, (n, ...)."""

    @abstractmethod
    def fuse(self, states: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Map states of images and n tokenised texts to the head's input, (n, width)."""

    def pool(self, pixels: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Map images and texts to the head's input, (n, width)."""
        return self.fuse(self.image_states(pixels), tokens)

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size) to the input of ``entail_encoded``, (n, ...)."""
        return self.image_states(self._normalize(pixels))

    def entail_encoded(self, images: Tensor, hypotheses: Sequence[str]) -> Tensor:
        """Return the probabilities of ``entail`` for outputs of ``encode_images``."""
        return F.softmax(self._answer(self.fuse(images, self._tokens(hypotheses))), dim=-1)


class _Assembled(nn.Module):
    """An encoder and its head, under their names in a transformers checkpoint.

    Args:
        head: the head on the encoder's pooled features.
    """

    def __init__(self, encoder: Any, head: nn.Sequential) -> None:
        super().__init__()
        self._prefix = str(encoder.base_model_prefix)
        self.add_module(self._prefix, encoder)
        self.add_module(HEAD, head)

    @property
    def encoder(self) -> Any:
        """The transformers encoder."""
        return getattr(self, self._prefix)


def check_images(premises: Sequence[str], pixels: Tensor | None) -> Tensor:
    """Return the images, which are the premises."""
    if pixels is None:
        raise UserError("this model reads images: give the image of each hypothesis")
    if any(premises):
        raise UserError(
            "this model's premise is the image: leave the premises' texts empty, or choose "
            "model=entailer, which reads texts only"
        )
    return pixels


def _head(width: int, inner: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, inner), nn.LayerNorm(inner), nn.GELU(), nn.Linear(inner, len(ENTAILMENT))
    )


def _draw_head(width: int, inner: int, seed: int) -> nn.Sequential:
    """Return a random head that depends only on the seed."""
    chance = torch.Generator().manual_seed(derive(seed, "entailment_head") % 2**63)
    head = _head(width, inner)
    with torch.no_grad():
        for layer in head:
            if isinstance(layer, nn.Linear):
                layer.weight.normal_(0.0, SPREAD, generator=chance)
                layer.bias.zero_()
    return head


def _read_head(folder: Path) -> dict[str, Tensor]:
    """Return the weights of a folder's head by their names in it; empty if it has none."""
    found: dict[str, Tensor] = {}
    for file in find_weights(folder):
        if file.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(file, "pt") as handle:
                names = [name for name in handle.keys() if name.startswith(f"{HEAD}.")]  # noqa: SIM118
                found |= {name: handle.get_tensor(name) for name in names}
        else:
            found |= {k: v for k, v in read_state(file).items() if k.startswith(f"{HEAD}.")}
    return {name.removeprefix(f"{HEAD}."): tensor.float() for name, tensor in found.items()}


def _answers_three(stored: dict[str, Tensor]) -> bool:
    last = stored.get("3.weight")
    return last is not None and last.ndim == 2 and len(last) == len(ENTAILMENT)


def _require_head(stored: dict[str, Tensor], folder: Path) -> None:
    if _answers_three(stored):
        return
    last = stored.get("3.bias")
    there = "no head" if last is None else f"a head of {last.numel()} logits"
    raise UserError(
        f"{folder} has {there}, and three logits are needed: fine-tune it first with "
        "`python train.py task=entailment model.name_or_path=FOLDER data.real=SNLI_VE`, and name "
        "the checkpoint of that run"
    )


def _fill_head(stored: dict[str, Tensor], width: int, folder: Path) -> nn.Sequential:
    head = _head(width, len(stored["3.weight"][0]))
    wanted = {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
    there = {name: tuple(tensor.shape) for name, tensor in stored.items()}
    if wanted != there:
        raise UserError(
            f"{folder}: the head ({HEAD}.*) does not fit the encoder: its weights are {there}, and "
            f"{wanted} are needed"
        )
    head.load_state_dict(stored)
    return head
