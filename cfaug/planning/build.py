"""Build objects from nodes of settings; settings from a run's folder are never given to Hydra."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.validation import annotation_of, fit_value
from cfaug.models import specs

TARGET = "_target_"
SETTINGS_OF_A_RUN = frozenset(
    {
        "cfaug.data.mixture.settings.ClassificationData",
        "cfaug.data.mixture.settings.DataSettings",
        "cfaug.data.mixture.settings.EntailmentData",
        "cfaug.data.mixture.settings.QuestionData",
        "cfaug.coco_cf.mixtures.PaperMixture",
        "cfaug.shapescapes.WorldSettings",
        *(f"{kind.__module__}.{kind.__name__}" for kind in specs.every()),
        "cfaug.editing.causal_lm.CausalLM",
        "cfaug.train.generative_tasks.EditData",
        "cfaug.train.settings.LoggerSettings",
    }
)
"""Classes that a run's config.yaml may name, all of them plain settings without side effects."""
MOST_SETTINGS = 10_000
"""Most values in a run's node, as with YAML anchors a few lines can expand to any number."""


def build(node: Mapping[str, Any], trusted: bool = True) -> Any:
    """Make the object that a node describes: the only call of Hydra's ``instantiate``.

    Args:
        node: a mapping with ``_target_``.
        trusted: whether the node may name any target; false for settings from a run's folder, which
            Hydra never sees: targets are among ``SETTINGS_OF_A_RUN``, and ``${...}`` is text.
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


def _build_settings(node: Any) -> Any:
    """Make a run's settings without Hydra: our classes, plain values, no interpolation."""
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
        if not isinstance(target, str) or target not in SETTINGS_OF_A_RUN:
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


def _foreign(name: object) -> UserError:
    return UserError(
        f"the run's config.yaml asks for {name!r}, which a run's folder may not name; "
        f"allowed: {', '.join(sorted(SETTINGS_OF_A_RUN))}. Nothing was run."
    )
