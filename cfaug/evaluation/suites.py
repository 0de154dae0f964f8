"""Choose a run's benchmarks: the config nodes behind ``benchmark=``. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, cast

from cfaug.core.errors import UserError, say_once
from cfaug.core.validation import check_fields
from cfaug.core.worlds import is_world
from cfaug.data.index.index import captioned_classes
from cfaug.data.sources.row import class_words, require_names, split_home
from cfaug.evaluation.classification import NAMED_BY_FILE, PAPER_TEMPLATE, ZeroShot
from cfaug.evaluation.context import EvaluationContext
from cfaug.evaluation.records import Classes
from cfaug.evaluation.retrieval import Retrieval
from cfaug.report.results import NAME_OF_PART
from cfaug.settings.read_if import LEARNT, WORLD, CommandJob, Condition, ReadIf

if TYPE_CHECKING:
    from cfaug.core.protocols import Benchmark


Where = Literal["auto", "world", "folders"]
Absent = Literal["refuse", "say"]


@dataclass(frozen=True)
class Suite:
    """Benchmarks by name, on the embedded world and on folders of real data.

    A member that cannot be opened is an error; it is never skipped silently. A suite may instead
    report members whose folder is missing, with its layout, and run the others.

    Args:
        world: {name: member} for the tests of the run's own world.
        folders: {name: member} for the user's folders.
        where: the members to run: ``world``, ``folders``, or ``auto``, which is the world for a run
            on the world.
        only: names of members to run; ``None`` for all.
        skip: names of members to leave out.
        absent: the treatment of members without their folder: ``refuse``, or ``say`` so and run
            the others; members in ``only`` are always refused.
        layouts: {name: where to get the data and how to lay them out}, for members without a
            ``layout`` of their own.

    Raises:
        UserError: for a name that is not in the suite, or a member that cannot be opened.
    """

    world: Annotated[
        Mapping[str, SuiteMember],
        ReadIf({"where": ("world",)}, {"where": ("auto",), WORLD: (True,)}),
    ] = field(default_factory=dict)
    folders: Annotated[
        Mapping[str, SuiteMember],
        ReadIf({"where": ("folders",)}, {"where": ("auto",), WORLD: (False,)}),
    ] = field(default_factory=dict)
    where: Where = "auto"
    only: Sequence[str] | None = None
    skip: Sequence[str] = ()
    absent: Annotated[Absent, ReadIf({"only": (None,)})] = "refuse"
    layouts: Annotated[Mapping[str, str], ReadIf({"absent": ("say",), "only": (None,)})] = field(
        default_factory=dict
    )

    reads_data: ClassVar[Mapping[str, Condition]] = {
        "data.real": {"where": ("auto",)},
        "data.counterfactual": {"where": ("auto",)},
    }

    def __post_init__(self) -> None:
        check_fields(self, "benchmark")
        for key, members in (("world", self.world), ("folders", self.folders)):
            for name, member in members.items():
                check_member(member, f"benchmark.{key}.{name}")
        names = [*self.world, *self.folders]
        for key, chosen in (
            ("only", self.only or ()), ("skip", self.skip), ("layouts", self.layouts),
        ):  # fmt: skip
            unknown = [name for name in chosen if name not in names]
            if unknown:
                raise UserError(
                    f"benchmark.{key}: no member is called {unknown[0]}; there are "
                    f"{', '.join(names)}"
                )

    @staticmethod
    def find_left_out(node: Mapping[str, Any], place: str, job: CommandJob) -> dict[str, str]:
        """Return {a member that ``only`` or ``skip`` leave out: the setting that takes it in}."""
        only, skip = node.get("only"), node.get("skip") or ()
        names = [(side, name) for side in ("world", "folders") for name in node.get(side) or ()]
        return {
            f"{side}.{name}": f"with {place}skip without {name}"
            if name in skip
            else f"with {place}only=[{name}]"
            for side, name in names
            if name in skip or (only is not None and name not in only)
        }

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        """Return every chosen member's benchmark, in order."""
        benchmarks: list[Benchmark] = []
        missing: dict[str, UserError] = {}
        chosen = self._chosen(context)
        tolerant = self.absent == "say" and self.only is None
        absent: dict[str, str] = {}  # a line for each member whose missing folder is tolerated
        for name, member in chosen.items():
            data = getattr(member, "data", None)
            if tolerant and isinstance(data, str) and not is_world(data):
                folder = split_home(Path(data).expanduser())[0]
                if not folder.exists():
                    layout = getattr(member, "layout", "") or self.layouts.get(name, "")
                    absent[name] = f"there is no {folder}{layout and f': {layout}'}"
                    continue
            try:
                opened = open_member(member, context)
            except UserError as error:
                missing[name] = error
                continue
            called = [benchmark.name for benchmark in opened]
            if called != [name]:
                themselves = ", ".join(called) or "nothing"
                raise UserError(f"the suite's member {name} has the name {themselves}")
            benchmarks += opened
        if missing:
            lines = [f"{name}: {error}" for name, error in missing.items()]
            names = ",".join(missing)
            raise UserError("\n".join(lines) + f"\nto leave them out: benchmark.skip=[{names}]")
        if absent:
            listing = "\n".join(f"  {name}: {line}" for name, line in absent.items())
            if not benchmarks:
                raise UserError(f"no test is left to run, as all data are missing:\n{listing}")
            say_once(f"{len(absent)} of {len(chosen)} tests are not run:\n{listing}")
        return benchmarks

    def _chosen(self, context: EvaluationContext) -> dict[str, SuiteMember]:
        on_world = context.has_world if self.where == "auto" else self.where == "world"
        members = self.world if on_world else self.folders
        chosen = {
            name: member
            for name, member in members.items()
            if (self.only is None or name in self.only) and name not in self.skip
        }
        if not chosen:
            where = "the embedded world" if on_world else "folders"
            other = "folders" if on_world else "world"
            raise UserError(
                f"no test is left to run on {where}, where there are: {', '.join(members) or '-'}; "
                f"benchmark.where={other} runs the others"
            )
        return chosen


