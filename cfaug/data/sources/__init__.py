"""All readers of data in place. To add a form, write a reader and add it to ``READERS``."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from cfaug.core.atomic_files import whole_folder, write_json
from cfaug.core.errors import UserError, name_some, say
from cfaug.core.files import advise, check_links, visible_files
from cfaug.core.progress import watch
from cfaug.core.safety.json_text import load_json
from cfaug.core.types import CounterfactualSet
from cfaug.data.shards.shards import (
    CARD,
    FOLDER,
    list_committed,
    list_complete,
    list_numbered,
    read_sets,
    summarise,
    write_shards,
)
from cfaug.data.sources.caption_list import CaptionList, PairedFolders
from cfaug.data.sources.captioned_parquet import HUB_SETS, SOCIAL_COUNTERFACTUALS, CaptionedParquet
from cfaug.data.sources.class_folders import Food101, ImageFolder, LabelList
from cfaug.data.sources.coco import Coco, Karpathy
from cfaug.data.sources.columns import (
    check_one_list,
    check_unpacked,
    choose_rows,
    find_list,
    has_captions,
    unnamed_lists,
    unread_lists,
)
from cfaug.data.sources.compositional import ITEM_LISTS, ITEM_TABLES, ItemList
from cfaug.data.sources.compositional.item import PartForm
from cfaug.data.sources.cultural_counterfactuals import CULTURAL_COUNTERFACTUALS
from cfaug.data.sources.edit_lists import EditList
from cfaug.data.sources.edited_folders import EditedFolders
from cfaug.data.sources.fields import field_names
from cfaug.data.sources.folders import SidecarText, hidden_below, images_below
from cfaug.data.sources.labelled import CifarBinary, LabelledParquet
from cfaug.data.sources.naming_lists import naming_lists
from cfaug.data.sources.photo_lists import EntailmentParquet, PhotoList, SnliVe
from cfaug.data.sources.released_pairs import CocoCounterfactuals, InstructPix2Pix
from cfaug.data.sources.row import Reader, Row, split_home
from cfaug.data.sources.splits import may_be_split, split_kind
from cfaug.data.sources.tars import IMPORTED, ClipBenchmark, OwnShards, TarReader
from cfaug.data.sources.xmai import DetectedCaptions, EncodedCaptions, ModifiedPhotos

__all__ = ["PAIRED", "READERS", "Reader", "Row", "find_reader", "is_photo_list", "split_folder"]

OWN_SHARDS = OwnShards()
KARPATHY = Karpathy()
CAPTIONED_PARQUET = CaptionedParquet()
LABELLED_PARQUET = LabelledParquet()
ENTAILMENT_PARQUET = EntailmentParquet()
ENCODED_CAPTIONS = EncodedCaptions()

PHOTO_LISTS: tuple[PhotoList, ...] = (SnliVe(), ModifiedPhotos(), DetectedCaptions())
"""Lists that can be named as a source, if a folder has several."""

READERS: tuple[Reader, ...] = (
    OWN_SHARDS,
    *ITEM_LISTS,  # Winoground's lines are also COCO-Counterfactuals'
    *ITEM_TABLES,
    CocoCounterfactuals(),
    *HUB_SETS,
    SOCIAL_COUNTERFACTUALS,
    CULTURAL_COUNTERFACTUALS,
    ENTAILMENT_PARQUET,
    LABELLED_PARQUET,
    CAPTIONED_PARQUET,
    CifarBinary(),
    ENCODED_CAPTIONS,
    ClipBenchmark(),
    TarReader(),
    Coco(),
    KARPATHY,
    *PHOTO_LISTS,
    InstructPix2Pix(),
    Food101(),
    EditList(),
    EditedFolders(),
    PairedFolders(),
    LabelList(),
    CaptionList(),
    SidecarText(),
    ImageFolder(),
)
"""In the order in which they are tried; the first that recognises a folder opens it."""

PAIRED: tuple[Reader, ...] = (
    OWN_SHARDS,
    ModifiedPhotos(),
    EditList(),
    EditedFolders(),
    PairedFolders(),
    CaptionList(),
    CAPTIONED_PARQUET,
    *HUB_SETS,
    SOCIAL_COUNTERFACTUALS,
    CULTURAL_COUNTERFACTUALS,
    CocoCounterfactuals(),
    InstructPix2Pix(),
)
"""Forms of counterfactual sets, for the error that lists them."""


def check_source(path: Path, image_roots: Sequence[Path] = ()) -> None:
    """Refuse a source with links that lead out of it, as ``check_links`` does, before it is read.

    A list that is a source itself may lie among anything: the files that it names are checked.

    Args:
        path: the resolved path of a folder, of a list, or ``FOLDER:SPLIT``.
        image_roots: absolute folders, besides its own, to which links may lead.
    """
    home = path if path.is_dir() else split_home(path)[0]
    if home.is_dir():
        check_links(home, image_roots)


def split_folder(path: Path) -> Path:
    """Return the folder that ``FOLDER:SPLIT`` names; CLIP_benchmark has one for each split.

    A split of Karpathy's, of SNLI-VE, of parquet files or of a list with a column of splits is not
    a folder, and is returned unchanged. Of several lists that are called by splits, such as
    ``train.jsonl`` and ``dev.jsonl``, the one with the name is returned.
    """
    home, split = split_home(path)
    if split is None or not home.is_dir() or KARPATHY.recognises(path):
        return path
    if not (home / split).is_dir() and (listed := _list_of_split(home, split)) is not None:
        return listed
    given = field_names().reader
    readers = READERS if given is None else (given, *READERS)
    selected = not path.exists() and any(reader.reads(path) for reader in readers)
    if selected and (not (home / split).is_dir() or _lists_split(path) or _is_part(path)):
        return path
    if not split or not (home / split).is_dir():
        inside = [folder for folder in data_folders(home) if split in folder.parts]
        if inside:
            raise UserError(
                f"{home} has {split!r} in folders of its own; name one of "
                f"{', '.join(map(str, inside))}"
            )
        raise UserError(
            f"{home} has no split {split!r}: there is neither a list of Karpathy's, "
            f"dataset_NAME.json, nor a folder {home / split}"
        )
    return home / split


def data_folders(path: Path) -> list[Path]:
    """Return the folders of parquet files or tars that a folder holds, up to two below it.

    The Hub keeps converted data sets as ``CONFIGURATION/SPLIT/0000.parquet``.
    """
    patterns = ("*/*.parquet", "*/*/*.parquet", "*/*.tar", "*/*/*.tar")
    folders = {file.parent for pattern in patterns for file in path.glob(pattern)}
    return [f for f in visible_files(folders) if any(reader.reads(f) for reader in READERS)]


def _list_of_split(home: Path, split: str) -> Path | None:
    """Return the only list of a folder that is called by a split, if no other list is the one."""
    if find_list(home) is not None and len(unnamed_lists(home)) < 2:
        return None
    lists = [f for f in unnamed_lists(home) if LabelList().recognises(f) or has_captions(f)]
    exact = [file for file in lists if file.stem.lower() == split.lower()]
    kind = split_kind(split)
    alike = [file for file in lists if kind is not None and split_kind(file.stem) == kind]
    chosen = exact or alike
    return chosen[0] if len(chosen) == 1 else None


def _is_part(path: Path) -> bool:
    """Return whether a form has a list of that part, whose photos may lie in the folder."""
    return any(isinstance(r.item_form, PartForm) and r.recognises(path) for r in ITEM_LISTS)


def _lists_split(path: Path) -> bool:
    """Return whether the list of a folder knows a split, so that no folder is meant by it."""
    file = find_list(path)
    try:
        return file is not None and choose_rows(path, file).chosen is not None
    except UserError:
        return False


def is_photo_list(path: Path) -> bool:
    """Return whether a file is a list about photos that is a source itself, such as SNLI-VE's."""
    return path.is_file() and any(
        reader.recognises(path) for reader in (*PHOTO_LISTS, ENCODED_CAPTIONS)
    )


