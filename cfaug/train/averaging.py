"""An exponential moving average of a run's weights (``trainer.ema_decay``).

After step 1 the average is that step's weights; after every later step it becomes decay * average +
(1 - decay) * weights (Polyak and Juditsky, 1992, with exponential weights). The update and this
start are those of ``torch.optim.swa_utils.AveragedModel`` and of Lightning's
``EMAWeightAveraging``. Lightning's callback itself is not used: it swaps the weights only around
Lightning's own validation, which never runs here (see ``cfaug.train.checkpoint_callback``). After
the last step it overwrites the trained weights, from which an extended run resumes. It also copies
and averages frozen weights, a whole base model for a few adapters. And it restores its copy by a
strict ``load_state_dict``, which fails for models that save only their trained weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class AveragedWeights:
    """The average of a model's trained weights and running statistics.

    Args:
        decay: the weight of the former average in an update, in (0, 1).
    """

    def __init__(self, decay: float) -> None:
        self._update = get_ema_multi_avg_fn(decay)
        self._average: dict[str, Tensor] | None = None

    def update(self, model: nn.Module) -> None:
        """Include a model's weights after an optimizer step."""
        current = averaged_tensors(model)
        if self._average is None:
            self._average = {name: tensor.clone() for name, tensor in current.items()}
            return
        # A resumed run's average comes from the CPU.
        self._average = {name: self._average[name].to(one.device) for name, one in current.items()}
        self._update(list(self._average.values()), list(current.values()), 0)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Lend the model the averaged weights during the block; its own return bit for bit."""
        self._swap(model)
        try:
            yield
        finally:
            self._swap(model)

    def _swap(self, model: nn.Module) -> None:
        if self._average is None:
            return
        for name, current in averaged_tensors(model).items():
            own = current.clone()
            current.copy_(self._average[name])
            self._average[name].copy_(own)

    def write_to(self, model: nn.Module) -> None:
        """Replace the model's weights by the averaged ones; before the first step do nothing."""
        for name, tensor in averaged_tensors(model).items():
            if self._average is not None:
                tensor.copy_(self._average[name])

    def state(self) -> dict[str, Tensor] | None:
        """Return the average by name; ``None`` before the first step."""
        return self._average

    def load(self, state: Mapping[str, Tensor] | None) -> None:
        """Restore the result of ``state`` of the same model."""
        self._average = None if state is None else dict(state)


def averaged_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that are averaged, by name, detached and sharing the model's memory.

    These are the trained parameters and the running statistics of norm layers, which belong to
    them. Other buffers (positions, masks, counts) are not averaged.
    """
    found = {name: one.detach() for name, one in model.named_parameters() if one.requires_grad}
    for owner, module in model.named_modules():
        if getattr(module, "track_running_stats", False):
            buffers = module.named_buffers(owner, recurse=False)
            found |= {name: one for name, one in buffers if one.is_floating_point()}
    return found
