"""Compositional tests as their authors released them, read by the names of files and columns.

To add one: a ``Choice`` or a ``Pair`` that names files and columns, or an ``ItemForm`` that reads
records of another structure, and its place in ``FORMS``.
"""

from __future__ import annotations

from cfaug.data.sources.compositional.choices import (
    AroAttribution,
    AroRelation,
    AroTable,
    HardPositives,
    SugarCrepe,
    SugarCrepePlus,
    TrohnImg,
    TrohnText,
)
from cfaug.data.sources.compositional.faces import FairFace
from cfaug.data.sources.compositional.foils import (
    Bla,
    CcNeg,
    HalfTruths,
    NegBench,
    NegBenchRetrieval,
    SpecForm,
    Valse,
    VlChecklist,
    WhatsUp,
)
from cfaug.data.sources.compositional.item import ItemForm
from cfaug.data.sources.compositional.listed import ItemList, ItemTable
from cfaug.data.sources.compositional.pairs import (
    Bivlc,
    Cola,
    ColorSwap,
    MmvpVlm,
    NaturalBenchRetrieval,
    Vismin,
    Winoground,
)
from cfaug.data.sources.compositional.photo_choices import SpecImages, SvoProbes

__all__ = [
    "FORMS", "ITEM_LISTS", "ITEM_TABLES", "ItemForm", "ItemList", "ItemTable", "choice_of",
]  # fmt: skip

FORMS: tuple[ItemForm, ...] = (
    Winoground(),
    Bivlc(),
    Vismin(),
    MmvpVlm(),
    NaturalBenchRetrieval(),
    Cola(),
    ColorSwap(),
    SugarCrepe(),
    SugarCrepePlus(),
    HardPositives(),
    AroRelation(),
    AroAttribution(),
    AroTable(),
    NegBench(),
    NegBenchRetrieval(),
    CcNeg(),
    HalfTruths(),
    WhatsUp(),
    Valse(),
    Bla(),
    VlChecklist(),
    SpecForm(),
    SpecImages(),
    SvoProbes(),
    FairFace(),
    TrohnText(),
    TrohnImg(),
)
"""All forms, in the order in which they are tried."""

ITEM_LISTS = tuple(
    ItemList(form) for form in FORMS if form.files or type(form).lists is not ItemForm.lists
)
"""Forms whose images are files."""

ITEM_TABLES = tuple(ItemTable(form) for form in FORMS if form.columns)
"""Forms whose images are inside a table."""


def choice_of(kind: str) -> str | None:
    """Return the name of the test of which an index's kind is a choice, half of it false captions.

    >>> choice_of("sugarcrepe"), choice_of("winoground")
    ('SugarCrepe', None)
    """
    return next((form.form for form in FORMS if form.is_choice and form.kind == kind), None)
