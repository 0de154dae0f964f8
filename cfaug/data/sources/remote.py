"""Remote shards: ``https://.../{00000..00099}.tar``, ``hf://...`` or ``pipe:COMMAND``.

webdataset opens them, and huggingface_hub those of the Hub. They are copied completely into the
cache before planning, so that mixtures are as exact and restarts as byte-identical as for local
shards.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from cfaug.data.storage.tar import scan
from cfaug.errors import UserError, name_some
from cfaug.files import replace_file, write_json
from cfaug.locks import hold_lock
from cfaug.progress import watch

SCHEMES = ("http", "https", "hf", "gs", "pipe")
"""Supported schemes; the programs that read them (curl, gsutil) must be installed."""

REMOTE = re.compile(rf"(?:{'|'.join(SCHEMES)}):")

LIMIT_GIB = 64.0
LIMIT = "CFAUG_REMOTE_GIB"
"""The environment variable with the limit of one source's size in the cache."""

BLOCK = 2**20

SOURCE = "remote.json"
"""The file beside the copies with their addresses. Written last, so that its folder is complete."""

CURL_ENDED = {
    6: "the host is unknown",
    7: "the host accepts no connection",
    18: "the transfer ended before the end of the file",
    22: "the server answered with an error, such as 404",
    28: "the connection timed out",
    35: "no secure connection (TLS) could be made",
    47: "too many redirections",
    56: "the connection was lost",
    60: "the server's certificate is not trusted",
}
"""The meanings of curl's exit codes (its manual, section Exit codes)."""


def is_remote(source: str) -> bool:
    """Return whether a source names remote shards.

    >>> is_remote("https://example.org/{00000..00003}.tar"), is_remote("shards/coco_cf")
    (True, False)
    """
    return REMOTE.match(source) is not None


def check_scheme(source: str) -> None:
    """Refuse an address of another scheme, which would be taken for a folder.

    Args:
        source: the source, as the user named it.

    Raises:
        UserError: naming the supported schemes, and the way for all others.
    """
    named = re.match(r"[a-z][a-z0-9+.-]*://", source)
    if named and not is_remote(source):
        raise UserError(
            f"{source}: no reader opens {named[0]}; choose {', '.join(SCHEMES)}. A pipe reads what "
            "a command prints: 'pipe:aws s3 cp s3://BUCKET/{00000..00099}.tar -'"
        )


def expand(source: str) -> list[str]:
    """Return the address of every shard, with braces expanded.

    >>> expand("https://example.org/a-{0..2}.tar")
    ['https://example.org/a-0.tar', 'https://example.org/a-1.tar', 'https://example.org/a-2.tar']
    """
    from braceexpand import braceexpand

    return list(braceexpand(source))


def find_copies(source: str, cache: Path) -> Path | None:
    """Return the folder of a source's copies, or ``None`` if not all were copied yet.

    Args:
        source: the addresses.
        cache: ``paths.cache``.
    """
    folder = _folder(source, cache)
    try:
        names = json.loads((folder / SOURCE).read_bytes())["shards"]
    except (OSError, ValueError):
        return None
    return folder if all((folder / name).is_file() for name in names) else None


def _folder(source: str, cache: Path) -> Path:
    return cache / "remote" / hashlib.sha256(source.encode()).hexdigest()[:16]


def fetch_shards(source: str, cache: Path) -> Path:
    """Copy the shards of a source into the cache, unless it has them, and return their folder.

    Shards copied before an interruption are kept. Shards are identified by their addresses: if
    their content changes, remove the copies, and they are fetched again.

    Args:
        source: the addresses, in the form for ``expand``.
        cache: ``paths.cache``.

    Raises:
        UserError: for an address that returns nothing, not a tar or a truncated one, two shards of
            the same name, or more bytes than the limit.
    """
    addresses = expand(source)
    names = _name_all(addresses)
    folder = _folder(source, cache)
    if find_copies(source, cache) is not None:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder.with_suffix(".lock")):
        left = _limit_bytes()
        pairs = list(zip(addresses, names, strict=True))
        for address, name in watch(pairs, "copying shards", len(pairs), "shards"):
            file = folder / name
            if not file.is_file():
                _copy(address, file, left)
            left -= file.stat().st_size
        write_json(folder / SOURCE, {"source": source, "shards": names})
    return folder


