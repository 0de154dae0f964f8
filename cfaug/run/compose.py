"""From overrides to plain dictionaries, and from dictionaries to objects: the only use of Hydra."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from cfaug.errors import UserError
from cfaug.models import specs
from cfaug.renames import explain_settings
from cfaug.run.arguments import KEY, flatten, how_to_quote
from cfaug.run.binding import bind
from cfaug.run.explain import Options, check_choice, explain
from cfaug.run.setting_types import annotation_of, fitted
from cfaug.run.usage import NOTHING, options_in

Config = dict[str, Any]

PRESET = "preset"
"""What a model's file brings for training: optimiser, batch and length (``conf/preset``)."""

BY_SEED = "by_seed"
"""The settings that follow the run's seed, as they are written."""


def compose_jobs(
    conf: Path, name: str, overrides: Sequence[str], *, multirun: bool, command: Callable[..., Any]
) -> list[tuple[Config, list[str]]]:
    """Compose every job of a command line, before any of them runs.

    Args:
        conf: the folder of YAML files.
        name: the root file, without ``.yaml``.
        overrides: as typed; with ``multirun`` each ``key=a,b`` multiplies the jobs.
        multirun: whether to sweep.
        command: what will receive the top-level keys; used to refuse keys it does not take.

    Returns:
        One (resolved configuration, overrides of this job) per job, in the order of the sweep.

    Raises:
        UserError: for a mistyped key, option or value, naming the nearest.
    """
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    _register_resolvers()
    with initialize_config_dir(version_base="1.3", config_dir=str(conf.resolve())):
        parsed = _parsed(overrides, multirun)
        jobs = _split(parsed) if multirun else [list(overrides)]
        options = options_in(conf, name)
        return [_job(name, job, command, options) for job in jobs]


def _taken(config: Config, command: Callable[..., Any]) -> Config:
    """Leave out what composition brings for training where the command trains nothing."""
    taken = inspect.signature(command).parameters
    anything = any(one.kind is one.VAR_KEYWORD for one in taken.values())
    for name in (PRESET, BY_SEED):
        if not anything and name not in taken:
            config.pop(name, None)
    return config


def _register_resolvers() -> None:
    from omegaconf import OmegaConf

    def alternate(number: int, choices: Sequence[Any]) -> Any:
        """``${alternate:${seed},[a,b]}``: one of the choices in turn, by a seed."""
        return choices[number % len(choices)]

    def following(number: int) -> int:
        """``${next:${seed}}``: the data seed that goes with a seed, as the papers pair them."""
        return number + 1

    OmegaConf.register_new_resolver("alternate", alternate, replace=True)
    OmegaConf.register_new_resolver("next", following, replace=True)


