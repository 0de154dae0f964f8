"""The real photos of a pool that are nearest to what failures look like: ``recipe=retrieved``.

Trained on beside repaired sets, they answer whether photos need to be edited at all: real photos
retrieved for the same targets often teach as much as generated ones (Geng et al., 2024, The Unmet
Promise of Synthetic Training Images).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError, say
from cfaug.core.rng import derive
from cfaug.core.types import Edited, Example, Proposal, Scores
from cfaug.data.captions import right_articles
from cfaug.data.shards.shards import read_scores
from cfaug.editing.rule_edits import find_words
from cfaug.editing.sentence import normalise
from cfaug.imaging.clip import LazyClipScorer
from cfaug.papers.repair.choice import SHARE, RepairChoice
from cfaug.papers.repair.edits import FailureWeights, hash_failures, read_targets

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.evaluation.failures import ModelFailure


def describe_failure(failure: ModelFailure) -> tuple[str, ...]:
    """Return captions of photos that show a failure: its words after, with each of its classes.

    Words that begin with a preposition, or several words, follow the class; a single word precedes
    it. Words in place of the class, or of no class, stand alone.

    >>> from cfaug.evaluation.failures import ModelFailure
    >>> describe_failure(ModelFailure("stress", "place", "on the grass", "at night", ("ball",)))
    ('a ball at night',)
    >>> describe_failure(ModelFailure("stress", "colour", "red", "orange", ("ball", "cat")))
    ('an orange ball', 'an orange cat')
    >>> describe_failure(ModelFailure("pairs", "subject", "a cat", "a dog", ("cat",)))
    ('a dog',)
    """
    after = normalise(failure.after)

    def caption(label: str) -> str:
        if find_words(failure.before, label) is not None:
            return after
        words = after.split()
        if words and words[-1].lower() in ("of", "a", "an"):  # "a sketch of a"
            return f"{after} {label}"
        return f"a {after} {label}" if len(words) == 1 else f"a {label} {after}".rstrip()

    captions = [caption(label) for label in failure.labels] or [after]
    return tuple(right_articles(text) or "a photo" for text in captions)


@dataclass(frozen=True)
class Unedited:
    """An editor that proposes each example as it is, a set of one photo with its first text.

    Args:
        failures: the file of the failures that photos are retrieved for.
    """

    failures: str | None = None

    def check_source(self, examples: Sequence[Example]) -> None:
        """Refuse a file without failures."""
        read_targets(self.failures, "equal")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        return [
            Edited((Proposal(example, (normalise(example.text),), (None,)),))
            for example in examples
        ]

    def describe(self) -> dict[str, str]:
        """Return an empty mapping: nothing is edited."""
        return {}


@dataclass(frozen=True)
class FailureCosines(LazyClipScorer):
    """A scorer of a photo by its cosine with each failure's captions, the largest of several.

    Args:
        failures: a file that ``read_failures`` reads; its N-th failure, from 0, gives the score
            ``failure_N``.
        weights: the importance of a failure; those without any have a score, too.
    """

    failures: str | None = None
    weights: FailureWeights = "effect"

    @cached_property
    def _captions(self) -> dict[str, tuple[str, ...]]:
        if self.failures is None:
            return {}  # refused when a source is read
        failures = read_targets(self.failures, self.weights)
        return {
            f"{self.prefix}{name_score(number)}": describe_failure(failure)
            for number, failure in enumerate(failures)
        }

    @property
    def meanings(self) -> dict[str, str]:
        """{name of the score: what the photo is compared with}."""
        return {name: "photo and " + " or ".join(of) for name, of in self._captions.items()}

    def further_texts(self, proposal: Proposal) -> list[str]:
        return [caption for captions in self._captions.values() for caption in captions]

    def compare(self, texts: Sequence[Tensor], images: Sequence[Tensor]) -> Scores:
        """Return the scores of one photo: see ``CosineScorer.compare``."""
        captions = iter(texts[1:])  # the first is the photo's own
        photo = images[0]
        return {
            name: max(float(photo @ next(captions)) for _ in of)
            for name, of in self._captions.items()
        }

    def describe(self) -> dict[str, str]:
        return {**super().describe(), "failures": hash_failures(self.failures, self.weights)}


def name_score(number: int) -> str:
    """Return the name of a failure's score."""
    return f"failure_{number}"


@dataclass(frozen=True)
class RetrievedChoice(RepairChoice):
    """Chooses the photos nearest to each failure, as many as ``RepairChoice`` plans for it.

    The nearest pair of a photo and a failure comes first; a photo is chosen once, for the first
    failure whose number is not reached. Equal cosines follow an order keyed by the photo.
    """

    def choose(self, folder: Path) -> dict[str, Any]:
        """Return the keys of the chosen photos, and the budget of each failure.

        Args:
            folder: shards of which all are made.
        """
        failures = read_targets(self.failures, self.weights)
        (pairs,) = self._allocate(failures, [self.budget // SHARE // 2] * len(failures))
        planned = [2 * count for count in pairs]
        chosen = self._nearest(read_scores(folder), planned)
        rows = [
            {
                "failure": failure.words,
                "captions": list(describe_failure(failure)),
                "planned": count,
                "chosen": len(keys),
            }
            for failure, count, keys in zip(failures, planned, chosen, strict=True)
        ]
        for row in rows:
            say(f"{row['failure']}: {row['chosen']} photos of {row['planned']} planned")
        keys = sorted(key for of in chosen for key in of)
        if not keys:
            raise UserError("nothing is chosen: data.source has no photo")
        say(f"{len(keys)} of the budget's {self.budget} photos are chosen")
        return {
            "keys": keys,
            "budget": self.budget,
            "returned": self.budget - len(keys),
            "failures": rows,
            "failures_sha256": hash_failures(self.failures, self.weights),
        }

    def _nearest(
        self, scores: Mapping[str, Mapping[str, float]], wanted: Sequence[int]
    ) -> list[list[str]]:
        """Return the keys of the nearest photos of each failure, nearest first."""
        order = {key: (derive(self.seed, "retrieved", key), key) for key in scores}
        pairs = sorted(
            (-cosines[name_score(number)], order[key], number)
            for key, cosines in scores.items()
            for number, count in enumerate(wanted)
            if count
        )
        chosen: list[list[str]] = [[] for _ in wanted]
        used: set[str] = set()
        for _, (_, key), number in pairs:
            if key not in used and len(chosen[number]) < wanted[number]:
                used.add(key)
                chosen[number].append(key)
        return chosen
