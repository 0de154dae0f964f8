"""Loading folders of weights that somebody else wrote, without following instructions in them.

transformers and diffusers follow a folder's files to Python code, to other folders, to the Hub and
to packages that compile. Every folder is therefore checked against the rules here before a library
reads it, and cfaug calls ``from_pretrained`` only in this module. Torch and the libraries are
imported when they are needed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.safety.chat_templates import ChatRenderer
from cfaug.core.safety.json_text import LimitError, load_json
from cfaug.core.weights import HF_WEIGHTS, find_weights, tensor_shapes

if TYPE_CHECKING:
    from torch import nn


RENDER_S = 10.0
"""Time limit of a chat template in seconds; known ones take milliseconds."""
ONLY_DATA = {"tokenizer.json", "vocab.json", "added_tokens.json"}
"""Files whose keys are words and numbers: no library looks for instructions in them."""
KERNELS = re.compile(r"_?(attn|experts)_implementation(_internal)?")
OWN_KERNELS = {
    None, "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention",
    "grouped_mm", "batched_mm",
}  # fmt: skip
"""Allowed implementations of attention and experts; any other name would be downloaded as code."""
CLASSES = {
    "tokenizer_class": re.compile(r"(?!Auto|Rag)\w*Tokenizer(Fast)?|TokenizersBackend"),
    "processor_class": re.compile(r"(?!Auto)\w+Processor"),
    "image_processor_type": re.compile(r"(?!Auto)\w+(FeatureExtractor|ImageProcessor)(Fast|Pil)?"),
    "feature_extractor_type": re.compile(r"(?!Auto)\w+(FeatureExtractor|ImageProcessor)(Fast)?"),
    "_class_name": re.compile(r"\w+"),
}
"""Pattern of the class names that a file may give; other names in the libraries may be loaders."""
FORBIDDEN = {
    "auto_map": "Python code of its own",
    "custom_pipelines": "Python code of its own",
    "custom_generate": "Python code of its own",
    "quantization_config": "a package for quantised weights",
    "kernel_config": "kernels from elsewhere",
    "use_kernels": "kernels from elsewhere",
    "fusion_config": "parts of the model to be replaced",
    "distributed_config": "several processes",
    "use_pretrained_backbone": "other weights",
    "transformers_weights": "another file of weights",
    "init_inputs": "arguments of a class",
    "gguf_file": "another file",
    "mecab_kwargs": "a program's settings",
    "sudachi_kwargs": "a program's settings",
    "jumanpp_kwargs": "a program's settings",
}
"""Keys that make a library do more than load weights, and the thing that each requests."""
ELSEWHERE = re.compile(r"(hf-hub|hf_hub|local-dir|file|https?|s3|gs):", re.IGNORECASE)
PLACES = ("architecture", "backbone", "timm_model_name")
"""Keys that choose a model: their text must be a plain name, not a path or an address."""
COUNTS = re.compile(r"(layers?|labels|classes|depths?|stages|blocks?|groups|experts)$")
MOST = 1_000_000
"""The largest count in a configuration, since libraries make lists of this length."""
ADAPTER = "adapter_config.json"
SHARDS_OF_PROCESSES = re.compile(r"shard-\d+-model-\d+-of-\d+\.safetensors")


def check_folder(folder: Path) -> None:
    """Refuse a folder whose files request code, another place, or a class that loads others.

    The JSON files in the folder and in its subfolders, one level down, are read; transformers and
    diffusers look no further.
    """
    for file in sorted([*folder.glob("*.json"), *folder.glob("*/*.json")]):
        require_regular(file)
        if file.name in ONLY_DATA or not file.is_file():
            continue
        if file.name == ADAPTER:
            raise UserError(
                f"{file}: {folder} holds a PEFT adapter, which names the weights it belongs to, "
                "and those are not followed: merge it first (merge_and_unload of peft, then "
                "save_pretrained) and give that folder. A perturber takes it as adapter=FOLDER "
                "beside its base (weights)"
            )
        if file.name.endswith(".index.json"):
            continue
        try:
            content = load_json(file.read_text(encoding="utf-8"))
        except LimitError as error:  # libraries, which have no limits, would fail beyond them
            raise UserError(f"{file}: {error}") from error
        except ValueError:  # not JSON, which libraries ignore
            continue
        _check_object(file, content)
    for file in folder.glob("shard-*"):
        if SHARDS_OF_PROCESSES.fullmatch(file.name):
            raise UserError(f"{file} is a shard of one process: give a folder of whole weights")


def read_json(file: Path) -> Any:
    """Return the content of a JSON file; ``None`` if it is not JSON, which libraries ignore."""
    try:
        return load_json(require_regular(file).read_text(encoding="utf-8"))
    except ValueError:
        return None


def _check_object(file: Path, content: Any) -> None:
    for key, value in entries(content):
        if key in FORBIDDEN and value not in (None, False, [], {}):
            raise _refusal(file, key, value, FORBIDDEN[key])
        rule = CLASSES.get(key)
        names = value if isinstance(value, list) else [value]
        if rule is not None and not all(
            name is None or (isinstance(name, str) and rule.fullmatch(name)) for name in names
        ):
            raise _refusal(file, key, value, "a class of another kind")
        kernels = value.values() if isinstance(value, Mapping) else [value]
        if KERNELS.fullmatch(key) and not all(
            isinstance(name, str | None) and name in OWN_KERNELS for name in kernels
        ):
            raise _refusal(file, key, value, "kernels from elsewhere")
        if type(value) is int and abs(value) > MOST and COUNTS.search(key):
            raise UserError(f"{file}: {key}={value} is absurd: the file is damaged")
        if key in PLACES and isinstance(value, str) and (ELSEWHERE.match(value) or "/" in value):
            raise _refusal(file, key, value, "another place")


def entries(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key with its value, at every depth."""
    waiting = [content]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            yield from node.items()
            waiting += node.values()
        elif isinstance(node, list):
            waiting += [part for part in node if isinstance(part, Mapping | list)]


