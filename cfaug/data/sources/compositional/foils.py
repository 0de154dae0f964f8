"""Tests of one photo with foils of its caption: negation, places, phenomena of language."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from cfaug.core.errors import UserError
from cfaug.data.sources.compositional.choices import (
    COCO_BESIDE,
    COCO_FOLDERS,
    LIST_FOLDERS,
    Choice,
    choice,
)
from cfaug.data.sources.compositional.item import (
    Item,
    ItemForm,
    ItemRecord,
    PartForm,
    Released,
    list_entries,
)
from cfaug.data.sources.row import whole

QUESTION = ("number", "true", "false")
"""The values of an entry of What'sUp's lists about COCO and Visual Genome."""
PLACE = re.compile(
    r"(?P<first>[^_]+)_(?P<place>left|right|on|under|in-front|behind)_(?:.*_)?(?P<second>[^_]+)"
)
"""The name of a photo of What'sUp: a thing, its place, another thing."""
VISUAL_GENOME = ("VG_100K", "VG_100K_2")
"""Folders of Visual Genome's photos."""


def right_number(entry: ItemRecord, count: int, value: object) -> int:
    """Return the number, from 0, of the right one of several captions or photos."""
    number = whole(value)
    if isinstance(number, str) and number.isdecimal():
        number = int(number)  # a csv has texts alone
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count:
        raise UserError(
            f"{entry.where}: the number of the right one should be 0 to {count - 1}, not "
            f"{value!r:.80}"
        )
    return number


def numbered_choice(entry: ItemRecord, texts: list[str], right: object, *photo: str) -> Item:
    """Return a choice of which a number, from 0, says the true caption."""
    if len(texts) < 2:
        raise UserError(f"{entry.where} should have several captions, not {len(texts)}")
    number = right_number(entry, len(texts), right)
    return choice(entry, [texts[number]], [*texts[:number], *texts[number + 1 :]], *photo)


class NegBench(ItemForm):
    """NegBench's multiple choice (Alhamoud et al., 2025), https://github.com/m1k2zoo/negbench.

    A csv for each source of images, with two or four captions and the number of the right one,
    whose template (positive, negative, hybrid) is a tag.
    """

    kind = "negbench"
    form = "NegBench's multiple choice"
    is_choice = True
    get = (
        "the csv files that datasets.md of github.com/m1k2zoo/negbench links, in the folder or its "
        "images/; the photos, COCO's val2017 and VOC2007's JPEGImages, inside or beside, or "
        "benchmark.images=FOLDER"
    )
    description = (
        "COCO_val_mcq_llama3.1_rephrased.csv, ... with image_path, correct_answer, caption_0, ... "
        "(NegBench)"
    )
    files: ClassVar[Mapping[str, str]] = {
        "coco": "COCO_val_mcq_llama3.1_rephrased.csv",
        "voc2007": "VOC2007_mcq_llama3.1_rephrased.csv",
        "synthetic": "synthetic_mcq_llama3.1_rephrased.csv",
        "chexpert": "chexpert_binary_mcq.csv",
        "chexpert_control": "chexpert_binary_mcq_control.csv",
    }
    list_folders = ("", "images", "data/images", "data")
    needed = ("image_path", "correct_answer", "caption_0")
    folders = (*COCO_FOLDERS, "voc2007", "VOCdevkit/VOC2007/JPEGImages", "synthetic")
    beside = (*COCO_BESIDE, "voc2007", "VOCdevkit/VOC2007/JPEGImages", "VOC2007/JPEGImages")

    def item(self, entry: ItemRecord) -> Item:
        """Read a row: the right caption, then the others in the order of their numbers."""
        names = sorted(name for name in entry.fields if re.fullmatch(r"caption_\d", name))
        texts = [entry.text(name) for name in names]
        item = numbered_choice(entry, texts, entry.fields.get("correct_answer"), "image_path")
        template = entry.word("correct_answer_template")
        return replace(item, tags={"template": template} if template else {})


