"""Choose which arms of an experiment are compared: the configuration node ``comparison``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cfaug.core.errors import UserError
from cfaug.report.arms import ORIGINALS, PAIRS_IN_BATCH, SHUFFLED, SINGLES, Arm
from cfaug.report.headline import Headline
from cfaug.report.results import Result, arms_of, cells_of


@dataclass(frozen=True)
class Comparison:
    """The arms that an experiment is about, by name; names without an arm are ignored.

    Args:
        baselines: arms that others are compared with, the main one first. If none of them exists,
            the arms that were trained on real data only.
        before: arms expected below the main baseline, from worst to best, such as the checkpoint
            before fine-tuning.
        tested: arms under test, the main one first. If none of them exists, the arm with the
            largest share of counterfactual examples, with captions unshuffled and all images.
        control_sources: counterfactual sources without pairs; arms trained on them are controls for
            the pairing. So are arms with ``data.counterfactual_members=singles`` or
            ``data.counterfactual_captions=shuffled``, and those whose ``data.negatives`` show only
            the originals.
        headlines: metric for the first line of a report, by benchmark; the first with results is
            used, or else the first metric of the first benchmark.
        in_distribution: part of a benchmark's name, and its replacement in the name of the
            in-distribution counterpart, which shows the cost of a gain.
        labels: label of each arm in tables, by its name or by the label that it would have.
        seeds_and_items: whether arms are also compared over seeds and items at once, if items were
            saved.
    """

    baselines: Sequence[str] = ()
    before: Sequence[str] = ()
    tested: Sequence[str] = ()
    control_sources: Sequence[str] = ()
    headlines: Mapping[str, str] = field(default_factory=dict)
    in_distribution: Sequence[str] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    seeds_and_items: bool = True

    def __post_init__(self) -> None:
        if self.in_distribution is not None and len(self.in_distribution) != 2:
            raise UserError(
                f"comparison.in_distribution={list(self.in_distribution)} is invalid: give two "
                "texts, such as [_ood_, _id_], or null"
            )

    def choose_baselines(
        self,
        arms: Mapping[str, Arm],
        asked: str | Sequence[str] | None,
        labels: Mapping[str, str],
    ) -> list[str]:
        """Return the arms that others are compared with, the main one first.

        Args:
            arms: arms that have results, by name.
            asked: names or labels of arms, as given by the user; ``None`` for the default.
            labels: label of each arm in tables, by its name.

        Raises:
            UserError: if a given name is not that of an arm.
        """
        if asked is None:
            usual = [arm for arm in self.baselines if arm in arms]
            real = [arm.name for arm in arms.values() if arm.trained and arm.cf_ratio == 0]
            return usual or sorted(real)
        by_label = {label: arm for arm, label in labels.items() if label not in arms}
        given = [asked] if isinstance(asked, str) else asked
        names = list(dict.fromkeys(by_label.get(name, name) for name in given))  # only once
        missing = [name for name in names if name not in arms]
        if missing:
            there = ", ".join(min(arm, labels.get(arm, arm), key=len) for arm in arms)
            raise UserError(f"no arm is called {missing[0]!r}; there are {there}")
        return names

    def headline(
        self,
        rows: Sequence[Result],
        arms: Mapping[str, Arm],
        baseline: str,
        labels: Mapping[str, str],
    ) -> Headline:
        """Return the topic of a report of these results.

        Args:
            rows: results of all arms.
            arms: records of the arms, by name.
            baseline: name of the main baseline.
            labels: label of each arm in tables, by its name.
        """
        cells = cells_of(rows)
        benchmark, metric = next(
            (cell for cell in self.headlines.items() if cell in cells), cells[0]
        )
        tested = self._choose_tested(arms, baseline)
        order = [arm for arm in dict.fromkeys((*self.before, baseline)) if arm in arms_of(rows)]
        paired = self._with_paired(arms, tested)
        return Headline(
            benchmark=benchmark,
            metric=metric,
            order=tuple(arm for arm in order if arm not in tested),
            tested=tested,
            in_distribution=self._counterpart(benchmark),
            paired=paired,
            controls=tuple(
                arm.name
                for arm in arms.values()
                if arm.name not in paired and self._is_control(arm)
            ),
            labels=labels,
        )

    def _choose_tested(self, arms: Mapping[str, Arm], baseline: str) -> tuple[str, ...]:
        ratios = {
            arm.name: arm.cf_ratio or 0.0
            for arm in arms.values()
            if arm.trained and arm.name != baseline
        }
        named = tuple(arm for arm in self.tested if arm in ratios)
        left_out = (SHUFFLED, ORIGINALS)
        own = {arm: ratio for arm, ratio in ratios.items() if arms[arm].control not in left_out}
        candidates = own or ratios
        return named or (max(candidates, key=lambda arm: (candidates[arm], arm)),)

    def _counterpart(self, benchmark: str) -> str | None:
        if self.in_distribution is None or self.in_distribution[0] not in benchmark:
            return None
        shifted, counterpart = self.in_distribution
        return benchmark.replace(shifted, counterpart)

    def _is_control(self, arm: Arm) -> bool:
        return arm.source in self.control_sources or arm.control in (SINGLES, SHUFFLED, ORIGINALS)

    def _with_paired(self, arms: Mapping[str, Arm], tested: Sequence[str]) -> tuple[str, ...]:
        """Return the arms under test, each with those that differ only in ``pairs_in_batch``."""
        found: list[str] = []
        for name in tested:
            own = arms[name]
            found += [name] + [
                arm.name
                for arm in arms.values()
                if arm.pairs_in_batch > own.pairs_in_batch
                and arm.cf_ratio == own.cf_ratio
                and arm.differs_only_in(PAIRS_IN_BATCH, own)
            ]
        return tuple(dict.fromkeys(found))
