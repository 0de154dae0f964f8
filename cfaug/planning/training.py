"""The settings of a training, what its planner is given and returns, and warnings of its preset."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from cfaug.core.annotations import NO_RESULT, Means
from cfaug.core.errors import OutputSettings, UserError
from cfaug.core.files import require_regular
from cfaug.core.fitting import Config
from cfaug.core.processes import Threads
from cfaug.core.targets import Makes
from cfaug.core.validation import (
    DryRun,
    Node,
    Positive,
    Processes,
    RunPaths,
    RunSeed,
    Words,
)
from cfaug.core.worlds import find_drawn
from cfaug.data.mixture.settings import DRAWN, DataSettings
from cfaug.planning.build import build, try_building
from cfaug.settings.read_if import ABOVE_ZERO, GIVEN, SWEPT, CommandJob, Facts, ReadIf
from cfaug.train.settings import DIVIDED

if TYPE_CHECKING:
    from cfaug.models.specs import ModelSpec
    from cfaug.train.settings import (
        AnswerLoss,
        ClassLoss,
        Factory,
        LoggerSettings,
        LossSettings,
        OptimSettings,
        TrainerSettings,
    )
    from cfaug.train.task import Task
    from cfaug.train.tuning import Tuning


# The input and the result of planning a run, for every kind of training.


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """A run's settings other than its data, as objects.

    Attributes:
        logger: the destination of the curves besides ``metrics.csv``; a function that makes it, if
            it is a logger of Lightning's.
        tuning: the parameters to train; ``None`` trains all.
        loss: the loss over images and captions, over a question's options or over classes; ``None``
            is the loss of the model's authors.
    """

    model: ModelSpec
    optim: OptimSettings
    trainer: TrainerSettings
    logger: LoggerSettings | Factory
    tuning: Tuning | None
    loss: LossSettings | AnswerLoss | ClassLoss | None
    seed: int
    paths: Mapping[str, Any]

    @classmethod
    def of(cls, settings: TrainSettings) -> TrainRequest:
        """Make the objects of a run's settings."""
        # Lightning's parts are made by the process of the run, as a part may open files and
        # connections, and keeps the state of one training: of them there are functions here.
        trainer, logger = dict(settings.trainer), settings.logger
        for name in ("strategy", "profiler"):
            if isinstance(trainer.get(name), Mapping):
                trainer[name] = {**trainer[name], "_partial_": True}
        if trainer.get("callbacks"):
            named = trainer["callbacks"].items()
            trainer["callbacks"] = {name: {**node, "_partial_": True} for name, node in named}
        if not str(logger["_target_"]).startswith("cfaug.train."):
            logger = {**logger, "_partial_": True}
        nodes = {
            "model": settings.model, "trainer": trainer, "optim": settings.optim,
            "logger": logger, "tuning": settings.tuning, "loss": settings.loss,
        }  # fmt: skip
        made: dict[str, Any] = {
            name: None if node is None else build(node) for name, node in nodes.items()
        }
        return cls(**made, seed=settings.seed, paths=settings.paths)

    @property
    def cache(self) -> Path:
        """The folder of cached indexes."""
        return Path(self.paths["cache"])

    def refuse_contrastive(self, beside: str) -> None:
        """Refuse settings of contrastive training.

        Args:
            beside: the word of the command that chose another training.
        """
        if self.loss is not None:
            raise UserError(
                "loss=... sets what counts as a negative in contrastive training: leave it out "
                f"with {beside}"
            )
        self.refuse_pieces(beside)

    def refuse_pieces(self, beside: str) -> None:
        """Refuse encoding in pieces, which only a contrastive loss needs.

        Args:
            beside: the word of the command that chose another training.
        """
        pieces = self.trainer.micro_batch_size
        if pieces is not None:
            raise UserError(
                f"trainer.micro_batch_size={pieces} is for contrastive training, whose loss needs "
                "the whole batch: set data.batch_size, and trainer.accumulate_grad_batches beside "
                f"it, which is exact with {beside}"
            )

    def of_task(self) -> dict[str, Any]:
        """Return the arguments of every :class:`cfaug.train.task.Task` except the data's seed."""
        names = ("model", "optim", "trainer", "logger", "tuning", "seed")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """A task, and the part of its data that identifies its run.

    Attributes:
        data: values for settings of ``data`` that were left open.
        hashed: settings whose value in the run's identity differs from the written one.
        sources: {role of a source: the form in which it was read}.
    """

    task: Task
    data: Mapping[str, Any]
    hashed: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


