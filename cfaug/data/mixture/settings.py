"""The training data: the configuration node ``data``. No heavy imports."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from cfaug.core.annotations import NO_RESULT
from cfaug.core.errors import UserError
from cfaug.core.targets import Makes
from cfaug.core.validation import PartialShare, Positive, Seed, Share, Workers, check_fields
from cfaug.core.worlds import is_questions, is_world
from cfaug.data.mixture.near_duplicates import (
    DEFAULT_DISTANCE,
    NearAction,
    NearDistance,
    NearRule,
)
from cfaug.data.mixture.records import Split
from cfaug.settings.read_if import GIVEN, Fact, ReadIf

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.pool import Labels, MixturePlan
    from cfaug.data.sources.row import Reader


Captions = Literal["own", "neutral", "shuffled"]
"""The training captions of counterfactual sets' images."""
RealCaptions = Literal["all", "edited", "one"]
"""The captions of the real source that are trained on."""
Members = Literal["all", "edited", "unedited", "one", "singles"]
"""The members of counterfactual sets that are drawn."""
Negatives = Literal["none", "text", "image", "both"]
"""The use of a pair's counterfactual as a wrong answer in the loss."""
OwnReader = Annotated["Reader", Makes("cfaug.data.sources.row.Reader")]
DEFAULT_RATIO = 0.5
DRAWN = Fact(
    {
        "real": "real examples (data.cf_ratio below 1)",
        "counterfactual": "counterfactual examples (data.cf_ratio above 0)",
        "both": "in mixtures of both sources (data.cf_ratio between 0 and 1)",
    }
)
"""The sources of which a training draws examples."""


