"""Tar shards: ours, img2dataset's and CLIP_benchmark's. Scanned once, never extracted."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, name_some
from cfaug.core.files import check_link, require_regular, visible_files
from cfaug.core.pixels import IMAGES, Digest, check_image
from cfaug.core.safety.json_text import json_file, load_json
from cfaug.core.stores import mirror_of, with_copies
from cfaug.core.types import KEY_PATTERN
from cfaug.data.shards.codec import Sample, scan
from cfaug.data.shards.shards import (
    CHOSEN,
    check_card,
    committed_shards,
    list_complete,
    list_numbered,
    list_unfinished,
    read_chosen,
    read_commit,
)
from cfaug.data.sources.fields import field_names
from cfaug.data.sources.folders import hidden_phrase
from cfaug.data.sources.row import (
    NEGATIVES,
    Description,
    ErrorCollector,
    Reader,
    Row,
    caption,
    class_caption,
    clean_key,
    files_identity,
    group_name,
    known,
    make_distinct,
    split_home,
)
from cfaug.data.sources.splits import (
    IN_FILES,
    SplitChoice,
    SplitSurvey,
    choose_split,
    has_split_key,
    split_kind,
)

IMPORTED = "imported.json"
"""The file beside imported shards that names the source's columns in them."""

GROUPS = ("group", "source_id", "image_id")
"""Fields of a sample's json for its group; the first existing one is used, or else the key."""


