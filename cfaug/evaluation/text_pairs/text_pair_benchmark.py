"""The common base of benchmarks of texts before and after methods changed them."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from cfaug.annotation.record import HumanAnswers
from cfaug.core.errors import UserError
from cfaug.core.types import CLUSTER, ITEM, Better, Outcome
from cfaug.data.sources.lists import LISTS
from cfaug.evaluation.benchmark import SourceBenchmark, fingerprint
from cfaug.evaluation.text_pairs.text_pair_items import CHANGED, KEPT, UNKNOWN
from cfaug.evaluation.text_pairs.text_pairs import (
    Question,
    TextPairs,
    check_labels,
    holds_edited_captions,
    read_right_answers,
    read_text_pairs,
    share_captions,
)

if TYPE_CHECKING:
    from cfaug.core.protocols import Benchmark
    from cfaug.data.index import Index
    from cfaug.evaluation.context import EvaluationContext

METHOD, LABEL_KEPT = "method", "label_kept"
"""Columns of the items by which outcomes are reported."""


@dataclass(frozen=True)
class Metric:
    """The direction and the unit of a mean over items.

    Attributes:
        better: whether higher or lower values are better.
        unit: the unit, as for ``Outcome``: ``fraction``, ``words``, ``cosine``, ...
    """

    better: Better = "higher"
    unit: str = "fraction"


@dataclass
class TextPairBenchmark(SourceBenchmark):
    """A benchmark of texts before and after methods changed them, on the same photos.

    Args:
        data: a folder of sets of two texts on one photo; several, ``{METHOD: FOLDER}`` or a list,
            are compared on the captions that all of them have.
        name: the name in tables, ending in the kind; ``None`` takes the folder's name, or the kind
            alone for several folders.
        without_leaks: whether to leave out sets of photos that the run was trained on.
        answers: people's answers about the texts (``labels.jsonl`` of ``cfaug annotate read``): a
            file, or ``{METHOD: FILE}`` for several folders; they take precedence over an oracle's.
    """

    data: str | Sequence[str] | Mapping[str, str] | None = None  # type: ignore[assignment]
    answers: str | Mapping[str, str] | None = None
    _pairs: tuple[TextPairs, ...] = field(default=(), init=False, repr=False)
    _said: Mapping[str, HumanAnswers] = field(default_factory=dict, init=False, repr=False)

    whole_sets: ClassVar[bool] = True
    question: ClassVar[Question] = "truth"

    def sources(self) -> list[tuple[str, str]]:
        """Return (method, folder) of every source; a method may be empty."""
        given = self.data
        if isinstance(given, Mapping):
            sources = list(given.items())
        elif isinstance(given, str | Path) or given is None:
            sources = [("", self.source())]
        else:
            sources = [("", folder) for folder in given]
        if not sources or not all(isinstance(folder, str) and folder for _, folder in sources):
            raise UserError(
                f"benchmark.data={given} is invalid: give FOLDER, [FOLDER, ...] or "
                "{METHOD: FOLDER, ...}"
            )
        return [(str(method), folder) for method, folder in sources]

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        sources = self.sources()
        opened = copy.copy(self)
        path = Path(sources[0][1])
        stem = path.stem if path.suffix.lower() in LISTS else path.name
        stem = stem.replace(":", "_") if len(sources) == 1 else ""
        stem = (self.name or stem).removesuffix(f"_{self.kind}").removesuffix(self.kind)
        opened.name = f"{stem}_{self.kind}" if stem else self.kind
        pairs = [opened.read(context, *source) for source in sources]
        return cast("list[Benchmark]", [opened.use(*pairs)])

    def read(self, context: EvaluationContext, method: str, source: str) -> TextPairs:
        """Return the texts of one folder; for the first folder, find its leaks as well.

        Args:
            method: the name of the method that changed the texts; may be empty.
        """
        folder = Path(source).expanduser()
        if folder.is_dir() and holds_edited_captions(folder):
            raise UserError(
                f"{source} holds captions that were only edited, without photos: give the same "
                "generate.py command without stage=captions, or ask benchmark=text_overlap"
            )
        index = context.open(source)
        rows, leaks = context.apart_from_training(
            source, without_leaks=self.without_leaks, whole_sets=True
        )
        self.leaks = leaks if self.leaks is None else self.leaks
        return self.read_pairs(method, index, rows)

    def read_pairs(self, method: str, index: Index, rows: np.ndarray | None) -> TextPairs:
        """Return the texts of an open source.

        Args:
            method: the name of the method that changed the texts; may be empty.
            rows: the rows to use; ``None`` for all.
        """
        return read_text_pairs(method, index, rows)

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> object:
        return self.use(self.read_pairs("", index, rows))

    def use(self, *pairs: TextPairs) -> TextPairBenchmark:
        """Use the texts of each method, and return this benchmark."""
        self._pairs = tuple(share_captions(pairs))
        methods = [pair.method for pair in pairs]
        files: Mapping[str, str] = {}
        if isinstance(self.answers, str):
            if len(methods) > 1:
                raise UserError(
                    f"benchmark.answers={self.answers} is one file for {len(methods)} methods: "
                    f"give {{METHOD: FILE}}, with {', '.join(methods)}"
                )
            files = {methods[0]: self.answers}
        elif self.answers is not None:
            files = self.answers
        unknown = [name for name in files if name not in methods]
        if unknown:
            raise UserError(
                f"benchmark.answers: {unknown[0]!r} is not a method: choose {', '.join(methods)}"
            )
        self._said = {name: read_right_answers(file, self.question) for name, file in files.items()}
        for pair in pairs:  # answers may be about sets that other folders lack
            if pair.method in self._said:
                names = [f"{key}_{member}" for key in pair.keys for member in (0, 1)]
                self._said[pair.method].check_images(names, pair.source)
        return self

    @cached_property
    def label_checks(self) -> dict[str, list[str]]:
        """Whether the right answer was preserved, by method: see ``check_labels``."""
        return {
            pair.method: check_labels(pair, self.question, self._said.get(pair.method))
            for pair in self._pairs
        }

    @abstractmethod
    def identifying_settings(self) -> list[Any]:
        """Return the settings that change the test or its metrics, for ``data_hash``."""

    @property
    def data_hash(self) -> str:
        """A hash of the data and settings, so that a result is not taken for another test's."""
        hashes = [pair.hash for pair in self._pairs]
        methods = [pair.method for pair in self._pairs]
        settings = map(str, self.identifying_settings())
        return fingerprint(*hashes, *methods, *self.label_checks.values(), *settings)

    def pair_columns(self) -> dict[str, Any]:
        """Return the columns that name the items: one row per method and set."""
        merged: dict[str, list[Any]] = {}
        for pair in self._pairs:
            columns = {
                ITEM: [f"{pair.method}/{key}" for key in pair.keys],
                CLUSTER: pair.clusters,
                METHOD: [pair.method] * len(pair),
                "key": pair.keys,
                "source": [pair.source] * len(pair),
                "kind": [kind or None for kind in pair.kinds],
                "label": [label or None for label in pair.labels],
                "text_before": pair.originals,
                "text": pair.changed,
                LABEL_KEPT: self.label_checks[pair.method],
            }
            for name, values in columns.items():
                merged.setdefault(name, []).extend(values)
        return merged

    def means(self, items: Mapping[str, Any], metrics: Mapping[str, Metric]) -> list[Outcome]:
        """Return the mean of each metric by method, for all items and for those with kept answers.

        The shares of items with a kept, changed or unknown right answer follow. Means over the kept
        items are omitted if answers are known to be kept only for equal texts.

        Args:
            metrics: {column: its direction and unit}.
        """
        methods, kept = (np.asarray(items[name], object) for name in (METHOD, LABEL_KEPT))
        outcomes = []
        for method in dict.fromkeys(methods.tolist()):
            rows = methods == method
            outcomes += self._means(items, metrics, rows, {METHOD: method})
            known = bool((kept[rows] != UNKNOWN)[np.asarray(items["changed"])[rows] > 0].any())
            if known:
                by = {METHOD: method, LABEL_KEPT: KEPT}
                outcomes += self._means(items, metrics, rows & (kept == KEPT), by)
            for label in (KEPT, CHANGED, UNKNOWN):
                share, by = float((kept[rows] == label).mean()), {METHOD: method}
                name, count = f"labels_{label}", int(rows.sum())
                better: Better = "higher" if label == KEPT else "lower"
                outcomes.append(Outcome(str(self.name), name, share, count, better, by=by))
        return outcomes

    def spreads(self, items: Mapping[str, Any]) -> list[Outcome]:
        """Return the standard deviation of inserted words by method, over all texts (Table 4)."""
        methods, counts = np.asarray(items[METHOD], object), np.asarray(items["inserted_words"])
        outcomes = []
        for method in dict.fromkeys(methods.tolist()):
            inserted = counts[methods == method]
            outcomes.append(
                Outcome(
                    str(self.name), "inserted_words_sd", float(inserted.std()), len(inserted),
                    unit="words", by={METHOD: method},
                )
            )  # fmt: skip
        return outcomes

    def _means(
        self,
        items: Mapping[str, Any],
        metrics: Mapping[str, Metric],
        rows: np.ndarray,
        by: Mapping[str, str],
    ) -> list[Outcome]:
        outcomes = []
        for name, metric in metrics.items():
            if name not in items:
                continue
            values = np.asarray(items[name], np.float64)[rows]
            values = values[~np.isnan(values)]
            if len(values):
                mean, count = float(values.mean()), len(values)
                outcome = Outcome(
                    str(self.name), name, mean, count, metric.better, metric.unit, by=by
                )
                outcomes.append(outcome)
        return outcomes
