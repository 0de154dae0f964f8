"""The tables of many experiments, one by one: what is wrong with one stops no other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from cfaug.errors import UserError
from cfaug.report.comparison import Comparison
from cfaug.report.records import experiment_folder
from cfaug.run.compare import Samples, compare
from cfaug.run.launch import DONE, report
from cfaug.run.publish import hand_over

SHOWN = 3
"""Experiments whose tables are printed; of more, each is one line."""


def compare_all(
    runs: Sequence[Path],
    asked: Mapping[Path, Collection[str]] | None,
    baseline: str | Sequence[str] | None,
    samples: Samples,
    forgetting: float | None,
    comparison: Comparison | None = None,
) -> int:
    """Write cards, tables and reports of every experiment, and tell what is wrong with one.

    Args:
        runs: folders of finished runs.
        asked: {folder of an experiment: the benchmarks to table}; ``None`` tables all that its
            runs were ever asked.
        baseline: what to compare with, as for ``compare``.
        samples: gives the first sets of a run's counterfactual source.
        comparison: which arms are compared with which, as for ``compare``.
        forgetting: a fall against the weights before that is told, as for ``hand_over``.

    Returns:
        An exit code.
    """
    folders: dict[Path, list[Path]] = {}
    for run in runs:
        folders.setdefault(experiment_folder(run), []).append(run)
    code = DONE
    for experiment in sorted(folders):
        try:
            compare(
                experiment,
                baseline,
                samples,
                hand_over(experiment, folders[experiment], forgetting),
                benchmarks=None if asked is None else asked.get(experiment, ()),
                brief=len(folders) > SHOWN,
                comparison=comparison,
            )
        except UserError as error:
            code = report(UserError(f"no table of experiment {experiment.name}: {error}"))
    return code
