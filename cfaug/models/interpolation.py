"""Interpolation between two checkpoints: WiSE-FT (Wortsman et al., 2022, section 3).

No torch at import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from cfaug.core.errors import UserError
from cfaug.core.validation import Means, Share
from cfaug.core.weights import sha256_text

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cfaug.models.specs import ModelSpec

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

    Args:
        initial: the checkpoint before fine-tuning, at factor 0.
        tuned: the fine-tuned checkpoint, at factor 1; its tokenizer, processor and settings are
            used.
        owner: the name of the pair, which errors begin with.
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

        Args:
            factor: the weight of the fine-tuned checkpoint, in [0, 1].
            protocol: the protocol to load; ``None`` is the main one that the model provides.
        """
        import torch

        if protocol not in self._loaded:
            self._loaded[protocol] = self._read(protocol)
        model, first, last = self._loaded[protocol]
        with torch.no_grad():
            for name, tensor in _module(model).state_dict().items():
                tensor.copy_(interpolate(first[name], last[name], factor))
        return model

    def _read(
        self, protocol: type | None
    ) -> tuple[Any, Mapping[str, Tensor], Mapping[str, Tensor]]:
        from cfaug.models.checkpoints import find_differences

        first = dict(_module(self.initial.load(protocol)).state_dict())
        model = self.tuned.load(protocol)
        last = {name: one.clone() for name, one in _module(model).state_dict().items()}
        wrong = find_differences(last, first)
        if wrong:
            more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
            raise UserError(
                f"{self.owner}: its initial weights ({self.initial}) differ from its own in names "
                f"or shapes: {'; '.join(wrong[:NAMED])}{more}. wise_ft needs two checkpoints of "
                "one architecture"
            )
        return model, first, last


def interpolate(first: Tensor, last: Tensor, factor: float) -> Tensor:
    """Return (1 - factor) * first + factor * last, computed in float32 or wider.

    As in the authors' code, all floats are interpolated: parameters, including the log of the
    scale, and statistics. Integers and booleans, such as positions, are taken from the nearer
    checkpoint.

    Args:
        last: the same tensor of the fine-tuned checkpoint, of equal shape.
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

    Args:
        factor: the weight of the fine-tuned checkpoint, in [0, 1].
    """

    ends: Ends
    factor: float

    @property
    def _end(self) -> ModelSpec | None:
        return {0.0: self.ends.initial, 1.0: self.ends.tuned}.get(float(self.factor))

    @property
    def provides(self) -> tuple[type, ...]:
        """The protocols that the fine-tuned model can be loaded as."""
        return self.ends.tuned.provides

    def load(self, protocol: type | None = None) -> Any:
        """Return the model as a protocol; the object is shared by all factors between 0 and 1.

        Args:
            protocol: one of ``cfaug.core.protocols``; ``None`` is the model's main one.
        """
        return self.ends.load(self.factor, protocol)

    def check_trainable(self) -> None:
        """Refuse training: the model has no folder."""
        raise UserError("interpolated weights can only be evaluated: they are not saved")

    def weights_hash(self) -> str:
        """Return the sha256 of both hashes and the factor; at 0 and 1, the hash of a checkpoint."""
        if self._end is not None:
            return self._end.weights_hash()
        both = self.ends.initial.weights_hash(), self.ends.tuned.weights_hash()
        return sha256_text(f"wise_ft {' '.join(both)} {self.factor!r}")

    def identity(self) -> str:
        """Return the identity of the model's results; at 0 and 1, the one of a checkpoint."""
        if self._end is not None:
            return self._end.identity()
        both = self.ends.initial.identity(), self.ends.tuned.identity()
        return sha256_text(f"wise_ft {' '.join(both)} {self.factor!r}")

    def settings_hash(self) -> str:
        """Return the hash of tokenizer, processor and settings."""
        return (self._end or self.ends.tuned).settings_hash()

    def parameters(self) -> int | None:
        """Return the number of parameters."""
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
