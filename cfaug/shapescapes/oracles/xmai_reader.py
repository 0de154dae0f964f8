"""Models compared with a perfect reader: the part of a drop that is their own fault."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from cfaug.data.shards.shards import read_sets
from cfaug.report.document import Entry, Part
from cfaug.report.numbers import DASH, p_text
from cfaug.shapescapes.truth import inserted_claims, read_scene, text_truth
from cfaug.shapescapes.vocabulary import Factors
from cfaug.stats.item_tests import MeanDifference
from cfaug.xmai.tables.answers import Checkpoints
from cfaug.xmai.tables.drops import value_entry
from cfaug.xmai.tables.truth import bootstrap_photos, interval_entry

READER_NOTE = (
    "Texts that stayed true, MRR among all photos. The reader knows every scene and ranks the "
    "photos of which a text is true first, in any order. With m such photos, the expected "
    "reciprocal rank is (1 + 1/2 + ... + 1/m) / m. A loss beyond the reader's change is the "
    "model's own fault; interval and p are of that difference, over photos."
)


@dataclass(frozen=True)
class ReaderComparison:
    """A model and a reader who knows all scenes, on texts that stayed true.

    Attributes:
        model: mean reciprocal rank of the model before and after the change.
        reader: mean reciprocal rank of the reader before and after.
        change: the reader's change minus the model's, by photo; above 0, the model loses more.
    """

    model: tuple[float, float]
    reader: tuple[float, float]
    change: MeanDifference


def against_reader(
    checkpoints: Checkpoints, method: str, inserted: int | None = None
) -> ReaderComparison | None:
    """Compare a model's ranks with those of a reader who knows all scenes.

    Args:
        checkpoints: answers of one model, averaged by text.
        method: the method of the texts; only those that stayed true are used.
        inserted: number of inserted words that claim something (articles do not) in the texts to
            use; ``None`` uses all.

    Returns:
        The comparison; ``None`` if there is no such text.

    Raises:
        UserError: if a photo is not a scene of the world.
    """
    first = checkpoints[0]
    scenes: dict[str, Factors] = {}
    for source in first.sources(method):
        scenes |= {
            one.key: read_scene(one.members[0].extra, f"{source}, set {one.key!r}")[0]
            for one in read_sets(Path(source))
        }
    keys, before, after = (first.texts(name) for name in ("key", "text_before", "text"))
    photos, clusters = {}, first.clusters
    for key, scene in scenes.items():
        photos[clusters.get(key, key)] = scene
    reader = reciprocal_ranks(list(photos.values()))
    values = list[tuple[float, ...]]()
    drawn = list[str]()
    for row in first.rows(method, kept_only=True).tolist():
        if inserted is not None and count_inserted(before[row], after[row]) != inserted:
            continue
        key = keys[row]
        seen = reader(before[row], scenes[key]), reader(after[row], scenes[key])
        own = [
            float(np.mean([one.by_key(name, method)[key] for one in checkpoints]))
            for name in ("mrr_original", "mrr")
        ]
        if seen[0] is not None and seen[1] is not None:
            values.append((*own, seen[0], seen[1]))
            drawn.append(clusters[key])
    if not values:
        return None
    numbers = np.array(values, np.float64)
    lost = (numbers[:, 3] - numbers[:, 2]) - (numbers[:, 1] - numbers[:, 0])
    change = bootstrap_photos(lost.tolist(), drawn, f"reader {method}")
    assert change is not None
    means = numbers.mean(axis=0).tolist()
    return ReaderComparison((means[0], means[1]), (means[2], means[3]), change)


def count_inserted(before: str, after: str) -> int:
    """Return the number of words that claim something in a text but not in its original.

    >>> count_inserted("a ball on the grass", "an orange ball on the green grass")
    2
    """
    return sum(1 for _ in inserted_claims(before, after))


def reciprocal_ranks(photos: Sequence[Factors]) -> Callable[[str, Factors], float | None]:
    """Return a function that gives a perfect reader's expected reciprocal rank for a text.

    >>> red, blue = Factors("ball", "red", "beach"), Factors("ball", "blue", "beach")
    >>> rank = reciprocal_ranks([red, blue])
    >>> rank("a ball", red), rank("a red ball", red), rank("a red ball", blue)
    (0.75, 1.0, None)

    Args:
        photos: all photos, including the text's own.
    """

    @cache
    def expect(text: str) -> tuple[int, float]:
        count = sum(text_truth(text, one) is True for one in photos)
        return count, math.fsum(1 / rank for rank in range(1, count + 1)) / max(count, 1)

    def rank(text: str, own: Factors) -> float | None:
        return expect(text)[1] if text_truth(text, own) is True else None

    return rank


def reader_part(title: str, compared: Mapping[str, ReaderComparison | None]) -> Part:
    """Return the ranks of a model and of the reader, as a part.

    Args:
        title: the title of the part.
        compared: {printed name of the method: comparison}; ``None`` without a text that stayed
            true.
    """
    rows = list[tuple[tuple[str], tuple[Entry, ...]]]()
    for printed, one in compared.items():
        if one is None:
            rows.append(((printed,), (Entry(DASH),) * 7))
            continue
        cells = [Entry(f"{one.change.items:,}"), *map(value_entry, (*one.model, *one.reader))]
        rows.append(((printed,), (*cells, interval_entry(one.change, sign=True), _p(one.change))))
    return Part(
        title, ("Method",), (("", 1), ("model", 2), ("reader", 2), ("lost beyond the reader", 2)),
        ("texts", "before", "after", "before", "after", "MRR", "p"), tuple(rows),
        notes=(READER_NOTE,),
    )  # fmt: skip


def _p(found: MeanDifference) -> Entry:
    return Entry(DASH) if math.isnan(found.p) else Entry(p_text(found.p))
