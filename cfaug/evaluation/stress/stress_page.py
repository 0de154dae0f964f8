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
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.types import ITEM, ORIGINAL, RECONSTRUCTION, Edit, Member
from cfaug.core.validation import Positive, Words, check_fields
from cfaug.evaluation.stress.edit_clusters import write_insights
from cfaug.evaluation.stress.stress_items import (
    TOP,
    Insight,
    StressItems,
    describe_limits,
    named_classes,
)
from cfaug.report.gallery import ImageSource, ModelPage, ReadImage, mark_changes, read_own
from cfaug.report.page import p_text, percent, short
from cfaug.stats.cluster_tests import cluster_mean
from cfaug.stats.edit_effects import GroupEffect

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
    command: Words = ()

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
    answers = read_own(folder, model, benchmark, StressItems)
    write_insights(answers, answers.insights(answers.edit_sets[0]), images.read, folder)
    return page


def verdict(answers: StressItems) -> str:
    """Say in a sentence what the edits do to a model's accuracy, each compared with its photo."""

    def cost(drop: float) -> str:
        return f"{round(100 * drop, 1) + 0.0:.1f}"  # never -0.0

    photos = answers.rows(ORIGINAL)
    right = percent(float(answers.items.metric("acc1")[photos].mean()), 1)
    clauses = [f"{answers.model} answers {right} % of {len(photos):,} photos right"]
    for part in answers.edit_sets:
        rows = answers.rows(part)
        drops = answers.items.metric("paired_drop1")[rows]
        names = [answers.texts("photo")[row] for row in rows]
        estimate = cluster_mean(drops, names, bounds=(-1.0, 1.0))
        main = part == answers.edit_sets[0]
        subject = f"edits of {estimate.clusters:,} photos" if main else f"edits of the set {part}"
        clauses.append(f"{len(rows):,} {subject} cost {cost(estimate.mean)} points")
        if not math.isnan(estimate.low):
            clauses[-1] += f" (95 % interval {cost(estimate.low)} to {cost(estimate.high)})"
    if RECONSTRUCTION in answers.sets:
        drops = answers.items.metric("paired_drop1")[answers.rows(RECONSTRUCTION)]
        clauses.append(f"saving photos again without an edit costs {cost(float(drops.mean()))}")
    return "; ".join(clauses) + "."


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
                strongest[part] = [
                    insight for insights in by_class.values() for insight in insights[:6]
                ]
            self._insights.append(strongest)
        # The edits with the smallest hashes, in order, and those of insights.
        parts = [self.first.rows(part) for part in self.first.edit_sets]
        rows, names = np.concatenate(parts).tolist(), self.first.texts(ITEM)
        self._all = len(rows)
        shuffled = sorted(
            sorted(rows),
            key=lambda row: hashlib.blake2b(names[row].encode(), digest_size=8).digest(),
        )
        kept = set(shuffled[: settings.limit])
        for strongest in self._insights:
            for insight in chain(*strongest.values()):
                kept.update(insight.effect.rows[:EXAMPLES].tolist())
        self._edits = sorted(kept)

    @property
    def verdicts(self) -> list[str]:
        notes = (n for answer in self.answers for n in describe_limits(answer.model, answer.items))
        return [*map(verdict, self.answers), *dict.fromkeys(notes)]

    @property
    def subtitle(self) -> str:
        shown = len(self._edits)
        if shown == self._all:
            return f"{self._all:,} edits"
        return f"{shown:,} of {self._all:,} edits, drawn at random beside those of insights"

    def content(self) -> dict[str, Any]:
        """Return everything but the pictures: the script explains its letters."""
        position = {row: i for i, row in enumerate(self._edits)}
        pairs = [self._pair(row) for row in self._edits]
        edit_sets = self.first.edit_sets
        kinds = zip(self.first.texts("kind"), self.first.texts("set"), strict=True)
        # By model and set: {class, "" for all: [kind, edits, photos, mean, low, high, excess, p]}.
        effects: list[dict[str, dict[str, list[list[Any]]]]] = []
        for answer in self.answers:
            by_set = {}
            for part in answer.edit_sets:
                overall = answer.effects_by("kind", part)
                by_class = {"": [_effect(effect, str(effect.group)) for effect in overall]}
                for effect in answer.effects_within_classes(part):
                    label, kind = effect.group
                    by_class.setdefault(label, []).append(_effect(effect, kind))
                by_set[part] = by_class
            effects.append(by_set)
        # By model and set: c class, k kind, e words, v numbers, q p, x command, p places of pairs.
        insights = []
        for strongest in self._insights:
            of_model: dict[str, list[dict[str, Any]]] = {}
            for part, some in strongest.items():
                of_model[part] = [
                    {
                        "c": insight.label,
                        "k": insight.kind,
                        "e": [insight.before, insight.after],
                        "v": _effect(insight.effect, insight.kind)[1:],
                        "q": p_text(insight.effect.p_holm),
                        "x": self._command(insight),
                        "p": [position[int(row)] for row in insight.effect.rows[:EXAMPLES]],
                    }
                    for insight in some
                ]
            insights.append(of_model)
        return {
            "models": [answer.model for answer in self.answers],
            "sets": list(edit_sets),
            "classes": sorted(named_classes(self.first.items).items(), key=lambda pair: pair[::-1]),
            "kinds": list(dict.fromkeys(kind for kind, part in kinds if part in edit_sets)),
            "pairs": pairs,
            "effects": effects,
            "insights": insights,
            "names": list(self._names),
        }

    def _command(self, insight: Insight) -> str:
        """Return the command that makes an insight's edits, "" if no caption says what they are."""
        row = insight.named_by
        if self.first.texts("text")[row] == self.first.texts("text_before")[row]:
            return ""
        return fill_command(self.settings.command, insight)

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


def fill_command(words: Sequence[str], insight: Insight) -> str:
    """Return a command that applies an insight's intervention to its class, for a shell.

    Quotes in its words are escaped as Hydra reads them within double quotes: backslashes need it
    only before a quote or at the end.
    """

    def escape(match: re.Match[str]) -> str:
        slashes, quote = match.groups()
        return slashes * 2 + ("\\" + quote if quote else "")

    fields = {
        "kind": insight.kind,
        "before": insight.before,
        "after": insight.after,
        "label": insight.label,
    }
    places = {name: re.sub(r"(\\*)(\"|$)", escape, text) for name, text in fields.items()}
    return " ".join(shlex.quote(word.format(**places)) for word in words)


def _effect(effect: GroupEffect, name: str) -> list[Any]:
    numbers = (effect.mean, effect.low, effect.high, effect.excess, effect.p_holm)
    return [name, len(effect), effect.photos, *map(short, numbers)]
