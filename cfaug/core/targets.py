"""The classes that ``_target_`` may name: checked before any of them is called.

Settings come from a command line, but also from a sweep file that somebody sent. A target is a
class, and one of what its place takes: a callback of Lightning where callbacks stand, an editor
where a recipe has its editor. A function of others is never called, so that no setting loads a
pickle, runs a command or deletes a file.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, is_typeddict

from cfaug.core.annotations import (
    Unresolved,
    alternatives_of,
    argument_annotation,
    base_of,
    is_sequence,
    item_annotation,
    marks_of,
)
from cfaug.core.errors import UserError
from cfaug.core.processes import explain_missing

TARGET, PARTIAL = "_target_", "_partial_"
OF_NODES = (TARGET, PARTIAL, "_args_", "_convert_", "_recursive_")
"""Keys of a node that are not arguments of its target."""
REFUSED = {
    "_args_": "name each argument",
    "_convert_": "lists and dictionaries are always plain ones",
    "_recursive_": "objects inside an object are always made first",
}
"""{key of Hydra's nodes that is not read here: what to do, or what holds}."""


@dataclass(frozen=True)
class Makes:
    """The classes of which a node makes an object, for ``Annotated``: dotted names.

    They are imported only where a node names another class.
    """

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


def locate(dotted: str) -> Any:
    """Import the class or function that ``_target_`` names."""
    module, _, name = str(dotted).rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        why = explain_missing(error) or str(error)
        if isinstance(error, ModuleNotFoundError) and not module.startswith("cfaug."):
            why += " (your own modules are imported from the folder of --config-dir and PYTHONPATH)"
        elif isinstance(error, AttributeError):
            near = get_close_matches(name, vars(import_module(module)), 1)
            why += "".join(f"; did you mean {module}.{meant}?" for meant in near)
        raise UserError(f"_target_ {dotted!r} cannot be imported: {why}") from error


def locate_class(node: Mapping[str, Any], annotation: Any, key: str, owner: Any = None) -> Any:
    """Return the class that a node names, which nothing has called yet.

    A function of cfaug that says what it returns stands for that class.

    Args:
        annotation: the annotation of the argument that takes the object.
        key: the node's dotted name.
        owner: the class that takes the object.

    Raises:
        UserError: if the target is not a class, or not of what its place takes.
    """
    for word, instead in REFUSED.items():
        if word in node:
            raise UserError(f"{key}.{word}={node[word]}: {word} is not read: {instead}")
    dotted = node[TARGET]
    if not isinstance(dotted, str):
        raise UserError(f"{key}._target_={dotted} should be a text, such as PACKAGE.MODULE.CLASS")
    named = locate(dotted)
    wanted = _wanted_classes(annotation)
    place = f"{key}._target_={dotted}"
    kind = named
    if isinstance(named, FunctionType) and str(named.__module__).partition(".")[0] == "cfaug":
        kind = vars(sys.modules[named.__module__]).get(named.__annotations__.get("return", ""))
    if not isinstance(kind, type):
        takes = f", such as a {_join(wanted)}" if wanted else ""
        what = "function" if callable(named) else f"{type(named).__name__}, not a class"
        raise UserError(
            f"{place} names a {what}; a setting names a class{takes}. Nothing was called"
        )
    takes_makers = base_of(Callable[..., Any]) in map(base_of, alternatives_of(annotation))
    if node.get(PARTIAL) and wanted and not takes_makers:
        raise UserError(f"{key}._partial_=true: {key} takes a {_join(wanted)}, not a function")
    if wanted and not any(_is_one(kind, other) for other in wanted):
        lacks = [name for other in wanted for name in _methods_of(other) if not hasattr(kind, name)]
        raise UserError(
            f"{place} is no {_join(wanted)}, which {key} takes"
            + (f": it has no {', '.join(lacks)}" if lacks else "")
            + ". Name a class of that kind. Nothing was called"
        )
    if not wanted and not _may_be_anywhere(kind, owner):
        argument = key.rpartition(".")[2]
        raise UserError(
            f"{place} is a class of another package, and nothing says that {key} takes one: in "
            f"your own class, annotate {argument} with the class that it takes. Nothing was called"
        )
    return named


@dataclass(frozen=True)
class Located:
    """A node whose class has been checked, and whose arguments may hold others."""

    kind: type
    arguments: Mapping[str, Any]
    partial: bool


Inner = Callable[[Mapping[str, Any]], dict[str, Any]]
"""A function that returns the arguments of a node with what becomes of the nodes in them."""


def map_nodes(
    value: Any,
    annotation: Any,
    key: str,
    visit: Callable[[Any, Mapping[str, Any], str, Inner], Any],
    owner: type | None = None,
) -> Any:
    """Return a value with what a function makes of every node that names a class.

    Args:
        annotation: the annotation of what takes the value.
        key: the dotted name of the value.
        visit: returns what becomes of (class, node, its dotted name, ``Inner``).
        owner: the class that takes the value.
    """
    if isinstance(value, list | tuple):
        return [
            map_nodes(item, item_annotation(annotation, value, i), f"{key}[{i}]", visit, owner)
            for i, item in enumerate(value)
        ]
    if not isinstance(value, Mapping):
        return value
    if TARGET not in value:
        return {
            name: map_nodes(
                item, item_annotation(annotation, value, name), f"{key}.{name}", visit, owner
            )
            for name, item in value.items()
        }
    kind = locate_class(value, annotation, key, owner)

    def map_inner(arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: map_nodes(item, argument_annotation(kind, name), f"{key}.{name}", visit, kind)
            for name, item in arguments.items()
        }

    return visit(kind, value, key, map_inner)


def locate_all(value: Any, annotation: Any, key: str, owner: type | None = None) -> Any:
    """Return a value with its nodes located: all of them before the first is made."""

    def locate_node(kind: Any, node: Mapping[str, Any], key: str, inner: Inner) -> Located:
        arguments = {name: item for name, item in node.items() if name not in OF_NODES}
        return Located(kind, inner(arguments), bool(node.get(PARTIAL)))

    return map_nodes(value, annotation, key, locate_node, owner)


def _wanted_classes(annotation: Any) -> list[type]:
    """Return the classes of which an object is wanted; empty if the annotation does not say."""
    wanted: list[type] = []
    plain: tuple[Any, ...] = (str, int, float, bool, type(None), Mapping, Callable)
    for choice in alternatives_of(annotation):
        base = base_of(choice)
        names = [
            name for mark in marks_of(choice) if isinstance(mark, Makes) for name in mark.names
        ]
        if names:
            wanted += map(locate, names)
        elif base in (Any, Unresolved, object):
            return []
        elif isinstance(base, type) and not (
            is_typeddict(base) or is_sequence(base) or issubclass(base, plain)
        ):
            wanted.append(base)
    return wanted


def _is_one(named: type, kind: type) -> bool:
    """Say whether a class is of a kind; a protocol is fulfilled by a class with its methods."""
    if not _is_protocol(kind):
        return issubclass(named, kind)
    methods = _methods_of(kind)
    if not methods:
        return _may_be_anywhere(named)
    of_python = named.__module__.partition(".")[0] in sys.stdlib_module_names
    return not of_python and all(callable(getattr(named, name, None)) for name in methods)


def _methods_of(kind: type) -> list[str]:
    """Return the methods of a protocol; none of another class."""
    bases = [base for base in kind.__mro__ if _is_protocol(base)]
    members = {name: value for base in bases for name, value in vars(base).items()}
    return sorted(n for n, value in members.items() if n[0] != "_" and callable(value))


def _is_protocol(kind: type) -> bool:
    return bool(vars(kind).get("_is_protocol", False))


def _may_be_anywhere(named: type, owner: Any = None) -> bool:
    """Say whether a class may be made where nothing says what is taken.

    It is one of cfaug's, of the user's own files, or of the package of the class that takes it.
    Lightning is no such package, as some of its classes run what they are given.
    """
    package = named.__module__.partition(".")[0]
    around = str(getattr(owner, "__module__", "")).partition(".")[0]
    return package == "cfaug" or (package == around != "lightning") or _is_of_user(named.__module__)


@cache
def _is_of_user(module: str) -> bool:
    """Say whether a module is a file outside of Python and its installed packages."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or module.partition(".")[0] in sys.stdlib_module_names:
        return False
    installed = {
        sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    folders = Path(file).resolve().parents
    return not any(Path(folder).resolve() in folders for folder in installed)


def _join(kinds: list[type]) -> str:
    return " or ".join(dict.fromkeys(kind.__name__ for kind in kinds))
