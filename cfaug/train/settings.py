"""How to train: the configuration groups ``trainer``, ``optim`` and ``logger``. No torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Interval

from cfaug.devices import check_device
from cfaug.errors import UserError
from cfaug.validation import Count, PartialShare, Positive, PositiveNumber, Weight, check_fields


@dataclass(frozen=True)
class TrainerSettings:
    """How long to train, on what, and what to keep.

    Args:
        max_steps: optimizer steps; takes precedence over ``max_epochs``. 0 keeps the initial
            weights: the row before fine-tuning.
        max_epochs: passes over the training split; 3 is ``run_clip.py``'s default, and what the
            COCO-Counterfactuals paper leaves unstated.
        devices: processes on this machine; more than one are started by torchrun.
        num_nodes: machines.
        accelerator: ``auto``, ``cpu``, ``gpu`` or ``mps``.
        device: ``cuda:1`` and the like: the one device of this process; ``None`` leaves it to
            ``accelerator`` and ``devices``.
        precision: ``32``, ``bf16-mixed`` (also called ``bf16``) or ``16-mixed``, which scales the
            loss and leaves out a step whose gradients overflow. Mixed: the weights and the loss
            stay in float32.
        accumulate_grad_batches: batches an optimizer step is made of. Each is a loss of its own,
            with its own ``data.batch_size`` examples as negatives; their gradients are averaged.
            The last step of an epoch may take batches of the next epoch.
        micro_batch_size: examples encoded at once, on each process; ``None`` encodes its whole
            share of a batch. The loss stays that of the whole batch and its gradient is exact up
            to rounding (GradCache), for a second forward pass in place of memory. Dropout draws
            other masks than without it.
        early_stopping: stop after this many validations in a row without a lower validation loss;
            ``None`` trains to the end. The schedule still extends over the whole length.
        gradient_clip: largest norm of the whole gradient, ``None`` for no bound.
        val_every_steps: steps from one validation to the next; ``None`` validates after every
            epoch. The last step is always validated.
        ema_decay: decay of an exponential moving average of the trained weights, in (0, 1): after
            each step, decay * average + (1 - decay) * weights. Validation measures the average, and
            it is what ``checkpoint/`` holds; training itself is unchanged. ``None`` averages
            nothing.
        checkpoint: keep the weights of the lowest validation loss (COCO-CFs, B.3.1), or
            the last.
        save_every_steps: steps from one ``last.ckpt`` to the next; a killed run resumes from it.
            ``None`` saves only by ``save_every_minutes``.
        save_every_minutes: minutes from one ``last.ckpt`` to the next, besides
            ``save_every_steps``; ``None`` saves only by steps.
        keep_last: keep ``last.ckpt`` when the run is finished, so that ``extend=true`` can resume
            it. It has three times the size of the trained weights, plus the best weights and
            the average, if any.
        log_every_steps: rows of ``metrics.csv``.
        progress: show a bar on stderr.
    """

    max_steps: Count | None = None
    max_epochs: Count | None = 3
    devices: Positive = 1
    num_nodes: Positive = 1
    accelerator: Literal["auto", "cpu", "gpu", "mps"] = "auto"
    device: str | None = None
    precision: Literal["32", "bf16", "bf16-mixed", "16-mixed"] = "32"
    accumulate_grad_batches: Positive = 1
    micro_batch_size: Positive | None = None
    gradient_clip: PositiveNumber | None = 1.0
    val_every_steps: Positive | None = None
    early_stopping: Positive | None = None
    ema_decay: Annotated[float, Interval(gt=0, lt=1)] | None = None
    checkpoint: Literal["best", "last"] = "best"
    save_every_steps: Positive | None = None
    save_every_minutes: PositiveNumber | None = 5.0
    keep_last: bool = False
    log_every_steps: Positive = 1
    progress: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", str(self.precision))
        check_fields(self, "trainer")
        if self.max_steps is None and self.max_epochs is None:
            raise UserError("one of trainer.max_steps and trainer.max_epochs must be given")
        self._check_device()

    def _check_device(self) -> None:
        if self.device is None:
            return
        check_device(self.device, "trainer.device")
        if self.device.startswith("xpu"):
            raise UserError(f"trainer.device={self.device}: training runs on cpu, cuda or mps")
        if self.accelerator != "auto" or self.devices * self.num_nodes > 1:
            raise UserError(
                f"trainer.device={self.device} names the one device of a run: leave out "
                "trainer.accelerator, trainer.devices and trainer.num_nodes"
            )

    def total_steps(self, batches_per_epoch: int) -> int:
        """Return the optimizer steps of the whole run.

        >>> TrainerSettings(max_epochs=3).total_steps(109)
        327
        >>> TrainerSettings(max_epochs=3, accumulate_grad_batches=4).total_steps(109)
        82
        >>> TrainerSettings(max_steps=150).total_steps(109)
        150
        """
        if self.max_steps is not None:
            return self.max_steps
        assert self.max_epochs is not None
        return math.ceil(self.max_epochs * batches_per_epoch / self.accumulate_grad_batches)


@dataclass(frozen=True)
class OptimSettings:
    """AdamW, the parameters that it decays, and its learning-rate schedule.

    Args:
        lr: the peak; the default is the COCO-Counterfactuals paper's (section B.3.2).
        weight_decay: the default is the same paper's, which states no other setting and so
            uses the defaults of ``run_clip.py``.
        decay_rule: which parameters decay. ``matrices``: those of two and more dimensions, so no
            bias, norm, logit scale or class embedding (open_clip's rule). ``huggingface``: all but
            biases and norms, as the Trainer of ``run_clip.py`` does, so the logit scale and the
            class embedding too.
        betas: AdamW's.
        eps: AdamW's.
        schedule: ``linear`` or ``cosine`` decay to 0 at the last step, or ``constant``.
        warmup_steps: linear rise from 0 before that.
        warmup_ratio: the same as a share of all steps, in [0, 1), rounded up; ``None`` leaves it to
            ``warmup_steps``, which must be 0 beside it.
        layer_decay: factor on the learning rate from each layer of a tower to the one below it, in
            (0, 1] (Bao et al., 2022, BEiT, appendix; the rule is in
            ``cfaug.train.param_groups.layer_rates``); ``None`` is the same rate for all.
    """

    lr: PositiveNumber = 5e-7
    weight_decay: Weight = 1e-3
    betas: tuple[PartialShare, PartialShare] = (0.9, 0.999)
    eps: PositiveNumber = 1e-8
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup_steps: Count = 0
    warmup_ratio: PartialShare | None = None
    layer_decay: Annotated[float, Interval(gt=0, le=1)] | None = None
    decay_rule: Literal["matrices", "huggingface"] = "matrices"

    def __post_init__(self) -> None:
        check_fields(self, "optim")
        if self.warmup_ratio is not None and self.warmup_steps:
            raise UserError(
                f"optim.warmup_ratio={self.warmup_ratio} beside optim.warmup_steps="
                f"{self.warmup_steps}: give one of them; optim.warmup_steps=0 takes the ratio"
            )

    def warmup(self, total_steps: int) -> int:
        """Return the steps before the peak.

        >>> OptimSettings(warmup_ratio=0.1).warmup(101)
        11
        """
        if self.warmup_ratio is None:
            return self.warmup_steps
        return math.ceil(self.warmup_ratio * total_steps)

    def factor(self, step: int, total_steps: int) -> float:
        """Return the factor on the peak learning rate in step ``step`` (from 0) of ``total_steps``.

        >>> settings = OptimSettings(warmup_steps=2)
        >>> [settings.factor(step, 6) for step in range(6)]
        [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]
        """
        warmup = self.warmup(total_steps)
        if step < warmup:
            return step / warmup
        if self.schedule == "constant":
            return 1.0
        left = max(0.0, (total_steps - step) / max(1, total_steps - warmup))
        return left if self.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2


@dataclass(frozen=True)
class LossSettings:
    """What counts as a negative in the contrastive loss, and how much.

    Args:
        same_image: another caption of one's own image in the batch is a ``negative``, as in CLIP
            and ``run_clip.py``, or ``masked``: left out of the sum.
        hard_negative_weight: weight of the other members of one's own counterfactual set (another
            image, another text) in the sum over negatives; 1 is CLIP's loss. The formula is that
            of ``cfaug.models.negatives.log_negative_weights``. It matters where
            ``data.pairs_in_batch`` brings members together.
        negative_captions: the role of captions without an image, which a list of images may have
            beside the right ones: ``used`` as further negatives of every image in the batch (as in
            NegCLIP), or ``ignored``. ``None`` refuses a source that has some.
        negative_weight: weight of an example's own wrong answers in its sum over negatives: its
            captions without an image, and the counterfactual's caption or image that
            ``data.negatives`` adds. For the other examples of the batch their weight is 1, as it is
            for all in NegCLIP.
        set_invariance: weight of a term for counterfactual sets: how much the logits of a set's
            images with the set's neutral prompt differ, as defined in
            ``cfaug.models.invariance.set_invariance``; 0 leaves it out. It needs
            ``data.pairs_in_batch``, which puts the images of a set into one batch.
        invariance: ``variance`` of these logits, or ``kl``, the divergence of their softmax from
            the uniform distribution.
    """

    same_image: Literal["negative", "masked"] = "negative"
    hard_negative_weight: PositiveNumber = 1.0
    negative_captions: Literal["used", "ignored"] | None = None
    set_invariance: Weight = 0.0
    invariance: Literal["variance", "kl"] = "variance"
    negative_weight: PositiveNumber = 1.0

    def __post_init__(self) -> None:
        check_fields(self, "loss")

    @property
    def plain(self) -> bool:
        """Whether every other example of the batch is a negative of weight 1."""
        return self.same_image == "negative" and self.hard_negative_weight == 1


@dataclass(frozen=True)
class AnswerLoss:
    """What a vision-language model learns from a question's options.

    Args:
        contrast: weight of the cross-entropy of the right option in the softmax over all options of
            their mean log-likelihoods, beside the likelihood of the right option; 0 leaves the
            wrong options unread.
    """

    contrast: Weight = 0.0

    def __post_init__(self) -> None:
        check_fields(self, "loss")


@dataclass(frozen=True)
class LoggerSettings:
    """Where the curves go; ``metrics.csv`` is written in any case.

    Args:
        kind: ``csv`` alone, ``wandb`` or ``tensorboard`` (``pip install 'cfaug[loggers]'``).
        project: of Weights & Biases.
        group: of Weights & Biases; ``None`` is the arm.
        mode: of Weights & Biases; ``offline`` needs no network, and ``wandb sync`` uploads later.
    """

    kind: Literal["csv", "wandb", "tensorboard"] = "csv"
    project: str = "cfaug"
    group: str | None = None
    mode: Literal["online", "offline"] = "online"

    def __post_init__(self) -> None:
        check_fields(self, "logger")
