"""The settings of ``cfaug evaluate``, and which of its ways of working reads which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import MinLen

from cfaug.core.annotations import Means
from cfaug.core.errors import OutputSettings, UserError
from cfaug.core.outputs import check_output
from cfaug.core.processes import Threads, check_device
from cfaug.core.protocols import NoModel
from cfaug.core.targets import TARGET, Makes, locate
from cfaug.core.validation import Node, RunPaths, RunSeed, Share, Words, check_fields
from cfaug.core.worlds import find_drawn
from cfaug.evaluation.failures import KIND as FAILURES
from cfaug.models.indistinct import DEFAULT_LIMIT
from cfaug.models.lora import Factor
from cfaug.planning.build import build, try_building
from cfaug.report.comparison import ComparisonSettings
from cfaug.run.compare import join_experiments
from cfaug.run.evaluate_checkpoint import (
    CacheSize,
    FeatureCache,
    KeepItems,
    check_factors,
    open_feature_cache,
)
from cfaug.run.folder_names import runs_folder
from cfaug.settings.arguments import MODEL_WEIGHTS, flatten, key_of, texts_in
from cfaug.settings.read_if import (
    DRAWS_WORLD,
    GIVEN,
    LEARNT,
    MODEL,
    TRAINED,
    WORLD,
    CommandJob,
    Fact,
    Facts,
    ReadIf,
    describe_conditions,
    holds,
)
from cfaug.settings.unread import nodes_of, place_of, reasons_of_nodes, why_unread

# The ways of working, of which a command line chooses the first that fits.

CHECK = "a check of questions (dry_run=true)"
MIXED = "wise_ft=..."
CHECKPOINT = "an evaluation of a checkpoint (weights=..., or model=... alone)"
TEXTS = "a benchmark of texts alone"
RUNS = "an evaluation of finished runs (name=..., arm=..., runs=...)"
WAY = Fact({way: f"by {way}" for way in (CHECK, MIXED, CHECKPOINT, TEXTS, RUNS)}, contrasts=True)

OF_RUNS = (MIXED, RUNS)
OF_MODELS = (MIXED, CHECKPOINT, RUNS)
EVALUATING = (MIXED, CHECKPOINT, TEXTS, RUNS)
WITH_DATA = (CHECK, CHECKPOINT, TEXTS)
"""The ways in which the data of the command are tested on; a run has its own."""

READS_DATA = Fact(
    {"data": "by benchmarks that ask about a run's own data, such as benchmark=heldout"}
)
"""The settings of ``data`` that the benchmark reads, or ``data``, which is all of them."""


def choose_way(settings: Mapping[str, Any], words: Sequence[str]) -> str:
    """Return the way in which a command line works."""
    names_runs = any(settings.get(name) is not None for name in ("name", "arm", "runs"))
    typed = {place_of(word) for word in words}
    tests_checkpoint = MODEL_WEIGHTS in typed or ("model" in typed and not names_runs)
    if settings.get("dry_run") and not (names_runs or tests_checkpoint):
        return CHECK
    if settings.get("wise_ft") is not None:
        return MIXED
    if tests_checkpoint:
        return CHECKPOINT
    target = (settings.get("benchmark") or {}).get(TARGET)
    needs = None if target is None else getattr(locate(target), "needs", None)
    return TEXTS if needs is NoModel and not names_runs else RUNS


def describe_run(data: Any) -> Facts:
    """Return what is known of a finished run by its data."""
    on_world, learnt = getattr(data, "on_world", False), getattr(data, "learnt", "captions")
    return {TRAINED: True, WORLD: on_world, LEARNT: learnt}


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(OutputSettings):
    """The settings of ``cfaug evaluate``."""

    name: Annotated[str | Sequence[str] | None, ReadIf({WAY: OF_RUNS, "runs": (None,)})]
    """one experiment; [a,b]: their arms in one table; null: every experiment under
    ``paths.runs``"""
    arm: Annotated[str | None, ReadIf({WAY: OF_RUNS, "runs": (None,)})]
    """one arm; null: every arm"""
    runs: Annotated[Sequence[str] | None, ReadIf({WAY: OF_RUNS})]
    """a list of run folders, in place of ``name`` and ``arm``"""
    seed: Annotated[RunSeed, ReadIf({WAY: WITH_DATA, DRAWS_WORLD: GIVEN})]
    """the seed of the world that ``weights`` are tested on"""
    benchmark: Annotated[Node, Makes("cfaug.evaluation.suites.SuiteMember")]
    """what is measured"""
    baseline: Annotated[str | Sequence[str] | None, ReadIf({WAY: (CHECKPOINT, TEXTS, RUNS)})]
    """the arm (or arms) to test against; null: those of ``comparison``. With ``weights``, the
    name of a checkpoint that was evaluated before with the same settings: the two are compared
    over items"""
    model: Annotated[
        Node,
        Makes("cfaug.models.specs.ModelSpec"),
        ReadIf({WAY: (CHECKPOINT,)}),
        ReadIf("in training, by train.py", of="logit_scale_min logit_scale_max train_logit_scale"),
    ]
    """the model to test, if ``model=`` or ``weights=`` is typed: ``weights`` (``model.weights``)
    are loaded as this kind of model, and without them the file's own. A run has its own model"""
    data: Annotated[
        Node,
        ReadIf({WAY: WITH_DATA, READS_DATA: ("data",)}),
        ReadIf({WAY: WITH_DATA, DRAWS_WORLD: GIVEN}, of="seed world"),
        ReadIf({}, of="fields reader"),
        ReadIf({WAY: OF_RUNS}, of="near_duplicates near_distance"),
    ]
    """the world that ``weights`` are tested on; a run has its own data"""
    device: Annotated[str, ReadIf({WAY: OF_MODELS})]
    """auto, cpu, cuda, cuda:1, mps"""
    feature_cache: Annotated[CacheSize, ReadIf({WAY: OF_MODELS})]
    """GiB of embeddings and matching scores to keep in ``paths.cache``/features; 0: none"""
    label_frequency: Annotated[str | None, ReadIf({WAY: (RUNS,)})]
    """how altered subjects are compared with class names, for label_frequency.json of each run:
    ``words``, as in COCO-CFs, section A.2; ``lemmas`` counts singular and plural as one word;
    null: no counts"""
    evaluate_initial: Annotated[bool, ReadIf({WAY: (RUNS,)})]
    """evaluate the initial weights of runs as well"""
    forgetting_threshold: Annotated[
        Annotated[Share, Means("such as 0.02 for two percentage points")]
        | Annotated[None, Means("no warning")],
        ReadIf({WAY: (RUNS,)}),
    ]
    """warn if accuracy or recall@1 is lower than with the initial weights by more than this"""
    tabulate: Annotated[Literal["asked", "all"], ReadIf({WAY: (RUNS,)})]
    """benchmarks to table and correct for: ``asked``, those of this command; ``all``, every one
    with results"""
    paths: RunPaths
    """folders of ``runs``, ``shards``, ``cache``, of ``data`` for suites, and ``image_roots`` in
    which a list may name images"""
    comparison: Annotated[
        Node | None,
        ReadIf({WAY: (RUNS,)}),
        ReadIf({WAY: (RUNS,), "baseline": (None,)}, of="baselines"),
    ] = None
    """the baselines of an experiment's arms, and how arms are named"""
    threads: Threads = None
    """torch's threads on a CPU; null: all cores"""
    seeds: Annotated[
        RunSeed
        | Annotated[Sequence[RunSeed], MinLen(1), Means("such as [107,108]")]
        | Annotated[None, Means("those that all arms have")],
        ReadIf({WAY: OF_RUNS}),
    ] = None
    """the seeds to evaluate and compare, such as [107,108]; null: all, and the table has those
    of every arm"""
    items: Annotated[KeepItems, ReadIf({WAY: EVALUATING})] = "new"
    """keep test items in items/ of each run: ``new``, those of new results; ``all``, of old ones
    too"""
    failures: Annotated[str | None, ReadIf({WAY: EVALUATING})] = None
    """a file for the edits after which models fail more often than without them, a line of JSON
    for each, for benchmark=stress, choice, pairs, matching, retrieval or vqa (docs/repair.md)"""
    failure_rule: Annotated[Node, ReadIf({"failures": GIVEN, WAY: EVALUATING})] = field(
        default_factory=dict
    )
    """which are failures: declared before they are measured"""
    failure_causes: Annotated[
        Node,
        ReadIf({"failures": GIVEN, WAY: EVALUATING}),
        ReadIf({"failures": GIVEN, WAY: (CHECKPOINT, TEXTS)}, of="training"),
    ] = field(default_factory=dict)
    """what the model was trained on, to tell failures at levels that are rare there (coverage)
    from others (reliance)"""
    wise_ft: Annotated[
        Factor | Annotated[Sequence[Factor], MinLen(1)] | None, ReadIf({"dry_run": (False,)})
    ] = None
    """mix the weights of runs with their initial weights (WiSE-FT, Wortsman et al., 2022):
    [0,0.25,0.5,0.75,1] from the initial weights to the run's; ``cfaug table wise_ft`` shows
    gains and costs"""
    max_indistinct: Annotated[Share, ReadIf({WAY: OF_MODELS})] = DEFAULT_LIMIT
    """refuse a benchmark if the model reads more than this share of its captions like another
    one: words that it does not know, or captions that are too long for it. 1: never"""
    engine: Annotated[Node | None, ReadIf({WAY: EVALUATING})] = None
    """where checkpoints are evaluated; null: in this process"""
    dry_run: bool = False
    """report problems in the questions of benchmark=vqa, and stop"""
    overrides: Words = ()

    @staticmethod
    def find_facts(job: CommandJob) -> Facts:
        """Return what is known of a command beside its settings, and of the model to evaluate."""
        way = choose_way(job.settings, job.words)
        if way in OF_RUNS:
            return {WAY: way}
        facts: dict[Fact, Any] = {WAY: way}
        if way != CHECK:
            model = job.settings["model"][TARGET]
            provides = [NoModel] if way == TEXTS else getattr(locate(model), "provides", ())
            data = try_building(job.settings["data"])
            facts |= {**describe_run(data), MODEL: provides, TRAINED: False}
            if data is None:
                del facts[WORLD]
        tested = CommandJob(job.settings, job.words, facts)
        read = _data_read(tested)
        return {**facts, READS_DATA: list(read), DRAWS_WORLD: read | _drawn(tested)}

    @staticmethod
    def find_left_out(
        node: Mapping[str, Any], place: str, job: CommandJob
    ) -> dict[str, str | None]:
        """Return the settings of ``data`` that the benchmark reads."""
        read, drawn = job.known.get(READS_DATA), job.known.get(DRAWS_WORLD)
        if read or not drawn:
            return dict.fromkeys(read or ())
        return {"data.world": describe_conditions([{DRAWS_WORLD: GIVEN}]), **dict.fromkeys(drawn)}

    @property
    def root(self) -> Path:
        """The folder of all runs."""
        return runs_folder(self.paths["runs"])

    @property
    def experiment(self) -> str | None:
        """The experiment, if one is named; several are joined by links into one."""
        if self.name is None or isinstance(self.name, str):
            return self.name
        return join_experiments(self.root, self.name)

    @property
    def chosen_seeds(self) -> set[int] | None:
        """The seeds of the runs to evaluate and compare; ``None`` for those that all arms have."""
        if self.seeds is None:
            return None
        return {self.seeds} if isinstance(self.seeds, int) else set(self.seeds)

    @property
    def compared(self) -> ComparisonSettings:
        """How arms are compared, on the chosen seeds."""
        comparison = ComparisonSettings() if self.comparison is None else build(self.comparison)
        if self.chosen_seeds is None:
            return comparison
        return replace(comparison, seeds=sorted(self.chosen_seeds))

    @property
    def weights(self) -> str | None:
        """The weights that the command line names, if it names any."""
        if not any(key_of(word) == MODEL_WEIGHTS for word in self.overrides):
            return None
        return str(self.model["weights"])

    @property
    def names_only_model(self) -> bool:
        """Whether the model's own weights are evaluated: the command line names no checkpoint."""
        return self._names_no_checkpoint and any(
            word.lstrip("+").startswith("model=") for word in self.overrides
        )

    @property
    def names_no_model(self) -> bool:
        """Whether the command line names no model, checkpoint or run at all."""
        return self._names_no_checkpoint and not self.names_only_model

    @property
    def _names_no_checkpoint(self) -> bool:
        return all(value is None for value in (self.weights, self.name, self.arm, self.runs))

    @property
    def cache(self) -> FeatureCache:
        """The cache of embeddings and scores."""
        return open_feature_cache(self.paths["cache"], self.feature_cache)

    def check(self) -> None:
        """Refuse invalid settings before anything is evaluated."""
        check_fields(self)
        check_device(self.device)
        if self.wise_ft is not None:
            check_factors(self.wise_ft)
        seeds = self.seeds if isinstance(self.seeds, Sequence) else ()
        if twice := [seed for number, seed in enumerate(seeds) if seed in seeds[:number]]:
            raise UserError(
                f"seeds={','.join(map(str, seeds))} lists {twice[0]} more than once: list it once"
            )
        if self.failures is not None:
            check_output(Path(self.failures).expanduser(), FAILURES, "failures")


