"""Tests of two photos and two captions: Winoground, BiVLC, VisMin, NaturalBench, MMVP-VLM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from cfaug.core.errors import UserError
from cfaug.core.pixels import IMAGES
from cfaug.core.safety.json_text import json_file
from cfaug.data.sources.compositional.item import (
    Item,
    ItemForm,
    ItemPhoto,
    ItemRecord,
    Released,
    named_files,
)
from cfaug.data.sources.lists import json_lines, list_records

IMAGE_KIND = "image_kind"
"""An extra column: whether a member's image is ``real`` or ``synthetic``."""


def pair(
    entry: ItemRecord,
    photos: Sequence[ItemPhoto],
    texts: Sequence[str],
    category: str,
    **tags: object,
) -> Item:
    """Return a pair named after its entry; tags that are null or empty lists are left out."""
    return Item(
        name=entry.name, where=entry.where, photos=tuple(photos), texts=tuple(texts),
        group=entry.name, category=category,
        tags={name: value for name, value in tags.items() if value not in (None, [])},
    )  # fmt: skip


class PairForm(ItemForm):
    """A form of two photos and two captions, each in a column of its own.

    Attributes:
        id_column: the column of the item's name; empty for the number of its record.
        photo_columns: columns of the photos, which name files or hold images.
        captions: columns of the captions, in the order of their photos.
        category_column: the column of the item's category; empty without one.
        tag_columns: columns of further texts of an item.
    """

    id_column: str = ""
    photo_columns: tuple[str, str] = ("image_0", "image_1")
    captions: tuple[str, str] = ("caption_0", "caption_1")
    category_column: str = ""
    tag_columns: tuple[str, ...] = ()

    def item(self, entry: ItemRecord) -> Item:
        """Read an entry: photo 0 and caption 0, photo 1 and caption 1."""
        name = entry.word(self.id_column) if self.id_column else ""
        return pair(
            replace(entry, name=name or entry.name),
            [entry.photo(column) for column in self.photo_columns],
            [entry.text(column) for column in self.captions],
            entry.word(self.category_column) if self.category_column else "",
            **{column: entry.word(column) for column in self.tag_columns},
        )


class Winoground(ItemForm):
    """Winoground (Thrush et al., 2022): ``facebook/winoground`` on the Hub, gated.

    Parquet with images, or the older layout: ``data/examples.jsonl`` with ``images/`` (unpack
    ``images.zip``). The category is the ``collapsed_tag``. ``why_winoground_hard.json`` beside the
    list (Diwan et al., 2022, https://arxiv.org/abs/2211.00768) adds the column ``why_hard``.
    """

    kind = "winoground"
    form = "Winoground"
    get = (
        "facebook/winoground on the Hub, gated: accept its terms there, then fetch it: "
        "data/test-*.parquet, or data/examples.jsonl and data/images/ (unpack images.zip)"
    )
    description = (
        "*.parquet, or examples.jsonl and images/, with image_0, caption_0, image_1, caption_1, "
        "tag, collapsed_tag (Winoground)"
    )
    files: ClassVar[Mapping[str, str]] = {"": "examples.jsonl"}
    list_folders = ("", "data")
    columns = ("id", "image_0", "image_1", "caption_0", "caption_1", "collapsed_tag")
    needed = columns
    folders = ("data/images",)
    released = Released(400)

    def notes(self, path: Path) -> list[Path]:
        return [*named_files(path, {"": "why_winoground_hard.json"}, ("", "data")).values()]

    def entries(self, path: Path) -> Iterator[ItemRecord]:
        """Yield the lines of the list."""
        file = self.lists(path)[""]
        # The labels of each example: {id: [label]}, or {label: [id]} as also released.
        hard: dict[str, list[str]] = {}
        for notes in self.notes(path):
            content = json_file(notes)
            if not isinstance(content, dict) or not all(
                isinstance(value, list) for value in content.values()
            ):
                raise UserError(f"{notes} should be a JSON object of lists: {{id: [label]}}")
            if all(name.isdecimal() for name in content):
                hard |= {name: [str(label) for label in why] for name, why in content.items()}
                continue
            by_name: dict[str, list[str]] = {}
            for label, names in content.items():
                for name in names:
                    by_name.setdefault(str(name), []).append(label)
            hard |= by_name
        for where, record in json_lines(file):
            name = str(record.get("id", ""))
            yield ItemRecord(name, where, {**record, "why_hard": hard.get(name, [])})

    def item(self, entry: ItemRecord) -> Item:
        """Read an entry: image 0 and caption 0, image 1 and caption 1."""
        name = entry.word("id")
        if not name:
            raise UserError(f"{entry.where}: 'id' is missing or empty")
        photos = [entry.photo(f"image_{i}") for i in (0, 1)]
        for i, photo in enumerate(photos):
            if photo.names and not photo.names[0].lower().endswith(IMAGES):
                endings = (".png", ".jpg", ".jpeg", ".webp")
                names = (*(f"{photo.names[0]}{ending}" for ending in endings), *photo.names)
                photos[i] = replace(photo, names=names)
        return pair(
            replace(entry, name=name),
            photos,
            [entry.text(f"caption_{i}") for i in (0, 1)],
            entry.word("collapsed_tag"),
            tag=entry.word("tag"), secondary_tag=entry.word("secondary_tag"),
            num_main_preds=entry.fields.get("num_main_preds"),
            why_hard=entry.fields.get("why_hard"),
        )  # fmt: skip


