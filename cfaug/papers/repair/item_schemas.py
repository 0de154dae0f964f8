"""The columns of the items of this folder's benchmarks, for ``docs/items.md``."""

from __future__ import annotations

from cfaug.papers.repair.repair_test import REPAIR_ITEMS

ITEM_SCHEMAS = {
    "`benchmark=repair`": REPAIR_ITEMS,
}
