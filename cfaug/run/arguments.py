"""The command line before Hydra sees it, and the answers to a mistyped key.

Agents and people write arguments in more ways than Hydra takes: ``--key=value`` (W&B without
``args_no_hyphens``), a stray ``_wandb=...`` (a preempted W&B run), a whole sweep as a file.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from cfaug.errors import UserError

HYDRA_FLAGS = {
    "--hydra-help", "--version", "--cfg", "-c", "--resolve", "--package", "-p",
    "--info", "-i", "--shell-completion", "-sc", "--config-dir", "-cd", "--config-path", "-cp",
    "--config-name", "-cn", "--run", "-r", "--experimental-rerun",
}  # fmt: skip
MULTIRUN_FLAGS = {"--multirun", "-m"}

UNQUOTED = re.compile(r"(?:[\w/\\+.$%*@?|: \t-]|\\[()\[\]{}=,])*", re.ASCII)
"""A text that Hydra reads without quotes: these characters, and brackets behind a backslash."""

KEY = re.compile(r"[+~]*[\w.@/:$-]+", re.ASCII)
"""What may stand before the equals sign."""

FUNCTION = re.compile(
    r"(?:bool|choice|float|glob|int|interval|range|shuffle|sort|str|tag)\s*\(.*\)"
)
"""A call that Hydra itself carries out."""


@dataclass(frozen=True)
class CommandLine:
    """What was asked: Hydra ``overrides``, whether they sweep, and flags only Hydra understands."""

    overrides: tuple[str, ...]
    multirun: bool
    hydra_flags: tuple[str, ...]


def read(argv: Sequence[str], script: str | None = None) -> CommandLine:
    """Sort ``argv`` into overrides and flags.

    Args:
        argv: the words after the script's name.
        script: whose they are, ``train`` for ``train.py``; a sweep of another script is refused.

    >>> read(["--data.cf_ratio=0.6", "_wandb={}", "-m"]).overrides
    ('data.cf_ratio=0.6',)

    Raises:
        UserError: for a flag nobody takes, naming the nearest one, or a sweep that cannot be read.
    """
    overrides: list[str] = []
    flags: list[str] = []
    multirun = False
    for word in argv:
        flag = word.split("=", 1)[0]
        if word in MULTIRUN_FLAGS:
            multirun = True
        elif flag in HYDRA_FLAGS or (flags and flags[-1] in {"--cfg", "-c", "--info", "-i", "-cd"}):
            flags.append(word)
        elif word.startswith("-") and "=" not in word:
            raise UserError(_unknown_flag(word))
        else:
            bare = word.lstrip("-") if word.startswith("--") else word
            if not bare.startswith("_wandb"):
                overrides.append(bare)
    written = (_as_hydra_writes(override, multirun) for override in overrides)
    return CommandLine(tuple(_expand_sweeps(written, script)), multirun, tuple(flags))


def _as_hydra_writes(override: str, multirun: bool) -> str:
    """Write an override that Hydra's grammar lacks or misreads as Hydra would.

    Signs that Hydra takes for its own, in a text such as ``tree(2)`` or a folder's name; Python's
    None, from an agent; and, where nothing is swept, a comma with a space, which is one in a text.

    >>> _as_hydra_writes("baseline=cf_ratio=0", multirun=False)
    'baseline="cf_ratio=0"'
    >>> _as_hydra_writes("draws.sampling=tree(2)", multirun=True)
    'draws.sampling="tree(2)"'
    >>> _as_hydra_writes("data.size=None", multirun=False)
    'data.size=null'
    >>> _as_hydra_writes("arm=real, and more", multirun=False)
    'arm="real, and more"'
    """
    key, equals, value = override.partition("=")
    if not equals or key == "sweep" or value[:1] in {"'", '"', "[", "{"} or "${" in value:
        return override
    if value == "None":
        return f"{key}=null"
    # A comma alone may part the values of a sweep: only whoever typed it knows.
    one = "," not in value or "=" in value or (", " in value and not multirun)
    return f"{key}={_quoted(value)}" if one and not _hydra_reads(value) else override


def _hydra_reads(text: str) -> bool:
    return bool(UNQUOTED.fullmatch(text) or FUNCTION.fullmatch(text))


def _quoted(text: str) -> str:
    r"""Return a text in quotes as Hydra reads them.

    >>> print(_quoted('say "no"'))
    "say \"no\""
    """
    # Hydra reads backslashes as escapes only where a quote follows them.
    doubled = re.sub(r'(\\+)("|$)', r"\1\1\2", text)
    return '"' + doubled.replace('"', '\\"') + '"'


def how_to_quote(override: str, multirun: bool) -> str:
    """Say how texts are typed in an override that cannot be read as it stands.

    >>> print(how_to_quote("arm=a,b(c)", multirun=False))
    a text with such signs is typed in double quotes, all within single ones: 'arm="a,b(c)"'
    >>> print(how_to_quote("arm=a,b(c)", multirun=True))
    a text with such signs is typed in double quotes, all within single ones: 'arm=a,"b(c)"'
    """
    key, _, value = override.partition("=")
    values = re.split(r",(?![^(\[{]*[)\]}])", value) if multirun else [value]  # not in brackets
    written = ",".join(one if _hydra_reads(one) else _quoted(one) for one in values)
    typed = f"{key}={written}".replace("'", "'\\''")
    return f"a text with such signs is typed in double quotes, all within single ones: '{typed}'"


def _unknown_flag(word: str) -> str:
    near = difflib.get_close_matches(word, {"--help", *HYDRA_FLAGS, *MULTIRUN_FLAGS}, 1, 0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"unknown option {word!r}: {hint}Settings are written key=value, as in data.cf_ratio=0.6"


def _expand_sweeps(overrides: Iterable[str], script: str | None) -> Iterator[str]:
    """Put a sweep's settings in its place, but for those that are given beside it."""
    words = list(overrides)
    given = {word.split("=", 1)[0] for word in words}
    for word in words:
        if word.startswith("sweep="):
            swept = sweep_overrides(Path(word.removeprefix("sweep=")), script)
            yield from (one for one in swept if one.split("=", 1)[0] not in given)
        else:
            yield word


