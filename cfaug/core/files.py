"""Files: written whole or not at all, hidden ones left out, and prompt files."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO

from cfaug.core.errors import UserError
from cfaug.core.safety.yaml_text import MOST_CHARACTERS, parse_yaml
from cfaug.core.temporaries import temporary_name, temporary_start, tidy

READ_AT_ONCE = 2**22
REPOSITORY = re.compile(r"(models|datasets|spaces)--.+")
"""Name of a repository in the Hub's cache; its snapshots are links to files beside them."""


@contextmanager
def replace_file(path: Path, temporary: Path | None = None) -> Iterator[BinaryIO]:
    """Open a private file that replaces ``path`` when the block ends without an error.

    A reader, even after a power cut, sees all of it or the old file.

    Args:
        temporary: the temporary file, on the same disk, which a killed process leaves behind;
            ``None`` takes a name of this process, whose leftovers a later one removes.

    Raises:
        OSError: naming ``path``, if the disk is full; the old file is kept.
    """
    fresh = temporary or temporary_name(path)
    tidy(path.parent)
    try:
        with fresh.open("wb") as handle:
            yield handle
            sync(handle)
        os.replace(fresh, path)
    except OSError as error:
        if error.errno is None:  # an error of the network that the caller reads from
            raise
        raise with_path(error, path) from error
    finally:
        fresh.unlink(missing_ok=True)


def sync(handle: BinaryIO) -> None:
    """Flush an open file to the disk."""
    handle.flush()
    os.fsync(handle.fileno())


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically: a reader, even after a power cut, sees all of it or the old one."""
    with replace_file(path) as handle:
        handle.write(content)


def write_json(
    path: Path, content: Mapping[str, Any], *, indent: int = 1, sort_keys: bool = True
) -> None:
    """Write JSON as ``write_file`` does.

    Args:
        sort_keys: whether keys are sorted or stay in their order.
    """
    write_file(path, to_json(content, indent=indent, sort_keys=sort_keys))


def to_json(content: Mapping[str, Any], *, indent: int = 1, sort_keys: bool = True) -> bytes:
    """Return JSON as files have it, with a newline at the end."""
    return f"{json.dumps(content, indent=indent, sort_keys=sort_keys)}\n".encode()


def with_path(error: OSError, path: Path) -> OSError:
    """Return the disk's error with ``path``, since the error of a write does not name its file."""
    return OSError(error.errno, error.strerror, str(path))


def check_place(name: str | Path, key: str) -> Path:
    """Refuse a folder that cannot be made or written to, before anything is done that goes there.

    A folder with files in it may be read-only: perhaps all that a command needs is there.

    Args:
        name: the folder, which need not exist yet.
        key: the setting that names it, such as ``paths.cache``.
    """
    folder = Path(name).expanduser()
    try:
        for part in (folder, *folder.parents):
            if part.is_dir():
                empty = part != folder or not any(part.iterdir())
                if empty and not os.access(part, os.W_OK | os.X_OK):
                    raise UserError(
                        f"{key}={name} cannot be written: {part} is read-only; name another folder"
                    )
                break
            if part.exists() or part.is_symlink():
                kind = "a file" if part.exists() else "a link to nothing"
                raise UserError(
                    f"{key}={name} is invalid: {part} is {kind}, not a folder; name another, or "
                    "remove it"
                )
    except OSError as error:
        raise UserError(
            f"{key}={name} is invalid: {error.strerror}; name another folder"
        ) from error
    return folder