class TarReader(Reader):
    """A reader of the samples in a folder of tars.

    Attributes:
        lines_are_captions: whether a ``.txt`` has a caption on each line (CLIP_benchmark), not one
            caption.
    """

    kind = "webdataset"
    form = "WebDataset tars"
    description = "NNNNN.tar with .jpg, .txt, .json (img2dataset, WebDataset)"
    has_parts = True
    lines_are_captions = False
    reads_splits = True

    def __init__(self) -> None:
        self._hidden = Counter[str]()
        self._choice = SplitChoice()
        self._texts: tuple[str, ...] = ()
        """Fields of the first sample's json that are called as captions are, and are not read."""

    def files(self, path: Path) -> list[Path]:
        """Return the tars of a folder, in order."""
        path = split_home(path)[0]
        return sorted(visible_files(path.glob("*.tar")), key=lambda f: (len(f.stem), f.stem))

    def recognises(self, path: Path) -> bool:
        return bool(self.files(path))

    def describe(self, path: Path) -> Description:
        """Return which parts of a sample are read, by the first one, and the hidden members."""
        hidden = (hidden_phrase(self._hidden, "member"),) if self._hidden else ()
        for tar_file in self.files(path)[:1]:
            for _, parts in scan(tar_file):
                image = next((e for e in IMAGES if e in parts), "")
                columns = Description.of_columns((".txt", ".json", ".cls", image), parts)
                unused = (*columns.unused, *(f"{name} of .json" for name in self._texts))
                return replace(columns, unused=unused, left_out=hidden, notes=self._choice.notes)
        return Description(left_out=hidden, notes=self._choice.notes)

    def identity(self, path: Path) -> Any:
        """Return names, sizes and times of the tars, and the names of classes."""
        classes = self.class_names(path)
        return [*files_identity(self.files(path)), *([] if classes is None else [classes])]

    def class_names(self, path: Path) -> list[str] | None:
        """Return the names for ``.cls`` numbers, distinct for each class."""
        path = split_home(path)[0]
        for file in (path / "classnames.txt", path.parent / "classnames.txt"):
            if file.is_file():
                if file.parent != path:  # not among the files that were checked
                    check_link(file, file.parent)
                lines = file.read_text(encoding="utf-8-sig").splitlines()
                return make_distinct([line.strip() for line in lines])
        return None

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the pairs of every tar."""
        classes, errors = self.class_names(path), ErrorCollector()
        first = True
        for sample in self.samples(path):
            if first:
                self._texts, first = unread_captions(sample), False
            with errors.collect():
                yield from self._rows(sample, classes)
        errors.report()

    def samples(self, path: Path) -> Iterator[TarSample]:
        """Yield the samples of the chosen split, each to be read before the next one."""
        self._hidden = Counter[str]()  # of the last scan, as it is described
        self._choice = SplitChoice()
        files = self.files(path)
        # Files may be called by their split, as train-00000.tar.
        kinds = {split_kind(_first_word(tar_file)) for tar_file in files} - {None}
        named = split_home(path)[1] is not None or len(kinds) > 1
        chosen = False
        for tar_file in with_copies(files):
            self.check(tar_file)
            with require_regular(tar_file).open("rb") as handle:
                for key, parts in scan(tar_file, self._hidden):
                    sample = TarSample(tar_file, handle.fileno(), key, parts)
                    if self.reads_splits:
                        about = self._fields(sample)
                        if not chosen and (named or has_split_key(about)):
                            self._choice, chosen = self._choose(path), True
                        if not self._choice.reads(about):
                            continue
                    yield sample

    def check(self, tar_file: Path) -> None:
        """Check a tar as a whole before it is scanned."""

    def _choose(self, path: Path) -> SplitChoice:
        """Return which samples are read, by what all of them say; images are not read for it."""
        survey = SplitSurvey()
        for tar_file in self.files(path):
            with require_regular(tar_file).open("rb") as handle:
                for key, parts in scan(tar_file):
                    survey.add(self._fields(TarSample(tar_file, handle.fileno(), key, parts)))
        return choose_split(path, survey)

    def _fields(self, sample: TarSample) -> dict[str, Any]:
        """Return what says the split of a sample: its fields, or the name of its file."""
        fields, word = sample.fields(), _first_word(sample.file)
        if split_kind(word) is None or has_split_key(fields):
            return fields
        return {**fields, IN_FILES: word}

    def _rows(self, sample: TarSample, classes: list[str] | None) -> Iterator[Row]:
        offset, length, digest = sample.image()
        about = sample.about()
        label = None if about.get("label") is None else str(about["label"])
        if ".cls" in sample.parts:
            label = sample.text(".cls").strip()
            if classes is not None:
                if not label.isdigit() or int(label) >= len(classes):
                    raise UserError(
                        f"{sample.where}.cls says {label!r}; classnames.txt has {len(classes)} "
                        "lines"
                    )
                label = classes[int(label)]
        key, first, image_id = clean_key(sample.key), 0, ""
        if isinstance(about.get("member"), int) and KEY_PATTERN.fullmatch(str(about.get("set"))):
            key, first, image_id = str(about["set"]), about["member"], str(about.get("image_name"))
        named = (about[name] for name in GROUPS if about.get(name) not in (None, ""))
        group = next(map(group_name, named), sample.key)
        if ".txt" in sample.parts:
            text, where = sample.text(".txt"), f"{sample.where}.txt"
            lines = text.split("\n") if self.lines_are_captions else [text]
            texts = [caption(line, where) for line in lines if line.strip()] or [caption("", where)]
        elif about.get("caption") is not None:
            texts = [caption(about["caption"], f"{sample.where}.json")]
        elif label is not None:
            texts = [class_caption(label)]
        elif "caption" in about:
            texts = [caption(None, f"{sample.where}.json")]
        else:
            raise UserError(f"{sample.where} has neither a caption (.txt) nor a class (.cls)")
        # Of a member of ours: negatives, extra values, and the edit as three of them.
        extra, edit = about.get("extra"), about.get("edit")
        values = dict(extra) if isinstance(extra, dict) else {}
        negatives = values.pop(NEGATIVES, None)
        wrong = negatives if isinstance(negatives, list) else []
        if isinstance(edit, dict):
            parts = {f"edit_{name}": edit.get(name) for name in ("kind", "before", "after")}
            values = {**parts, **values}
        for number, text in enumerate(texts, first):
            yield Row(
                set=key, member=number, group=group, text=text, label=label, image_id=image_id,
                file=str(sample.file), offset=offset, length=length, digest=digest,
                where=sample.where, edited=edit is not None,
                negatives=tuple(text for text in wrong if isinstance(text, str)), extra=values,
            )  # fmt: skip


def unread_captions(sample: TarSample) -> tuple[str, ...]:
    """Return the fields of a sample's json that are other captions, such as ``re_caption``."""
    fields = sample.fields().items()
    return tuple(
        name
        for name, value in fields
        if "caption" in name.lower() and name != "caption" and isinstance(value, str) and value
    )