def _parsed(overrides: Sequence[str], multirun: bool) -> list[Any]:
    """Return the overrides as Hydra reads them.

    Raises:
        UserError: for one that its grammar does not take, saying how to quote it.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    found = []
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not KEY.fullmatch(key) or not (equals or key.startswith("~")):
            raise UserError(
                f"{override!r} is not a setting: write key=value, as in data.cf_ratio=0.6"
            )
        try:
            found.append(parser.parse_override(override))
        except HydraException as error:
            reason = str(error).splitlines()[0].removeprefix("HydraException while ")
            hint = how_to_quote(override, multirun)
            raise UserError(f"cannot read {override}: {reason}; {hint}") from error
    return found


def _split(parsed: list[Any]) -> list[list[str]]:
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.errors import HydraException

    try:
        batches = BasicSweeper.split_arguments(parsed, max_batch_size=None)
    except HydraException as error:
        raise UserError(f"cannot read the sweep: {error}") from error
    return [list(job) for batch in batches for job in batch]


def _compose(name: str, words: Sequence[str], options: Options) -> Config:
    """Compose one job.

    Raises:
        Exception: whatever Hydra and OmegaConf raise for words that they do not understand.
    """
    from hydra import compose

    kept = [word for word in words if not _says_nothing(word, options)]
    return _plain(compose(config_name=name, overrides=kept))


def _says_nothing(word: str, options: Options) -> bool:
    """Say whether a word is ``group=null``, for a group of which nothing is chosen anyway."""
    key, _, value = word.partition("=")
    return value == "null" and NOTHING in options(key)


def _job(
    name: str, words: list[str], command: Callable[..., Any], options: Options
) -> tuple[Config, list[str]]:
    """Return one job's settings as the command takes them, and its words.

    Raises:
        UserError: for a mistyped key, option or value.
    """
    for parsed in _parsed([word for word in words if not _says_nothing(word, options)], False):
        check_choice(parsed, options)

    def accepts(some: Sequence[str]) -> bool:
        try:
            bind(_taken(_compose(name, some, options), command), command)
        except Exception:
            return False
        return True

    def composed(some: Sequence[str]) -> Config:
        return _compose(name, some, options)

    try:
        config = composed(words)
    except Exception as error:  # of Hydra, OmegaConf and what they call: all by the words
        if f"'{PRESET}." in str(error):
            raise UserError(
                "the model's file names no preset to take optimiser, batch and length from: add "
                f"`defaults: [/preset@_global_.preset: paper]` to it, or type +{PRESET}=paper"
            ) from error
        raise UserError(explain(words, error, composed, options, accepts)) from error
    renamed = explain_settings(flatten(config), name)
    if renamed:
        raise UserError(renamed)
    return bind(_taken(config, command), command, _typed(words), options), words


def _typed(words: Sequence[str]) -> dict[str, str]:
    """Return what was typed for each key: ``1e3`` and ``007`` are also names."""
    pairs = (word.lstrip("+").partition("=") for word in words)
    return {key: value for key, _, value in pairs if "$" not in value and value[:1] not in "'\""}


def _plain(tree: Any) -> Config:
    return {**_container(tree), BY_SEED: _by_seed(tree)}


def _container(tree: Any, resolve: bool = True) -> Config:
    from omegaconf import OmegaConf

    config = OmegaConf.to_container(tree, resolve=resolve, throw_on_missing=resolve)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def _by_seed(tree: Any) -> dict[str, str]:
    """Return the settings that other seeds would change, as they are written.

    ``model.name_or_path`` is ``${alternate:${seed},[a,b]}``, say: by that the runs of one arm are
    told from runs of other settings.
    """
    from omegaconf import OmegaConf

    written = flatten(_container(tree, resolve=False))
    seed = written.get("seed")
    names_it = any(isinstance(v, str) and "${" in v and "seed}" in v for v in written.values())
    if not names_it or isinstance(seed, bool) or not isinstance(seed, int):
        return {}
    flat = flatten(_container(tree))
    found: set[str] = set()
    for other in (seed + 1, seed + 2, seed + 3):
        changed = deepcopy(tree)
        OmegaConf.update(changed, "seed", other)
        now = flatten(_container(changed))
        found |= {key for key in flat if now.get(key) != flat[key]}
    return {key: str(written.get(key, "by the seed")) for key in sorted(found - {"seed"})}


def resolved(tree: Any, command: Callable[..., Any], words: Sequence[str]) -> Config:
    """Return what one of Hydra's own launchers composed as plain settings, as a command takes them.

    Args:
        tree: what was composed.
        command: what receives it.
        words: the overrides of the job.

    Raises:
        UserError: for a key that nothing takes, or a value of the wrong type.
    """
    _register_resolvers()
    config = {key: value for key, value in _plain(tree).items() if key != "hydra"}
    return bind(_taken(config, command), command, _typed(words))


def build(node: Mapping[str, Any], trusted: bool = True) -> Any:
    """Make the object a node describes: the one call of Hydra's ``instantiate``.

    Args:
        node: a mapping with ``_target_``.
        trusted: False for what a run's folder says, which Hydra never sees: its targets must be
            ours, its other keys plain, and ``${...}`` is a text.

    Raises:
        UserError: what the target itself refused, or a target that is not trusted.
    """
    if not trusted:
        return _build_settings(node)
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    try:
        return instantiate(dict(node), _convert_="all")
    except InstantiationException as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, UserError):
                raise cause from None
            cause = cause.__cause__
        raise UserError(str(error)) from error


TARGET = "_target_"

SETTINGS_OF_A_RUN = frozenset(
    {
        "cfaug.data.planning.settings.DataSettings",
        "cfaug.shapescapes.WorldSettings",
        *(f"{specs.__name__}.{kind.__name__}" for kind in specs.every()),
        "cfaug.train.settings.LoggerSettings",
    }
)
"""What a run's own config.yaml may name: plain settings, whose making touches nothing."""


MOST_SETTINGS = 10_000
"""Values a run's node may hold: YAML's anchors can make a few lines into any number of them."""


def _build_settings(node: Any) -> Any:
    """Make a run's settings without Hydra: our classes, plain values, nothing interpolated.

    Raises:
        UserError: for anything else, and for settings that the class refuses.
    """
    left = [MOST_SETTINGS]

    def made(one: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise UserError(f"the run's config.yaml holds more than {MOST_SETTINGS} settings")
        if isinstance(one, list | tuple):
            return [made(part) for part in one]
        if not isinstance(one, Mapping):
            return one
        odd = [k for k in one if not isinstance(k, str) or (k[:1] == "_" and k != TARGET)]
        if odd:
            raise _foreign(odd[0])
        settings = {key: made(value) for key, value in one.items() if key != TARGET}
        return _settings_class(one[TARGET])(settings) if TARGET in one else settings

    if not isinstance(node, Mapping) or TARGET not in node:
        raise UserError("the run's config.yaml lacks settings that every run has, or is damaged")
    return made(node)


def _settings_class(target: object) -> Callable[[Mapping[str, Any]], Any]:
    if not isinstance(target, str) or target not in SETTINGS_OF_A_RUN:
        raise _foreign(target)
    module, _, name = target.rpartition(".")
    kind = getattr(import_module(module), name)

    def make(settings: Mapping[str, Any]) -> Any:
        try:
            typed = {key: _fitted(kind, key, value) for key, value in settings.items()}
            return kind(**typed)
        except TypeError as error:
            raise UserError(f"the run's config.yaml does not fit {name}: {error}") from error

    return make


def _fitted(kind: type, key: str, value: Any) -> Any:
    """Return a received setting in the type of its argument; what no class has, it tells itself."""
    if key not in inspect.signature(kind).parameters or is_dataclass(value):
        return value
    return fitted(value, annotation_of(kind, key), f"config.yaml: {key}", {})


def _foreign(what: object) -> UserError:
    return UserError(
        f"the run's config.yaml asks for {what!r}, which a run's folder may not name; "
        f"allowed: {', '.join(sorted(SETTINGS_OF_A_RUN))}. Nothing was run."
    )