def sweep_overrides(file: Path, script: str | None = None) -> list[str]:
    """Turn a W&B grid sweep file into Hydra's ``key=a,b`` form, so one file serves both launchers.

    Args:
        file: with ``method: grid``.
        script: who runs it, ``train`` for ``train.py``; ``None`` takes a sweep of any.

    Raises:
        UserError: if the file is missing, is not a grid over lists of values, or is of another
            script.
    """
    import yaml

    if not file.is_file():
        have = ", ".join(sorted(str(p) for p in Path("sweeps").glob("*.yaml"))) or "none here"
        raise UserError(f"no sweep file {file}; there are: {have}")
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    if not isinstance(content, Mapping) or content.get("method") != "grid":
        raise UserError(f"{file} is not a grid sweep (method: grid): only grids run without W&B")
    program = str(content.get("program") or f"{script}.py")
    if script is not None and Path(program).stem != script:
        raise UserError(f"{file} is a sweep of {program}: python {program} --multirun sweep={file}")
    parameters = content.get("parameters")
    if not isinstance(parameters, Mapping):
        raise UserError(f"{file} has no `parameters`: what varies, each with `values`")
    found = []
    for key, spec in parameters.items():
        values = None
        if isinstance(spec, Mapping):
            values = spec.get("values", [spec["value"]] if "value" in spec else None)
        if not values or not isinstance(values, list):
            raise UserError(f"{file}: parameter {key!r} needs `value` or a list `values`")
        found.append(f"{key}={','.join(map(_one_value, values))}")
    return found


def _one_value(value: Any) -> str:
    """Write one value of a sweep file so that Hydra reads that value, and only one.

    >>> [_one_value(value) for value in (None, "a, b", "tree(2)", "${next:${seed}}", 0.6)]
    ['null', '"a, b"', '"tree(2)"', '${next:${seed}}', '0.6']
    """
    if value is None:
        return "null"
    if not isinstance(value, str) or value.startswith(("'", '"', "[", "{", "$")):
        return str(value)
    return value if _hydra_reads(value) else _quoted(value)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return ``{"a.b": value}`` for every leaf of nested mappings (an empty mapping is a leaf).

    >>> flatten({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    """
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, name + "."))
        else:
            flat[name] = value
    return flat


def nearest(key: str, known: Sequence[str]) -> str | None:
    """Return the known dotted key that looks most like ``key``, judged whole or by its last part.

    >>> nearest("data.cf_rato", ["data.cf_ratio", "seed"])
    'data.cf_ratio'
    >>> nearest("cf_ratio", ["data.cf_ratio", "seed"])
    'data.cf_ratio'
    """
    last = {name.rsplit(".", 1)[-1]: name for name in reversed(known)}
    if key in last:
        return last[key]
    whole = difflib.get_close_matches(key, known, 1, 0.6)
    if whole:
        return whole[0]
    tail = difflib.get_close_matches(key.rsplit(".", 1)[-1], list(last), 1, 0.6)
    return last[tail[0]] if tail else None


def parameters(target: Callable[..., Any]) -> list[str] | None:
    """Return the keyword arguments ``target`` takes; None if it takes any."""
    found = inspect.signature(target).parameters
    if any(one.kind is one.VAR_KEYWORD for one in found.values()):
        return None
    return list(found)


def locate(dotted: str) -> Any:
    """Import what ``_target_`` names.

    Raises:
        UserError: if there is no such thing.
    """
    module, _, name = dotted.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"_target_ {dotted!r} cannot be imported: {error}") from error


def bind(tree: Mapping[str, Any], command: Callable[..., Any]) -> None:
    """Hold every node against the signature that will receive it.

    Raises:
        UserError: for a key nothing takes, naming the nearest and all that are taken.
    """
    _bind_node(tree, command, "")
    _bind_targets(tree, "")


def _bind_targets(tree: Mapping[str, Any], path: str) -> None:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            here = f"{path}{key}."
            if "_target_" in value:
                _bind_node(value, locate(value["_target_"]), here)
            _bind_targets(value, here)


def _bind_node(node: Mapping[str, Any], target: Callable[..., Any], path: str) -> None:
    taken = parameters(target)
    if taken is None:
        return
    for key in node:
        if key in taken or key in {"_target_", "_convert_", "_partial_"}:
            continue
        near = nearest(key, taken)
        hint = f"did you mean {path}{near}? " if near else ""
        raise UserError(
            f"nothing takes {path}{key}: {hint}Keys here: "
            + ", ".join(path + name for name in taken)
        )
