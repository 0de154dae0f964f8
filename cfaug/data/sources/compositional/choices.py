"""Tests of one photo and several captions (SugarCrepe, ARO, ...), and the training sets TROHN."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.data.sources.compositional.item import (
    FALSE,
    TRUE,
    Item,
    ItemForm,
    ItemPhoto,
    ItemRecord,
    Released,
    file_entries,
    list_entries,
    named_files,
)
from cfaug.data.sources.compositional.listed import box_of
from cfaug.data.sources.lists import Record
from cfaug.data.sources.parquet import column_names, parquet_files
from cfaug.data.sources.parquet_splits import ParquetSplit, split_files, split_of
from cfaug.data.sources.row import split_home

LIST_FOLDERS = ("", "data", "annotations")
"""Folders in which the lists may be."""
COCO_FOLDERS = ("val2017", "coco/val2017", "coco/images/val2017", "data/coco/images/val2017")
"""Places of COCO's photos below a folder; the third is the SugarCrepe authors' suggestion."""
COCO_BESIDE = ("val2017", "coco/val2017", "coco/images/val2017", "coco2017/val2017")
SUGARCREPE = {
    "add_obj": 2062, "add_att": 692, "replace_obj": 1652, "replace_att": 788, "replace_rel": 1406,
    "swap_obj": 245, "swap_att": 666,
}  # fmt: skip
"""SugarCrepe's lists, in the order of its ``main_eval.py``, with their numbers of items."""
SUGARCREPE_FILES = {name: f"{name}.json" for name in SUGARCREPE}


def choice(
    entry: ItemRecord, true: list[str], false: list[str], *photo: str, category: str = ""
) -> Item:
    """Return a choice, with the photo from one of the usual columns."""
    return Item(
        name=f"{entry.category}-{entry.name}" if entry.category else entry.name,
        where=entry.where,
        photos=(entry.photo(*photo),),
        texts=(*true, *false),
        labels=(TRUE,) * len(true) + (FALSE,) * len(false),
        category=category or entry.category,
    )


class Choice(ItemForm):
    """A form of one photo with true and false captions, each in a column of its own.

    Attributes:
        photo: columns of the photo, the first existing one of which is read.
        true: columns of the true captions.
        false: columns of the false captions.
        category_column: the column of the item's category; empty for that in the list's name.
        tag_columns: {tag: column} of further texts of an item, "" where the column is missing.
    """

    is_choice = True
    photo: tuple[str, ...]
    true: tuple[str, ...]
    false: tuple[str, ...]
    category_column: str = ""
    tag_columns: ClassVar[Mapping[str, str]] = {}

    def item(self, entry: ItemRecord) -> Item:
        """Read an entry: the true captions, then the false ones."""
        true, false = ([entry.text(name) for name in names] for names in (self.true, self.false))
        category = entry.word(self.category_column) if self.category_column else ""
        item = choice(entry, true, false, *self.photo, category=category)
        return replace(item, tags={tag: entry.word(name) for tag, name in self.tag_columns.items()})


class SugarCrepe(Choice):
    """SugarCrepe (Hsieh et al., 2023), https://github.com/RAIVNLab/sugar-crepe: seven json files.

    MTEB's parquet has the columns ``images``, ``caption``, ``negative_caption`` and no categories.
    """

    kind = "sugarcrepe"
    form = "SugarCrepe"
    get = (
        "data/*.json of github.com/RAIVNLab/sugar-crepe; the photos, COCO's val2017, inside as "
        "val2017/, beside as coco/val2017/, or benchmark.images=FOLDER"
    )
    description = (
        "add_obj.json, ..., swap_att.json with filename, caption, negative_caption (SugarCrepe), "
        "val2017/ inside or beside"
    )
    files = SUGARCREPE_FILES
    list_folders = LIST_FOLDERS
    columns = ("images", "caption", "negative_caption")
    folders, beside = COCO_FOLDERS, COCO_BESIDE
    photo, true, false = ("filename", "images"), ("caption",), ("negative_caption",)
    released = Released(
        7511,
        SUGARCREPE,
        "the paper, and copies made of an earlier release, have 7,512: there swap_obj has 246, of "
        "which the released file lacks number 108",
    )

    def lists(self, path: Path) -> dict[str, Path]:
        """Return the lists, unless they have two true captions each."""
        files = super().lists(path)
        return {} if _has_second_caption(files) else files

    def fits(self, names: Mapping[str, bool]) -> bool:
        return super().fits(names) and names["images"] and "caption2" not in names


