"""A classifier's answers to photos and their edits, read from the items of ``benchmark=stress``.

The columns are those that ``cfaug.evaluation.stress.stress`` writes. No model is needed here:
effects of edits, insights into classes, the factors that a classifier relies on, and the tests of
its drops are computed from the items alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from scipy.stats import binomtest

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.outputs import write_output
from cfaug.core.rng import generator
from cfaug.core.types import CLUSTER, ITEM, ORIGINAL, RECONSTRUCTION
from cfaug.report.document import Column, Document, make_part, text_column, to_markdown
from cfaug.report.items import Items, ModelItems
from cfaug.report.page import p_text, percent, points
from cfaug.stats.edit_effects import GroupEffect, Grouping, group_effects, group_equal
from cfaug.stats.effects import DropTest, fisher, paired_drop
from cfaug.stats.significance import holm

EDITED = "edited"
"""A stress test's name of its edits, besides ``original`` photos and their ``reconstruction``."""
TOP = 5
"""Number of most probable classes that an item names."""
GROUP, CENTRE = "edit_group", "edit_centre"
"""Columns of items whose edits were clustered by their texts: the number of each edit's cluster, -1
without one, and whether the edit names the cluster."""
JOINED_ITEMS = (
    ItemColumn("item", "``<set>/<key>_<member>``", "text", always=True),
    ItemColumn("cluster", "the photo", "text", always=True),
    ItemColumn(
        "set",
        "``original`` (photos), ``reconstruction``, ``edited``, ``random`` or a name of ``more``",
        "text",
        always=True,
    ),
    ItemColumn(
        "photos",
        "``edited`` if ``data`` has an edit of the photo (the paper's 576), else ``unedited``",
        "text",
        always=True,
    ),
    ItemColumn(
        "kind",
        "the kind of the edit: ``original``, ``reconstruction``, ``subject``, ...",
        "text",
        always=True,
    ),
    ItemColumn("class", "the label", "text", always=True),
    ItemColumn("text", "the caption of the image", "text", always=True),
)
"""Columns of every test of photos and their edits."""
STRESS_ITEMS = ItemSchema(
    "an image: a photo, its reconstruction or an edit of it",
    (
        *JOINED_ITEMS,
        ItemColumn("photo", "the item of the photo that it was made from", "text", always=True),
        ItemColumn("before", "the words that the edit replaces", "text", always=True),
        ItemColumn("after", "the words that replace them", "text", always=True),
        ItemColumn("text_before", "the caption of the photo", "text", always=True),
        ItemColumn("source", "the folder, as it was given", "text"),
        ItemColumn("key", "its set there", "text"),
        ItemColumn("member", "its number in the set", "whole number"),
        ItemColumn("image", "digest of its bytes", "text"),
        ItemColumn("class_name", "the model's name of the label, in words", "text"),
        ItemColumn("class_number", "its index in the logits", "whole number"),
        ItemColumn("classes", "the number of classes among which was chosen", "whole number"),
        ItemColumn(
            "acc1", "1 if its class is the most probable; a share where classes tie", always=True
        ),
        ItemColumn("acc5", "the same for the five most probable, if there are five classes"),
        ItemColumn("rank", "1 + the number of classes above its own", "whole number"),
        ItemColumn("p", "the probability of its class", always=True),
        ItemColumn("p_photo", "the same for its photo; null for a photo", always=True),
        ItemColumn(
            "p_reconstruction",
            "the same for the photo's reconstruction; null for a photo, and without one",
            always=True,
        ),
        ItemColumn("p_drop", "p_photo - p; null for a photo", always=True),
        ItemColumn("delta_p", "its absolute value", always=True),
        ItemColumn("photo_acc<k>", "the hits of its photo; null for a photo"),
        ItemColumn("paired_drop<k>", "these minus its own hits"),
        ItemColumn(
            "net_drop<k>",
            "hits of the reconstruction minus its own; null for a reconstruction, and without one",
        ),
        ItemColumn("top<n>_p", "the probability of the n-th most probable class, to 5"),
        ItemColumn("top<n>", "its name", "text"),
        ItemColumn("prompt", "the prompt of the edit, where it has one", "text"),
        ItemColumn("f", "the edit's ``f``, where it has one"),
        ItemColumn("severity", "the strength of the edit, where its source says one", "text"),
        ItemColumn(GROUP, "the number of the edit's cluster; -1 without one", "whole number"),
        ItemColumn(CENTRE, "whether the edit names the cluster", "yes or no"),
    ),
)
"""The items of ``benchmark=stress``."""
AT_CHANCE = 0.05
"""Largest p by which a model is shown to be better than chance."""
HOW_TO_CONTROL = (
    "Photos that were saved again as the edits were, with nothing changed, are one: a kind called "
    "reconstruction."
)
Delta = Literal["absolute", "drop"]
"""How far an edit moves the probability of the true class: absolute as in LANCE, section 4.1, or
signed, positive if it falls."""


