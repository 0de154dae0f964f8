"""Clusters of a stress test's edits, and the insights drawn from them."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.json_records import from_json
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import DualEncoder
from cfaug.core.safety.json_text import load_json
from cfaug.core.types import ITEM, ORIGINAL, RECONSTRUCTION
from cfaug.core.validation import Positive, Seed, check_fields
from cfaug.editing.protocols import SentenceEmbedder
from cfaug.evaluation.inference import embed_texts
from cfaug.evaluation.stress.stress_items import CENTRE, GROUP, Insight, StressItems
from cfaug.report.page import write_page
from cfaug.stats.edit_effects import (
    CLUSTERS,
    Feature,
    cluster_edits,
    difference_features,
    group_within,
)

if TYPE_CHECKING:
    from cfaug.models.specs import ModelSpec


# Clusters of a stress test's edits by their differences in text, for insights into classes.

Unit = Literal["word", "caption"]
TEXTS: Mapping[str, tuple[str, str]] = {"word": ("before", "after"),
                                        "caption": ("text_before", "text")}  # fmt: skip
"""The columns of the items with the texts before and after the edit."""


@dataclass(frozen=True)
class EditClusters:
    """K-Means on the difference of text features before and after an edit, class by class.

    The defaults are the paper's (LANCE, section 4.2 and Table 6); its released code clusters the
    signed difference of whole captions into ten.

    Args:
        encoder: the model that embeds the texts: a dual encoder, or a sentence encoder.
        feature: the feature of an edit, from its texts' embeddings: ``abs_diff`` or
            ``signed_diff``.
        unit: embed the ``word`` that is replaced and the new one, or each whole ``caption``.
        clusters: largest number of clusters per class; a class has at most one per distinct edit.
    """

    encoder: ModelSpec | SentenceEmbedder
    feature: Feature = "abs_diff"
    unit: Unit = "word"
    clusters: Positive = CLUSTERS
    seed: Seed = 0
    batch_size: int = 256

    def __post_init__(self) -> None:
        check_fields(self, "benchmark.clusters")

    def identity(self) -> list[str]:
        """Return all that decides the clusters besides the items, for the benchmark's hash."""
        settings = (self.feature, self.unit, self.clusters, self.seed)
        if isinstance(self.encoder, SentenceEmbedder):
            return [str(settings), str(self.encoder.describe())]
        return [str(settings), self.encoder.identity()]

    def columns(self, items: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the two columns by which a page finds the clusters.

        Returns:
            ``edit_group``, int64, the number of each edit's cluster, -1 for an image that is not an
            edit; and ``edit_centre``, bool, true for the edit nearest to a cluster's centre, which
            names the cluster. Sets and classes have clusters of their own.
        """
        parts = np.asarray(items["set"], object)
        edits = np.flatnonzero((parts != ORIGINAL) & (parts != RECONSTRUCTION))
        groups, centres = np.full(len(parts), -1, np.int64), np.zeros(len(parts), bool)
        if not len(edits):
            return {GROUP: groups, CENTRE: centres}
        before, after = (np.asarray(items[name], object)[edits] for name in TEXTS[self.unit])
        texts = sorted({*before.tolist(), *after.tolist()})
        position = {text: i for i, text in enumerate(texts)}
        if isinstance(self.encoder, SentenceEmbedder):
            embedded = np.asarray(self.encoder.encode(texts))
        else:
            embedded = embed_texts(self.encoder.load(DualEncoder), texts, self.batch_size)
        first, second = (embedded[[position[text] for text in side]] for side in (before, after))
        try:
            features = difference_features(first, second, self.feature)
        except ValueError as error:
            raise UserError(f"benchmark.clusters.encoder cannot be used here: {error}") from error
        labels = list(zip(parts[edits], np.asarray(items["class"], object)[edits], strict=True))
        by_label: dict[tuple[str, str], list[int]] = {}
        for row, label in enumerate(labels):
            by_label.setdefault(label, []).append(row)
        groupings = [
            cluster_edits(features[rows], self.clusters, self.seed) for rows in by_label.values()
        ]
        grouping = group_within(labels, groupings)
        groups[edits] = grouping.groups
        centres[edits[grouping.names]] = True
        return {GROUP: groups, CENTRE: centres}


# ``insights.json``: the interventions that move a classifier most, with pictures, for tables.

FILE = "insights.json"
SHOWN = 6
"""Most insights that are saved; LANCE's Figure 6 shows three."""
PAIRS = 3
"""Most edits per insight whose pictures are saved."""
SIDE = 128
"""Longest side of a picture."""


@dataclass(frozen=True)
class ShownInsight:
    """An insight as tables print it.

    Attributes:
        mean: mean change of the probability of the true class.
        low: lower end of the 95 % interval of the mean; ``None`` without one.
        p_holm: one-sided p, corrected over all insights of the model; ``None`` without a control.
        png: pictures in base64, photos above and their edits below.
    """

    label: str
    kind: str
    words: str
    edits: int
    photos: int
    mean: float
    low: float | None
    high: float | None
    p_holm: float | None
    png: str


def write_insights(
    answers: StressItems,
    insights: Sequence[Insight],
    read_image: Callable[[str], bytes],
    folder: Path,
) -> Path:
    """Save the strongest insights with their pictures beside a model's results; return the file.

    Args:
        read_image: function that returns the image of an item by its name.
    """
    names, photos = answers.texts(ITEM), answers.texts("photo")
    kept = []
    for insight in sorted(insights, key=lambda insight: -insight.effect.mean)[:SHOWN]:
        effect = insight.effect
        # Only the strongest edit of each photo: several look alike.
        rows = list({photos[row]: int(row) for row in effect.rows[::-1]}.values())[::-1][:PAIRS]
        pictures = [
            [decode_image(read_image(name), name) for name in (photos[row], names[row])]
            for row in rows
        ]
        kept.append(
            ShownInsight(
                label=insight.label,
                kind=insight.kind,
                words=insight.words,
                edits=len(effect),
                photos=effect.photos,
                mean=effect.mean,
                low=_known(effect.low),
                high=_known(effect.high),
                p_holm=_known(effect.p_holm),
                png=_sheet(pictures),
            )
        )
    content = {
        "benchmark": answers.items.benchmark,
        "weights": answers.items.weights,
        "data": answers.items.data,
        "insights": [asdict(insight) for insight in kept],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return write_page(folder / FILE, text)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _sheet(pairs: Sequence[Sequence[Image.Image]]) -> str:
    """Return pairs of pictures as one PNG in base64: a column per pair, separated by white."""
    for picture in (image for pair in pairs for image in pair):
        picture.thumbnail((SIDE, SIDE))
    width = max(image.width for pair in pairs for image in pair)
    height = max(image.height for pair in pairs for image in pair)
    gap = max(1, width // 16)
    sheet = Image.new("RGB", ((width + gap) * len(pairs) - gap, 2 * height + gap), "white")
    for column, pair in enumerate(pairs):
        for row, picture in enumerate(pair):
            sheet.paste(picture, ((width + gap) * column, (height + gap) * row))
    file = io.BytesIO()
    sheet.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def read_insights(folder: Path, answers: StressItems) -> list[ShownInsight]:
    """Read the insights into a model's answers; empty if none were written for these answers."""
    file = folder / FILE
    if not file.exists():
        return []
    try:
        content = load_json(require_regular(file).read_text(encoding="utf-8"))
        about = [content[name] for name in ("benchmark", "weights", "data")]
        items = answers.items
        if about != [items.benchmark, items.weights, items.data]:
            return []
        return from_json(list[ShownInsight], content["insights"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{file} is not what evaluate.py benchmark=stress writes ({error}): remove it, and "
            "evaluate the model again"
        ) from error