@dataclass(frozen=True)
class DataSettings:
    """Settings of two data sources, their exact mixture, and its batches.

    What is drawn is chosen by ``data.mixture``: each mixture is a class of its own, whose arguments
    are the settings that can be combined. The attributes are settings of some mixtures, and here
    have the values that hold for all others.

    Args:
        real: a folder in any form that ``cfaug.data.sources`` knows, or ``shapescapes:PART``.
        counterfactual: a source of sets, named like ``real``; its unedited members count too.
        seed: seed of the mixture and of the embedded world; ``None`` is the run's seed + 1.
        batch_size: global batch size, over all ranks.
        workers: number of processes that read and decode; the order does not depend on it.
        validation: share held out for validation, in [0, 1).
        stratify: whether to give every batch, not only the epoch, its share of counterfactuals.
        drop_last: whether to leave out an epoch's last, partial batch.
        world: settings of the embedded world, for ``shapescapes:PART``.

    Attributes:
        counterfactual_members: the members to draw: ``all``; ``edited``, those with an edit, for
            sets whose originals are already in ``real``; ``unedited``, the first of each set, a
            control with the synthetic images but without the edits; ``one`` of each set, at random
            by ``seed``, a control for the pairing; or ``singles``, all rows of a source of single
            images without pairs, as a control. Sets of one image without any edited caption are
            not used.
        cf_ratio: exact share of the training split from ``counterfactual``; ``None`` is one half.
        size: number of examples before the split; ``None`` is the largest without repetition.
        pairs_in_batch: whether to keep the members of a counterfactual set in one batch.
        shuffle: ``global`` shuffling, or ``window(K)``, which reads only K shards at a time.
        split: the unit of the split: ``group``, whose rows are either all trained on or all
            validated on; or ``random``, single rows as in the paper, so that a caption and its
            counterfactual may be separated.
        human_labels: a file in the format of ``cfaug.data.mixture.pool``, or
            ``shapescapes:PART`` for the oracle's labels: only counterfactual images matched to
            their own caption are drawn.
        real_captions: ``all`` captions; the ``edited`` ones, which ``counterfactual`` edited; or
            ``one`` of each photo, drawn anew for every epoch by ``seed``, so that an epoch has as
            many real examples as there are photos. ``size`` and ``cf_ratio`` then count photos, and
            validation uses the first caption of each.
        counterfactual_holdout: share of the counterfactual sets kept out as a test set, the same
            sets for every seed.
        holdout: share of the real groups kept out as the test set of an experiment, drawn first,
            and the same for every arm, size and seed; 0 or ``None`` keeps out none. Without
            ``real`` it is drawn from ``counterfactual``.
        counterfactual_captions: training captions of ``counterfactual``'s images: their ``own``
            captions; ``neutral``, the prompt of their set without attributes; or ``shuffled``, a
            control: the captions of a set permuted among its images, by ``seed``.
        fields: the names of columns in the sources, ``{caption: title, image: meta.file}``, where
            they are not those that readers know (``cfaug.data.sources.fields``). A source without
            such a column is read as it is.
        reader: a reader of the user's own, such as a ``cfaug.data.sources.own_rows.RowReader``, for
            sources that it recognises; ``None`` for the readers of cfaug alone.
        near_duplicates: the treatment of images that look the same in training and test, though
            their bytes differ (``cfaug.core.perceptual_hash``): ``refuse`` the command,
            ``leave_out``, or only ``report`` them; ``None`` does not look for them. Training leaves
            out its examples near the test that it holds out, an evaluation of runs leaves out test
            images near those that the run was trained on.
        near_distance: the largest number of bits of 64 in which hashes of near-duplicates differ.
    """

    real: str | None
    counterfactual: str | None
    cf_ratio: Share | None = field(init=False, default=None)
    size: Positive | None = field(init=False, default=None)
    seed: Seed | None = None
    batch_size: Positive = 64
    workers: Annotated[Workers, NO_RESULT] = 0
    validation: PartialShare = 0.2
    stratify: Annotated[bool, ReadIf({DRAWN: ("both",)})] = False
    pairs_in_batch: bool = field(init=False, default=False)
    drop_last: bool = False
    shuffle: str = field(init=False, default="global")
    world: Any = None
    counterfactual_members: Members = field(init=False, default="all")
    plan: MixturePlan | None = field(init=False, default=None)
    split: Split = field(init=False, default="group")
    human_labels: str | None = field(init=False, default=None)
    real_captions: RealCaptions = field(init=False, default="all")
    counterfactual_holdout: PartialShare = field(init=False, default=0)
    control: Literal["real", "counterfactual"] | None = field(init=False, default=None)
    control_source: str | None = field(init=False, default=None)
    holdout: PartialShare | None = field(init=False, default=0)
    counterfactual_captions: Captions = field(init=False, default="own")
    negatives: Negatives | None = field(init=False, default=None)
    fields: Mapping[str, str | Sequence[str]] = field(init=False, default_factory=dict)
    reader: OwnReader | None = field(init=False, default=None)
    near_duplicates: NearAction | None = field(init=False, default=None)
    near_distance: NearDistance = field(init=False, default=DEFAULT_DISTANCE)

    learnt: ClassVar[str] = "captions"
    """What a model learns from such data (``cfaug.settings.read_if.LEARNT``)."""
    chosen_by: ClassVar[str | None] = None
    """The words that choose this mixture; ``None`` if that takes more."""

    def __post_init__(self) -> None:
        check_fields(self, "data")
        if self.world is not None and not is_dataclass(self.world):
            raise UserError(f"data.world={self.world} should be null or settings of its own")
        if self.plan is None and self.cf_ratio is None:
            object.__setattr__(self, "cf_ratio", DEFAULT_RATIO)
        if self.stratify and self.pairs_in_batch:
            raise UserError("data.stratify and data.pairs_in_batch exclude each other: choose one")
        self.window()

    @property
    def whole_sets(self) -> bool:
        """Whether the members of a counterfactual set are in the same batch."""
        return self.pairs_in_batch or self.negatives == "both"

    @property
    def ratio(self) -> float:
        """The share of counterfactuals, if no plan determines it."""
        assert self.cf_ratio is not None
        return self.cf_ratio

    @property
    def drawn(self) -> tuple[bool, bool]:
        """Whether rows of the real and of the counterfactual source are drawn."""
        return (self.ratio < 1, self.ratio > 0) if self.plan is None else self.plan.sources

    @property
    def on_world(self) -> bool:
        """Whether a source is a part of an embedded world."""
        return any(is_world(name) for name in (self.real, self.counterfactual) if name)

    @property
    def needed(self) -> tuple[bool, bool]:
        """Whether the real and the counterfactual source are read at all."""
        real, counterfactual = self.drawn
        # Even without real rows in the mixture, the real source decides what is held out.
        real = real or (bool(self.holdout) and self.real is not None)
        counterfactual = counterfactual or self.real_captions == "edited"
        return real, counterfactual or self.counterfactual_holdout > 0

    @property
    def read_pairs(self) -> str | None:
        """The source of counterfactual images or captions that is read; ``None`` without one."""
        return self.counterfactual if self.needed[1] else None

    @property
    def near_rule(self) -> NearRule | None:
        """What is done with near-duplicates; ``None`` if they are not looked for."""
        return NearRule.of(vars(self))

    @property
    def held_out_role(self) -> Literal["real", "counterfactual"]:
        """The source from which ``holdout`` takes its share."""
        return "counterfactual" if self.real is None else "real"

    def with_seed(self, seed: int) -> DataSettings:
        """Return these settings with a seed: their own, or the one derived from a run's seed.

        >>> RatioData(None, None).with_seed(107).seed
        108
        >>> RatioData(None, None, seed=5).with_seed(107).seed
        5
        """
        return self if self.seed is not None else replace(self, seed=data_seed(seed))

    def settled(self) -> dict[str, Any]:
        """Return the settings that were derived, those of them that this mixture has.

        >>> RatioData(None, None, seed=5).settled()
        {'cf_ratio': 0.5, 'seed': 5, 'holdout': 0}
        """
        derived = ("cf_ratio", "seed", "holdout")
        return {
            entry.name: getattr(self, entry.name)
            for entry in fields(self)
            if entry.init and entry.name in derived
        }

    def steps_per_epoch(self, rows: int) -> int:
        """Return the number of global batches in an epoch of ``rows`` examples.

        >>> RatioData(None, None, batch_size=64).steps_per_epoch(130)
        3
        """
        whole, part = divmod(rows, self.batch_size)
        steps = whole + bool(part and not self.drop_last)
        if not steps:
            raise UserError(
                f"data.drop_last=true leaves no batch: {rows} training examples are less than "
                f"data.batch_size={self.batch_size}"
            )
        return steps

    def window(self) -> int | None:
        """Return the number of shards that are shuffled together; ``None`` for all.

        >>> RatioData(None, None, shuffle="window(8)").window()
        8
        """
        if self.shuffle == "global":
            return None
        match = re.fullmatch(r"window\(([1-9]\d*)\)", str(self.shuffle))
        if not match:
            raise UserError(
                f"data.shuffle={self.shuffle!r}: choose global or window(K), as in window(8)"
            )
        return int(match[1])


