"""The record and the locks of a folder: its settings, and the processes that work in it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

from cfaug.core.atomic_files import is_temporary, remove_leftovers, write_file, write_json
from cfaug.core.errors import UserError, name_some
from cfaug.core.files import require_regular
from cfaug.core.outputs import begin_record
from cfaug.core.processes import acquire, hold_lock
from cfaug.core.safety.json_text import json_file, load_json
from cfaug.core.stores import (
    PACKAGES,
    Mirror,
    is_address,
    is_store,
    local_name,
    mirror_of,
    open_mirror,
)
from cfaug.data.shards import shards as edits
from cfaug.data.shards.shards import (
    CARD,
    CHOSEN,
    FOLDER,
    committed_captions,
    committed_shards,
    read_caption_commit,
    summarise,
)
from cfaug.generate.images import add_yields
from cfaug.generate.recipe import RunSettings

RECORD = "run.json"
WORK = ".work"
"""Folder of the locks and of the journals of unfinished shards."""
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class FolderRecord:
    """The content of ``run.json``: the settings of each stage so far, and the size of the plan.

    Attributes:
        images: the other settings that the shards depend on; ``None`` before that stage.
    """

    captions: Settings
    images: Settings | None
    shards: int


def settings_hash(settings: Settings) -> str:
    """Return the sha256 of settings, independent of the order of their keys."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def read_record(folder: Path) -> FolderRecord | None:
    """Return the record of a folder; ``None`` if the folder has no record."""
    file = folder / RECORD
    try:
        about = load_json(require_regular(file).read_text(encoding="utf-8"))
        return FolderRecord(about["captions"], about["images"], about["shards"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file} cannot be read ({error!r}): choose another paths.shards, or remove the folder"
        ) from error


