"""Files read within limits, hidden ones and foreign links left out, and prompt files."""

from __future__ import annotations

import errno
import os
import re
import stat
import zlib
from collections.abc import Collection, Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.safety.yaml_text import MOST_CHARACTERS, parse_yaml

READ_AT_ONCE = 2**22
REPOSITORY = re.compile(r"(models|datasets|spaces)--.+")
"""Name of a repository in the Hub's cache; its snapshots are links to files beside them."""


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
