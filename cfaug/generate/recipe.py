"""A method as one object: its parts propose edits, make images, score them and select.

``conf/recipe/NAME.yaml`` describes a method; the weights come from ``conf/zoo``, by role.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from cfaug.core.errors import UserError
from cfaug.core.protocols import Annotator, Editor, ImageEditor, Postprocess, Scorer
from cfaug.core.read_with import GIVEN, ReadWith
from cfaug.core.validation import check_fields
from cfaug.generate.annotation import AnnotationStage
from cfaug.generate.pipeline import Pipeline
from cfaug.generate.sampling import AnyDraws
from cfaug.generate.settings import IMAGE_PARTS, TEXT_PARTS, ImageFormat, SetPer, Stage
from cfaug.imaging.select import Selection

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
        """Refuse a stage for which a part is missing or invalid.

        Raises:
            UserError: if a part is missing or invalid; it names the part.
        """
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

        Raises:
            UserError: if two annotators have the same name.
        """
        asked = [one for one in self.annotators.values() if one is not None]
        return AnnotationStage(
            asked, cache, texts_from=self.texts_from, replace_texts=self.replace_texts
        )

    def pipeline(self, image_format: ImageFormat) -> Pipeline:
        """Return the parts that make, score and encode images.

        Raises:
            UserError: if two scores have the same name, or the selection uses a score that no
                scorer gives.
        """
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
    """Refuse an object that lacks a method of its protocol.

    Raises:
        UserError: if a method is missing; it names the part and the method.
    """
    if part is None or isinstance(part, protocol):
        return
    needed = [one for one in dir(protocol) if not one.startswith("_")]
    lacking = ", ".join(one for one in needed if not hasattr(part, one))
    raise UserError(
        f"recipe.{name} is invalid: {type(part).__name__} lacks {lacking}, which every "
        f"cfaug.core.protocols.{protocol.__name__} has"
    )