def _data_read(job: CommandJob) -> set[str]:
    """Return the settings of ``data`` that the classes of the benchmark say that they read.

    Their ``reads_data`` is {setting of ``data``: the condition under which they read it}. A class
    of somebody else's that declares nothing may read them all.
    """
    benchmark = {"benchmark": job.settings["benchmark"]}
    reasons, settings = reasons_of_nodes(benchmark, job), set[str]()
    for place, node in nodes_of(benchmark):
        if place != "benchmark." and why_unread(place[:-1], reasons) is not None:
            continue
        ours = node[TARGET].startswith("cfaug.")
        declared = getattr(locate(node[TARGET]), "reads_data", {} if ours else {"data": {}})
        settings |= {name for name, condition in declared.items() if holds(condition, node.get)}
    return settings


def _drawn(job: CommandJob) -> set[str]:
    """Return the settings of the world that draw what a benchmark is run on, or was trained on.

    Parts of a benchmark that are not read, such as the other members of a suite, do not count.
    """
    tested = {name: job.settings.get(name) for name in ("benchmark", "failure_causes")}
    reasons = reasons_of_nodes({"benchmark": tested["benchmark"]}, job)
    read = (value for key, value in flatten(tested).items() if why_unread(key, reasons) is None)
    return find_drawn(texts_in(read), "data.world")
