"""Check the keys and types of composed settings against the signatures that will receive them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.validation import annotation_of
from cfaug.run.extras import explain_missing
from cfaug.run.setting_types import Given, fit_value, refuse_unknown

HYDRAS_OWN = ("_target_", "_convert_", "_partial_", "_recursive_")
"""Keys of a node that are not arguments of its target."""

NOT_TYPED = ("overrides",)
"""Arguments of a command that are not settings."""


def locate(dotted: str) -> Any:
    """Import the class or function that ``_target_`` names.

    Raises:
        UserError: if it cannot be imported.
    """
    module, _, name = str(dotted).rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        why = explain_missing(error) or str(error)
        raise UserError(f"_target_ {dotted!r} cannot be imported: {why}") from error


def bind(
    tree: Mapping[str, Any],
    command: Callable[..., Any],
    given: Given | None = None,
    options: Callable[[str], Sequence[str]] = lambda group: (),
) -> dict[str, Any]:
    """Check every node against the signature that will receive it, and return it in those types.

    Args:
        tree: the composed settings.
        command: the function that receives the top-level settings.
        given: {dotted key: typed value} of the settings on the command line.
        options: a function that returns the choices of a group; empty for anything else.

    Raises:
        UserError: for an unknown key, naming the nearest and all known ones; for a missing key; for
            a value of a type other than its argument's, naming the choices.
    """
    node = _bind_node(tree, command, "", given or {}, options)
    return {key: _bind_targets(value, key, given or {}) for key, value in node.items()}


def _bind_targets(value: Any, path: str, given: Given) -> Any:
    """Return a value in which every node with a target fits the target's signature."""
    if isinstance(value, list):
        return [_bind_targets(one, f"{path}[{i}]", given) for i, one in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    node: Mapping[str, Any] = value
    if "_target_" in node:
        node = _bind_node(node, locate(node["_target_"]), f"{path}.", given)
    return {key: _bind_targets(one, f"{path}.{key}", given) for key, one in node.items()}


def _bind_node(
    node: Mapping[str, Any],
    target: Callable[..., Any],
    path: str,
    given: Given,
    options: Callable[[str], Sequence[str]] = lambda group: (),
) -> dict[str, Any]:
    taken = inspect.signature(target).parameters
    if any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        return dict(node)
    names = [name for name in taken if path or name not in NOT_TYPED]
    arguments = {key: value for key, value in node.items() if key not in HYDRAS_OWN}
    refuse_unknown(arguments, names, path)
    for name in names:
        required = taken[name].default is inspect.Parameter.empty and not node.get("_partial_")
        if required and name not in arguments:
            hint = ", ".join(options(path + name))
            raise UserError(f"{path}{name} is missing" + (f": choose from {hint}" if hint else ""))
    if path and not _ours(target):  # the author of a foreign class may annotate it in any way
        return dict(node)
    return {
        key: value
        if key not in arguments
        else fit_value(value, annotation_of(target, key), path + key, given)
        for key, value in node.items()
    }


def _ours(target: Callable[..., Any]) -> bool:
    return str(getattr(target, "__module__", "")).partition(".")[0] == "cfaug"
