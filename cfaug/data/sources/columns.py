"""The columns of a list, recognised by their usual names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import visible_files
from cfaug.core.known_names import nearest
from cfaug.core.pixels import IMAGES
from cfaug.data.sources.coco import photos_of
from cfaug.data.sources.fields import field_names, version_of
from cfaug.data.sources.lists import (
    LISTS,
    Record,
    json_file,
    list_records,
    table_records,
    text_lines,
)
from cfaug.data.sources.parquet import column_kinds, holds_images, records
from cfaug.data.sources.row import HeaderError, is_null, split_home
from cfaug.data.sources.splits import (
    SplitChoice,
    SplitSurvey,
    choose_split,
    may_be_split,
    split_kind,
)

IMAGE = ("image", "file_name", "filename", "filepath", "image_path", "path", "img", "image_name")
CAPTION = (
    "caption", "text", "captions", "title", "sentence", "sentences", "raw", "comment",
)  # fmt: skip
PHOTO = (
    "photo", "photo_path", "original", "original_image", "image_original", "original_path",
    "source", "source_image", "source_img", "source_file", "input", "input_image", "clean",
    "clean_image",
)  # fmt: skip
EDIT = (
    "edit", "edited", "edited_image", "image_edited", "edited_img", "edited_file", "edited_path",
    "edit_image", "edit_path", "cf_image", "counterfactual", "counterfactual_image", "target",
    "target_image", "target_img", "output", "output_image", "result", "corrupted",
    "corrupted_image", "modified_image", "generated", "generated_image",
)  # fmt: skip
EDIT_LISTS = ("edits", "counterfactuals")
"""Columns of JSON lists of edits, each a name or an object with an image."""
GROUP = ("group", "image_id")
SETS = ("counterfactuals",)
"""A column of JSON lists of objects, each with an image and a caption."""
MARKS = {
    "original": ("original", "orig", "source", "real", "before"),
    "edited": ("cf", "counterfactual", "edited", "modified", "target", "after"),
    "negative": ("neg", "negative", "hard_negative", "hard_neg", "foil"),
}
"""Words before or after the name of a column that tell which member it belongs to."""
ONLY_MARKED = ("prompt",)
"""A caption only with a mark, such as InstructPix2Pix's ``edited_prompt``; otherwise unknown."""
TEXTS_ONLY = re.compile(r"(?:hard_)?(?:negatives|negs|foils)|hard_negative|foil|foil_captions")
"""Whole names of columns of negatives."""
SUSPICIOUS = re.compile(r"(?:cfs?|counterfactuals?|neg|negatives?|hard_neg\w*|foils?)(?:_.*|\d*)")
"""Names that look like columns of a counterfactual, which are read or refused, never ignored."""
TABLE_LINE = re.compile(r"(.+\.(?:csv|tsv|txt)), line \d+", re.IGNORECASE)
"""The place of a record in a table, whose columns are those of its header."""
Place = tuple[str, int]
"""The owner of a column: ("original", 0), ("member", N), ("edited", N) or ("negative", N)."""
ORDER = ("original", "member", "edited", "negative")


@dataclass(frozen=True)
class Columns:
    """The meaning of a list's columns.

    Attributes:
        members: (image, caption) of each member of a set, the original first; a list without
            counterfactuals has one.
        captions: further captions of the first image, such as ``caption_1`` to ``caption_5``.
        negatives: columns of texts that are wrong about the first image and have no image
            themselves.
        sets: the column of a list of further members, each with an image and a caption; ``None``
            without one.
        group: the column that names the photo of an example; ``None`` without one.
        id: the column that names the example; ``None`` without one.
    """

    members: tuple[tuple[str, str], ...]
    captions: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    sets: str | None = None
    group: str | None = None
    id: str | None = None
    unused: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[str, ...]:
        """Every column that is read."""
        more = (self.sets, self.group, self.id if self.is_set else None)
        pairs = (name for pair in self.members for name in pair)
        return (
            *pairs,
            *self.captions,
            *self.negatives,
            *(name for name in more if name is not None),
        )

    @property
    def is_set(self) -> bool:
        """Whether a record is a set of counterfactuals."""
        return len(self.members) > 1 or self.sets is not None


def one_column(
    names: Iterable[str], wanted: Sequence[str], kind: str, where: str = ""
) -> str | None:
    """Return the only one of ``names`` that is in ``wanted``, or ``None``.

    Args:
        wanted: the usual names, in lower case.
        kind: the content of the column, such as ``image``, for the error.
    """
    matches = [name for name in names if name.lower() in wanted]
    if len(matches) > 1:
        raise _ambiguous(matches, kind, where)
    return matches[0] if matches else None


