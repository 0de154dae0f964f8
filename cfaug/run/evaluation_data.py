"""The data on which a run or checkpoint may be tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cfaug.core.errors import UserError, say
from cfaug.core.files import read_yaml
from cfaug.core.processes import end_with_parent
from cfaug.core.safety.safe_loading import read_json
from cfaug.core.stores import is_store, mirror_folder
from cfaug.core.validation import write_value
from cfaug.core.weights import resolve
from cfaug.core.worlds import is_questions, is_world, worlds
from cfaug.data.mixture.settings import data_seed
from cfaug.data.sources.fields import reading_by, refuse_unused
from cfaug.data.sources.row import Reader
from cfaug.evaluation.benchmark import LeakAware
from cfaug.models.specs import HFClip, NoModelSpec
from cfaug.planning.build import build, build_untrusted
from cfaug.planning.sources import (
    label_file,
    open_data,
    open_questions,
    open_source,
    part_folder,
    say_source,
)
from cfaug.report.records import read_config, setting_node
from cfaug.report.results import WEIGHTS
from cfaug.run.evaluate_checkpoint import EvaluationTarget
from cfaug.run.folder_names import clean_name
from cfaug.settings.arguments import key_of
from cfaug.settings.settings_files import find_settings, settings_folders

if TYPE_CHECKING:
    import numpy as np

    from cfaug.core.types import CounterfactualSet
    from cfaug.data.index import Index
    from cfaug.data.index.reading import ScanReport
    from cfaug.data.mixture.near_duplicates import NearRule
    from cfaug.data.mixture.records import Mixture
    from cfaug.data.mixture.settings import DataSettings
    from cfaug.data.questions import QuestionImage
    from cfaug.data.sources.fields import Fields
    from cfaug.evaluation.context import EvaluationContext
    from cfaug.evaluation.edit_masks import EditOracle


class DataOpener:
    """Opens each source once, however many runs share it.

    Args:
        fields: the names of columns of what a benchmark names, ``data.fields`` of the command; a
            run's own sources are read by its own.
        reader: the reader of what a benchmark names, ``data.reader`` of the command.
        near: the rule about test images that nearly equal training images, by the command's
            ``data.near_duplicates``; ``None`` does not look for them.
    """

    def __init__(
        self,
        shards: Path,
        cache: Path,
        image_roots: Sequence[Path] = (),
        features: Path | None = None,
        fields: Fields | None = None,
        reader: Reader | None = None,
        near: NearRule | None = None,
    ) -> None:
        self.near = near
        self.shards, self.cache, self.image_roots = shards, cache, image_roots
        self.features, self.names = features, (fields, reader)
        self._read: dict[str, ScanReport | None] = {}
        self._open: dict[tuple[Any, ...], Index] = {}
        self._questions: dict[tuple[Any, ...], Sequence[QuestionImage]] = {}

    def open(self, name: str, data: DataSettings) -> Index:
        """Return the index of a source that a run's settings name."""
        world = (data.world, data.seed) if is_world(name) else None
        of_run = name in (data.real, data.counterfactual, data.control_source)
        names = (data.fields, data.reader) if of_run else self.names
        key = (name, world, repr(names))
        if key not in self._open:
            with reading_by(*names):
                self._open[key] = open_source(
                    name, data.world, data.seed, self.shards, self.cache, self.image_roots
                )
        if not of_run or repr(names) == repr(self.names):
            self._read[name] = self._open[key].reading
        return self._open[key]

    def check_names(self) -> None:
        """Refuse ``data.fields`` and ``data.reader`` if no source that was opened needs them."""
        refuse_unused(*self.names, self._read)

    def check_near(self, benchmarks: Sequence[object]) -> None:
        """Refuse ``data.near_duplicates`` if no benchmark compares its images with training."""
        leaks = [benchmark.leaks for benchmark in benchmarks if isinstance(benchmark, LeakAware)]
        if self.near is not None and all(some is None or some.near is None for some in leaks):
            raise UserError(
                f"data.near_duplicates={self.near.action} would have no effect: no benchmark of "
                "this command compares its images with those that the run was trained on; leave "
                "it out"
            )

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
                with reading_by(self.names[0]):
                    self._open[key] = open_index(folder, self.cache, reader.image_roots, reader)
            index = self._open[key]
        else:
            with reading_by(self.names[0]):
                index = open_index(folder, self.cache, self.image_roots, reader)
        self._read[folder] = index.reading
        say_source("test", folder, index)
        return index

    def questions(self, name: str, data: DataSettings) -> Sequence[QuestionImage]:
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
        """Return the first sets of a run's counterfactual source, with two members or more each.

        They are for people to look at: a source that is no longer there has none.
        """
        from cfaug.data.shards.shards import CARD, read_sets

        name = data.read_pairs
        if name is None:
            return []
        folder = mirror_folder(name, self.cache, "read") if is_store(name) else Path(name)
        if is_world(name):
            folder = part_folder(name, data.world, data.seed, self.shards)
        if (folder / CARD).exists():  # shards of ours, which know what was edited
            return list(islice(read_sets(folder), count))
        try:
            return list(islice(read_listed(self.open(name, data)), count))
        except UserError:
            return []