class SugarCrepePlus(Choice):
    """SugarCrepe++ (Dumpala et al., 2024), https://github.com/Sri-Harsha/scpp: two true captions.

    Five lists, ``replace_obj.json`` to ``swap_att.json``, with ``caption2`` beside ``caption``.
    """

    kind = "sugarcrepe_pp"
    form = "SugarCrepe++"
    get = (
        "the json lists of github.com/Sri-Harsha/scpp (Aman-J/SugarCrepe_pp on the Hub): "
        "swap_obj.json, ..., replace_rel.json; the photos, COCO's val2017, inside as val2017/, "
        "beside as coco/val2017/, or benchmark.images=FOLDER"
    )
    description = (
        "replace_obj.json, ..., swap_att.json with filename, caption, caption2, negative_caption "
        "(SugarCrepe++), val2017/ inside or beside"
    )
    files = SUGARCREPE_FILES
    list_folders = LIST_FOLDERS
    columns = ("images|image", "caption", "caption2", "negative_caption")
    folders, beside = COCO_FOLDERS, COCO_BESIDE
    photo = ("filename", "images", "image")
    true, false = ("caption", "caption2"), ("negative_caption",)
    released = Released(
        4757,
        {name: count for name, count in SUGARCREPE.items() if not name.startswith("add")},
        "3 items (2 of swap_obj, 1 of replace_att) have equal captions; they are left out here",
    )

    def lists(self, path: Path) -> dict[str, Path]:
        """Return the lists, if they have two true captions each."""
        files = super().lists(path)
        return files if _has_second_caption(files) else {}


def _has_second_caption(lists: Mapping[str, Path]) -> bool:
    """Return whether a list has SugarCrepe++'s column in its first entries, however large it is."""
    for file in lists.values():
        try:
            with require_regular(file).open("rb") as handle:
                if b'"caption2"' in handle.read(4096):
                    return True
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}") from error
    return False


class AroForm(ItemForm):
    """ARO (Yuksekgonul et al., 2023): a box of a photo of Visual Genome, two captions.

    https://github.com/mertyg/vision-language-models-are-bows. The photo is first cropped to the
    box, as in ``dataset_zoo/aro_datasets.py``; parts beyond the photo are black. The released code
    has the captions in the order false, true and takes the first of equal scores, so that a tie is
    a miss.
    """

    is_choice = True
    list_folders = LIST_FOLDERS
    folders = ("images", "data/images", "VG_100K", "VG_100K_2")
    beside = ("images", "visual_genome/VG_100K", "visual_genome/VG_100K_2", "vg/VG_100K")

    def lists(self, path: Path) -> dict[str, Path]:
        """Return the one list; hard positives have one of that name in data/."""
        return {} if (path / SWAPPED).is_dir() else super().lists(path)

    def item(self, entry: ItemRecord) -> Item:
        """Read an entry: the box, the true and the false caption."""
        left, top, width, height = (entry.whole_number(f"bbox_{letter}") for letter in "xywh")
        item = choice(
            entry, [entry.text("true_caption")], [entry.text("false_caption")], "image_path",
            category=self.part(entry),
        )  # fmt: skip
        photo = replace(item.photos[0], box=box_of(left, top, width, height))
        group = entry.word("image_id")
        return replace(item, photos=(photo,), group=group and f"vg-{group}")

    def part(self, entry: ItemRecord) -> str:
        """Return the category over which results are averaged: relation or pair of attributes."""
        raise NotImplementedError


