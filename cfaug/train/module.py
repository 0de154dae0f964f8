"""The base of training modules: optimizer, parameter groups, batches in chunks, trained weights."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.fabric.utilities.apply_func import apply_to_collection
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torchmetrics import Metric, MetricCollection

from cfaug.core.cards import CARD
from cfaug.core.devices import send
from cfaug.core.errors import UserError
from cfaug.core.outputs import check_output_folder
from cfaug.core.rng import derive
from cfaug.models.checkpoints import MODEL
from cfaug.models.lora import merge
from cfaug.train.first_fault import FirstFault, Kind
from cfaug.train.records import Batch, Steps

# Imports Lightning, so ``cfaug.train.task.fit`` imports this when it is called, and ``cfaug`` when
# one of the public modules is used.
#
# The mean of the validation losses is a plain sum, not ``torchmetrics.MeanMetric``: every process
# has the loss of the whole batch, as its features are gathered, so no reduction is needed. In
# float64 the metric gives the same bits in 30 us a batch, but by default it drops a NaN, which must
# stop a run, and with ``nan_strategy="disable"`` (1.9.0) it ignores the weights.


class TrainingModule(pl.LightningModule):
    """Fine-tuning of a model on the loss that a subclass defines.

    Args:
        steps: the optimizer, the length of the run and its seed; ``None`` for the defaults.
    """

    averages = False
    """Whether a step has several backward passes; DDP averages gradients in the first."""

    _accumulated: tuple[int, ...] = ()
    _length: Any = None  # of the schedule, if it is ours; a number of steps or infinity

    def __init__(self, steps: Steps | None = None) -> None:
        super().__init__()
        self.steps = Steps() if steps is None else steps
        self.averages = self.steps.parts > 1
        self._part = 0
        self.fault: FirstFault | None = None
        self.metrics: Any = None
        self.measured: dict[str, float] = {}

    def require(self, model: Any, kind: type) -> None:
        """Refuse a model of another kind than the module trains.

        Raises:
            UserError: naming the ways to a model that fits.
        """
        if not isinstance(model, kind):
            raise UserError(
                f"{type(self).__name__} trains a {kind.__name__} of cfaug's, not a "
                f"{type(model).__name__}: data.make_module() makes it, of data = "
                "cfaug.CounterfactualDataModule(model=...), whose data.task.load() is the model "
                "alone; a model of one's own is a subclass of "
                f"{kind.__module__}.{kind.__name__}"
            )

    @property
    @abstractmethod
    def trained(self) -> Any:
        """The trained part of this module, a :class:`cfaug.train.records.Trainable`."""

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of the global batch, a scalar; this process has its own share.

        Every process returns the same number. After DDP's averaging, the gradient is that of one
        process with the whole batch.
        """

    def weight(self, batch: Batch) -> float:
        """Return the weight of a batch in the validation loss: its number of examples."""
        return float(batch["global_size"])

    def measure(self, names: Sequence[str]) -> None:
        """Compute metrics of each validation, ``trainer.val_metrics``, into ``measured``.

        Every process keeps the rows of all, which the loss gathers anyway, so that the number does
        not depend on how many there are.
        """
        if names:
            made = {name: self.make_metric(name) for name in names}
            self.metrics = MetricCollection(made, prefix="val/")

    def make_metric(self, name: str) -> Metric:
        """Return a metric that ``loss`` updates with the rows of all processes."""
        raise NotImplementedError(name)

    @property
    def observed(self) -> bool:
        """Whether ``loss`` is to update ``metrics`` now."""
        return self.metrics is not None and not torch.is_grad_enabled()

    def curves(self) -> dict[str, float]:
        """Return further columns of ``metrics.csv`` after a step."""
        return {}

    def share(self, loss: Tensor, batch: Batch, step: list[Batch]) -> Tensor:
        """Return a batch's share of the loss of a step of several batches: an equal one."""
        return loss / self.steps.parts

    def save(self, folder: str | Path) -> None:
        """Write the folder that the model's own library loads, after training; rank 0 alone does.

        Adapters are merged into the weights, so training cannot go on from this module.

        Raises:
            UserError: if the folder is neither new nor empty, and anything in it is not of a model
                that was saved there before.
        """
        if self.global_rank == 0:
            check_output_folder(Path(folder), MODEL, keeps=(CARD,))
            merge(self.trained.model)
            self.trained.save(Path(folder))

    def on_train_start(self) -> None:
        """Set this step's learning rate, as the schedule of an extended run has another length."""
        if self._length is not None:
            scheduler = self.lr_schedulers()
            assert isinstance(scheduler, LambdaLR)
            factor = self.steps.optim.factor(self.global_step, self._length)
            groups = scheduler.optimizer.param_groups
            for group, base in zip(groups, scheduler.base_lrs, strict=True):
                group["lr"] = base * factor
        if self.averages and hasattr(self.trainer.strategy.model, "require_backward_grad_sync"):
            self.trainer.strategy.model.require_backward_grad_sync = False  # averaged by us

    def on_train_batch_start(self, batch: Batch | list[Batch], batch_idx: int) -> None:
        """Make dropout a function of the step, so that a resumed run repeats it exactly."""
        several = self.trainer.accumulate_grad_batches  # of one's own Trainer; ours are lists
        self._accumulated = (batch_idx % several,) if several > 1 else ()
        self._seed_torch()

    def _seed_torch(self, *names: int) -> None:
        more = (*self._accumulated, *names)
        seed = derive(self.steps.seed, "torch", self.global_step, self.global_rank, *more)
        # Like torch.manual_seed, which would also queue a call for CUDA on machines without it.
        torch.default_generator.manual_seed(seed)
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)

    def training_step(self, batch: Batch | list[Batch], batch_idx: int) -> Tensor:
        """Return the loss of the global batch, or the mean over the batches of this step.

        If there are several batches, all but the last are differentiated here, one by one, so that
        only one graph takes memory at a time.
        """
        if not isinstance(batch, list):
            loss = self._finite(self.loss(batch))
            if self.steps.total is None:
                self.log("train/loss", loss, prog_bar=True, batch_size=batch["global_size"])
            return loss
        self.optimizers(use_pl_optimizer=False).zero_grad()
        done = torch.zeros((), device=self.device)
        for self._part, part in enumerate(batch[:-1]):
            loss = self.share(self._finite(self.loss(part)), part, batch)
            self.trainer.strategy.backward(loss, None)
            done += loss.detach()
        self._part = self.steps.parts - 1
        return self.share(self._finite(self.loss(batch[-1])), batch[-1], batch) + done

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Log ``val/loss``, whose mean over batches is weighted by ``weight``."""
        loss, weight = self._finite(self.loss(batch)), round(self.weight(batch))
        # Every process has the loss of the whole batch; Lightning asks for the reduction anyway.
        several = self.trainer.world_size > 1
        self.log("val/loss", loss, prog_bar=True, batch_size=weight, sync_dist=several)

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of ``measure``."""
        if self.metrics is not None:
            self.log_dict(self.metrics.compute())
            self.metrics.reset()

    def _finite(self, loss: Tensor) -> Tensor:
        if self.fault is not None and torch.is_grad_enabled():
            self.fault.note(loss, self.global_step + 1, "loss")
        elif not torch.isfinite(loss):
            raise self._not_finite(self.global_step + 1, "loss", loss.item())
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise UserError(
                "the loss depends on none of the weights that are trained: name others in "
                "tuning.train, tuning.freeze or tuning.lora.targets"
            )
        return loss

    def _not_finite(self, step: int, kind: Kind, number: float) -> UserError:
        further = " or raise optim.warmup" if kind == "loss" else ""
        return UserError(
            f"step {step}: the {kind} is {number}; nothing was updated. "
            f"Lower optim.lr (now {self.steps.optim.lr}){further}"
        )

    def check_finite(self) -> None:
        """Refuse to go on after a loss or a gradient that only the GPU has seen yet.

        It has made no update since. This waits for the GPU, so it is called where the host waits
        anyway: before it logs, validates or saves, and at the end.

        Raises:
            UserError: naming the step and the number.
        """
        fault = None if self.fault is None else self.fault.read()
        if fault is not None:
            raise self._not_finite(*fault)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Check the losses where one's own Trainer logs; ours does so itself."""
        if self.steps.total is None and (batch_idx + 1) % self.trainer.log_every_n_steps == 0:
            self.check_finite()

    def on_validation_start(self) -> None:
        """Check the losses so far."""
        self.check_finite()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check the losses so far."""
        self.check_finite()

    def on_train_end(self) -> None:
        """Check the losses so far."""
        self.check_finite()

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        """Copy a batch's tensors to the device, for which the host does not wait."""
        return apply_to_collection(batch, Tensor, send, device)

    def optimizer_zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clear the last step's gradients; a step of several batches has done so already."""
        if self.steps.parts == 1:
            super().optimizer_zero_grad(*args, **kwargs)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Update the weights and free the gradients.

        Lightning keeps them through the next forward pass, where they would take as much memory as
        the trained weights while the activations take most.
        """
        super().optimizer_step(*args, **kwargs)
        self.optimizers(use_pl_optimizer=False).zero_grad()

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
        """Return the weighted mean loss over batches, without dropout."""
        self.trained.eval()
        if self.metrics is not None:
            self.metrics.reset()  # of a validation that was interrupted
        total, weight = 0.0, 0.0
        for batch_on_host in batches:
            batch = self.trainer.strategy.batch_to_device(batch_on_host)
            with self.trainer.precision_plugin.forward_context():
                total += self.loss(batch).item() * self.weight(batch)
            weight += self.weight(batch)
        self.trained.train()
        mean = total / weight
        if not mean - mean == 0:
            raise UserError(
                f"step {self.global_step}: the validation loss is {mean}. Lower optim.lr (now "
                f"{self.steps.optim.lr}) or raise optim.warmup"
            )
        if self.metrics is not None:
            self.measured = {name: metric.item() for name, metric in self.metrics.compute().items()}
            self.metrics.reset()
        return mean

    def check_layer_decay(self) -> None:
        """Refuse a decay of rates over layers if none of the trained parameters is in one."""
        decay = self.steps.optim.layer_decay
        trained = [name for name, p in self.trained.model.named_parameters() if p.requires_grad]
        if decay is not None and set(layer_rates(trained, 0.5).values()) == {1.0}:
            raise UserError(
                f"optim.layer_decay={decay:g} would have no effect: what is trained, such as "
                f"{trained[0]}, is above all layers; leave it out, or choose another tuning"
            )

    def configure_optimizers(self) -> dict[str, Any]:
        """Return AdamW and its schedule, stepped after every batch.

        A subclass may return any other, as of every LightningModule.
        """
        optim, total = self.steps.optim, self.steps.total
        self.check_layer_decay()
        length = self.trainer.estimated_stepping_batches if total is None else total
        if math.isinf(length) and (optim.schedule != "constant" or isinstance(optim.warmup, float)):
            raise UserError(
                f"optim.schedule={optim.schedule} needs the length of the run, and this Trainer "
                "has no end: give it max_epochs or max_steps, or set optim.schedule=constant and "
                "an optim.warmup in steps"
            )
        self._length = length
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
        if self._checks_late:
            self.fault = FirstFault(self.device)
            optimizer.found_inf = self.fault.found  # type: ignore[attr-defined]  # torch reads it
        factor: Callable[[int], float] = lambda step: optim.factor(step, length)  # noqa: E731
        scheduler = LambdaLR(optimizer, factor)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    @property
    def _checks_late(self) -> bool:
        """Whether the device keeps what is not finite, and its optimizer then makes no update."""
        return self.device.type == "cuda" and self._scaler() is None

    def _scaler(self) -> Any:
        """Return the scaler of the loss for float16; ``None`` in other precisions."""
        return getattr(self.trainer.precision_plugin, "scaler", None)

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the norm of the whole gradient.

        The norm is summed in the model's order of parameters and not, as Lightning does, in the
        optimizer's: so a Trainer's ``gradient_clip_val`` gives the bytes of ``gradient_clip``.
        """
        limit = self.steps.gradient_clip
        if limit is None:
            limit = gradient_clip_val
            sharded = isinstance(self.trainer.strategy, FSDPStrategy)
            if limit and (sharded or gradient_clip_algorithm == "value"):
                self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
                return
        if not limit:
            return
        norm = nn.utils.clip_grad_norm_(self.trained.parameters(), limit)
        if self.fault is not None:
            self.fault.note(norm, self.global_step + 1, "gradient's norm")
        elif self._scaler() is None and not torch.isfinite(norm):  # a scaler skips such a step
            raise self._not_finite(self.global_step + 1, "gradient's norm", norm.item())


