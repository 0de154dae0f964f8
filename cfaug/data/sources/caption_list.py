"""Lists of images and captions, or of sets of counterfactuals, beside their images."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, NamedTuple

from cfaug.core.errors import UserError
from cfaug.core.pixels import check_images_differ
from cfaug.data.sources.coco import rejected_phrase
from cfaug.data.sources.columns import (
    Columns,
    choose_rows,
    chosen_records,
    columns_of,
    find_list,
    image_path,
    image_records,
    other_lists,
    region_notes,
)
from cfaug.data.sources.folders import file_digest, images_below, locate, sidecar_lines
from cfaug.data.sources.row import (
    Description,
    ErrorCollector,
    Reader,
    Row,
    caption,
    captions,
    clean_key,
    files_identity,
    group_name,
    keep_json,
    known,
    split_home,
    whole,
)


class ListedMember(NamedTuple):
    """A caption of a list and its image, a path relative to the source's folder.

    Attributes:
        negatives: captions that are wrong about the image.
        extra: values of the line in other columns.
    """

    image: str
    text: str
    negatives: tuple[str, ...] = ()
    extra: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True)
class ListedSet:
    """Adjacent rows: the captions of a photo, or the members of a set.

    Attributes:
        is_set: whether the members are counterfactuals of each other.
    """

    name: str
    group: str
    where: str
    members: list[ListedMember] = field(default_factory=list)
    is_set: bool = False

    def check(self) -> None:
        """Refuse counterfactuals without a change, and negatives that are right."""
        pairs = [(member.image, member.text) for member in self.members]
        for image, _, negatives, _ in self.members:
            right = next((text for text in negatives if (image, text) in pairs), None)
            if right is not None:
                raise UserError(
                    f"{self.where}: {right!r} is both a caption and a negative of {image!r}; "
                    "correct or remove one"
                )
        for number, pair in enumerate(pairs[1:] if self.is_set else (), 1):
            if pair in pairs[:number] or pair[1] == pairs[0][1]:
                raise UserError(
                    f"{self.where}: a counterfactual says what another member does, "
                    f"{pair[1]!r}; correct or remove it"
                )


class CaptionList(Reader):
    """A csv, tsv, jsonl, json or parquet with a column for the image and one for its caption.

    Lines that name the same image are captions of one photo. A line that also has a
    counterfactual's image and caption, ``cf_image, cf_caption``, or numbered ones, ``image_0,
    caption_0, image_1, ...``, is a set. A column ``group`` or ``image_id`` names the photo's group;
    without one each image is a group. ``cfaug.data.sources.columns`` has the names of columns,
    ``cfaug.data.sources.columns`` the file formats. The source is the folder of the list, or the
    list itself if the folder has several.
    """

    has_parts = True
    kind = "caption_list"
    form = "a list of images and captions"
    description = (
        "captions.jsonl, .csv, .tsv or .json with columns image, caption (one or a list), of pairs "
        "also cf_image, cf_caption; or Flickr30k's results.csv"
    )

    def __init__(self, image_roots: Sequence[Path] = ()) -> None:
        self.image_roots = tuple(image_roots)

    def with_roots(self, image_roots: Sequence[Path]) -> CaptionList:
        return type(self)(image_roots)

    def recognises(self, path: Path) -> bool:
        return find_list(path) is not None

    def files(self, path: Path) -> list[Path]:
        """Return every image below the folder, listed or not, and every image listed elsewhere."""
        home, elsewhere = source_home(path), dict[Path, None]()
        for listed in self._sets(path) if self.image_roots else ():
            for member in listed.members:
                elsewhere[locate(home, member.image, listed.where, self.image_roots)] = None
        return [
            *images_below(home), *(file for file in elsewhere if not file.is_relative_to(home)),
        ]  # fmt: skip

    def describe(self, path: Path) -> Description:
        return self._describe(path, lambda record, where: columns_of(record, where).used)

    def _describe(
        self, path: Path, used_of: Callable[[Mapping[str, Any], str], Sequence[str]]
    ) -> Description:
        choice = choose_rows(path, self._list(path))
        used, there = dict.fromkeys(choice.used), dict[str, None]()
        for where, record in image_records(self._list(path)):
            there.update(dict.fromkeys(record))
            if choice.reads(record, image_path(record)):
                used.update(dict.fromkeys(used_of(record, where)))
        file = self._list(path)
        rejected = rejected_phrase(file) if file.suffix.lower() == ".json" else ()
        return replace(
            Description.of_columns(used, there),
            left_out=(*rejected, *other_lists(path)),
            notes=(*choice.notes, *region_notes([name for name in there if name not in used])),
        )

    def identity(self, path: Path) -> Any:
        return files_identity([self._list(path), *self.files(path)])

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the rows, with the captions of an image and the members of a set adjacent.

        Photos and sets are in the order in which the list first names them.
        """
        errors = ErrorCollector()
        for listed in self._sets(path):
            with errors.collect():
                yield from set_rows(source_home(path), listed, self.image_roots)
        errors.report()

    def _sets(self, path: Path) -> list[ListedSet]:
        sets, errors = list[ListedSet](), ErrorCollector()
        photos: dict[str, ListedSet] = {}
        counts = Counter[str]()

        def name_of(image: str) -> str:
            name = os.path.splitext(image)[0]
            counts[name] += 1
            return name if counts[name] == 1 else f"{name}, set {counts[name]}"

        for where, record in chosen_records(path, self._list(path)):
            with errors.collect():
                columns = columns_of(record, where)
                image = image_name(record[columns.members[0][0]], where)
                group = image if columns.group is None else record[columns.group]
                group = image if group == "" else group_name(group)
                values = keep_json(record, columns.unused)
                if columns.is_set:
                    pairs = _pairs(record, columns, where)
                    name = str(whole(record[columns.id])) if columns.id else name_of(pairs[0][0])
                    ((_, wrong),) = with_negatives([pairs[0][1]], columns, record, where)
                    members = [ListedMember(*pair, (), values) for pair in pairs]
                    members[0] = members[0]._replace(negatives=wrong)
                    sets.append(ListedSet(name, group, where, members, is_set=True))
                    continue
                if image not in photos:
                    photos[image] = ListedSet(name_of(image), group, where)
                    sets.append(photos[image])
                names = (columns.members[0][1], *columns.captions)
                texts = [text for name in names for text in captions(record[name], where)]
                photos[image].members += [
                    ListedMember(image, text, wrong, values)
                    for text, wrong in with_negatives(texts, columns, record, where)
                ]
        for listed in sets:
            with errors.collect():
                listed.check()
        errors.report()
        return sets

    def _list(self, path: Path) -> Path:
        return known(find_list(path))


