"""A method as one object, and the plan of its work: shards of captions, batches of candidates.

``conf/recipe/NAME.yaml`` describes a method; the weights come from ``conf/zoo``, by role.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.pixels import as_image
from cfaug.core.protocols import Annotator, Editor, ImageEditor, Postprocess, Scorer
from cfaug.core.types import Draw, Edit, ImageJob, Proposal
from cfaug.core.validation import Positive, Seed, check_fields, check_part
from cfaug.data.index.disk_format import find_repeated
from cfaug.generate.sampling import AnyDraws, Trial
from cfaug.imaging.select import Selection
from cfaug.settings.read_if import GIVEN, Condition, ReadIf

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ChoosesSets(Protocol):
    """A part that chooses among the sets of a folder, such as as many as a budget allows."""

    def choose(self, folder: Path) -> Mapping[str, Any]:
        """Return the ``keys`` of the sets to read, and how they were chosen, as JSON.

        Args:
            folder: shards of which all are made; the same shards give the same choice.
        """
        ...


ExamplePer = Literal["text", "image", "questions"]


@dataclass(frozen=True)
class Recipe:
    """A method that makes counterfactual sets.

    Args:
        editor: the editor that proposes edited texts; ``stage=images`` does not need it.
        annotators: the annotators by name, run in turn before the editor; each adds its results to
            ``Example.extra``. ``None`` in place of an annotator leaves it out.
        texts_from: the name of an annotation that is a list of texts, such as ``captions``, used as
            the texts of examples without any; ``None`` leaves the texts unchanged.
        replace_texts: whether these texts also replace the texts of examples that have some: a
            photo in a class folder has the caption "a photo of a CLASS".
        image_editor: the editor that makes the images; ``stage=captions`` does not need it.
        draws: the number of candidates of each proposal and the distribution of their random
            parameters; ``None`` for one candidate without random parameters.
        scorers: the scorers by name whose scores the selection can use; ``None`` in place of a
            scorer leaves it out.
        report: the scorers by name whose scores are only recorded: selection and evaluation by the
            same CLIP would be circular.
        postprocess: a function applied to the chosen images before they are encoded; ``None``
            leaves them unchanged.
        set_per: ``proposal`` makes a set of each proposal with a kept candidate; ``example`` joins
            them to one set for each example, of the unedited image and every edit.
        example_per: the unit of a source that becomes one example: each ``text``, with its image;
            each ``image``, with all its texts; or the ``questions`` about an image of a question
            set.
        source_images: whether examples have the image of the source; a recipe that makes images
            only from texts needs no images.
        count_by: the name of an entry of examples, such as ``grid``, by whose values accepted
            candidates are counted; ``None`` does not count them by values.
        choice: a part that chooses, when all shards are made, which sets are read as a source;
            ``None`` for all.
    """

    name: str
    """the name in file names, cards and pages"""
    editor: Editor | None = None
    annotators: Mapping[str, Annotator | None] = field(default_factory=dict)
    texts_from: str | None = None
    replace_texts: Annotated[bool, ReadIf({"texts_from": GIVEN})] = False
    image_editor: ImageEditor | None = None
    draws: AnyDraws | None = None
    scorers: Mapping[str, Scorer | None] = field(default_factory=dict)
    report: Mapping[str, Scorer | None] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)
    """which candidates are kept"""
    postprocess: Postprocess | None = None
    set_per: SetPer = "proposal"
    example_per: ExamplePer = "text"
    source_images: bool = False
    count_by: str | None = None
    choice: ChoosesSets | None = None

    def __post_init__(self) -> None:
        check_fields(self, "recipe")

    def check(self, stage: Stage) -> None:
        """Refuse a stage for which a part is missing or invalid."""
        needed = {"captions": ("editor",), "images": ("image_editor",)}
        for name in needed.get(stage, ("editor", "image_editor")):
            if getattr(self, name) is None:
                raise UserError(f"stage={stage} needs recipe.{name}, which is missing")
        parts: list[tuple[str, object, type]] = [
            ("editor", self.editor, Editor),
            ("image_editor", self.image_editor, ImageEditor),
        ]
        groups: dict[str, type] = {"annotators": Annotator, "scorers": Scorer, "report": Scorer}
        for group, protocol in groups.items():
            named = getattr(self, group).items()
            parts += [(f"{group}.{name}", part, protocol) for name, part in named]
        for name, part, protocol in parts:
            if part is None or isinstance(part, protocol):
                continue
            methods = [method for method in dir(protocol) if not method.startswith("_")]
            lacking = [method for method in methods if not hasattr(part, method)]
            if lacking:  # from Python 3.12 on, isinstance does not see what __getattr__ returns
                raise UserError(
                    f"recipe.{name} is invalid: {type(part).__name__} lacks {', '.join(lacking)}, "
                    f"which every cfaug.core.protocols.{protocol.__name__} has"
                )

    def pipeline(self, image_format: ImageFormat) -> Pipeline:
        """Return the parts that make, score and encode images."""
        assert self.image_editor is not None
        return Pipeline(
            editor=self.image_editor,
            scorers={name: scorer for name, scorer in self.scorers.items() if scorer is not None},
            select=self.selection,
            report={name: scorer for name, scorer in self.report.items() if scorer is not None},
            finish=self.postprocess,
            image_format=image_format,
            set_per=self.set_per,
            count_by=self.count_by,
        )


@dataclass(frozen=True)
class Pipeline:
    """The parts of a ``Recipe`` that make, score and choose a shard's images.

    Attributes:
        scorers: the scorers by their names on the card; their scores are written with the sets.
        finish: the recipe's ``postprocess``, applied only to images that may be kept.
    """

    editor: ImageEditor
    scorers: Mapping[str, Scorer] = field(default_factory=dict)
    select: Selection = field(default_factory=Selection)
    report: Mapping[str, Scorer] = field(default_factory=dict)
    finish: Postprocess | None = None
    image_format: ImageFormat = "png"
    set_per: SetPer = "proposal"
    count_by: str | None = None

    def __post_init__(self) -> None:
        names = self.score_names
        duplicated = sorted({name for name in names if names.count(name) > 1})
        if duplicated:
            raise UserError(
                f"duplicated scores: {', '.join(duplicated)}; give one of their scorers a prefix"
            )
        self.select.check(name for scorer in self.scorers.values() for name in scorer.names)

    @property
    def every_scorer(self) -> tuple[Scorer, ...]:
        """The scorers that the selection can use, then those whose scores are only logged."""
        return (*self.scorers.values(), *self.report.values())

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of all scores, in the order in which they are logged."""
        return tuple(name for scorer in self.every_scorer for name in scorer.names)

    def describe(self) -> dict[str, dict[str, str]]:
        """Return the description of every model, for the card."""
        parts: dict[str, ImageEditor | Scorer] = {
            "image": self.editor,
            **self.scorers,
            **self.report,
        }
        return {name: part.describe() for name, part in parts.items()}

    def encode(self, image: NDArray[np.uint8] | bytes, job: ImageJob) -> bytes:
        """Finish and encode an image of a job; a file that needs no finish stays as it is."""
        if isinstance(image, bytes) and self.finish is None:
            return image
        whole = as_image(image, f"the image of {job.proposal.key!r}")
        if self.finish is not None:
            whole = self.finish(whole, job)
        return encode_image(whole, self.image_format)


