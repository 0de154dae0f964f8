"""Learning from pairs of image and text: the contrastive step.

Imports Lightning, so it is only imported when a training starts or code takes it from ``cfaug``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from cfaug.core.devices import send
from cfaug.core.errors import UserError
from cfaug.data.mixture.order import rank_share
from cfaug.metrics import Direction, ImageTextRecall
from cfaug.models.encoder import Encoder
from cfaug.models.losses import (
    PLACES,
    Negatives,
    group_rows,
    intra_modal_loss,
    log_negative_weights,
    log_owner_weights,
    ranking_loss,
    set_invariance,
)
from cfaug.train.module import ChunkedFeatures, TrainingModule
from cfaug.train.records import Batch, Steps
from cfaug.train.settings import LossSettings

Encode = Callable[[Tensor, Sequence[str]], tuple[Tensor, ...]]
SECOND = 1
"""The random stream of dropout for images without a text, if they are encoded in chunks."""


def refuse_negatives(setting: str, instead: str) -> NoReturn:
    """Refuse captions or images without a pair if the loss needs pairs."""
    raise UserError(
        f"{setting}: the loss of this model does not support captions or images alone; choose "
        f"model=clip_vit_b32 or another with a loss of images and texts, or {instead}"
    )


class ContrastiveModule(TrainingModule):
    """Fine-tuning of a dual encoder on its own contrastive loss over the global batch.

    A batch has ``pixels`` uint8 (local, 3, size, size) and ``local`` captions in ``texts``. For the
    whole batch, every rank's rows in turn, it has ``global_size``; ``images`` and ``sets``, int64
    (global_size,), which only a loss that weights pairs needs; and ``negatives``, texts that belong
    to no image. ``negative_pixels`` uint8 (m, 3, size, size) are this process's share of the images
    that belong to no text, and ``negative_image_owners`` the owners of all of them. A loss that
    weights negatives also reads ``negative_owners``, and one with ``set_invariance`` also
    ``neutral_texts`` and ``neutrals``.

    Args:
        steps: the optimizer, the length of the run and its seed; ``None`` for the defaults.
        weighting: the weights of negatives, in training and validation; ``None`` for the authors'
            loss.
        micro_batch_size: the number of rows encoded at once; ``None`` encodes the whole share of a
            batch.
    """

    def __init__(
        self,
        encoder: Encoder,
        steps: Steps | None = None,
        *,
        weighting: LossSettings | None = None,
        micro_batch_size: int | None = None,
    ) -> None:
        super().__init__(steps)
        self.require(encoder, Encoder)
        used = weighting is not None and weighting.negative_captions == "used"
        if used and not encoder.takes_negatives:
            refuse_negatives("loss.negative_captions=used", "loss.negative_captions=ignored")
        self.encoder = encoder
        self.weighting = weighting
        self.micro_batch_size = micro_batch_size
        self.averages = self.steps.parts > 1 or micro_batch_size is not None
        self._chunked: list[ChunkedFeatures] = []
        self._invariance = torch.tensor(math.nan)
        self.ranking_thresholds: Tensor
        if weighting is not None and weighting.ranking:
            # A buffer, so that a run which resumes goes on with them.
            self.register_buffer("ranking_thresholds", torch.zeros(PLACES))

    @property
    def trained(self) -> Encoder:
        return self.encoder

    def curves(self) -> dict[str, float]:
        """Return the factor of the cosine, and what the terms of the loss have to say."""
        curves = {"logit_scale": self.encoder.logit_scale().item()}
        if self.weighting is not None and self.weighting.set_invariance:
            curves["set_invariance"] = self._invariance.item()
        if self.weighting is not None and self.weighting.ranking:
            curves["ranking_threshold"] = self.ranking_thresholds.max().item()
        return curves

    def make_metric(self, name: str) -> ImageTextRecall:
        """Return the recall among the pairs of the validation split."""
        way, _, k = name.partition("recall@")
        direction = cast("Direction", way.rstrip("_") or "both")
        return ImageTextRecall(int(k), direction, sync_on_compute=False)

    def finish_backward(self) -> None:
        while self._chunked:
            self._chunked.pop().backward(self.trainer.precision_plugin.forward_context)

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of the global batch; this process encodes its own share."""
        pixels, captions = batch["pixels"], batch["texts"]
        if self.micro_batch_size is None:
            encoded = self._encode(pixels, captions)
        else:
            encoded = self._in_pieces(self._encode, pixels, captions)
        features = gather_all(encoded, batch["global_size"])
        if self.observed:
            images, texts = features[:2]
            self.metrics.update(images, texts, send(batch["images"], images.device))
        log_weights = None
        if self.weighting is not None and not self.weighting.plain:
            log_weights = log_negative_weights(
                send(batch["images"], self.device),
                send(batch["sets"], self.device),
                mask_same_image=self.weighting.same_image == "masked",
                hard_negative_weight=self.weighting.hard_negative_weight,
            )
        negatives = self._negatives(batch)
        loss = self.encoder.contrastive(features, log_weights, negatives)
        if negatives is not None and negatives.texts is not None:
            loss = loss + self._among_captions(features, negatives.texts, batch)
        if self.weighting is None or not self.weighting.set_invariance:
            return loss
        # The differences of sets' images in their similarity to the neutral prompt.
        images = features[0]
        groups = batch.get("neutral_groups") or group_rows(batch["neutrals"], batch["sets"])
        shown, row, group, counts = (
            send(numbers, images.device) for numbers in (batch["neutrals"], *groups)
        )
        invariance = set_invariance(
            images, self._encode_texts(batch["neutral_texts"] or [""]), shown, (row, group, counts),
            self.encoder.logit_scale().detach(), self.weighting.invariance,
        )  # fmt: skip
        if torch.is_grad_enabled():  # the curves show training only
            self._invariance = invariance.detach()
        return loss + self.weighting.set_invariance * invariance

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Group the rows of neutral prompts by set, while their numbers are on the host."""
        if self.weighting is None or not self.weighting.set_invariance:
            return batch
        batches = batch if isinstance(batch, list) else [batch]
        grouped = [
            part | {"neutral_groups": group_rows(part["neutrals"], part["sets"])}
            for part in batches
        ]
        return grouped if isinstance(batch, list) else grouped[0]

    def _negatives(self, batch: Batch) -> Negatives | None:
        """Return the features of the whole batch's negatives."""
        used = self.weighting is not None and self.weighting.negative_captions == "used"
        texts: list[str] = batch["negatives"] if used else []
        shown = len(batch.get("negative_image_owners", ()))
        negatives = Negatives()
        if texts:
            weights = self._owner_weights(batch, "negative_owners")
            negatives = Negatives(self._encode_texts(texts), text_log_weights=weights)
        if shown:
            images = gather_all([self._encode_negative_images(batch)], shown)[0]
            weights = self._owner_weights(batch, "negative_image_owners")
            negatives = replace(negatives, images=images, image_log_weights=weights)
        return negatives if texts or shown else None

    def _among_captions(self, features: Sequence[Tensor], wrong: Tensor, batch: Batch) -> Tensor:
        """Return CE-CLIP's terms of right and wrong captions; 0 if the loss has neither."""
        assert self.weighting is not None
        (images, texts), scale = features[:2], self.encoder.logit_scale()
        terms = images.new_zeros((), dtype=torch.float32)
        if self.weighting.intra_modal:
            contrast = intra_modal_loss(images, texts, wrong, scale)
            terms = terms + self.weighting.intra_modal * contrast
        if self.weighting.ranking:
            owners = send(batch["negative_owners"], self.device)
            rank, gaps = ranking_loss(images, texts, wrong, owners, self.ranking_thresholds, scale)
            terms = terms + self.weighting.ranking * rank
            if torch.is_grad_enabled():  # they follow training alone
                self.ranking_thresholds = gaps.clamp(0, self.weighting.ranking_limit)
        return terms

    def _owner_weights(self, batch: Batch, owners: str) -> Tensor | None:
        if self.weighting is None or self.weighting.negative_weight == 1:
            return None
        there = send(batch[owners], self.device)
        return log_owner_weights(there, batch["global_size"], self.weighting.negative_weight)

    def _encode_negative_images(self, batch: Batch) -> Tensor:
        """Return the features of this process's share of the images that belong to no text."""
        pixels: Tensor = batch["negative_pixels"]

        def encode(pixels: Tensor, texts: Sequence[str]) -> tuple[Tensor, ...]:
            if len(pixels):
                return (self.encoder.encode_image(pixels),)
            return (self.encoder.encode_image(self._blank())[:0],)

        if self.micro_batch_size is None:
            return encode(pixels, ())[0]
        return self._in_pieces(encode, pixels, [""] * len(pixels), SECOND)[0]

    def _encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Return the features of the whole batch's texts; each process encodes some.

        Every process knows all the texts, so they are divided evenly, whichever process has their
        images.
        """
        mine = rank_share(np.arange(len(texts)), self.global_rank, self.trainer.world_size)
        encoder = self.encoder
        features = encoder.encode_text(encoder.tokenize([texts[i] for i in mine] or [""]))
        return gather_all([features[: len(mine)]], len(texts))[0]

    def _in_pieces(
        self, encode: Encode, pixels: Tensor, texts: Sequence[str], *stream: int
    ) -> tuple[Tensor, ...]:
        """Encode some rows at a time; ``stream`` gives each use of this its own dropout."""
        assert self.micro_batch_size is not None
        chunked = ChunkedFeatures(
            encode, pixels, texts, self.micro_batch_size,
            lambda number: self._seed_torch(self._part, number, *stream),
        )  # fmt: skip
        if torch.is_grad_enabled():
            self._chunked.append(chunked)
        return chunked.leaves

    def _encode(self, pixels: Tensor, texts: Sequence[str]) -> tuple[Tensor, ...]:
        if texts:
            return self.encoder.features(pixels, texts)
        # The last batch can leave this process without an example. Not every layer takes an empty
        # batch, and DDP waits for every parameter: encode a blank and discard it.
        return tuple(tensor[:0] for tensor in self.encoder.features(self._blank(), [""]))

    def _blank(self) -> Tensor:
        size = self.encoder.transform.size
        return torch.zeros((1, 3, size, size), dtype=torch.uint8, device=self.device)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Update, then bound the logit scale as the model's authors do."""
        super().optimizer_step(*args, **kwargs)
        self.encoder.clamp_logit_scale()


