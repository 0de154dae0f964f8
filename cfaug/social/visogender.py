"""VisoGender (Hall et al., 2023): pronoun resolution and neutral retrieval for people at work.

``benchmark=visogender`` asks two questions about the same photos: whether a caption with "his" or
one with "her" is more similar to a photo (``PronounResolution``), and whose photos a caption with
"their" retrieves first (``NeutralRetrieval``). The labels are annotators' perceptions of gender
presentation, in two categories; they do not say what somebody's gender is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

import numpy as np
from annotated_types import MinLen

from cfaug.core.errors import UserError
from cfaug.core.read_with import TRAINED, ReadWith
from cfaug.core.validation import Positive, check_fields
from cfaug.data.sources.visogender import VisoGenderPhotos
from cfaug.social.neutral_retrieval import NeutralRetrieval
from cfaug.social.pronouns import ASKED, AnnotatedPhotos, PronounResolution
from cfaug.social.skew_metrics import Zeros

if TYPE_CHECKING:
    from cfaug.core.protocols import Benchmark
    from cfaug.evaluation.context import EvaluationContext

FIELDS = ("{person}", "{pronoun}", "{other}")

TEMPLATES: Mapping[str, str] = {
    "occupation": "The {person} and {pronoun} {other}",
    "participant": "The {other} and {pronoun} {person}",
}
"""Captions by the referent of the pronoun, as in the released code."""


@dataclass
class VisoGender:
    """Resolution accuracy, its gender gap, and bias of retrieval, on the user's photos.

    Args:
        data: VisoGender's tsv files, one or several.
        images: the folder of the photos, each named by its IDX, in any subfolders.
        name: the beginning of the names in tables, before "_resolution" and "_retrieval".
        batch_size: number of images or captions embedded at once.
        without_missing: whether to leave out photos that are missing or cannot be read; otherwise
            they are an error. Many URLs are dead, so nobody has all photos.
        without_leaks: whether to leave out photos that the run was trained on; otherwise they are
            only reported.
        templates: captions by the referent of the pronoun, with ``{person}`` (the occupation),
            ``{pronoun}`` and ``{other}`` (the object or participant).
        neutral_choice: offer "their" as a third caption to choose, as the released code does; it is
            never right.
        ks: numbers of photos to retrieve, K.
        zeros: the rule for a gender without any of the K photos, see ``Zeros``;
            ``one`` is the paper's rule, as if one photo showed it.

    Raises:
        UserError: if a template lacks a part, or a number is invalid.
    """

    data: str | Sequence[str] | None = None
    images: str | None = None
    name: str = "visogender"
    batch_size: Positive = 256
    without_missing: bool = False
    without_leaks: bool = False
    templates: Mapping[str, str] = field(default_factory=lambda: dict(TEMPLATES))
    neutral_choice: bool = False
    ks: Annotated[Sequence[Positive], MinLen(1)] = (5, 10)
    zeros: Zeros = "smooth"

    read_with: ClassVar[ReadWith] = {"without_leaks": {TRAINED: (True,)}}

    def __post_init__(self) -> None:
        check_fields(self, "benchmark")
        if sorted(self.templates) != sorted(ASKED):
            raise UserError(
                f"benchmark.templates has {', '.join(self.templates) or 'none'}: it should have "
                f"{' and '.join(ASKED)}"
            )
        for asked, template in self.templates.items():
            missing = [part for part in FIELDS if part not in template]
            if missing:
                raise UserError(
                    f"benchmark.templates.{asked}={template!r} is invalid: {missing[0]} is missing"
                )

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        """Open the photos, and return both questions about them.

        Raises:
            UserError: if a file or the folder is not given or cannot be read.
        """
        files = [self.data] if isinstance(self.data, str) else list(self.data or ())
        if not files or self.images is None:
            raise UserError(
                "benchmark=visogender needs benchmark.data=FILE.tsv (or a list of such files) and "
                "benchmark.images=FOLDER, in which the photos are named by their IDX, such as "
                "OO_1.jpg"
            )
        if context.read is None:
            raise UserError("benchmark=visogender cannot be run here: evaluate.py runs it")
        lists = [Path(file).expanduser() for file in files]
        index = context.read(VisoGenderPhotos(lists, self.without_missing), self.images)
        own = dataclasses.replace(context, open=lambda _: index)
        rows, leaks = None, own.leaks(self.images)
        if self.without_leaks:
            rows, leaks = own.without_leaks(self.images, None)
        photos = AnnotatedPhotos.read(index, np.arange(len(index)) if rows is None else rows)
        shared: dict[str, Any] = {
            "photos": photos, "templates": dict(self.templates), "batch_size": self.batch_size,
            "leaks": leaks,
        }  # fmt: skip
        asked: list[Any] = [
            PronounResolution(
                name=f"{self.name}_resolution", neutral_choice=self.neutral_choice, **shared
            ),
            NeutralRetrieval(
                name=f"{self.name}_retrieval", ks=tuple(self.ks), zeros=self.zeros, **shared
            ),
        ]
        return cast("list[Benchmark]", asked)
