"""Which of the accepted sets make up the budget, when all shards of ``recipe=repair`` are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from cfaug.core.errors import UserError, say
from cfaug.core.rng import derive
from cfaug.core.validation import Seed, Share, check_fields
from cfaug.data.shards.shards import committed_captions, read_lines, read_scores, sets_of
from cfaug.evaluation.failures import Finder, ModelFailure, read_failures
from cfaug.papers.repair.edits import (
    DIRECTION,
    FAILURE,
    FailureWeights,
    hash_failures,
    importance,
    read_targets,
)

if TYPE_CHECKING:
    from cfaug.models.specs import ModelSpec

LEAST = {"effect": 8, "equal": 2}
"""The smallest number of images of a failure, by what it weighs."""
SHARE = 4
"""A failure gets at most this part of the budget: one fourth."""


@dataclass(frozen=True)
class RepairChoice:
    """Chooses the sets of each failure: as many edited in one direction as in the other.

    A failure of coverage has edits in one direction only, and as many images.

    The budget is divided in proportion to ``importance``, at least ``LEAST`` images to a failure
    and at most a quarter of it; of equally important ones the first in an order keyed by their
    words come first. Of each failure the first accepted sets are chosen, in an order keyed by
    the set. A failure with hardly any accepted edit is not editable, and its budget goes to the
    others.

    Args:
        failures: the file of the failures that the sets were made for.
        budget: the number of images, one for each set.
        judge: the model that accepts images; refused if it found one of the failures, since a model
            would accept what it knows. ``None`` if none does.
        least_yield: the smallest share of accepted edits of a failure that is editable.
        weights: the importance of a failure; ``equal`` for edits that no effect chose.
    """

    failures: str | None = None
    budget: Annotated[int, Ge(LEAST["effect"] * SHARE)] = 2000
    seed: Seed = 0
    """the seed of what is drawn"""
    judge: ModelSpec | None = None
    least_yield: Share = 0.05
    weights: FailureWeights = "effect"

    def __post_init__(self) -> None:
        check_fields(self, "recipe.choice")
        if self.failures is None or self.judge is None:
            return
        weights = self.judge.weights_hash()
        for number, failure in enumerate(read_failures(self.failures)):
            finder = failure.found_by
            if isinstance(finder, Finder) and finder.weights == weights:
                raise UserError(
                    f"{self.judge} is to accept the images, and it is the model under repair: "
                    f"{finder.model} has the same weights and found failure {number} of "
                    f"{self.failures}. Choose another, such as zoo.clip.weights=..., or "
                    "zoo.domain_clip.weights=... with zoo=shapescapes"
                )

    def choose(self, folder: Path) -> dict[str, Any]:
        """Return the keys of the chosen sets, and the budget and yield of each failure.

        Args:
            folder: shards of which all are made.
        """
        failures = read_targets(self.failures, self.weights)
        tried: list[dict[str, list[str]]] = [{"forward": [], "reverse": []} for _ in failures]
        for number in committed_captions(folder):
            for line in read_lines(folder, number):
                for proposal in sets_of(line):
                    about = proposal["extra"]
                    tried[about[FAILURE]][about[DIRECTION]].append(proposal["key"])
        made = read_scores(folder).keys()
        accepted = [
            {way: [key for key in keys if key in made] for way, keys in of.items()} for of in tried
        ]
        yields = [
            _count(of) / _count(all_tried) if _count(all_tried) else 0.0
            for of, all_tried in zip(accepted, tried, strict=True)
        ]
        limit = self.budget // SHARE // 2
        ready = []
        for failure, of, rate in zip(failures, accepted, yields, strict=True):
            pairs_there = min(map(len, of.values()))
            if failure.cause == "coverage":  # edited in one direction alone
                pairs_there = len(of["forward"]) // 2
            ready.append(min(limit, pairs_there) if rate >= self.least_yield else 0)
        planned, pairs = self._allocate(failures, [limit] * len(failures), ready)

        def order(key: str) -> tuple[int, str]:
            return derive(self.seed, "repair-choice", key), key

        keys: list[str] = []
        rows = []
        for number, (failure, of) in enumerate(zip(failures, accepted, strict=True)):
            chosen: list[str] = []
            for every in of.values():
                count = 2 * pairs[number] if failure.cause == "coverage" else pairs[number]
                chosen += sorted(every, key=order)[:count]
            keys += chosen
            rows.append(
                {
                    "failure": failure.words,
                    "planned": 2 * planned[number],
                    "chosen": len(chosen),
                    **{f"tried_{way}": len(every) for way, every in tried[number].items()},
                    **{f"accepted_{way}": len(every) for way, every in of.items()},
                    "yield": round(yields[number], 4),
                    "editable": yields[number] >= self.least_yield,
                }
            )
        _say(rows, self.budget)
        if not keys:
            least = LEAST[self.weights]
            raise UserError(
                f"nothing is chosen: a failure needs {least // 2} accepted edits in each direction "
                f"({least} images), one of coverage {least}, and none has them; more photos "
                "(limit, data.source) find more. What was made is kept, and the same command goes "
                "on from it"
            )
        return {
            "keys": sorted(keys),
            "budget": self.budget,
            "returned": self.budget - len(keys),
            "failures": rows,
            "failures_sha256": hash_failures(self.failures, self.weights),
        }

    def _allocate(
        self, failures: Sequence[ModelFailure], *limits: Sequence[int]
    ) -> list[list[int]]:
        """Return the number of pairs of each failure, for each list of limits."""
        # Not in the file's order, in which the largest effects come first.
        order = sorted(
            range(len(failures)),
            key=lambda i: (derive(self.seed, "repair-order", failures[i].words), i),
        )
        weights = [importance(failures[i], self.weights) for i in order]
        least, total = LEAST[self.weights] // 2, self.budget // 2
        counts = (
            allocate(weights, total, least=least, limits=[limit[i] for i in order])
            for limit in limits
        )
        return [[count for _, count in sorted(zip(order, of, strict=True))] for of in counts]


def _count(of: Mapping[str, Sequence[str]]) -> int:
    return sum(map(len, of.values()))


def _say(rows: Sequence[Mapping[str, Any]], budget: int) -> None:
    for row in rows:
        there, back = (
            f"{row[f'accepted_{way}']} of {row[f'tried_{way}']}" for way in ("forward", "reverse")
        )
        if row["editable"]:
            tail = f"{row['chosen']} images of {row['planned']} planned"
        else:
            tail = f"not editable; its {row['planned']} images go to the others"
        say(f"{row['failure']}: {there} edits and {back} back were accepted, {tail}")
    chosen = sum(row["chosen"] for row in rows)
    more = "; more photos (limit, data.source) may yield more" if chosen < budget else ""
    say(
        f"{chosen} of the budget's {budget} images are chosen; {budget - chosen} are returned{more}"
    )


def allocate(
    weights: Sequence[float], total: int, *, least: int, limits: Sequence[int]
) -> list[int]:
    """Divide a total in proportion to weights, within bounds, by largest remainders.

    A failure that would get more than its upper bound gets that, one that would get fewer than
    ``least`` gets ``least``, and the rest is divided among the others (Ibaraki and Katoh, 1988, on
    bounded apportionment). If there is not enough for all, the heaviest are kept; equal weights
    keep their order. What cannot be placed is left over: ``total - sum(...)``.

    Args:
        weights: the weight of each; 0 or less gets nothing.
        least: the smallest number of each that gets anything.
        limits: the largest number of each; one that can take fewer than ``least`` gets nothing.

    >>> allocate([3, 1, 1], 100, least=8, limits=[50, 50, 50])
    [50, 25, 25]
    >>> allocate([3, 1, 1], 100, least=8, limits=[20, 50, 4])
    [20, 50, 0]
    """
    able = [i for i, weight in enumerate(weights) if weight > 0 and limits[i] >= max(least, 1)]
    if least > 0:
        able = sorted(able, key=lambda i: (-weights[i], i))[: total // least]
    counts = [0] * len(weights)
    left = min(total, sum(limits[i] for i in able))
    while able:
        whole = sum(Fraction(weights[i]) for i in able)
        quota = {i: left * Fraction(weights[i]) / whole for i in able}
        over = {i: limits[i] for i in able if quota[i] > limits[i]}
        under = {i: least for i in able if quota[i] < least}
        if not over and not under:
            break
        excess = sum(quota[i] - limits[i] for i in over)
        settled = over if excess >= sum(least - quota[i] for i in under) else under
        for i, count in settled.items():
            counts[i] = count
            left -= count
            able.remove(i)
    for i in able:
        counts[i] = int(quota[i])
    rest = left - sum(counts[i] for i in able)
    for i in sorted(able, key=lambda i: (counts[i] - quota[i], i))[:rest]:
        counts[i] += 1
    return counts