def source_home(path: Path) -> Path:
    """Return the folder of a source's images: that of the list, if it is named itself."""
    path = split_home(path)[0]
    return path if path.is_dir() else path.parent


def with_negatives(
    texts: Sequence[str], columns: Columns, record: Mapping[str, Any], where: str
) -> list[tuple[str, tuple[str, ...]]]:
    """Return each caption with its negatives: one each if the numbers are equal, otherwise all."""
    if not columns.negatives:
        return [(text, ()) for text in texts]
    values = (record[name] for name in columns.negatives)
    wrong = tuple(text for value in values if value != [] for text in captions(value, where))
    right = next((text for text in wrong if text in texts), None)
    if right is not None:
        raise UserError(
            f"{where}: {right!r} is both a caption and a negative; correct or remove it"
        )
    if len(wrong) == len(texts):
        return [(text, (negative,)) for text, negative in zip(texts, wrong, strict=True)]
    return [(text, wrong) for text in texts]


def image_name(name: Any, where: str) -> str:
    """Return the file name of an image in a list."""
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"{where}: the image should be the name of a file, not {name!r}")
    return os.path.normpath(name.strip())


def _pairs(record: Mapping[str, Any], columns: Columns, where: str) -> list[tuple[str, str]]:
    pairs = [
        (image_name(record[image], where), caption(record[text], where))
        for image, text in columns.members
    ]
    if columns.sets is not None:
        others, where_listed = record[columns.sets], f"{where}: {columns.sets}"
        if not isinstance(others, list) or not all(isinstance(other, dict) for other in others):
            raise UserError(f"{where_listed} should be a list of objects with image and caption")
        for number, other in enumerate(others):
            position = f"{where_listed}[{number}]"
            other_columns = columns_of(other, position)
            if other_columns.is_set or other_columns.negatives or other_columns.captions:
                raise UserError(f"{position} should have one image and one caption")
            image, text = other_columns.members[0]
            pairs.append((image_name(other[image], position), caption(other[text], position)))
    if columns.captions:
        raise UserError(f"{where}: {', '.join(columns.captions)}: a member has one caption")
    return pairs


