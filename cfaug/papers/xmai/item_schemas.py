"""The columns of the items of this folder's benchmarks, for ``docs/items.md``."""

from __future__ import annotations

from cfaug.evaluation.text_pairs.text_pair_items import INSERTION_ITEMS, OVERLAP_ITEMS

ITEM_SCHEMAS = {
    "`benchmark=insertion`": INSERTION_ITEMS,
    "`benchmark=text_overlap`": OVERLAP_ITEMS,
}