def name_settings(group: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted names, in the form of a record, without empty mappings.

    >>> name_settings("draws", {"candidates": 2, "parameters": {}, "p2p_threshold": (0.1, 0.9)})
    {'draws.candidates': 2, 'draws.p2p_threshold': [0.1, 0.9]}
    """
    named: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            named |= name_settings(f"{group}.{name}", value)
        else:
            named[f"{group}.{name}"] = list(value) if isinstance(value, tuple) else value
    return named


# Shards in an object store are made in its mirror, by the code that makes them anywhere. One
# process owns the list of objects; each shard is uploaded when it is committed, its commit last.

GALLERY, CANDIDATES = "gallery.html", "candidates.svg"
"""The pages of a folder of shards."""
OBJECT = re.compile(
    rf"(?:{FOLDER}/)?\d{{5,}}\.\w+|{RECORD}|{CARD}|{CHOSEN}|{FOLDER}/report\.md|{GALLERY}|{CANDIDATES}"
)
"""Names of the objects that generation writes; others in the folder are left alone."""


REMOVED = re.compile(rf"\d{{5,}}\.(?:json|tar|parquet)|{CARD}|{CHOSEN}")
"""Names of the files that are removed before shards are made anew with other settings."""
EDITS = re.compile(rf"{FOLDER}/(?:\d{{5,}}\.jsonl?|report\.md)")
"""Names of the files of edited captions."""


@contextmanager
def work_folder(shards: str, cache: Path, parts: int = 1) -> Iterator[Path]:
    """Yield the folder to make shards in: for a store its mirror, up to date, for this process.

    Args:
        shards: a folder, or the address of one in an object store.
        cache: the folder in which mirrors lie.
        parts: the number of processes that share the work.
    """
    if not is_store(shards):
        local = local_name(shards)
        if is_address(local):
            raise UserError(
                f"paths.shards={shards} is not a folder: addresses are "
                f"{', '.join(f'{scheme}://BUCKET/FOLDER' for scheme in PACKAGES)} and file://FOLDER"
            )
        yield Path(local)
        return
    if parts > 1:
        raise UserError(
            f"parts={parts}: parts share a folder by its locks, and paths.shards={shards} is in an "
            "object store, which has none: leave part and parts out, and make shards at once with "
            "engine=ray"
        )
    if shards.startswith("hf:"):
        raise UserError(
            f"paths.shards={shards}: every file on the Hub is a commit of git, and there are four "
            "for each shard: write to a folder or a bucket, and publish it with export.hub"
        )
    mirror = open_mirror(shards, cache, "made")
    owner = mirror.folder.with_name(f"{mirror.folder.name}.owner")
    with hold_lock(owner, refusal=_busy(shards)):
        try:
            _pull(mirror)
            yield mirror.folder
        finally:
            mirror.keep_list()


def refresh(folder: Path) -> None:
    """Bring a mirror up to date with its store; any other folder stays as it is."""
    mirror = mirror_of(folder)
    if mirror is not None:
        _pull(mirror)


def _pull(mirror: Mirror) -> None:
    """Read a store's small files.

    Journals of unfinished shards are removed if the store has other settings now.
    """
    before = _record_bytes(mirror.folder)
    mirror.pull(lambda name: OBJECT.fullmatch(name) is not None and not name.endswith(".tar"))
    foreign = [name for name in mirror.objects if name.endswith(".tar")]
    if foreign and RECORD not in mirror.objects:
        raise UserError(
            f"{mirror.address} holds shards that were not made there ({foreign[0]}, ...): choose "
            "another paths.shards"
        )
    if _record_bytes(mirror.folder) != before:
        _remove_journals(mirror.folder)


def join_folder(shards: str, cache: Path) -> Path:
    """Return the folder in which a worker makes shards, perhaps not on its owner's machine.

    Args:
        shards: a folder, or the address of one in an object store.
        cache: the folder in which mirrors lie.
    """
    if not is_store(shards):
        return Path(local_name(shards))
    mirror = open_mirror(shards, cache, "made")
    mirror.objects.clear()  # of an earlier owner on this machine
    with hold_file(mirror.folder, RECORD):
        record = mirror.read(RECORD)
        if record is None:
            raise UserError(f"{mirror.address} has no {RECORD}: it is written before the shards")
        if record != _record_bytes(mirror.folder):
            _remove_journals(mirror.folder)
            write_file(mirror.folder / RECORD, record)
    return mirror.folder


def publish_record(folder: Path) -> None:
    """Upload a mirror's record if it changed; what other settings made is removed before."""
    mirror = mirror_of(folder)
    if mirror is None or mirror.read(RECORD) == _record_bytes(folder):
        return
    here = {name: re.sub(r"\.tar$", ".json", name) for name in mirror.objects}
    gone = [n for n, file in here.items() if OBJECT.fullmatch(n) and not (folder / file).exists()]
    mirror.remove(sorted(gone, key=lambda name: not name.endswith(".json")))  # commits first
    mirror.push([RECORD])


def fetch_captions(folder: Path, number: int) -> None:
    """Copy the edits of a shard into a worker's mirror; others have them."""
    mirror = mirror_of(folder)
    names = [f"{FOLDER}/{number:05d}{suffix}" for suffix in (".json", ".jsonl")]
    if mirror is not None and not all(name in mirror.objects for name in names):
        (folder / FOLDER).mkdir(exist_ok=True)
        for name in names:
            mirror.copy(name)


def publish_shard(folder: Path, number: int, subfolder: str = "") -> None:
    """Upload the files of a shard that was committed in a mirror, and remove its tar there.

    Args:
        subfolder: the folder of the shard's files below ``folder``.
    """
    mirror = mirror_of(folder)
    if mirror is None:
        return
    stem = f"{subfolder}/{number:05d}" if subfolder else f"{number:05d}"
    beside = json_file(folder / f"{stem}.json").get("beside", ())
    data = [".jsonl"] if subfolder else [".tar", *beside]
    mirror.remove([f"{stem}.json"])  # a new tar never has an old commit
    mirror.push([stem + suffix for suffix in (*data, ".json")])
    (folder / f"{stem}.tar").unlink(missing_ok=True)


def publish_files(folder: Path, names: Sequence[str]) -> None:
    """Upload those of a mirror's files that exist."""
    mirror = mirror_of(folder)
    if mirror is not None:
        mirror.push([name for name in names if (folder / name).exists()])


def _record_bytes(folder: Path) -> bytes | None:
    file = folder / RECORD
    return file.read_bytes() if file.exists() else None


@contextmanager
def claim(folder: Path, wanted: FolderRecord, run: RunSettings) -> Iterator[FolderRecord]:
    """Lock a part of a folder for this process, if the folder was made with the same settings.

    Args:
        wanted: the requested settings; ``images`` is ``None`` in the first stage.
    """
    try:
        (folder / WORK).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"paths.shards={folder} cannot be made: {error.strerror}") from error
    with (folder / WORK / "users").open("a", encoding="utf-8") as users:
        with hold_file(folder, RECORD):
            record = _reconcile(folder, wanted, run.overwrite, users)
            acquire(users, shared=True)
        part = f"part {run.part} of {run.parts}"
        mine = folder / WORK / part.replace(" ", "-")
        with hold_lock(mine, refusal=_busy(f"{part} in {folder}")):
            yield record


