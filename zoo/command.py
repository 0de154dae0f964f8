"""Code shared by the zoo's commands: ``name=value`` arguments, training, the folder, the card."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from cfaug.core.annotations import annotation_of, base_of
from cfaug.core.errors import USERS_MISTAKE, UserError
from cfaug.core.outputs import output_folder
from cfaug.core.progress import watch
from cfaug.core.validation import Seed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from transformers import PreTrainedModel

    Settings = TypeVar("Settings", bound=DataclassInstance)

KIND = "a model of the zoo"
"""What the record of outputs calls the folder."""
NEEDED = {
    "out": ("where to write", "FOLDER"),
    "captions": ("what to read", "FILE"),
    "downloads": ("where packages are, or are put", "FOLDER"),
}
"""The settings without a default: the meaning of each, and its placeholder in a card."""


def _list_needed(kind: type[DataclassInstance]) -> list[str]:
    return [field.name for field in fields(kind) if field.default is MISSING]


def read(kind: type[Settings], argv: list[str]) -> Settings:
    """Read ``name=value`` arguments into settings of ``kind``.

    Args:
        kind: a dataclass whose fields are annotated ``str``, ``int`` or ``float``; those without a
            default are among ``NEEDED``.
    """
    kinds = {field.name: base_of(annotation_of(kind, field.name)) for field in fields(kind)}
    values: dict[str, Any] = {}
    for argument in argv:
        name, _, value = argument.partition("=")
        if name not in kinds:
            raise UserError(f"unknown setting {name!r}; choose from {', '.join(kinds)}")
        try:
            values[name] = kinds[name](value)
        except ValueError as error:
            raise UserError(f"{argument!r}: {name} takes a number") from error
    for name in _list_needed(kind):
        if not values.get(name):
            meaning, placeholder = NEEDED[name]
            raise UserError(f"say {meaning}: {name}={placeholder}")
    return kind(**values)


@contextmanager
def fresh_folder(out: str) -> Iterator[Path]:
    """Yield a private folder that becomes ``out`` when the block succeeds; it must be new or empty.

    Raises:
        UserError: if anything is there.
    """
    with output_folder(Path(out).expanduser(), KIND, "out", replace=False) as folder:
        yield folder


def write_card(
    folder: Path,
    name: str,
    settings: DataclassInstance,
    facts: Mapping[str, Any],
    *,
    libraries: Collection[str] = ("torch", "transformers"),
    leave_out: Collection[str] = (),
) -> None:
    """Write ``card.json``, with the command and facts about the model; print its metrics as JSON.

    Args:
        settings: the settings of the command; settings without a default are paths of the caller's
            machine and become placeholders.
        facts: ``metrics`` and further entries of the card.
        libraries: the modules with versions in the card.
        leave_out: settings that do not affect the result.
    """
    import torch

    needed = _list_needed(type(settings))
    hidden = {*needed, *leave_out}
    arguments = {name: value for name, value in asdict(settings).items() if name not in hidden}
    words = [
        *(f"{name}={NEEDED[name][1]}" for name in needed),
        *(f"{name}={value}" for name, value in arguments.items()),
    ]
    card = {
        "command": " ".join([f"python -m zoo {name}", *words]),
        "settings": arguments,
        **facts,
        "threads": torch.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            **{name: import_module(name).__version__ for name in libraries},
        },
    }
    (folder / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(card["metrics"]))


def count_parameters(model: nn.Module) -> int:
    """Return the number of a model's weights."""
    return sum(p.numel() for p in model.parameters())


def make_model(
    name: str,
    kind: type[Any],
    train: Callable[[Any], Any],
    save: Callable[[Any, Path], object],
    evaluate: Callable[[Path, Any], Mapping[str, float]],
    argv: list[str],
    *,
    leave_out: Collection[str] = (),
) -> int:
    """Train one model, write it, evaluate what was written, and write its ``card.json``.

    Args:
        kind: the class of its settings, whose folder ``out`` must not exist yet.
        train: a function that returns the model, from the settings; the card gives its seconds.
        evaluate: a function that returns the metrics of the model in a folder.

    Returns:
        The exit code.
    """
    settings = read(kind, argv)
    with fresh_folder(settings.out) as folder:
        started = time.perf_counter()
        model = train(settings)
        seconds = time.perf_counter() - started
        save(model, folder)
        facts = {
            "metrics": dict(evaluate(folder, settings)),
            "seconds": round(seconds, 1),
            "parameters": count_parameters(model),
        }
        write_card(folder, name, settings, facts, leave_out=leave_out)
    return 0


def save_half(model: PreTrainedModel, processor: Any, folder: Path) -> None:
    """Write a model in the Hub's form: float16 safetensors, configuration and processor.

    Args:
        model: the model; it keeps its type, with parameters rounded to float16.
        folder: the folder to write into, created if missing.
    """
    import torch

    from cfaug.models.checkpoints import quiet

    folder.mkdir(parents=True, exist_ok=True)
    with quiet():
        model.to(torch.float16).save_pretrained(folder)
        processor.save_pretrained(folder)
    model.float()


def run(main: Callable[[list[str]], int]) -> NoReturn:
    """Run a command's ``main`` on the arguments of this process, and end it with the exit code."""
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(USERS_MISTAKE)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Settings of a tiny model's optimisation, which every training command has.

    Attributes:
        lr: the peak of the learning rate, reached after ``warmup`` steps; it then falls to 0 by a
            cosine.
        warmup: the number of steps of linear warm-up.
        weight_decay: AdamW's weight decay, on matrices only.
    """

    batch_size: int = 64
    lr: float = 2e-3
    warmup: int = 100
    weight_decay: float = 0.05


@dataclass(frozen=True, kw_only=True)
class DrawingSettings(Rates):
    """Settings of a tiny model's training on drawings.

    Attributes: those of :class:`Rates`, and
        steps: the number of optimiser steps.
        out: the folder to write; must not exist yet.
        seed: the seed of the weights, the scenes and their order.
        scenes: the number of distinct training scenes.
        held_out: the number of scenes of the evaluation.
    """

    steps: int = 2_500
    out: str
    seed: Seed = 0
    scenes: int = 12_000
    held_out: int = 800


def fit(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    rates: Rates,
    steps: int,
    title: str = "pre-training",
) -> None:
    """Train ``model`` in place with AdamW and gradient norms of at most 1; progress on stderr.

    Args:
        loss: a function that returns the loss of a step, a scalar.

    Raises:
        FloatingPointError: if a loss is not finite.
    """
    import torch

    def rate(step: int) -> float:
        if step < rates.warmup:
            return (step + 1) / rates.warmup
        done = (step - rates.warmup) / max(1, steps - rates.warmup)
        return float(0.5 * (1 + np.cos(np.pi * done)))

    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": rates.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=rates.lr,
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    descend(model, loss, optimizer, scheduler, steps, title)


def descend(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    optimizer: Optimizer,
    scheduler: LRScheduler,
    steps: int,
    title: str,
) -> None:
    """Train ``model`` in place with gradient norms of at most 1; progress on stderr.

    Raises:
        FloatingPointError: if a loss is not finite.
    """
    import torch

    for step in watch(range(steps), title, steps, "steps"):
        value = loss(step)
        if not torch.isfinite(value):
            raise FloatingPointError(f"the loss is not finite ({title}): lower lr")
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
