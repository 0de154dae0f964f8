"""Folders of shards in object stores (``s3://BUCKET/FOLDER``), by fsspec, and their local mirrors.

A mirror is a folder of the cache that stands for one of a store: it has the small files (commits,
captions, card), and tars only while somebody needs them, or as long as they fit. Whatever reads and
writes folders of shards works on a mirror as on any other. A store has no locks, no renames and no
directories: one process owns the list of objects, and uploads a commit after what it commits.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from cfaug.core.atomic_files import is_temporary, replace_file, write_file, write_json
from cfaug.core.deadlines import Deadline
from cfaug.core.errors import UserError
from cfaug.core.processes import hold_lock
from cfaug.core.safety.addresses import hide, reveal, scrub
from cfaug.core.safety.json_text import load_json

Answer = TypeVar("Answer")

STORES = ("s3", "gs", "az", "hf", "memory")
"""Schemes of object stores; fsspec names the package that opens one."""
PACKAGES = {"s3": "'cfaug[s3]'", "gs": "gcsfs", "az": "adlfs"}
"""The schemes of the stores that shards are written to, and what pip installs for each."""

LIMIT = "CFAUG_REMOTE_GIB"
"""The environment variable with the limit of one source's size in the cache."""

ADDRESS = "store.json"
"""The file that makes a folder a mirror: its address."""
OBJECTS = "objects.json"
"""What the mirror knows: the objects, {name: [bytes, version]}, and those that have a copy,
{name: [version, time]}; a copy that was changed since has another time."""

TRIES = 5
PAUSE = 0.5
"""Seconds before the second try; each further pause is twice as long."""
FINAL = (PermissionError, ImportError, NotImplementedError, AttributeError, TypeError, ValueError)
"""Errors that no second try mends."""
AT_ONCE = 500
"""Small files that are read together."""
MOST_BYTES = 2**28
"""The largest size of a small file."""
AHEAD = 4
"""Tars that are copied while one is read."""
TARS = re.compile(r"\.tar(?![\w/-])")


def is_store(name: str) -> bool:
    """Return whether a name is the address of a folder in an object store, not of single tars.

    >>> is_store("s3://bucket/shards"), is_store("s3://bucket/{00000..00099}.tar")
    (True, False)
    """
    scheme, _, rest = name.partition("://")
    return bool(rest.strip("/")) and scheme in STORES and TARS.search(rest) is None


def is_address(name: str) -> bool:
    """Return whether a name begins as an address: as a path it would be a folder with a colon.

    >>> is_address("gcs://bucket/shards"), is_address("shards/a:b")
    (True, False)
    """
    return re.match(r"[A-Za-z][\w+.-]*:(//|$)", name) is not None


def local_name(name: str) -> str:
    """Return the path of a ``file://`` address; any other name is unchanged.

    >>> local_name("file:///data/my%20shards"), local_name("shards")
    ('/data/my shards', 'shards')
    """
    return unquote(urlsplit(name).path) if name.startswith("file://") else name


def limit_bytes() -> int:
    """Return how much of the cache one source may take: 64 GiB, or ``CFAUG_REMOTE_GIB``."""
    given = os.environ.get(LIMIT, "64.0")
    try:
        limit = float(given)
    except ValueError:
        limit = 0.0
    if not 0 < limit < float("inf"):
        raise UserError(f"{LIMIT}={given} should be a number of GiB above 0")
    return int(limit * 2**30)


