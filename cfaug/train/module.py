"""The LightningModule: one contrastive step, its optimizer, and what must not go wrong silently.

Imports Lightning, so only ``cfaug.train.job.fit`` imports this, when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from cfaug.data.feeding.order import rank_share
from cfaug.errors import UserError
from cfaug.models.encoder import Encoder
from cfaug.models.negatives import log_negative_weights
from cfaug.rng import derive
from cfaug.train.chunks import ChunkedFeatures, average_gradients
from cfaug.train.loss import gather_all
from cfaug.train.param_groups import parameter_groups
from cfaug.train.settings import LossSettings, OptimSettings

Batch = Mapping[str, Any]
"""``pixels`` uint8 (local, 3, size, size) and ``local`` captions in ``texts``; of the whole batch,
every rank's rows in turn, ``global_size``, ``images`` and ``sets``, int64 (global_size,), which
only a loss that weights pairs needs, and ``negatives``, texts that belong to no image."""


class ContrastiveModule(pl.LightningModule):
    """Fine-tunes a dual encoder on its own contrastive loss over the global batch.

    Args:
        encoder: the model.
        optim: optimizer and schedule.
        total_steps: of the whole run, which the schedule is stretched over.
        gradient_clip: largest norm of the whole gradient, ``None`` for no bound.
        seed: of the run; dropout in a step depends on it, the step and the rank alone.
        weighting: what counts as a negative, in training and validation; ``None``: the authors'.
        micro_batch_size: rows encoded at once; ``None`` encodes the whole share of a batch.
        parts: batches of an optimizer step, which then come in a list.
    """

    def __init__(
        self,
        encoder: Encoder,
        optim: OptimSettings,
        *,
        total_steps: int,
        gradient_clip: float | None,
        seed: int,
        weighting: LossSettings | None = None,
        micro_batch_size: int | None = None,
        parts: int = 1,
    ) -> None:
        super().__init__()
        used = weighting is not None and weighting.negative_captions == "used"
        if used and not encoder.takes_negatives:
            raise UserError(
                "loss.negative_captions=used: the loss of this model has no place for captions "
                "without an image; choose model=clip_vit_b32 or another with a loss of images and "
                "texts, or loss.negative_captions=ignored"
            )
        self.encoder = encoder
        self.optim = optim
        self.total_steps = total_steps
        self.gradient_clip = gradient_clip
        self.seed = seed
        self.weighting = weighting
        self.micro_batch_size = micro_batch_size
        self._chunked: ChunkedFeatures | None = None
        self.parts = parts
        self._part = 0

    def on_train_start(self) -> None:
        """Take this step's rate from the schedule: that of an extended run is of another length."""
        scheduler = self.lr_schedulers()
        assert isinstance(scheduler, LambdaLR)
        factor = self.optim.factor(self.global_step, self.total_steps)
        for group, base in zip(scheduler.optimizer.param_groups, scheduler.base_lrs, strict=True):
            group["lr"] = base * factor
        if self.averages and hasattr(self.trainer.strategy.model, "require_backward_grad_sync"):
            self.trainer.strategy.model.require_backward_grad_sync = False  # DDP's part is ours

    def on_train_batch_start(self, batch: Batch | list[Batch], batch_idx: int) -> None:
        """Make dropout a function of the step, so that a resumed run repeats it exactly."""
        self._seed_torch()

    def _seed_torch(self, *names: int) -> None:
        seed = derive(self.seed, "torch", self.global_step, self.global_rank, *names)
        # As torch.manual_seed, which also keeps a call and its stack for a CUDA that never starts.
        torch.default_generator.manual_seed(seed)
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)

    def training_step(self, batch: Batch | list[Batch], batch_idx: int) -> Tensor:
        """Return the loss of the global batch, or the mean over the batches of this step.

        Of several batches only the last one's gradient is left to do: each before it is
        differentiated at once, so that one graph at a time takes memory.

        Raises:
            UserError: if it is not a number; every process sees the same loss, so all stop.
        """
        if not isinstance(batch, list):
            return self._finite(self.loss(batch))
        self.optimizers(use_pl_optimizer=False).zero_grad()
        done = torch.zeros((), device=self.device)
        for self._part, part in enumerate(batch[:-1]):
            loss = self._finite(self.loss(part)) / self.parts
            self.trainer.strategy.backward(loss, None)
            done += loss.detach()
        self._part = self.parts - 1
        return self._finite(self.loss(batch[-1])) / self.parts + done

    def _finite(self, loss: Tensor) -> Tensor:
        if not torch.isfinite(loss):
            raise UserError(
                f"step {self.global_step + 1}: the loss is {loss.item()}; nothing was updated. "
                f"Lower optim.lr (now {self.optim.lr}) or raise optim.warmup_steps"
            )
        return loss

    def optimizer_zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Forget the last step's gradients, which a step of several batches has done already."""
        if self.parts == 1:
            super().optimizer_zero_grad(*args, **kwargs)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Differentiate one loss; the last of a step is followed by the processes' average."""
        super().backward(loss, *args, **kwargs)
        if self._chunked is not None:
            self._chunked.backward(self.trainer.precision_plugin.forward_context)
            self._chunked = None
        if self.averages and self._part == self.parts - 1:
            average_gradients(self.encoder.parameters())

    @property
    def averages(self) -> bool:
        """Whether a step has several backward passes; DDP averages gradients in the first."""
        return self.parts > 1 or self.micro_batch_size is not None

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of the global batch, of which this process encodes its share."""
        features = gather_all(self._features(batch["pixels"], batch["texts"]), batch["global_size"])
        return self.encoder.contrastive(features, self._log_weights(batch), self._negatives(batch))

    def _negatives(self, batch: Batch) -> Tensor | None:
        """Return the features of the whole batch's negatives, of which each process encodes some.

        All processes know all the texts, so that they divide them evenly, whoever's rows they are
        beside.
        """
        if self.weighting is None or self.weighting.negative_captions != "used":
            return None
        texts: list[str] = batch["negatives"]
        if not texts:
            return None
        mine = rank_share(np.arange(len(texts)), self.global_rank, self.trainer.world_size)
        encoder = self.encoder
        features = encoder.encode_text(encoder.tokenize([texts[i] for i in mine] or [""]))
        return gather_all([features[: len(mine)]], len(texts))[0]

    def _log_weights(self, batch: Batch) -> Tensor | None:
        if self.weighting is None or self.weighting.plain:
            return None
        return log_negative_weights(
            batch["images"].to(self.device),
            batch["sets"].to(self.device),
            mask_same_image=self.weighting.same_image == "masked",
            hard_negative_weight=self.weighting.hard_negative_weight,
        )

    def _features(self, pixels: Tensor, texts: list[str]) -> tuple[Tensor, ...]:
        if self.micro_batch_size is None:
            return self._encode(pixels, texts)
        chunked = ChunkedFeatures(
            self._encode, pixels, texts, self.micro_batch_size,
            lambda number: self._seed_torch(self._part, number),
        )  # fmt: skip
        if torch.is_grad_enabled():
            self._chunked = chunked
        return chunked.leaves

    def _encode(self, pixels: Tensor, texts: Sequence[str]) -> tuple[Tensor, ...]:
        if texts:
            return self.encoder.features(pixels, texts)
        # The last batch can leave this process without an example. Not every layer takes an empty
        # batch, and DDP waits for every parameter: encode a blank and keep none of it.
        size = self.encoder.transform.size
        blank = torch.zeros((1, 3, size, size), dtype=torch.uint8, device=self.device)
        return tuple(tensor[:0] for tensor in self.encoder.features(blank, [""]))

    @torch.no_grad()
    def validation_loss(self, batches: Iterable[Batch]) -> float:
        """Return the mean loss over batches, weighted by their sizes, dropout off.

        Raises:
            UserError: if it is not a number.
        """
        self.encoder.eval()
        total, rows = 0.0, 0
        for batch in batches:
            with self.trainer.precision_plugin.forward_context():
                total += self.loss(batch).item() * batch["global_size"]
            rows += batch["global_size"]
        self.encoder.train()
        mean = total / rows
        if not mean - mean == 0:
            raise UserError(
                f"step {self.global_step}: the validation loss is {mean}. Lower optim.lr (now "
                f"{self.optim.lr}) or raise optim.warmup_steps"
            )
        return mean

    def configure_optimizers(self) -> dict[str, Any]:
        """Return AdamW and its schedule, stepped after every batch."""
        optim = self.optim
        optimizer = torch.optim.AdamW(
            parameter_groups(
                self.encoder.model,
                optim.weight_decay,
                lr=optim.lr,
                layer_decay=optim.layer_decay,
                decay_rule=optim.decay_rule,
            ),
            lr=optim.lr,
            betas=optim.betas,
            eps=optim.eps,
            # A fused one unscales by itself, after the gradient's norm was bounded.
            fused=self.device.type in {"cpu", "cuda"} and self._scaler() is None,
        )
        factor: Callable[[int], float] = lambda step: optim.factor(step, self.total_steps)  # noqa: E731
        scheduler = LambdaLR(optimizer, factor)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def _scaler(self) -> Any:
        """Return what scales the loss of float16; ``None`` where nothing does."""
        return getattr(self.trainer.precision_plugin, "scaler", None)

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        """Bound the norm of the whole gradient.

        Raises:
            UserError: if the norm is not a number: the weights would be lost.
        """
        if self.gradient_clip is None:
            return
        norm = nn.utils.clip_grad_norm_(self.encoder.parameters(), self.gradient_clip)
        if not torch.isfinite(norm) and self._scaler() is None:  # which leaves out such a step
            raise UserError(
                f"step {self.global_step + 1}: the gradient's norm is {norm.item()}; nothing was "
                f"updated. Lower optim.lr (now {self.optim.lr})"
            )

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Update, then bound the logit scale as the model's authors do."""
        super().optimizer_step(*args, **kwargs)
        self.encoder.clamp_logit_scale()
