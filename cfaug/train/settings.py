"""Settings of training: the configuration groups ``trainer``, ``optim``, ``loss``, ``logger``."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Interval

from cfaug.core.annotations import NO_RESULT
from cfaug.core.errors import UserError
from cfaug.core.processes import check_device
from cfaug.core.targets import Makes
from cfaug.core.validation import (
    Count,
    PartialShare,
    Positive,
    PositiveNumber,
    Processes,
    Weight,
    check_fields,
)
from cfaug.data.mixture.settings import DRAWN
from cfaug.settings.read_if import ABOVE_ZERO, GIVEN, Condition, Fact, ReadIf

Factory = Callable[..., Any]
"""A function without arguments that makes a new object, as a run's process needs one of its own."""
CallbackFactory = Annotated[Factory, Makes("lightning.pytorch.callbacks.Callback")]
StrategyFactory = Annotated[Factory, Makes("lightning.pytorch.strategies.Strategy")]
ProfilerFactory = Annotated[Factory, Makes("lightning.pytorch.profilers.Profiler")]
BatchShare = Annotated[float, Interval(gt=0, le=1)]

DIVIDED = Fact({True: "in batches of more examples than that on each process (data.batch_size)"})
"""Whether a process encodes its share of a batch in several pieces."""
IN_STEPS: Condition = {"max_steps": ABOVE_ZERO}
IN_TRAINING = ReadIf(IN_STEPS)
VALIDATED = ReadIf({**IN_STEPS, "/data.validation": ABOVE_ZERO})


