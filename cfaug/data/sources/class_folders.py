"""Folders of images by class: any ImageFolder, and Food-101 by its list of the test split."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from cfaug.core.errors import UserError, name_some
from cfaug.core.files import visible_files
from cfaug.core.safety.json_text import json_file
from cfaug.data.sources.caption_list import (
    CaptionList,
    ListedMember,
    ListedSet,
    image_name,
    set_rows,
    source_home,
)
from cfaug.data.sources.columns import (
    CAPTION,
    IMAGE,
    chosen_records,
    find_list,
    image_records,
    one_column,
)
from cfaug.data.sources.folders import (
    image_rows,
    images_below,
    list_folders,
    locate,
    unread_images,
    walk,
)
from cfaug.data.sources.lists import LISTS, text_lines
from cfaug.data.sources.naming_lists import naming_lists
from cfaug.data.sources.row import (
    NAMED_AT_ONCE,
    Description,
    ErrorCollector,
    Reader,
    Row,
    caption,
    class_caption,
    clean_key,
    files_identity,
    keep_json,
    known,
    one_class_error,
    split_home,
)
from cfaug.data.sources.splits import IN_LISTS, SplitSurvey, choose_split, split_kind

FOOD_TEST = "meta/test.txt"
HOLD_IMAGES = {
    "images", "imgs", "jpegimages", "jpegs", "masks", "photos", "pics", "pictures", "pngs",
    "thumbnails", "thumbs",
}  # fmt: skip
"""Names of folders of any images: if one folder has such a name, folders are not classes."""
NO_CLASSES = HOLD_IMAGES | {
    "after", "annotations", "before", "cf", "counterfactual", "counterfactuals", "data", "edited",
    "edits", "fake", "generated", "image", "img", "input", "inputs", "jpeg", "jpg", "labels",
    "original", "originals", "output", "outputs", "photo", "png", "real", "source", "sources",
    "synthetic", "target", "targets",
}  # fmt: skip
"""Names of folders by content; if all folders have such names, they are not classes."""
CAPTIONED = re.compile(
    rb"\b(captions?|conversations|descriptions?|raw|sentences?|text|title)\b", re.IGNORECASE
)
"""Names of captions in a list."""
LARGEST_LIST = 256 * 2**20
SAMPLE = 20
"""Number of images whose names are searched in a list."""


class ImageFolder(Reader):
    """A folder per class; the class name is the label, and "a photo of a {c}" the caption.

    If all of them are in one more folder, such as Caltech-101's ``101_ObjectCategories/``, its name
    is not a class. Each image is a group. Lists beside the folders may say which images are of
    which split: ``train.txt``, ``test.txt``, or CUB's ``train_test_split.txt``.
    """

    has_parts = True
    kind = "image_folder"
    form = "class folders"
    description = "a folder of images per class (ImageFolder)"

    def recognises(self, path: Path) -> bool:
        """Return whether there are class folders with images, and no images beside them."""
        path = split_home(path)[0]
        first = (folder != path for folder, images, _ in walk(path) if images)
        return path.is_dir() and next(first, False)

    def files(self, path: Path) -> list[Path]:
        return images_below(split_home(path)[0])

    def describe(self, path: Path) -> Description:
        """Return what is left out: lists beside the folders, and images of unsupported formats."""
        source, images = split_home(path)[0], self.files(path)
        splits = ListedSplits(path, images)
        lists = [
            str(file.relative_to(source))
            for file in _lists(source, _class_home(source, images))
            if file not in splits.lists
        ]
        # Texts in other folders that are called as the images are, such as CUB's.
        places = {(image.parent, image.stem) for image in images}
        stems, counts = {stem for _, stem in places}, Counter[str]()
        for folder, files in list_folders(source):
            for name in files:
                stem, ending = os.path.splitext(name)
                if ending.lower() == ".txt" and stem in stems and (folder, stem) not in places:
                    counts[_top(folder / name, source)] += 1
        texts = [
            f"{count:,} .txt in {top} that are called as images are: captions are read beside them"
            for top, count in counts.items()
        ]
        left_out = (*lists, *texts, *unread_images(source))
        return Description(left_out=left_out, notes=splits.choice.notes)

    def identity(self, path: Path) -> Any:
        """Return the captions of the classes; name, size and time of lists and of every image."""
        path, images = split_home(path)[0], self.files(path)
        home = _class_home(path, images)
        captions = sorted({class_caption(_top(image, home)) for image in images})
        return [captions, *files_identity([*_lists(path, home), *images])]

    def open(self, path: Path) -> Iterator[Row]:
        errors, images, source = ErrorCollector(), self.files(path), path
        path = split_home(path)[0]
        home = _class_home(path, images)
        tops = {_top(image, home) for image in images}
        if _are_splits(tops):
            counts = Counter(_top(image, home) for image in images)
            named = ", ".join(
                f"{home / top} ({counts[top]:,} image{'s' * (counts[top] != 1)})"
                for top in sorted(tops)
            )
            lists = naming_lists(path, images)
            more = (
                f". {name_some(lists)} name{'s' * (len(lists) == 1)} these images and "
                f"{'is' if len(lists) == 1 else 'are'} of no form that is known: if their captions "
                "or classes stand there, write captions.csv (image, caption) or labels.csv (image, "
                f"label) into {path}"
            )
            raise UserError(
                f"{path} has splits, not classes; name one of {named}{more if lists else ''}"
            )
        unread = naming_lists(path, images) if len(tops) == 1 else []
        lines = [name for name in unread if name.lower().endswith(BY_LINE)]
        # The split may be said there, too, but lists by lines have readers, which asked for it.
        if unread and source != path and not lines:
            raise one_class_error(str(path), self.form, len(images), min(tops), unread)
        splits = ListedSplits(source, images)
        images = [image for image in images if splits.reads(image)]
        _check_classes(path, home, images, unread)
        for image in images:
            with errors.collect():
                label, name = _top(image, home), str(image.relative_to(path).with_suffix(""))
                yield from image_rows(image, clean_key(name), [class_caption(label)], name, label)
        errors.report()


class ListedSplits:
    """The splits of images in folders of their classes, by lists beside the folders.

    A list is called by its split, ``train.txt``, ``list_test.txt``, and names an image a line, or
    is CUB's ``train_test_split.txt`` beside ``images.txt``. Without lists, folders inside those of
    the classes may be called as splits are.
    """

    def __init__(self, path: Path, images: Sequence[Path]) -> None:
        source = split_home(path)[0]
        self._home = _class_home(source, list(images))
        self._source = source
        self._splits: dict[Path, list[str]] = {}
        self.lists: list[Path] = []
        by_name = {self._name(image): image for image in images}
        for file in _lists(source, self._home):
            for split, name in self._lines(file):
                name = name.removeprefix("./").partition(f"{self._home.name}/")[2] or name
                image = by_name.get(name) or by_name.get(name.rpartition(".")[0])
                if image is not None:
                    splits = self._splits.setdefault(image, [])
                    splits += [] if split in splits else [split]
                    self.lists += [] if file in self.lists else [file]
        survey = SplitSurvey()
        for image in images:
            survey.add(self._record(image), self._folder(image))
        choice = choose_split(path, survey)
        doubled = [
            self._name(image)
            for image, splits in self._splits.items()
            if len(kinds := {*map(split_kind, splits)}) > 1 and "test" in kinds
        ]
        if doubled:
            note = (
                f"{len(doubled):,} images are in the list of the test and in another one "
                f"({name_some(doubled)}): they are read of both"
            )
            choice = replace(choice, notes=(*choice.notes, note))
        self.choice = choice

    def reads(self, image: Path) -> bool:
        """Return whether an image is of the chosen split."""
        return self.choice.reads(self._record(image), self._folder(image))

    def _name(self, image: Path) -> str:
        return str(image.relative_to(self._home).with_suffix(""))

    def _record(self, image: Path) -> dict[str, Any]:
        return {IN_LISTS: self._splits[image]} if image in self._splits else {}

    def _folder(self, image: Path) -> str:
        """Return the path of an image inside the folder of its class."""
        return str(PurePath(*image.relative_to(self._home).parts[1:]))

    def _lines(self, file: Path) -> Iterator[tuple[str, str]]:
        """Yield (split, name of an image) for every line of a list that says splits."""
        if file.stat().st_size > LARGEST_LIST:
            return
        try:
            lines = [line.strip() for _, line in text_lines(file) if line.strip()]
        except UserError:
            return  # a list of another kind, which is described as not read
        names = file.with_name("images.txt")
        if file.name == "train_test_split.txt" and names.is_file():
            listed = (line.split(maxsplit=1) for _, line in text_lines(names) if line.strip())
            numbered = {number: name.strip() for number, name in listed}
            for line in lines:
                number, _, flag = line.partition(" ")
                yield ("train" if flag.strip() == "1" else "test"), numbered.get(number, "")
            return
        words = [word for word in re.split("[ _-]", file.stem) if split_kind(word)]
        split = file.stem if split_kind(file.stem) else words[0] if len(words) == 1 else None
        if split is not None and file.suffix.lower() == ".json":
            # A json of nothing but names: a list, or lists by class, as of Food-101.
            try:
                content = json_file(file)
            except UserError:
                return
            lists = [*content.values()] if isinstance(content, dict) else [content]
            if not all(isinstance(listed, list) for listed in lists):
                return
            every = [name for listed in lists for name in listed]
            if all(isinstance(name, str) for name in every):
                yield from ((split, name) for name in every)
        if split is not None and file.suffix.lower() in (".txt", ".csv", ".tsv"):
            for line in lines:
                # Of a table any cell may name the image: the first one may be a number.
                cells = re.split(r"[,;\t]| (?=\S+$)", line)
                for cell in cells[:1] if file.suffix.lower() == ".txt" else cells:
                    yield split, cell.strip("\"' ")


def _check_classes(path: Path, home: Path, images: list[Path], unread: Sequence[str]) -> None:
    tops = {_top(image, home) for image in images}
    names = ", ".join(sorted(tops)[:NAMED_AT_ONCE])
    sample = images[:: max(1, len(images) // SAMPLE)]
    for file in _lists(path, home):
        if file.stat().st_size > LARGEST_LIST:
            continue
        content = file.read_bytes()
        named = any(os.fsencode(image.name) in content for image in sample)
        if named and CAPTIONED.search(content) is not None:
            raise UserError(
                f"{path}: {file.relative_to(path)} seems to hold captions of these images, and its "
                f"form is not known; without it they would be read as class folders ({names}). "
                "Write captions.csv or captions.jsonl with image and caption instead; if the "
                "folders are the classes, move the list out of the folder"
            )
    if len(tops) == 1:
        raise one_class_error(str(path), ImageFolder.form, len(images), min(tops), unread)
    plain = {name.lower() for name in tops}
    if plain <= NO_CLASSES or plain & HOLD_IMAGES:
        raise UserError(
            f"{path}: {len(images):,} images in folders called {names}, which are not classes. "
            "Images need captions: captions.csv or captions.jsonl (image, caption) beside the "
            "folders, or a .txt beside each image. If they are classes, give them other names"
        )


def _lists(path: Path, home: Path) -> list[Path]:
    """Return the unread lists beside class folders, or in a folder beside them."""
    between = [
        folder for folder in (home, *home.parents) if folder == path or path in folder.parents
    ]
    beside = [folder for folder, images, _ in walk(path) if not images and folder.parent == path]
    files = (file for folder in dict.fromkeys([*between, *beside]) for file in folder.iterdir())
    return visible_files(f for f in files if f.suffix.lower() in (*LISTS, ".txt") and f.is_file())


def _top(image: Path, path: Path) -> str:
    return image.relative_to(path).parts[0]


def _are_splits(names: set[str]) -> bool:
    kinds = {split_kind(name) for name in names}
    if None not in kinds or len(kinds) > 2:  # several splits, and folders of something else
        return True
    # ``cars_train`` and ``cars_test``: names that differ by the split alone.
    words = [re.split("[ _-]", name) for name in names]
    said = [[word for word in name if split_kind(word)] for name in words]
    others = {tuple(word for word in name if not split_kind(word)) for name in words}
    return len(names) > 1 and len(others) == 1 and all(len(splits) == 1 for splits in said)


def _class_home(path: Path, images: list[Path]) -> Path:
    """Return the folder of the class folders: the deepest one that contains all images."""
    while len(tops := {_top(image, path) for image in images}) == 1 and not _are_splits(tops):
        if any(len(image.relative_to(path).parts) == 2 for image in images):
            return path  # it contains the images directly: it is the only class
        path /= tops.pop()
    return path


class Food101(Reader):
    """Food-101 as released: the images listed in ``meta/test.txt``, a folder per class.

    The source is the archive's folder ``food-101``, or the folder into which it was unpacked.
    """

    kind = "food101"
    form = "Food-101's test split"
    description = "images/CLASS/ and meta/test.txt (Food-101, whose test split is read)"

    def recognises(self, path: Path) -> bool:
        return self._home(path) is not None

    def files(self, path: Path) -> list[Path]:
        return images_below(known(self._home(path)) / "images")

    def identity(self, path: Path) -> Any:
        return files_identity([known(self._home(path)) / FOOD_TEST, *self.files(path)])

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the images of the test split with their classes, in the list's order."""
        home, errors = known(self._home(path)), ErrorCollector()
        lines = (home / FOOD_TEST).read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            name, where = line.strip(), f"{home / FOOD_TEST}, line {number}"
            if name:
                with errors.collect():
                    label = name.partition("/")[0]
                    file = locate(home, f"images/{name}.jpg", where)
                    texts = [class_caption(label)]
                    yield from image_rows(file, clean_key(name), texts, name, label)
        errors.report()

    def _home(self, path: Path) -> Path | None:
        homes = (path, path / "food-101")
        return next(
            (h for h in homes if (h / FOOD_TEST).is_file() and (h / "images").is_dir()), None
        )


