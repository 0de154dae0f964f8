"""``cfaug table repair``: declared arms on the failures they were to mend, rounds, costs."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
from annotated_types import Len
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.safety.json_text import load_json
from cfaug.core.types import CLUSTER, ITEM
from cfaug.core.validation import Positive, Share, check_fields
from cfaug.data.shards.shards import read_chosen, read_sets
from cfaug.evaluation.failures import ModelFailure, read_failures
from cfaug.report.arm_results import ArmResults, Runs
from cfaug.report.document import (
    Column,
    Document,
    DocumentImage,
    Entry,
    Part,
    make_part,
    text_column,
)
from cfaug.report.items import read_items
from cfaug.report.page import DASH, Measure, p_text, span_text
from cfaug.report.results import Cell
from cfaug.report.training_table import TrainingTable
from cfaug.stats.cluster_tests import MeanDifference, cluster_mean
from cfaug.stats.edit_effects import MINIMUM, group_effects
from cfaug.stats.significance import summarise

PICTURES = 4
"""The largest number of failures, and of sets, that are shown."""


class RoundArms(TypedDict):
    """The arms of a round: targeted edits, and random ones."""

    targeted: str
    random: str


@dataclass(frozen=True, kw_only=True)
class RepairTable(TrainingTable):
    """Arms by what is left of the failures; other arguments as for ``TrainingTable``.

    All settings but texts and folders are declared before training (``declare=true``), and hashed
    into the runs (``declared=FILE``); otherwise the page calls its comparisons exploratory. The
    comparison ``harm`` of ``declared`` is that of not being worse in distribution.

    Args:
        unit: the arm without new images, whose examples are not counted as new in the others.
        gain: the column of the points that 1,000 new images gain over ``unit``.
        budget: the number of images of all rounds.
        rounds: the arms of each round, at most three: ``targeted``, and ``random``, the same with
            random edits.
        gate: the benchmark of the rounds on GATE, a ``benchmark=repair``.
        minimum: the smallest useful effect, in probability or share of misses.
        alpha: the largest p in the first round; half of it in the next.
        failures: the file of the declared failures, for the pictures.
        found: the shards in which they were found, for the pictures.
        made: the shards of each round, for what was spent, and for the pictures.
    """

    unit: str
    gain: str
    budget: Positive
    rounds: Annotated[Sequence[RoundArms], Len(1, 3)]
    gate: str
    minimum: Share = MINIMUM
    alpha: Share = 0.05
    failures: str | None = None
    found: str | None = None
    made: Sequence[str] = ()

    @property
    def hashed(self) -> bool:
        """What was not declared in a file before training is exploratory."""
        return True

    def __post_init__(self) -> None:
        check_fields(self, "table")

    @property
    def declaration(self) -> dict[str, Any]:
        """All settings but texts and the folders of pictures."""
        places = ("failures", "found", "made")
        return {name: value for name, value in super().declaration.items() if name not in places}

    def check(self) -> None:
        """Refuse settings that name arms, columns or comparisons which the table lacks."""
        super().check()
        named = [("unit", self.unit)]
        for arms in self.rounds:
            if set(arms) != {"targeted", "random"}:
                raise UserError(f"table.rounds: {dict(arms)} should have targeted and random")
            named += [("rounds", arms["targeted"]), ("rounds", arms["random"])]
        for setting, arm in named:
            if arm not in self.arms:
                raise UserError(
                    f"table.{setting}: {arm!r} is not an arm; arms are {', '.join(self.arms)}"
                )
        if self.gain not in self.columns:
            raise UserError(
                f"table.gain={self.gain} is not a column; columns are {', '.join(self.columns)}"
            )
        if "margin" not in self.declared.get("harm", {}):
            raise UserError(
                "table.declared.harm is missing: {arm, baseline, column, margin}, the comparison "
                "that the repaired model is not worse in distribution"
            )

    def build(self, runs: Runs) -> Document:
        """Return the table of arms, with what 1,000 images gain, the rounds and pictures."""
        self.check()
        document = super().build(runs)
        arms = {arm: runs.arm(f"{self.experiment}/{arm}") for arm in self.arms}
        parts = [self._gains(arms), *self._rounds(runs, arms)]
        first, *rest = document.parts
        answer = " ".join(filter(None, (document.answer, self._advise(arms))))
        # What failed, and what was made.
        pictures: list[DocumentImage] = []
        if self.found is not None and self.failures and Path(self.failures).exists():
            pictures += show_failures(read_failures(self.failures), Path(self.found))
        for folder in map(Path, self.made):
            chosen = read_chosen(folder) if folder.exists() else None
            sets = (made for made in read_sets(folder) if made.key in chosen) if chosen else ()
            for made in islice(sets, PICTURES):
                texts = " → ".join(member.text for member in made.members[:2])
                images = [made.images[member.image_name] for member in made.members[:2]]
                pictures.append(side_by_side(f"Made: {texts} ({made.key})", images, made.key))
        return replace(
            document, parts=(first, *parts, *rest, *self._spending()), pictures=tuple(pictures),
            answer=answer, pictures_first=True,
        )  # fmt: skip

    def _advise(self, arms: Mapping[str, ArmResults]) -> str:
        """Return the arm with the best mean of the column ``gain``, and what it costs."""
        column, harm = self._columns()[self.gain], self.declared["harm"]
        cost = self._columns()[str(harm["column"])]
        sign, measure = self._sign(arms), Measure()

        def mean(arm: str, cell: Cell) -> float:
            return float(np.mean([*arms[arm].values(cell).values()]))

        known = [arm for arm in arms if arms[arm].values(column.cell)]
        if self.unit not in known or not all(arms[arm].values(cost.cell) for arm in known):
            return ""
        best = max(known, key=lambda arm: sign * mean(arm, column.cell))
        gains = (mean(best, each.cell) - mean(self.unit, each.cell) for each in (column, cost))
        better, worse = (measure.difference(gain) for gain in gains)
        return (
            f"Best on {column.full_name}: {self.arms[best]} ({better} points against "
            f"{self.arms[self.unit]}; {cost.full_name} {worse})."
        )

    def _sign(self, arms: Mapping[str, ArmResults]) -> int:
        """Return -1 if lower is better in the column ``gain``, else 1."""
        cell = self._columns()[self.gain].cell
        better = {row.better for row in arms[self.unit].rows if row.cell == cell}
        return -1 if "lower" in better else 1

    def _gains(self, arms: Mapping[str, ArmResults]) -> Part:
        """Return the new images of each arm, and the points that 1,000 of them gain."""
        column = self._columns()[self.gain]
        theirs = arms[self.unit].values(column.cell)
        sign = self._sign(arms)
        in_training: dict[str, int] = {}
        for arm, results in arms.items():
            counts = next(iter(results.records.values()), {}).get("counts") or {}
            in_training[arm] = int(counts.get("train", 0))

        # The arms of a round start from those of the round before, and have learned their images.
        learned = {arm: [arm] for arm in arms}
        for way in ("targeted", "random"):
            of_rounds = [str(named[way]) for named in self.rounds]
            learned |= {arm: of_rounds[: n + 1] for n, arm in enumerate(of_rounds)}

        def new_images(arm: str) -> int:
            trained = [each for each in learned[arm] if arms[each].trained]
            return sum(in_training[each] - in_training[self.unit] for each in trained)

        def points(arm: str) -> Entry:
            ours, count = arms[arm].values(column.cell), new_images(arm)
            gains = [value - theirs[seed] for seed, value in ours.items() if seed in theirs]
            if not gains or count <= 0:
                return Entry(DASH)
            per_thousand = sign * 100 * float(np.mean(gains)) * 1000 / count
            return Entry(f"{per_thousand:+.1f}", numbers={"value": per_thousand})

        return make_part(
            "What new images gain",
            ("Arm",),
            [
                text_column("new images in training", lambda arm: f"{new_images(arm):,}"),
                Column(f"points better per 1,000 ({column.full_name})", points),
            ],
            [((label,), arm) for arm, label in self.arms.items() if arms[arm].seeds],
            (f"Points: mean over seeds of the gain over {self.arms[self.unit]}.",),
        )

    def _rounds(self, runs: Runs, arms: Mapping[str, ArmResults]) -> Iterator[Part]:
        """Yield what GATE says of each round, and whether another one follows."""
        harm = self.declared["harm"]
        column, margin = self._columns()[str(harm["column"])], float(harm["margin"])
        usual = arms[str(harm["baseline"])].values(column.cell)
        results: list[RoundResult] = []
        for number, named in enumerate(self.rounds, 1):
            targeted, random = (
                read_excess(runs, f"{self.experiment}/{arm}", self.gate)
                for arm in (named["targeted"], named["random"])
            )
            if not targeted or not random:
                continue
            ours = arms[named["targeted"]].values(column.cell)
            lost = [usual[seed] - value for seed, value in ours.items() if seed in usual]
            used = sum(count_made(folder) for folder in self.made[:number])
            alpha = self.alpha / 2**number
            passing = count_failing(targeted, minimum=self.minimum, alpha=alpha)
            result = RoundResult(
                number, alpha, passing, len({item.failure for item in targeted.values()}),
                compare_excess(random, targeted), summarise(lost).mean if lost else math.nan, used,
            )  # fmt: skip
            results.append(result)
        if results:
            yield rounds_part(results, self.budget, margin, len(self.rounds))

    def _spending(self) -> Iterator[Part]:
        """Yield what each failure got of the budget, if the shards are there."""
        rows: list[tuple[tuple[str, ...], Mapping[str, Any]]] = []
        for number, folder in enumerate(self.made, 1):
            file = Path(folder) / "chosen.json"
            if not file.exists():
                continue
            try:
                chosen: Mapping[str, Any] = load_json(file.read_text(encoding="utf-8"))
            except ValueError as error:
                raise UserError(
                    f"{file} is not JSON ({error}): remove it; generate.py writes it again"
                ) from error
            rows += [((str(number), row["failure"]), row) for row in chosen.get("failures", ())]
        if rows:
            names = ("planned", "tried", "accepted", "chosen")

            def count(name: str, row: Mapping[str, Any]) -> str:
                ways = (f"{name}_forward", f"{name}_reverse")
                return f"{row[name] if name in row else sum(row[way] for way in ways):,}"

            yield make_part(
                "What was made",
                ("Round", "Failure"),
                [
                    *(text_column(name, partial(count, name)) for name in names),
                    text_column("editable", lambda row: "yes" if row["editable"] else "no"),
                ],
                rows,
                ("Images of each failure. What is not editable leaves its images to the others.",),
            )


def count_made(folder: str | None) -> int:
    """Return the number of chosen images of a folder; 0 if nothing was made."""
    if folder is None or not Path(folder).exists():
        return 0
    return len(read_chosen(Path(folder)) or ())


# Rounds: what GATE says, and whether to go on.


@dataclass(frozen=True)
class GateItem:
    """An edit of a GATE photo: its failure, its photo, and the mean excess over seeds."""

    failure: str
    cluster: str
    excess: float


@dataclass(frozen=True)
class RoundResult:
    """What GATE says of a round.

    Attributes:
        number: the round, from 1.
        alpha: the largest p at which a failure still passes.
        passing: number of declared failures that still pass the rule.
        declared: number of declared failures on GATE.
        gain: the excess after random edits, less that after targeted ones.
        harm: loss in distribution, a fraction; negative for a gain, ``nan`` if unknown.
        used: number of images made until now.
    """

    number: int
    alpha: float
    passing: int
    declared: int
    gain: MeanDifference
    harm: float
    used: int

    def stop_reasons(self, budget: int, margin: float, rounds: int = 3) -> tuple[str, ...]:
        """Return why no other round follows; () if one does."""
        reasons = {
            "no failure passes": self.passing == 0,
            "targeted is not shown better than random": not self.gain.low > 0,
            "harm exceeds the margin": self.harm > margin,
            "the budget is used": self.used >= budget,
            "it was the last round": self.number >= rounds,
        }
        return tuple(reason for reason, holds in reasons.items() if holds)


def read_excess(runs: Runs, arm: str, benchmark: str) -> dict[str, GateItem]:
    """Return the edits of GATE by item, with their excess averaged over the seeds of an arm."""
    values: dict[str, list[float]] = {}
    about: dict[str, tuple[str, str]] = {}
    for folder in runs.folders(arm):
        items = read_items(folder, benchmark)
        if items is None:
            continue
        columns = (items.columns[name] for name in (ITEM, "failure", CLUSTER, "excess"))
        for item, failure, cluster, excess in zip(*columns, strict=True):
            values.setdefault(str(item), []).append(float(excess))
            about[str(item)] = (str(failure), str(cluster))
    return {item: GateItem(*about[item], float(np.mean(of))) for item, of in values.items()}


def count_failing(items: Mapping[str, GateItem], *, minimum: float, alpha: float) -> int:
    """Return the number of declared failures that pass the rule, by Holm's p over all of them."""
    every = list(items.values())
    effects = group_effects(
        [item.excess for item in every], np.zeros(len(every)), [item.cluster for item in every],
        [item.failure for item in every],
    )  # fmt: skip
    return sum(effect.p_holm <= alpha and effect.mean >= minimum for effect in effects)