@dataclass(frozen=True)
class ImageData(DataSettings):
    """Two sources of images with texts: shards, folders, lists, or parts of a world.

    The arguments are those of :class:`DataSettings`.
    """

    shuffle: str = "global"
    counterfactual_holdout: PartialShare = 0
    holdout: PartialShare | None = 0
    fields: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    reader: OwnReader | None = None
    near_duplicates: NearAction | None = None
    near_distance: Annotated[NearDistance, ReadIf({"near_duplicates": GIVEN})] = DEFAULT_DISTANCE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fields:
            from cfaug.data.sources.fields import read_fields

            read_fields(self.fields)
        if self.holdout is None:
            object.__setattr__(self, "holdout", 0)


OF_SETS = ReadIf({DRAWN: ("counterfactual",)})
OF_REAL = ReadIf({DRAWN: ("real",)})


@dataclass(frozen=True)
class MixedData(ImageData):
    """Images with texts, an exact share of them counterfactual.

    The arguments are those of :class:`DataSettings`.
    """

    cf_ratio: Share | None = None
    size: Positive | None = None
    counterfactual_members: Annotated[Members, OF_SETS] = "all"
    human_labels: Annotated[str | None, OF_SETS] = None
    split: Split = "group"
    pairs_in_batch: Annotated[bool, OF_SETS] = False
    real_captions: Annotated[RealCaptions, OF_REAL] = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.counterfactual_members == "one" and self.pairs_in_batch:
            raise UserError(
                "data.counterfactual_members=one draws one member of each set, so that "
                "data.pairs_in_batch=true has nothing to keep together: leave out one of them"
            )


@dataclass(frozen=True)
class RatioData(MixedData):
    """Images with captions, an exact share of them counterfactual.

    The arguments are those of :class:`DataSettings`.
    """

    counterfactual_captions: Annotated[Captions, OF_SETS] = "own"

    chosen_by: ClassVar[str | None] = "data.mixture=ratio"


@dataclass(frozen=True)
class NegativesData(ImageData):
    """Images with captions, and of pairs only the original as an example of its own.

    Nothing may separate pairs, or show other members than their originals. Other arguments are as
    for :class:`DataSettings`.

    Args:
        negatives: the use of the counterfactuals of pairs, see
            ``cfaug.data.mixture.hard_negatives``: ``none``, only the originals, each as often as
            its pair would be drawn; ``text`` or ``image``, the same, with the counterfactuals'
            captions or images as wrong answers; ``both``, pairs in one batch, each member right
            about its own. All of these have the numbers of examples and steps of ``both``.
    """

    negatives: Annotated[Negatives, OF_SETS] = "text"
    cf_ratio: Share | None = None
    size: Positive | None = None
    real_captions: Annotated[RealCaptions, OF_REAL] = "all"

    chosen_by: ClassVar[str | None] = "data.mixture=negatives"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stratify and self.negatives == "both":
            raise UserError(
                f"data.negatives={self.negatives} and data.stratify exclude each other: choose one"
            )