@dataclass(frozen=True)
class Insight:
    """One intervention on a class with its effect on a classifier (LANCE, Figure 6).

    Attributes:
        before: the words that it replaces; empty for an insertion.
        after: the words that replace them.
        effect: effect of all its edits; ``rows`` are rows of the items, the strongest first.
        named_by: the row of the edit that names it.
    """

    label: str
    kind: str
    before: str
    after: str
    effect: GroupEffect
    named_by: int

    @property
    def words(self) -> str:
        """The intervention in words."""
        return f"{self.before} → {self.after}" if self.before else f"+ {self.after}"


def named_classes(items: Items) -> dict[str, str]:
    """Return the model's name of each label, in words; the label where it has none."""
    column = "class_name" if "class_name" in items.columns else "class"
    labels, names = (items.columns[name] for name in ("class", column))
    return {str(label): str(name) for label, name in zip(labels, names, strict=True)}


def describe_limits(model: str, items: Items) -> list[str]:
    """Return what limits the numbers, in sentences: photos at chance, missing reconstructions."""
    notes = []
    sets = np.asarray(items.columns["set"])
    if "classes" in items.columns:
        hits = items.metric("acc1")[sets == ORIGINAL]
        chance = 1 / int(items.columns["classes"][0])
        right = math.floor(float(hits.sum()))  # a tie is not a hit
        if binomtest(right, len(hits), chance, alternative="greater").pvalue > AT_CHANCE:
            notes.append(
                f"{model} is not shown to be better than chance on the photos themselves "
                f"({right:,} of {len(hits):,} right; chance is {percent(chance, 1)} %; exact "
                f"binomial test, p > {AT_CHANCE}): what edits cost it says nothing yet."
            )
    is_edit = ~np.isin(sets, (ORIGINAL, RECONSTRUCTION))
    missing = int((is_edit & np.isnan(items.metric("net_drop1"))).sum())
    if missing == is_edit.sum():
        notes.append(
            "No photo has a reconstruction, so no edit is compared with what making it changes "
            "anyway, such as another compression or size: falls are those from photo to edit. "
            f"{HOW_TO_CONTROL}"
        )
    elif missing:
        notes.append(
            f"{missing:,} of {int(is_edit.sum()):,} edits are of photos without a reconstruction, "
            f"and are left out where edits are compared with it. {HOW_TO_CONTROL}"
        )
    return notes