def compare_excess(first: Mapping[str, GateItem], second: Mapping[str, GateItem]) -> MeanDifference:
    """Return the mean difference of excess on the items of both, with its interval over photos."""
    shared = sorted(first.keys() & second.keys())
    differences = [first[item].excess - second[item].excess for item in shared]
    clusters = [first[item].cluster for item in shared]
    return cluster_mean(differences, clusters)


def rounds_part(
    results: Sequence[RoundResult], budget: int, margin: float, rounds: int = 3
) -> Part:
    """Return all rounds that were run, each with the reasons to stop after it."""

    def decide(result: RoundResult) -> str:
        reasons = result.stop_reasons(budget, margin, rounds)
        return f"stop: {'; '.join(reasons)}" if reasons else "go on"

    return make_part(
        "Rounds, on GATE",
        ("Round",),
        [
            text_column(
                "failures that still pass",
                lambda r: f"{r.passing} of {r.declared} (alpha {p_text(r.alpha)})",
            ),
            text_column("random less targeted", lambda r: f"{r.gain.mean:+.3f}"),
            text_column("95 %", lambda r: span_text("{:+.3f}".format, r.gain.low, r.gain.high)),
            text_column(
                "harm, points", lambda r: "n/a" if math.isnan(r.harm) else f"{100 * r.harm:+.1f}"
            ),
            text_column("images", lambda r: f"{r.used:,} of {budget:,}"),
            text_column("then", decide),
        ],
        [((str(result.number),), result) for result in results],
        (
            "Random less targeted: excess of the declared failures, mean over seeds, interval over "
            "photos. Harm: loss in distribution, mean over seeds; it may be "
            f"{100 * margin:g} points.",
        ),
    )