@dataclass(frozen=True)
class PlanData(ImageData):
    """Images with captions, drawn as a paper describes.

    The plan determines ratio, size and members. Other arguments are as for :class:`DataSettings`.

    Args:
        plan: a data set that a paper describes, as a ``cfaug.data.mixture.pool.MixturePlan``.
        control: the only source of a plan's control, which has as many examples; ``None`` for none.
        control_source: the folder of the control's examples; ``None`` is the plan's own source.
    """

    plan: MixturePlan | None = None
    control: Literal["real", "counterfactual"] | None = None
    control_source: Annotated[str | None, ReadIf({"control": GIVEN})] = None
    counterfactual_captions: Annotated[Captions, OF_SETS] = "own"
    real_captions: Annotated[RealCaptions, OF_REAL] = "all"
    human_labels: Annotated[str | None, OF_SETS] = None
    split: Split = "group"
    pairs_in_batch: Annotated[bool, OF_SETS] = False

    chosen_by: ClassVar[str | None] = "a paper's data.mixture"

    def __post_init__(self) -> None:
        super().__post_init__()
        plan = self.plan
        if plan is None or not hasattr(plan, "draw"):
            raise UserError(
                f"data.plan={plan!r} should be an object that draws a mixture: choose a "
                "paper's by data.mixture=NAME"
            )
        if plan.needs_labels and self.human_labels is None:
            raise UserError(
                f"data.plan={plan.name} needs data.human_labels=FILE: jsonl, csv or tsv with "
                "key (of the pair), member (whose image was shown: 0 or 1) and label "
                "(original, counterfactual, both or neither), or shapescapes:counterfactual, "
                "the oracle's"
            )
        if self.control_source is not None and self.control is None:
            raise UserError(
                f"data.control_source={self.control_source} needs data.control: choose from "
                "real, counterfactual"
            )
        if self.real_captions == "one" and self.control_source is not None:
            raise UserError(
                "data.real_captions=one draws among the captions of data.real, and "
                f"data.control_source={self.control_source} is drawn from instead: leave out one"
            )


@dataclass(frozen=True)
class LabelData(MixedData):
    """Two sources of labelled images; mixed and read like any others.

    A label belongs to its text, or to the image whatever the text, so that captions stay as they
    are. Other arguments are as for :class:`DataSettings`.

    Args:
        real_captions: ``all`` captions, or the ``edited`` ones, which ``counterfactual`` edited.
    """

    real_captions: Annotated[Literal["all", "edited"], OF_REAL] = "all"

    task: ClassVar[str]


@dataclass(frozen=True)
class EntailmentData(LabelData):
    """Images with labelled hypotheses; labels are among ``cfaug.core.types.ENTAILMENT``.

    The arguments are those of :class:`DataSettings`.
    """

    task: ClassVar[str] = "entailment"
    chosen_by: ClassVar[str | None] = "task=entailment"
    learnt: ClassVar[str] = "hypotheses"


@dataclass(frozen=True)
class ClassificationData(LabelData):
    """Images with the names of their classes: folders of a class each, or sets with labels.

    The arguments are those of :class:`DataSettings`.
    """

    task: ClassVar[str] = "classification"
    chosen_by: ClassVar[str | None] = "task=classification"
    learnt: ClassVar[str] = "labels"


@dataclass(frozen=True)
class QuestionData(DataSettings):
    """Questions about images: an exact mixture of basic and counterfactual questions.

    ``size`` counts questions, not images. Other arguments are as for :class:`DataSettings`.

    Args:
        real: the set of basic questions: a file in any form that ``benchmark=vqa`` reads, or
            ``shapescapes_vqa:PART``. All questions count if it has no counterfactual ones.
        counterfactual: the set of counterfactual questions; ``None`` is ``real``.
        wording: the words around a question, a value of ``benchmark.wording``.
    """

    cf_ratio: Share | None = None
    size: Positive | None = None
    split: Split = "group"
    pairs_in_batch: Annotated[bool, OF_SETS] = False
    wording: str = "plain"

    task: ClassVar[str] = "vqa"
    chosen_by: ClassVar[str | None] = "task=vqa"
    learnt: ClassVar[str] = "questions"

    @property
    def on_world(self) -> bool:
        """Whether a set is a part of an embedded world."""
        return any(is_questions(name) for name in self.question_sets if name)

    @property
    def read_pairs(self) -> str | None:
        """``None``: counterfactual questions are about unedited images."""
        return None

    @property
    def question_sets(self) -> tuple[str | None, str | None]:
        """The sets whose basic and counterfactual questions are read; ``None`` reads none."""
        basic, counterfactual = self.needed
        return (
            self.real if basic else None,
            (self.counterfactual or self.real) if counterfactual else None,
        )


def data_seed(seed: int) -> int:
    """Return the data seed for a run's seed, as the papers pair them (107 and 108)."""
    return seed + 1


# The opened sources that data settings name.


@dataclass(frozen=True)
class Sources:
    """The opened sources of data settings; ``None`` for a source that is not needed."""

    real: Index | None
    counterfactual: Index | None
    control: Index | None = None
    labels: Labels | None = None
