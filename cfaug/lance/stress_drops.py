"""Is a classifier worse on edits than on their photos, and is the planted slice found?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.files import write_file
from cfaug.core.rng import generator
from cfaug.core.types import CLUSTER, ORIGINAL, RECONSTRUCTION
from cfaug.report.document import Column, Document, Part, make_part, text_column
from cfaug.report.items import Items
from cfaug.report.page import p_text, percent, points
from cfaug.report.writers import to_markdown
from cfaug.stats.effects import DropTest, fisher, paired_drop
from cfaug.stats.significance import holm

# Is a classifier worse on edits than on their photos? Tests over the items of a stress test.
#
# Each edit is compared with its own photo, by McNemar's exact test and by a permutation of whole
# photos: edits of one photo are not independent, so the second is the one to rely on, and the one
# that is corrected. The paper's comparison of sets of different sizes (LANCE, equation 3) is shown
# beside it with Fisher's exact test.

EDITED_PHOTOS = "edited"
"""Value of the column ``photos`` for images whose photo has an edit."""
FILE = "stress.md"


@dataclass(frozen=True)
class Drop:
    """The loss of accuracy from photos to their edits or reconstructions.

    Attributes:
        part: name of the kind of edit or of the class; empty for the whole set.
        net: mean of the reconstruction's hits minus the image's; ``nan`` without reconstructions.
        accuracy_of_photos: accuracy on all photos that have an edit, each counted once.
        unpaired: ``accuracy_of_photos`` minus the images' accuracy: the paper's drop with the
            opposite sign.
        p_fisher: two-sided p of Fisher's exact test of the unpaired drop.
        p_holm: ``p``, corrected over all parts of all sets tested together.
    """

    name: str
    part: str
    images: int
    paired: DropTest
    net: float
    accuracy_of_photos: float
    unpaired: float
    p_fisher: float
    p_holm: float = math.nan

    @property
    def p(self) -> float:
        """The two-sided p of the permutation of photos."""
        return self.paired.p_photos


def compare_drops(items: Items, metric: str = "acc1", by: str | None = None) -> list[Drop]:
    """Test the drop of every set, or of every part of the sets of edits.

    Args:
        by: a column, ``kind`` or ``class``, whose values are the parts; ``None`` for whole sets,
            including reconstructions.
    """
    lacking = [name for name in ("set", "photos", f"photo_{metric}") if name not in items.columns]
    if lacking:
        raise UserError(
            f"the items of {items.benchmark} lack the column {lacking[0]!r}: they are not those of "
            "benchmark=stress, or of a model with too few classes"
        )
    columns = {name: np.asarray(items.columns[name]) for name in ("set", "photos", by or "set")}
    reference = (columns["set"] == ORIGINAL) & (columns["photos"] == EDITED_PHOTOS)
    drops = []
    for name in dict.fromkeys(columns["set"].tolist()):
        if name == ORIGINAL or (by and name == RECONSTRUCTION):
            continue
        chosen = columns["set"] == name
        if name == RECONSTRUCTION:
            chosen &= columns["photos"] == EDITED_PHOTOS
        parts = sorted(set(columns[by][chosen].tolist())) if by else [""]
        for part in parts:
            rows = chosen & (columns[by] == part) if by else chosen
            if rows.any():
                baseline = reference & (columns[by] == part) if by == "class" else reference
                drops.append(_drop(items, metric, (name, part), rows, baseline))
    corrected = holm([drop.p for drop in drops]).tolist()
    return [replace(drop, p_holm=p) for drop, p in zip(drops, corrected, strict=True)]


def _drop(
    items: Items, metric: str, about: tuple[str, str], rows: np.ndarray, reference: np.ndarray
) -> Drop:
    hits, photo = items.metric(metric), items.metric(f"photo_{metric}")
    net = items.metric(f"net_drop{metric.removeprefix('acc')}")[rows]
    after, before = hits[rows], hits[reference]
    rng = generator(0, "stress_drops", items.benchmark, metric, *about)
    clusters = np.asarray(items.columns[CLUSTER]).astype(str)[rows]
    right, right_before = (
        int(np.floor(side).sum()) for side in (after, before)
    )  # a tie is not a hit
    return Drop(
        name=about[0],
        part=about[1],
        images=int(rows.sum()),
        paired=paired_drop(photo[rows], after, clusters, rng),
        net=float(np.nanmean(net)) if (~np.isnan(net)).any() else math.nan,
        accuracy_of_photos=float(before.mean()) if len(before) else math.nan,
        unpaired=float(before.mean() - after.mean()) if len(before) else math.nan,
        p_fisher=fisher(right_before, len(before), right, len(after)),
    )


def _paired(drop: Drop) -> str:
    mean = drop.paired.mean
    interval = "" if math.isnan(mean.low) else f" [{points(mean.low)}, {points(mean.high)}]"
    return f"{points(mean.mean)}{interval}"


ACCURACY, PAIRED, UNPAIRED = "acc@1 (%)", "paired drop (points)", "unpaired:"
COLUMNS: tuple[Column[Drop], ...] = (
    text_column("images", lambda drop: str(drop.images)),
    text_column("photos", lambda drop: str(drop.paired.mean.clusters)),
    text_column("of photos", lambda drop: percent(drop.paired.before), ACCURACY),
    text_column("of images", lambda drop: percent(drop.paired.after), ACCURACY),
    text_column("mean [95 %]", _paired, PAIRED),
    text_column("less reconstruction's", lambda drop: points(drop.net), PAIRED),
    text_column("McNemar", lambda drop: p_text(drop.paired.p_sign), "p"),
    text_column("permutation", lambda drop: p_text(drop.p), "p"),
    text_column("Holm", lambda drop: p_text(drop.p_holm), "p"),
    text_column("acc@1 of photos (%)", lambda drop: percent(drop.accuracy_of_photos), UNPAIRED),
    text_column("drop (points)", lambda drop: points(drop.unpaired), UNPAIRED),
    text_column("p (Fisher)", lambda drop: p_text(drop.p_fisher), UNPAIRED),
)


def drops_document(model: str, items: Items) -> Document:
    """Return the drops of sets, kinds and classes as tables."""
    titles = {None: "Sets", "kind": "Kinds of edits", "class": "Classes"}
    parts = [_part(title, compare_drops(items, "acc1", by), by) for by, title in titles.items()]
    notes = (
        "Paired: each image with its own photo, which counts once for each image. Intervals: "
        "bootstrap over photos, too narrow for few photos. The permutation flips whole photos; "
        "McNemar's test treats edits of one photo as independent. Holm: corrected over a table. "
        "Unpaired, as in LANCE's equation 3: accuracy on the photos that have an edit, minus "
        "accuracy on the images; Fisher's test treats all of them as independent.",
    )
    return Document("stress", f"{model}: {items.benchmark}", tuple(parts), notes)


def _part(title: str, drops: Sequence[Drop], by: str | None) -> Part:
    if by is None:
        return make_part(title, ("set",), COLUMNS, [((drop.name,), drop) for drop in drops])
    return make_part(
        title, ("set", by), COLUMNS, [((drop.name, drop.part), drop) for drop in drops]
    )


def write_drops(folder: Path, model: str, items: Items) -> Path:
    """Write the drops of a model as Markdown beside its results, and return the file."""
    file = folder / FILE
    try:
        write_file(file, to_markdown(drops_document(model, items)).encode())
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error
    return file