@dataclass(frozen=True)
class TrainerSettings:
    """The length of a run, its device, and the checkpoints that it keeps.

    Args:
        max_steps: the number of optimizer steps; takes precedence over ``max_epochs``. 0 keeps the
            initial weights, for a table's row before fine-tuning.
        max_epochs: the number of passes over the training split; 3 is ``run_clip.py``'s default, as
            the COCO-Counterfactuals paper does not state it.
        devices: the number of processes on this machine; torchrun starts more than one.
        accelerator: the kind of device: ``auto``, ``cpu``, ``gpu`` or ``mps``.
        device: the only device of this process, such as ``cuda:1``; ``None`` leaves it to
            ``accelerator`` and ``devices``.
        precision: ``32``, ``bf16-mixed`` (also called ``bf16``) or ``16-mixed``, which scales the
            loss and skips a step if its gradients overflow. In mixed precision the weights and the
            loss stay in float32.
        accumulate_grad_batches: the number of batches in an optimizer step. Each has a loss of its
            own, with its own ``data.batch_size`` examples as negatives; their gradients are
            averaged. The last step of an epoch may take batches of the next epoch.
        micro_batch_size: the number of examples encoded at once, on each process; ``None`` encodes
            its whole share of a batch. The loss stays that of the whole batch, and its gradient is
            exact up to rounding (GradCache); a second forward pass takes the place of memory.
            Dropout draws other masks than without it.
        val_metrics: metrics of the validation split, logged beside ``val/loss``: ``recall@K`` of a
            dual encoder (or ``image_to_text_recall@K``, ``text_to_image_recall@K``), ``accuracy``
            of a classifier, an entailer, or a model that learns from all options of a question.
        early_stopping: the number of validations in a row without a lower validation loss after
            which the run stops; ``None`` trains to the end. The schedule still extends over the
            whole length.
        gradient_clip: the largest norm of the whole gradient; ``None`` for no bound.
        val_every_steps: the number of steps between validations; ``None`` validates after every
            epoch. The last step is always validated.
        ema_decay: the decay of an exponential moving average of the trained weights, in (0, 1):
            after each step, decay * average + (1 - decay) * weights. Validation uses the average,
            and ``checkpoint/`` holds it; training itself is unchanged. ``None`` averages nothing.
        checkpoint: ``best`` keeps the weights of the lowest validation loss (COCO-CFs, B.3.1),
            ``last`` the last ones.
        save_every_steps: the number of steps between writes of ``last.ckpt``, from which a killed
            run resumes. ``None`` saves only by ``save_every_minutes``.
        save_every_minutes: the minutes between writes of ``last.ckpt``, besides
            ``save_every_steps``; ``None`` saves only by steps.
        keep_last: whether ``last.ckpt`` is kept when the run is finished, so that ``extend=true``
            can resume it. It has three times the size of the trained weights, plus the best
            weights and the average, if any.
        log_every_steps: the number of steps between rows of ``metrics.csv``.
        progress: whether a progress bar is shown on stderr.
        callbacks: {name: a function that makes a Lightning callback}; on the command line a node
            with ``_target_``. They are called as Lightning calls them, before this program's own.
        strategy: ``auto`` (DDP for several processes), ``ddp``, or a function that makes one of
            Lightning's strategies; a node on the command line.
        profiler: ``simple``, ``advanced`` or ``pytorch``, whose report goes to the run's folder, or
            a function that makes one of Lightning's profilers.
        limit_train_batches: the number of batches in an epoch, or their share in (0, 1] if it is
            written with a point; ``None`` for all. Each epoch draws others.
        overfit_batches: the number of batches that are repeated for ever; ``None`` for none.
        gradient_checkpointing: whether activations are computed again in the backward pass, which
            takes time in place of memory; the weights are the same up to rounding.
        deterministic: whether only repeatable kernels of a GPU are used, for the same bytes again:
            ``True`` fails where there is none, ``warn`` warns (``lightning.Trainer``). A CPU's
            always are.
    """

    max_steps: Count | None = None
    max_epochs: Count | None = 3
    devices: Annotated[Processes, NO_RESULT] = 1
    num_nodes: Annotated[Positive, NO_RESULT] = 1
    """the number of machines; torchrun says which this is"""
    accelerator: Annotated[Literal["auto", "cpu", "gpu", "mps"], NO_RESULT] = "auto"
    device: Annotated[str | None, NO_RESULT] = None
    precision: Annotated[Literal["32", "bf16", "bf16-mixed", "16-mixed"], IN_TRAINING] = "32"
    accumulate_grad_batches: Annotated[Positive, IN_TRAINING] = 1
    micro_batch_size: Annotated[Positive | None, ReadIf({**IN_STEPS, DIVIDED: (True,)})] = None
    gradient_clip: Annotated[PositiveNumber | None, IN_TRAINING] = 1.0
    val_every_steps: Annotated[
        Positive | None,
        VALIDATED,
    ] = None
    val_metrics: Annotated[
        tuple[str, ...],
        VALIDATED,
        NO_RESULT,
    ] = ()
    early_stopping: Annotated[
        Positive | None,
        VALIDATED,
    ] = None
    ema_decay: Annotated[Annotated[float, Interval(gt=0, lt=1)] | None, IN_TRAINING] = None
    checkpoint: Literal["best", "last"] = "best"
    save_every_steps: Annotated[Positive | None, NO_RESULT] = None
    save_every_minutes: Annotated[PositiveNumber | None, NO_RESULT] = 5.0
    keep_last: Annotated[bool, NO_RESULT] = False
    log_every_steps: Annotated[Positive, NO_RESULT] = 1
    progress: Annotated[bool, NO_RESULT] = True
    callbacks: Annotated[Mapping[str, CallbackFactory] | None, IN_TRAINING] = None
    strategy: Annotated[str | StrategyFactory, IN_TRAINING] = "auto"
    profiler: Annotated[
        Literal["simple", "advanced", "pytorch"] | ProfilerFactory | None,
        IN_TRAINING,
        NO_RESULT,
    ] = None
    limit_train_batches: Annotated[Positive | BatchShare | None, IN_TRAINING] = None
    overfit_batches: Annotated[Positive | None, IN_TRAINING] = None
    gradient_checkpointing: Annotated[bool, IN_TRAINING] = False
    deterministic: Annotated[bool | Literal["warn"], IN_TRAINING] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", str(self.precision))
        check_fields(self, "trainer")
        if isinstance(self.strategy, str) and self.strategy not in ("auto", "ddp"):
            raise UserError(
                f"trainer.strategy={self.strategy}: choose auto or ddp, or give a node with "
                f"_target_. {SHARDED}"
            )
        if self.limit_train_batches is not None and self.overfit_batches is not None:
            raise UserError(
                f"trainer.limit_train_batches={self.limit_train_batches} beside "
                f"trainer.overfit_batches={self.overfit_batches}: give one of them"
            )
        if self.max_steps is None and self.max_epochs is None:
            raise UserError("one of trainer.max_steps and trainer.max_epochs must be given")
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
        batches = self.max_epochs * self.limited(batches_per_epoch)
        return math.ceil(batches / self.accumulate_grad_batches)

    @property
    def passed_on(self) -> dict[str, Factory]:
        """The functions that make parts of Lightning's, by the setting that names each."""
        parts: dict[str, Any] = {
            f"callbacks.{k}": make for k, make in (self.callbacks or {}).items()
        }
        parts |= {"strategy": self.strategy, "profiler": self.profiler}
        return {f"trainer.{name}": make for name, make in parts.items() if callable(make)}

    def limited(self, batches_per_epoch: int) -> int:
        """Return the batches of an epoch that are used.

        >>> TrainerSettings(limit_train_batches=0.1).limited(109)
        10
        >>> TrainerSettings(limit_train_batches=200).limited(109)
        109
        """
        limit = self.limit_train_batches or self.overfit_batches
        if limit is None:
            return batches_per_epoch
        if isinstance(limit, float):
            limit = max(1, int(batches_per_epoch * limit))
        return min(batches_per_epoch, limit)