def find_reader(path: Path, image_roots: Sequence[Path] = ()) -> Reader:
    """Return the reader of a folder.

    Args:
        path: the folder, ``FOLDER:SPLIT``, or a list that can be named as a source.
    """
    try:
        if path.is_dir():
            os.listdir(path)  # otherwise an unreadable folder would look like a missing file
        reader = next((candidate for candidate in READERS if candidate.reads(path)), None)
        given = field_names().reader
        if given is not None and not isinstance(reader, OwnShards) and given.reads(path):
            return given.with_roots(image_roots)
        if isinstance(reader, ItemList):
            reader = item_list(path)
        if reader is None or isinstance(reader, SidecarText | ImageFolder):  # they read no list
            home = split_home(path)[0]
            check_unpacked(home)
            check_one_list(home, unnamed_lists(home))
        if reader is None and path.is_file():
            raise UserError(f"{path} is a file: name the folder in which it lies, {path.parent}")
        if reader is None and not path.is_dir():
            raise UserError(f"there is no {'file' if path.suffix else 'folder'} {path}")
        if reader is None or not (reader.imported or isinstance(reader, OwnShards | ItemList)):
            saved = (path / "state.json").is_file() and next(path.glob("*.arrow"), None)
            if saved or (path / "dataset_dict.json").is_file():
                raise UserError(
                    f"{path} was written by save_to_disk of the library datasets, whose Arrow "
                    "files are not read: write parquet, datasets.load_from_disk(...).to_parquet("
                    "'FOLDER/train.parquet'), of each split a file called by it, and name FOLDER"
                )
        if reader is not None:
            return reader.with_roots(image_roots)
    except OSError as error:
        raise unreadable_error(path, error) from error
    raise _explain_unread(path)