# A list of images and their classes, ``labels.csv`` with columns image, label.

LABEL = ("label", "class", "class_name", "classname", "category")
CAPTIONS = ("captions", "pairs")
"""Names of lists in which a missing caption is a mistake."""
BY_LINE = (".csv", ".tsv", ".jsonl")
"""Extensions of lists whose first line can be read without the others."""


class LabelList(CaptionList):
    """A csv, tsv or jsonl with a column for the image and one for its class, and no caption."""

    kind = "label_list"
    form = "a list of images and classes"
    description = "labels.csv, .tsv or .jsonl with columns image, label (a class's name)"

    def recognises(self, path: Path) -> bool:
        """Return whether there is a list whose first line has an image, a class and no caption."""
        file = find_list(path)
        if file is None or file.suffix.lower() not in BY_LINE or file.stem.lower() in CAPTIONS:
            return False
        try:
            first = next(islice(image_records(file), 1), None)
        except UserError:
            return False  # reported by the reader of captions
        if first is None:
            return False
        names = {name.lower() for name, value in first[1].items() if value not in (None, "")}
        return bool(names & {*IMAGE} and names & {*LABEL} and not names & {*CAPTION})

    def describe(self, path: Path) -> Description:
        return self._describe(path, _columns)

    def open(self, path: Path) -> Iterator[Row]:
        errors, sets = ErrorCollector(), self._sets(path)
        labels = {listed.members[0].text for listed in sets}
        if len(labels) == 1:
            raise one_class_error(str(self._list(path)), self.form, len(sets), labels.pop())
        for listed in sets:
            with errors.collect():
                label = listed.members[0].text
                for row in set_rows(source_home(path), listed, self.image_roots):
                    yield row._replace(text=class_caption(label), label=label)
        errors.report()

    def _sets(self, path: Path) -> list[ListedSet]:
        by_image: dict[str, ListedSet] = {}
        errors = ErrorCollector()
        for where, record in chosen_records(path, self._list(path)):
            with errors.collect():
                image_column, label_column = _columns(record, where)
                image = image_name(record[image_column], where)
                label = record[label_column]
                if isinstance(label, int) and not isinstance(label, bool):
                    label = str(label)
                elif isinstance(label, str) and label.strip():
                    label = caption(label, where)
                else:
                    raise UserError(
                        f"{where}: the class {label!r} is invalid: write its name, such as polar "
                        "bear"
                    )
                if image in by_image:
                    raise UserError(
                        f"{where}: duplicated image {image!r}, which {by_image[image].where} has "
                        "too"
                    )
                unused = [name for name in record if name not in (image_column, label_column)]
                member = ListedMember(image, label, (), keep_json(record, unused))
                name = str(Path(image).with_suffix(""))
                by_image[image] = ListedSet(name, image, where, [member])
        errors.report()
        return list(by_image.values())


def _columns(record: Mapping[str, Any], where: str) -> Sequence[str]:
    names = [name for name, value in record.items() if value not in (None, "")]
    columns = [one_column(names, IMAGE, "image", where), one_column(names, LABEL, "class", where)]
    for kind, column, wanted in zip(("image", "class"), columns, (IMAGE, LABEL), strict=True):
        if column is None:
            raise UserError(
                f"{where}: the {kind} is missing: none of the columns {', '.join(wanted)}; there "
                f"are {', '.join(names) or 'none'}"
            )
    return [column for column in columns if column is not None]
