"""The columns of the items of this folder's benchmarks, for ``docs/items.md``."""

from __future__ import annotations

from cfaug.papers.social.attribute_detector import AttributeDetector
from cfaug.papers.social.pool_skew import PoolSkew
from cfaug.papers.social.skew_items import SKEW_ITEMS
from cfaug.papers.social.skew_rankings import SKEW_RANKINGS

ITEM_SCHEMAS = {
    "`benchmark=skew`": SKEW_ITEMS,
    "`benchmark=skew`: `rankings/`": SKEW_RANKINGS,
    "`benchmark=pool_skew`": PoolSkew.item_schema,
    "`benchmark=attribute_detector`": AttributeDetector.item_schema,
}
