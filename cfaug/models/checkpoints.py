"""Checkpoints of transformers: their configuration, and the loading of their weights.

Every part that reads such a folder uses this module: the models that are evaluated and trained, and
the language models of editors. It does not import torch.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from importlib import import_module
from logging import Handler as StandardHandler
from logging import LogRecord
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from cfaug.core.cards import CARD
from cfaug.core.errors import UserError, name_some, say_once
from cfaug.core.outputs import output_folder
from cfaug.core.pixels import Geometry
from cfaug.core.processes import uncollected
from cfaug.core.protocols import Classifier, DualEncoder, Matcher
from cfaug.core.safety.safe_loading import (
    check_built,
    check_finite,
    check_folder,
    count_stored,
    from_folder,
    skeleton,
)
from cfaug.core.validation import Positive, check_fields
from cfaug.core.weights import (
    find_weights,
    hash_description,
    model_identity,
    parameter_count,
    refuse_pickles,
    resolve,
    sha256,
    sha256_text,
)
from cfaug.models.weight_names import WRAPPERS, find_prefix, named_weights, say_prefix

if TYPE_CHECKING:
    from torch import Tensor, nn

WHERE = ("weights", "revision")
"""Settings that only say where the weights are."""


def choose_protocol(provides: tuple[type, ...], protocol: type | None, owner: str) -> type:
    """Return the protocol that a model is loaded as; ``None`` requests the main one, the first."""
    if protocol is None:
        return provides[0]
    if protocol in provides:
        return protocol
    names = " or ".join(provide.__name__ for provide in provides)
    raise UserError(
        f"{owner} can be loaded as {names}, not as {protocol.__name__}: choose a model=... that "
        f"provides {protocol.__name__}, or a benchmark that needs {names}"
    )


Matching = Callable[[Sequence[str], Sequence[str], str], Any]
"""A rule by which labels name classes: (labels, a model's classes, its name) -> the number of each
label's class, int64 (labels,), or a UserError that names the labels without a class."""


def knows_labels(
    labels: Sequence[str], classes: Sequence[str] | None, match: Matching, owner: str
) -> bool:
    """Return whether a model's classes include the labels; False if they have none in common.

    Args:
        classes: the model's classes; ``None`` if they have no names.

    Raises:
        UserError: if some labels name classes and others do not.
    """
    if classes is None:
        return False
    try:
        match(labels, classes, owner)
    except UserError:
        for label in labels:
            try:
                match([label], classes, owner)
            except UserError:
                continue
            raise
        return False
    return True


class Spec:
    """What specifications of models share: see ``cfaug.models.specs.ModelSpec``."""

    provides: ClassVar[tuple[type, ...]]

    def __repr__(self) -> str:
        """Return the settings; those without ``repr`` came later, and only a changed one is shown.

        Cards of generated shards hold this text.
        """
        known: Any = self  # a dataclass
        shown = [f for f in fields(known) if f.repr or getattr(self, f.name) != f.default]
        text = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in shown)
        return f"{type(self).__qualname__}({text})"

    @property
    def owner(self) -> str:
        """The kind and place of the model, which errors name."""
        raise NotImplementedError

    def weights_hash(self) -> str:
        """Return the sha256 of the weights."""
        raise NotImplementedError

    def answering(self) -> dict[str, Any]:
        """Return the settings that change the model's answers and differ from the defaults."""
        return {}

    def check_trainable(self) -> None:
        """Refuse a model that is not a dual encoder."""
        if DualEncoder in self.provides:
            return
        if Classifier in self.provides:
            raise UserError(
                f"{self.owner} cannot be fine-tuned on images and their captions: it learns the "
                "classes of images, by `python train.py task=classification` with labelled images"
            )
        use = f"benchmarks that need a {self.provides[0].__name__}"
        if Matcher in self.provides:
            use = "`python evaluate.py benchmark=matching`"
        raise UserError(
            f"{self.owner} has no embedding of an image or a text alone: it cannot be fine-tuned. "
            f"It takes part in {use}; to train, choose another model=..."
        )

    def identity(self) -> str:
        """Return the identity of the model in results: see ``model_identity``."""
        return model_identity(self.weights_hash(), self.answering())

    def on_this_machine(self) -> Self:
        """Return the same specification with a local folder, without downloading anything."""
        return self


