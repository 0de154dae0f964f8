"""Which of the accepted sets make up the budget, when all shards of ``recipe=repair`` are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from cfaug.core.errors import UserError, say
from cfaug.core.rng import derive
from cfaug.core.validation import Seed, Share, check_fields
from cfaug.data.shards.shards import committed_captions, read_lines, read_scores, sets_of
from cfaug.evaluation.failures import Finder, read_failures
from cfaug.repair.budget import allocate
from cfaug.repair.edits import DIRECTION, FAILURE, hash_failures, importance, read_targets

if TYPE_CHECKING:
    from cfaug.models.specs import ModelSpec

LEAST = 8
"""The smallest number of images of a failure."""
SHARE = 4
"""A failure gets at most this part of the budget: one fourth."""


@dataclass(frozen=True)
class RepairChoice:
    """Chooses the sets of each failure: as many edited in one direction as in the other.

    The budget is divided in proportion to ``importance``, at least 8 images to a failure and at
    most a quarter of it. Of each failure the first accepted sets are chosen, in an order keyed by
    the set. A failure with hardly any accepted edit is not editable, and its budget goes to the
    others.

    Args:
        failures: the file of the failures that the sets were made for.
        budget: the number of images, one for each set.
        judge: the model that accepts images; refused if it found one of the failures, since a model
            would accept what it knows. ``None`` if none does.
        least_yield: the smallest share of accepted edits of a failure that is editable.
    """

    failures: str | None = None
    budget: Annotated[int, Ge(LEAST * SHARE)] = 2000
    seed: Seed = 0
    judge: ModelSpec | None = None
    least_yield: Share = 0.05

    def __post_init__(self) -> None:
        check_fields(self, "recipe.choice")
        if self.failures is not None and self.judge is not None:
            self._check_judge()

    def _check_judge(self) -> None:
        assert self.judge is not None
        assert self.failures is not None
        weights = self.judge.weights_hash()
        for number, failure in enumerate(read_failures(self.failures)):
            finder = failure.found_by
            if isinstance(finder, Finder) and finder.weights == weights:
                raise UserError(
                    f"{self.judge} is to accept the images, and it is the model under repair: "
                    f"{finder.model} has the same weights and found failure {number} of "
                    f"{self.failures}. Choose another, such as zoo.clip.name_or_path=..., or "
                    "zoo.domain_clip.name_or_path=... with zoo=shapescapes"
                )

    def choose(self, folder: Path) -> dict[str, Any]:
        """Return the keys of the chosen sets, and the budget and yield of each failure.

        Args:
            folder: shards of which all are made.
        """
        failures = read_targets(self.failures)
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
        weights = list(map(importance, failures))
        limit = self.budget // SHARE // 2
        ready = [
            min(limit, *map(len, of.values())) if rate >= self.least_yield else 0
            for of, rate in zip(accepted, yields, strict=True)
        ]
        planned, pairs = (
            allocate(weights, self.budget // 2, least=LEAST // 2, limits=limits)
            for limits in ([limit] * len(failures), ready)
        )
        keys: list[str] = []
        rows = []
        for number, (failure, of) in enumerate(zip(failures, accepted, strict=True)):
            chosen = [key for every in of.values() for key in self._first(every, pairs[number])]
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
            raise UserError(
                f"nothing is chosen: a failure needs {LEAST // 2} accepted edits in each direction "
                f"({LEAST} images), and none has them; more photos (limit, data.source) find more. "
                "What was made is kept, and the same command goes on from it"
            )
        return {
            "keys": sorted(keys),
            "budget": self.budget,
            "returned": self.budget - len(keys),
            "failures": rows,
            "failures_sha256": hash_failures(self.failures),
        }

    def _first(self, keys: Sequence[str], count: int) -> list[str]:
        return sorted(keys, key=lambda key: (derive(self.seed, "repair-choice", key), key))[:count]


def _count(of: Mapping[str, Sequence[str]]) -> int:
    return sum(map(len, of.values()))


def _say(rows: Sequence[Mapping[str, Any]], budget: int) -> None:
    for row in rows:
        if row["editable"]:
            tail = f"{row['chosen']} images of {row['planned']} planned"
        else:
            tail = f"not editable; its {row['planned']} images go to the others"
        say(f"{row['failure']}: {row['yield']:.0%} of the edits were accepted, {tail}")
    chosen = sum(row["chosen"] for row in rows)
    say(f"{chosen} of the budget's {budget} images are chosen; {budget - chosen} are returned")
