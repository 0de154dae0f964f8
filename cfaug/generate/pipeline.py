"""The parts that make and score images, in one place; and the encoding of images."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.pixels import as_image
from cfaug.core.protocols import ImageEditor, Postprocess, Scorer
from cfaug.core.types import ImageJob
from cfaug.generate.settings import ImageFormat, SetPer
from cfaug.imaging.select import Selection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Pipeline:
    """The parts that make, score and choose a shard's images.

    Attributes:
        editor: the image editor, which makes the images.
        scorers: the scorers by their names on the card; the selection can use their scores, which
            are written with the sets.
        select: the rule that selects the candidates to keep.
        report: the scorers by name whose scores are only logged: selection and evaluation by the
            same CLIP would be circular.
        finish: a function applied to images that may be kept, just before they are encoded;
            ``None`` leaves them unchanged.
        image_format: the format of encoded images.
        set_per: ``proposal`` for a set of each proposal, ``example`` to join those of one example.
        count_by: the name of an entry of examples, such as ``grid``, by whose values accepted
            candidates are counted; ``None`` does not count them by values.

    Raises:
        UserError: if two scores have the same name, or the selection uses a score that no scorer
            gives.
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