def _refusal(file: Path, key: str, value: object, request: str) -> UserError:
    shown = json.dumps(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return UserError(
        f"{file}: {key}={shown} asks for {request}, which a folder's files may not do; nothing was "
        f"run. If the model needs no {key}, remove it from {file.name}; otherwise use a checkpoint "
        "in a form that the library has itself"
    )


def from_folder(kind: Any, folder: Path, **options: Any) -> Any:
    """Return ``kind.from_pretrained(folder)``, from that folder alone and without its code.

    Args:
        options: keyword arguments of ``from_pretrained``.

    Raises:
        Exception: the library's own errors about a broken folder.
    """
    check_folder(folder)
    if kind.__name__.startswith("Auto") and kind.__module__.startswith("transformers"):
        options["trust_remote_code"] = False
    with no_questions():
        return kind.from_pretrained(folder, local_files_only=True, **options)


@contextmanager
def no_questions() -> Iterator[None]:
    """Make transformers refuse a folder's code where it would otherwise ask on the terminal.

    This is for libraries that call ``from_pretrained`` themselves, such as open_clip. The setting
    stays in force after the block, because another thread may be in such a call.
    """
    from transformers import dynamic_module_utils

    dynamic_module_utils.TIME_OUT_REMOTE_CODE = 0
    try:
        yield
    except Exception as error:
        if "trust_remote_code" in str(error) or "execute some code" in str(error):
            raise UserError(
                "the model is Python code of its own, which is never run here: use a checkpoint "
                "of a class that the library has itself"
            ) from error
        raise


def render_chat(writer: Any, messages: Sequence[Mapping[str, Any]]) -> str:
    """Return messages in the form of a folder's chat template, up to the answer.

    The text is that of transformers' ``apply_chat_template``, which would compile and run the
    template in this process, without limits of time and memory.

    Args:
        messages: the messages, as ``apply_chat_template`` takes them.

    Raises:
        TimeoutError: after ``RENDER_S`` seconds.
        MemoryError: if it needs more than half a GiB.
        Exception: any error of the template or of Jinja.
    """
    template = writer.chat_template
    if isinstance(template, Mapping):
        template = template.get("default")
    if not isinstance(template, str):
        raise ValueError("there is none, or none of several is called default")
    tokens = getattr(writer, "tokenizer", writer).special_tokens_map
    given = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True}
    return _renderer(RENDER_S).render(template, {**given, **tokens})


@cache
def _renderer(seconds: float) -> ChatRenderer:
    return ChatRenderer(seconds)


# Checks of a model's configuration against the size of its weights, before the model is built.
#
# A few digits in a ``config.json`` can request terabytes or a billion layers. So a model is first
# built without memory (torch's meta device), and its parameters are counted. Torch is imported when
# it is needed.