def set_rows(path: Path, listed: ListedSet, image_roots: Sequence[Path] = ()) -> Iterator[Row]:
    """Check each image of a set once, and yield every member."""
    key = clean_key(listed.name)
    images = [member.image for member in listed.members]
    files = {image: locate(path, image, listed.where, image_roots) for image in images}
    digests = {image: file_digest(file) for image, file in files.items()}
    if listed.is_set:
        check_images_differ([(image, digests[image].whole) for image in images], listed.where)
    names = {image: key if i == 0 else f"{key}_{i}" for i, image in enumerate(files)}
    for number, (image, text, negatives, extra) in enumerate(listed.members):
        file = files[image]
        yield Row(
            set=key, member=number, group=listed.group, text=text, label=None,
            image_id=names[image], file=str(file), offset=0, length=file.stat().st_size,
            digest=digests[image], where=str(file), negatives=negatives,
            edited=listed.is_set and number > 0, extra=extra,
        )  # fmt: skip


# Two folders of images with equal names: the originals and their counterfactuals.

ORIGINAL = ("original", "originals", "real", "source", "before")
COUNTERFACTUAL = ("counterfactual", "counterfactuals", "cf", "edited", "after")
Texts = dict[str, tuple[str, str]]
"""(caption, place) by the name of an image without its extension."""