def read_listed(index: Index) -> Iterator[CounterfactualSet]:
    """Yield the sets of an index that have two rows or more, each row a member of its set."""
    import numpy as np

    from cfaug.core.types import CounterfactualSet, Member

    starts = np.flatnonzero(np.diff(index.sets, prepend=-1))
    for first, end in pairwise([*starts.tolist(), len(index)]):
        rows = range(first, end)
        if len(rows) < 2:
            continue
        names = {row: str(index.images[row]) for row in rows}
        members = tuple(
            Member(index.text(row), names[row], index.key(row), label=index.label(row))
            for row in rows
        )
        images = {name: index.read_image(row) for row, name in names.items()}
        key = index.key(first).rpartition("_")[0]
        yield CounterfactualSet(key, index.group_name(first), members, images)


@dataclass(frozen=True)
class UnnamedReader(Reader):
    """A reader of somebody's own that a run names, and this command does not: it is not run."""

    node: Mapping[str, Any]

    def reads(self, path: Path) -> bool:
        """Refuse a source that this reader may have read."""
        raise UserError(
            f"{path} was read by a class that the run names and this command does not: add "
            f"'data.reader={write_value(self.node)}', and --config-dir with the folder of its "
            "module, if you trust it"
        )


def build_run_data(
    config: Mapping[str, Any], folder: Path, reader: Mapping[str, Any] | None = None
) -> Any:
    """Return the settings of a run's data; its reader is used only if the command names it, too.

    Args:
        config: the run's settings.
        reader: the command's node ``data.reader``.
    """
    node = setting_node(config, "data", folder)
    named = node.get("reader")
    data = build_untrusted({name: value for name, value in node.items() if name != "reader"})
    if not (isinstance(named, Mapping) and hasattr(data, "reader")):
        return data
    return replace(data, reader=build(named) if named == reader else UnnamedReader(named))


def describe_data(target: EvaluationTarget, opener: DataOpener) -> EvaluationContext:
    """Return the context of a run or checkpoint for benchmarks.

    A run that learnt from questions trained on no images with captions, and held none out.
    """
    from cfaug.data.mixture.settings import DataSettings, QuestionData
    from cfaug.evaluation.context import EvaluationContext

    data = target.data
    question_data = data if isinstance(data, QuestionData) else None
    world, learnt = data.on_world, data.learnt
    if question_data is not None:
        data = DataSettings(None, None, seed=question_data.seed, world=question_data.world)
    trained_on = set[str]()
    if target.trained:
        # At ratio 1 the real source is read only for the test set that it holds out.
        taken = (data.needed[0] and data.cf_ratio != 1, data.needed[1])
        names = zip((data.real, data.counterfactual), taken, strict=True)
        trained_on = {name for name, read in names if read and name is not None}

    def open_one(name: str) -> Index:
        return opener.open(name, data)

    @cache
    def mixture() -> Mixture:
        """Plan the run's mixture again."""
        from cfaug.data.mixture.mixture import mix

        sources = open_data(data, open_one, opener.shards)
        return mix(data, sources)

    def read_set(name: str) -> Sequence[QuestionImage]:
        return opener.questions(name, data)

    def trained_questions() -> Sequence[QuestionImage]:
        from cfaug.planning.mixture_plan import trained_images

        if question_data is None or not target.trained:
            return ()
        return trained_images(question_data, read_set)

    return EvaluationContext(
        open=lambda name: opener.open_test(name, data),
        read=opener.read_test,
        has_world=world,
        held_out=lambda: _held_out(data, open_one),
        labels=lambda name: opener.labels(name, data),
        training=lambda: _training(mixture()) if target.trained else (),
        trained_on=frozenset(trained_on),
        counterfactual_holdout=data.counterfactual_holdout,
        validation=lambda: _validation(mixture()),
        withheld=lambda: _withheld(data, open_one),
        has_hypotheses=learnt == "hypotheses",
        has_questions=question_data is not None,
        has_labels=learnt == "labels",
        questions=read_set,
        trained_questions=trained_questions,
        features=opener.features,
        oracle=_edit_oracle,
        near=opener.near if target.trained else None,
    )


