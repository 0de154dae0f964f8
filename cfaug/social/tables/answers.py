"""Models' retrieval for neutral prompts, for the paper's figures and our tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cfaug.core.rng import generator
from cfaug.report.arm_results import Runs
from cfaug.report.items import Items
from cfaug.report.numbers import Measure
from cfaug.report.paper_tables import ModelsTable
from cfaug.social.skew_chance import ChanceSkew
from cfaug.social.skew_items import RankingTask, SignificantSubjects, SkewItems
from cfaug.social.skew_rankings import SkewRankings, read_rankings
from cfaug.stats.item_tests import MeanDifference, cluster_bootstrap

COMMANDS = (
    "python generate.py recipe=social data.grid=race_gender paths.shards=shards/social",
    "python evaluate.py benchmark=skew benchmark.data=shards/social model=open_clip",
)

NATS = Measure("nats", "lower")
"""The measure of skews: natural logarithms of ratios."""


@dataclass(frozen=True)
class ModelAnswers:
    """One model's retrieval; values are means over its checkpoints.

    Attributes:
        name: the printed name of the model.
        checkpoints: the answers of the model's checkpoints, at least one.
    """

    name: str
    checkpoints: Sequence[SkewItems]

    @property
    def items(self) -> list[Items]:
        """The items of each checkpoint."""
        return [one.items for one in self.checkpoints]

    @cached_property
    def ranked(self) -> list[tuple[SkewItems, SkewRankings]] | None:
        """The checkpoints with their rankings; ``None`` if one has no saved rankings.

        Raises:
            UserError: if rankings cannot be read.
        """
        found = [(one, read_rankings(one)) for one in self.checkpoints]
        kept = [(one, rankings) for one, rankings in found if rankings is not None]
        return kept if len(kept) == len(found) else None

    @property
    def asked(self) -> frozenset[str]:
        """Hashes of its checkpoints' test data."""
        return frozenset(one.items.data for one in self.checkpoints)

    def choose(self, grid: str, labelling: str, k: int | None) -> RankingTask | None:
        """Return the question of a labelling, as ``SkewItems.choose`` does."""
        return self.checkpoints[0].choose(grid, labelling, k)

    def values(
        self, question: RankingTask, metric: str = "max_skew", subject_type: str | None = None
    ) -> dict[str, float]:
        """Return the mean over checkpoints by subject, for the subjects of all checkpoints."""
        found = [one.values(question, metric, subject_type) for one in self.checkpoints]
        shared = [name for name in found[0] if all(name in own for own in found)]
        return {name: sum(own[name] for own in found) / len(found) for name in shared}

    def gaps(self, question: RankingTask, subject_type: str | None) -> dict[str, dict[str, float]]:
        """Return the mean over checkpoints of ranks within sets, by label and subject."""
        found = [one.gaps(question, subject_type) for one in self.checkpoints]
        return {
            label: {
                name: sum(one[label][name] for one in found) / len(found)
                for name in own
                if all(name in one.get(label, {}) for one in found)
            }
            for label, own in found[0].items()
        }

    def standing(
        self, question: RankingTask, subject_type: str | None
    ) -> list[SignificantSubjects]:
        """Return which subjects stand out, for each checkpoint."""
        return [one.standing(question, subject_type) for one in self.checkpoints]

    def chance(self, question: RankingTask, subject_type: str | None) -> list[ChanceSkew]:
        """Return the distribution for a random ranking, for each subject."""
        return self.checkpoints[0].chance(question, subject_type)


def mean_over_subjects(values: dict[str, float], *about: str) -> MeanDifference:
    """Return the mean of values by subject and its interval: a bootstrap over subjects.

    Args:
        values: {subject: value}, at least one.
        about: a description of the values, which is the key of the draws.
    """
    rng = generator(0, "social_bias", *about)
    return cluster_bootstrap(np.array(list(values.values())), list(values), rng)


@dataclass(frozen=True, kw_only=True)
class SkewTable(ModelsTable):
    """A table of the answers to ``benchmark=skew``; arguments as for ``ModelsTable``."""

    benchmark: str = "skew"
    commands: Sequence[str] = COMMANDS

    def read(self, runs: Runs) -> list[ModelAnswers]:
        """Return the answers of each model.

        Raises:
            UserError: if items cannot be read or are not those of ``benchmark=skew``.
        """
        return [
            ModelAnswers(name, [answers for _, answers in own])
            for name, own in self.answers(runs, SkewItems).items()
        ]