@contextmanager
def hold_shard(folder: Path, number: int) -> Iterator[None]:
    """Lock one shard: with another division into parts, another process may have it as well."""
    busy = _busy(f"shard {number:05d} of {folder}")
    (folder / WORK).mkdir(exist_ok=True)  # a worker's mirror was not claimed here
    begun = folder / WORK / f"{number:05d}.begun"
    with hold_lock(folder / WORK / f"{number:05d}.lock", refusal=busy):
        if begun.exists():  # the folder is listed only then: with many shards that takes long
            _sweep(folder, f"{number:05d}.")
            _sweep(folder / edits.FOLDER, f"{number:05d}.")
        begun.touch()
        yield
        begun.unlink()


@contextmanager
def hold_file(folder: Path, name: str) -> Iterator[None]:
    """Wait until no other process writes the file ``name``, and lock it for this one."""
    (folder / WORK).mkdir(exist_ok=True)
    with hold_lock(folder / WORK / f"{name.replace('/', '-')}.lock"):
        _sweep(folder, f"{name}.")
        yield


def _sweep(folder: Path, start: str) -> None:
    """Remove the temporary files of a killed process, whose lock is ours now."""
    for litter in folder.glob(f"{start}*.tmp"):
        if is_temporary(litter.name):
            litter.unlink(missing_ok=True)


def _busy(target: str) -> str:
    return f"another process is at work on {target}: wait for it, or take another part"


def _reconcile(folder: Path, wanted: FolderRecord, overwrite: bool, users: IO[str]) -> FolderRecord:
    """Compare the record with the wanted settings, and add those of a later stage.

    What generation wrote with other settings is refused, or removed with ``overwrite``.
    """
    there = read_record(folder)
    if there is None:
        foreign = [name for name in _list_names(folder) if OBJECT.fullmatch(name)]
        if foreign:
            tars = any(name.endswith(".tar") for name in foreign)
            what = "shards that were not made here" if tars else "what generation would replace"
            raise UserError(
                f"{folder} holds {what} ({name_some(foreign)}): choose another paths.shards"
            )
        begin_record(folder, earlier=False)
        write_json(folder / RECORD, vars(wanted))
        return wanted
    other_captions = settings_hash(there.captions) != settings_hash(wanted.captions)
    other_images = (
        there.images is not None
        and wanted.images is not None
        and settings_hash(there.images) != settings_hash(wanted.images)
    )
    if not other_captions and not other_images:
        images = wanted.images if there.images is None else there.images
        merged = FolderRecord(there.captions, images, wanted.shards)
        if merged != there:
            write_json(folder / RECORD, vars(merged))
        return merged
    if not overwrite:
        # The record is written before the work begins: a stage that failed early left only this.
        drawn = [folder.glob("[0-9]*.json"), (folder / WORK).glob("[0-9]*/*")]
        edited = [(folder / edits.FOLDER).glob("[0-9]*.json")] if other_captions else []
        if next(chain(*drawn, *edited), None) or not acquire(users, wait=False):
            before = {**there.captions, **(there.images or {})}
            requested = {**wanted.captions, **(wanted.images or there.images or {})}
            absent = "(absent)"
            lines = [
                f"  {key}: there {before.get(key, absent)!r}, asked {requested.get(key, absent)!r}"
                for key in sorted({*before, *requested})
                if before.get(key, absent) != requested.get(key, absent)
            ]
            out = (
                "Two ways out: overwrite=true starts anew there (what the other settings made is "
                "removed), or paths.shards=FOLDER puts these shards elsewhere."
            )
            raise UserError("\n".join([f"{folder} was made with other settings:", *lines, out]))
    elif not acquire(users, wait=False):
        raise UserError(
            f"another process is at work in {folder} with the settings that overwrite=true would "
            "clear: stop it first, or choose another paths.shards"
        )
    remove_leftovers(folder)
    remove_leftovers(folder / FOLDER)
    names = _list_names(folder)
    for name in sorted(names, key=lambda name: not name.endswith(".json")):  # commits first
        if REMOVED.fullmatch(name) or (other_captions and EDITS.fullmatch(name)):
            (folder / name).unlink(missing_ok=True)
    _remove_journals(folder)
    if other_captions:
        with suppress(OSError):  # it is missing, or holds files of others
            (folder / edits.FOLDER).rmdir()
    write_json(folder / RECORD, vars(wanted))
    return wanted


