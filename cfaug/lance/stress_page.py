"""``stress.html``: effects of edited photos on classifiers, in one file that opens offline.

For each class, its strongest kinds of edits, the interventions found, and every edit beside its
photo with the most probable classes of each model. Nothing in a caption or a class name is ever
read as markup: the script sets text.
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.rng import generator
from cfaug.core.types import ITEM, ORIGINAL, RECONSTRUCTION, Edit, Member
from cfaug.core.validation import Positive, check_fields
from cfaug.lance.edit_clusters import write_insights
from cfaug.lance.stress_items import TOP, GroupEffect, Insight, StressItems
from cfaug.report.gallery import mark_changes
from cfaug.report.model_pages import ImageSource, ModelPage, ReadImage, read_own
from cfaug.report.page import p_text, percent, short
from cfaug.stats.item_tests import cluster_bootstrap

EXAMPLES = 4
"""Most edits that an insight shows."""


@dataclass(frozen=True)
class PageSettings:
    """Limits on what a page shows.

    Args:
        limit: most edits that are shown, beside those of insights; ``None`` for all.
        side: longest side of the pictures, in pixels: 2,000 edits of 800 photos make a page of
            about 20 MB.
        command: words of a command that applies one intervention to a whole class, with ``{kind}``,
            ``{before}``, ``{after}`` and ``{label}`` where they go; empty for no command.
    """

    limit: Positive | None = 2000
    side: int = 192
    command: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_fields(self, "benchmark.page")


def stress_page(settings: PageSettings | None = None) -> ModelPage[StressItems]:
    """Return the definition of the page."""
    how = settings or PageSettings()
    return ModelPage(
        "stress.html", StressItems, "images", lambda answers: _StressPageData(answers, how),
        how.side, None, "evaluate both with the same benchmark.data",
    )  # fmt: skip


def write_stress_pages(
    folder: Path,
    model: str,
    benchmark: str,
    read_image: ReadImage,
    settings: PageSettings | None = None,
) -> Path:
    """Write the page of one model beside its results, and one of all models above their folders.

    "All" are the models of its experiment that were evaluated on the same images, if there are
    several.
    """
    images = ImageSource(read_image).once()
    page = stress_page(settings).write_for_run(folder, model, benchmark, images, "stress.html")
    own = read_own(folder, model, benchmark, StressItems)
    write_insights(own, own.insights(own.edit_sets[0]), images.read, folder)
    return page


def verdict(one: StressItems) -> str:
    """Say in a sentence what the edits do to a model's accuracy, each compared with its photo."""

    def cost(drop: float) -> str:
        return f"{round(100 * drop, 1) + 0.0:.1f}"  # never -0.0

    photos = one.rows(ORIGINAL)
    right = percent(float(one.items.metric("acc1")[photos].mean()), 1)
    said = [f"{one.model} answers {right} % of {len(photos):,} photos right"]
    for part in one.edit_sets:
        rows = one.rows(part)
        drops = one.items.metric("paired_drop1")[rows]
        names = [one.texts("photo")[row] for row in rows]
        found = cluster_bootstrap(drops, names, generator(0, "stress", part))
        main = part == one.edit_sets[0]
        what = f"edits of {found.clusters:,} photos" if main else f"edits of the set {part}"
        said.append(f"{len(rows):,} {what} cost {cost(found.mean)} points")
        if not math.isnan(found.low):
            said[-1] += f" (95 % interval {cost(found.low)} to {cost(found.high)})"
    if RECONSTRUCTION in one.sets:
        drops = one.items.metric("paired_drop1")[one.rows(RECONSTRUCTION)]
        said.append(f"drawing photos again without an edit costs {cost(float(drops.mean()))}")
    return "; ".join(said) + "."