@dataclass(frozen=True)
class HeldOut:
    """The rows that the experiment held out (``data.holdout``), the same for every arm.

    Retrieval between images and captions; classification if the captions only name the class, as
    for class folders, where many images share each caption, or if the run learnt from labels.

    Args:
        validation: whether to test a run that held out nothing on the rows it validated on,
            although they differ between arms and selected the run's checkpoint; if false, such a
            run is refused.
    """

    batch_size: int = 256
    """the number of items given to the model at once"""
    validation: bool = True

    reads_data: ClassVar[Mapping[str, Condition]] = {"data": {}}

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        """Return one benchmark: ``heldout_retrieval``, ``validation_classification`` etc."""
        split = context.held_out()
        kind = "heldout"
        if split is None:
            if not self.validation or context.validation is None:
                raise UserError(
                    "nothing was held out as a test set (data.holdout=0): name one with "
                    "benchmark=retrieval benchmark.data=FOLDER, or train with data.holdout=0.1; "
                    "benchmark=heldout uses the rows by which the checkpoint was chosen"
                )
            say_once(
                "nothing was held out as a test set (data.holdout=0), so each run is evaluated on "
                "the rows that it validated on: they differ between arms, and its checkpoint was "
                "chosen by them"
            )
            split, kind = context.validation(), "validation"
        index, rows = split
        classes = captioned_classes(index, rows)
        if classes is None and context.has_labels:
            classes = sorted({index.label(int(row)) or "" for row in rows} - {""})
        if classes is None:
            retrieval = Retrieval(name=f"{kind}_retrieval", batch_size=self.batch_size)
            return cast("list[Benchmark]", [retrieval.use(index, rows)])
        words = [class_words(label) for label in classes]
        require_names(words, index.source, NAMED_BY_FILE)
        benchmark = ZeroShot(name=f"{kind}_classification", batch_size=self.batch_size)
        classification = benchmark.use(index, Classes(classes, words, [PAPER_TEMPLATE]), rows)
        return cast("list[Benchmark]", [classification])


OTHERS = ("hypotheses", "questions", "labels")
"""What runs learn from other than captions."""


def _of_captions(where: str, on_world: bool) -> ReadIf:
    """Return when a suite is read: for runs on captions, and those without a suite of theirs."""
    others: list[Condition] = [
        {WORLD: (on_world,), LEARNT: (learnt,), f"{learnt}{where}": (None,)} for learnt in OTHERS
    ]
    return ReadIf({WORLD: (on_world,), LEARNT: ("captions",)}, *others)


def _of_others(learnt: str, on_world: bool) -> ReadIf:
    return ReadIf({WORLD: (on_world,), LEARNT: (learnt,)})


