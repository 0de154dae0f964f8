"""Which weights are trained, and their average. Torch is imported when needed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from cfaug.core.errors import UserError
from cfaug.core.validation import PartialShare, Positive, PositiveNumber, check_fields
from cfaug.settings.read_if import GIVEN, ReadIf
from cfaug.train.records import Trainable

# The choice of trained weights: frozen parts, LoRA adapters. Torch is imported when needed.
#
# Patterns are regular expressions that are searched for in the names of the model's library, such
# as ``vision_model.encoder.layers.0.self_attn.q_proj`` (transformers) or
# ``visual.transformer.resblocks.0.mlp.c_fc`` (open_clip).

NEAR = 5


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters on linear layers (Hu et al., 2021, section 4.1), merged when saved.

    Where queries, keys and values have one weight that no linear layer holds, as in open_clip, its
    own name (``in_proj_weight``) is adapted; the three then share A.

    A layer's weight W acts as W + (alpha / r) B A, with A (r, in) drawn from the run's seed and B
    (out, r) zero at first; W itself is not trained.

    Args:
        targets: the patterns of names of modules, which must all be linear layers, and of such
            weights.
        alpha: the numerator of the scaling factor alpha / r.
        dropout: the share of an adapter's inputs that is dropped in training.
        merge: whether the adapters are added to the weights in ``checkpoint/``; ``False`` writes
            only the adapters, with the name and the hash of their base model (language models).
    """

    targets: Sequence[str]
    r: Positive = 8
    """the rank of the adapters"""
    alpha: PositiveNumber = 16
    dropout: PartialShare = 0.0
    merge: Annotated[bool, ReadIf({"/data.edits": GIVEN})] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", _patterns("tuning.lora.targets", self.targets))
        if not self.targets:
            raise UserError("tuning.lora.targets is empty: name the layers to adapt")
        check_fields(self, "tuning.lora")


@dataclass(frozen=True)
class Tuning:
    """The choice of trained parameters; without this node all are trained.

    Args:
        freeze: the patterns of parameter names that keep their initial values.
        train: the patterns of parameters that are trained although ``freeze`` or ``lora`` freezes
            them.
        lora: the adapters; everything else is then frozen, except the parameters of ``train``.
        still: whether modules without a trained parameter stay in evaluation mode: no dropout and
            no dropped layers or patches in a frozen tower.
    """

    freeze: Sequence[str] = ()
    train: Annotated[Sequence[str], ReadIf({"freeze": GIVEN}, {"lora": GIVEN})] = ()
    lora: Lora | None = None
    still: Annotated[bool, ReadIf({"freeze": GIVEN}, {"lora": GIVEN})] = False

    def __post_init__(self) -> None:
        for name in ("freeze", "train"):
            object.__setattr__(self, name, _patterns(f"tuning.{name}", getattr(self, name)))

    def apply(self, encoder: Trainable, seed: int) -> None:
        """Freeze and adapt ``encoder`` in place.

        A norm layer with frozen weights keeps its running statistics as well.

        Args:
            seed: the run's seed, which draws the adapters.
        """
        model = encoder.model
        parameters = dict(model.named_parameters())
        frozen = matching("tuning.freeze", self.freeze, parameters)
        exempt = matching("tuning.train", self.train, parameters)
        if self.lora is not None:
            _adapt(model, self.lora, seed)
            frozen = set(parameters)
        kept: frozenset[str] = getattr(encoder, "never_trained", frozenset())
        for name, parameter in parameters.items():
            parameter.requires_grad_(name not in kept and (name not in frozen or name in exempt))
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise UserError(
                "tuning.freeze leaves nothing to train: name exceptions in tuning.train"
            )
        # Frozen modules that stay in evaluation mode: all, or those with running statistics.
        held = []
        for module in model.modules():
            trained = [weight.requires_grad for weight in module.parameters(recurse=self.still)]
            is_frozen = bool(trained) and not any(trained)
            if is_frozen and (self.still or hasattr(module, "track_running_stats")):
                held.append(module)
        encoder.held_in_evaluation = tuple(held)


def _patterns(key: str, patterns: Sequence[str]) -> tuple[str, ...]:
    """Return patterns as a tuple, after checking that each is a regular expression."""
    listed = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    for pattern in listed:
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise UserError(f"{key}: {pattern!r} is not a regular expression: {error}") from error
    return listed