def _ambiguous(names: Sequence[str], kind: str, where: str) -> UserError:
    return UserError(
        f"{where}: {', '.join(names)} could each be the {kind}; keep one under such a name, and "
        "rename or remove the others"
    )


def columns_of(record: Mapping[str, Any], where: str) -> Columns:
    """Return the meaning of a record's columns; null columns count as missing.

    A counterfactual's columns may also be empty, because a csv cannot represent null otherwise.
    """

    def is_further(name: str) -> bool:
        places = (_place(_plain(name), bases) for bases in (IMAGE, CAPTION))
        return TEXTS_ONLY.fullmatch(_plain(name)) is not None or any(
            owner is not None and owner[0] != "original" for owner in places
        )

    names = tuple(name for name, value in record.items() if not is_null(value))
    if "" in record.values():
        names = tuple(name for name in names if record[name] != "" or not is_further(name))
    try:
        return read_columns(names)
    except UserError as error:
        for kind, usual in (("image", IMAGE), ("caption", CAPTION)):
            owners = {name: _place(_plain(name), usual) for name in record}
            there = {owners[name] for name in names}
            blank = [n for n in owners if n not in names and owners[n] not in {None, *there}]
            if blank:  # and no other column has its content
                raise UserError(
                    f"{where}: the {kind} is missing ({blank[0]!r} is null); write it or remove "
                    "the example"
                ) from error
        table = TABLE_LINE.fullmatch(where)
        if table and isinstance(error, HeaderError):
            raise HeaderError(f"{table[1]}: {error}") from error
        raise UserError(f"{where}: {error}") from error


@lru_cache(maxsize=256)
def read_columns(names: tuple[str, ...]) -> Columns:
    """Return the meaning of a list's columns.

    An image is paired with its caption: ``image, caption``, ``filepath, title``; a counterfactual's
    columns have the same mark, ``cf_image, cf_caption`` or ``image_edited, caption_edited``; the
    members of larger sets are numbered, ``image_0, image_1, image_2``.
    """
    images, captions = _by_place(names, IMAGE), _by_place(names, CAPTION)
    further: tuple[str, ...] = ()
    if ("original", 0) not in captions and all(owner[0] != "member" for owner in images):
        # The only image has no number: numbered captions are all captions of it.
        numbered = sorted(owner for owner in captions if owner[0] == "member")
        further = tuple(captions.pop(owner) for owner in numbered)
    first_image = _original(images, IMAGE, names)
    first_caption = further[0] if further else _original(captions, CAPTION, names)
    negatives = [name for name in names if TEXTS_ONLY.fullmatch(_plain(name))]
    for owner in sorted(captions, key=_order):
        if owner not in images and (
            owner[0] == "negative" or (owner[0] == "edited" and not images)
        ):
            negatives.append(captions.pop(owner))
    for owner in sorted({*images} ^ {*captions}, key=_order):
        there, missing = ("image", "caption") if owner in images else ("caption", "image")
        name = (images if owner in images else captions)[owner]
        raise UserError(f"{name!r} is the {there} of a set's member whose {missing} is missing")
    pairs = [(images[owner], captions[owner]) for owner in sorted(images, key=_order)]
    columns = Columns(
        members=((first_image, first_caption), *pairs),
        captions=further[1:],
        negatives=tuple(negatives),
        sets=one_column(names, SETS, "list of counterfactuals"),
        group=next((name for alias in GROUP for name in names if name.lower() == alias), None),
        id=next((name for name in names if name.lower() == "id"), None),
    )
    unused = tuple(name for name in names if name not in columns.used)
    strange = [name for name in unused if SUSPICIOUS.fullmatch(_plain(name))]
    if strange:
        raise UserError(
            f"{', '.join(strange)} looks like part of a counterfactual and is not understood: call "
            "its image and caption cf_image and cf_caption (image_0, caption_0, image_1, ... of "
            "larger sets), captions without an image neg_caption, and anything else otherwise, or "
            "remove the column"
        )
    return replace(columns, unused=unused)