MODEL_NAME = re.compile(r"(?:[\w.-]{1,96}/)?[\w.-]{1,96}", re.ASCII)
"""A name of a model on the Hub, with or without its owner."""
NOT_OF_A_RUN = ("preset", "by_seed", "overrides", "debugging", "export", "quiet", "verbose")
"""Fields that composition and the command line fill, and those of what a command prints."""
OPTIONAL_GROUPS = ("tuning", "loss", "optimized_metric", "declared", "model_name")
"""Groups and settings that a run's ``config.yaml`` lacks if nothing was chosen for them."""


class RunExports(TypedDict):
    """What is written about a run beside its folder."""

    used: str | None
    """a new file of JSON lines, the examples of the run: ``split`` (train or validation),
    ``kind`` (real or counterfactual), ``source``, ``key`` (set and member), ``group``, ``file``,
    ``digest`` of the image's bytes, ``caption``, and ``times`` that an epoch draws it"""


IN_STEPS = ReadIf({"trainer.max_steps": ABOVE_ZERO})


@dataclass(frozen=True, kw_only=True)
class TrainSettings(OutputSettings):
    """The settings of ``cfaug train``: those of one run."""

    name: Annotated[str, NO_RESULT]
    """the experiment: runs that belong in one table"""
    arm: Annotated[str | None, NO_RESULT]
    """the arm's name; null: a name from the overrides that change the result"""
    seed: RunSeed
    """the seed of the order of examples and of dropout; the papers use 107 to 131"""
    data: Annotated[
        Node,
        ReadIf(
            {"data.holdout": GIVEN}, {"data.counterfactual_holdout": GIVEN}, of="near_duplicates"
        ),
        ReadIf("with sources in the embedded world whose parts it draws", of="world"),
    ]
    """the examples: real and counterfactual sources, and how they are mixed"""
    model: Annotated[Node, Makes("cfaug.models.specs.ModelSpec")]
    """the model to fine-tune"""
    optim: Annotated[Node, Makes("cfaug.train.settings.OptimSettings"), IN_STEPS]
    """the optimiser and its schedule"""
    trainer: Annotated[Node, Makes("cfaug.train.settings.TrainerSettings")]
    """the length of the training, its precision, processes and checkpoints"""
    logger: Annotated[
        Node,
        Makes("cfaug.train.settings.LoggerSettings", "lightning.pytorch.loggers.Logger"),
        NO_RESULT,
    ]
    """where metrics are logged"""
    paths: Annotated[
        RunPaths,
        ReadIf("by chosen files that name it (${paths....})"),
        ReadIf({}, of="runs shards cache image_roots"),
        NO_RESULT,
    ]
    """folders of ``runs``, ``shards``, ``cache``, of ``data`` for scale=paper, and
    ``image_roots`` in which a list may name images"""
    dry_run: Annotated[
        DryRun | Annotated[Literal["measure"], Means("the time of three real steps")], NO_RESULT
    ]
    """print counts, steps and the time it will take, and stop; ``json``: the same for programs;
    ``measure``: time three steps"""
    overwrite: Annotated[bool, NO_RESULT]
    """start anew in a folder that holds another run"""
    debugging: Annotated[bool, NO_RESULT] = False
    """the run goes to ``paths.runs``/.debug, which no table reads; debug=... sets it"""
    part: Annotated[int, NO_RESULT] = 0
    """this process trains the runs of a sweep whose number has this remainder when divided by
    ``parts``"""
    parts: Annotated[int, NO_RESULT] = 1
    """the number of processes that share a sweep, as sweeps/train.sbatch has it"""
    parallel: Annotated[
        Processes,
        Means("runs at once"),
        ReadIf({SWEPT: (True,), "engine": (None,)}),
        NO_RESULT,
    ] = 1
    """runs of a sweep at once, each with its share of the cores"""
    engine: Annotated[Node | None, NO_RESULT] = None
    """where the runs of a sweep are trained; null: on this machine"""
    on_error: Annotated[Literal["continue", "stop"], ReadIf({SWEPT: (True,)}), NO_RESULT] = (
        "continue"
    )
    """``continue`` with the other runs of a sweep when one fails, or ``stop``"""
    share_image_cache: Annotated[bool, NO_RESULT] = False
    """runs of a sweep share decoded images; results are byte-identical"""
    image_cache_mib: Annotated[
        Positive,
        Means("MiB of decoded images"),
        ReadIf({"share_image_cache": (True,)}),
        NO_RESULT,
    ] = 4096
    """memory of the shared images in MiB, in all processes together"""
    extend: Annotated[bool, NO_RESULT] = False
    """continue a finished run to more steps (``trainer.max_steps``, ``max_epochs``) from the
    state that ``trainer.keep_last=true`` kept; the schedule is computed anew for the new length"""
    optimized_metric: Annotated[str | None, NO_RESULT] = None
    """what a sweeper of Hydra's (hydra/sweeper=optuna) gets of each run: ``train/loss``,
    ``val/loss``, or ``val/`` and one of ``trainer.val_metrics``"""
    threads: Annotated[Threads, NO_RESULT] = None
    """torch's threads on a CPU; null: all cores"""
    tuning: Annotated[Node | None, IN_STEPS] = None
    """the parameters that are trained; null: all"""
    loss: Annotated[Node | None, IN_STEPS] = None
    """the loss; null: that of the model's authors"""
    declared: str | None = None
    """a file of what is compared, which ``cfaug table NAME declare=true`` writes before anything
    is trained: its hash is part of each run, and the table calls everything else exploratory"""
    model_name: Annotated[str | None, NO_RESULT] = None
    """the name of the model in its card, as on the Hub, such as my-clip; null: one of the
    initial model, the experiment and the seed"""
    export: Annotated[RunExports, NO_RESULT] = field(default_factory=lambda: RunExports(used=None))
    """what is written about the run beside its folder"""
    preset: Annotated[
        Preset | None,
        ReadIf("by settings that take it (${preset....}) and are not typed or chosen themselves"),
    ] = None
    """the training settings of the model's file, already filled into the others"""
    by_seed: Annotated[
        Mapping[str, str] | None, ReadIf("by settings that name ${seed}, such as model=tiny_clips")
    ] = None
    """the settings that depend on the run's seed, as they are written"""
    overrides: Words = ()

    @staticmethod
    def find_facts(job: CommandJob) -> Facts:
        """Return what is known of a job beside its settings."""
        data, trainer = job.settings["data"], job.settings["trainer"]
        facts: dict[Any, Any] = {DIVIDED: True}
        mixture = try_building(data)
        if isinstance(mixture, DataSettings):
            real, counterfactual = mixture.drawn
            drawn = {"real": real, "counterfactual": counterfactual, "both": all(mixture.drawn)}
            facts[DRAWN] = [name for name, draws in drawn.items() if draws]
        pieces, batch = trainer.get("micro_batch_size"), data.get("batch_size")
        if isinstance(pieces, int) and isinstance(batch, int):
            processes = int(os.environ.get("WORLD_SIZE", 0)) or (
                trainer.get("devices", 1) * trainer.get("num_nodes", 1)
            )
            facts[DIVIDED] = pieces * processes < batch
        return facts

    @staticmethod
    def find_left_out(
        node: Mapping[str, Any], place: str, job: CommandJob
    ) -> dict[str, str | None]:
        """Return the settings of a world that are read: they draw a part that is mixed."""
        mixture = try_building(node["data"])
        if not isinstance(mixture, DataSettings):  # or invalid, which is refused by the planner
            return {"data.world": None}
        named = getattr(mixture, "question_sets", (mixture.real, mixture.counterfactual))
        read = [name for name, needed in zip(named, mixture.needed, strict=True) if needed]
        sources = (*read, mixture.human_labels, mixture.control_source)
        return dict.fromkeys(find_drawn(filter(None, sources), "data.world"))

    def check(self) -> None:
        """Refuse settings that contradict each other, for any data and model."""
        if self.extend and self.overwrite:
            raise UserError("extend=true continues a run that overwrite=true removes: choose one")
        if self.model_name is not None and not MODEL_NAME.fullmatch(self.model_name):
            raise UserError(
                f"model_name={self.model_name:.100} is invalid: a name on the Hub has at most 96 "
                "letters, digits, -, _ and ., as in my-clip"
            )
        logged = [f"val/{name}" for name in self.trainer.get("val_metrics") or ()]
        if self.optimized_metric not in (None, "val/loss", "train/loss", *logged):
            raise UserError(
                f"optimized_metric={self.optimized_metric} is not logged by this run: choose "
                f"{', '.join(['val/loss', 'train/loss', *logged])}, or add "
                "trainer.val_metrics=[recall@1] for val/recall@1"
            )

    def declared_content(self) -> dict[str, str]:
        """Return the hash of the declaration by its name in a run's identity, if there is one.

        Raises:
            UserError: if the file cannot be read.
        """
        if self.declared is None:
            return {}
        try:
            content = require_regular(Path(self.declared).expanduser()).read_bytes()
        except OSError as error:
            raise UserError(
                f"declared={self.declared} cannot be read: {error.strerror}; "
                "cfaug table NAME declare=true writes it, before anything is trained"
            ) from error
        return {"declared": hashlib.sha256(content).hexdigest()}

    def config(self) -> Config:
        """Return the content of a run's ``config.yaml``, with composed nodes."""
        settings: dict[str, Any] = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {
            name: value
            for name, value in settings.items()
            if name not in NOT_OF_A_RUN and not (name in OPTIONAL_GROUPS and value is None)
        }


