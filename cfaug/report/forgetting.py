"""The cost of fine-tuning: every result compared with that of the weights it started from.

A fine-tuned CLIP that gains on one test and loses its zero-shot accuracy elsewhere is the usual
accident. The results before fine-tuning are found by the hashes of weights and data: in runs of 0
steps in the same experiment, and for checkpoints evaluated with ``weights=`` or
``evaluate_initial=true``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from cfaug.core.errors import UserError
from cfaug.core.weights import ENCODER_SETTINGS, model_identity
from cfaug.report.records import read_run
from cfaug.report.result_row import Result
from cfaug.report.results import RECORD, RESULTS, every_result

WATCHED = ("acc1", "image_to_text_R@1", "text_to_image_R@1")
"""Metrics of zero-shot classification and retrieval, in any benchmark."""

WEIGHTS = "weights"
"""The experiment of checkpoints that are not runs."""

Asked = tuple[str, str, str, str]
"""Hash of the weights, benchmark, metric, hash of the data."""


@dataclass(frozen=True)
class MetricChange:
    """One metric of one run before and after fine-tuning, as fractions; larger is better."""

    arm: str
    seed: int
    benchmark: str
    metric: str
    before: float
    after: float
    n: int

    @property
    def difference(self) -> float:
        """After minus before."""
        return self.after - self.before


@dataclass(frozen=True)
class Fall:
    """A metric whose mean over an arm's runs fell."""

    arm: str
    benchmark: str
    metric: str
    before: float
    after: float
    runs: int

    def __str__(self) -> str:
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        return (
            f"{self.arm}: {self.benchmark} {self.metric} fell from {100 * self.before:.1f} % to "
            f"{100 * self.after:.1f} % ({100 * (self.after - self.before):+.1f} points, {runs})"
        )


def initial_values(experiment: Path) -> dict[Asked, float]:
    """Return the known results of weights before fine-tuning.

    Args:
        experiment: folder of the experiment's arms; its sibling ``weights`` is searched as well.
    """
    found: dict[Asked, float] = {}
    for file in sorted((experiment.parent / WEIGHTS).glob(f"*/seed=*/{RESULTS}")):
        found |= {(row.weights, *_question(row)): row.value for row in every_result(file)}
    for file in sorted(experiment.glob(f"*/seed=*/{RECORD}")):
        try:
            run = read_run(file.parent)
        except UserError:
            continue  # reported where the run itself is evaluated
        if run.done and run.record.get("steps") == 0 and (file.parent / RESULTS).exists():
            # Such a run may have saved another precision, which has another hash.
            weights = initial_weights(run.record)
            rows = every_result(file.parent / RESULTS)
            found |= {(weights, *_question(row)): row.value for row in rows}
    return found


def initial_weights(record: Mapping[str, object]) -> str:
    """Return the identity of the model a run started from; empty if it is not in its record."""
    identity = record.get("identity")
    if not isinstance(identity, Mapping) or not identity.get("content.weights"):
        return ""
    told = {name: identity.get(f"model.{name}") for name in ENCODER_SETTINGS}
    return model_identity(str(identity["content.weights"]), told)


def _question(row: Result) -> tuple[str, str, str]:
    return row.benchmark, row.metric, row.data


def changes(folder: Path, initial: Mapping[Asked, float]) -> list[MetricChange]:
    """Return every watched metric of a run that is also known for its initial weights.

    Args:
        folder: folder of the run, with its ``run.json`` and ``results.jsonl``.
        initial: results of weights before fine-tuning, from ``initial_values``.
    """
    run = read_run(folder)
    if run.record.get("steps") == 0:
        return []
    weights = initial_weights(run.record)
    return [
        MetricChange(
            row.arm, row.seed, *row.cell, initial[weights, *_question(row)], row.value, row.n
        )
        for row in run.results()
        if row.metric in WATCHED and row.data and (weights, *_question(row)) in initial
    ]


def falls(found: Iterable[MetricChange], threshold: float) -> list[Fall]:
    """Return the metrics whose mean over an arm's runs fell by more than ``threshold``.

    Args:
        found: changes of any number of runs.
        threshold: largest fall that is not reported, as a fraction: 0.02 for two points.
    """
    groups: dict[tuple[str, str, str], list[MetricChange]] = {}
    for change in found:
        groups.setdefault((change.arm, change.benchmark, change.metric), []).append(change)
    means = [
        Fall(*key, fmean(c.before for c in group), fmean(c.after for c in group), len(group))
        for key, group in groups.items()
    ]
    return [fall for fall in means if fall.before - fall.after > threshold]


def alarms(found: Iterable[MetricChange], threshold: float) -> list[str]:
    """Return a sentence for each benchmark and metric that fell by more than ``threshold``.

    Args:
        found: changes of any number of runs.
        threshold: largest fall that is not reported, as a fraction: 0.02 for two points.
    """
    fallen: dict[tuple[str, str], list[Fall]] = {}
    for fall in falls(found, threshold):
        fallen.setdefault((fall.benchmark, fall.metric), []).append(fall)
    points = f"{100 * threshold:g} points"
    return [f"forgetting, more than {points}: {_describe(some)}" for some in fallen.values()]


def _describe(some: Sequence[Fall]) -> str:
    if len(some) == 1:
        return str(some[0])
    arms = [f"{one.arm} from {100 * one.before:.1f} to {100 * one.after:.1f} %" for one in some]
    return f"{some[0].benchmark} {some[0].metric} fell in {len(some)} arms: {', '.join(arms)}"


def sentences(found: Sequence[MetricChange], threshold: float | None) -> list[str]:
    """Return sentences on metrics that fell, or why there are none; empty without a threshold.

    Args:
        found: changes of any number of runs.
        threshold: largest fall that is not reported, as a fraction; ``None`` reports nothing.
    """
    if threshold is None:
        return []
    if not found:
        return [
            "Nothing is known about the weights before fine-tuning: `python evaluate.py "
            "evaluate_initial=true` runs the same benchmarks on them."
        ]
    asked = len({(change.benchmark, change.metric) for change in found})
    none = f"None of {asked} watched metrics fell by more than {100 * threshold:g} points."
    return alarms(found, threshold) or [none]
