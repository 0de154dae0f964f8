"""Weights between two models: low-rank adapters (LoRA), and interpolation (WiSE-FT).

A saved adapter has PEFT's own format, safetensors and plain numbers. It names its base model, but
that name is never followed: the caller gives the base model, whose hash is compared.
Torch and peft are imported when needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cfaug.core.annotations import Means
from cfaug.core.atomic_files import write_json
from cfaug.core.errors import UserError
from cfaug.core.rng import derive
from cfaug.core.safety.safe_loading import ADAPTER, read_json
from cfaug.core.validation import Share
from cfaug.core.weights import sha256, sha256_text

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cfaug.models.specs import ModelSpec


NAME = "default"
WEIGHTS = "adapter_model.safetensors"
BASE = "adapter_base.json"
"""File beside an adapter of ours with the name and hash of its base model."""
PREFIX = "base_model.model."
"""PEFT's prefix of every layer's name in a file."""
HARMLESS = {
    "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision",
    "inference_mode", "r", "target_modules", "lora_alpha", "lora_dropout", "fan_in_fan_out",
    "megatron_core", "qalora_group_size",
}  # fmt: skip
"""Keys that may have any value; the tensors tell which layers are adapted."""
NEEDED: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian"),  # others start from changed base weights
}
"""Required values of keys that are present; any other key means another kind of layer."""


@dataclass(frozen=True)
class BaseModel:
    """The base model of an adapter, as the configuration gives it, with its weights' hash."""

    weights: str
    revision: str | None
    sha256: str


def inject(
    model: nn.Module, targets: Sequence[str], r: int, alpha: float, dropout: float, seed: int
) -> None:
    """Add new adapters to layers, in place, and freeze everything else.

    A layer's weight W acts as W + (alpha / r) B A, with A (r, in) drawn and B (out, r) zero.

    Args:
        targets: full names of linear layers, or of transformers' transposed ones (GPT-2's), or of
            weights that no linear layer holds.
    """
    import torch
    from peft import inject_adapter_in_model

    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # PEFT remarks that it sets it for a transposed layer.
        warnings.filterwarnings("ignore", message="fan_in_fan_out is set to False")
        torch.manual_seed(seed)
        config = _config(targets, r, alpha, dropout)
        weights = {name for name, _ in model.named_parameters()}
        config.target_parameters = sorted(weights.intersection(targets)) or None
        config.target_modules = set(targets) - weights
        inject_adapter_in_model(config, model, NAME)
    for name, parameter in model.named_parameters():
        if f".{NAME}." in name and parameter.dtype != torch.float32:
            parameter.data = parameter.data.float()  # for a base model in 16 bits, as in PEFT


def _config(targets: Sequence[str], r: int, alpha: float, dropout: float) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=r,
        lora_alpha=alpha,  # type: ignore[arg-type]  # any number scales
        lora_dropout=dropout,
        target_modules=sorted(targets),
    )


def merge(model: nn.Module) -> None:
    """Turn every adapted layer back into a plain one, with the adapter added to its weight.

    A model without adapters stays as it is.
    """
    for name, module in list(model.named_modules()):
        if hasattr(module, "lora_A") and hasattr(module, "merge"):
            module.merge(safe_merge=True)
            model.set_submodule(name, module.get_base_layer())


def save(model: nn.Module, folder: Path, base: BaseModel) -> None:
    """Write a model's adapters in PEFT's format, without the base weights."""
    from safetensors.torch import save_file

    layers = {n: m for n, m in model.named_modules() if hasattr(m, "lora_A")}
    if not layers:
        raise ValueError("the model has no adapter")
    first = next(iter(layers.values()))
    config = _config(
        [*layers], first.r[NAME], first.lora_alpha[NAME], getattr(first.lora_dropout[NAME], "p", 0)
    )
    config.base_model_name_or_path, config.revision = base.weights, base.revision
    config.inference_mode, config.task_type = True, "CAUSAL_LM"
    tensors = {
        PREFIX + name.replace(f".{NAME}.", "."): parameter.detach().cpu().contiguous()
        for name, parameter in model.named_parameters()
        if f".{NAME}." in name
    }
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    about = {k: sorted(v) if isinstance(v, set) else v for k, v in config.to_dict().items()}
    write_json(folder / ADAPTER, about, indent=2)
    write_json(folder / BASE, vars(base), indent=2)