class NegBenchRetrieval(PartForm):
    """NegBench's retrieval: photos with their captions, which name what is absent too.

    It is no choice, but a source for ``benchmark=retrieval``, ``FOLDER:PART``.
    """

    kind = "negbench_retrieval"
    form = "NegBench's retrieval"
    get = "as for negbench; benchmark=retrieval reads FOLDER:coco_negated_retrieval"
    description = "COCO_val_negated_retrieval_....csv, ... with filepath, captions (NegBench)"
    files: ClassVar[Mapping[str, str]] = {
        "coco_retrieval": "COCO_val_retrieval.csv",
        "coco_negated_retrieval": ("COCO_val_negated_retrieval_llama3.1_rephrased_affneg_true.csv"),
        "synthetic_retrieval_v1": "synthetic_retrieval_v1.csv",
        "synthetic_retrieval_v2": "synthetic_retrieval_v2.csv",
    }
    list_folders, folders, beside = NegBench.list_folders, NegBench.folders, NegBench.beside
    needed = ("filepath", "captions")

    def lists(self, path: Path) -> dict[str, Path]:
        """Return the list; a folder of multiple choice is that, unless a part is named."""
        return {} if NegBench().lists(path) else super().lists(path)

    def item(self, entry: ItemRecord) -> Item:
        """Read a row: a photo with its captions."""
        return Item(
            entry.name, entry.where, (entry.photo("filepath"),), tuple(entry.texts("captions"))
        )


class CcNeg(Choice):
    """CC-Neg (Singh et al., 2024), https://github.com/jaisidhsingh/CoN-CLIP: a caption, negated.

    Its annotations were released as a pickle, which is never opened here: docs/sets.md has the
    lines that write them as a list. The test is their last 40,000.
    """

    kind = "ccneg"
    form = "CC-Neg"
    get = (
        "jaisidhsingh/ccneg on the Hub: ccneg_images/ unpacked, and ccneg.jsonl, which the lines "
        "in docs/sets.md write from ccneg_preprocessed.pt"
    )
    description = "ccneg.jsonl with image_path, caption, negative_caption (CC-Neg)"
    files: ClassVar[Mapping[str, str]] = {"": "ccneg.jsonl"}
    list_folders = LIST_FOLDERS
    photo, true, false = ("image_path",), ("caption",), ("negative_caption",)
    needed = (*photo, *true, *false)
    folders = (
        "ccneg_images/cc3m_subset_images_extracted_final",
        "cc3m_subset_images_extracted_final",
    )
    released = Released(40_000)


class HalfTruths(Choice):
    """Half-Truths (Kargi et al., 2026), https://github.com/kargibora/CS-CLIP: a wrong detail added.

    A short true caption (the anchor), with a wrong detail, and with a right one. The released HT is
    anchor above half-truth, our ``original_accuracy``; its COR also asks that the full truth scores
    above the anchor, our ``accuracy`` only above the half-truth.
    """

    kind = "half_truths"
    form = "Half-Truths"
    get = (
        "kbora/Half-Truths on the Hub: data/coco_qwen.parquet, coco_mistral.parquet, "
        "cc3m_qwen.parquet, all together or FOLDER:coco_qwen"
    )
    description = "parquet with image, anchor, half_truth, full_truth, triplet_type (Half-Truths)"
    columns = ("image", "anchor", "half_truth", "full_truth", "triplet_type")
    photo, true, false = ("image",), ("anchor", "full_truth"), ("half_truth",)
    category_column = "triplet_type"


