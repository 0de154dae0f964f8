"""The command line before Hydra sees it, and suggestions for a mistyped key.

Agents and people write arguments in more forms than Hydra accepts: ``--key=value`` (W&B without
``args_no_hyphens``), a stray ``_wandb=...`` (a preempted W&B run), a sweep file.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import read_yaml
from cfaug.core.plugins import add_folder
from cfaug.settings.settings_files import find_sweep, settings_of, sweep_files

HYDRA_FLAGS = {
    "--hydra-help", "--cfg", "-c", "--resolve", "--package", "-p", "--info", "-i",
    "--shell-completion", "-sc",
}  # fmt: skip
WITH_VALUE = {"--cfg", "-c", "--info", "-i", "--package", "-p"}
"""The flags of Hydra after which a word may follow."""
ONE_CONFIGURATION = (
    "would replace the configuration that cfaug's commands are made for: put files of your own "
    "into a folder with recipe/, benchmark/ or model/, and name it by --config-dir FOLDER"
)
NO_NEED = "is not needed: the command without it resumes an interrupted run"
REFUSED_FLAGS = {
    **dict.fromkeys(("--config-path", "-cp", "--config-name", "-cn"), ONE_CONFIGURATION),
    **dict.fromkeys(("--run", "-r", "--experimental-rerun"), NO_NEED),
}
"""{flag of Hydra that no command has: why, with what to use instead}."""
MULTIRUN_FLAGS = {"--multirun", "-m"}
FOLDER_FLAGS = {"--config-dir", "-cd"}
SEARCH_PATH = "hydra.searchpath"
"""The setting that ``FOLDER_FLAGS`` become."""

UNQUOTED = re.compile(r"(?:[\w/\\+.$%*@?|: \t-]|\\[()\[\]{}=,])*", re.ASCII)
"""A text that Hydra reads without quotes: these characters, and brackets after a backslash."""

LITERALS = frozenset({"true", "false", "null", "nan", "inf"})
"""Texts that Hydra reads as other values, in any case of their letters."""

PLAIN_LIST = re.compile(r"\[[^\[\]{}'\"$()]*\]")
"""A list of unquoted texts or numbers."""

QUOTED = re.compile(r"""(["'])((?:\\.|(?!\1).)*)\1(\s*:)?""")
"""A text in quotes within a dictionary; with a colon after it, a key."""

KEY = re.compile(r"[+~]*[\w.@/:$-]+", re.ASCII)
"""The part of an override before the equals sign."""

FUNCTION = re.compile(
    r"(?:bool|choice|float|glob|int|interval|range|shuffle|sort|str|tag)\s*\(.*\)"
)
"""A function of Hydra's grammar."""


MODEL_WEIGHTS = "model.weights"
MIXTURE = "data/mixture"
PRESET = "preset"
"""The node that a model's file adds for training: optimiser, batch and length (``conf/preset``)."""
BY_SEED = "by_seed"
"""The settings that depend on the run's seed, as they are written."""
SHORT_NAMES = {
    "train": {"weights": MODEL_WEIGHTS, "data.mixture": MIXTURE},
    "evaluate": {"weights": MODEL_WEIGHTS},
}
"""{command: {short name: what it stands for}}, in words, sweeps and Python."""
CHOOSES = {"train": {"data.negatives": f"{MIXTURE}=negatives"}}
"""{command: {setting: the choice that has it}}, of settings that are typed without this choice."""


@dataclass(frozen=True)
class CommandLine:
    """A parsed command line: Hydra's ``overrides``, whether they sweep, and Hydra's flags."""

    overrides: tuple[str, ...]
    multirun: bool
    hydra_flags: tuple[str, ...]


def read(
    argv: Sequence[str], script: str | None = None, lists: Collection[str] = ()
) -> CommandLine:
    """Sort ``argv`` into overrides and flags.

    Args:
        argv: the words after the script's name.
        script: the script, ``train`` for ``train.py``; sweeps of another script are refused.
        lists: settings whose brackets may be left out where nothing is swept.

    >>> read(["--data.cf_ratio=0.6", "_wandb={}", "-m"]).overrides
    ('data.cf_ratio=0.6',)
    """
    overrides: list[str] = []
    flags: list[str] = []
    multirun = False
    words = iter(argv)
    for word in words:
        flag, _, value = word.partition("=")
        if word in MULTIRUN_FLAGS:
            multirun = True
        elif flag in FOLDER_FLAGS:
            overrides.append(search_also(value or next(words, ""), flag))
        elif flag in REFUSED_FLAGS:
            raise UserError(f"{flag} {REFUSED_FLAGS[flag]}")
        elif flag in HYDRA_FLAGS or (flags and flags[-1] in WITH_VALUE and "=" not in word):
            flags.append(word)
        elif word.startswith("-") and "=" not in word:
            known = {"--help", "--version", *HYDRA_FLAGS, *MULTIRUN_FLAGS, *FOLDER_FLAGS}
            near = difflib.get_close_matches(word, known, 1, 0.8)
            hint = f"did you mean {near[0]}? " if near else ""
            setting = word.lstrip("-").replace("-", "_")
            typed = setting.replace("_", "a").isalnum()
            example = f"{setting}=VALUE" if typed else "data.cf_ratio=0.6"
            raise UserError(
                f"unknown option {word!r}: {hint}Settings are written key=value, as in {example}"
            )
        else:
            bare = word.lstrip("-") if word.startswith("--") else word
            if not bare.startswith("_wandb"):
                overrides.append(bare)
    written = write_in_full(
        script, [_as_hydra_writes(override, multirun, lists) for override in overrides]
    )
    given = set(map(key_of, written))
    settings: list[str] = []
    for word in written:
        if not word.startswith("sweep="):
            settings.append(word)
            continue
        # A sweep's own settings take its place, except those that are typed beside it.
        file = Path(word.removeprefix("sweep="))
        if not file.exists() and file.parent == Path("sweeps"):  # one that cfaug ships
            file = find_sweep(file.name) or file
        swept = write_in_full(script, sweep_overrides(file, script))
        settings += [setting for setting in swept if key_of(setting) not in given]
    return CommandLine(tuple(settings), multirun, tuple(flags))


def search_also(folder: str, flag: str) -> str:
    """Return the override that adds the user's own folder of settings."""
    path = Path(folder).expanduser()
    if not folder or not path.is_dir():
        raise UserError(
            f"{flag} {folder}: there is no such folder; name the one that holds your recipe/, "
            "benchmark/ or model/"
        )
    add_folder(path)  # whose sweeps are found by name, too
    address = f"file://{settings_of(path.resolve())}"
    return f"{SEARCH_PATH}=[{address if _hydra_reads(address) else _quote(address)}]"


def own_settings(argv: Sequence[str]) -> Path | None:
    """Return the user's own folder of settings that a command line names, if there is one.

    >>> own_settings(["--help", "--config-dir=."])
    PosixPath('.')
    >>> own_settings(["--config-dir"])
    """
    words = [part for word in argv for part in word.split("=", word.startswith("-"))]
    named = [Path(after) for flag, after in pairwise(words) if flag in FOLDER_FLAGS]
    return next((path.expanduser() for path in named if path.expanduser().is_dir()), None)


def _as_hydra_writes(override: str, multirun: bool, lists: Collection[str] = ()) -> str:
    r"""Rewrite an override that Hydra's grammar rejects or misreads.

    These are texts with characters of Hydra's grammar, such as ``tree(2)`` or a folder's name,
    Python's None from an agent, quoted keys of a dictionary, and, without a sweep, a comma followed
    by a space.

    >>> _as_hydra_writes("baseline=cf_ratio=0", multirun=False)
    'baseline="cf_ratio=0"'
    >>> _as_hydra_writes("draws.sampling=tree(2)", multirun=True)
    'draws.sampling="tree(2)"'
    >>> _as_hydra_writes("data.size=None", multirun=False)
    'data.size=null'
    >>> _as_hydra_writes("seeds=107,108", multirun=False, lists={"seeds"})
    'seeds=[107,108]'
    >>> _as_hydra_writes("arm=real, and more", multirun=False)
    'arm="real, and more"'
    >>> print(_as_hydra_writes('comparison.labels={"lr=1": low}', multirun=False))
    comparison.labels={lr\=1: low}
    >>> _as_hydra_writes("runs=[runs/a/cf_ratio=0.6/seed=1,b]", multirun=False)
    'runs=["runs/a/cf_ratio=0.6/seed=1",b]'
    """
    key, equals, value = override.partition("=")
    if value.startswith("{"):
        return f"{key}={QUOTED.sub(_unquote_key, value)}"
    if PLAIN_LIST.fullmatch(value):
        texts = (t if not t or _hydra_reads(t) else _quote(t) for t in value[1:-1].split(","))
        return f"{key}=[{','.join(texts)}]"
    if not equals or key == "sweep" or value[:1] in {"'", '"', "["} or "${" in value:
        return override
    if value == "None":
        return f"{key}=null"
    if key in lists and "," in value and not multirun:
        return f"{key}=[{value}]"
    # A comma without a space may separate the values of a sweep: only the user knows.
    single = "," not in value or "=" in value or (", " in value and not multirun)
    return f"{key}={_quote(value)}" if single and not _hydra_reads(value) else override


def _unquote_key(quoted: re.Match[str]) -> str:
    return quoted[0] if quoted[3] is None else f"{_escape_key(quoted[2])}:"


def _escape_key(key: str) -> str:
    """Return a key of a dictionary escaped, as Hydra's grammar has no quotes there."""
    return re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", key)


def _hydra_reads(text: str) -> bool:
    return bool(UNQUOTED.fullmatch(text) or FUNCTION.fullmatch(text))


def _quote(text: str) -> str:
    r"""Return a text in quotes as Hydra reads them.

    >>> print(_quote('say "no"'))
    "say \"no\""
    """
    # Hydra reads backslashes as escapes only where a quote follows them.
    doubled = re.sub(r'(\\+)("|$)', r"\1\1\2", text)
    return '"' + doubled.replace('"', '\\"') + '"'


def how_to_quote(override: str, multirun: bool) -> str:
    """Explain how to quote the texts of an override that Hydra cannot parse.

    >>> print(how_to_quote("arm=a,b(c)", multirun=False))
    a text with such signs is typed in double quotes, all within single ones: 'arm="a,b(c)"'
    >>> print(how_to_quote("arm=a,b(c)", multirun=True))
    a text with such signs is typed in double quotes, all within single ones: 'arm=a,"b(c)"'
    >>> print(how_to_quote("arm=${next:${seed},[a:b]}", multirun=True)[-29:])
    'arm="${next:${seed},[a:b]}"'
    """
    key, _, value = override.partition("=")
    several = multirun and "${" not in value
    values = re.split(r",(?![^(\[{]*[)\]}])", value) if several else [value]  # not in brackets
    written = ",".join(text if _hydra_reads(text) else _quote(text) for text in values)
    typed = f"{key}={written}".replace("'", "'\\''")
    return f"a text with such signs is typed in double quotes, all within single ones: '{typed}'"


def key_of(override: str) -> str:
    """Return the key of an override, without the signs before it.

    >>> key_of("+data.cf_ratio=0.6"), key_of("~tuning")
    ('data.cf_ratio', 'tuning')
    """
    return override.split("=", 1)[0].lstrip("+~")


def write_in_full(script: str | None, words: Sequence[str]) -> list[str]:
    """Return the words of a command line with settings in place of their short names.

    >>> write_in_full("train", ["weights=zoo:clip-0", "+weights=${seed}", "data.weights=equal"])
    ['model.weights=zoo:clip-0', '+model.weights=${seed}', 'data.weights=equal']

    Raises:
        UserError: if a setting is typed by both of its names.
    """
    short = SHORT_NAMES.get(script or "", {})
    in_full = []
    for word in words:
        key = key_of(word)
        if key not in short:
            in_full.append(word)
            continue
        twice = next((other for other in words if key_of(other) == short[key]), None)
        if twice is not None:
            raise UserError(
                f"duplicated setting: {word} and {twice}: {key} is the short name of "
                f"{short[key]}, so type one of them"
            )
        in_full.append(word.replace(key, short[key], 1))
    return in_full


def sweep_overrides(file: Path, script: str | None = None) -> list[str]:
    """Turn a W&B grid sweep file into Hydra's ``key=a,b`` form: both launchers use one file.

    Args:
        file: a sweep file of W&B, with ``method: grid``.
        script: the script that runs it, ``train`` for ``train.py``; ``None`` accepts any.
    """
    if not file.is_file():
        have = ", ".join(sorted(f"sweeps/{shipped.name}" for shipped in sweep_files()))
        raise UserError(f"no sweep file {file}; there are: {have}")
    content = read_yaml(file)
    if not isinstance(content, Mapping) or content.get("method") != "grid":
        raise UserError(f"{file} is not a grid sweep (method: grid): only grids run without W&B")
    program = str(content.get("program") or f"{script}.py")
    if script is not None and Path(program).stem != script:
        ours = Path(program).name in ("train.py", "generate.py", "evaluate.py")
        way = f"python {Path(program).name} --multirun sweep={file}"
        raise UserError(
            f"{file} is a sweep of {program}: "
            + (way if ours else f"no program of cfaug; for this one, it says program: {script}.py")
        )
    parameters = content.get("parameters")
    if not isinstance(parameters, Mapping):
        raise UserError(f"{file} has no `parameters`: the settings to vary, each with `values`")
    overrides = []
    for key, spec in parameters.items():
        if str(key).lstrip("+~").startswith("hydra"):
            raise UserError(
                f"{file}: the parameter {key} is Hydra's, which may start programs: type it on "
                "the command line, as hydra/launcher=submitit_slurm"
            )
        values = None
        if isinstance(spec, Mapping) and {"value", "values"} <= {*spec}:
            raise UserError(
                f"{file}: parameter {key!r} has both `value` and `values`: keep one of them"
            )
        if isinstance(spec, Mapping):
            values = spec.get("values", [spec["value"]] if "value" in spec else None)
        if not values or not isinstance(values, list):
            raise UserError(f"{file}: parameter {key!r} needs `value` or a list `values`")
        overrides.append(f"{key}={','.join(map(_one_value, values))}")
    return overrides


def _one_value(value: Any) -> str:
    """Write one value of a sweep file so that Hydra reads exactly this one value.

    >>> [_one_value(value) for value in (None, "a, b", "tree(2)", "${next:${seed}}", 0.6)]
    ['null', '"a, b"', '"tree(2)"', '${next:${seed}}', '0.6']
    """
    if value is None:
        return "null"
    if not isinstance(value, str) or value.startswith(("'", '"', "[", "{", "$")):
        return str(value)
    return value if _hydra_reads(value) else _quote(value)


def write_override(key: str, value: Any) -> str:
    """Write a setting given in Python so that Hydra reads that value.

    Args:
        value: a text, number (also of numpy), path, ``None``, or a list or mapping of these.

    >>> write_override("data.cf_ratio", 0.6)
    'data.cf_ratio=0.6'
    >>> write_override("benchmark.only", ["a, b", None])
    'benchmark.only=["a, b",null]'
    >>> write_override("a.b", [{"c": "d e"}])
    'a.b=[{c:"d e"}]'
    """
    text = f"{key}={_write(value)}"
    if "\0" in text:
        raise UserError(f"{key}={value!r} is invalid: a text has no null byte")
    return text


def _write(value: Any) -> str:
    if isinstance(value, Mapping):
        parts = (f"{_escape_key(str(key))}:{_write(item)}" for key, item in value.items())
        return "{" + ",".join(parts) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_write, value)) + "]"
    if value is None:
        return "null"
    if isinstance(value, Real):  # numpy's numbers are Real too
        return str(value)
    if hasattr(value, "tolist"):  # an array or a truth value of numpy
        return _write(value.tolist())
    if not isinstance(value, str | os.PathLike):
        raise UserError(
            f"{value!r:.100} is a {type(value).__name__}: a setting is a text, a number, a path, "
            "None, or a list or dictionary of these"
        )
    text = str(value)
    plain = bool(re.fullmatch(r"[A-Za-z][\w./:-]*", text)) and text.lower() not in LITERALS
    return text if plain or "${" in text else _quote(text)


def texts_in(values: Iterable[Any]) -> list[str]:
    """Return the texts among values and lists of them, such as the names of sources."""
    every = [text for value in values for text in (value if isinstance(value, list) else [value])]
    return [text for text in every if isinstance(text, str)]


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
