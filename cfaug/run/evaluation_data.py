"""The data on which a run or checkpoint may be tested."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cfaug.core.errors import UserError
from cfaug.core.world_source import is_questions, is_world, world_part
from cfaug.run.evaluate_checkpoint import EvaluationTarget
from cfaug.run.readings import say_source
from cfaug.run.sources import label_file, open_data, open_questions, open_source, part_folder
from cfaug.run.tested import describe_learning

if TYPE_CHECKING:
    import numpy as np

    from cfaug.core.question_sets import AskedImage
    from cfaug.core.types import CounterfactualSet
    from cfaug.data.index import Index
    from cfaug.data.mixture.records import Mixture
    from cfaug.data.mixture.settings import DataSettings, QuestionData
    from cfaug.data.sources.row import Reader
    from cfaug.evaluation.context import EvaluationContext


class DataOpener:
    """Opens each source once, however many runs share it."""

    def __init__(
        self,
        shards: Path,
        cache: Path,
        image_roots: Sequence[Path] = (),
        features: Path | None = None,
    ) -> None:
        self.shards, self.cache, self.image_roots = shards, cache, image_roots
        self.features = features
        self._open: dict[tuple[Any, ...], Index] = {}
        self._questions: dict[tuple[Any, ...], Sequence[AskedImage]] = {}

    def open(self, name: str, data: DataSettings) -> Index:
        """Return the index of a source that a run's settings name."""
        world = (data.world, data.seed) if is_world(name) else None
        if (name, world) not in self._open:
            self._open[name, world] = open_source(
                name, data.world, data.seed, self.shards, self.cache, self.image_roots
            )
        return self._open[name, world]

    def open_test(self, name: str, data: DataSettings) -> Index:
        """Open a benchmark's data, and print what was recognised."""
        index = self.open(name, data)
        say_source("test", name, index)
        return index

    def read_test(self, reader: Reader, folder: str) -> Index:
        """Open a folder with a benchmark's own reader, and print what was recognised."""
        from cfaug.data.index import open_index
        from cfaug.data.sources.compositional import ItemList

        if isinstance(reader, ItemList):
            reader = reader.with_roots(self.image_roots)
            key = (folder, reader.kind, reader.image_roots, reader.without_missing)
            if key not in self._open:
                self._open[key] = open_index(folder, self.cache, reader=reader)
            index = self._open[key]
        else:
            index = open_index(folder, self.cache, reader=reader)
        say_source("test", folder, index)
        return index

    def questions(self, name: str, data: DataSettings) -> Sequence[AskedImage]:
        """Return a set of questions about images, read once."""
        world = (data.world, data.seed) if is_questions(name) else None
        if (name, world) not in self._questions:
            self._questions[name, world] = open_questions(
                name, data.world, data.seed, self.image_roots
            )
        return self._questions[name, world]

    def labels(self, name: str, data: DataSettings) -> Path:
        """Return a file of human labels, or the oracle's answers for a part of the world."""
        return label_file(name, data.world, data.seed, self.shards)

    def samples(self, data: DataSettings, count: int) -> list[CounterfactualSet]:
        """Return the first sets of a run's counterfactual source, if that is shards of ours."""
        from cfaug.data.shards.shards import CARD, read_sets

        name = data.read_pairs
        if name is None:
            return []
        folder = Path(name)
        if is_world(name):
            folder = part_folder(data.world, data.seed, world_part(name), self.shards)
        return list(islice(read_sets(folder), count)) if (folder / CARD).exists() else []


def describe_data(one: EvaluationTarget, opener: DataOpener) -> EvaluationContext:
    """Return the context of a run or checkpoint for benchmarks.

    Args:
        one: the run or checkpoint.
        opener: the opener of its sources.
    """
    from cfaug.data.mixture.settings import QuestionData
    from cfaug.evaluation.context import EvaluationContext

    if isinstance(one.data, QuestionData):
        return _describe_questions(one, one.data, opener)
    data = one.data
    world, learnt = describe_learning(data)
    return EvaluationContext(
        open=lambda name: opener.open_test(name, data),
        read=opener.read_test,
        has_world=world,
        held_out=lambda: _held_out(data, opener),
        labels=lambda name: opener.labels(name, data),
        training=lambda: _training(data, opener) if one.trained else (),
        trained_on=_trained_on(data) if one.trained else frozenset(),
        counterfactual_holdout=data.counterfactual_holdout,
        validation=lambda: _validation(data, opener),
        withheld=lambda: _withheld(data, opener),
        has_hypotheses=learnt == "hypotheses",
        questions=lambda name: opener.questions(name, data),
        features=opener.features,
    )