class Bivlc(ItemForm):
    """BiVLC (Miranda et al., 2024): ``imirandam/BiVLC`` on the Hub, parquet.

    The second image was generated from the negative caption; the first is a photo of COCO val2017.
    """

    kind = "bivlc"
    form = "BiVLC"
    get = "imirandam/BiVLC on the Hub: data/test-*.parquet"
    description = (
        "*.parquet with image, caption, negative_caption, negative_image, type, subtype (BiVLC)"
    )
    columns = ("image", "caption", "negative_caption", "negative_image", "type", "subtype")
    released = Released(  # the parts are those of its released results
        2933,
        {"replace_obj": 1200, "replace_rel": 462, "replace_att": 437, "add_obj": 399, "add_att": 76,
         "swap_att": 278, "swap_obj": 81},
    )  # fmt: skip

    def item(self, entry: ItemRecord) -> Item:
        """Read a row: the photo and its caption, the generated image and the negative caption."""
        kind, subkind = entry.word("type"), entry.word("subtype")
        item = pair(
            entry,
            [entry.photo("image"), entry.photo("negative_image")],
            [entry.text("caption"), entry.text("negative_caption")],
            "_".join(filter(None, (kind, subkind))),
            type=kind, subtype=subkind,
        )  # fmt: skip
        return replace(item, group="", of_members={IMAGE_KIND: ("real", "synthetic")})


class Vismin(PairForm):
    """VisMin-Bench (Awal et al., 2024): ``mair-lab/vismin-bench``, parquet or ``save_to_disk``."""

    kind = "vismin"
    form = "VisMin"
    get = (
        "mair-lab/vismin-bench on the Hub: data/test/*.arrow with its state.json, or the "
        "parquet of refs/convert/parquet"
    )
    description = (
        "*.arrow of save_to_disk, or *.parquet, with id, image_0, image_1, text_0, text_1, "
        "category (VisMin)"
    )
    columns = ("id", "image_0", "image_1", "text_0", "text_1", "category")
    id_column, category_column = "id", "category"
    captions = ("text_0", "text_1")
    released = Released(2084)


class NaturalBenchRetrieval(PairForm):
    """NaturalBench's retrieval part (Li et al., 2024): ``metadata.json`` and ``images/``.

    NaturalBench-Retrieval.zip of ``BaiqiL/NaturalBench`` on the Hub, unpacked.
    """

    kind = "naturalbench_retrieval"
    form = "NaturalBench-Retrieval"
    get = (
        "NaturalBench-Retrieval.zip of BaiqiL/NaturalBench on the Hub, unpacked: metadata.json "
        "and images/"
    )
    description = (
        "metadata.json with index, image_0, image_1, caption_0, caption_1, and images/ "
        "(NaturalBench-Retrieval)"
    )
    files: ClassVar[Mapping[str, str]] = {"": "metadata.json"}
    list_folders = ("", "data")
    needed = ("image_0", "image_1", "caption_0", "caption_1")
    id_column, category_column = "index", "category"


class Cola(PairForm):
    """COLA's multi-object part (Ray et al., 2023), https://github.com/arijitray1993/COLA.

    An entry is a list: the address of a photo, its caption, those of another. Photos are looked for
    by their names, the numbers of Visual Genome. The paper's number is the image score.
    """

    kind = "cola"
    form = "COLA, multi-object"
    get = (
        "data/COLA_multiobjects_matching_benchmark.json of github.com/arijitray1993/COLA, and the "
        "218 photos at its addresses, or Visual Genome's, as images/NUMBER.jpg"
    )
    description = (
        "COLA_multiobjects_matching_benchmark.json with [image, caption, image, caption] (COLA)"
    )
    files: ClassVar[Mapping[str, str]] = {"": "COLA_multiobjects_matching_benchmark.json"}
    list_folders = ("", "data")
    positions = ("image_0", "caption_0", "image_1", "caption_1")
    folders = beside = ("vg_gqa_images", "VG_100K", "VG_100K_2")
    released = Released(210)


