"""A method as one object: its parts propose edits, make images, score them and select.

``conf/recipe/NAME.yaml`` describes a method; the weights come from ``conf/zoo``, by role.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.pixels import as_image
from cfaug.core.protocols import Annotator, Editor, ImageEditor, Postprocess, Scorer
from cfaug.core.read_with import GIVEN, ReadWith
from cfaug.core.types import ImageJob
from cfaug.core.validation import Positive, Seed, check_fields, check_part
from cfaug.generate.annotation import AnnotationStage
from cfaug.generate.sampling import AnyDraws
from cfaug.imaging.select import Selection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


ExamplePer = Literal["text", "image", "questions"]


def parts_of(stage: Stage) -> tuple[str, ...]:
    """Return the parts of a recipe that a stage uses; the others are not loaded.

    >>> parts_of("captions")
    ('annotators', 'texts_from', 'replace_texts', 'editor')
    """
    return {"captions": TEXT_PARTS, "images": IMAGE_PARTS, "all": TEXT_PARTS + IMAGE_PARTS}[stage]


@dataclass(frozen=True)
class Recipe:
    """A method that makes counterfactual sets.

    Args:
        name: the name of the method, for the card and for every set's provenance.
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
        selection: the thresholds, and the choice among the candidates that reach them.
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

    Raises:
        UserError: if ``example_per`` or ``set_per`` is invalid.
    """

    name: str
    editor: Editor | None = None
    annotators: Mapping[str, Annotator | None] = field(default_factory=dict)
    texts_from: str | None = None
    replace_texts: bool = False
    image_editor: ImageEditor | None = None
    draws: AnyDraws | None = None
    scorers: Mapping[str, Scorer | None] = field(default_factory=dict)
    report: Mapping[str, Scorer | None] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)
    postprocess: Postprocess | None = None
    set_per: SetPer = "proposal"
    example_per: ExamplePer = "text"
    source_images: bool = False
    count_by: str | None = None

    read_with: ClassVar[ReadWith] = {"replace_texts": {"texts_from": GIVEN}}

    def __post_init__(self) -> None:
        check_fields(self, "recipe")

    def check(self, stage: Stage) -> None:
        """Refuse a stage for which a part is missing or invalid."""
        needed = {"captions": ("editor",), "images": ("image_editor",)}
        for name in needed.get(stage, ("editor", "image_editor")):
            if getattr(self, name) is None:
                raise UserError(f"stage={stage} needs recipe.{name}, which is missing")
        _check_part("editor", self.editor, Editor)
        _check_part("image_editor", self.image_editor, ImageEditor)
        for group, protocol in _GROUPS.items():
            for name, part in getattr(self, group).items():
                _check_part(f"{group}.{name}", part, protocol)

    def annotation(self, cache: Path | None) -> AnnotationStage:
        """Return the stage that runs the annotators.

        Args:
            cache: the folder in which results are kept; ``None`` keeps them only in memory.
        """
        asked = [annotator for annotator in self.annotators.values() if annotator is not None]
        return AnnotationStage(
            asked, cache, texts_from=self.texts_from, replace_texts=self.replace_texts
        )

    def pipeline(self, image_format: ImageFormat) -> Pipeline:
        """Return the parts that make, score and encode images."""
        assert self.image_editor is not None
        return Pipeline(
            editor=self.image_editor,
            scorers={name: one for name, one in self.scorers.items() if one is not None},
            select=self.selection,
            report={name: one for name, one in self.report.items() if one is not None},
            finish=self.postprocess,
            image_format=image_format,
            set_per=self.set_per,
            count_by=self.count_by,
        )


_GROUPS = {"annotators": Annotator, "scorers": Scorer, "report": Scorer}
"""{group of parts by name: protocol of these parts}."""


def _check_part(name: str, part: object, protocol: type) -> None:
    """Refuse an object that lacks a method of its protocol."""
    if part is None or isinstance(part, protocol):
        return
    needed = [one for one in dir(protocol) if not one.startswith("_")]
    lacking = ", ".join(one for one in needed if not hasattr(part, one))
    raise UserError(
        f"recipe.{name} is invalid: {type(part).__name__} lacks {lacking}, which every "
        f"cfaug.core.protocols.{protocol.__name__} has"
    )


# The parts that make and score images, in one place; and the encoding of images.


@dataclass(frozen=True)
class Pipeline:
    """The parts that make, score and choose a shard's images.

    Attributes:
        scorers: the scorers by their names on the card; the selection can use their scores, which
            are written with the sets.
        select: the rule that selects the candidates to keep.
        report: the scorers by name whose scores are only logged: selection and evaluation by the
            same CLIP would be circular.
        finish: a function applied to images that may be kept, just before they are encoded;
            ``None`` leaves them unchanged.
        set_per: ``proposal`` for a set of each proposal, ``example`` to join those of one example.
        count_by: the name of an entry of examples, such as ``grid``, by whose values accepted
            candidates are counted; ``None`` does not count them by values.
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
        scorers = {**self.scorers, **self.report}
        about = {name: scorer.describe() for name, scorer in scorers.items()}
        return {"image": self.editor.describe(), **about}

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


# Settings of one process and of its shards, set by the configuration; no heavy imports.

ImageFormat = Literal["png", "webp", "jpeg"]
Stage = Literal["captions", "images", "all"]
SetPer = Literal["proposal", "example"]
TEXT_PARTS = ("annotators", "texts_from", "replace_texts", "editor")
"""The parts of a recipe that decide the proposals."""
IMAGE_PARTS = (
    "image_editor", "draws", "scorers", "report", "selection", "postprocess", "set_per", "count_by"
)  # fmt: skip
"""The parts of a recipe that decide the images."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings of one process: its stage, its part of the shards, its handling of failures.

    Args:
        stage: ``captions`` (edits only), ``images`` (from existing edits), or ``all``.
        part: the number of this process's part: it makes every shard i with i % ``parts`` = part.
        publish_incomplete: whether to publish a shard without its failed items, and list them;
            otherwise the shard is not published, and the next run retries them.
        overwrite: whether to remove the output of other settings from the folder.
        pipeline_scoring: whether a batch is scored in a second thread while the next one is made,
            which saves time if images are made on a GPU.
    """

    stage: Stage = "all"
    seed: Seed = 0
    part: int = 0
    parts: int = 1
    publish_incomplete: bool = False
    overwrite: bool = False
    pipeline_scoring: bool = False

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

    Raises:
        UserError: for a count below 1, or an unknown format.
    """

    sets_per_shard: Positive = 100
    image_format: ImageFormat = "png"
    batch: Positive = 64

    def __post_init__(self) -> None:
        check_fields(self, "shards")