SHARDED = (
    "Strategies that shard the model (FSDP, FSDP2, DeepSpeed) write checkpoints by themselves: "
    "last.ckpt would not be one file that is replaced whole, from which a killed run resumes with "
    "byte-identical results. trainer.gradient_checkpointing=true and trainer.micro_batch_size save "
    "memory"
)
"""Why such a strategy is refused."""


def refuse_unstarted(settings: TrainerSettings) -> None:
    """Refuse several processes if neither torchrun nor srun started this one."""
    several = settings.devices * settings.num_nodes > 1
    if several and not {"WORLD_SIZE", "SLURM_PROCID"} & os.environ.keys():
        raise UserError(
            f"trainer.devices={settings.devices} trainer.num_nodes={settings.num_nodes} needs "
            "its processes started, by srun or by "
            f"torchrun --nproc-per-node={settings.devices} train.py ..."
        )


@dataclass(frozen=True)
class OptimSettings:
    """AdamW, the parameters that it decays, and its learning-rate schedule.

    Args:
        lr: the peak of the learning rate; the default is the COCO-Counterfactuals paper's (section
            B.3.2).
        weight_decay: the weight decay; the default is the same paper's, which states no other
            setting and so uses the defaults of ``run_clip.py``.
        decay_rule: the rule that selects the parameters that decay. ``matrices``: those with two or
            more dimensions, so no bias, norm, logit scale or class embedding (open_clip's rule).
            ``huggingface``: all except biases and norms, so also the logit scale and the class
            embedding (the rule of ``run_clip.py``'s Trainer).
        betas: AdamW's decay rates of the two moments.
        eps: AdamW's term in the denominator.
        schedule: ``linear`` or ``cosine`` decay to 0 at the last step, or ``constant``.
        warmup: the number of steps of a linear rise from 0 before that, or their share of all steps
            in [0, 1) if it is written with a point, rounded up.
        layer_decay: the factor of the learning rate from each layer of a tower to the one below it,
            in (0, 1] (Bao et al., 2022, BEiT, appendix; the rule is in
            ``cfaug.train.module.layer_rates``); ``None`` is the same rate for all.
    """

    lr: PositiveNumber = 5e-7
    weight_decay: Weight = 1e-3
    betas: tuple[PartialShare, PartialShare] = (0.9, 0.999)
    eps: PositiveNumber = 1e-8
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: Count | PartialShare = 0
    layer_decay: Annotated[float, Interval(gt=0, le=1)] | None = None
    decay_rule: Annotated[Literal["matrices", "huggingface"], ReadIf({"weight_decay": GIVEN})] = (
        "matrices"
    )

    def __post_init__(self) -> None:
        check_fields(self, "optim")

    def warmup_steps(self, total_steps: int) -> int:
        """Return the number of steps before the peak.

        >>> OptimSettings(warmup=0.1).warmup_steps(101)
        11
        """
        if isinstance(self.warmup, int):
            return self.warmup
        return math.ceil(self.warmup * total_steps)

    def factor(self, step: int, total_steps: int) -> float:
        """Return the factor of the peak learning rate in step ``step`` (from 0) of ``total_steps``.

        >>> settings = OptimSettings(warmup=2)
        >>> [settings.factor(step, 6) for step in range(6)]
        [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]
        """
        warmup = self.warmup_steps(total_steps)
        if step < warmup:
            return step / warmup
        if self.schedule == "constant":
            return 1.0
        left = max(0.0, (total_steps - step) / max(1, total_steps - warmup))
        return left if self.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2


OF_WRONG_CAPTIONS = ReadIf({"/data.negatives": ("text",)}, {"negative_captions": ("used",)})


