"""Photos of faces with labels of the people: FairFace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cfaug.data.sources.compositional.item import Item, ItemRecord, PartForm


class FairFace(PartForm):
    """FairFace (Karkkainen and Joo, 2019), https://github.com/joojs/fairface: a face each line.

    It has no captions, so that every photo has the same one; the labels are extra columns.
    """

    kind = "fairface"
    form = "FairFace"
    get = (
        "fairface_label_train.csv and fairface_label_val.csv, with train/ and val/, of "
        "github.com/joojs/fairface: name FOLDER:val"
    )
    description = "fairface_label_val.csv with file, age, gender, race, and val/ (FairFace)"
    files: ClassVar[Mapping[str, str]] = {
        "train": "fairface_label_train.csv", "val": "fairface_label_val.csv",
    }  # fmt: skip
    needed = ("file", "age", "gender", "race")

    def item(self, entry: ItemRecord) -> Item:
        """Read a line: the photo, and the labels that the file has for the person."""
        labels = {name: entry.word(entry.column(name)) for name in ("age", "gender", "race")}
        text = "a photo of a person"
        return Item(entry.name, entry.where, (entry.photo("file"),), (text,), tags=labels)
