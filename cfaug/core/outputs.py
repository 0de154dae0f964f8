"""Outputs whose place a user names: only what cfaug wrote there itself is ever replaced.

``.cfaug.jsonl`` in a folder is the record of the outputs in it: a line for each file, with what it
is and the hash of its content. A file without a line, or with other content than its lines say, is
the user's, and so is a folder with such a file in it: both are refused, and so are links. A line is
written before its file, so that a killed process leaves no file of ours without one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from glob import escape
from pathlib import Path
from typing import BinaryIO

from cfaug.core.atomic_files import (
    remove_leftovers,
    replace_file,
    sync,
    sync_tree,
    temporary_start,
    with_path,
)
from cfaug.core.errors import UserError, name_some
from cfaug.core.files import require_regular
from cfaug.core.safety.json_text import load_json

RECORD = ".cfaug.jsonl"
"""The record of the outputs in a folder."""
REPLACED = ".replaced"
"""The end of a folder's hidden name while it is replaced."""
MOST_BYTES = 2**26
"""The largest record that is read."""


@dataclass(frozen=True)
class Output:
    """A line of a record: a file that cfaug wrote.

    Attributes:
        file: its path below the record's folder.
        kind: the name of what it is, such as ``a list of failures``; only this kind replaces it.
    """

    file: str
    kind: str
    bytes: int
    sha256: str

    def matches(self, path: Path) -> bool:
        """Return whether a file has this content."""
        if path.stat().st_size != self.bytes:
            return False
        with require_regular(path).open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest() == self.sha256


def read_outputs(folder: Path) -> dict[str, list[Output]]:
    """Return the lines of a folder's record by file; damaged ones are left out.

    A file may have several lines: after a killed process, its content is that of any of them.
    """
    outputs: dict[str, list[Output]] = {}
    record = folder / RECORD
    if record.is_symlink() or not record.is_file() or record.stat().st_size > MOST_BYTES:
        return outputs
    for line in record.read_bytes().splitlines():
        with suppress(ValueError, TypeError):
            output = Output(**load_json(line))
            outputs.setdefault(output.file, []).append(output)
    return outputs


def owner_of(path: Path) -> str | None:
    """Return the kind of a file that cfaug wrote and nobody changed; ``None`` for any other."""
    if path.is_symlink() or not path.is_file():
        return None
    lines = read_outputs(path.parent).get(path.name, [])
    return next((line.kind for line in reversed(lines) if line.matches(path)), None)


def begin_record(folder: Path, *, earlier: bool) -> None:
    """Begin the record of a folder that has none.

    Args:
        earlier: whether cfaug worked in this folder before it kept records: the files in it then
            count as its own. None of its pages is as large as those that are passed over.
    """
    if not os.path.lexists(folder / RECORD):
        files = [file for file in folder.iterdir() if _is_plain(file)] if earlier else []
        small = [file for file in files if file.stat().st_size <= MOST_BYTES]
        _add_lines(folder, [_describe(file, file.name, file.name) for file in small])


def begin_output(folder: Path, kind: str) -> None:
    """Note that files of a kind are written in a folder, which have no lines of their own."""
    _add_lines(folder, [Output("", kind, 0, "")])


def is_begun(folder: Path, kind: str) -> bool:
    """Return whether ``begin_output`` was called for a folder and a kind."""
    return any(line.kind == kind for line in read_outputs(folder).get("", []))


def check_begun(folder: Path, kind: str, setting: str = "") -> None:
    """Refuse a folder that is neither new nor empty, and in which ``begin_output`` noted no files.

    This is for folders in which a library writes, and may replace or delete any file.

    Args:
        kind: the name of what is written there, such as ``states of a training``.
        setting: the setting that names the folder, for the error.
    """
    named = f"{setting}={folder}" if setting else str(folder)
    if not os.path.lexists(folder) or (folder.is_dir() and is_begun(folder, kind)):
        return
    if not folder.is_dir():
        raise UserError(f"{named} is not a folder: name a new or an empty one for {kind}")
    there = sorted(entry.name for entry in folder.iterdir())
    if there:
        raise UserError(
            f"{named} holds what cfaug did not write ({name_some(there)}), which {kind} could "
            "replace: name a new or an empty folder"
        )


def begin_folder(folder: Path, kind: str, setting: str = "") -> Path:
    """Make a folder if ``check_begun`` allows it, note that files are written in it, return it."""
    check_begun(folder, kind, setting)
    folder.mkdir(parents=True, exist_ok=True)
    begin_output(folder, kind)
    return folder