def _name_all(addresses: list[str]) -> list[str]:
    """Return the file name of every shard: its own if it has one, otherwise its number.

    Raises:
        UserError: if two shards would have the same name.
    """
    names = []
    for number, address in enumerate(addresses):
        own = PurePosixPath(address.partition("?")[0]).name
        named = re.fullmatch(r"[\w.-]+\.tar", own) and not address.startswith("pipe:")
        names.append(own if named else f"{number:05d}.tar")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise UserError(f"{addresses[0]}: duplicated shard name: {name_some(doubled)}")
    return names


def _limit_bytes() -> int:
    """Return the limit of one source's size in the cache, in bytes.

    Raises:
        UserError: if the environment variable is not a number.
    """
    given = os.environ.get(LIMIT, str(LIMIT_GIB))
    try:
        limit = float(given)
    except ValueError:
        limit = 0.0
    if not 0 < limit < float("inf"):
        raise UserError(f"{LIMIT}={given} should be a number of GiB above 0")
    return int(limit * 2**30)


def _copy(address: str, file: Path, limit: int) -> None:
    """Copy one shard, completely or not at all.

    Raises:
        UserError: if it cannot be read, is not a complete tar, or has more bytes than ``limit``.
    """
    copied = 0
    stream: Any = None
    fresh = file.with_name(f"{file.name}.tmp")  # one name, so that kills leave one file at most
    try:
        stream = _open(address)
        with replace_file(file, fresh) as out:
            with _stopping(stream):
                while block := stream.read(BLOCK):
                    copied += len(block)
                    if copied > limit:
                        raise UserError(
                            f"{address}: the source has more than the "
                            f"{_limit_bytes() / 2**30:.3g} GiB that it may take of the cache; "
                            f"{LIMIT}=GIB raises that"
                        )
                    _write(out, block, first=copied == len(block), address=address)
            if not copied:
                raise UserError(f"{address}: nothing came; is the address right?")
            out.flush()
            _check_whole(fresh, address)
    except UserError:
        raise
    except Exception as error:  # from a program, the Hub's client, or the network
        raise UserError(
            f"{address} could not be read: {_reason(error, stream, address)}; copied shards are "
            "kept, and the same command copies the others"
        ) from error


@contextmanager
def _stopping(stream: Any) -> Iterator[None]:
    """Close a stream at the end; after an error or an interruption, end its program first.

    Closing waits for the program, which may be stuck, or have much left to send.
    """
    with stream:
        try:
            yield
        except BaseException:
            program = getattr(stream, "proc", None)
            if program is not None and program.poll() is None:
                program.kill()
                stream.ignore_errors = True  # webdataset's, which would hide the first error
            raise


def _open(address: str) -> Any:
    """Open a shard for reading.

    webdataset would ask the Hub with "Bearer None" where nobody is logged in, which the Hub refuses
    even for public files, and would put a token into the arguments of a program and its errors.
    """
    if address.startswith("hf:"):
        from huggingface_hub import HfFileSystem

        return HfFileSystem().open(address, "rb", block_size=0)
    from webdataset import gopen

    return gopen(address, "rb")


def _check_whole(fresh: Path, address: str) -> None:
    """Refuse a tar that is truncated or has members that no reader accepts.

    Servers that state no length, and pipes of commands, end early without an error.

    Raises:
        UserError: naming the address and the member.
    """
    try:
        for _ in scan(fresh):
            pass
    except UserError as error:
        raise UserError(str(error).replace(str(fresh), address)) from error


def _reason(error: Exception, stream: Any, address: str) -> str:
    """Return the reason why a shard could not be read, also for a program's exit code."""
    ended = getattr(getattr(stream, "proc", None), "returncode", None)
    if not ended:
        return (str(error) or type(error).__name__).strip().splitlines()[0]
    known = CURL_ENDED.get(ended) if address.startswith("http") else None
    return known or f"its program ended with exit code {ended}"


def _write(out: IO[bytes], block: bytes, *, first: bool, address: str) -> None:
    if first and block[257:262] != b"ustar":
        raise UserError(f"{address} is not a tar: name the shards, as in .../{{00000..00099}}.tar")
    out.write(block)