# Encoding a batch in chunks with the gradient of the whole, for batches larger than memory.
#
# Gao et al., 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup"
# (GradCache), section 3: encode every chunk without a graph, differentiate the loss by the
# features, then encode each chunk again and backpropagate the gradients of its features.

Features = tuple[Tensor, ...]


@dataclass
class ChunkedFeatures:
    """Features of one process's share of a batch, encoded ``size`` rows at a time.

    Args:
        encode: a function that maps pixels and texts to the features, each (rows, dim).
        pixels: the images, uint8 (n, 3, side, side).
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
    """Refuse a model whose features of one example depend on the others encoded with it."""
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


# The weight decay and the learning rate of each parameter.

_LIST = r"(?P<list>(?:.*?\.)?\w*?(?:layers?|blocks|stages|tower))"
BLOCK = re.compile(rf"^{_LIST}\.?(?P<number>\d+)\.")
"""A parameter of a numbered block (the outermost), as in ``encoder.layers.3.mlp.fc1.bias``."""
BEGINNING = re.compile(r"embed|patch|conv1\b|pre_lay\w*norm|ln_pre|cls_token|bn1\b|stem")
"""Parameters before the first block: embeddings, the patch convolution, the norm after it."""
NOT_DECAYED = re.compile(r"bias|layernorm|rmsnorm|(?:^|[._])norm(?:$|\.)")
"""Names that the Trainer of transformers leaves out (``Trainer.get_decay_parameter_names``)."""
DecayRule = Literal["matrices", "huggingface"]


def parameter_groups(
    model: nn.Module,
    weight_decay: float,
    *,
    lr: float = 1.0,
    layer_decay: float | None = None,
    decay_rule: DecayRule = "matrices",
) -> list[dict[str, Any]]:
    """Return groups of trainable parameters by weight decay and learning rate.

    Args:
        layer_decay: the factor of ``layer_rates`` that splits the groups by learning rate; ``None``
            does not split them.
        decay_rule: the rule that selects the parameters that decay; see
            ``cfaug.train.settings.OptimSettings``.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    decayed = decayed_names(model, decay_rule)
    rates = dict.fromkeys(named, 1.0) if layer_decay is None else layer_rates(named, layer_decay)
    groups: list[dict[str, Any]] = []
    for decay, decays in ((weight_decay, True), (0.0, False)):
        for rate in sorted(set(rates.values()), reverse=True):
            parameters = [
                p for n, p in named.items() if (n in decayed) == decays and rates[n] == rate
            ]
            if parameters or rate == 1.0:
                groups.append({"params": parameters, "weight_decay": decay, "lr": lr * rate})
    return groups