class Mirror:
    """A local folder that stands for a folder of an object store.

    Args:
        address: the store's folder, in its hidden form (``addresses``).
    """

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        self.objects: dict[str, tuple[int, str]] = {}
        self._copies: dict[str, tuple[str, int]] = {}
        # Without a readable list everything is copied again.
        with suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
            known = load_json((folder / OBJECTS).read_bytes())
            objects = {str(n): (int(size), str(v)) for n, (size, v) in known["objects"].items()}
            copies = {str(n): (str(v), int(time)) for n, (v, time) in known["copies"].items()}
            self.objects, self._copies = objects, copies

    # Every call asks fsspec anew for its (cached) client, which a forked process may not share.

    def _client(self) -> tuple[Any, str]:
        return open_client(self.address)

    def _ask(self, what: str, work: Callable[[Any, str], Answer], size: int = 0) -> Answer:
        return ask(f"{self.address}: {what}", lambda: work(*self._client()), size)

    def read(self, name: str) -> bytes | None:
        """Return an object's content, ``None`` if there is none."""
        try:
            return self._ask(name, lambda client, root: client.cat_file(f"{root}/{name}"))
        except FileNotFoundError:
            return None

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """Return some bytes of an object."""

        def work(client: Any, root: str) -> bytes:
            content: bytes = client.cat_file(f"{root}/{name}", start=offset, end=offset + length)
            if len(content) != length:
                raise OSError(f"{len(content)} of {length} bytes came")
            return content

        return self._ask(name, work, length)

    def list(self) -> dict[str, tuple[int, str]]:
        """Return the bytes and the version of every object by its name below the folder."""

        def work(client: Any, root: str) -> dict[str, tuple[int, str]]:
            client.invalidate_cache()
            files = client.find(root, detail=True)
            return {path[len(root) + 1 :]: _about(info) for path, info in files.items()}

        try:
            return self._ask("its list", work)
        except FileNotFoundError:
            return {}

    def pull(self, wanted: Callable[[str], bool]) -> None:
        """Make the mirror what the store is: read the wanted objects, and remove what is not there.

        Copies of other objects, such as tars, stay as long as their object does not change.

        Args:
            wanted: whether an object is copied, by its name; others are only known by their size.
        """
        self.objects = there = self.list()
        # Hidden folders are the machine's.
        inside = [file for file in self.folder.glob("*/*") if not file.parent.name.startswith(".")]
        for file in [file for file in (*self.folder.glob("*"), *inside) if file.is_file()]:
            if file.name in (ADDRESS, OBJECTS) or is_temporary(file.name):
                continue
            name = file.relative_to(self.folder).as_posix()
            if name not in there or self._copies.get(name) != self._copy_of(name):
                file.unlink()
        missing = [n for n in there if wanted(n) and not (self.folder / n).exists()]
        for name in missing:
            if there[name][0] > MOST_BYTES:
                raise UserError(
                    f"{self.address}/{name} has {there[name][0]:,} bytes, which no commit or list "
                    f"of captions has (at most {MOST_BYTES:,}): remove it"
                )
        for start in range(0, len(missing), AT_ONCE):
            self._copy(missing[start : start + AT_ONCE])
        self.keep_list()

    def keep_list(self) -> None:
        """Write what is known of the objects, so that a later ``pull`` reads only what changed."""
        known = {"objects": self.objects, "copies": self._copies}
        write_json(self.folder / OBJECTS, known, indent=0)

    def _copy_of(self, name: str) -> tuple[str, int]:
        version = self.objects[name][1] if name in self.objects else ""
        return version, (self.folder / name).stat().st_mtime_ns

    def _copy(self, names: Sequence[str]) -> None:
        left = {f"{self._client()[1]}/{name}": name for name in names}

        def work(client: Any, root: str) -> None:
            contents = client.cat(list(left), on_error="return")
            problem = None
            for path, name in list(left.items()):
                content, size = contents[path], self.objects[name][0]
                if isinstance(content, bytes) and len(content) == size:
                    (self.folder / name).parent.mkdir(exist_ok=True)
                    write_file(self.folder / name, content)
                    self._copies[name] = self._copy_of(left.pop(path))
                elif isinstance(content, bytes):
                    problem = OSError(f"{name}: {len(content)} of {size} bytes came")
                else:
                    problem = OSError(f"{name}: {content}")
            if problem is not None:
                raise problem

        self._ask("small files", work, sum(self.objects[name][0] for name in names))

    def copy(self, name: str) -> None:
        """Copy one object into the mirror, completely or not at all."""
        target = self.folder / name

        def work(client: Any, root: str) -> None:
            size = client.info(f"{root}/{name}")["size"]
            with replace_file(target) as out:
                client.get_file(f"{root}/{name}", out.name)
                came = Path(out.name).stat().st_size
                if came != size:
                    raise ConnectionError(f"{came} of {size} bytes came")

        try:
            self._ask(name, work, self.objects.get(name, (0,))[0])
        except FileNotFoundError as error:
            raise UserError(
                f"{self.address}/{name} is missing: run the command that makes it again"
            ) from error
        self._copies[name] = self._copy_of(name)

    def push(self, names: Iterable[str]) -> None:
        """Upload local files, one after the other, so that the last one is there last."""

        def work(client: Any, root: str) -> tuple[int, str]:
            client.put_file(str(self.folder / name), f"{root}/{name}")
            client.invalidate_cache()
            about = _about(client.info(f"{root}/{name}"))
            if about[0] != (self.folder / name).stat().st_size:
                raise OSError(f"{about[0]} bytes arrived")
            return about

        for name in names:
            try:
                size = (self.folder / name).stat().st_size
                self.objects[name] = self._ask(name, work, size)
            except FileNotFoundError as error:
                raise UserError(f"{self.address} cannot be written: {error}") from error
            self._copies[name] = self._copy_of(name)

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects, one after the other; a missing one is no error."""

        def work(client: Any, root: str) -> None:
            client.rm_file(f"{root}/{name}")

        for name in names:
            with suppress(FileNotFoundError):
                self._ask(name, work)
            self.objects.pop(name, None)


_mirrors: dict[Path, Mirror] = {}


def mirror_of(folder: Path) -> Mirror | None:
    """Return the mirror that a folder is; ``None`` for any other folder."""
    mirror = _mirrors.get(folder)
    if mirror is None:
        try:
            address = load_json((folder / ADDRESS).read_bytes())["address"]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError(f"{folder / ADDRESS} is damaged ({error}): remove {folder}") from error
        mirror = _mirrors[folder] = Mirror(folder, str(address))
    return mirror


def mirror_folder(address: str, cache: Path, purpose: str) -> Path:
    """Return the folder of the cache that mirrors a folder of a store; it may be missing.

    Args:
        purpose: ``made`` for shards that are generated, ``read`` for those that are read.
    """
    shown = hide(address).rstrip("/")
    name = re.sub(r"[^\w-]+", "-", shown)[-60:].strip("-")
    code = hashlib.sha256(shown.encode()).hexdigest()[:8]
    return cache.expanduser().resolve() / "stores" / purpose / f"{name}-{code}"


def open_mirror(address: str, cache: Path, purpose: str) -> Mirror:
    """Return the mirror of a store's folder, as it was left; see ``mirror_folder``."""
    folder = mirror_folder(address, cache, purpose)
    if not (folder / ADDRESS).is_file():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / ADDRESS, {"address": hide(address).rstrip("/")})
        except OSError as error:
            raise UserError(f"paths.cache={cache} cannot be written: {error}") from error
    mirror = mirror_of(folder)
    assert mirror is not None
    return mirror