@dataclass(frozen=True)
class Auto:
    """The world's tests for a run on the world; the held-out test set for a run on other data.

    Args:
        own: the suite for a run on other data than the world.
        world: the suite for a run on the world; ``None`` where no world has tests.
        hypotheses_world: the suite for a run that learnt from labelled hypotheses of the world;
            ``None`` uses ``world``.
        hypotheses: the suite for any other run that learnt from labelled hypotheses; ``None`` uses
            ``own``.
        questions_world: the suite for a run that learnt from questions about the world's pictures;
            ``None`` uses ``world``.
        questions: the suite for any other run that learnt from questions; ``None`` uses ``own``.
        labels_world: the suite for a classifier that learnt the world's labels; ``None`` uses
            ``world``.
        labels: the suite for any other classifier that was trained; ``None`` uses ``own``.
    """

    own: Annotated[SuiteMember, _of_captions("", False)]
    world: Annotated[SuiteMember | None, _of_captions("_world", True)] = None
    hypotheses_world: Annotated[SuiteMember | None, _of_others("hypotheses", True)] = None
    hypotheses: Annotated[SuiteMember | None, _of_others("hypotheses", False)] = None
    questions_world: Annotated[SuiteMember | None, _of_others("questions", True)] = None
    questions: Annotated[SuiteMember | None, _of_others("questions", False)] = None
    labels_world: Annotated[SuiteMember | None, _of_others("labels", True)] = None
    labels: Annotated[SuiteMember | None, _of_others("labels", False)] = None

    reads_data: ClassVar[Mapping[str, Condition]] = {"data.real": {}, "data.counterfactual": {}}

    def __post_init__(self) -> None:
        for name in ("world", "own", *(f"{n}{where}" for n in OTHERS for where in ("_world", ""))):
            member = getattr(self, name)
            if member is not None:
                check_member(member, f"benchmark.{name}")

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        """Return the benchmarks that fit the run."""
        usual = self.world if context.has_world else self.own
        where = "_world" if context.has_world else ""
        taught = next((n for n in OTHERS if getattr(context, f"has_{n}")), None)
        member = (None if taught is None else getattr(self, f"{taught}{where}")) or usual
        if member is None:
            raise UserError(
                "benchmark.world is null, and the run was trained on the world: name its tests "
                "with benchmark=NAME, or leave benchmark.world as it is"
            )
        return open_member(member, context)


# Check the object that ``benchmark=`` names, and the benchmarks that it opens.


class SuiteMember(Protocol):
    """An object that a suite's YAML names and that opens a benchmark: a ``SourceBenchmark``, ..."""

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        """Open the benchmark's data, and return a list of the benchmark."""
        ...


ATTRIBUTES = ("name", "needs", "data_hash", "run")
"""The attributes of a ``Benchmark``."""


def check_member(member: object, key: str = "benchmark") -> None:
    """Refuse an object that is not a member, before any of a suite is opened.

    Args:
        key: the setting that names it, for the error.
    """
    if not callable(getattr(member, "open", None)):
        raise UserError(
            f"{key}: {_name_class(member)} has no open(context), which returns a list of "
            'benchmarks: see CONTRIBUTING.md, "Add a benchmark"'
        )


def open_member(member: SuiteMember, context: EvaluationContext) -> list[Benchmark]:
    """Open a member of a suite, and check that it returns benchmarks."""
    opened: object = member.open(context)
    if not isinstance(opened, list | tuple):
        raise UserError(
            f"{_name_class(member)}.open should return a list of benchmarks, not "
            f"{_name_class(opened)}"
        )
    for benchmark in opened:
        # Check the class first: an object's property may compute a hash of all its data.
        lacks = [name for name in ATTRIBUTES if not hasattr(type(benchmark), name)]
        lacks = [name for name in lacks if not hasattr(benchmark, name)]
        if lacks:
            raise UserError(
                f"{_name_class(benchmark)} is not a benchmark, as it has no {', '.join(lacks)}: "
                "see cfaug.core.protocols.Benchmark"
            )
        if not isinstance(benchmark.name, str) or NAME_OF_PART.search(benchmark.name):
            raise UserError(
                f"{_name_class(benchmark)}: name={benchmark.name!r} is invalid: it should be a "
                "text that does not end in [...=...], which names a part of a benchmark in tables"
            )
    return list(opened)


def _name_class(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
