"""Remote shards: ``https://.../{00000..00099}.tar``, ``hf:``, ``gs:``, ``s3:`` or ``pipe:COMMAND``.

webdataset opens them, huggingface_hub those of the Hub, and fsspec those of S3. They are copied
completely into the cache before planning, so that mixtures are as exact and restarts as
byte-identical as for local shards. In the cache and in messages a source has its hidden form
(``addresses``); what was typed goes into the request alone.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import re
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from subprocess import PIPE
from typing import Any

from cfaug.core.atomic_files import replace_file, write_json
from cfaug.core.deadlines import Deadline, OverdueError
from cfaug.core.errors import UserError, name_some
from cfaug.core.processes import hold_lock
from cfaug.core.progress import watch
from cfaug.core.safety.addresses import (
    find_typed,
    hide,
    reveal,
    scrub,
    slow_digest,
    without_secrets,
)
from cfaug.core.safety.json_text import load_json
from cfaug.core.stores import LIMIT, limit_bytes, open_client
from cfaug.data.shards.codec import scan

SCHEMES = ("http", "https", "hf", "gs", "s3", "pipe")
"""Supported schemes; the programs that read them (curl, gsutil) must be installed."""

REMOTE = re.compile(rf"(?:{'|'.join(SCHEMES)}):")

BLOCK = 2**20

SOURCE = "remote.json"
"""The file beside the copies with their addresses. Written last, so that its folder is complete."""

REQUEST = "request.json"
"""The file beside copies of an address with secrets: a salted digest of what was typed."""

CURL = (
    "curl", "--connect-timeout", "30", "--retry", "30", "--retry-delay", "2", "-f", "-s", "-L",
    "--config", "-",
)  # fmt: skip
"""webdataset's command, but with the address on its standard input, where no other user sees it."""

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

    >>> is_remote("https://example.org/{00000..00003}.tar"), is_remote("shards/pairs")
    (True, False)
    """
    return REMOTE.match(source) is not None


def check_scheme(source: str) -> None:
    """Refuse an address of another scheme, which would be taken for a folder."""
    named = re.match(r"[a-z][a-z0-9+.-]*://", source, re.IGNORECASE)
    if named and not is_remote(source):
        raise UserError(
            f"{source}: no reader opens {named[0]}; choose {', '.join(SCHEMES)}. A pipe reads what "
            "a command prints: 'pipe:rclone cat REMOTE:FOLDER/{00000..00099}.tar'"
        )


def expand(source: str) -> list[str]:
    """Return the address of every shard.

    >>> expand("https://example.org/a-{0..2}.tar")
    ['https://example.org/a-0.tar', 'https://example.org/a-1.tar', 'https://example.org/a-2.tar']
    """
    from braceexpand import braceexpand

    return list(braceexpand(source))


def find_copies(source: str, cache: Path) -> Path | None:
    """Return the folder of a source's copies, or ``None`` if not all were copied yet.

    Copies that were requested with another user info, query or command do not count.

    Args:
        source: the addresses, in their hidden form.
    """
    folder = _folder(source, cache)
    try:
        names = load_json((folder / SOURCE).read_bytes())["shards"]
    except (OSError, ValueError):
        return None
    there = all((folder / name).is_file() for name in names)
    return folder if there and _is_same_request(source, folder) else None


def _folder(source: str, cache: Path) -> Path:
    return cache / "remote" / hashlib.sha256(source.encode()).hexdigest()[:16]


def _is_same_request(source: str, folder: Path) -> bool:
    typed = find_typed(source)
    if typed is None:
        return True
    try:
        kept = load_json((folder / REQUEST).read_bytes())
        return bool(kept["digest"] == slow_digest(typed, bytes.fromhex(kept["salt"])))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def fetch_shards(source: str, cache: Path) -> Path:
    """Copy the shards of a source into the cache, unless it has them, and return their folder.

    Shards copied before an interruption are kept. Shards are identified by their addresses without
    secrets: if their content changes, remove the copies, and they are fetched again.

    Args:
        source: the addresses, in the form for ``expand``.
    """
    source = hide(source)
    folder = _folder(source, cache)
    if find_copies(source, cache) is not None:
        return folder
    addresses, names = expand(reveal(source)), list[str]()
    for number, address in enumerate(addresses):
        file_name = PurePosixPath(address.partition("?")[0]).name
        named = re.fullmatch(r"[\w.-]+\.tar", file_name) and not address.startswith("pipe:")
        names.append(file_name if named else f"{number:05d}.tar")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        shown = without_secrets(addresses[0])
        raise UserError(f"{shown}: duplicated shard name: {name_some(doubled)}")
    folder.mkdir(parents=True, exist_ok=True)
    shards = [
        _Shard(address, folder / name, source)
        for address, name in zip(addresses, names, strict=True)
    ]
    with hold_lock(folder.with_suffix(".lock")):
        left = limit_bytes()
        if not _is_same_request(source, folder):
            _keep_request(shards, left)
        for shard in watch(shards, "copying shards", len(shards), "shards"):
            if not shard.file.is_file():
                _copy(shard, left)
            left -= shard.file.stat().st_size
        write_json(folder / SOURCE, {"source": source, "shards": names})
    return folder


@dataclass(frozen=True)
class _Shard:
    """A shard to copy: the address to request, the copy, and the source in its hidden form."""

    address: str
    file: Path
    source: str

    @property
    def shown(self) -> str:
        """The shard's name in messages."""
        pipe = self.address.startswith("pipe:")
        shown = self.source if pipe else without_secrets(self.address)
        return shown if self.file.name in shown else f"{shown} (shard {self.file.name})"