def _explain_unread(path: Path) -> UserError:
    """Return the error of a folder that no reader reads, by what is in it."""
    if images := images_below(path):
        unread = list(dict.fromkeys([*unread_lists(path), *naming_lists(path, images)]))
        known = f" ({', '.join(unread)}: of no form that is known)" if unread else ""
        count = f"{len(images):,} image{'s' * (len(images) > 1)}"
        return UserError(
            f"{path} holds {count} and nothing that says what they "
            f"show{known}: write captions.csv (image, caption), labels.csv (image, label) or a "
            ".txt beside each image, or lay the images of each class in a folder of their own. "
            "docs/data.md lists every form that is read"
        )
    forms = "\n".join(
        f"  {description}"
        for description in dict.fromkeys(candidate.description for candidate in READERS)
    )
    if (path / FOLDER).is_dir() and list_numbered(path / FOLDER, ".jsonl"):
        return UserError(
            f"{path} holds edited captions without images: draw them with python generate.py "
            f"stage=images paths.shards={path}, the recipe that edited them, and a zoo that can"
        )
    inside = sorted(file for file in path.iterdir() if file.is_dir() and split_kind(file.name))
    if splits := [f for f in inside if any(reader.reads(f) for reader in READERS)]:
        return UserError(
            f"{path} has its splits in folders; name one of {', '.join(map(str, splits))}"
        )
    if within := data_folders(path):
        return UserError(
            f"{path} has its data in folders below it; name one of {', '.join(map(str, within))}"
        )
    if pickles := find_pickles(path):
        return UserError(
            f"{path} holds pickles of Python ({name_some(pickles)}), which can run programs and "
            "are never opened: fetch another version, such as CIFAR's binary one (test_batch.bin), "
            "or write the images into folders of their classes"
        )
    if packed := [f.name for f in visible_files(path.iterdir()) if f.name.endswith(ARCHIVES)]:
        return UserError(f"{path} holds {name_some(packed)}, not unpacked: unpack it there")
    hidden = f" ({', '.join(hidden_below(path))} are left out)" if hidden_below(path) else ""
    return UserError(f"{path} has no form that is known{hidden}; it should hold one of\n{forms}")


