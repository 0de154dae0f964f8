"""All that draws and judges, in one hand; and how an image becomes bytes."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image

from cfaug.generate.settings import ImageFormat
from cfaug.protocols import ImageEditor, Scorer
from cfaug.score.select import Selection
from cfaug.types import ImageJob

Finish = Callable[[Image.Image, ImageJob], Image.Image]


@dataclass(frozen=True)
class Pipeline:
    """What a shard's images are made with.

    Attributes:
        editor: draws and decodes.
        scorer: whose cosines decide.
        select: by which thresholds.
        report: a second encoder whose cosines are recorded and decide nothing: selection and
            evaluation by the same CLIP would be circular.
        finish: applied to images that may be kept, just before they are encoded.
        image_format: what they are encoded as.
    """

    editor: ImageEditor
    scorer: Scorer
    select: Selection
    report: Scorer | None = None
    finish: Finish | None = None
    image_format: ImageFormat = "png"

    @property
    def scorers(self) -> tuple[Scorer, ...]:
        """The one that decides, and the one that reports, if there is one."""
        return (self.scorer,) if self.report is None else (self.scorer, self.report)

    def describe(self) -> dict[str, dict[str, str]]:
        """Return what every model says of itself, for the card."""
        models = {"image": self.editor.describe(), "scorer": self.scorer.describe()}
        return models if self.report is None else {**models, "report": self.report.describe()}

    def encode(self, image: Image.Image, job: ImageJob) -> bytes:
        """Finish and encode an image of a job."""
        if self.finish is not None:
            image = self.finish(image, job)
        return encode_image(image, self.image_format)


def encode_image(image: Image.Image, image_format: ImageFormat) -> bytes:
    """Encode an image without loss, or as JPEG at quality 95 without thinning out its colours."""
    how: dict[str, dict[str, object]] = {
        "png": {"compress_level": 6},
        "webp": {"lossless": True, "quality": 50, "method": 4, "exact": True},
        "jpeg": {"quality": 95, "subsampling": 0},
    }
    buffer = io.BytesIO()
    image.save(buffer, image_format, **how[image_format])
    return buffer.getvalue()