def decayed_names(model: nn.Module, rule: DecayRule) -> set[str]:
    """Return the names of the parameters that decay; see ``OptimSettings`` for the two rules."""
    if rule == "matrices":  # the rest: biases, norms' gains, the logit scale, class embeddings
        return {name for name, p in model.named_parameters() if p.ndim > 1}
    in_norms = tuple(n + "." for n, m in model.named_modules() if n and isinstance(m, nn.LayerNorm))
    return {
        name
        for name, _ in model.named_parameters()
        if not NOT_DECAYED.search(name.lower()) and not name.startswith(in_norms)
    }


def layer_rates(names: Iterable[str], layer_decay: float) -> dict[str, float]:
    """Return each parameter's factor of the learning rate, ``layer_decay ** (layers above it)``.

    A tower is a list of numbered blocks (``layers``, ``resblocks``, ``stages``, ...) with the
    parameters beside it. Its blocks are counted from the last, which has one layer above it (the
    projection), to the first; embeddings are below that. Other parameters (projections, final
    norms, heads, the logit scale) have factor 1. This applies BEiT's ``get_num_layer_for_vit`` to
    each tower separately.

    Args:
        layer_decay: the factor from each layer to the one below it, in (0, 1].

    >>> layer_rates(["visual.conv1.weight", "visual.layers.0.w", "visual.layers.1.w"], 0.5)
    {'visual.conv1.weight': 0.125, 'visual.layers.0.w': 0.25, 'visual.layers.1.w': 0.5}
    """
    names = list(names)
    numbers: dict[str, set[int]] = {}
    for match in filter(None, map(BLOCK.match, names)):
        numbers.setdefault(match["list"], set()).add(int(match["number"]))
    blocks = {tower: sorted(indices, reverse=True) for tower, indices in numbers.items()}
    return {name: layer_decay ** _layers_above(name, blocks) for name in names}


def _layers_above(name: str, blocks: dict[str, list[int]]) -> int:
    match = BLOCK.match(name)
    if match:
        return blocks[match["list"]].index(int(match["number"])) + 1
    if not BEGINNING.search(name):
        return 0
    towers = [tower for tower in blocks if name.startswith(_root(tower))]
    return len(blocks[max(towers, key=lambda t: len(_root(t)))]) + 1 if towers else 0


def _root(tower: str) -> str:
    """Return the prefix of a tower's embeddings: the parent of the module with its blocks.

    >>> _root("vision_model.encoder.layers"), _root("transformer.resblocks")
    ('vision_model.', '')
    """
    return "".join(part + "." for part in tower.split(".")[:-2])


# A module whose state dict has only trained weights, such as adapters without the base model.


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
        state = super().state_dict(*args, prefix=prefix, **kwargs)
        for name in [name for name in state if name in every - trained and name not in before]:
            del state[name]
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], *_: Any, **__: Any) -> Any:
        """Load the trained weights; the others keep their values."""
        return super().load_state_dict(state_dict, strict=False)