class AroRelation(AroForm):
    """Visual Genome Relation: the order of two objects in a relation."""

    kind = "aro_relation"
    form = "ARO's relations"
    get = (
        "visual_genome_relation.json of github.com/mertyg/vision-language-models-are-bows, and "
        "vgr_vga_images.zip unpacked as images/"
    )
    description = (
        "visual_genome_relation.json with bbox_x, ..., true_caption, false_caption, relation_name "
        "(ARO), images/ beside it"
    )
    files: ClassVar[Mapping[str, str]] = {"": "visual_genome_relation.json"}
    released = Released(23_937)

    def part(self, entry: ItemRecord) -> str:
        return entry.word(entry.column("relation_name"))


class AroAttribution(AroForm):
    """Visual Genome Attribution: the assignment of two attributes to two objects."""

    kind = "aro_attribution"
    form = "ARO's attributes"
    get = (
        "visual_genome_attribution.json of github.com/mertyg/vision-language-models-are-bows, "
        "and vgr_vga_images.zip unpacked as images/"
    )
    description = (
        "visual_genome_attribution.json with bbox_x, ..., true_caption, false_caption, attributes "
        "(ARO), images/ beside it"
    )
    files: ClassVar[Mapping[str, str]] = {"": "visual_genome_attribution.json"}
    released = Released(28_748)

    def part(self, entry: ItemRecord) -> str:
        """Return both attributes, joined as the released code joins them."""
        attributes = entry.fields.get("attributes")
        if not isinstance(attributes, list) or not all(
            isinstance(attribute, str) for attribute in attributes
        ):
            raise UserError(
                f"{entry.where}: 'attributes' should be a list of texts, not {attributes!r:.80}"
            )
        return "_".join(" ".join(attribute.split()) for attribute in attributes)


class AroTable(ItemForm):
    """MTEB's parquet of ARO: the true caption and one or four false ones, photos not cropped.

    Its results differ from those of ARO's own files, whose photos are cropped to boxes first.
    """

    kind = "aro_order"
    is_choice = True
    form = "parquet of ARO (not cropped)"
    description = (
        "*.parquet with images, correct_caption, hard_text_1, ... (ARO of MTEB, not cropped)"
    )
    columns = ("images|image", "correct_caption|true_caption", "hard_text_1|false_caption")

    def item(self, entry: ItemRecord) -> Item:
        """Read a row: the true caption, then the false ones in the order of their numbers."""
        numbered = [name for name in entry.fields if re.fullmatch(r"hard_text_\d+", name)]
        names = sorted(numbered, key=lambda name: int(name.rpartition("_")[2]))
        false = [entry.text(name) for name in names or ["false_caption"]]
        true = entry.text("correct_caption", "true_caption")
        return choice(entry, [true], false, "images", "image")


SWAPPED = "swapped_data"
"""The folder of paraphrases, which only the hard positives have."""
HARD_POSITIVES: Mapping[str, str] = {
    "swap": "visual_genome_attribution.json",
    "replace_att": "vl_checklist_attributes.json",
    "replace_rel": "vl_checklist_relations.json",
}
"""The released code's names of the three parts (``run_eval.py``), and their files."""