class WhatsUp(ItemForm):
    """What'sUp (Kamath et al., 2023), https://github.com/amitakamath/whatsup_vlms.

    A and B are photos of two things in four places, the first of four captions true; the items of
    two opposite places are a ``pair``, those of all ``four`` the paper's set. Of the other lists an
    entry is the number of a photo of COCO or Visual Genome, a true and a false caption.
    """

    kind = "whatsup"
    form = "What'sUp"
    is_choice = True
    get = (
        "controlled_images_dataset.json, controlled_clevr_dataset.json, coco_qa_one_obj.json, ... "
        "of github.com/amitakamath/whatsup_vlms, with controlled_images/, controlled_clevr/, "
        "val2017/ and vg_images/"
    )
    description = (
        "controlled_images_dataset.json with image_path, caption_options, coco_qa_one_obj.json, "
        "... (What'sUp)"
    )
    files: ClassVar[Mapping[str, str]] = {
        "A": "controlled_images_dataset.json", "B": "controlled_clevr_dataset.json",
        "coco_one": "coco_qa_one_obj.json", "coco_two": "coco_qa_two_obj.json",
        "vg_one": "vg_qa_one_obj.json", "vg_two": "vg_qa_two_obj.json",
    }  # fmt: skip
    list_folders = LIST_FOLDERS
    folders = ("controlled_images", "controlled_clevr", "vg_images", *COCO_FOLDERS, *VISUAL_GENOME)
    beside = (*COCO_BESIDE, "vg_images")
    released = Released(
        4958,
        {"A": 412, "B": 408, "coco_one": 2247, "coco_two": 440, "vg_one": 1160, "vg_two": 291},
    )

    def entries(self, path: Path) -> Iterator[ItemRecord]:
        """Yield the entries, those of lists under the names of A's columns."""
        for category, file in self.lists(path).items():
            controlled = category in ("A", "B")
            for entry in list_entries(file, category, () if controlled else QUESTION):
                if controlled:
                    yield entry
                    continue
                number = entry.word("number")
                name = f"{number:0>12}.jpg" if category.startswith("coco") else f"{number}.jpg"
                options = [entry.fields["true"], entry.fields["false"]]
                yield replace(entry, fields={"image_path": name, "caption_options": options})

    def item(self, entry: ItemRecord) -> Item:
        """Read an entry, of which the first caption is true."""
        item = numbered_choice(entry, entry.texts("caption_options"), 0, "image_path")
        place = PLACE.fullmatch(Path(str(entry.fields["image_path"])).stem)
        if entry.category not in ("A", "B") or place is None:
            return item
        things = f"{entry.category}-{place['first']}-{place['second']}"
        axis = "across" if place["place"] in ("left", "right") else "other"
        return replace(item, group=things, tags={"four": things, "pair": f"{things}-{axis}"})


class Valse(Choice):
    """VALSE (Parcalabescu et al., 2022), https://github.com/Heidelberg-NLP/VALSE.

    A caption and a foil. As by its authors, only items are used of which two of three annotators
    found the caption right and not the foil.
    """

    kind = "valse"
    form = "VALSE"
    get = (
        "data/*.json of github.com/Heidelberg-NLP/VALSE, and the photos of its sources (COCO's "
        "val2017, train2014 and val2014, VisDial, Visual7W, SWiG), inside or in several folders: "
        "'paths.image_roots=[FOLDER,...]'"
    )
    description = "existence.json, plurals.json, ... with caption, foil, image_file, mturk (VALSE)"
    files: ClassVar[Mapping[str, str]] = {
        name: f"{name}.json"
        for name in (
            "existence", "plurals", "counting-hard", "counting-small-quant",
            "counting-adversarial", "relations", "action-replacement", "actant-swap",
            "coreference-standard", "coreference-hard", "foil-it",
        )
    }  # fmt: skip
    list_folders = ("data", "")
    photo, true, false = ("image_file",), ("caption",), ("foil",)
    needed = (*photo, *true, *false, "mturk")
    tag_columns: ClassVar[Mapping[str, str]] = {"phenomenon": "linguistic_phenomena"}
    folders = (*COCO_FOLDERS, "images_512", "visual7w/images", "train2014", "val2014")
    beside = (*COCO_BESIDE, "images_512", "visual7w/images", "coco/train2014", "coco/val2014")
    released = Released(
        7702,
        {"existence": 505, "plurals": 851, "counting-hard": 868, "counting-small-quant": 900,
         "counting-adversarial": 691, "relations": 535, "action-replacement": 648,
         "actant-swap": 949, "coreference-standard": 708, "coreference-hard": 104, "foil-it": 943},
    )  # fmt: skip

    def is_used(self, entry: ItemRecord) -> bool:
        votes = entry.fields.get("mturk")
        if not isinstance(votes, dict) or type(votes.get("caption")) is not int:
            raise UserError(
                f"{entry.where}: 'mturk' should have the number of votes for the caption, not "
                f"{votes!r:.80}"
            )
        return bool(votes["caption"] >= 2)