def advise(error: OSError, key: str) -> str:
    """Say what to do about a folder that refuses, by the cause.

    >>> advise(OSError(errno.EROFS, ""), "paths.cache")
    'it is read-only: choose another paths.cache'

    Args:
        key: the setting that names the folder.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"free some space there, or choose another {key}"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"it is read-only: choose another {key}"
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return f"a file is in its way: remove it, or choose another {key}"
    return f"choose another {key}"


def require_regular(file: Path) -> Path:
    """Return a file if it may be opened; a missing file is left to the caller to report.

    Opening a pipe could block for ever, and a device may have no end.

    Raises:
        OSError: if its state cannot be read for another reason than that it is missing.
    """
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return file
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # opening a folder fails with a clear error
        kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(mode), "a device")
        raise UserError(
            f"{file} is not a regular file but {kind}; it is not opened: remove or rename it"
        )
    return file


def check_links(folder: Path, permitted: Sequence[Path] = ()) -> None:
    """Refuse a received folder with a link that leads out of it, or with a pipe or a device.

    A link in a folder from somebody else could have any file of this disk read as a caption, an
    image or a vocabulary, and published. The folder itself may be a link, as the user named it; a
    snapshot in the Hub's cache may lead to its repository's files. One walk sees every file before
    any reader does, and needs no state of regular files.

    Args:
        permitted: further folders to which links may lead.
    """
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except OSError:
            continue  # reported by the reader, which opens it too
        with entries:
            for entry in entries:
                if entry.is_symlink():
                    check_link(Path(entry.path), folder, permitted)
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    require_regular(Path(entry.path))


def check_link(link: Path, folder: Path, permitted: Sequence[Path] = ()) -> None:
    """Refuse one file as ``check_links`` does; it may lie behind links, or be one.

    Args:
        permitted: further folders to which links may lead.
    """
    try:
        require_regular(link)
    except OSError as error:
        raise UserError(f"{link} cannot be read: {error.strerror}") from error
    target = Path(os.path.realpath(link))
    home, whole = folder, folder.resolve()
    for path in (whole, *whole.parents):  # a snapshot in the Hub's cache, or a part of one
        if path.parent.name == "snapshots" and REPOSITORY.fullmatch(path.parent.parent.name):
            home = path.parent.parent
            break
    if not any(target.is_relative_to(os.path.realpath(place)) for place in (home, *permitted)):
        root = target if target.is_dir() else target.parent
        raise UserError(
            f"{link} is a link that leads out of {folder}, to {target}; it is not followed. If you "
            "made it, put the files in its place, or, for images and lists, permit the folder: "
            f"'paths.image_roots=[{root}]'; otherwise remove it"
        )


def read_lines(file: Path) -> list[str]:
    """Return the lines of a text file that are not empty, without spaces around them."""
    try:
        text = require_regular(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    if not lines:
        raise UserError(f"{file} is empty; it should have a line for each class or template")
    return lines


def checksum(file: Path) -> int:
    """Return the CRC-32 of a file, which detects damage and is computed as fast as a disk reads."""
    check = 0
    with require_regular(file).open("rb") as handle:
        while block := handle.read(READ_AT_ONCE):
            check = zlib.crc32(block, check)
    return check


@contextmanager
def whole_folder(folder: Path, whole: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield a private folder to fill, which is renamed to ``folder`` when the block succeeds.

    A power cut leaves all of it or nothing. An existing folder, such as one that another process
    wrote first, is kept if it is whole and replaced if it is damaged.

    Args:
        folder: the final place; its parents are created.

    Raises:
        OSError: if the disk cannot be written; no temporary folder remains then.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    tidy(folder.parent)
    start = temporary_start(folder.with_name(f".{folder.name}")).name
    temporary = Path(tempfile.mkdtemp(prefix=f"{start}-", suffix=".tmp", dir=folder.parent))
    aside = temporary.with_name(f"{temporary.stem}-damaged.tmp")
    try:
        yield temporary
        temporary.chmod(0o755)  # readable for others: mkdtemp's is private to its owner
        sync_tree(temporary)
        try:
            temporary.rename(folder)
        except OSError:
            if not whole(folder):
                folder.rename(aside)
                temporary.rename(folder)
        _sync_one(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, which replaces ``folder`` when the block succeeds.

    The old folder is removed only then. A block that fails or is killed leaves ``folder`` as it
    was; its files are removed by the next call. Only one process may write ``folder`` at a time;
    ``whole_folder`` is for several.

    Raises:
        OSError: naming ``folder``, if the disk is full.
    """
    fresh, stale = (folder.with_name(f".{folder.name}.{tag}") for tag in ("new", "old"))
    for leftover in (fresh, stale):
        shutil.rmtree(leftover, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        yield fresh
        sync_tree(fresh)
        if folder.exists():
            folder.rename(stale)
        fresh.rename(folder)
    except OSError as error:
        raise with_path(error, folder) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    _sync_one(folder.parent)
    shutil.rmtree(stale, ignore_errors=True)


def sync_tree(folder: Path) -> None:
    """Flush a folder and everything in it to the disk."""
    for here, _, names in os.walk(folder):
        for name in names:
            _sync_one(Path(here, name))
        _sync_one(Path(here))


def _sync_one(path: Path) -> None:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


HIDDEN = re.compile(
    r"\.|(?:__macosx|thumbs\.db|desktop\.ini|@eadir|\$recycle\.bin|lost\+found"
    r"|system volume information)\Z",
    re.IGNORECASE | re.ASCII,
)
"""Matches names that begin with a dot, or that systems give their own files: macOS, Windows,
Synology, ext4."""


def is_hidden(name: str) -> bool:
    """Return whether a file or folder belongs to a program, by its name without its folder.

    >>> is_hidden(".ipynb_checkpoints"), is_hidden("._a.jpg"), is_hidden("__MACOSX")
    (True, True, True)
    >>> is_hidden("cat"), is_hidden("a.b.jpg")
    (False, False)
    """
    return HIDDEN.match(name) is not None


def visible_files(files: Iterable[Path]) -> list[Path]:
    """Return the files that are not hidden, sorted; ``glob`` yields the others, too."""
    return sorted(file for file in files if not is_hidden(file.name))


# Prompt files: shipped ones by name, and the user's own YAML files.


def find_prompt_file(
    name: str, shipped: Sequence[str], folder: str, setting: str, holds: str
) -> Path:
    """Return a shipped prompt file by its name, or the user's own by its path.

    Args:
        name: one of ``shipped``, or the path of a file.
        shipped: the names of the files in ``folder``.
        folder: the folder of the shipped files within the package.
        setting: the setting that gives the name, for the error.
        holds: the required content of the user's own file, for the error.
    """
    if name in shipped:
        return Path(str(files("cfaug"))) / folder / f"{name}.yaml"
    file = Path(name).expanduser()
    if not file.is_file():
        raise UserError(
            f"{setting}={name}: there is no such file; choose {', '.join(shipped)}, or a YAML file "
            f"with {holds}"
        )
    return file


def read_keys(file: Path, wanted: Collection[str]) -> dict[str, Any]:
    """Return the mapping that a YAML file holds.

    Args:
        file: a YAML file, within the limits of ``parse_yaml``.
        wanted: the required keys; no others are allowed.
    """
    content = read_yaml(file)
    if not isinstance(content, dict) or sorted(map(str, content)) != sorted(wanted):
        raise UserError(f"{file} should have the keys {', '.join(wanted)}, and no other")
    return content


def read_yaml(file: Path, most: int = MOST_CHARACTERS) -> Any:
    """Return the content of a YAML file, within the limits of ``parse_yaml``.

    Args:
        most: the largest size of the file in bytes.
    """
    return parse_yaml(read_limited(file, most), file, most)


def read_limited(file: Path, most: int) -> str:
    """Return a text of at most ``most`` bytes, encoded as UTF-8."""
    try:
        with require_regular(file).open("rb") as handle:
            content = handle.read(most + 1)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > most:
        raise UserError(f"{file} is larger than {most:,} bytes; it is not read")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 ({error}): save it as UTF-8") from error