def shown(folder: Path) -> str:
    """Return how messages name a folder: a mirror by its address."""
    mirror = mirror_of(folder)
    return str(folder) if mirror is None else mirror.address


def lock_of(folder: Path) -> Path:
    """Return the file that is locked while a mirror changes."""
    return folder.parent / f"{folder.name}.lock"


def size_of(file: Path) -> int | None:
    """Return a file's size in bytes, of the object if it is only in a store; ``None`` without."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        mirror = mirror_of(file.parent)
        return None if mirror is None else mirror.objects.get(file.name, (None,))[0]


def read_range(file: Path, offset: int, length: int) -> bytes:
    """Return some bytes of a file that is only in a store.

    Raises:
        FileNotFoundError: if the file is in no mirror, or has no object.
    """
    mirror = mirror_of(file.parent)
    if mirror is None:
        raise FileNotFoundError(2, os.strerror(2), str(file))
    return mirror.read_range(file.name, offset, length)


def with_copies(files: Sequence[Path]) -> Iterator[Path]:
    """Yield each of a folder's files while it is on the disk, the next ones copied meanwhile.

    Files on the disk are only yielded. Copies of objects stay if the folder's tars fit into
    ``limit_bytes``; others are removed once the next file is asked for.
    """
    mirror = mirror_of(files[0].parent) if files else None
    if mirror is None or all(file.exists() for file in files):
        yield from files
        return
    with hold_lock(lock_of(mirror.folder)), ThreadPoolExecutor(AHEAD) as pool:
        left = limit_bytes() - sum(file.stat().st_size for file in files if file.exists())
        copies: dict[Path, Future[None]] = {}
        try:
            for number, file in enumerate(files):
                for ahead in files[number : number + 1 + AHEAD]:
                    if ahead not in copies and not ahead.exists():
                        copies[ahead] = pool.submit(mirror.copy, ahead.name)
                if file not in copies:
                    yield file
                    continue
                copies[file].result()
                yield file
                del copies[file]
                size = file.stat().st_size
                if size > left:
                    file.unlink()
                else:
                    left -= size
        finally:
            for copy in copies.values():
                copy.cancel()
            pool.shutdown(wait=True)
            for file in copies:
                file.unlink(missing_ok=True)
            mirror.keep_list()


def open_client(address: str) -> tuple[Any, str]:
    """Return fsspec's client of an address, without its lists of earlier objects, and the path.

    Args:
        address: the address, in its hidden form.
    """
    import fsspec

    try:
        client, root = fsspec.url_to_fs(reveal(address), use_listings_cache=False)
    except ImportError as error:
        scheme = address.partition(":")[0]
        package = PACKAGES.get(scheme)
        remedy = f"pip install {package}" if package else "install it"
        raise UserError(f"{address}: {str(error).rstrip('.')}: {remedy}") from error
    return client, root.rstrip("/")


def ask(what: str, work: Callable[[], Answer], size: int = 0) -> Answer:
    """Do what a store may refuse for a while, such as by a timeout or 503, with several tries.

    Args:
        size: the number of bytes that are sent or come; the deadline of all tries allows for them.

    Raises:
        FileNotFoundError: if an object is missing.
        UserError: if the last try failed as well.
    """
    deadline = Deadline()
    deadline.extend(size)
    for attempt in range(1, TRIES + 1):
        try:
            return deadline.call(work)
        except (FileNotFoundError, UserError):
            raise
        except Exception as error:
            if attempt == TRIES or isinstance(error, FINAL) or not deadline.left:
                tried = "" if attempt == 1 else f" ({attempt} tries)"
                why = scrub((str(error) or type(error).__name__).strip().splitlines()[0])
                break
        time.sleep(min(PAUSE * 2 ** (attempt - 1), deadline.left))
    # Outside the handler, as an error in it keeps the library's, which has the whole address.
    raise UserError(
        f"{what} failed: {why}{tried}. What is complete is kept: run the same command again"
    )


def _about(info: Mapping[str, Any]) -> tuple[int, str]:
    """Return an object's bytes and what changes with its content: its ETag, or its times."""
    text = json.dumps(info, sort_keys=True, default=str)
    return int(info["size"]), hashlib.sha256(text.encode()).hexdigest()[:16]