# The gathering of features from all processes, so that a contrastive loss sees the whole batch.


def gather_all(features: Sequence[Tensor], global_size: int) -> tuple[Tensor, ...]:
    """Return the features of the whole batch; each process encoded its own share.

    Every process then computes the same loss. After DDP has averaged the gradients they are those
    of one process with the whole batch.

    Args:
        features: tensors (local, dim) with this process's share by ``np.array_split`` order; may be
            empty.
        global_size: the number of rows of the batch over all processes.
    """
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return tuple(gather(tensor, global_size) for tensor in features)
    return tuple(features)


def share(global_size: int, rank: int, world: int) -> int:
    """Return the number of rows of a batch that ``np.array_split`` gives to ``rank``.

    >>> [share(10, rank, 4) for rank in range(4)]
    [3, 3, 2, 2]
    """
    return global_size // world + (rank < global_size % world)


def gather(features: Tensor, global_size: int) -> Tensor:
    """Concatenate every process's rows, in rank order, so that gradients flow back to each.

    The shares follow from ``global_size``, so unequal and empty ones need no second collective.
    """
    gathered: Tensor = _Gather.apply(features, global_size)
    return gathered


class _Gather(torch.autograd.Function):
    """All-gather of unequal shares."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, global_size: int) -> Tensor:
        rank, world = dist.get_rank(), dist.get_world_size()
        sizes = [share(global_size, r, world) for r in range(world)]
        if len(features) != sizes[rank]:
            raise ValueError(f"rank {rank} has {len(features)} rows, its share is {sizes[rank]}")
        padded = features.new_zeros((sizes[0], *features.shape[1:]))
        padded[: len(features)] = features
        parts = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(parts, padded)
        ctx.start, ctx.size, ctx.world = sum(sizes[:rank]), sizes[rank], world
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        # Each process differentiates the whole loss, so each already holds the full gradient of
        # its own rows. DDP then divides by the number of processes; this undoes it.
        return grad[ctx.start : ctx.start + ctx.size] * ctx.world, None
