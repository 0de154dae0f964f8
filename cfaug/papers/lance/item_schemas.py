"""The columns of the items of this folder's benchmarks, for ``docs/items.md``."""

from __future__ import annotations

from cfaug.papers.lance.quality import CaptionPerplexity, ImageQuality

ITEM_SCHEMAS = {
    "`benchmark=image_quality`": ImageQuality.item_schema,
    "`benchmark=caption_perplexity`": CaptionPerplexity.item_schema,
}