def open_training(
    target: EvaluationTarget, context: EvaluationContext, opener: DataOpener, source: str | None
) -> Sequence[tuple[Index, np.ndarray]]:
    """Return the examples that a model was trained on, as indices with rows; () if unknown.

    Args:
        source: the training data of a checkpoint; of a finished run they are known.
    """
    if source is not None:
        import numpy as np

        index = opener.open(source, target.data)
        return [(index, np.arange(len(index)))]
    if context.has_questions:
        return ()
    try:
        return context.training()
    except UserError as error:  # data that are gone since the run
        say(f"note: {target.run} has failures without causes, since its training is gone: {error}")
        return ()


def _edit_oracle() -> EditOracle:
    oracles = (world.make_edit_oracle() for world in worlds())
    oracle: EditOracle | None = next((oracle for oracle in oracles if oracle is not None), None)
    if oracle is None:
        raise UserError("no world that is installed has an oracle of edits: name a folder of masks")
    return oracle


def prepare_worlds(tested: Sequence[EvaluationTarget], suite: Any, opener: DataOpener) -> None:
    """Draw and index the tests of several worlds on all cores, before they are used."""
    worlds = {
        (target.data.world, target.data.seed): target for target in tested if target.data.world
    }
    if len(worlds) > 1:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        # Forked before torch is imported, so a process costs next to nothing.
        fork = get_context("fork")
        with ProcessPoolExecutor(mp_context=fork, initializer=end_with_parent) as pool:
            list(pool.map(partial(_prepare, suite, opener), worlds.values()))


def _prepare(suite: Any, opener: DataOpener, target: EvaluationTarget) -> None:
    with suppress(UserError):  # raised again, with the run's name, when the run is evaluated
        suite.open(describe_data(target, opener))


def _held_out(
    data: DataSettings, open_one: Callable[[str], Index]
) -> tuple[Index, np.ndarray] | None:
    """Return the test set that the experiment held out, without planning an arm."""
    from cfaug.data.mixture.leakage import hold_out

    if not data.holdout:
        return None
    name = getattr(data, data.held_out_role)
    if name is None:
        raise UserError(
            f"data.holdout={data.holdout} is a share of data.real: give data.real=FOLDER, or a "
            "test set with benchmark=retrieval benchmark.data=FOLDER"
        )
    index = open_one(name)
    return index, hold_out(index, data.holdout).rows


def _withheld(data: DataSettings, open_one: Callable[[str], Index]) -> np.ndarray | None:
    """Return the groups that no arm's sets show, from settings alone."""
    from cfaug.data.mixture.leakage import withhold

    if not data.counterfactual_holdout or data.counterfactual is None:
        return None
    index = open_one(data.counterfactual)
    return withhold(index, data.counterfactual_holdout).groups


def _validation(mixture: Mixture) -> tuple[Index, np.ndarray]:
    """Return the rows that the run validated on: real ones, if it had any."""
    from cfaug.data.mixture.records import COUNTERFACTUAL, REAL

    source = REAL if mixture.counts["real"] else COUNTERFACTUAL
    index = cast("Index", mixture.sources[source])
    return index, mixture.validation[mixture.validation[:, 0] == source, 1]


def _training(mixture: Mixture) -> list[tuple[Index, np.ndarray]]:
    """Return the rows of each source that the run was trained on."""
    return [
        (index, mixture.train[mixture.train[:, 0] == source, 1])
        for source, index in enumerate(mixture.sources)
        if index is not None
    ]


# Checkpoints that are not runs, from ``weights=``, ``model=`` and ``evaluate_initial=true``.
#
# Rows go to ``<runs>/weights/<checkpoint>/seed=<seed>/``. Settings of the embedded world other than
# the defaults are part of the name, ``zoo-clip-0,world.style=drawing``, so results of two worlds
# never share a folder. Different folders of real data under the name of one benchmark are
# distinguished by the hash of the data in every row.


