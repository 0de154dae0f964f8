"""The records of a list of images, in any format of list.

A record has a column for the image and one for its caption; see ``cfaug.data.sources.columns``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.hidden import visible_files
from cfaug.data.sources.coco import photos_of
from cfaug.data.sources.columns import CAPTION, IMAGE, columns_of
from cfaug.data.sources.lists import (
    LISTS,
    Record,
    json_file,
    list_records,
    table_records,
    text_lines,
)
from cfaug.data.sources.parquet import holds_images, open_parquet, records

NAMES = ("captions", "metadata", "pairs", "annotations", "results")
"""Names of a list that is not the only one, in this order."""

ANYTHING = ("annotations", "results")
"""Names among them that other lists have too: used only for one with images and captions."""

OBJECTS = ("captions", "annotations")
"""Names among them of a json that may be a single object."""

HEAD = 64 * 1024
"""Number of bytes of a json that tell whether it is a list of images."""

FLICKR_ROW = re.compile(r"([^|]+)\|\s*(\d+)\s*\|?\s+(\S.*)")
FLICKR8K = re.compile(r"captions\.txt|.+\.token\.txt", re.IGNORECASE)
"""Its lists: ``captions.txt``, a csv, and ``Flickr8k.token.txt``; any other text is a caption."""

FLICKR_TOKEN = re.compile(r"([^\t#]+)#(\d+)\t(\S.*)")


def find_list(path: Path) -> Path | None:
    """Return the list of a folder, by its name or as the only one; or the path, if it is a list.

    Raises:
        UserError: if several lists of images and captions have such a name.
    """
    files = _files(path)
    if path.is_file():
        return next((file for file in files if _names_images(file, named=True)), None)
    called = [file for name in NAMES for file in files if file.stem.lower() == name]
    named = [file for file in called if _names_images(file, named=True)]
    if named:
        check_one_list(path, named)
        return named[0]
    found = [file for file in files if _names_images(file, named=False)]
    return found[0] if len(found) == 1 else None


def check_one_list(path: Path, lists: Sequence[Path]) -> None:
    """Refuse a folder with several lists of images and captions: any could be the one to read.

    Raises:
        UserError: naming all of them.
    """
    found = [file for file in lists if _has_captions(file)]
    if len(found) > 1:
        raise UserError(
            f"{path} has several lists of images and captions, "
            f"{', '.join(file.name for file in found)}: name the one to read, such as {found[0]}, "
            "or put the others elsewhere"
        )


def unnamed_lists(path: Path) -> list[Path]:
    """Return the lists of images of a folder, whatever their names."""
    return [file for file in _files(path) if _names_images(file, named=False)]


def unread_lists(path: Path) -> list[str]:
    """Return the names of the files of a folder that are called as lists are."""
    return [file.name for file in _files(path)]


def other_lists(path: Path) -> list[str]:
    """Return the names of the lists of a source that are not read, whatever they list."""
    chosen = find_list(path)
    home = path if path.is_dir() else path.parent
    return [file.name for file in _files(home) if file != chosen]


def _files(path: Path) -> list[Path]:
    """Return the possible lists of a folder; or the path, if it is one."""
    endings = (*LISTS, ".parquet", ".token")
    return visible_files(
        file
        for file in ([path] if path.is_file() else path.glob("*.*"))
        if file.suffix.lower() in endings or FLICKR8K.fullmatch(file.name) is not None
    )


def _names_images(file: Path, *, named: bool) -> bool:
    """Return whether a file is a list of images; a json or parquet may be anything."""
    kind = file.suffix.lower()
    if kind == ".parquet":
        return named and _names_files(file)
    if not file.is_file():
        return False
    if kind != ".json":
        sure = kind != ".txt" and not (named and file.stem.lower() in ANYTHING)
        return sure or _has_columns(file) or _has_captions(file)
    with file.open("rb") as handle:
        head = handle.read(HEAD).decode(errors="replace").removeprefix("\ufeff")
    if re.match(r"\s*\[\s*\{", head):
        wanted = (IMAGE, (*CAPTION, "conversations"))
        return all(re.search(rf'"(?:{"|".join(one)})(?:_\d)?"\s*:', head, re.I) for one in wanted)
    return file.stem.lower() in OBJECTS and re.match(r"\s*\{", head) is not None


def _has_columns(file: Path) -> bool:
    """Return whether the first line of a text is ``image,caption`` or the like."""
    try:
        first = next((line for _, line in text_lines(file)), "")
    except UserError:
        return False
    names = {name.strip().lower() for name in re.split(r"[,;|\t]", first)}
    return file.suffix.lower() == ".txt" and bool(names & {*IMAGE}) and bool(names & {*CAPTION})


def _names_files(file: Path) -> bool:
    """Return whether a parquet has a column of images by name, not of the images themselves."""
    with open_parquet(file) as table:
        return any(one.name in IMAGE and not holds_images(one.type) for one in table.schema_arrow)


def _has_captions(file: Path) -> bool:
    """Return whether the first record of a list has an image and a caption."""
    try:
        return any(columns_of(record, where) for where, record in islice(image_records(file), 1))
    except UserError:
        return False


def image_records(file: Path) -> Iterator[Record]:
    """Yield (place, record) for every image and caption of a list.

    Args:
        file: a list as in ``cfaug.data.sources.lists``; a parquet of file names; a json with
            ``images`` and ``annotations`` like COCO's, or with the caption or captions of each file
            by name; LLaVA's conversations; or Flickr30k's ``results.csv`` or ``.token``.

    Raises:
        UserError: if an entry is invalid, naming file and line.
    """
    kind = file.suffix.lower()
    if kind == ".parquet":
        yield from records([file])
    elif kind == ".json":
        yield from map(_of_chat, _of_json(file))
    elif kind == ".token" or file.name.lower().endswith(".token.txt"):
        yield from _match_lines(file, FLICKR_TOKEN, "NAME.jpg#N and a caption, a tab between them")
    elif kind == ".txt":
        yield from table_records(file, unquoted=True)
    elif _is_flickr(file):
        yield from _match_lines(file, FLICKR_ROW, "NAME.jpg| N| a caption", header=True)
    else:
        yield from map(_of_chat, list_records(file))


def _is_flickr(file: Path) -> bool:
    if file.suffix.lower() != ".csv":
        return False
    first = next((line for _, line in text_lines(file)), "")
    return [name.strip() for name in first.split("|")] == [
        "image_name",
        "comment_number",
        "comment",
    ]


def _match_lines(
    file: Path, pattern: re.Pattern[str], form: str, *, header: bool = False
) -> Iterator[Record]:
    """Yield the records of Flickr30k's files: nothing is quoted, and one row lacks a bar."""
    for number, (where, line) in enumerate(text_lines(file)):
        if (header and number == 0) or not line.strip():
            continue
        found = pattern.fullmatch(line.strip())
        if found is None:
            raise UserError(f"{where} should be {form}, not {line.strip()[:80]!r}")
        yield where, {"image": found[1].strip(), "caption": found[3]}


def _of_json(file: Path) -> Iterator[Record]:
    about = json_file(file)
    if not isinstance(about, dict):
        yield from list_records(file)
    elif isinstance(about.get("images"), list):
        for photo in photos_of(about, file):
            if photo.texts:
                yield photo.where, {"image": photo.file_name, "captions": photo.texts}
    elif about and all(isinstance(found, str | list) for found in about.values()):
        for name, found in about.items():
            yield f"{file}, {name!r}", {"image": name, "captions": found}
    else:
        raise UserError(
            f"{file} should be a list of objects with image and caption; or an object with images "
            "and annotations, as COCO's; or one that names the caption of each file"
        )


def _of_chat(given: Record) -> Record:
    """Return LLaVA's conversation as a caption, if it is one request and its answer."""
    where, record = given
    chat = record.get("conversations")
    if chat is None:
        return given
    match chat:
        case [{"from": "human", "value": str()}, {"from": "gpt", "value": str(answer)}]:
            rest: Mapping[str, Any] = {k: v for k, v in record.items() if k != "conversations"}
            return where, {**rest, "caption": answer}
    raise UserError(
        f"{where}: the conversation is not a caption: only one request of a human and one answer "
        "of gpt are read as the caption of an image. Remove longer conversations"
    )