def is_stream(path: Path) -> bool:
    """Return whether a path is no file but a stream, such as ``/dev/stdout`` or a pipe."""
    if path.parent == Path("/dev/fd") or str(path) in ("/dev/stdin", "/dev/stdout", "/dev/stderr"):
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def check_output(path: Path, kind: str, setting: str = "", *, replace: bool = True) -> None:
    """Refuse a file that may not be written, as it would replace something that is not ours.

    Args:
        kind: the name of what is to be written, such as ``a list of failures``.
        setting: the setting that names the file, for the error.
        replace: whether an earlier file of this kind is replaced; otherwise it is refused, too.
    """
    named = f"{setting}={path}" if setting else str(path)
    another = f"name another {'file with ' + setting + '=' if setting else 'one'}"
    if is_stream(path):
        return
    if path.is_symlink():
        raise UserError(f"{named} is a link, and a link is not replaced: remove it, or {another}")
    if not path.exists():
        return
    if path.is_dir():
        raise UserError(f"{named} is a folder, and {kind} is a file: {another}")
    if not path.is_file():
        raise UserError(f"{named} is not a regular file: {another}")
    owner = owner_of(path)
    if owner == kind and replace:
        return
    if owner == kind:
        raise UserError(f"{named} holds {kind} already: move it away, or {another}")
    if owner is not None:
        raise UserError(f"{named} holds {owner} and is not replaced by {kind}: {another}")
    if path.name in read_outputs(path.parent):
        reason = "was changed since cfaug wrote it"
    else:
        reason = "is there already, and cfaug has no record that it wrote it"
    raise UserError(f"{named} {reason}, so it is not replaced: move it away, or {another}")


@contextmanager
def replace_output(path: Path, kind: str, setting: str = "") -> Iterator[BinaryIO]:
    """Open a private file that becomes ``path`` when the block ends without an error.

    The folder is created if missing. A stream, such as ``/dev/stdout``, is written to directly.

    Args:
        kind: the name of what is written, as in ``check_output``, whose errors are raised.
        setting: the setting that names the file, for the error.

    Raises:
        OSError: naming ``path``, if it cannot be written.
    """
    check_output(path, kind, setting)
    if is_stream(path):
        # Appended, since a stream may be a file that a shell opened.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as stream:
            yield stream
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as handle:
        yield handle
        sync(handle)
        check_output(path, kind, setting)  # what came there meanwhile is not ours
        _add_lines(path.parent, [_describe(Path(handle.name), path.name, kind)])


def write_output(path: Path, content: bytes, kind: str, setting: str = "") -> None:
    """Write a file as ``replace_output`` does."""
    with replace_output(path, kind, setting) as handle:
        handle.write(content)


def remove_output(path: Path, kind: str) -> None:
    """Remove a file of an earlier call if it is there and ours; another one is kept."""
    if owner_of(path) == kind:
        path.unlink(missing_ok=True)


def check_output_folder(
    folder: Path, kind: str, setting: str = "", *, replace: bool = True, keeps: Collection[str] = ()
) -> Path:
    """Refuse a folder that may not be written: it must be new, empty, or hold only our own output.

    Args:
        kind: the name of what is to be written, such as ``a model``.
        setting: the setting that names the folder, for the error.
        replace: whether an earlier output of this kind is replaced; otherwise it is refused, too.
        keeps: names of files that a user may have put there, which the caller carries over.

    Returns:
        The folder, behind links to it.
    """
    named = f"{setting}={folder}" if setting else str(folder)
    another = f"name a new or an empty folder{' with ' + setting + '=' if setting else ''}"
    if folder.is_symlink() and not folder.is_dir():
        raise UserError(f"{named} is a link, and a link is not replaced: {another}")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{named} is a file, and {kind} is a folder: {another}")
    folder = folder.resolve()
    if not folder.is_dir() or {entry.name for entry in folder.iterdir()} <= {RECORD}:
        return folder
    outputs = read_outputs(folder)
    if outputs:
        strangers = [
            name
            for name in _list_files(folder)
            if name not in (RECORD, *keeps) and not _is_own(folder / name, outputs.get(name, ()))
        ]
    else:  # a folder without any file is not ours either
        strangers = sorted(
            path.name for path in folder.iterdir() if path.name not in (RECORD, *keeps)
        )
    if strangers:
        raise UserError(
            f"{named} holds what cfaug did not write, or what was changed since "
            f"({name_some(strangers)}); nothing in it is replaced: {another}"
        )
    kinds = {lines[-1].kind for lines in outputs.values()} - {kind}
    if kinds:
        raise UserError(
            f"{named} holds {', '.join(sorted(kinds))} and is not replaced by {kind}: {another}"
        )
    if not replace:
        raise UserError(f"{named} holds {kind} already: {another}")
    return folder