def encode_image(image: Image.Image, image_format: ImageFormat) -> bytes:
    """Encode an image losslessly, or as JPEG at quality 95 without chroma subsampling."""
    how: dict[str, dict[str, object]] = {
        "png": {"compress_level": 6},
        "webp": {"lossless": True, "quality": 50, "method": 4, "exact": True},
        "jpeg": {"quality": 95, "subsampling": 0},
    }
    buffer = io.BytesIO()
    image.save(buffer, image_format, **how[image_format])
    return buffer.getvalue()


ImageFormat = Literal["png", "webp", "jpeg"]
Stage = Literal["captions", "images", "all"]
SetPer = Literal["proposal", "example"]
TEXT_PARTS = ("annotators", "texts_from", "replace_texts", "editor")
"""The parts of a recipe that decide the proposals."""
IMAGE_PARTS = (
    "image_editor", "draws", "scorers", "report", "selection", "postprocess", "set_per", "count_by"
)  # fmt: skip
"""The parts of a recipe that decide the images."""
IN_CAPTIONS: Condition = {"/stage": ("captions", "all")}
IN_IMAGES: Condition = {"/stage": ("images", "all")}


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings of one process: its stage, its part of the shards, its handling of failures."""

    stage: Stage = "all"
    """``captions``: edits only; ``images``: from edits already made; ``all``: both"""
    seed: Seed = 0
    """the seed of every draw: noise, p, guidance scale"""
    part: int = 0
    """this process makes every shard whose number has this remainder when divided by ``parts``"""
    parts: int = 1
    """the number of processes that share the shards; they are independent"""
    publish_incomplete: bool = False
    """publish a shard without its failed items, and list them; otherwise the shard waits, and
    the next run retries them"""
    overwrite: bool = False
    """start anew in a folder that was made with other settings"""
    pipeline_scoring: Annotated[bool, ReadIf(IN_IMAGES)] = False
    """score a batch in a second thread while the next one is drawn, which saves time on a GPU"""

    def __post_init__(self) -> None:
        check_fields(self)
        check_part(self.part, self.parts)


@dataclass(frozen=True)
class ShardSettings:
    """The size and format of shards, and the size of batches; all of them affect the bytes.

    Args:
        sets_per_shard: the number of examples for each shard; a shard has fewer sets if some
            examples have no proposal or no accepted candidate.
        image_format: ``png``, ``webp`` (lossless), or ``jpeg`` (quality 95, 4:4:4).
        batch: the largest number of candidates made and scored together. The plan fixes the content
            of a batch; a killed process loses at most one batch.
    """

    sets_per_shard: Positive = 100
    image_format: ImageFormat = "png"
    batch: Positive = 64

    def __post_init__(self) -> None:
        check_fields(self, "shards")


# A plan is independent of parts, processes and remaining work: shard i is captions [i S, (i + 1)
# S), and a batch is fixed by its place in the shard. Therefore the bytes are independent of them,
# too.

T = TypeVar("T")


def shard_count(captions: int, per_shard: int) -> int:
    """Return the number of shards of ``captions`` captions.

    >>> shard_count(201, 100)
    3
    """
    return -(-captions // per_shard)


def shards_of(part: int, parts: int, count: int) -> range:
    """Return the numbers of the shards that belong to a part.

    >>> list(shards_of(1, 3, 8))
    [1, 4, 7]
    """
    return range(part, count, parts)


def shard_slice(items: Sequence[T], number: int, per_shard: int) -> Sequence[T]:
    """Return the items of shard ``number``."""
    return items[number * per_shard : (number + 1) * per_shard]


@dataclass(frozen=True)
class CandidateSlice:
    """Candidates of one set that lie in the same batch.

    Attributes:
        place: the index of the set in the shard.
        first: the number of the first candidate; the others follow.
    """

    place: int
    first: int
    draws: tuple[Draw, ...]


Batch = tuple[CandidateSlice, ...]


def count_candidates(draws: AnyDraws | None) -> int:
    """Return the number of candidates of a set that is not a control."""
    return 1 if draws is None else draws.candidates


@dataclass(frozen=True)
class ShardPlan:
    """The batches of a shard's candidates, round by round.

    A round is known after the earlier ones are scored; there is only one unless p is adaptive. A
    set's later rounds depend only on that set's earlier candidates.

    Args:
        draws: the distribution of candidates' random parameters; ``None`` for one candidate of each
            set without random parameters.
        is_control: a function that returns, for a proposal's edits, whether the proposal needs only
            its first candidate.
        whole_examples: whether all sets of an example are drawn in one batch.
    """

    sets: Sequence[Proposal]
    draws: AnyDraws | None
    seed: int
    size: int
    is_control: Callable[[Iterable[Edit | None]], bool] = lambda edits: False
    whole_examples: bool = False

    def __post_init__(self) -> None:
        if self.rounds > 1 and self.whole_examples:
            raise UserError(
                "recipe.draws.p_law=adaptive(r) draws an example's candidates in rounds, and this "
                "image editor needs all of them at once: use p_law=stratified"
            )

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return 1 if self.draws is None else self.draws.learning_rounds

    def batches(
        self,
        number: int = 0,
        trials: Mapping[int, Sequence[Trial]] | None = None,
        lost: Collection[int] = (),
    ) -> list[Batch]:
        """Split the candidates of a round into batches of at most ``size``, in order.

        Candidates that share a seed stay in one batch, so that a family larger than ``size`` is a
        batch by itself; with ``whole_examples`` the same holds for an example.

        Args:
            number: the number of the round, from 0.
            trials: the earlier candidates of each set, in order, by the set's place.
        """
        trials = {} if trials is None else trials
        slices = [
            CandidateSlice(index, len(trials.get(index, ())), tuple(drawn))
            for index, proposal in enumerate(self.sets)
            if index not in lost and (drawn := self._draw(proposal, number, trials.get(index, ())))
        ]
        cut: list[list[CandidateSlice]] = [[]]
        held = 0
        together = 1 if self.draws is None else self.draws.family
        example_of = [self.sets[piece.place].example.key for piece in slices]
        of_example = Counter[str]()
        for key, piece in zip(example_of, slices, strict=True):
            of_example[key] += len(piece.draws)
        for at, (key, piece) in enumerate(zip(example_of, slices, strict=True)):
            begins = at == 0 or example_of[at - 1] != key
            for start in range(0, len(piece.draws), together):
                family = piece.draws[start : start + together]
                needed = len(family)
                if self.whole_examples:
                    needed = of_example[key] if begins and start == 0 else 0
                if held and needed and held + needed > self.size:
                    cut.append([])
                    held = 0
                held += len(family)
                last = cut[-1][-1] if cut[-1] else None
                if last is not None and last.place == piece.place:
                    cut[-1][-1] = CandidateSlice(piece.place, last.first, last.draws + family)
                else:
                    cut[-1].append(CandidateSlice(piece.place, piece.first + start, family))
        return [tuple(batch) for batch in cut if batch]

    def _draw(self, proposal: Proposal, number: int, trials: Sequence[Trial]) -> list[Draw]:
        control = self.is_control(proposal.edits)
        if self.draws is None or (control and number):
            return [] if number else [Draw(0, 0.0, 0.0)]
        key = proposal.example.key if self.draws.per_example else proposal.key
        drawn = self.draws.draw(key, self.seed, number, trials)
        return drawn[:1] if control else drawn


def digest(batch: Batch, sets: Sequence[Proposal]) -> str:
    """Return the sha256 of everything that a batch draws."""
    about: list[list[Any]] = []
    for piece in batch:
        proposal = sets[piece.place]
        image = proposal.example.image
        source = [] if image is None else [image.digest]
        draws = [[d.seed, d.p, d.cfg, *sorted(d.parameters.items())] for d in piece.draws]
        about.append([proposal.key, proposal.texts, piece.first, *source, *draws])
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()


def check_groups(groups: Callable[[], Iterable[tuple[int, Iterable[str]]]]) -> None:
    """Refuse groups that lie in several shards, because the best of each group cannot be found.

    Args:
        groups: a function that returns the number of every shard with the groups of its examples.
    """
    several = set(find_repeated(lambda: (name for _, names in groups() for name in {*names})))
    first: dict[str, int] = {}
    for number, names in groups() if several else ():
        for name in names:
            if name in several and first.setdefault(name, number) != number:
                raise UserError(
                    f"recipe.selection.per=group: group {name!r} lies in shards {first[name]:05d} "
                    f"and {number:05d}, which are made apart; sort the source by group, or change "
                    "shards.sets_per_shard"
                )