def matching(key: str, patterns: Iterable[str], names: Collection[str]) -> set[str]:
    """Return the names in which any pattern is found.

    >>> sorted(matching("tuning.freeze", ["^visual"], ["visual.proj", "text.proj"]))
    ['visual.proj']
    """
    matched: set[str] = set()
    for pattern in patterns:
        hits = {name for name in names if re.search(pattern, name)}
        if not hits:
            letters = re.sub(r"\\.|[^\w.]+", ".", pattern).strip(".")
            depth = letters.count(".") + 1
            heads = dict.fromkeys(".".join(name.split(".")[:depth]) for name in names)
            near = ", ".join(difflib.get_close_matches(letters, [*heads, *names], NEAR, 0.0))
            raise UserError(f"{key}: {pattern!r} matches none of {len(names)} names; near: {near}")
        matched |= hits
    return matched


def _adapt(model: nn.Module, lora: Lora, seed: int) -> None:
    from transformers.pytorch_utils import Conv1D

    from cfaug.core.rng import derive
    from cfaug.models.lora import inject

    modules = {name: module for name, module in model.named_modules() if name}
    fused = {name for name, _ in model.named_parameters() if name.endswith(FUSED)}
    targets = matching("tuning.lora.targets", lora.targets, {*modules, *fused})
    for name in sorted(targets - fused):
        if not isinstance(modules[name], nn.Linear | Conv1D):  # GPT-2's linear layer, transposed
            kind = type(modules[name]).__name__
            raise UserError(
                f"tuning.lora.targets matches {name}, a {kind}: only linear layers are adapted"
            )
        parent = modules.get(name.rpartition(".")[0])
        if isinstance(parent, nn.MultiheadAttention):
            raise UserError(
                f"tuning.lora.targets matches {name}, whose weight torch's MultiheadAttention uses "
                "without calling the layer: name in_proj_weight, or layers of the MLP, instead"
            )
    if lora.dropout and not targets.isdisjoint(fused):
        raise UserError(
            f"tuning.lora.dropout={lora.dropout:g} is not possible with "
            f"{min(targets & fused)}, which no layer of its own reads: set it to 0"
        )
    inject(model, sorted(targets), int(lora.r), lora.alpha, lora.dropout, derive(seed, "lora"))


FUSED = ".in_proj_weight"
"""End of the name of a weight of queries, keys and values that belongs to no linear layer."""


def recompute_activations(encoder: Trainable) -> None:
    """Let the model compute its activations again in the backward pass, by its library's switch.

    Raises:
        UserError: if the model's class has no such switch.
    """
    model = encoder.model
    if getattr(model, "supports_gradient_checkpointing", False):  # transformers
        usual = model.gradient_checkpointing_enable  # its name before version 6
        enable = getattr(model, "activation_checkpointing_enable", usual)
        enable({"use_reentrant": False})  # for frozen layers and DDP
        # Only reentrant recomputation needs inputs with gradients, and BLIP changes them in place.
        model.disable_input_require_grads()
    elif hasattr(model, "set_grad_checkpointing"):  # open_clip
        model.set_grad_checkpointing()
    else:
        kind = type(getattr(model, "encoder", model)).__name__
        raise UserError(
            f"trainer.gradient_checkpointing=true: {kind} cannot compute its activations again; "
            "trainer.accumulate_grad_batches saves memory with every model, and "
            "trainer.micro_batch_size with dual encoders"
        )


def trainable(encoder: Trainable) -> tuple[int, int]:
    """Return the number of trained parameters and of all parameters, including adapters."""
    sizes = [(p.numel(), p.requires_grad) for p in encoder.model.parameters()]
    return sum(n for n, trained in sizes if trained), sum(n for n, _ in sizes)


# An exponential moving average of a run's weights (``trainer.ema_decay``).
#
# After step 1 the average is that step's weights; after every later step it becomes decay * average
# + (1 - decay) * weights (Polyak and Juditsky, 1992, with exponential weights). The update and this
# start are those of ``torch.optim.swa_utils.AveragedModel`` and of Lightning's
# ``EMAWeightAveraging``. Lightning's callback itself is not used: it swaps the weights only around
# Lightning's own validation, which never runs here (see ``cfaug.train.checkpoint``). After
# the last step it overwrites the trained weights, from which an extended run resumes. It also
# copies and averages frozen weights, a whole base model for a few adapters. And it restores its
# copy by a strict ``load_state_dict``, which fails for models that save only their trained weights.


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
        self._average = {
            name: self._average[name].to(tensor.device) for name, tensor in current.items()
        }
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
            previous = current.clone()
            current.copy_(self._average[name])
            self._average[name].copy_(previous)

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
    tensors = {
        name: parameter.detach()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    for owner, module in model.named_modules():
        if getattr(module, "track_running_stats", False):
            buffers = module.named_buffers(owner, recurse=False)
            tensors |= {name: buffer for name, buffer in buffers if buffer.is_floating_point()}
    return tensors
