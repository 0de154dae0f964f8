"""A module whose state dict has only trained weights, such as adapters without the base model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn


class KeepsTrained(nn.Module):
    """A module whose state dict has only trained weights and buffers.

    With weights that never change, every checkpoint would be as large as the model.
    """

    def state_dict(  # type: ignore[override]  # the overload that torch calls
        self, *args: Any, prefix: str = "", **kwargs: Any
    ) -> dict[str, Any]:
        """Return the weights that are trained, and buffers, such as a norm's running statistics."""
        trained = {prefix + name for name, p in self.named_parameters() if p.requires_grad}
        every = {prefix + name for name, _ in self.named_parameters(remove_duplicate=False)}
        # torch calls this for each submodule as well.
        before = set(kwargs.get("destination") or ())
        found = super().state_dict(*args, prefix=prefix, **kwargs)
        for name in [name for name in found if name in every - trained and name not in before]:
            del found[name]
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any], *_: Any, **__: Any) -> Any:
        """Load the trained weights; the others keep their values."""
        return super().load_state_dict(state_dict, strict=False)