def find_captions(names: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the columns of the caption of a photo and of that of its edit, as far as there are.

    >>> find_captions(["image", "caption", "edited_image", "edited_caption"])
    ('caption', 'edited_caption')
    """
    captions = _by_place(names, CAPTION)
    return captions.get(("original", 0)), captions.get(("edited", 0))


def _plain(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _by_place(names: Sequence[str], bases: Sequence[str]) -> dict[Place, str]:
    def rank(name: str) -> int:
        plain = _plain(name)
        return bases.index(plain) if plain in bases else len(bases)

    by_owner: dict[Place, str] = {}
    for name in names:
        owner = _place(_plain(name), bases)
        if owner is None:
            continue
        if owner in by_owner and bases is CAPTION:
            raise _ambiguous([by_owner[owner], name], "caption", "two columns")
        # Of several names for a file the most usual one is used: others may not name an image.
        if owner not in by_owner or rank(name) < rank(by_owner[owner]):
            by_owner[owner] = name
    return by_owner


@lru_cache(maxsize=1024)
def _place(name: str, bases: tuple[str, ...]) -> Place | None:
    """Return the owner of a column; ``None`` if it is not an image or a caption.

    >>> _place("caption", CAPTION), _place("cf_image", IMAGE), _place("text_edited_2", CAPTION)
    (('original', 0), ('edited', 0), ('edited', 2))
    >>> _place("image_1", IMAGE), _place("neg_caption", CAPTION), _place("image_url", IMAGE)
    (('member', 1), ('negative', 0), None)
    """
    if name in bases:
        return "original", 0
    base = "|".join(bases)
    numbered = re.fullmatch(rf"(?:{base})_?(\d+)", name)
    if numbered:
        return "member", int(numbered[1])
    marked = f"{base}|{'|'.join(ONLY_MARKED)}" if bases is CAPTION else base
    for whose, words in MARKS.items():
        mark = "|".join(words)
        forms = (
            rf"(?:{mark})_(?:{marked})_?(\d*)",
            rf"(?:{marked})_(?:{mark})_?(\d*)",
            rf"(?:{mark})_?(\d+)_(?:{marked})",
        )
        for form in forms:
            if match := re.fullmatch(form, name):
                return whose, int(match[1] or 0)
    return None


def _original(by_owner: dict[Place, str], usual: Sequence[str], names: Sequence[str]) -> str:
    for owner in (("original", 0), ("member", 0), ("member", 1)):
        if owner in by_owner:
            return by_owner.pop(owner)
    if not names:
        raise HeaderError(f"none of the columns {', '.join(usual)}; the row is empty")
    headless = [name for name in names if name.lower().endswith(IMAGES)]
    # The photo of an edit has a name of its own.
    of_edits = usual is IMAGE and any(name.lower() in (*EDIT, *EDIT_LISTS) for name in names)
    wanted = (*usual, *PHOTO[:1]) if of_edits else tuple(usual)
    close = [(name, near) for name in names if (near := nearest(name.lower(), wanted))]
    meant = max(close, key=lambda pair: SequenceMatcher(None, *pair).ratio(), default=None)
    remedy = f"say which one holds it: 'data.fields={{{usual[0]}: {names[0]}}}'"
    if headless:
        remedy = (
            f"{headless[0]!r} is a file: the first line should name the columns, as image and "
            "caption"
        )
    elif meant is not None:
        name = meant[1] if meant[1] in PHOTO else usual[0]
        remedy = (
            f"is {meant[0]} the one that holds it? 'data.fields={{{name}: {meant[0]}}}' says so"
        )
    raise HeaderError(
        f"none of the columns {', '.join(wanted)}; there are {', '.join(names)}: {remedy}"
    )


def _order(owner: Place) -> tuple[int, int]:
    return ORDER.index(owner[0]), owner[1]


REGION = {"bbox", "bboxes", "bndbox", "box", "boxes", "bounding_box", "bounding_boxes"}
"""Columns of a region of the image."""
CORNERS = ({"x", "y", "width", "height"}, {"x", "y", "w", "h"}, {"x1", "y1", "x2", "y2"},
           {"xmin", "ymin", "xmax", "ymax"}, {"roi.x1", "roi.y1", "roi.x2", "roi.y2"})  # fmt: skip
"""Columns that are a region together."""


def region_notes(unused: Sequence[str]) -> tuple[str, ...]:
    """Return a note if columns that are not read give a region of the image, as in RefCOCO."""
    plain = {_plain(name): name for name in unused}
    named = [names for names in ({key} for key in sorted(REGION)) if names <= set(plain)]
    there = [*named, *(names for names in CORNERS if names <= set(plain))]
    columns = [name for key, name in plain.items() if any(key in names for names in there)]
    if not columns:
        return ()
    return (
        f"{', '.join(columns)} say{'s' * (len(columns) == 1)} a region of the image, and each text "
        "is read as one about the whole image: if it is not, cut the regions out",
    )


# The records of a list of images, in any format of list.

NAMES = ("captions", "metadata", "pairs", "annotations", "results")
"""Names of a list that is not the only one, in this order."""
ANYTHING = ("annotations", "results")
"""Names among them that other lists have too: used only for one with images and captions."""
OBJECTS = ("captions", "annotations")
"""Names among them of a json that may be a single object."""
PACKED = (".bz2", ".gz", ".xz", ".zst")
"""Endings of compressed files."""
HEAD = 64 * 1024
"""Number of bytes of a json that tell whether it is a list of images."""
FLICKR_HEADER = re.compile(r"\s*image_name\s*\|\s*comment_number\s*\|\s*comment\s*")
FLICKR_ROW = re.compile(r"([^|]+)\|\s*(\d+)\s*\|?\s+(\S.*)")
FLICKR8K = re.compile(r"captions\.txt|.+\.token\.txt", re.IGNORECASE)
"""Its lists: ``captions.txt``, a csv, and ``Flickr8k.token.txt``; any other text is a caption."""
FLICKR_TOKEN = re.compile(r"([^\t#]+)#(\d+)\t(\S.*)")


QUESTION = re.compile(
    r"\banswer (?:the|this|with)\b|\bsingle word or phrase\b|\boption's letter\b", re.IGNORECASE
)
"""What LLaVA's instructions ask for if the answer is not a description."""


def find_list(path: Path) -> Path | None:
    """Return the list of a folder, by its name or as the only one; or the path, if it is a list.

    Args:
        path: a folder or a list, of which a split may be named, ``PATH:SPLIT``.
    """
    path = split_home(path)[0]
    files = _files(path)
    if path.is_file():
        return next((file for file in files if _names_images(file, named=True)), None)
    called = [file for name in NAMES for file in files if file.stem.lower() == name]
    named = [file for file in called if _names_images(file, named=True)]
    if named:
        check_one_list(path, named)
        return named[0]
    candidates = [file for file in files if _names_images(file, named=False)]
    return candidates[0] if len(candidates) == 1 else None


def check_one_list(path: Path, lists: Sequence[Path]) -> None:
    """Refuse a folder with several lists of images and captions: any could be the one to read."""
    captioned = [file for file in lists if has_captions(file)]
    if len(captioned) > 1:
        raise UserError(
            f"{path} has several lists of images and captions, "
            f"{', '.join(file.name for file in captioned)}: name the one to read, such as "
            f"{captioned[0]}, or put the others elsewhere"
        )


def check_unpacked(path: Path) -> None:
    """Refuse a compressed list, whether it is named itself or lies in the folder."""
    for file in visible_files([path] if path.is_file() else path.glob("*.*")):
        if file.suffix.lower() in PACKED and Path(file.stem).suffix.lower() in LISTS:
            raise UserError(f"{file} is compressed, and would not be read: unpack or remove it")


def unnamed_lists(path: Path) -> list[Path]:
    """Return the lists of images of a folder, whatever their names."""
    return [file for file in _files(path) if _names_images(file, named=False)]


def unread_lists(path: Path) -> list[str]:
    """Return the names of the files in a folder that have a list's usual name."""
    return [file.name for file in _files(path)]


def other_lists(path: Path) -> list[str]:
    """Return the names of the lists of a source that are not read, whatever they list."""
    chosen, path = find_list(path), split_home(path)[0]
    home = path if path.is_dir() else path.parent
    called = visible_files(home.glob("*.txt"))
    split_lists = [f for f in called if any(map(split_kind, re.split("[ _-]", f.stem)))]
    return [file.name for file in (*_files(home), *split_lists) if file != chosen]


def _files(path: Path) -> list[Path]:
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
        if not named:
            return False
        kinds = column_kinds(file).items()
        return any(name in IMAGE and not holds_images(kind) for name, kind in kinds)
    if not file.is_file():
        return False
    if kind == ".txt":
        # The first line of a list may be ``image,caption`` or the like.
        try:
            first = next((line for _, line in text_lines(file)), "")
        except UserError:
            first = ""
        header = dict.fromkeys(name.strip() for name in re.split(r"[,;|\t]", first))
        columns = {name.lower() for name in field_names().apply(header, file)}
        has_header = not columns.isdisjoint(IMAGE) and not columns.isdisjoint(CAPTION)
        return has_header or has_captions(file)
    if kind != ".json":
        return not (named and file.stem.lower() in ANYTHING) or has_captions(file)
    head = json_head(file)
    if re.match(r"\s*\[\s*\{", head):
        wanted = (IMAGE, (*CAPTION, "conversations"))
        return all(
            re.search(rf'"(?:{"|".join(aliases)})(?:_\d)?"\s*:', head, re.I) for aliases in wanted
        )
    return file.stem.lower() in OBJECTS and re.match(r"\s*\{", head) is not None


def json_head(file: Path) -> str:
    """Return the start of a json, by whose keys it is recognised."""
    with file.open("rb") as handle:
        head = handle.read(HEAD).decode(errors="replace").removeprefix("\ufeff")
    return field_names().head(head)


def has_captions(file: Path) -> bool:
    """Return whether the first record of a file is an image with a caption."""
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
    """
    kind = file.suffix.lower()
    if kind == ".parquet":
        yield from records([file])
    elif kind == ".json":
        yield from map(_of_chat, _of_json(file))
    elif kind == ".token" or file.name.lower().endswith(".token.txt"):
        yield from _match_lines(file, FLICKR_TOKEN, "NAME.jpg#N and a caption, a tab between them")
    elif kind == ".txt":
        yield from field_names().records(file, table_records(file, unquoted=True))
    elif kind == ".csv" and re.fullmatch(FLICKR_HEADER, next(text_lines(file), ("", ""))[1]):
        yield from _match_lines(file, FLICKR_ROW, "NAME.jpg| N| a caption", header=True)
    else:
        yield from map(_of_chat, list_records(file))


def choose_rows(path: Path, file: Path) -> SplitChoice:
    """Return which rows of a source's list are read.

    Args:
        path: the source, of which a split may be named.
    """
    return _choose_rows(path, file, version_of(file))


@lru_cache(maxsize=4)
def _choose_rows(path: Path, file: Path, version: tuple[Any, ...]) -> SplitChoice:
    records = (record for _, record in image_records(file))
    return choose_split(path, SplitSurvey.of(records, image_path))


def chosen_records(path: Path, file: Path) -> Iterator[Record]:
    """Yield the records of the chosen split of a list, ``image_records`` otherwise."""
    choice = choose_rows(path, file)
    for where, record in image_records(file):
        if choice.reads(record, image_path(record)):
            yield where, record


def image_path(record: Mapping[str, Any]) -> str:
    """Return the path of a record's image, "" if none is named."""
    named = (v for k, v in record.items() if k.lower() in IMAGE and isinstance(v, str))
    return next(named, "")


def _match_lines(
    file: Path, pattern: re.Pattern[str], form: str, *, header: bool = False
) -> Iterator[Record]:
    """Yield the records of Flickr30k's files: nothing is quoted, and one row lacks a bar."""
    for number, (where, line) in enumerate(text_lines(file)):
        if (header and number == 0) or not line.strip():
            continue
        match = pattern.fullmatch(line.strip())
        if match is None:
            raise UserError(f"{where} should be {form}, not {line.strip()[:80]!r}")
        yield where, {"image": match[1].strip(), "caption": match[3]}


def _of_json(file: Path) -> Iterator[Record]:
    about = json_file(file)
    if not isinstance(about, dict):
        yield from list_records(file)
    elif isinstance(about.get("images"), list):
        for photo in photos_of(about, file):
            if photo.texts:
                said = {k: v for k, v in photo.fields.items() if may_be_split(k)}
                yield photo.where, {**said, "image": photo.file_name, "captions": photo.texts}
    elif about and all(isinstance(texts, str | list) for texts in about.values()):
        for name, texts in about.items():
            yield f"{file}, {name!r}", {"image": name, "captions": texts}
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
        case [{"from": "human", "value": str(request)}, {"from": "gpt", "value": str(answer)}]:
            if QUESTION.search(request) is not None:
                raise UserError(
                    f"{where}: {answer[:80]!r} is the answer to a question and not a caption: "
                    f"{' '.join(request.split())[:120]!r}. Keep the conversations that ask for a "
                    "description"
                )
            rest: Mapping[str, Any] = {k: v for k, v in record.items() if k != "conversations"}
            return where, {**rest, "caption": answer}
    raise UserError(
        f"{where}: the conversation is not a caption: only one request of a human and one answer "
        "of gpt are read as the caption of an image. Remove longer conversations"
    )