class StressItems(ModelItems):
    """The answers of one classifier."""

    schema = STRESS_ITEMS
    BENCHMARK = "stress"

    def __post_init__(self) -> None:
        super().__post_init__()
        for column in STRESS_ITEMS.columns:
            if column.always and column.kind == "number":
                self.items.metric(column.name)
        hits = self.items.metric("acc1")
        if not ((hits >= 0) & (hits <= 1)).all():
            raise self._damaged("acc1 of an item is not between 0 and 1")
        names, photos, parts = (self.texts(name) for name in (ITEM, "photo", "set"))
        there = {name for name, part in zip(names, parts, strict=True) if part == ORIGINAL}
        for name, photo in zip(names, photos, strict=True):
            if photo not in there:
                raise self._damaged(f"the photo {photo!r} of {name!r} is not one of the items")
        if self.is_clustered:
            groups, centres = self.column(GROUP), self.column(CENTRE)
            nameless = sorted(set(groups[groups >= 0].tolist()) - set(groups[centres].tolist()))
            if nameless:
                raise self._damaged(f"no edit names the cluster {nameless[0]} ({CENTRE})")

    def _damaged(self, fault: str) -> UserError:
        return UserError(
            f"the items of {self.items.benchmark} ({self.model}) are damaged: {fault}; {self.renew}"
        )

    @cached_property
    def sets(self) -> tuple[str, ...]:
        """The names of the sets, in their order."""
        return tuple(dict.fromkeys(self.texts("set")))

    @property
    def edit_sets(self) -> tuple[str, ...]:
        """The sets of edits: neither the photos nor their reconstructions."""
        return tuple(name for name in self.sets if name not in (ORIGINAL, RECONSTRUCTION))

    def rows(self, name: str) -> np.ndarray:
        """Return the rows of a set, int64."""
        if name not in self.sets:
            raise UserError(
                f"the items of {self.items.benchmark} have no set {name!r}; there are "
                f"{', '.join(self.sets)}"
            )
        return np.flatnonzero(np.array(self.texts("set")) == name)

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The row of each item by its name."""
        return {name: row for row, name in enumerate(self.texts(ITEM))}

    def deltas(self, rows: np.ndarray, delta: Delta = "absolute") -> tuple[np.ndarray, np.ndarray]:
        """Return how far edits move the classifier, and how far reconstructions of their photos do.

        Returns:
            Two arrays, float64 (rows,); the second is ``nan`` where a photo has no reconstruction.
        """
        if delta not in get_args(Delta):
            raise UserError(f"delta={delta} is invalid: choose from {', '.join(get_args(Delta))}")
        photo, control = (self.items.metric(name)[rows] for name in ("p_photo", "p_reconstruction"))
        drop, usual = photo - self.items.metric("p")[rows], photo - control
        if np.isnan(drop).any():
            raise UserError(f"the items of {self.items.benchmark} lack the probability of a photo")
        return (np.abs(drop), np.abs(usual)) if delta == "absolute" else (drop, usual)

    def effects_by(
        self, column: str = "kind", part: str = EDITED, delta: Delta = "absolute"
    ) -> list[GroupEffect]:
        """Return how far each part of a set moves the classifier, strongest first (Figure 3).

        Args:
            column: column that defines the parts, such as ``kind`` or ``class``.
        """
        rows = self.rows(part)
        groups = [self.texts(column)[row] for row in rows]
        return self._measure(rows, groups, delta)

    def effects_within_classes(
        self, part: str = EDITED, delta: Delta = "absolute"
    ) -> list[GroupEffect]:
        """Return how far each kind of edit moves the classifier within each class.

        Returns:
            One effect for each pair of a class and a kind, its ``group``, strongest first; p is
            corrected over all of them.
        """
        rows = self.rows(part)
        labels, kinds = self.texts("class"), self.texts("kind")
        return self._measure(rows, [(labels[row], kinds[row]) for row in rows], delta)

    def _measure(
        self, rows: np.ndarray, groups: Sequence[Hashable], delta: Delta
    ) -> list[GroupEffect]:
        photos = [self.texts("photo")[row] for row in rows]
        values, control = self.deltas(rows, delta)
        effects = group_effects(values, control, photos, groups)
        return [replace(effect, rows=rows[effect.rows]) for effect in effects]

    @property
    def is_clustered(self) -> bool:
        """Whether edits were clustered by their texts when the model was evaluated."""
        return {GROUP, CENTRE} <= self.items.columns.keys()

    def insights(
        self, part: str = EDITED, *, min_photos: int = 2, delta: Delta = "absolute"
    ) -> list[Insight]:
        """Return interventions on classes, by class in order, strongest first within a class.

        Edits are grouped by the clusters of their texts if the items have them, else by class, kind
        and new words. p is corrected over all returned groups.

        Args:
            min_photos: smallest number of photos of a group; smaller groups say little about a
                class and are left out.
        """
        rows = self.rows(part)
        if self.is_clustered:
            groups, centres = self.column(GROUP)[rows], self.column(CENTRE)[rows]
            kept = sorted(set(groups[groups >= 0].tolist()))
            names = [int(np.flatnonzero(centres & (groups == group))[0]) for group in kept]
            position = {group: i for i, group in enumerate(kept)}
            numbers = [position.get(group, -1) for group in groups.tolist()]
            grouping = Grouping(np.array(numbers, np.int64), np.array(names, np.int64))
        else:
            columns = [self.texts(name) for name in ("class", "kind", "after")]
            grouping = group_equal(
                [tuple(column[row].lower() for column in columns) for row in rows]
            )
        photos = np.array([self.texts("photo")[row] for row in rows])
        sizes = [len(set(photos[grouping.groups == group])) for group in range(len(grouping.names))]
        large = np.array([group >= 0 and sizes[group] >= min_photos for group in grouping.groups])
        if not large.any():
            return []
        effects = self._measure(rows[large], grouping.groups[large].tolist(), delta)
        labels, kinds, before, after = (
            self.texts(name) for name in ("class", "kind", "before", "after")
        )
        insights = []
        for effect in effects:
            named_by = int(rows[grouping.names[effect.group]])
            # Equal new words may replace different ones: the name gives the most frequent case.
            usual = Counter(before[row] for row in effect.rows).most_common(1)[0][0]
            words = before[named_by] if self.is_clustered else usual
            about = labels[named_by], kinds[named_by], words, after[named_by]
            insights.append(Insight(*about, effect, named_by))
        order = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        return sorted(insights, key=lambda insight: order[insight.label])


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
        parts = sorted({part for part in columns[by][chosen].tolist() if part}) if by else [""]
        for part in parts:
            rows = chosen & (columns[by] == part) if by else chosen
            if not rows.any():
                continue
            baseline = reference & (columns[by] == part) if by == "class" else reference
            hits, photo = items.metric(metric), items.metric(f"photo_{metric}")
            net = items.metric(f"net_drop{metric.removeprefix('acc')}")[rows]
            before, after = hits[baseline], hits[rows]
            clusters = np.asarray(items.columns[CLUSTER]).astype(str)[rows]
            rng = generator(0, "stress_drops", items.benchmark, metric, name, part)
            # A tie is not a hit.
            right_before, right = (int(np.floor(side).sum()) for side in (before, after))
            drops.append(
                Drop(
                    name=name,
                    part=part,
                    images=int(rows.sum()),
                    paired=paired_drop(photo[rows], after, clusters, rng),
                    net=float(np.nanmean(net)) if (~np.isnan(net)).any() else math.nan,
                    accuracy_of_photos=float(before.mean()) if len(before) else math.nan,
                    unpaired=float(before.mean() - after.mean()) if len(before) else math.nan,
                    p_fisher=fisher(right_before, len(before), right, len(after)),
                )
            )
    corrected = holm([drop.p for drop in drops]).tolist()
    return [replace(drop, p_holm=p) for drop, p in zip(drops, corrected, strict=True)]


def _paired(drop: Drop) -> str:
    mean = drop.paired.mean
    if math.isnan(mean.low):
        return f"{points(mean.mean)} [one photo: no interval]"
    return f"{points(mean.mean)} [{points(mean.low)}, {points(mean.high)}]"


def _net(drop: Drop) -> str:
    """Return the drop beyond the reconstruction's, or why there is none."""
    if drop.name == RECONSTRUCTION:
        return "is one"
    return NO_CONTROL if math.isnan(drop.net) else points(drop.net)