def _first_word(tar_file: Path) -> str:
    return re.split(r"[-_.]\d", tar_file.stem)[0]


@dataclass(slots=True)
class TarSample:
    """The members of a tar that share a key, read in place."""

    file: Path
    handle: int
    key: str
    parts: Sample

    def __post_init__(self) -> None:
        ignored = field_names().ignored
        if ignored:
            self.parts = {e: part for e, part in self.parts.items() if e not in ignored}

    @property
    def where(self) -> str:
        """The place of the sample, for messages."""
        return f"{self.file}: {self.key}"

    def image(self) -> tuple[int, int, Digest]:
        """Return the image's offset, length and digest, after checking it."""
        extension = next((e for e in IMAGES if e in self.parts), None)
        if extension is None:
            extensions, wanted = ", ".join(self.parts), ", ".join(IMAGES)
            raise UserError(f"{self.where} has no image: it has {extensions}, none of {wanted}")
        offset, length = self.parts[extension]
        where = f"{self.where}{extension}"
        digest = check_image(lambda at, n: os.pread(self.handle, n, offset + at), length, where)
        return offset, length, digest

    def image_bytes(self) -> bytes:
        """Return the encoded image, after checking it."""
        offset, length, _ = self.image()
        return os.pread(self.handle, length, offset)

    def text(self, extension: str) -> str:
        """Return a member of text by its extension."""
        offset, length = self.parts[extension]
        try:
            return os.pread(self.handle, length, offset).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UserError(f"{self.where}{extension} is not UTF-8: {error}") from error

    def about(self) -> dict[str, Any]:
        """Return the fields of the sample's json, none without one."""
        try:
            about = load_json(self.text(".json")) if ".json" in self.parts else {}
        except ValueError as error:
            raise UserError(f"{self.where}.json is not JSON: {error}") from error
        return field_names().apply(about if isinstance(about, dict) else {}, self.file, self.parts)

    def fields(self) -> dict[str, Any]:
        """Return the fields that may say the split: ``set`` of a member of ours is its set."""
        try:
            about = self.about()
        except UserError:
            return {}  # reported when the sample is read
        ours = isinstance(about.get("member"), int)
        return {name: value for name, value in about.items() if not ours or name != "set"}


