"""An object store in memory that can be told to fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from fsspec.implementations.memory import MemoryFileSystem


class UnreliableStore(MemoryFileSystem):
    """``memory://`` whose calls are counted, and fail as they are told.

    ``trouble`` is asked before every call that reaches a store, with its name and path, and may
    raise; what it returns is the number of bytes after which a transfer ends, ``None`` for all.
    """

    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    calls: ClassVar[list[tuple[str, str]]] = []
    trouble: ClassVar[Callable[[str, str], int | None] | None] = None

    def _meet(self, name: str, path: str) -> int | None:
        type(self).calls.append((name, path.rpartition("/")[2]))
        trouble = type(self).__dict__["trouble"]
        return None if trouble is None else trouble(name, path)

    def find(self, path, *words, **more):
        self._meet("find", path)
        return super().find(path, *words, **more)

    def cat_file(self, path, start=None, end=None, **more):
        most = self._meet("read", path)
        return super().cat_file(path, start, end, **more)[:most]

    def get_file(self, rpath, lpath, *words, **more):
        most = self._meet("get", rpath)
        with open(lpath, "wb") as out:
            out.write(super().cat_file(rpath)[:most])

    def put_file(self, lpath, rpath, *words, **more):
        most = self._meet("put", rpath)
        with open(lpath, "rb") as file:
            self.pipe_file(rpath, file.read()[:most])

    def rm_file(self, path):
        self._meet("remove", path)
        super().rm_file(path)

    def names(self, root: str) -> set[str]:
        return {path.removeprefix(f"{root}/") for path in self.store if path.startswith(f"{root}/")}
