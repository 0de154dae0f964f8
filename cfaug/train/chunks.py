"""Encoding a batch in chunks with the gradient of the whole, for batches larger than memory.

Gao et al., 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup"
(GradCache), section 3: encode every chunk without a graph, differentiate the loss by the features,
then encode each chunk again and backpropagate the gradients of its features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cfaug.core.errors import UserError

Features = tuple[Tensor, ...]


@dataclass
class ChunkedFeatures:
    """Features of one process's share of a batch, encoded ``size`` rows at a time.

    Args:
        encode: a function that maps pixels and texts to the features, each (rows, dim).
        pixels: the images, uint8 (n, 3, side, side).
        texts: the n captions.
        size: the number of rows encoded at once, from 1.
        seed: a function that is called with a chunk's number before it is encoded, both times, so
            that dropout drops the same units.
    """

    encode: Callable[[Tensor, Sequence[str]], Features]
    pixels: Tensor
    texts: Sequence[str]
    size: int
    seed: Callable[[int], None]

    def __post_init__(self) -> None:
        with torch.no_grad():
            pieces = [self._encode(number) for number in self._numbers()]
            whole = [torch.cat(part) for part in zip(*pieces, strict=True)]
        self.leaves: Features = tuple(part.requires_grad_() for part in whole)

    def _numbers(self) -> range:
        # An empty share is encoded too, so that its features have the right dimensions.
        return range(max(1, -(-len(self.texts) // self.size)))

    def _encode(self, number: int) -> Features:
        self.seed(number)
        here = slice(number * self.size, (number + 1) * self.size)
        return self.encode(self.pixels[here], list(self.texts[here]))

    def backward(self, context: Callable[[], AbstractContextManager[Any]]) -> None:
        """Backpropagate the gradients of ``leaves`` to the parameters.

        Args:
            context: the precision in which the features were encoded.
        """
        for number in self._numbers():
            here = slice(number * self.size, (number + 1) * self.size)
            with context():
                features = self._encode(number)
            reached = [(f, f_leaf.grad) for f, f_leaf in zip(features, self.leaves, strict=True)]
            pairs = [(feature, grad[here]) for feature, grad in reached if grad is not None]
            torch.autograd.backward([f for f, _ in pairs], [grad for _, grad in pairs])


def refuse_batch_norm(model: nn.Module) -> None:
    """Refuse a model whose features of one example depend on the others encoded with it.

    Raises:
        UserError: if a layer normalises by the batch.
    """
    for name, module in model.named_modules():
        if module.training and getattr(module, "track_running_stats", False):
            raise UserError(
                f"trainer.micro_batch_size needs features that do not depend on the rest of the "
                f"batch, and {name} normalises by it: use trainer.accumulate_grad_batches, or "
                "freeze that tower"
            )


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Average gradients over all processes, as DDP does after one backward pass.

    A parameter that has no gradient in any process stays without one, so weight decay skips it.

    Args:
        parameters: the parameters, in the same order in every process.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return
    trained = [p for p in parameters if p.requires_grad]
    reached = torch.tensor([float(p.grad is not None) for p in trained], device=trained[0].device)
    dist.all_reduce(reached, op=dist.ReduceOp.MAX)
    for parameter, anywhere in zip(trained, reached.tolist(), strict=True):
        if not anywhere:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