class ColorSwap(PairForm):
    """ColorSwap (Burapacheep et al., 2024), https://github.com/Top34051/colorswap: its test part.

    ``stanfordnlp/colorswap`` on the Hub, gated, has the columns as parquet.
    """

    kind = "colorswap"
    form = "ColorSwap"
    get = (
        "data/test.json and data/images/ of the download that github.com/Top34051/colorswap links, "
        "or data/test-*.parquet of stanfordnlp/colorswap on the Hub, gated"
    )
    description = (
        "test.json, or *.parquet, with id, image_1, image_2, caption_1, caption_2, image_source "
        "(ColorSwap)"
    )
    files: ClassVar[Mapping[str, str]] = {"": "test.json"}
    list_folders = ("", "data")
    id_column = "id"
    photo_columns, captions = ("image_1", "image_2"), ("caption_1", "caption_2")
    tag_columns = ("image_source", "caption_source")
    columns = ("id", *photo_columns, *captions, *tag_columns)
    needed = columns
    folders = ("data",)
    released = Released(300)


MMVP_IMAGES = ("MLLM_VLM Images", "MMVP_VLM_Images", "MMVP_VLM Images", "MLLM_VLM_Images")
"""Names of the folder, in the released script and in the README."""


class MmvpVlm(ItemForm):
    """MMVP-VLM (Tong et al., 2024), https://github.com/tsb0601/MMVP: ``MMVP/MMVP_VLM`` on the Hub.

    ``Questions.csv`` has a statement in each row, and two adjacent rows are a pair; the image is
    ``MLLM_VLM Images/TYPE/ID.jpg``, TYPE that of the first. A caption is "a photo of " and the
    statement (``scripts/evaluate_vlm.py``). The odd id of a pair is image 1 there, member 0 here.
    The script counts 15 pairs in sequence as one type each; here the type is that of the row.
    """

    kind = "mmvp_vlm"
    form = "MMVP-VLM"
    get = "MMVP/MMVP_VLM on the Hub: Questions.csv and 'MLLM_VLM Images/TYPE/ID.jpg'"
    description = (
        "Questions.csv with Question ID, Type, Statement beside 'MLLM_VLM Images/' (MMVP-VLM)"
    )
    files: ClassVar[Mapping[str, str]] = {"": "Questions.csv"}
    list_folders = ("", "data")
    needed = ("Question ID", "Type", "Statement")
    released = Released(135)

    def entries(self, path: Path) -> Iterator[ItemRecord]:
        """Yield two rows at a time."""
        file = self.lists(path)[""]
        records = list_records(file)
        for where, first in records:
            _, second = next(records, (where, None))
            if second is None:
                raise UserError(
                    f"{where}: the row has no partner: two rows are a pair; fetch {file}"
                )
            yield ItemRecord(str(first["Question ID"]).strip(), where, {"rows": [first, second]})

    def item(self, entry: ItemRecord) -> Item:
        """Read a pair of rows; the one with the odd id comes first."""
        rows: list[Mapping[str, str]] = entry.fields["rows"]
        kind = " ".join(rows[0]["Type"].split())
        if not kind or kind in (".", ".."):
            raise UserError(f"{entry.where}: 'Type' is missing or invalid: it names the folder")
        numbers = [row["Question ID"].strip() for row in rows]
        if not all(re.fullmatch(r"\d{1,9}", number) for number in numbers):
            raise UserError(f"{entry.where}: 'Question ID' should be a number, not {numbers}")
        if {int(number) % 2 for number in numbers} != {0, 1}:
            raise UserError(
                f"{entry.where}: one of 'Question ID' {' and '.join(numbers)} should be odd, as it "
                "says which image is which; is a row missing?"
            )
        ordered = sorted(rows, key=lambda row: int(row["Question ID"]) % 2 == 0)
        photos = []
        for row in ordered:
            number = int(row["Question ID"])
            named = tuple(f"{folder}/{kind}/{number}.jpg" for folder in MMVP_IMAGES)
            names = [name for path in named for name in entry.file_names(path, "Type")[:1]]
            photos.append(ItemPhoto(tuple(names)))
        texts = [replace(entry, fields=row).text("Statement") for row in ordered]
        item = pair(entry, photos, [f"a photo of {text}" for text in texts], kind)
        return replace(item, name="-".join(sorted(numbers, key=int)))