def _keep_request(shards: Sequence[_Shard], limit: int) -> None:
    """Record with which secrets the copies are made; earlier copies must be the same data.

    A token that was replaced leads to the same shards, another query may lead to others: the first
    copy tells.
    """
    folder, source = shards[0].file.parent, shards[0].source
    copied = next((shard for shard in shards if shard.file.is_file()), None)
    if copied is not None:
        again = replace(copied, file=copied.file.with_name(f"{copied.file.name}.again"))
        try:
            _copy(again, limit)
            same = filecmp.cmp(copied.file, again.file, shallow=False)
        finally:
            again.file.unlink(missing_ok=True)
        if not same:
            raise UserError(
                f"{source}: {folder} has copies of other shards, made with another user info, "
                "query or command. These parts are kept nowhere: a source that only they "
                "distinguish needs a paths.cache of its own. If the shards were changed, remove "
                f"{folder}"
            )
    salt = os.urandom(16)
    digest = slow_digest(reveal(source), salt)
    write_json(folder / REQUEST, {"digest": digest, "salt": salt.hex()})


def _copy(shard: _Shard, limit: int) -> None:
    """Copy one shard, completely or not at all."""
    copied = 0
    stream: Any = None
    deadline = Deadline()
    try:
        with replace_file(shard.file) as out:
            with _stopping(_open(shard.address, deadline)) as stream:
                while block := deadline.call(partial(_read_block, stream)):
                    copied += len(block)
                    deadline.extend(len(block))
                    if copied > limit:
                        raise UserError(
                            f"{shard.shown}: the source has more than the "
                            f"{limit_bytes() / 2**30:.3g} GiB that it may take of the cache; "
                            f"{LIMIT}=GIB raises that"
                        )
                    if copied == len(block) and block[257:262] != b"ustar":
                        raise UserError(
                            f"{shard.shown} is not a tar: name the shards, as in "
                            ".../{00000..00099}.tar"
                        )
                    out.write(block)
            if not copied:
                raise UserError(f"{shard.shown}: nothing came; is the address right?")
            out.flush()
            # Servers that state no length, and pipes of commands, end early without an error.
            try:
                for _ in scan(Path(out.name)):
                    pass
            except UserError as error:
                raise UserError(str(error).replace(str(out.name), shard.shown)) from error
        return
    except UserError:
        raise
    except Exception as error:  # from a program, the Hub's client, or the network
        why = _reason(error, stream, shard.address)
    # Outside the handler, as an error in it keeps the library's, which has the whole address.
    raise UserError(
        f"{shard.shown} could not be read: {why}; copied shards are kept, and the same command "
        "copies the others"
    )


def _read_block(stream: Any) -> bytes:
    """Read ``BLOCK`` bytes, less only at the end: a stream may give them one by one."""
    parts, missing = [], BLOCK
    while missing and (part := stream.read(missing)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


@contextmanager
def _stopping(stream: Any) -> Iterator[Any]:
    """Close a stream at the end; after an error or an interruption, end its programs first.

    Closing waits for the program, which may be stuck, or have much left to send. A shell would
    leave the programs that it started at work: its whole session is ended.
    """
    with stream:
        try:
            yield stream
        except BaseException:
            program = getattr(stream, "proc", None)
            if program is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(program.pid, signal.SIGKILL)
                stream.ignore_errors = True  # webdataset's, which would hide the first error
            raise


def _open(address: str, deadline: Deadline) -> Any:
    """Open a shard for reading.

    webdataset would ask the Hub with "Bearer None" where nobody is logged in, which the Hub refuses
    even for public files, and would put a token into the arguments of a program and its errors.
    """
    if address.startswith("hf:"):
        from huggingface_hub import HfFileSystem

        return deadline.call(lambda: HfFileSystem().open(address, "rb", block_size=0))
    if address.startswith("s3:"):
        client, path = open_client(address)
        return deadline.call(lambda: client.open(path, "rb"))
    if address.startswith("pipe:"):
        return _start(address.removeprefix("pipe:"), shell=True)
    if address.startswith("gs:"):
        return _start(["gsutil", "cat", address])
    stream = _start(CURL, stdin=PIPE)
    quoted = re.sub(r'([\\"])', r"\\\1", address)
    with stream.proc.stdin as settings:
        settings.write(f'url = "{quoted}"\n'.encode())
    return stream


def _start(command: str | Sequence[str], **options: Any) -> Any:
    """Start a program in a session of its own, which can be ended as a whole.

    Its messages may repeat an address, so that they are read from ``messages`` after a failure.
    """
    from webdataset.gopen import Pipe

    messages = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the stream
    stream = Pipe(
        command, mode="r", bufsize=8192, ignore_status=[141], stderr=messages,
        start_new_session=True, **options,
    )  # fmt: skip
    stream.messages = messages
    return stream


def _reason(error: Exception, stream: Any, address: str) -> str:
    """Return the reason why a shard could not be read, also for a program's exit code."""
    ended = getattr(getattr(stream, "proc", None), "returncode", None)
    if not ended or isinstance(error, OverdueError):  # which ended the program
        return scrub((str(error) or type(error).__name__).strip().splitlines()[0], address)
    known = CURL_ENDED.get(ended) if address.startswith("http") else None
    if known:
        return known
    with stream.messages as messages:
        messages.seek(max(0, messages.seek(0, os.SEEK_END) - BLOCK))
        lines = scrub(messages.read().decode(errors="replace"), address).strip().splitlines()
    last = f" ({lines[-1][:200]})" if lines else ""
    return f"its program ended with exit code {ended}{last}"