# Warnings from a model's preset about a run's settings, before anything starts.
#
# ``conf/preset`` has optimizer, batch size and length for a kind of model; a model's file names its
# preset. Composition fills the settings from it, so a run only has numbers.

FAR = 100
"""Factor between a learning rate and the preset's, either way, from which a warning is printed; a
factor of 1,200 destroyed a CLIP without any message."""


class LearningRate(TypedDict):
    """A learning rate by itself."""

    lr: float


class Preset(TypedDict):
    """The settings in ``conf/preset`` for a kind of model."""

    optim: Node
    trainer: Node
    lora: LearningRate
    batch_size: int


def notes(
    preset: Mapping[str, Any], optim: Mapping[str, Any], tuning: Mapping[str, Any] | None
) -> list[str]:
    """Return warnings about a run's settings before it starts, one sentence each.

    Args:
        preset: the node that the model's file adds, with ``optim.lr`` and ``lora.lr``.
        tuning: the settings of ``tuning``; with adapters the rate for adapters is compared.

    >>> notes({"optim": {"lr": 5e-7}, "lora": {"lr": 2e-4}}, {"lr": 6e-4}, None)[0][:62]
    "optim.lr=0.0006 is 1,200 times the rate of this model's preset"
    """
    adapters = bool(tuning and tuning.get("lora"))
    usual = preset.get("lora" if adapters else "optim", {}).get("lr")
    lr = optim.get("lr")
    if not isinstance(usual, int | float) or not isinstance(lr, int | float) or lr <= 0:
        return []
    factor = lr / usual
    if 1 / FAR < factor < FAR:
        return []
    times = f"{factor:,.0f} times" if factor > 1 else f"1/{1 / factor:,.0f} of"
    harm = "likely destroys what the model knew" if factor > 1 else "likely changes nothing"
    return [
        f"optim.lr={lr:g} is {times} the rate of this model's preset, {usual:g}: it {harm}; "
        "without optim=... and optim.lr=... the preset's is taken"
    ]