class PairedFolders(Reader):
    """``original/a.jpg`` and ``counterfactual/a.jpg`` are a pair; also real/ and cf/ and the like.

    The captions are beside the images, in a ``.txt`` each or a list in either folder; or in a list
    above, with columns image, caption, cf_caption or with the paths of either folder.
    """

    has_parts = True
    kind = "paired_folders"
    form = "two folders of images with equal names"
    description = (
        "original/ and counterfactual/ (or real/ cf/, source/ edited/, before/ after/) with equal "
        "names, a .txt beside each image, or captions.csv with image, caption, cf_caption"
    )

    def recognises(self, path: Path) -> bool:
        """Return whether there are both folders, and no list that names the images of pairs."""
        if self._sides(path) is None:
            return False
        columns = _columns(path)
        return columns is None or not columns.is_set

    def files(self, path: Path) -> list[Path]:
        return [image for side in known(self._sides(path)) for image in images_below(side)]

    def describe(self, path: Path) -> Description:
        """Return which columns of a list above the folders are read."""
        columns = _columns(path)
        if columns is None:
            return Description()
        choice = choose_rows(path, known(find_list(path)))
        there = (*columns.used, *columns.unused)
        described = Description.of_columns((*columns.used, *choice.used), there)
        return replace(described, notes=choice.notes)

    def identity(self, path: Path) -> Any:
        """Return name, size and time of every image and of the files of captions."""
        images = self.files(path)
        lists = [find_list(folder) for folder in (path, *known(self._sides(path)))]
        texts = [text for image in images if (text := image.with_suffix(".txt")).is_file()]
        return files_identity([*(file for file in lists if file is not None), *texts, *images])

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the original and the counterfactual of every pair, by name."""
        sides = known(self._sides(path))
        images: list[dict[str, Path]] = [{}, {}]
        home = source_home(path)
        for side, by_name in zip(sides, images, strict=True):
            for image in images_below(side):
                name = str(image.relative_to(side).with_suffix(""))
                if name in by_name:
                    raise UserError(
                        f"{by_name[name]} and {image} have one name; rename one and its partner"
                    )
                by_name[name] = image
        texts, errors = _texts(path, sides, images), ErrorCollector()
        listed_names, every = {*texts[0], *texts[1]}, {*images[0], *images[1]}
        # Of a split that is named, only the listed images are read.
        for name in sorted(listed_names | (every if split_home(path)[1] is None else set())):
            with errors.collect():
                members = []
                if name not in images[0] and name not in images[1]:
                    _, where = texts[0].get(name) or texts[1][name]
                    raise UserError(
                        f"{where}: there is no image {name!r} in {sides[0]} and {sides[1]}; add it "
                        "or remove the line"
                    )
                for i, side in enumerate(sides):
                    if name not in images[i]:
                        there = images[1 - i][name]
                        raise UserError(
                            f"{there} has no partner of its name in {side}; add it or remove the "
                            "image"
                        )
                    if name not in texts[i]:
                        raise UserError(f"{images[i][name]} has no caption")
                    image = images[i][name]
                    members.append(ListedMember(str(image.relative_to(home)), texts[i][name][0]))
                listed = ListedSet(name, name, texts[0][name][1], members, is_set=True)
                listed.check()
                yield from set_rows(home, listed)
        errors.report()

    def _sides(self, path: Path) -> tuple[Path, Path] | None:
        folders, path = [], split_home(path)[0]
        for names in (ORIGINAL, COUNTERFACTUAL):
            there = [path / name for name in names if (path / name).is_dir()]
            if len(there) != 1 or not images_below(there[0]):
                return None
            folders.append(there[0])
        return folders[0], folders[1]


def _columns(path: Path) -> Columns | None:
    file = find_list(path)
    first = None if file is None else next(image_records(file), None)
    return None if first is None else columns_of(first[1], first[0])


def _texts(path: Path, sides: tuple[Path, Path], images: list[dict[str, Path]]) -> list[Texts]:
    if (above := find_list(path)) is not None:
        return _listed_above(path, above, sides)
    by_side = []
    for side, there in zip(sides, images, strict=True):
        file = find_list(side)
        texts: Texts = {}
        if file is not None:
            split = split_home(path)[1]
            part = side if split is None else side.with_name(f"{side.name}:{split}")
            for where, record in chosen_records(part, file):
                columns = columns_of(record, where)
                image, text = columns.members[0]
                if columns.is_set or columns.negatives:
                    raise UserError(f"{where}: a list of one folder has one image and one caption")
                _put(texts, image_name(record[image], where), record[text], where)
        else:
            for name, image_file in there.items():
                beside = image_file.with_suffix(".txt")
                if beside.is_file():
                    lines = sidecar_lines(image_file)
                    if len(lines) > 1:
                        raise UserError(
                            f"{beside} has {len(lines)} lines; an image of a pair has one caption"
                        )
                    texts[name] = lines[0], str(beside)
        if not texts:
            raise UserError(
                f"{side} has no captions, and pairs of images are trained on with theirs: write a "
                f".txt beside each image, or {path / 'captions.csv'} with the columns image, "
                "caption, cf_caption. If these are edits for benchmark=stress: of which kind are "
                f"they? Put what {sides[1].name}/ holds into a folder called by it, "
                f"{sides[1].name}/KIND/"
            )
        by_side.append(texts)
    return by_side


def _listed_above(path: Path, file: Path, sides: tuple[Path, Path]) -> list[Texts]:
    by_side: list[Texts] = [{}, {}]
    home = split_home(path)[0]
    for where, record in chosen_records(path, file):
        columns = columns_of(record, where)
        image, text = columns.members[0]
        name = PurePath(image_name(record[image], where))
        side = sides.index(home / name.parts[0]) if home / name.parts[0] in sides else None
        inside = str(name) if side is None else str(PurePath(*name.parts[1:]))
        if len(columns.negatives) > 1 or columns.captions:
            more = ", ".join((*columns.negatives, *columns.captions))
            raise UserError(f"{where}: {more}: each image of a pair has one caption")
        if columns.negatives:  # the caption of the counterfactual with that name
            _put(by_side[0], inside, record[text], where)
            _put(by_side[1], inside, record[columns.negatives[0]], where)
        elif side is not None:
            _put(by_side[side], inside, record[text], where)
        else:
            raise UserError(
                f"{where}: {str(name)!r} says neither in which of {sides[0].name}/ and "
                f"{sides[1].name}/ it lies nor, in a column cf_caption, what the counterfactual "
                "shows"
            )
    return by_side


def _put(texts: Texts, image: str, text: object, where: str) -> None:
    name = str(PurePath(image).with_suffix(""))
    if name in texts:
        raise UserError(f"{where}: {name!r} is duplicated, first in {texts[name][1]}")
    texts[name] = (caption(text, where), where)
