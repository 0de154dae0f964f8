"""``torchmetrics`` by parts: its own module is executed when a name is asked for that is not here.

Lightning imports it for two names, and the package imports scipy.signal, torchvision, transformers
and all its metrics with it: 1.2 of the 4.6 s of processor time of ``import lightning.pytorch``.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

PACKAGE = "torchmetrics"


def _metric() -> Any:
    import_module(f"{PACKAGE}.utilities")  # each of the two modules imports the other
    return import_module(f"{PACKAGE}.metric").Metric


def _collection() -> Any:
    _metric()
    return import_module(f"{PACKAGE}.collections").MetricCollection


LIGHT: Mapping[str, Callable[[], Any]] = {
    "__version__": lambda: import_module(f"{PACKAGE}.__about__").__version__,
    "_logger": lambda: logging.getLogger(PACKAGE),
    "Metric": _metric,
    "MetricCollection": _collection,
}
"""The names that Lightning, and the modules of these classes, ask the package for."""
_LOCK = threading.RLock()


class _LazyPackage(ModuleType):
    """The package before its own module is executed, after which it is a module like any other."""

    def __getattr__(self, name: str) -> Any:
        if name in LIGHT:
            try:
                value = LIGHT[name]()
            except (ImportError, AttributeError):  # another version, which has it elsewhere
                pass
            else:
                setattr(self, name, value)
                return value
        with _LOCK:
            if type(self) is _LazyPackage:
                loader = self.__spec__ and self.__spec__.loader
                assert isinstance(loader, _LazyLoader)
                self.__class__ = ModuleType  # type: ignore[assignment]
                try:
                    loader.inner.exec_module(self)
                except BaseException:
                    self.__class__ = _LazyPackage
                    raise
        return getattr(self, name)


class _LazyLoader(Loader):
    def __init__(self, inner: Loader) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)  # such as the source, for a traceback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = _LazyPackage


class _LazyFinder(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name) if name == PACKAGE else None
        if spec is not None and spec.loader is not None:
            spec.loader = _LazyLoader(spec.loader)
        return spec


def import_lazily() -> None:
    """Let a later import of the package be one by parts; an earlier one stays as it is."""
    if not any(isinstance(finder, _LazyFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LazyFinder())
