"""Tests of one caption and several photos: SVO-Probes, and SPEC's texts to images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from cfaug.core.errors import UserError
from cfaug.data.sources.compositional.foils import SpecForm, right_number
from cfaug.data.sources.compositional.item import (
    FALSE,
    TRUE,
    Item,
    ItemForm,
    ItemPhoto,
    ItemRecord,
    Released,
)

NEGATED = {"subj_neg": "subject", "verb_neg": "verb", "obj_neg": "object"}
"""SVO-Probes' columns of what the second photo differs in, and the categories they stand for."""


def photo_choice(entry: ItemRecord, text: str, true: ItemPhoto, *false: ItemPhoto) -> Item:
    """Return a choice of the photo of which a caption is true."""
    return Item(
        name=f"{entry.category}-{entry.name}" if entry.category else entry.name,
        where=entry.where,
        photos=(true, *false),
        texts=(text,) * (1 + len(false)),
        labels=(TRUE, *(FALSE,) * len(false)),
        category=entry.category,
    )


class SvoProbes(ItemForm):
    """SVO-Probes (Hendricks and Nematzadeh, 2021), https://github.com/google-deepmind/svo_probes.

    A sentence, a photo that shows it, and one that shows another subject, verb or object, which is
    the category. The release has addresses of the photos alone; files are called by their numbers.
    """

    kind = "svo_probes"
    form = "SVO-Probes"
    is_choice = True
    get = (
        "svo_probes.csv of github.com/google-deepmind/svo_probes, and the photos that you fetch "
        "from its addresses as images/NUMBER.jpg (pos_image_id, neg_image_id); many are gone: "
        "benchmark.missing=skip"
    )
    description = (
        "svo_probes.csv with sentence, pos_image_id, neg_image_id, subj_neg, verb_neg, obj_neg, "
        "and images/NUMBER.jpg (SVO-Probes)"
    )
    files: ClassVar[Mapping[str, str]] = {"": "svo_probes.csv"}
    list_folders = ("", "data")
    needed = ("sentence", "pos_image_id", "neg_image_id", *NEGATED)
    released = Released(36_841)

    def item(self, entry: ItemRecord) -> Item:
        """Read a row: the sentence, the photo that shows it, the one that does not."""
        kinds = {name: entry.word(name).lower() for name in NEGATED}
        differing = [NEGATED[name] for name, value in kinds.items() if value == "true"]
        if len(differing) != 1 or not set(kinds.values()) <= {"true", "false"}:
            raise UserError(
                f"{entry.where}: one of {', '.join(NEGATED)} should be True and the others False, "
                f"not {', '.join(map(repr, kinds.values()))}"
            )
        photos = [
            ItemPhoto(tuple(f"{entry.word(name)}{ending}" for ending in (".jpg", ".jpeg", ".png")))
            for name in ("pos_image_id", "neg_image_id")
        ]
        return replace(photo_choice(entry, entry.text("sentence"), *photos), category=differing[0])


class SpecImages(SpecForm):
    """SPEC's other half: ``SUBSET/text2image.json`` has a text and images, one of them right."""

    kind = "spec_images"
    form = "SPEC, text to image"
    description = "SUBSET/text2image.json with query, keys, label (SPEC)"
    files: ClassVar[Mapping[str, str]] = {
        name: file.replace("image2text", "text2image") for name, file in SpecForm.files.items()
    }

    def item(self, entry: ItemRecord) -> Item:
        """Read an entry: the right image, then the others."""
        names = entry.fields["keys"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError(f"{entry.where}: 'keys' should be a list of files, not {names!r:.80}")
        number = right_number(entry, len(names), entry.fields.get("label"))
        photos = [ItemPhoto(entry.file_names(f"{entry.category}/{name}", "keys")) for name in names]
        right = photos.pop(number)
        return photo_choice(entry, entry.text("query"), right, *photos)