# Pictures.


def show_failures(failures: Sequence[ModelFailure], folder: Path) -> Iterator[DocumentImage]:
    """Yield the strongest failures of different classes, each an edited photo before and after.

    Args:
        folder: the shards in which they were found; a failure whose items are not there is not
            shown.
    """
    wanted: dict[str, ModelFailure] = {}
    for failure in sorted(failures, key=lambda failure: -failure.size):
        another = failure.labels not in [other.labels for other in wanted.values()]
        if failure.items and another and len(wanted) < PICTURES:
            wanted[failure.items[0].rpartition("/")[2]] = failure
    for made in read_sets(folder) if folder.exists() else ():
        if not wanted:
            break
        for name in [name for name in wanted if name.rpartition("_")[0] == made.key]:
            failure, number = wanted.pop(name), int(name.rpartition("_")[2])
            if number < len(made.members):  # several members may share an image
                effect = f"{failure.effect:.2f} of probability or misses beyond the control"
                shown = (made.members[0], made.members[number])
                yield side_by_side(
                    f"Failed: {failure.words}, {effect} ({made.key})",
                    [made.images[member.image_name] for member in shown], made.key,
                )  # fmt: skip


def side_by_side(caption: str, images: Sequence[Any], name: str) -> DocumentImage:
    """Return images of equal height next to each other."""
    pictures = []
    for image in images:
        content = image if isinstance(image, bytes) else image.read()
        pictures.append(decode_image(content, name).convert("RGB"))
    strip = Image.new("RGB", (sum(p.width for p in pictures) + 4, pictures[0].height), "white")
    left = 0
    for picture in pictures:
        strip.paste(picture, (left, 0))
        left += picture.width + 4
    buffer = io.BytesIO()
    strip.save(buffer, "PNG")
    return DocumentImage(caption, base64.b64encode(buffer.getvalue()).decode())