def load(model: nn.Module, folder: Path, weights: Sequence[Path]) -> None:
    """Merge a saved adapter into the model it belongs to, in place.

    Args:
        folder: the folder of an adapter written by ``save`` or PEFT. No name in it is followed.
        weights: the base model's weight files; their hash is compared with the adapter's record.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    rank, alpha = _read_config(folder)
    file = folder / BASE
    about = read_json(file) if file.exists() else {}
    if not isinstance(about, dict):
        raise UserError(f"{file} is damaged: remove it to load the adapter unchecked")
    expected = about.get("sha256")
    if expected is not None and (there := sha256(weights)) != expected:
        raise UserError(
            f"{folder} was tuned on {about.get('weights')!r} with weights sha256:{expected}, "
            f"and {weights[0].parent} has sha256:{there}: give the weights it was tuned on"
        )
    try:
        tensors = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder / WEIGHTS} cannot be read: {error}") from error
    layers = sorted({name.removeprefix(PREFIX).rpartition(".lora_")[0] for name in tensors})
    modules = {name for name, _ in model.named_modules()}
    strange = [name for name in layers if name not in modules]
    if strange or not layers:
        culprit = strange[0] if strange else "no layer at all"
        raise UserError(
            f"{folder} adapts {culprit!r}, which the model lacks: it belongs to another model"
        )
    inject(model, layers, rank, alpha, 0.0, derive(0, "adapter"))
    parameters = {n: p for n, p in model.named_parameters() if f".{NAME}." in n}
    given = {
        name.removeprefix(PREFIX).replace(".weight", f".{NAME}.weight"): tensor
        for name, tensor in tensors.items()
    }
    for name in sorted({*parameters, *given}):
        if (
            name not in parameters
            or name not in given
            or parameters[name].shape != given[name].shape
        ):
            raise UserError(
                f"{folder / WEIGHTS}: {name} is missing, superfluous or of another shape: the "
                "adapter belongs to another model"
            )
        if not torch.isfinite(given[name]).all():
            raise UserError(f"{folder / WEIGHTS}: {name} holds values that are not numbers")
        parameters[name].data.copy_(given[name])
    merge(model)


def _read_config(folder: Path) -> tuple[int, float]:
    """Return the rank and alpha of a plain LoRA adapter."""
    file = folder / ADAPTER
    try:
        about = read_json(file)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    if not isinstance(about, dict):
        raise UserError(f"{file} is not a configuration of an adapter")
    for key, value in about.items():
        if key not in HARMLESS and value not in NEEDED.get(key, (None, False, [], {})):
            raise UserError(f"{file}: {key}={value!r}: only plain LoRA adapters are read")
    rank, alpha = about.get("r"), about.get("lora_alpha")
    for name, value in (("r", rank), ("lora_alpha", alpha)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 2**16:
            raise UserError(f"{file}: {name}={value!r} should be a number above 0")
    assert isinstance(rank, int | float)
    assert isinstance(alpha, int | float)
    if rank != int(rank):
        raise UserError(f"{file}: r={rank} should be a whole number")
    return int(rank), alpha


Factor = Annotated[
    Share,
    Means("0: the initial weights, 1: the run's own; such as wise_ft=[0,0.25,0.5,0.75,1]"),
]
"""The share of the fine-tuned weights in a mixture."""
NAMED = 3
"""Number of differences between two checkpoints that a message names."""


@dataclass
class Ends:
    """Two checkpoints of one architecture, read once for all interpolations.

    They are interpolated as in WiSE-FT (Wortsman et al., 2022, section 3).

    Args:
        tuned: the fine-tuned checkpoint, at factor 1; its tokenizer, processor and settings are
            used.
    """

    initial: ModelSpec
    tuned: ModelSpec
    owner: str
    _loaded: dict[type | None, tuple[Any, Mapping[str, Tensor], Mapping[str, Tensor]]] = field(
        default_factory=dict, repr=False
    )

    def load(self, factor: float, protocol: type | None = None) -> Any:
        """Return the shared model with weights (1 - factor) * initial + factor * tuned.

        It is the same object at every factor: an earlier result gets the new weights.
        """
        import torch

        from cfaug.models.checkpoints import find_differences

        if protocol not in self._loaded:
            before = dict(_module(self.initial.load(protocol)).state_dict())
            tuned = self.tuned.load(protocol)
            after = {name: weight.clone() for name, weight in _module(tuned).state_dict().items()}
            wrong = find_differences(after, before)
            if wrong:
                more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
                raise UserError(
                    f"{self.owner}: its initial weights ({self.initial}) differ from its own in "
                    f"names or shapes: {'; '.join(wrong[:NAMED])}{more}. wise_ft needs two "
                    "checkpoints of one architecture"
                )
            self._loaded[protocol] = tuned, before, after
        model, first, last = self._loaded[protocol]
        with torch.no_grad():
            for name, tensor in _module(model).state_dict().items():
                tensor.copy_(interpolate(first[name], last[name], factor))
        return model


def interpolate(first: Tensor, last: Tensor, factor: float) -> Tensor:
    """Return (1 - factor) * first + factor * last, computed in float32 or wider.

    As in the authors' code, all floats are interpolated: parameters, including the log of the
    scale, and statistics. Integers and booleans, such as positions, are taken from the nearer
    checkpoint.

    Args:
        factor: the weight of ``last``, in [0, 1]; 0 and 1 return ``first`` and ``last`` unchanged.
    """
    import torch

    if factor in (0, 1) or not last.is_floating_point():
        return last if factor >= 0.5 else first
    wide = torch.promote_types(last.dtype, torch.float32)
    return (1 - factor) * first.to(wide) + factor * last.to(wide)


def _module(model: Any) -> nn.Module:
    """Return the module with a model's weights."""
    from torch import nn

    module = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(module, nn.Module):
        raise UserError(f"a {type(model).__name__} has no weights that could be interpolated")
    return module