@contextmanager
def output_folder(
    folder: Path,
    kind: str,
    setting: str = "",
    *,
    replace: bool = True,
    keeps: Collection[str] = (),
    carries: bool = False,
) -> Iterator[Path]:
    """Yield a private folder to fill, which becomes ``folder`` when the block succeeds.

    A block that fails leaves ``folder`` as it was; what one leaves that is killed, the next call
    removes.

    Args: those of ``check_output_folder``, and
        carries: whether other files in the folder are kept there, and do not refuse it. One that is
            in the place of a file of ours stays beside the folder, in ``.NAME.*.replaced``.

    Raises:
        OSError: naming ``folder``, if the disk is full.
    """
    target = folder.resolve()
    # Remove what dead processes left of it; the last one may have set it aside.
    remove_leftovers(target.parent)
    remove_leftovers(target)
    for old in target.parent.glob(f".{escape(target.name)}.????????{REPLACED}"):
        if not (old / RECORD).is_file():
            continue
        if target.exists():
            remove_own(old)
        else:
            old.rename(target)
    if not carries:
        check_output_folder(folder, kind, setting, replace=replace, keeps=keeps)
    elif target.is_dir() and not os.path.lexists(target / RECORD):  # of an earlier version
        files = [name for name in _list_files(target) if _is_plain(target / name)]
        _add_lines(target, [_describe(target / name, name, kind) for name in files])
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        within = target.exists() and (target.is_mount() or not os.access(target.parent, os.W_OK))
        token = secrets.token_hex(4)
        start = temporary_start(target / target.name if within else target)
        fresh = start.with_name(f"{start.name}-{token}.tmp")
        fresh.mkdir()
        try:
            yield fresh
            lines = [
                _describe(fresh / name, name, kind)
                for name in _list_files(fresh)
                if name not in (RECORD, *keeps)
            ]
            _add_lines(fresh, lines)
            sync_tree(fresh)
            if not within and not carries:
                check_output_folder(target, kind, setting, replace=replace, keeps=keeps)
            _put_in_place(fresh, target, target.parent / f".{target.name}.{token}{REPLACED}", keeps)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        if error.errno is None:
            raise
        raise with_path(error, folder) from error


def _put_in_place(fresh: Path, target: Path, old: Path, keeps: Collection[str]) -> None:
    """Move a folder to its place; of the folder that it replaces, only our own files go.

    Args:
        old: an unused name beside ``target``.
    """
    here = Path.cwd()
    if not target.exists():
        fresh.rename(target)
    elif fresh.parent == target or target in (here, *here.parents):
        # A mounted folder, or one in which a shell is, keeps its place.
        theirs = read_outputs(target)
        for name in _list_files(fresh):
            place = target / name
            if name == RECORD:
                continue
            if os.path.lexists(place) and not _is_own(place, theirs.get(name, ())):
                continue
            _add_lines(target, read_outputs(fresh).get(name, [])[-1:])
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(fresh / name, place)
    else:
        target.rename(old)
        fresh.rename(target)
        remove_own(old, keeps)
        for name in _list_files(old) if old.exists() else ():  # of a user
            if name != RECORD and not os.path.lexists(target / name):
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(old / name, target / name)
        remove_own(old)


def remove_own(folder: Path, keeps: Collection[str] = ()) -> None:
    """Remove the files of a folder that its record says are ours, and then empty folders.

    Args:
        keeps: names of files of which the caller has another copy, which go as well.
    """
    if not folder.is_dir():
        return
    outputs = read_outputs(folder)
    for name in _list_files(folder):
        if name in keeps or _is_own(folder / name, outputs.get(name, ())):
            (folder / name).unlink(missing_ok=True)
    if set(_list_files(folder)) <= {RECORD}:
        (folder / RECORD).unlink(missing_ok=True)
        for path, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):  # it is not empty
                os.rmdir(path)


def _is_own(path: Path, lines: Sequence[Output]) -> bool:
    return _is_plain(path) and any(line.matches(path) for line in lines)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _list_files(folder: Path) -> list[str]:
    """Return the paths of all files and links below a folder."""
    return sorted(
        str(Path(path, name).relative_to(folder))
        for path, folders, files in os.walk(folder)
        for name in (*files, *(name for name in folders if Path(path, name).is_symlink()))
    )


def _describe(path: Path, name: str, kind: str) -> Output:
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    return Output(name, kind, path.stat().st_size, digest)


def _add_lines(folder: Path, outputs: Sequence[Output]) -> None:
    """Append lines to a folder's record, which is created; the last line of a file is not doubled.

    Several processes may append at once: each writes all its lines in one call.
    """
    known = read_outputs(folder)
    new = [line for line in outputs if known.get(line.file, [None])[-1] != line]
    content = "".join(json.dumps(asdict(line), sort_keys=True) + "\n" for line in new).encode()
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    handle = os.open(folder / RECORD, flags, 0o644)
    try:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":  # of a process on a full disk
            content = b"\n" + content
        if os.write(handle, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
    finally:
        os.close(handle)