@dataclass(frozen=True)
class Checkpoint(Spec):
    """A ``save_pretrained`` folder with a model of any kind.

    Args:
        weights: a folder, such as a run's checkpoint; ``zoo:NAME``, a shipped one;
            ``package:NAME/FOLDER``, one of an installed package; or a Hub id.
        revision: the commit of a Hub id; ``None`` for the newest.

    Attributes:
        implementation: ``module.Class``; its ``load(folder, **settings)`` returns the main one.
        ineffective: the settings that do not change the model's answers.
    """

    weights: str
    revision: str | None = None

    implementation: ClassVar[str]
    ineffective: ClassVar[frozenset[str]] = frozenset()

    def load(self, protocol: type | None = None) -> Any:
        """Load weights and processor, in float32 and evaluation mode."""
        wanted = choose_protocol(self.provides, protocol, self.owner)
        module, _, name = self.implementation.rpartition(".")
        with uncollected():
            load = getattr(import_module(module), name).load
            return self.adapt(load(self.folder(), **self.settings), wanted)

    def adapt(self, model: Any, protocol: type) -> Any:
        """Return the main model as another of the protocols that it provides."""
        return model

    def folder(self) -> Path:
        """Return the folder of the weights, downloaded if needed."""
        return resolve(self.weights, self.revision)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the loaded model besides its folder."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in WHERE
        }

    def answering(self) -> dict[str, Any]:
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in (*WHERE, *self.ineffective)
            and getattr(self, field.name) != field.default
        }

    def weights_hash(self) -> str:
        """Return the sha256 of the weight files."""
        return sha256(find_weights(self.folder()))

    def settings_hash(self) -> str:
        """Return the sha256 of the files beside the weights and of the settings."""
        words = " ".join(map(str, [type(self).__qualname__, *self.settings_words()]))
        return sha256_text(f"{words} {hash_description(self.folder())}")

    def settings_words(self) -> list[object]:
        """Return the settings in the form that ``settings_hash`` hashes."""
        return [f"{name}={value!r}" for name, value in sorted(self.answering().items())]

    def parameters(self) -> int | None:
        """Return the number of parameters in the files; ``None`` if they are not safetensors."""
        return parameter_count(find_weights(self.folder()))

    def on_this_machine(self) -> Self:
        return self.at(str(resolve(self.weights, self.revision, fetch=False)))

    def at(self, checkpoint: str) -> Self:
        """Return the same settings for another folder, Hub id or ``zoo:NAME``."""
        return replace(self, weights=checkpoint, revision=None)

    @property
    def owner(self) -> str:
        return f"{type(self).__name__} ({self.weights})"


def load_model(
    transformers_class: str,
    folder: Path,
    *,
    dtype: str = "float32",
    required: Sequence[str] = (),
    unused: Sequence[str] = (),
    head: Mapping[int, str] | None = None,
) -> Any:
    """Load a folder's weights in one number format, whatever format the file has.

    Args:
        unused: parts of the names of unused weights, which may be missing.
        head: the classes of a new head, which torch's generator draws; ``None`` keeps the folder's.
    """
    import torch
    import transformers

    def check_kind(model: Any) -> None:
        absent = [name for name in required if model is not None and not hasattr(model, name)]
        if absent:
            raise UserError(
                f"{folder} holds a {type(model).__name__}, which is not a dual encoder: "
                f"it has no {', '.join(absent)}"
            )

    kind = getattr(transformers, transformers_class)
    check_folder(folder)
    refuse_pickles(find_weights(folder))
    with quiet():
        check_kind(skeleton(kind, folder))
    # Otherwise the file's own type would be used: a float16 file would train in float16.
    options: dict[str, Any] = {"dtype": getattr(torch, dtype), "output_loading_info": True}
    options["ignore_mismatched_sizes"] = True  # they are named below
    if head is not None:
        numbers = {name: number for number, name in head.items()}
        options |= {"num_labels": len(head), "id2label": dict(head), "label2id": numbers}
    try:
        with quiet(), _passing_warnings_on(folder):
            model, report = from_folder(kind, folder, **options)
            prefix = find_prefix(report["unexpected_keys"], set(report["missing_keys"]))
            if prefix:
                say_prefix(folder, prefix)
                mapping = {f"^{re.escape(prefix)}": ""}
                model, report = from_folder(kind, folder, key_mapping=mapping, **options)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{folder} cannot be loaded by transformers: {error}") from error
    check_kind(model)
    missing = [key for key in report["missing_keys"] if not any(part in key for part in unused)]
    shapes = {
        key: f" ({tuple(there)}, not {tuple(wanted)} as config.json says)"
        for key, there, wanted in report["mismatched_keys"]
    }
    if head is not None:
        body = f"{model.base_model_prefix}."
        missing = [key for key in missing if key.startswith(body)]
        shapes = {key: text for key, text in shapes.items() if key.startswith(body)}
    wrong = sorted([*missing, *shapes])
    if wrong:
        raise UserError(
            f"{folder}: {len(wrong)} weights that a {type(model).__name__} needs are missing or "
            f"of another shape, such as {wrong[0]}{shapes.get(wrong[0], '')}: is the model of "
            "another kind?"
        )
    others = sorted(key for key in report["unexpected_keys"] if not NOT_LEARNT.search(key))
    if others:
        say_once(
            f"{folder}: {len(others)} of its weights have no place in a {type(model).__name__} and "
            f"are not used: {name_some(others)}"
        )
    return model.eval()