@dataclass(frozen=True)
class LossSettings:
    """The negatives of the contrastive loss, and their weights.

    Args:
        same_image: the role of another caption of the same image in the batch: ``negative``, as in
            CLIP and ``run_clip.py``, or ``masked``, left out of the sum.
        hard_negative_weight: the weight of the other members of an example's counterfactual set
            (another image, another text) in the sum over negatives; 1 is CLIP's loss. The formula
            is that of ``cfaug.models.losses.log_negative_weights``. It has an effect only if
            ``data.pairs_in_batch`` brings members together.
        negative_captions: the role of captions without an image, which a list of images may have
            beside the right ones: ``used`` as further negatives of every image in the batch (as in
            NegCLIP), or ``ignored``. ``None`` refuses a source that has some.
        negative_weight: the weight of an example's own wrong answers in its sum over negatives: its
            captions without an image, and the counterfactual's caption or image that
            ``data.negatives`` adds. For the other examples of the batch their weight is 1, as for
            all in NegCLIP.
        set_invariance: the weight of a term for counterfactual sets: the differences between the
            logits of a set's images with the set's neutral prompt, as defined in
            ``cfaug.models.losses.set_invariance``; 0 leaves it out. It needs
            ``data.pairs_in_batch``, which puts the images of a set into one batch.
        invariance: ``variance`` of these logits, or ``kl``, the divergence of their softmax from
            the uniform distribution.
        intra_modal: the weight of CE-CLIP's contrast of an example's caption with all wrong
            captions of the batch, ``cfaug.models.losses.intra_modal_loss``; 0 leaves it out.
        ranking: the weight of CE-CLIP's ranking of an example's caption above its own wrong ones by
            a threshold that grows in training, ``cfaug.models.losses.ranking_loss``; 0 leaves it
            out. Loggers besides ``metrics.csv`` get the largest one as ``ranking_threshold``.
        ranking_limit: the upper bound of these thresholds, in logits.
    """

    same_image: Literal["negative", "masked"] = "negative"
    hard_negative_weight: Annotated[PositiveNumber, ReadIf({DRAWN: ("counterfactual",)})] = 1.0
    negative_captions: Literal["used", "ignored"] | None = None
    set_invariance: Weight = 0.0
    invariance: Annotated[Literal["variance", "kl"], ReadIf({"set_invariance": GIVEN})] = "variance"
    negative_weight: Annotated[
        PositiveNumber,
        ReadIf({"/data.negatives": ("text", "image")}, {"negative_captions": ("used",)}),
    ] = 1.0
    intra_modal: Annotated[Weight, OF_WRONG_CAPTIONS] = 0.0
    ranking: Annotated[Weight, OF_WRONG_CAPTIONS] = 0.0
    ranking_limit: Annotated[PositiveNumber, ReadIf({"ranking": GIVEN})] = 10.0

    def __post_init__(self) -> None:
        check_fields(self, "loss")

    @property
    def plain(self) -> bool:
        """Whether every other example of the batch is a negative of weight 1."""
        return self.same_image == "negative" and self.hard_negative_weight == 1


@dataclass(frozen=True)
class AnswerLoss:
    """The loss of a vision-language model over a question's options.

    Args:
        contrast: the weight of the cross-entropy of the right option in the softmax over all
            options of their mean log-likelihoods, beside the likelihood of the right option; 0
            leaves the wrong options unread.
    """

    contrast: Weight = 0.0

    def __post_init__(self) -> None:
        check_fields(self, "loss")


Augmentation = Literal["flip", "randaugment", "cutmix"]


@dataclass(frozen=True)
class ClassLoss:
    """The cross-entropy of an image classifier.

    Args:
        label_smoothing: the share of a label's weight that is spread over all classes in training.
        augment: classical augmentation of the training images, drawn anew at each step by the run's
            seed: ``flip``, a horizontal flip of half of them; ``randaugment`` (Cubuk et al., 2020)
            and ``cutmix`` (Yun et al., 2019) with torchvision's defaults.
    """

    label_smoothing: PartialShare = 0.0
    augment: Sequence[Augmentation] = ()

    def __post_init__(self) -> None:
        check_fields(self, "loss")


@dataclass(frozen=True)
class LoggerSettings:
    """The loggers of the curves; ``metrics.csv`` is always written.

    Args:
        kind: ``csv`` alone, ``wandb`` or ``tensorboard`` (``pip install 'cfaug[loggers]'``), or
            ``trackio`` (``pip install 'cfaug[trackio]'``).
        project: the project of Weights & Biases, or of trackio.
        group: the group of Weights & Biases, or of trackio; ``None`` is the arm.
        mode: the mode of Weights & Biases; ``offline`` needs no network, and ``wandb sync`` uploads
            later.
    """

    kind: Literal["csv", "wandb", "tensorboard", "trackio"] = "csv"
    project: Annotated[str, ReadIf({"kind": ("wandb", "trackio")})] = "cfaug"
    group: Annotated[str | None, ReadIf({"kind": ("wandb", "trackio")})] = None
    mode: Annotated[Literal["online", "offline"], ReadIf({"kind": ("wandb",)})] = "online"

    def __post_init__(self) -> None:
        check_fields(self, "logger")
