"""The members of a tar shard and their offsets, from its headers; nothing is extracted.

webdataset reads samples in their order only, keeps a member that leads out of the shard, and
unpickles ``.pyd`` and ``.pkl`` when it decodes. It takes 1 s to import and 1.5 times as long to
list a shard, and its writer by default stores the time in every member, so that the same sets give
other bytes.
"""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.hidden import is_hidden

PICKLES = (".pkl", ".pickle", ".pyd", ".pth", ".pt", ".ckpt", ".joblib", ".bin")
"""Extensions of members that a WebDataset reader might unpickle."""

Sample = dict[str, tuple[int, int]]
"""{extension: (offset, length)} of the members that share a key."""


def scan(tar_file: Path, hidden: Counter[str] | None = None) -> Iterator[tuple[str, Sample]]:
    """Yield (key, sample) for each run of members with one key.

    Args:
        tar_file: the tar.
        hidden: counts the members that are left out because a part of their name is hidden, by that
            part; ``None`` does not count them.

    Raises:
        UserError: naming the tar and the member, for a truncated tar, a link, a path that leads out
            of the shard, a pickle, or a dot in a key.
    """
    key, sample = None, Sample()
    try:
        with tarfile.open(require_regular(tar_file), "r:") as tar:
            for entry in tar:
                tar.members = []  # type: ignore[attr-defined]  # or it keeps every header it saw
                if entry.isdir():
                    continue
                if (owner := next(filter(is_hidden, _parts(entry.name)), None)) is not None:
                    if hidden is not None:
                        hidden[owner] += 1
                    continue
                name, extension = _checked_name(entry, tar_file)
                if name != key:
                    if key is not None:
                        yield key, sample
                    key, sample = name, Sample()
                if extension == ".npy":
                    _check_npy(tar, entry, tar_file)
                if extension in sample:
                    raise UserError(f"{tar_file}: {entry.name} is duplicated")
                sample[extension] = (entry.offset_data, entry.size)
            _check_end(tar_file, tar.offset)
    except tarfile.TarError as error:
        raise UserError(
            f"{tar_file} is truncated or not a tar ({error}); fetch or make it again"
        ) from error
    except OSError as error:
        raise UserError(f"{tar_file} cannot be read: {error.strerror}") from error
    if key is not None:
        yield key, sample


def _check_end(tar_file: Path, offset: int) -> None:
    """Refuse a tar whose headers do not end in a block of zeros.

    tarfile reads the end of the file, or a damaged header, as the end of the archive; either would
    silently lose the rest.
    """
    with tar_file.open("rb") as handle:
        handle.seek(offset)
        if handle.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise UserError(
                f"{tar_file} is truncated or damaged: no end-of-archive mark at byte {offset}; "
                "fetch or make it again"
            )


def _parts(name: str) -> Iterator[str]:
    return (part for part in name.split("/") if part not in ("", ".", ".."))


def _checked_name(entry: tarfile.TarInfo, tar_file: Path) -> tuple[str, str]:
    name = entry.name.removeprefix("./")
    if name.startswith("/") or ".." in name.split("/"):
        raise UserError(f"{tar_file}: member {entry.name!r} leads out of the shard; it is not read")
    if not entry.isfile() or entry.issparse():
        raise UserError(
            f"{tar_file}: member {entry.name!r} is a link or device; only plain files are read"
        )
    folder, _, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    extension = f".{extension.lower()}"
    if extension.endswith(PICKLES):
        raise _pickle(entry, tar_file)
    if "." in extension[1:]:
        raise UserError(
            f"{tar_file}: member {entry.name!r} has a dot in its key, which breaks WebDataset's "
            "grouping; rename it"
        )
    return (f"{folder}/{stem}" if folder else stem), extension


def _check_npy(tar: tarfile.TarFile, entry: tarfile.TarInfo, tar_file: Path) -> None:
    content = tar.extractfile(entry)
    assert content is not None
    if b"|O" in content.readline(1 << 16):  # the header is one line; |O is the dtype of objects
        raise _pickle(entry, tar_file)


def _pickle(entry: tarfile.TarInfo, tar_file: Path) -> UserError:
    return UserError(f"{tar_file}: member {entry.name!r} may be a pickle; shards never hold one")