def _unpaired(text: Callable[[Drop], str]) -> Callable[[Drop], str]:
    """Return the text of a column of all photos, or why there is none to compare with."""
    return lambda drop: "no photo" if math.isnan(drop.unpaired) else text(drop)


NO_CONTROL = "no reconstruction"
"""What stands where an edit would be compared with its photo's reconstruction."""


ACCURACY, PAIRED, UNPAIRED = "acc@1 (%)", "paired drop (points)", "unpaired:"
COLUMNS: tuple[Column[Drop], ...] = (
    text_column("images", lambda drop: str(drop.images)),
    text_column("photos", lambda drop: str(drop.paired.mean.clusters)),
    text_column("of photos", lambda drop: percent(drop.paired.before), ACCURACY),
    text_column("of images", lambda drop: percent(drop.paired.after), ACCURACY),
    text_column("mean [95 %]", _paired, PAIRED),
    text_column("less reconstruction's", _net, PAIRED),
    text_column("McNemar", lambda drop: p_text(drop.paired.p_sign), "p"),
    text_column("permutation", lambda drop: p_text(drop.p), "p"),
    text_column("Holm", lambda drop: p_text(drop.p_holm), "p"),
    text_column(
        "acc@1 of photos (%)", _unpaired(lambda drop: percent(drop.accuracy_of_photos)), UNPAIRED
    ),
    text_column("drop (points)", _unpaired(lambda drop: points(drop.unpaired)), UNPAIRED),
    text_column("p (Fisher)", _unpaired(lambda drop: p_text(drop.p_fisher)), UNPAIRED),
)


def drops_document(model: str, items: Items) -> Document:
    """Return the drops of sets, kinds, classes and severities as tables."""
    titles = {None: "Sets", "kind": "Kinds of edits", "class": "Classes"}
    if "severity" in items.columns:
        titles["severity"] = "Severities"
    named = {
        label: label if name == label else f"{name} ({label})"
        for label, name in named_classes(items).items()
    }
    parts = []
    for by, title in titles.items():
        heads = ("set",) if by is None else ("set", by)
        drops = compare_drops(items, "acc1", by)
        shown = named if by == "class" else {}
        rows = [
            ((drop.name, shown.get(drop.part, drop.part))[: len(heads)], drop) for drop in drops
        ]
        parts.append(make_part(title, heads, COLUMNS, rows))
    notes = (
        *describe_limits(model, items),
        "Paired: each image with its own photo, which counts once for each image. Intervals: "
        "95 %, over photos. The permutation flips whole photos; "
        "McNemar's test treats edits of one photo as independent. Holm: corrected over a table. "
        "Unpaired, as in LANCE's equation 3: accuracy on the photos that have an edit, minus "
        "accuracy on the images; Fisher's test treats all of them as independent.",
    )
    return Document("stress", f"{model}: {items.benchmark}", tuple(parts), notes)


def write_drops(folder: Path, model: str, items: Items) -> Path:
    """Write the drops of a model as Markdown beside its results, and return the file."""
    file = folder / FILE
    try:
        write_output(file, to_markdown(drops_document(model, items)).encode(), file.name)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error
    return file
