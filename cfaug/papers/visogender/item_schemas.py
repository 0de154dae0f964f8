"""The columns of the items of this folder's benchmarks, for ``docs/items.md``."""

from __future__ import annotations

from cfaug.papers.visogender.visogender import NeutralRetrieval, PronounResolution

ITEM_SCHEMAS = {
    "`benchmark=visogender`: resolution": PronounResolution.item_schema,
    "`benchmark=visogender`: retrieval": NeutralRetrieval.item_schema,
}