class _StressPageData:
    def __init__(self, answers: Sequence[StressItems], settings: PageSettings) -> None:
        self.answers, self.settings = answers, settings
        self.first = answers[0]
        self.images: dict[str, str] = {}
        self._names: dict[str, int] = {}
        self._places: dict[str, int] = {}
        self._insights: list[dict[str, list[Insight]]] = []
        for answer in answers:
            strongest: dict[str, list[Insight]] = {}
            for part in answer.edit_sets:
                by_class: dict[str, list[Insight]] = {}
                for insight in answer.insights(part):
                    by_class.setdefault(insight.label, []).append(insight)
                strongest[part] = [one for own in by_class.values() for one in own[:6]]
            self._insights.append(strongest)
        # The edits with the smallest hashes, in order, and those of insights.
        parts = [self.first.rows(part) for part in self.first.edit_sets]
        rows, names = np.concatenate(parts).tolist(), self.first.texts(ITEM)
        self._all = len(rows)
        shuffled = sorted(sorted(rows), key=lambda row: _shuffle_key(names[row]))
        kept = set(shuffled[: settings.limit])
        for strongest in self._insights:
            for insight in chain(*strongest.values()):
                kept.update(insight.effect.rows[:EXAMPLES].tolist())
        self._edits = sorted(kept)

    @property
    def verdicts(self) -> list[str]:
        return [verdict(answer) for answer in self.answers]

    @property
    def subtitle(self) -> str:
        shown = len(self._edits)
        if shown == self._all:
            return f"{self._all:,} edits"
        return f"{shown:,} of {self._all:,} edits, drawn at random beside those of insights"

    def content(self) -> dict[str, Any]:
        """Return everything but the pictures: the script explains its letters."""
        place = {row: i for i, row in enumerate(self._edits)}
        pairs = [self._pair(row) for row in self._edits]
        edit_sets = self.first.edit_sets
        kinds = zip(self.first.texts("kind"), self.first.texts("set"), strict=True)
        return {
            "models": [answer.model for answer in self.answers],
            "sets": list(edit_sets),
            "classes": sorted(set(self.first.texts("class"))),
            "kinds": list(dict.fromkeys(kind for kind, part in kinds if part in edit_sets)),
            "pairs": pairs,
            "effects": [self._effects(answer) for answer in self.answers],
            "insights": [
                {part: [self._insight(one, place) for one in found] for part, found in own.items()}
                for own in self._insights
            ],
            "names": list(self._names),
        }

    def _picture(self, row: int) -> int:
        """Return the number of an item's picture; equal images share one."""
        name = self.first.texts(ITEM)[row]
        digest = self.first.texts("image")[row] if "image" in self.first.items.columns else name
        self.images.setdefault(digest or name, name)
        return self._places.setdefault(digest or name, len(self._places))

    def _name(self, text: str) -> int:
        return self._names.setdefault(text, len(self._names))

    def _pair(self, row: int) -> dict[str, Any]:
        """Return an edit: s set, c class, k kind, e words, p pictures, t captions, m answers.

        An answer: d delta p, f fall, h hits, y its class, a the top before and b after.
        """
        first = self.first
        photo = first.row_of[first.texts("photo")[row]]
        kind, before, after = (first.texts(name)[row] for name in ("kind", "before", "after"))
        members = (
            Member(first.texts("text_before")[row], "0", ""),
            Member(first.texts("text")[row], "1", "", Edit(kind, before, after)),
        )
        pictures = [self._picture(photo), self._picture(row)]
        answers = []
        for model in self.answers:
            columns = model.items.columns
            truth = model.texts("class_name" if "class_name" in columns else "class")[row]
            answers.append({
                "d": short(columns["delta_p"][row]),
                "f": short(columns["p_drop"][row]),
                "h": [int(columns["acc1"][at] > 0.5) for at in (photo, row)],
                "y": [self._name(truth), short(columns["p_photo"][row]), short(columns["p"][row])],
                "a": self._top(model, photo),
                "b": self._top(model, row),
            })  # fmt: skip
        return {
            "i": first.texts(ITEM)[row],
            "s": first.texts("set")[row],
            "c": first.texts("class")[row],
            "k": kind,
            "e": [before, after],
            "p": pictures,
            "t": [mark_changes(members, 0), mark_changes(members, 1)],
            "m": answers,
        }

    def _top(self, model: StressItems, row: int) -> list[list[float | None]]:
        columns = model.items.columns
        return [
            [self._name(model.texts(f"top{n}")[row]), short(columns[f"top{n}_p"][row])]
            for n in range(1, TOP + 1)
            if f"top{n}" in columns and columns[f"top{n}"][row] is not None
        ]

    def _effects(self, model: StressItems) -> dict[str, dict[str, list[list[Any]]]]:
        """Return {set: {class, "" for all: [kind, edits, photos, mean, low, high, excess, p]}}."""
        found: dict[str, dict[str, list[list[Any]]]] = {}
        for part in model.edit_sets:
            overall = model.effects_by("kind", part)
            found[part] = {"": [_effect(one, str(one.group)) for one in overall]}
            for one in model.effects_within_classes(part):
                label, kind = one.group
                found[part].setdefault(label, []).append(_effect(one, kind))
        return found

    def _insight(self, insight: Insight, place: Mapping[int, int]) -> dict[str, Any]:
        return {
            "c": insight.label,
            "k": insight.kind,
            "e": [insight.before, insight.after],
            "v": _effect(insight.effect, insight.kind)[1:],
            "q": p_text(insight.effect.p_holm),
            "x": fill_command(self.settings.command, insight),
            "p": [place[int(row)] for row in insight.effect.rows[:EXAMPLES]],
        }


def fill_command(words: Sequence[str], one: Insight) -> str:
    """Return a command that applies an insight's intervention to its class, for a shell.

    Quotes in its words are escaped as Hydra reads them within double quotes: backslashes need it
    only before a quote or at the end.
    """

    def escape(found: re.Match[str]) -> str:
        slashes, quote = found.groups()
        return slashes * 2 + ("\\" + quote if quote else "")

    found = {"kind": one.kind, "before": one.before, "after": one.after, "label": one.label}
    places = {name: re.sub(r"(\\*)(\"|$)", escape, text) for name, text in found.items()}
    return " ".join(shlex.quote(word.format(**places)) for word in words)


def _effect(effect: GroupEffect, name: str) -> list[Any]:
    numbers = (effect.mean, effect.low, effect.high, effect.excess, effect.p_holm)
    return [name, len(effect), effect.photos, *map(short, numbers)]


def _shuffle_key(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