ARCHIVES = (".7z", ".rar", ".tar.bz2", ".tar.gz", ".tar.xz", ".tgz", ".zip")
"""Endings of archives that have to be unpacked."""
PICKLED = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""The first bytes of pickles of each protocol that has any."""
MOST_LOOKED_AT = 100
"""Number of files whose first bytes are read."""


def find_pickles(path: Path) -> list[str]:
    """Return the names of pickles in a folder or one below it, by their first bytes."""
    names = []
    files = visible_files(f for f in (*path.glob("*"), *path.glob("*/*")) if f.is_file())
    for file in files[:MOST_LOOKED_AT]:
        with suppress(OSError), file.open("rb") as handle:
            if handle.read(2) in PICKLED:
                names.append(str(file.relative_to(path)))
    return names


def item_list(path: Path) -> ItemList | None:
    """Return the reader of the compositional test in a folder, ``None`` if there is none."""
    readers = [reader for reader in ITEM_LISTS if reader.recognises(path)]
    if len(readers) > 1:
        raise UserError(
            f"{path} holds several tests: choose one with benchmark.form="
            f"{' or '.join(reader.kind for reader in readers)}"
        )
    return readers[0] if readers else None


def unreadable_error(path: Path, error: OSError) -> UserError:
    """Return the error for a folder, or something in it, that cannot be read."""
    return UserError(f"{error.filename or path} cannot be read: {error.strerror or error}")


# ``data.counterfactual=FOLDER`` imports a folder that cannot be read in place into the cache on
# first use, and reads the shards from then on.

FORMAT = 3
"""The number of what is imported: sets of another one in a cache are imported anew."""
SETS_PER_SHARD = 1000


def import_sets(folder: str | Path) -> Iterator[CounterfactualSet]:
    """Yield the sets of a folder in a released form (or of our own shards), one at a time.

    ``write_shards(import_sets(folder), shards)`` makes shards of it.
    """
    path = Path(folder).expanduser().resolve()
    if not path.is_dir():
        raise UserError(f"there is no folder {path}")
    try:
        reader = next((candidate for candidate in READERS if candidate.reads(path)), None)
        if isinstance(reader, InstructPix2Pix):
            return reader.sets(path)
        if reader is not None and reader.imported:
            return reader.open(path)
        if list_complete(path):
            return read_sets(path)
    except OSError as error:
        raise unreadable_error(path, error) from error
    known = (
        candidate
        for candidate in READERS
        if candidate.imported or isinstance(candidate, InstructPix2Pix)
    )
    forms = "\n".join(f"  {candidate.description}" for candidate in known)
    raise UserError(f"{path} has no sets in a known form; it should hold one of\n{forms}")


def import_folder(reader: Reader, path: Path, cache: Path) -> Path:
    """Return the shards of a released folder, writing them unless they exist for this content."""
    try:
        identity = reader.identity(path)
    except OSError as error:
        raise unreadable_error(path, error) from error
    named = field_names().key
    about = json.dumps([FORMAT, reader.kind, str(path), identity, *named], sort_keys=True)
    name = hashlib.sha256(about.encode()).hexdigest()[:32]
    folder = cache.expanduser().resolve() / f"imported-{name}"
    if _whole(folder):
        return folder
    if folder.exists():
        say(f"the shards of {path} in {folder} are damaged: they are made again")
    try:
        with whole_folder(folder, _whole) as temporary:
            sets = watch(reader.open(path), f"importing {path}", None, "sets")
            card = write_shards(sets, temporary, sets_per_shard=SETS_PER_SHARD, source=path)
            if not card["sets"]:
                left_out = reader.describe(path).left_out
                why = f"all are left out: {'; '.join(left_out)}" if left_out else "no rows"
                raise UserError(f"{path} holds no set ({why}); fetch its files again")
            # Called last, after all content has been read.
            described = field_names().describe(reader.describe(path))
            write_json(temporary / IMPORTED, described.json())
    except OSError as error:
        raise UserError(
            f"the shards of {path} cannot be kept in {folder.parent}: {error.strerror}; "
            f"{advise(error, 'paths.cache')}"
        ) from error
    return folder


def _whole(folder: Path) -> bool:
    """Return whether all imported shards exist, each with the length in its commit.

    Imports of a source with a column of splits, made before such columns chose the rows, are not.
    """
    try:
        about = load_json((folder / IMPORTED).read_text(encoding="utf-8"))
        columns = (*about["used"], *about["unused"])
        if "notes" not in about and any(map(may_be_split, columns)):
            return False
        return bool(
            load_json((folder / CARD).read_text(encoding="utf-8"))
            == summarise(list_committed(folder))
        )
    except (OSError, ValueError, KeyError, TypeError, UserError):
        return False