NOT_NUMBERS = (
    "holds values that are infinite or not numbers (NaN), as a training leaves that diverged"
)
REPEATED = re.compile(r"(layers?|depths?|stages|blocks?|experts|layers_per_block)$")
"""Settings that are counts of modules to build."""
FEWEST_REPEATS = 64
"""The number of repeats that is always allowed, as layers may share their tensors."""
LARGEST_NUMBER = 10_000_000
"""The largest integer that a configuration may always have, however small the weights are."""
SPARE = 1_000_000
"""Parameters, for unused heads, that a model may have beyond twice the number in its file."""


def count_stored(paths: Sequence[Path]) -> tuple[int, int]:
    """Return the number of tensors and of parameters in weight files.

    Pickles, already known to hold only tensors, are counted without reading their values.
    """
    shapes: list[tuple[int, ...]] = []
    for path in paths:
        if path.suffix == ".safetensors":
            shapes += tensor_shapes(path).values()
            continue
        import torch

        content = torch.load(path, map_location="meta", weights_only=True)
        tensors = (value for _, value in entries(content) if isinstance(value, torch.Tensor))
        shapes += [tuple(tensor.shape) for tensor in tensors]
    return len(shapes), sum(math.prod(shape) for shape in shapes)


def check_numbers(config: Any, file: Path, weights: tuple[int, int]) -> None:
    """Refuse integers that are too large for weights of this size, before anything is built.

    Args:
        config: the file's content, nested to any depth.
        weights: the result of ``count_stored``: the numbers of tensors and of parameters.
    """
    tensors, numbers = weights
    for key, value in entries(config):
        repeated = REPEATED.search(key) is not None
        most = max(FEWEST_REPEATS, tensors) if repeated else max(LARGEST_NUMBER, numbers)
        given = [
            number
            for number in (value if isinstance(value, list) else [value])
            if isinstance(number, int) and not isinstance(number, bool)
        ]
        total = sum(map(abs, given)) if repeated else max(map(abs, given), default=0)
        if total > most:
            raise UserError(
                f"{file}: {key}={value} is absurd for weights of {tensors} tensors and {numbers} "
                "numbers: the file is damaged, or belongs to other weights"
            )


def check_built(
    build: Callable[[], nn.Module], owner: object, weights: tuple[int, int]
) -> nn.Module | None:
    """Build a model without memory; refuse one with more parameters than the file has.

    Args:
        build: a function that returns the model; it is called on torch's meta device.
        weights: the result of ``count_stored``: the numbers of tensors and of parameters.

    Returns:
        The model, with tensors that have no values; ``None`` if it cannot be built, which the
        library reports when it loads the weights.
    """
    import torch

    numbers = weights[1]
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            model = build()
    except UserError:
        raise
    except Exception:  # the library raises its own error when it loads the weights
        return None
    wanted = sum(parameter.numel() for parameter in model.parameters())
    if wanted > 2 * numbers + SPARE:
        raise UserError(
            f"{owner}: the configuration asks for a model of {wanted:,} numbers and the weights "
            f"hold {numbers:,}: one of them is damaged, or they do not belong together"
        )
    return model


def skeleton(kind: Any, folder: Path, names: Sequence[str] = HF_WEIGHTS) -> nn.Module | None:
    """Check a folder's configuration against its weights; return the model without values.

    Args:
        kind: a model class of transformers (also an ``Auto`` class) or of diffusers.
        folder: the folder of the weights; any pickles in it are known to hold only tensors.
        names: the possible names of the weight file.

    Returns:
        See ``check_built``.
    """
    weights = count_stored(find_weights(folder, names))
    file = folder / "config.json"
    if not file.is_file():
        return None
    check_numbers(read_json(file), file, weights)

    def build() -> nn.Module:
        if hasattr(kind, "load_config"):  # diffusers
            return kind.from_config(kind.load_config(folder, local_files_only=True))
        if kind.__name__.startswith("Auto"):
            from transformers import AutoConfig

            return kind.from_config(from_folder(AutoConfig, folder), trust_remote_code=False)
        return kind(from_folder(kind.config_class, folder))

    return check_built(build, folder, weights)


def check_finite(model: nn.Module, owner: object) -> None:
    """Refuse infinite or NaN weights, which would make every result invalid.

    This is for models that use all of their weights; for others see ``find_damaged``.
    """
    name = find_damaged(model)
    if name is not None:
        raise UserError(f"{owner}: the weights are damaged: {name} {NOT_NUMBERS}")


def find_damaged(model: nn.Module) -> str | None:
    """Return the name of the first parameter with infinite values or NaN; ``None`` without one."""
    import torch

    for name, parameter in model.named_parameters():
        values = parameter.detach()
        if not torch.isfinite(values.sum()) and not torch.isfinite(values).all():
            return name
    return None