class HardPositives(ItemForm):
    """The Hard Positive Truth (Kamath et al., 2024): the original, a paraphrase, a false caption.

    https://github.com/amitakamath/hard_positives: ``data/`` has the original and the false caption,
    ``swapped_data/`` the paraphrase and its false caption, entry by entry. If the two false
    captions differ, both are members, the original's first.
    """

    kind = "hard_positives"
    is_choice = True
    form = "hard positives"
    get = (
        "github.com/amitakamath/hard_positives: data/ and swapped_data/, with data/VG_100K/ and"
        " data/VG_100K_2/ of Visual Genome, and data/images/ of ARO for its swaps"
    )
    description = (
        "data/ and swapped_data/ with visual_genome_attribution.json, vl_checklist_attributes.json "
        "or vl_checklist_relations.json (The Hard Positive Truth)"
    )
    columns = ("images|image", "caption", "hard_positive", "negative")
    released = Released(
        56_191,  # half of the paper's 112,382 captions
        {"swap": 28_748, "replace_att": 10_575, "replace_rel": 16_868},
        "16 items (15 of replace_rel, 1 of replace_att) have equal captions; they are left out "
        "here, and counted as wrong by the released code",
    )
    folders = ("data", "data/images", "images", "replace", "VG_100K", "VG_100K_2")
    beside = ("visual_genome", "vg", "images", "aro/images")

    def lists(self, path: Path) -> dict[str, Path]:
        """Return the lists of originals for which a list of paraphrases exists."""
        originals = named_files(path, HARD_POSITIVES, ("data",))
        return {
            name: file for name, file in originals.items() if (path / SWAPPED / file.name).is_file()
        } or named_files(path, {"": "hard_positives.json"}, ("", "data"))

    def entries(self, path: Path) -> Iterator[ItemRecord]:
        """Yield the corresponding entries of both folders, joined into one."""
        for category, file in self.lists(path).items():
            if not category:
                yield from file_entries(file)
                continue
            swapped = path / SWAPPED / file.name
            both = zip_longest(file_entries(file, category), file_entries(swapped))
            for entry, paraphrased in both:
                if entry is None or paraphrased is None:
                    there = file if paraphrased is None else swapped
                    raise UserError(
                        f"{file} and {swapped} differ in length: {there} has more entries; fetch "
                        "both again"
                    )
                yield replace(
                    entry,
                    fields={
                        **entry.fields,
                        "paraphrase": paraphrased.text("true_caption"),
                        "paraphrase_negative": paraphrased.text("false_caption"),
                        "paraphrase_photo": paraphrased.fields.get("image_path"),
                    },
                )

    def item(self, entry: ItemRecord) -> Item:
        """Read an entry: original, paraphrase, false caption (two if they differ)."""
        if "paraphrase" not in entry.fields:
            true = [entry.text("caption"), entry.text("hard_positive")]
            item = choice(entry, true, [entry.text("negative")], "image", "images", "image_path")
            return replace(item, category=entry.word("category"))
        if entry.fields["paraphrase_photo"] != entry.fields.get("image_path"):
            raise UserError(
                f"{entry.where}: swapped_data has another photo there, "
                f"{entry.fields['paraphrase_photo']!r:.80}"
            )
        true = [entry.text("true_caption"), entry.text("paraphrase")]
        false = dict.fromkeys([entry.text("false_caption"), entry.text("paraphrase_negative")])
        item = choice(entry, true, list(false), "image_path")
        photo = item.photos[0]
        if "bbox_x" in entry.fields:
            box = box_of(*(entry.whole_number(f"bbox_{letter}") for letter in "xywh"))
            photo = replace(photo, box=box)
        group = entry.word("image_id")
        return replace(item, photos=(photo,), group=group and f"vg-{group}")


# TROHN-Text and TROHN-Img (Miranda et al., 2024): training sets about photos of COCO train2017.

PHOTO, CAPTION, WRONG, WRONG_IMAGE = "image_id", "caption", "negative_caption", "negative_image"
"""Columns of both; the last is TROHN-Img's."""
FOLDERS = ("train2017", "coco/train2017", "coco/images/train2017")
"""Places of COCO's train2017 photos below a folder, and beside it."""
LISTS = ("trohn_text.json", "trohn_text.jsonl", "trohn_text.csv")


def trohn_photo(entry: ItemRecord) -> ItemPhoto:
    """Return the COCO photo: ``image_id`` is the name of its file, or its number."""
    name = entry.word(PHOTO)
    if not name:
        raise UserError(f"{entry.where}: {PHOTO!r} is missing or empty")
    return ItemPhoto(entry.file_names(f"{name:0>12}.jpg" if name.isdecimal() else name, PHOTO))


