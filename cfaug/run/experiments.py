"""The tables of several experiments; an error in one does not stop the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.report.comparison import Comparison
from cfaug.report.families import Primary
from cfaug.report.records import experiment_folder
from cfaug.run.compare import Samples, compare
from cfaug.run.launch import DONE, report
from cfaug.run.publish import hand_over

SHOWN = 3
"""Most experiments whose tables are printed; with more, each is one line."""


def compare_all(
    runs: Sequence[Path],
    asked: Mapping[Path, Primary],
    baseline: str | Sequence[str] | None,
    samples: Samples,
    forgetting: float | None,
    comparison: Comparison | None = None,
    *,
    every_benchmark: bool = False,
) -> int:
    """Write cards, tables and reports of every experiment, and report the errors of each.

    Args:
        runs: folders of finished runs.
        asked: {folder of an experiment: {benchmark of this command: its primary metrics}}.
        baseline: the arm, or arms, to compare with; ``None`` takes those of ``comparison``.
        samples: a function that returns the first sets of a run's counterfactual source.
        comparison: the baselines of arms, and their labels; ``None`` for the defaults.
        every_benchmark: table all benchmarks with results, not only those in ``asked``.
        forgetting: smallest decrease against the initial weights that is reported, a share;
            ``None`` reports none.

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
                asked=asked.get(experiment, {}),
                every_benchmark=every_benchmark,
                brief=len(folders) > SHOWN,
                comparison=comparison,
            )
        except UserError as error:
            code = report(UserError(f"no table of experiment {experiment.name}: {error}"))
    return code