@dataclass(frozen=True)
class Interpolated:
    """The specification of an interpolated model; factors 0 and 1 are the checkpoints themselves.

    ``factor`` is the weight of the fine-tuned checkpoint, in [0, 1].
    """

    ends: Ends
    factor: float

    @property
    def _end(self) -> ModelSpec | None:
        return {0.0: self.ends.initial, 1.0: self.ends.tuned}.get(float(self.factor))

    @property
    def provides(self) -> tuple[type, ...]:
        return self.ends.tuned.provides

    def load(self, protocol: type | None = None) -> Any:
        """Return the model as a protocol; the object is shared by all factors between 0 and 1."""
        return self.ends.load(self.factor, protocol)

    def check_trainable(self) -> None:
        """Refuse training: the model has no folder."""
        raise UserError("interpolated weights can only be evaluated: they are not saved")

    def weights_hash(self) -> str:
        """Return the sha256 of both hashes and the factor; at 0 and 1, the hash of a checkpoint."""
        return self._mixed("weights_hash")

    def identity(self) -> str:
        """Return the identity of the model's results; at 0 and 1, the one of a checkpoint."""
        return self._mixed("identity")

    def _mixed(self, name: str) -> str:
        """Return what a method of the end says, or the hash of what it says of both ends."""
        if self._end is not None:
            return str(getattr(self._end, name)())
        both = [getattr(end, name)() for end in (self.ends.initial, self.ends.tuned)]
        return sha256_text(f"wise_ft {' '.join(both)} {self.factor!r}")

    def settings_hash(self) -> str:
        return (self._end or self.ends.tuned).settings_hash()

    def parameters(self) -> int | None:
        return self.ends.tuned.parameters()

    def on_this_machine(self) -> Interpolated:
        """Return the specification with the local folders of both checkpoints."""
        ends = self.ends
        local = Ends(ends.initial.on_this_machine(), ends.tuned.on_this_machine(), ends.owner)
        return Interpolated(local, self.factor)

    def at(self, checkpoint: str) -> Interpolated:
        """Return the specification with another fine-tuned checkpoint."""
        ends = self.ends
        return Interpolated(Ends(ends.initial, ends.tuned.at(checkpoint), ends.owner), self.factor)