def _describe_questions(
    one: EvaluationTarget, data: QuestionData, opener: DataOpener
) -> EvaluationContext:
    """Return the context of a run that learnt from questions about images.

    Such a run trained on no images with captions, and held none out.
    """
    from cfaug.data.mixture.settings import DataSettings
    from cfaug.run.question_plan import trained_images

    none = DataSettings(None, None, seed=data.seed, world=data.world)
    found = describe_data(replace(one, data=none), opener)

    def ask(name: str) -> Sequence[AskedImage]:
        return opener.questions(name, data)

    return replace(
        found,
        has_world=describe_learning(data)[0],
        has_questions=True,
        trained_questions=lambda: trained_images(data, ask) if one.trained else (),
    )


def _trained_on(data: DataSettings) -> frozenset[str]:
    """Return the sources from which the mixture may have drawn rows."""
    names = (data.real, data.counterfactual)
    # At ratio 1 the real source is read only for the test set that it holds out.
    taken = (data.needed[0] and data.cf_ratio != 1, data.needed[1])
    return frozenset(
        name for name, read in zip(names, taken, strict=True) if read and name is not None
    )


def prepare_worlds(tested: Sequence[EvaluationTarget], suite: Any, opener: DataOpener) -> None:
    """Draw and index the tests of several worlds on all cores, before they are used."""
    worlds = {(one.data.world, one.data.seed): one for one in tested if one.data.world}
    if len(worlds) > 1:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        # Forked before torch is imported, so a process costs next to nothing.
        with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
            list(pool.map(partial(_prepare, suite, opener), worlds.values()))


def _prepare(suite: Any, opener: DataOpener, one: EvaluationTarget) -> None:
    with suppress(UserError):  # raised again, with the run's name, when the run is evaluated
        suite.open(describe_data(one, opener))


def _held_out(data: DataSettings, opener: DataOpener) -> tuple[Index, np.ndarray] | None:
    """Return the test set that the experiment held out, without planning an arm."""
    from cfaug.data.mixture.holdout import hold_out

    if not data.holdout:
        return None
    name = getattr(data, data.held_out_role)
    if name is None:
        raise UserError(
            f"data.holdout={data.holdout} is a share of data.real: give data.real=FOLDER, or a "
            "test set with benchmark=retrieval benchmark.data=FOLDER"
        )
    index = opener.open(name, data)
    return index, hold_out(index, data.holdout).rows


def _withheld(data: DataSettings, opener: DataOpener) -> np.ndarray | None:
    """Return the groups that no arm's sets show, from settings alone."""
    from cfaug.data.mixture.holdout import withhold

    if not data.counterfactual_holdout or data.counterfactual is None:
        return None
    index = opener.open(data.counterfactual, data)
    return withhold(index, data.counterfactual_holdout).groups


def _validation(data: DataSettings, opener: DataOpener) -> tuple[Index, np.ndarray]:
    """Return the rows that the run validated on: real ones, if it had any."""
    from cfaug.data.mixture.records import COUNTERFACTUAL, REAL

    mixture = _mixture(data, opener)
    source = REAL if mixture.counts["real"] else COUNTERFACTUAL
    index = cast("Index", mixture.sources[source])
    return index, mixture.validation[mixture.validation[:, 0] == source, 1]


def _training(data: DataSettings, opener: DataOpener) -> list[tuple[Index, np.ndarray]]:
    """Return the rows of each source that the run was trained on."""
    mixture = _mixture(data, opener)
    return [
        (cast("Index", index), mixture.train[mixture.train[:, 0] == source, 1])
        for source, index in enumerate(mixture.sources)
        if index is not None
    ]


def _mixture(data: DataSettings, opener: DataOpener) -> Mixture:
    """Plan the run's mixture again."""
    from cfaug.data.mixture.mixture import mix

    return mix(data, open_data(data, lambda name: opener.open(name, data), opener.shards))