class Bla(ItemForm):
    """BLA (Chen et al., 2023), https://github.com/shin-ee-chen/BLA.

    Two true and two false captions of a photo. The paper's number for CLIP is the share of captions
    on the right side of the middle; ours, of items with both true ones above both false ones, is
    stricter.
    """

    kind = "bla"
    form = "BLA"
    is_choice = True
    get = (
        "BLA_benchmark.zip, which github.com/shin-ee-chen/BLA links, unpacked: annotations/*.json "
        "and images/"
    )
    description = (
        "active_passive_captions.json, ... with image_id, caption_group, and images/ (BLA)"
    )
    files: ClassVar[Mapping[str, str]] = {
        "active_passive": "active_passive_captions.json",
        "coordination": "coordination_captions.json",
        "relative_clause": "relative_clause_captions.json",
    }
    list_folders = LIST_FOLDERS
    needed = ("image_id", "caption_group")

    def item(self, entry: ItemRecord) -> Item:
        """Read an entry: the captions of its first group."""
        groups = entry.fields["caption_group"]
        if not isinstance(groups, list) or not groups or not isinstance(groups[0], dict):
            raise UserError(
                f"{entry.where}: 'caption_group' should be a list of objects, not {groups!r:.80}"
            )
        photo = f"{entry.word('image_id')}.jpg"
        group = replace(entry, fields={**groups[0], "image_id": photo})
        true, false = ([group.text(f"{kind}{i}") for i in (1, 2)] for kind in ("True", "False"))
        return choice(group, true, false, "image_id")


class VlChecklist(ItemForm):
    """VL-CheckList (Zhao et al., 2022), https://github.com/om-ai-lab/VL-CheckList.

    The lists lie under ``data/``. A list's folders and name are its category, the first folder the
    tag ``part`` and with the last word the tag ``trait``, such as "Object small". Of several
    captions the first is used, as in ``evaluate.py``.
    """

    kind = "vl_checklist"
    form = "VL-CheckList"
    is_choice = True
    get = (
        "data/ of github.com/om-ai-lab/VL-CheckList, and in the folder the photos as its "
        "DATASETS.md lays them: vg/VG_100K/, vg/VG_100K_2/, swig/, hake/"
    )
    description = "data/Attribute/*/*.json, ... with [photo, {POS, NEG}] (VL-CheckList)"
    positions = needed = ("photo", "captions")
    folders = ("vg", "swig", "hake")
    beside = ("vg", "swig", "hake", "visual_genome", "images_512")

    def lists(self, path: Path) -> dict[str, Path]:
        """Return the lists under ``data/``, if it has the three folders or some of them."""
        home = path / "data"
        files = (
            file
            for part in ("Attribute", "Object", "Relation")
            for file in sorted((home / part).rglob("*.json"))
        )
        names = {file.relative_to(home).with_suffix("").as_posix(): file for file in files}
        return self.of_form(names)

    def item(self, entry: ItemRecord) -> Item:
        """Read an entry: the first caption of each kind."""
        texts = entry.fields["captions"]
        if not isinstance(texts, dict):
            raise UserError(
                f"{entry.where}: the captions should be an object with POS and NEG, not "
                f"{texts!r:.80}"
            )
        both = replace(entry, fields={**texts, "photo": entry.fields["photo"]})
        part, trait = entry.category.split("/")[0], re.split("[/_]", entry.category)[-1]
        item = choice(both, both.texts("POS")[:1], both.texts("NEG")[:1], "photo")
        return replace(item, tags={"part": part, "trait": f"{part} {trait}"})


class SpecForm(ItemForm):
    """SPEC (Peng et al., 2024), https://github.com/wjpoom/SPEC: captions of one image.

    ``SUBSET/image2text.json`` has an image, its captions and the number of the right one.
    """

    kind = "spec"
    form = "SPEC, image to text"
    is_choice = True
    get = "data.zip of wjpoom/SPEC on the Hub, unpacked: absolute_size/, ..., count/"
    description = "SUBSET/image2text.json with query, keys, label (SPEC)"
    files: ClassVar[Mapping[str, str]] = {
        name: f"{name}/image2text.json"
        for name in (
            "absolute_size", "relative_size", "absolute_spatial", "relative_spatial", "existence",
            "count",
        )
    }  # fmt: skip
    list_folders = ("", "data")
    needed = ("query", "keys", "label")

    def item(self, entry: ItemRecord) -> Item:
        """Read an entry: the right caption, then the others."""
        photo = f"{entry.category}/{entry.fields['query']}"
        texts = replace(entry, fields={**entry.fields, "query": photo})
        return numbered_choice(texts, texts.texts("keys"), entry.fields.get("label"), "query")
