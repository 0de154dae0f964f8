"""The top level of ``conf/evaluate.yaml``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import MinLen

from cfaug.core.devices import check_device
from cfaug.core.validation import Means, RunSeed, Share, check_fields
from cfaug.models.interpolation import Factor
from cfaug.run.evaluate_checkpoint import CacheSize, EvaluationOptions, KeepItems, memory
from cfaug.run.joined_experiments import join_experiments
from cfaug.run.names import runs_folder
from cfaug.run.setting_types import Node, RunPaths
from cfaug.run.threads import Threads


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings:
    """The settings of an evaluation, which ``conf/evaluate.yaml`` describes.

    Args:
        name: an experiment, or several to compare in one table; ``None`` takes all.
        arm: the name of one arm; ``None`` takes all.
        runs: folders of runs, in place of ``name`` and ``arm``.
        weights: a checkpoint to evaluate in place of runs.
        seed: the seed of the world on which ``weights`` are tested.
        benchmark: node of a suite or a benchmark.
        baseline: the arm, or arms, to test against; ``None`` takes those of ``comparison``. With
            ``weights``, one or several checkpoints that were evaluated before.
        model: node of the model that loads ``weights``; chosen on the command line without runs or
            weights, this model is itself evaluated.
        data: node with the world that ``weights`` are tested on.
        device: the device of the model: ``auto``, ``cpu``, ``cuda``, ``cuda:N``, ``mps``, ``xpu``.
        feature_cache: GiB of embeddings and scores to cache; 0 caches none.
        label_frequency: the comparison of altered subjects with class names, ``words`` or
            ``lemmas``; ``None`` counts no frequencies.
        evaluate_initial: evaluate the initial weights of runs as well.
        forgetting_threshold: smallest reported decrease against the initial weights, a share;
            ``None`` reports none.
        tabulate: ``asked`` tables the benchmarks of this command, ``all`` those with a result.
        paths: folders of runs, shards and indexes.
        comparison: node with the arms' baselines and labels; ``None`` for the defaults.
        table: node of a paper's table, made in place of evaluating.
        annotate: node of the questions to people, in place of evaluating.
        threads: number of torch's threads; ``None`` uses all cores.
        compare: files of items that are compared item by item, in place of evaluating.
        compare_columns: node that assigns the columns of these files.
        items: ``new`` keeps the items of new evaluations; ``all`` also repeats evaluations from
            before items were kept.
        wise_ft: mixing factors of a run's initial and final weights, each evaluated in place of
            the run itself; ``None`` evaluates the run.
        dry_run: report problems in the benchmark's data, and stop.
        overrides: the words of the command line.
    """

    name: str | Sequence[str] | None
    arm: str | None
    runs: Sequence[str] | None
    weights: str | None
    seed: RunSeed
    benchmark: Node
    baseline: str | Sequence[str] | None
    model: Node
    data: Node
    device: str
    feature_cache: CacheSize
    label_frequency: str | None
    evaluate_initial: bool
    forgetting_threshold: (
        Annotated[Share, Means("such as 0.02 for two percentage points")]
        | Annotated[None, Means("no warning")]
    )
    tabulate: Literal["asked", "all"]
    paths: RunPaths
    comparison: Node | None = None
    table: Node | None = None
    annotate: Node | None = None
    threads: Threads = None
    compare: Sequence[str] | None = None
    compare_columns: Node | None = None
    items: KeepItems = "new"
    wise_ft: Factor | Annotated[Sequence[Factor], MinLen(1)] | None = None
    dry_run: bool = False
    overrides: Sequence[str] = ()

    @property
    def root(self) -> Path:
        """The folder of all runs."""
        return runs_folder(self.paths["runs"])

    @property
    def experiment(self) -> str | None:
        """The experiment, if one is named; several are joined by links into one.

        Raises:
            UserError: if they cannot be joined.
        """
        if self.name is None or isinstance(self.name, str):
            return self.name
        return join_experiments(self.root, self.name)

    @property
    def asks_model(self) -> bool:
        """Whether the model's own weights are evaluated: the command line names no checkpoint."""
        return self._chooses_model and self._names_nothing

    @property
    def asks_nothing(self) -> bool:
        """Whether the command line names no model, checkpoint or run at all."""
        return not self._chooses_model and self._names_nothing

    @property
    def _chooses_model(self) -> bool:
        return any(word.lstrip("+").startswith("model=") for word in self.overrides)

    @property
    def _names_nothing(self) -> bool:
        return all(one is None for one in (self.weights, self.name, self.arm, self.runs))

    @property
    def asking(self) -> EvaluationOptions:
        """How checkpoints are evaluated.

        Raises:
            UserError: if the cache is not a number of GiB.
        """
        return EvaluationOptions(
            self.device, memory(self.paths["cache"], self.feature_cache), self.items
        )

    def check(self) -> None:
        """Refuse invalid settings before anything is evaluated.

        Raises:
            UserError: naming the setting and the choices.
        """
        check_fields(self)
        check_device(self.device)
        if self.wise_ft is not None:
            from cfaug.run.wise_ft import check_factors

            check_factors(self.wise_ft)