def _list_names(folder: Path) -> list[str]:
    """Return the names of a folder's files, and of those of its edits."""
    return sorted(
        f"{start}{file.name}"
        for start, place in (("", folder), (f"{FOLDER}/", folder / FOLDER))
        if place.is_dir()
        for file in place.iterdir()
        if file.is_symlink() or not file.is_dir()
    )


def _remove_journals(folder: Path) -> None:
    for journal in (folder / WORK).glob("[0-9]*"):
        if journal.name.isdecimal() and journal.is_dir():
            shutil.rmtree(journal)


def journal_folder(folder: Path, number: int) -> Path:
    """Return the folder of a shard's completed batches."""
    return folder / WORK / f"{number:05d}"


def write_card(folder: Path) -> dict[str, Any]:
    """Write ``card.json``: a summary of the output of all parts so far, in both stages.

    The same commits give the same bytes. Processes take turns, so that the last one to commit is
    also the last one to write the card.

    Returns:
        The card: the fields of ``cfaug.data.shards.shards``; the planned number of shards
        (``of``); the numbers of candidates, of accepted ones, of rejected ones by reason, and of
        sets ``without`` an accepted one; failed items; ``yields``, if the recipe counts them, for
        example by grid; recipe and models; and under ``edits`` the same for the captions, with the
        rejected edits by reason and kind if the editor keeps them.
    """
    with hold_file(folder, CARD):
        record = read_record(folder)
        added = ("caption_sets", "candidates", "accepted", "without")
        drawn, edited = CommitTotals(added), CommitTotals(("captions", "sets", "members"))
        card = {
            **summarise((tar, drawn.add(commit)) for tar, commit in committed_shards(folder)),
            "of": None if record is None else record.shards,
            **drawn.sums,
            "rejected": dict(drawn.rejected),
            "failed": drawn.failed,
        }
        if drawn.yields is not None:
            card["yields"] = drawn.yields
        card |= {name: drawn.merge(name) for name in sorted(drawn.values)}
        for number in committed_captions(folder):
            if (commit := read_caption_commit(folder, number)) is not None:
                edited.add(commit)
        if edited.count:
            card["edits"] = {
                **edited.sums,
                "shards": edited.count,
                "rejected": dict(edited.rejected),
                "failed": edited.failed,
                "models": edited.merge("models"),
            }
            if edited.kinds:
                card["edits"]["rejected_edits"] = edited.kinds
        write_json(folder / CARD, card)
    return card


OF_ONE_SHARD = frozenset({
    "kind", "format", "captions", "sets", "members", "bytes", "sha256", "beside",
    "beside_bytes", "edits",
    "caption_sets", "candidates", "accepted", "without", "rejected", "rejected_edits", "failed",
    "yields",
})  # fmt: skip
"""Fields of commits that differ between shards; of the others, a card has the common value."""


class CommitTotals:
    """What commits have in common and in sum, one by one: there may be 100,000.

    Args:
        summed: the names of the counts to add up.
    """

    def __init__(self, summed: Sequence[str]) -> None:
        self.count = 0
        self.sums = dict.fromkeys(summed, 0)
        self.rejected, self.kinds = Counter[str](), dict[str, Counter[str]]()
        self.failed: list[Any] = []
        self.yields: dict[str, Any] | None = None
        self.values: dict[str, dict[str, Any]] = {}

    def add(self, commit: dict[str, Any]) -> dict[str, Any]:
        """Add a commit, and return it."""
        for name in self.sums:
            self.sums[name] += commit[name]
        self.rejected.update(commit["rejected"])
        self.failed += commit["failed"]
        for reason, of_kind in commit.get("rejected_edits", {}).items():
            self.kinds.setdefault(reason, Counter()).update(of_kind)
        if "yields" in commit:
            before = [] if self.yields is None else [self.yields]
            self.yields = add_yields([*before, commit["yields"]])
        for name in {*self.values, *commit} - OF_ONE_SHARD:
            values = self.values.setdefault(name, {"null": None} if self.count else {})
            values[json.dumps(commit.get(name), sort_keys=True)] = commit.get(name)
        self.count += 1
        return commit

    def merge(self, name: str) -> Any:
        """Return the value that all shards share, or a list of their different values."""
        values = list(self.values[name].values())
        return values[0] if len(values) == 1 else values
