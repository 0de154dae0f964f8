"""Asking one checkpoint the benchmarks it has no result for yet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.devices import choose_device
from cfaug.errors import UserError
from cfaug.files import write_json
from cfaug.messages import say
from cfaug.protocols import DualEncoder, Matcher
from cfaug.report.leaks import LEAKS
from cfaug.report.results import RESULTS, Result, answered, append_results, read_record

if TYPE_CHECKING:
    from cfaug.bench.matching import Matching
    from cfaug.data.index import Index
    from cfaug.data.planning.settings import DataSettings
    from cfaug.models.specs import ModelSpec
    from cfaug.protocols import Benchmark
    from cfaug.types import Outcome

GIB = 2**30
FREQUENCY = "label_frequency.json"
"""By classification benchmark: the pairs the run trained on that alter one of its classes."""


@dataclass(frozen=True)
class Tested:
    """One checkpoint to test, where its rows go, and the data it may be asked about."""

    folder: Path
    arm: str
    seed: int
    model: ModelSpec
    data: DataSettings
    experiment: str
    trained: bool = True

    @property
    def run(self) -> str:
        """The name of the run in its rows."""
        return f"{self.experiment}/{self.arm}/seed={self.seed}"


@dataclass(frozen=True)
class Memory:
    """Where embeddings and matching scores are kept, and how many bytes of them; 0 keeps none."""

    folder: Path
    limit: int


def memory(paths_cache: str | Path, gib: float) -> Memory:
    """Read the setting ``feature_cache``.

    Raises:
        UserError: if it is no number of GiB.
    """
    if isinstance(gib, bool) or not isinstance(gib, int | float) or not gib >= 0:
        raise UserError(f"feature_cache={gib} should be a number of GiB, 0 for none")
    return Memory(Path(paths_cache).expanduser() / "features", int(gib * GIB))


def ask(one: Tested, benchmarks: Sequence[Benchmark], device: str, kept: Memory) -> bool:
    """Run the benchmarks that have no result for this model yet, and append their rows.

    A model is its weights and the settings that change its answers, in every row's ``weights``.

    Returns:
        Whether there were any.

    Raises:
        UserError: if the model cannot be loaded or asked.
    """
    for benchmark in benchmarks:
        _say_leaks(one, benchmark)  # whether it was evaluated before or not
    weights = one.model.identity()
    file = one.folder / RESULTS
    known = answered(file)
    asked = {b.name: (b.name, weights, b.data_hash) for b in benchmarks}
    pending = [b for b in benchmarks if asked[b.name] not in known or _lost(one, b, weights)]
    if not pending:
        return False
    model = _Loaded(one.model, device, kept)
    for benchmark in pending:
        if benchmark.needs == "matcher":
            found = _match(one, benchmark, model.matcher, weights)
        else:
            found = benchmark.run(model.encoder)
        if asked[benchmark.name] not in known:
            rows = [_row(one, o, weights, benchmark.data_hash) for o in found]
            together = len({row.metric for row in rows})
            append_results(file, [replace(row, together=together) for row in rows])
        numbers = "  ".join(f"{o.metric} {o.value:.3f}" for o in found)
        say(f"{one.run}  {benchmark.name} (n={found[0].n}): {numbers}", sys.stdout)
    return True


def _lost(one: Tested, benchmark: Benchmark, weights: str) -> bool:
    """Say whether a benchmark keeps scores of pairs, and those of these weights are not there."""
    from cfaug.report.matching_gap import FILE, read_pairs

    if benchmark.needs != "matcher":
        return False
    rows = read_pairs(one.folder / FILE)
    return not any((r["benchmark"], r.get("weights")) == (benchmark.name, weights) for r in rows)


def _say_leaks(one: Tested, benchmark: Benchmark) -> None:
    """Print what the test shares with the run's training, and keep it beside the results."""
    leaks = getattr(benchmark, "leaks", None)
    if leaks is None:
        return
    file = one.folder / LEAKS
    known = read_record(file) if file.exists() else {}
    if not leaks.images:
        if known.pop(benchmark.name, None) is not None:  # left out now
            write_json(file, known)
        return
    say(f"{one.run}  {benchmark.name}: {leaks}; benchmark.without_leaks=true leaves them out")
    found = {
        "images": leaks.images, "equal": leaks.equal, "total": leaks.total,
        "with_coco_id": leaks.checked, "coco_ids": leaks.ids.tolist(),
    }  # fmt: skip
    write_json(file, {**known, benchmark.name: found})


def count_labels(folder: Path, benchmarks: Sequence[Benchmark], pairs: Index, compare: str) -> None:
    """Count the pairs that alter a class of each classification benchmark, beside the results.

    Args:
        folder: of the run.
        benchmarks: what it is asked.
        pairs: its counterfactual source.
        compare: ``words`` or ``lemmas``.

    Raises:
        UserError: for another ``compare``, or ``lemmas`` without a WordNet.
    """
    from cfaug.bench.frequency import CHOICES, altered_subjects, label_frequencies

    if compare not in CHOICES:
        raise UserError(f"label_frequency={compare}: choose {', '.join(CHOICES)} or null")
    found = label_frequencies(pairs, benchmarks, "lemmas" if compare == "lemmas" else "words")
    if not found or not altered_subjects(pairs):
        return
    file = folder / FREQUENCY
    about = {"source": pairs.hash, "compare": compare, "pairs": len(altered_subjects(pairs))}
    known = read_record(file) if file.exists() else {}
    same = all(known.get(name) == value for name, value in about.items())
    content = {**about, "frequency": {**(known["frequency"] if same else {}), **found}}
    if content != known:
        write_json(file, content)


def _row(one: Tested, found: Outcome, weights: str, data: str) -> Result:
    return Result(
        one.run,
        one.arm,
        one.seed,
        found.benchmark,
        found.metric,
        found.value,
        found.n,
        weights,
        data,
    )


class _Loaded:
    """A model as encoder or as matcher, whichever is asked for, loaded then."""

    def __init__(self, model: ModelSpec, device: str, kept: Memory) -> None:
        self._model, self._kept = model, kept
        self._device = device

    @cached_property
    def encoder(self) -> Any:
        from cfaug.bench.cached_model import CachedEncoder

        return self._remembering(DualEncoder, CachedEncoder)

    @cached_property
    def matcher(self) -> Any:
        from cfaug.bench.cached_model import CachedMatcher

        return self._remembering(Matcher, CachedMatcher)

    def _remembering(self, protocol: type, remembering: Callable[..., Any]) -> Any:
        def placed() -> Any:
            device = choose_device(self._device)
            return self._model.load(protocol).to(device)

        if not self._kept.limit:
            return placed()
        settings = f"{self._model.settings_hash()} {self._device}"
        weights = self._model.weights_hash()
        return remembering(placed, weights, settings, self._kept.folder, self._kept.limit)


def _match(one: Tested, benchmark: Any, matcher: Any, weights: str) -> list[Outcome]:
    """Score every pair, keep the scores beside the results, and draw them."""
    from cfaug.report.matching_gap import FILE, write_gaps_page, write_pairs

    asked: Matching = benchmark
    scores = asked.score(matcher)
    about = {
        "run": one.run, "arm": one.arm, "seed": one.seed, "benchmark": asked.name,
        "weights": weights, "kind": scores.kind,
    }  # fmt: skip
    write_pairs(one.folder / FILE, asked.name, [{**about, **row} for row in scores.rows()])
    say(f"wrote {one.folder / FILE} and {write_gaps_page(one.folder, one.arm)}", sys.stdout)
    return asked.outcomes(scores)
