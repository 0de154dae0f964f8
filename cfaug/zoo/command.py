"""What the zoo's commands share: ``name=value`` arguments, a fresh folder, the card, exit codes."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, asdict, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar

from cfaug.errors import USERS_MISTAKE, UserError
from cfaug.validation import annotation_of, base_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from torch import nn
    from transformers import PreTrainedModel

    class Writing(DataclassInstance, Protocol):
        """Settings that say where to write."""

        @property
        def out(self) -> str:
            """The folder."""

    class SavesItself(Protocol):
        """A tokenizer or processor of transformers."""

        def save_pretrained(self, folder: Path, /) -> object:
            """Write its files."""

    Settings = TypeVar("Settings", bound=DataclassInstance)
    Model = TypeVar("Model", bound=nn.Module)


class Needed(NamedTuple):
    """A setting without a default: what it is for, and what stands for it in a card."""

    meaning: str
    placeholder: str


NEEDED = {
    "out": Needed("where to write", "FOLDER"),
    "captions": Needed("what to read", "FILE"),
}


def _list_needed(kind: type[DataclassInstance]) -> list[str]:
    return [field.name for field in fields(kind) if field.default is MISSING]


def read(kind: type[Settings], argv: list[str]) -> Settings:
    """Read ``name=value`` arguments into settings of ``kind``.

    Args:
        kind: a dataclass whose fields are annotated ``str``, ``int`` or ``float``; those without a
            default are among ``NEEDED``.
        argv: the command's arguments.

    Raises:
        UserError: for a name that is not a setting, a value of the wrong type, or a needed setting
            that is missing or empty.
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
            needed = NEEDED[name]
            raise UserError(f"say {needed.meaning}: {name}={needed.placeholder}")
    return kind(**values)


def fresh_folder(out: str) -> Path:
    """Return the folder ``out``, which is not there yet.

    Raises:
        UserError: if it exists.
    """
    folder = Path(out)
    if folder.exists():
        raise UserError(f"{folder} exists already: remove it or choose another out=FOLDER")
    return folder


def write_card(
    folder: Path,
    module: str,
    settings: DataclassInstance,
    facts: Mapping[str, Any],
    *,
    libraries: Collection[str] = ("torch",),
    leave_out: Collection[str] = (),
) -> None:
    """Write ``card.json``: how ``folder`` is rebuilt and what it is; print its metrics as JSON.

    Args:
        folder: what the command made.
        module: the command, as ``python -m`` takes it.
        settings: what the command was given; needed ones are paths of the caller's machine and
            become placeholders.
        facts: ``metrics`` and whatever else the card tells.
        libraries: modules whose versions the card tells.
        leave_out: settings that change nothing of the result.
    """
    import torch

    needed = _list_needed(type(settings))
    hidden = {*needed, *leave_out}
    arguments = {name: value for name, value in asdict(settings).items() if name not in hidden}
    words = [
        *(f"{name}={NEEDED[name].placeholder}" for name in needed),
        *(f"{name}={value}" for name, value in arguments.items()),
    ]
    card = {
        "command": " ".join([f"python -m {module}", *words]),
        "settings": arguments,
        **facts,
        "threads": torch.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            **{name: import_module(name).__version__ for name in libraries},
        },
    }
    (folder / "card.json").write_text(json.dumps(card, indent=2) + "\n")
    print(json.dumps(card["metrics"]))


def facts(model: nn.Module, metrics: Mapping[str, float], seconds: float) -> dict[str, Any]:
    """Return what a card tells of one trained model: metrics, seconds of training, size."""
    return {
        "metrics": dict(metrics),
        "seconds": round(seconds, 1),
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def make_model(
    module: str,
    settings: Writing,
    train: Callable[[], Model],
    save: Callable[[Model, Path], None],
    evaluate: Callable[[Model, Path], Mapping[str, float]],
    *,
    leave_out: Collection[str] = (),
) -> int:
    """Train one model, write it, evaluate it, and write its ``card.json``; return the exit code.

    Args:
        module: the command, as ``python -m`` takes it.
        settings: what the command was given; ``out`` must not exist yet.
        train: returns the trained model; the card says how many seconds it took.
        save: writes a model to a folder.
        evaluate: returns the metrics of the model, which was written to the folder.
        leave_out: settings that change nothing of the result.

    Raises:
        UserError: if the folder exists, before anything is trained.
    """
    folder = fresh_folder(settings.out)
    started = time.perf_counter()
    model = train()
    seconds = time.perf_counter() - started
    save(model, folder)
    known = facts(model, evaluate(model, folder), seconds)
    libraries = ("torch", "transformers")
    write_card(folder, module, settings, known, libraries=libraries, leave_out=leave_out)
    return 0


def save_half(model: PreTrainedModel, processor: SavesItself, folder: Path) -> None:
    """Write a model as the Hub holds it: float16 safetensors, configuration and processor.

    Args:
        model: keeps its own type; its parameters are rounded to float16.
        processor: of its images or texts, or of both.
        folder: is made if it is missing.
    """
    import torch

    from cfaug.pretrained import quiet

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