def checkpoint(
    weights: str | None, model: Mapping[str, Any], data: Mapping[str, Any], seed: int, root: Path
) -> EvaluationTarget:
    """Return a checkpoint to be tested on the data of a node.

    Args:
        weights: the weights of the model if they are typed; ``None`` if its file names them.
        seed: the seed of the world, if ``data`` has none.
    """
    spec = build(model)
    name = _own_name(spec) if weights is None else weights
    return _build_untrained(name, spec, build(data).with_seed(seed), seed, root)


def refuse_contradictions(model: Mapping[str, Any], words: Sequence[str]) -> None:
    """Refuse a ``model=`` whose file names weights of another type than those that are typed."""
    spec = build(model)
    named = next((word for word in words if key_of(word) == "model"), None)
    # The other classes have to be named to load weights of any kind that they read; this one loads
    # every dual encoder of transformers, and is the usual one.
    if named is None or type(spec) is not HFClip:
        return
    file = find_settings(settings_folders(), named.lstrip("+").replace("=", "/", 1))
    usual = (read_yaml(file) or {}).get("weights") if file is not None else None
    if not isinstance(usual, str) or "${" in usual:
        return
    typed, there = _kind_of(spec.at(usual)), _kind_of(spec)
    if None not in (typed, there) and typed != there:
        raise UserError(
            f"{named} names a model of the type {typed}, and weights={spec.weights} is of the type "
            f"{there}: leave one of them out"
        )


def _kind_of(spec: HFClip) -> str | None:
    """Return the type of a checkpoint by its ``config.json``; ``None`` if it is not known here."""
    try:
        file = resolve(spec.weights, spec.revision, fetch=False) / "config.json"
        content = read_json(file) if file.is_file() else None
    except UserError:
        return None
    kind = content.get("model_type") if isinstance(content, dict) else None
    return kind if isinstance(kind, str) else None


def no_model(data: Mapping[str, Any], seed: int, root: Path) -> EvaluationTarget:
    """Return the placeholder for a checkpoint in benchmarks that need no model.

    Args:
        seed: the seed of the world, if ``data`` has none.
    """
    spec = NoModelSpec()
    return _build_untrained(spec.weights, spec, build(data).with_seed(seed), seed, root)


def initial_checkpoints(finished: Sequence[EvaluationTarget], root: Path) -> list[EvaluationTarget]:
    """Return the initial weights of runs, once for each checkpoint, seed and data."""
    initial: dict[tuple[Path, str], EvaluationTarget] = {}
    for target in finished:
        node = setting_node(read_config(target.folder), "model", target.folder)
        model = build_untrusted(node)
        name = _own_name(model)
        # A run may be somebody else's: only local weights are used, nothing is downloaded.
        tested = _build_untrained(name, model.on_this_machine(), target.data, target.seed, root)
        # Arms share a world but not the rows that they held out of their training data.
        initial.setdefault((tested.folder, repr(target.data)), tested)
    return list(initial.values())


def _own_name(model: Any) -> str:
    """Return the name of a model's own weights."""
    names = ("library", "architecture", "weights")
    words = [getattr(model, name, None) for name in names]
    return "-".join(str(word) for word in words if word)


def _build_untrained(
    name: str, model: Any, data: DataSettings, seed: int, root: Path
) -> EvaluationTarget:
    arm = clean_name(",".join([clean_name(name, extra=""), *world_words(data, seed)]))
    folder = root / WEIGHTS / arm / f"seed={seed}"
    return EvaluationTarget(folder, arm, seed, model, data, WEIGHTS, trained=False)


def world_words(data: DataSettings, seed: int) -> list[str]:
    """Return the settings of the world other than the defaults, as on the command line.

    The default seed of a world is the run's seed plus one.

    >>> from cfaug.data.mixture.settings import DataSettings
    >>> from cfaug.worlds.shapescapes import WorldSettings
    >>> world_words(DataSettings(None, None, seed=5, world=WorldSettings(style="drawing")), 4)
    ['world.style=drawing']
    >>> world_words(DataSettings(None, None, seed=5, world=WorldSettings(seed=108)), 4)
    ['world.seed=108']
    """
    if data.world is None:
        return []
    usual = asdict(type(data.world)())
    words = [
        f"world.{name}={'+'.join(value) if isinstance(value, tuple) else value}"
        for name, value in sorted(asdict(data.world).items())
        if value != usual[name]
    ]
    if data.world.seed is None and data.seed != data_seed(seed):
        words.append(f"world.seed={data.seed}")
    return words