class OwnShards(TarReader):
    """Our shards: only committed ones are read, and each is checked against its commit."""

    has_parts = False
    reads_splits = False
    kind = "shards"
    form = "shards of cfaug"
    description = "NNNNN.tar with NNNNN.json (ours)"

    def __init__(self) -> None:
        super().__init__()
        self._survey = SplitSurvey()

    def recognises(self, path: Path) -> bool:
        """Return whether there is a committed tar; not every commit is read."""
        return next(committed_shards(path), None) is not None or bool(self.files(path))

    def files(self, path: Path) -> list[Path]:
        return [tar for tar, _ in list_complete(path)]

    def describe(self, path: Path) -> Description:
        """Return the description of the import; for other shards, the unfinished ones."""
        file = path / IMPORTED
        if not file.is_file():
            chosen = read_chosen(path)
            others = () if chosen is None else (f"all but the {len(chosen)} sets of {CHOSEN}",)
            notes = []
            for column in self._survey.columns():
                counts = self._survey.counts(column)
                if len(counts) > 1:
                    named = name_some(f"{split} ({n:,})" for split, n in counts.items())
                    notes.append(
                        f"the column {column!r} of these shards says {named}, and all are read: to "
                        f"read one, name it, as in {path}:{min(counts)}"
                    )
            return Description(left_out=(*list_unfinished(path), *others), notes=tuple(notes))
        about = json_file(file)
        try:
            for name in ("notes", "renamed", "columns"):  # which an import may lack
                about.setdefault(name, [])
            return Description(
                *(tuple(map(str, about[field.name])) for field in fields(Description))
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{file} is invalid ({error!r}); remove it") from error

    def identity(self, path: Path) -> Any:
        """Return names, sizes and times of commits and tars; in a mirror, the commits' hashes.

        Commits are not read: at 100,000 shards that would take most of the time of a start.
        """
        chosen = read_chosen(path)
        keys = [] if chosen is None else [sorted(chosen)]
        if mirror_of(path):  # an object has no time
            return [[commit["sha256"] for _, commit in list_complete(path)], [], *keys]
        commits, tars = (list_numbered(path, suffix) for suffix in (".json", ".tar"))
        committed = {name.removesuffix(".json") + ".tar" for name in commits}
        check_card(path, committed)
        names = [*commits, *(name for name in tars if name in committed)]
        return [*files_identity([path / name for name in names]), *keys]

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the rows of the chosen sets, or of all."""
        chosen = read_chosen(path)
        self._survey = SplitSurvey()
        if chosen is None:
            for row in super().open(path):
                if has_split_key(row.extra):
                    self._survey.add(row.extra)
                yield row
            return
        seen = set[str]()
        for row in super().open(path):
            if row.set in chosen:
                seen.add(row.set)
                yield row
        if lost := sorted(chosen - seen):
            raise UserError(
                f"{path / CHOSEN} names sets that the shards do not have ({name_some(lost)}): run "
                "the command that made them again"
            )

    def check(self, tar_file: Path) -> None:
        """Refuse a shard that differs from its commit."""
        commit = read_commit(tar_file.parent, int(tar_file.stem))
        with require_regular(tar_file).open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
        if commit is not None and commit["sha256"] != digest:
            raise UserError(
                f"{tar_file} was changed or damaged since it was written: its bytes are not those "
                f"that {tar_file.stem}.json was written for. Restore the shard, or remove both "
                "files and make it again; to change captions or images, write other shards"
            )


class ClipBenchmark(TarReader):
    """A CLIP_benchmark folder: a split with nshards.txt, or a folder with exactly one split."""

    has_parts = False
    kind = "clip_benchmark"
    form = "a folder of CLIP_benchmark"
    description = "test/nshards.txt and test/0.tar (CLIP_benchmark)"
    lines_are_captions = True

    def split(self, path: Path) -> Path | None:
        """Return the split's folder."""
        if (path / "nshards.txt").is_file():
            return path
        splits = sorted(file.parent for file in path.glob("*/nshards.txt"))
        if len(splits) > 1:
            raise UserError(f"{path} has several splits; name one: {', '.join(map(str, splits))}")
        return splits[0] if splits else None

    def recognises(self, path: Path) -> bool:
        return self.split(path) is not None

    def files(self, path: Path) -> list[Path]:
        """Return the tars that nshards.txt counts."""
        split = known(self.split(path))
        count = require_regular(split / "nshards.txt").read_text(encoding="utf-8").strip()
        if not count.isdigit():
            raise UserError(f"{split / 'nshards.txt'} should hold a number, not {count!r}")
        tars = [split / f"{number}.tar" for number in range(int(count))]
        missing = [str(tar) for tar in tars if not tar.is_file()]
        if missing:
            raise UserError(f"nshards.txt says {count} shards; missing: {name_some(missing)}")
        return tars

    def class_names(self, path: Path) -> list[str] | None:
        """Return the lines of classnames.txt, beside the split or in its parent folder."""
        split = self.split(path)
        return None if split is None else super().class_names(split)