NOT_LEARNT = re.compile(r"(^|\.)(position_ids|token_type_ids|num_batches_tracked)$")
"""Entries of checkpoints that no training changed, which older libraries saved."""


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' progress bars and its list of unused weights."""
    from transformers.utils import logging

    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _passing_warnings_on(owner: object) -> Iterator[None]:
    """Say what transformers warns of, within ``quiet``, but for its reports of names of weights.

    What is missing there is refused, and what is not used is said, in a line.
    """
    from transformers.utils import logging

    heard: list[str] = []

    class Listener(StandardHandler):
        def emit(self, record: LogRecord) -> None:
            heard.append(record.getMessage())

    listener = Listener()
    logging.set_verbosity_warning()
    logging.disable_default_handler()
    logging.add_handler(listener)
    try:
        yield
    finally:
        logging.remove_handler(listener)
        logging.enable_default_handler()
        logging.set_verbosity_error()
    for message in heard:
        if "LOAD REPORT" not in message:
            say_once(f"{owner}: transformers warns: {' '.join(message.split())}")


def longest_text(model: Any, tokenizer: Any) -> int:
    """Return the largest number of tokens that a model reads, special ones included."""
    config = getattr(model.config, "text_config", model.config)
    names = ("max_position_embeddings", "n_positions")
    positions = next((n for n in (getattr(config, name, None) for name in names) if n), None)
    if positions is None:
        return int(tokenizer.model_max_length)  # relative positions: they set no limit
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            positions -= int(padding) + 1  # RoBERTa's positions begin after the padding index
            break
    return int(min(tokenizer.model_max_length, positions))


def continuation(context: Sequence[int], whole: Sequence[int]) -> int:
    """Return the index of a text's first token among the tokens of its context and the text.

    If they are tokenized together, the last token of the context may merge with the first of the
    text: then the text begins with the merged token.

    >>> continuation([1, 2, 3], [1, 2, 9, 4])
    2
    """
    pairs = zip(context, whole, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(context), len(whole)))


MODEL = "a saved model"
"""What the record of outputs calls a checkpoint outside of runs."""


@contextmanager
def replace_checkpoint(folder: Path) -> Iterator[Path]:
    """Provide an empty folder for a checkpoint, like ``cfaug.core.outputs.output_folder``.

    A model card in the old folder is kept in the new one, because the user may have edited it.
    ``checkpoint`` in a run's folder is the run's own, as its record says.

    Raises:
        UserError: if the folder holds anything that is not a model which cfaug saved.
        OSError: if the disk is full, also if safetensors reports it by its own error.
    """
    from safetensors import SafetensorError

    # A run's checkpoint was checked before it began; what a user added since is carried over.
    of_run = folder.name == "checkpoint" and (folder.parent / "run.json").is_file()
    with output_folder(folder, MODEL, keeps=(CARD,), carries=of_run) as fresh:
        try:
            yield fresh
            if (folder / CARD).is_file() and not (folder / CARD).is_symlink():
                shutil.copy2(folder / CARD, fresh / CARD)
        except SafetensorError as error:  # has the disk's error only as text
            refused = re.search(r"\(os error (\d+)\)", str(error))
            if refused is None:
                raise
            number = int(refused[1])
            raise OSError(number, os.strerror(number)) from error


