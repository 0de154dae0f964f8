"""The seeds on which arms are compared: those that all of them have, or those that are chosen.

A run that was interrupted or removed leaves its seed out of the comparison, not the arm, and the
other arms' runs of that seed stay where they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from cfaug.core.errors import UserError
from cfaug.report.arms import arm_labels, read_arms, same_identity
from cfaug.report.comparison import ComparisonSettings, join_words
from cfaug.report.records import Run
from cfaug.report.results import Cell, Result, join_seeds

Seeds = Mapping[str, Collection[int]]
"""{arm: its seeds}."""


def choose_seeds(
    seeds: Seeds, chosen: Collection[int] | None, labels: Mapping[str, str]
) -> set[int]:
    """Return the seeds that all arms have, or the chosen ones.

    Raises:
        UserError: if an arm lacks a chosen seed, or no seed is common to all.
    """
    there = "; ".join(f"{labels.get(arm, arm)}: {join_seeds(have)}" for arm, have in seeds.items())
    if chosen is not None:
        lacking = [arm for arm, have in seeds.items() if not set(chosen) <= set(have)]
        if lacking:
            raise UserError(
                f"seeds={join_seeds(chosen)}: {_missing(seeds, chosen, labels)}. The finished "
                f"runs' seeds are {there}"
            )
        return set(chosen)
    common = set.intersection(*map(set, seeds.values()))
    if not common:
        raise UserError(
            f"no seed is common to all arms, and arms are compared by seed ({there}): train the "
            "missing runs, or evaluate one arm by itself with arm=NAME"
        )
    return common


def describe_seeds(
    seeds: Seeds, used: Collection[int], chosen: Collection[int] | None, labels: Mapping[str, str]
) -> str:
    """Return a sentence on the seeds that are compared and those that are not; or nothing.

    >>> describe_seeds({"real": {1, 2}, "cf": {1}}, {1}, None, {})
    'Compared on seed 1, which all arms have: cf lacks seed 2.'
    >>> describe_seeds({"real": {1, 2}, "cf": {1, 2}}, {2}, [2], {})
    'Compared on seed 2, as chosen; there is also seed 1.'
    """
    every = set().union(*map(set, seeds.values()))
    if every == set(used):
        return ""
    compared = f"Compared on {_name_seeds(used)}"
    if chosen is not None:
        return f"{compared}, as chosen; there is also {_name_seeds(every - set(used))}."
    return f"{compared}, which all arms have: {_missing(seeds, every, labels)}."


def _name_seeds(seeds: Collection[int]) -> str:
    return f"seed{'s' * (len(set(seeds)) > 1)} {join_seeds(set(seeds))}"


def _missing(seeds: Seeds, wanted: Collection[int], labels: Mapping[str, str]) -> str:
    lacking = {arm: set(wanted) - set(have) for arm, have in seeds.items()}
    return "; ".join(
        f"{labels.get(arm, arm)} lacks {_name_seeds(gone)}" for arm, gone in lacking.items() if gone
    )


def check_experiment(
    runs: Iterable[Run],
    settings: ComparisonSettings,
    baseline: str | Sequence[str] | None,
) -> str:
    """Return what to say of the seeds of an experiment before its runs are evaluated.

    Args:
        runs: its finished runs; without two trained arms and a baseline nothing is compared.

    Raises:
        UserError: if its arms cannot be compared on any seed, or not on the chosen ones.
    """
    kept, _ = same_identity(list(runs))
    arms = read_arms(kept)
    trained = [name for name, arm in arms.items() if arm.trained]
    labels = arm_labels(arms, settings.labels)
    if len(trained) < 2 or not settings.choose_baselines(arms, baseline, labels):
        return ""
    seeds = {arm: {run.seed for run in kept if run.arm == arm} for arm in trained}
    chosen = settings.seeds
    return describe_seeds(seeds, choose_seeds(seeds, chosen, labels), chosen, labels)


def keep_common(
    rows: Sequence[Result],
    untrained: Collection[str],
    chosen: Collection[int] | None,
    labels: Mapping[str, str],
) -> tuple[list[Result], list[str]]:
    """Keep the rows of the seeds that are compared, and say which are not.

    Each benchmark and metric has its own seeds: one that an arm was not evaluated on is a gap. The
    rows of an untrained arm, which may have one seed for all, follow where it has the same seeds.

    Raises:
        UserError: if a benchmark's arms cannot be compared on any seed, or not on the chosen ones.
    """
    seeds: dict[Cell, dict[str, set[int]]] = {}
    for row in rows:
        seeds.setdefault(row.cell, {}).setdefault(row.arm, set()).add(row.seed)
    used: dict[Cell, set[int]] = {}
    said: dict[str, list[str]] = {}
    for cell, by_arm in seeds.items():
        trained = {arm: have for arm, have in by_arm.items() if arm not in untrained}
        if not trained:
            continue
        try:
            used[cell] = choose_seeds(trained, chosen, labels)
        except UserError as error:
            raise UserError(f"{cell[0]} {cell[1]}: {error}") from error
        sentence = describe_seeds(trained, used[cell], chosen, labels)
        said.setdefault(sentence, []).append(cell[0])
    kept = [
        row
        for row in rows
        if row.cell not in used
        or row.seed in used[row.cell]
        or (row.arm in untrained and not used[row.cell] <= seeds[row.cell][row.arm])
    ]
    alike = len(said) < 2
    return kept, [
        sentence if alike else f"{join_words(list(dict.fromkeys(benchmarks)))}: {sentence}"
        for sentence, benchmarks in said.items()
        if sentence
    ]
