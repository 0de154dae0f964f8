"""Build objects from nodes of settings: classes alone, each of what its place takes."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache, lru_cache, partial
from importlib import import_module
from typing import Annotated, Any

from cfaug.core.annotations import annotation_of
from cfaug.core.errors import UserError
from cfaug.core.fitting import fit_value
from cfaug.core.plugins import plugins
from cfaug.core.targets import TARGET, Located, Makes, locate_all
from cfaug.core.worlds import worlds
from cfaug.models import specs

SETTINGS_OF_A_RUN = frozenset(
    {
        "cfaug.data.mixture.settings.ClassificationData",
        "cfaug.data.mixture.settings.EntailmentData",
        "cfaug.data.mixture.settings.NegativesData",
        "cfaug.data.mixture.settings.PlanData",
        "cfaug.data.mixture.settings.QuestionData",
        "cfaug.data.mixture.settings.RatioData",
        *(f"{kind.__module__}.{kind.__name__}" for kind in specs.every()),
        "cfaug.editing.causal_lm.CausalLM",
        "cfaug.train.generative_tasks.EditData",
        "cfaug.train.settings.LoggerSettings",
    }
)
"""Classes that a run's config.yaml may name, all of them plain settings without side effects.

The settings of a world are among them, and what a plug-in's package lists under this name.
"""
LISTED = "SETTINGS_OF_A_RUN"
MOST_SETTINGS = 10_000
"""Most values in a run's node, as with YAML anchors a few lines can expand to any number."""


OF_ANY_CLASS = Annotated[Callable[..., Any], Makes("builtins.object")]
"""What :func:`build` is given: a command's settings say of which class, and are bound before."""


def build(node: Mapping[str, Any]) -> Any:
    """Make the object that a node of a command describes, and the objects inside it first.

    Args:
        node: a mapping with ``_target_``, a class; with ``_partial_`` a function that makes the
            object is returned.
    """
    return _make(locate_all(node, OF_ANY_CLASS, "settings"))


def try_building(node: Mapping[str, Any]) -> Any:
    """Build a node of trusted settings; ``None`` if it is invalid, which is refused later."""
    return _try_building(json.dumps(node))


@lru_cache(maxsize=8)
def _try_building(written: str) -> Any:
    try:
        return build(json.loads(written))
    except UserError:
        return None


def _make(value: Any) -> Any:
    if isinstance(value, list):
        return [_make(item) for item in value]
    if isinstance(value, dict):
        return {name: _make(item) for name, item in value.items()}
    if not isinstance(value, Located):
        return value
    arguments = {name: _make(item) for name, item in value.arguments.items()}
    if value.partial:
        return partial(value.kind, **arguments)
    try:
        return value.kind(**arguments)
    except UserError:
        raise
    except Exception as error:
        name = f"{value.kind.__module__}.{value.kind.__qualname__}"
        raise UserError(f"{name} cannot be made: {type(error).__name__}: {error}") from error


def build_untrusted(node: Any) -> Any:
    """Make the object that a node in a run's folder describes, which anybody may have written.

    Its classes are among ``SETTINGS_OF_A_RUN``, its values plain and without interpolation.
    """
    left = [MOST_SETTINGS]

    def made(item: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise UserError(f"the run's config.yaml holds more than {MOST_SETTINGS} settings")
        if isinstance(item, list | tuple):
            return [made(part) for part in item]
        if not isinstance(item, Mapping):
            return item
        odd = [k for k in item if not isinstance(k, str) or (k[:1] == "_" and k != TARGET)]
        if odd:
            raise _foreign(odd[0])
        settings = {key: made(value) for key, value in item.items() if key != TARGET}
        if TARGET not in item:
            return settings
        target = item[TARGET]
        if not isinstance(target, str) or target not in _settings_of_a_run():
            raise _foreign(target)
        module, _, name = target.rpartition(".")
        kind = getattr(import_module(module), name)
        try:
            known = inspect.signature(kind).parameters
            for key, value in settings.items():
                if key in known and not is_dataclass(value):  # the class refuses an unknown key
                    settings[key] = fit_value(
                        value, annotation_of(kind, key), f"config.yaml: {key}", {}
                    )
            return kind(**settings)
        except TypeError as error:
            raise UserError(f"the run's config.yaml does not fit {name}: {error}") from error

    if not isinstance(node, Mapping) or TARGET not in node:
        raise UserError("the run's config.yaml lacks settings that every run has, or is damaged")
    return made(node)


@cache
def _settings_of_a_run() -> frozenset[str]:
    packages = (import_module(plugin.package) for plugin in plugins() if plugin.package)
    of_plugins = (name for package in packages for name in getattr(package, LISTED, ()))
    return SETTINGS_OF_A_RUN.union(of_plugins, (world.settings for world in worlds()))


def _foreign(name: object) -> UserError:
    return UserError(
        f"the run's config.yaml asks for {name!r}, which a run's folder may not name; "
        f"allowed: {', '.join(sorted(_settings_of_a_run()))}. Nothing was run."
    )