def check_warmup(overrides: Sequence[str], optim: OptimSettings, steps: int) -> str | None:
    """Return a warning if the learning rate never reaches its peak, as the warm-up is longer."""
    warmup = optim.warmup_steps(steps)
    if not steps or warmup < steps:
        return None
    reached = optim.lr * optim.factor(steps - 1, steps)  # it rises until the end
    message = (
        f"the warm-up of {warmup:,} steps is as long as the run of {steps:,} steps, or longer: the "
        f"learning rate is at most {reached:.3g}, and never optim.lr={optim.lr:g}"
    )
    if any(word.startswith("optim.warmup=") for word in overrides):
        raise UserError(f"{message}: give a shorter warm-up, or more trainer.max_steps")
    return f"{message}; optim.warmup=0 starts at the full rate"


def check_batch(task: Task) -> str | None:
    """Return a warning if there are fewer training examples than a contrastive batch should have.

    Its loss tells the examples of a batch apart, so that a smaller batch is an easier task.
    """
    rows = task.counts["train"]
    if rows >= task.batch_size:
        return None
    return (
        f"data.batch_size={task.batch_size} is more than the {rows:,} training examples: a batch "
        "has them all and no more, and the loss tells them apart alone"
    )


def check_scale(model: Mapping[str, Any]) -> str | None:
    """Return a warning if a bound keeps the logit scale, exp(log scale), below 1."""
    upper = model.get("logit_scale_max")
    if not isinstance(upper, int | float) or upper >= 0:
        return None
    return (
        f"model.logit_scale_max={upper:g} is the bound of a logarithm: logits are cosines times "
        f"{math.exp(upper):.3g} at most, which hardly tells captions apart; CLIP's is 4.6052"
    )


def refuse_ignored_epochs(overrides: Sequence[str], trainer: Mapping[str, Any]) -> None:
    """Refuse a typed number of epochs that the preset's number of steps would override."""
    typed = {override.split("=", 1)[0] for override in overrides}
    steps = trainer.get("max_steps")
    epochs_typed = "trainer.max_epochs" in typed and trainer.get("max_epochs") is not None
    if epochs_typed and steps is not None:
        raise UserError(
            f"trainer.max_epochs={trainer['max_epochs']} has no effect beside "
            f"trainer.max_steps={steps}, which takes precedence: add trainer.max_steps=null"
        )