class TrohnText(ItemForm):
    """``imirandam/TROHN-Text``: a photo, its caption, and a caption that is wrong about it.

    The wrong caption is a negative without an image, not a member. A list with the same columns is
    read too: ``trohn_text.jsonl``, .json or .csv.
    """

    kind = "trohn_text"
    form = "TROHN-Text"
    get = (
        "imirandam/TROHN-Text on the Hub: data/train-*.parquet; the photos, COCO's train2017, "
        "beside as coco/train2017/"
    )
    description = (
        "*.parquet with image_id, caption, negative_caption (TROHN-Text), train2017/ inside or "
        "beside"
    )
    folders, beside = FOLDERS, FOLDERS

    def lists(self, path: Path) -> dict[str, Path]:
        """Return the parquet files of the split, or the list; of several splits, name one."""
        home, _ = split_home(path)
        for name in LISTS:
            if (home / name).is_file():
                return {"": home / name}
        files = parquet_files(home)
        names = set(column_names(files[0])) if files else set()
        if not {PHOTO, CAPTION, WRONG} <= names or names & {WRONG_IMAGE, "image", "images"}:
            return {}
        return {f"{number}": file for number, file in enumerate(split_files(path))}

    def entries(
        self, path: Path, columns: Sequence[str] = (PHOTO, CAPTION, WRONG)
    ) -> Iterator[ItemRecord]:
        """Yield the rows of the files, in order; of parquet only some columns."""
        for file in self.lists(path).values():
            rows: Iterator[Record]
            if file.suffix == ".parquet":
                rows = ParquetSplit([file], split_of(path).choice).records(columns)
            else:
                rows = ((entry.where, entry.fields) for entry in list_entries(file))
            for number, (where, fields) in enumerate(rows):
                yield ItemRecord(f"{file.stem}-{number}", where, fields)

    def photos(self, path: Path) -> Iterator[tuple[ItemPhoto, str]]:
        """Yield each photo once, reading only its column, because there are millions of rows."""
        seen = set[str]()
        for entry in self.entries(path, [PHOTO]):
            name = str(entry.fields.get(PHOTO))
            if name not in seen:
                seen.add(name)
                yield trohn_photo(entry), entry.where

    def item(self, entry: ItemRecord) -> Item:
        """Read a row: the photo and its caption; the wrong caption is a negative."""
        return Item(
            entry.name, entry.where, (trohn_photo(entry),), (entry.text(CAPTION),),
            negatives=(entry.text(WRONG),),
        )  # fmt: skip


class TrohnImg(ItemForm):
    """``imirandam/TROHN-Img``: a photo and its caption, a wrong caption and an image made of it."""

    kind = "trohn_img"
    form = "TROHN-Img"
    get = (
        "imirandam/TROHN-Img on the Hub: data/train-*.parquet; the photos, COCO's train2017, "
        "beside as coco/train2017/"
    )
    description = (
        "*.parquet with image_id, caption, negative_caption, negative_image (TROHN-Img), "
        "train2017/ inside or beside"
    )
    columns = (PHOTO, CAPTION, WRONG, WRONG_IMAGE)
    folders, beside = FOLDERS, FOLDERS

    def fits(self, names: Mapping[str, bool]) -> bool:
        """Return whether a table has the columns, but not the photo."""
        return super().fits(names) and "image" not in names and names[WRONG_IMAGE]

    def item(self, entry: ItemRecord) -> Item:
        """Read a row: the photo and its caption, the made image and the wrong caption."""
        return Item(
            entry.name, entry.where, (trohn_photo(entry), entry.photo(WRONG_IMAGE)),
            (entry.text(CAPTION), entry.text(WRONG)),
            of_members={"image_kind": ("real", "synthetic")},
        )  # fmt: skip
