"""The base of all training modules: the optimizer, and checks of loss and gradients.

Imports Lightning, so only ``cfaug.train.job.fit`` imports this, when it is called.

The mean of the validation losses is a plain sum, not ``torchmetrics.MeanMetric``: every process has
the loss of the whole batch, as its features are gathered, so no reduction is needed. In float64 the
metric gives the same bits in 30 us a batch, but by default it drops a NaN, which must stop a run,
and with ``nan_strategy="disable"`` (1.9.0) it ignores the weights.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from cfaug.core.errors import UserError
from cfaug.core.rng import derive
from cfaug.train.chunks import average_gradients
from cfaug.train.param_groups import parameter_groups
from cfaug.train.settings import OptimSettings

Batch = Mapping[str, Any]
"""This process's share of a global batch, in the form that a task's plan and module agree on;
``global_size`` is the number of examples over all processes."""


@dataclass(frozen=True)
class Steps:
    """The settings of a run's optimizer steps.

    Args:
        optim: the settings of the optimizer and its schedule.
        total: the number of optimizer steps of the whole run, which is the length of the schedule.
        gradient_clip: the largest norm of the whole gradient; ``None`` for no bound.
        seed: the run's seed; dropout depends only on it, the step and the rank.
        parts: the number of batches of an optimizer step; several are given as a list.
    """

    optim: OptimSettings
    total: int
    gradient_clip: float | None
    seed: int
    parts: int = 1


class TrainingModule(pl.LightningModule):
    """Fine-tuning of a model on the loss that a subclass defines.

    Args:
        steps: the optimizer, the length of the run and its seed.
    """

    averages = False
    """Whether a step has several backward passes; DDP averages gradients in the first."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self.steps = steps
        self.averages = steps.parts > 1
        self._part = 0

    @property
    @abstractmethod
    def trained(self) -> Any:
        """The trained part of this module, a :class:`cfaug.train.task.Trainable`."""

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of the global batch, a scalar; this process has its own share.

        Every process returns the same number. After DDP's averaging, the gradient is that of one
        process with the whole batch.
        """

    def weight(self, batch: Batch) -> float:
        """Return the weight of a batch in the validation loss: its number of examples."""
        return float(batch["global_size"])

    def curves(self) -> dict[str, float]:
        """Return further columns of ``metrics.csv`` after a step."""
        return {}

    def share(self, loss: Tensor, batch: Batch, step: list[Batch]) -> Tensor:
        """Return a batch's share of the loss of a step of several batches; here shares are equal.

        Args:
            loss: the loss of the batch.
            batch: a batch of the step.
            step: all batches of the step.
        """
        return loss / self.steps.parts

    def on_train_start(self) -> None:
        """Set this step's learning rate, as the schedule of an extended run has another length."""
        scheduler = self.lr_schedulers()
        assert isinstance(scheduler, LambdaLR)
        factor = self.steps.optim.factor(self.global_step, self.steps.total)
        for group, base in zip(scheduler.optimizer.param_groups, scheduler.base_lrs, strict=True):
            group["lr"] = base * factor
        if self.averages and hasattr(self.trainer.strategy.model, "require_backward_grad_sync"):
            self.trainer.strategy.model.require_backward_grad_sync = False  # averaged by us

    def on_train_batch_start(self, batch: Batch | list[Batch], batch_idx: int) -> None:
        """Make dropout a function of the step, so that a resumed run repeats it exactly."""
        self._seed_torch()

    def _seed_torch(self, *names: int) -> None:
        seed = derive(self.steps.seed, "torch", self.global_step, self.global_rank, *names)
        # Like torch.manual_seed, which would also queue a call for CUDA on machines without it.
        torch.default_generator.manual_seed(seed)
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)

    def training_step(self, batch: Batch | list[Batch], batch_idx: int) -> Tensor:
        """Return the loss of the global batch, or the mean over the batches of this step.

        If there are several batches, all but the last are differentiated here, one by one, so that
        only one graph takes memory at a time.

        Raises:
            UserError: if it is not a number; every process has the same loss, so all stop.
        """
        if not isinstance(batch, list):
            return self._finite(self.loss(batch))
        self.optimizers(use_pl_optimizer=False).zero_grad()
        done = torch.zeros((), device=self.device)
        for self._part, part in enumerate(batch[:-1]):
            loss = self.share(self._finite(self.loss(part)), part, batch)
            self.trainer.strategy.backward(loss, None)
            done += loss.detach()
        self._part = self.steps.parts - 1
        return self.share(self._finite(self.loss(batch[-1])), batch[-1], batch) + done

    def _finite(self, loss: Tensor) -> Tensor:
        if not torch.isfinite(loss):
            raise UserError(
                f"step {self.global_step + 1}: the loss is {loss.item()}; nothing was updated. "
                f"Lower optim.lr (now {self.steps.optim.lr}) or raise optim.warmup_steps"
            )
        return loss

    def optimizer_zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clear the last step's gradients; a step of several batches has done so already."""
        if self.steps.parts == 1:
            super().optimizer_zero_grad(*args, **kwargs)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Differentiate one loss; after the last one of a step, average over processes."""
        super().backward(loss, *args, **kwargs)
        self.finish_backward()
        if self.averages and self._part == self.steps.parts - 1:
            average_gradients(self.trained.parameters())

    def finish_backward(self) -> None:
        """Finish the backward pass of one loss; by default this does nothing."""

    @torch.no_grad()
    def validation_loss(self, batches: Iterable[Batch]) -> float:
        """Return the weighted mean loss over batches, without dropout.

        Raises:
            UserError: if it is not a number.
        """
        self.trained.eval()
        total, weight = 0.0, 0.0
        for batch in batches:
            with self.trainer.precision_plugin.forward_context():
                total += self.loss(batch).item() * self.weight(batch)
            weight += self.weight(batch)
        self.trained.train()
        mean = total / weight
        if not mean - mean == 0:
            raise UserError(
                f"step {self.global_step}: the validation loss is {mean}. Lower optim.lr (now "
                f"{self.steps.optim.lr}) or raise optim.warmup_steps"
            )
        return mean

    def configure_optimizers(self) -> dict[str, Any]:
        """Return AdamW and its schedule, stepped after every batch."""
        optim = self.steps.optim
        optimizer = torch.optim.AdamW(
            parameter_groups(
                self.trained.model,
                optim.weight_decay,
                lr=optim.lr,
                layer_decay=optim.layer_decay,
                decay_rule=optim.decay_rule,
            ),
            lr=optim.lr,
            betas=optim.betas,
            eps=optim.eps,
            # A fused optimizer unscales by itself, but only after the gradient's norm was clipped.
            fused=self.device.type in {"cpu", "cuda"} and self._scaler() is None,
        )
        factor: Callable[[int], float] = lambda step: optim.factor(step, self.steps.total)  # noqa: E731
        scheduler = LambdaLR(optimizer, factor)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def _scaler(self) -> Any:
        """Return the scaler of the loss for float16; ``None`` in other precisions."""
        return getattr(self.trainer.precision_plugin, "scaler", None)

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        """Clip the norm of the whole gradient.

        Raises:
            UserError: if the norm is not a number: the update would destroy the weights.
        """
        if self.steps.gradient_clip is None:
            return
        norm = nn.utils.clip_grad_norm_(self.trained.parameters(), self.steps.gradient_clip)
        if not torch.isfinite(norm) and self._scaler() is None:  # a scaler skips such a step
            raise UserError(
                f"step {self.global_step + 1}: the gradient's norm is {norm.item()}; nothing was "
                f"updated. Lower optim.lr (now {self.steps.optim.lr})"
            )
