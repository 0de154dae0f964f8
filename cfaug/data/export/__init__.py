"""Exports of our sets in other formats. WebDataset readers can read our shards directly."""

from __future__ import annotations

from cfaug.data.export.dataset_card import PublisherStatements
from cfaug.data.export.evaluators import export_lmms_eval, export_vlmevalkit
from cfaug.data.export.fiftyone import export_fiftyone
from cfaug.data.export.hub import (
    export_clip_benchmark,
    export_hub,
    export_questions,
    write_questions,
)

__all__ = [
    "PublisherStatements",
    "export_clip_benchmark",
    "export_fiftyone",
    "export_hub",
    "export_lmms_eval",
    "export_questions",
    "export_vlmevalkit",
    "write_questions",
]