def read_state(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name.

    Args:
        file: a safetensors file, or an output of ``torch.save`` with only tensors.
    """
    import torch

    refuse_pickles([file])
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(file)
        else:
            content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # safetensors and torch have their own types of errors
        raise UserError(f"{file} cannot be read as weights: {error}") from error
    content = named_weights(content)
    if not isinstance(content, Mapping) or not all(
        isinstance(value, torch.Tensor) for value in content.values()
    ):
        raise UserError(f"{file} has no weights by name: save the model's state_dict() there")
    # ``DistributedDataParallel`` and ``torch.compile`` put a prefix before every name.
    return {WRAPPERS.sub("", str(name)): tensor for name, tensor in content.items()}


def build_and_fill(build: Callable[[], nn.Module], file: Path) -> nn.Module:
    """Build a model and load all weights of a file into it, in float32.

    Args:
        build: a function that returns the model with random weights; it is first called on the meta
            device.
    """
    state = read_state(file)
    check_built(build, file, count_stored([file]))
    try:
        model = build()
    except Exception as error:  # the library may raise anything
        raise UserError(f"{file}: its model cannot be built: {error}") from error
    model = model.float()
    prefix = find_prefix(state, model.state_dict())
    if prefix:
        say_prefix(file, prefix)
        state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    wrong = find_differences(model.state_dict(), state)
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise UserError(
            f"{file} does not have the weights of the requested {type(model).__name__}: "
            f"{'; '.join(wrong[:3])}{more}. Is it another architecture?"
        )
    model.load_state_dict(state)
    check_finite(model, file)
    return model


def find_differences(wanted: Mapping[str, Tensor], there: Mapping[str, Tensor]) -> list[str]:
    """Return the differences between two sets of weights in names and shapes, as phrases."""
    return [
        *(f"{name} is missing" for name in wanted if name not in there),
        *(f"{name} has no place" for name in there if name not in wanted),
        *(
            f"{name} is {tuple(there[name].shape)}, not {tuple(wanted[name].shape)}"
            for name in wanted
            if name in there and there[name].shape != wanted[name].shape
        ),
    ]


def choose_classes(
    configured: Sequence[str] | None, default: Sequence[str] | None, logits: int, owner: object
) -> tuple[str, ...]:
    """Return the names of a model's classes.

    Args:
        configured: the names that the configuration gives; ``None`` if it gives no names.
        default: the names that the model or its library gives; ``None`` if it gives no names.
    """
    names = default if configured is None else configured
    if names is None:
        raise UserError(
            f"{owner} has {logits} classes without names: give model.classes=FILE with a line for "
            "each logit, a name or a WordNet id"
        )
    if len(names) != logits:
        where = "it says" if configured is None else "model.classes has"
        raise UserError(f"{owner} has {logits} logits, and {where} {len(names)} classes")
    return tuple(names)


class Checked(Checkpoint):
    """A checkpoint whose settings are checked by their types."""

    def __post_init__(self) -> None:
        check_fields(self, "model")


@dataclass(frozen=True)
class Folder(Checked):
    """A ``save_pretrained`` folder of a model that reads images and texts.

    Args:
        max_length: captions are truncated to this many tokens; ``None`` is the model's limit (77
            for CLIP; run_clip.py's own default of 128 does not fit it).
        geometry: ``crop`` keeps the aspect ratio of images and crops the long side, as run_clip.py
            does for every model; ``squash`` changes the aspect ratio; ``None`` follows the folder's
            image processor.
    """

    max_length: Positive | None = None
    geometry: Geometry | None = None

    def settings_words(self) -> list[object]:
        """Return the settings in the form that ``settings_hash`` hashes.

        The form of ``max_length`` and ``geometry`` never changes, so that earlier results are found
        again.
        """
        known = {"max_length", "geometry"}
        more = [f"{k}={v!r}" for k, v in sorted(self.answering().items()) if k not in known]
        return [self.max_length, *filter(None, [self.geometry]), *more]


SAVED_WEIGHTS, CLASS_NAMES = "model.safetensors", "classes.txt"
"""Files in the checkpoint of a model of torchvision: its weights, and the name of each logit."""
