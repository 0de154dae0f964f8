"""A second model that answers proposed questions, to find answers that the image contradicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cfaug.core.devices import check_device, choose_device
from cfaug.core.errors import RejectedError, UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Answerer
from cfaug.core.question_sets import AskedQuestion
from cfaug.core.questions import Question
from cfaug.core.types import SourceImage
from cfaug.generate.annotators import BROKEN_PHOTO

if TYPE_CHECKING:
    from cfaug.models.checkpoints import Checkpoint

OTHERWISE, NO_ANSWER = "second model answers otherwise", "second model has no answer"
DEVICE = "device of the question judge"


@dataclass(frozen=True)
class AnswererJudge:
    """Rejects questions that a vision-language model answers differently (answer ranking).

    The model should be neither the one that wrote the questions nor one that is tested later,
    because a selection of questions that a model answers correctly favours that model.

    Args:
        model: the specification of a model that provides an Answerer, such as
            ``conf/model/vlm.yaml``.
        device: a name for ``choose_device``; ``auto`` is CUDA where there is one.
    """

    model: Checkpoint
    device: str = "auto"

    def __post_init__(self) -> None:
        check_device(self.device, DEVICE)

    @cached_property
    def _answerer(self) -> Any:
        device = choose_device(self.device, DEVICE)
        loaded: Any = self.model.load(Answerer)
        return loaded.to(device)

    def judge(self, image: SourceImage | None, questions: Sequence[AskedQuestion]) -> list[str]:
        """Return the reason to reject each question; empty if the model gives the same answer.

        Args:
            image: the image of the questions; ``None`` asks without an image.
            questions: the questions with their options and answers.

        Raises:
            RejectedError: if the image cannot be decoded.
        """
        if not questions:
            return []
        asked = [Question(one.text, one.options) for one in questions]
        (answers,) = self._answerer.answer([_decode(image)], [asked])
        found = []
        for one, answer in zip(questions, answers, strict=True):
            means = [score.mean_nll for score in answer.scores]
            chosen = means.index(min(means)) if means else None
            found.append(NO_ANSWER if chosen is None else OTHERWISE * (chosen != one.answer))
        return found

    def describe(self) -> dict[str, str]:
        """Return the model with its settings, and the hash of its weights, for the card."""
        return {"question_judge": f"{self.model} sha256:{self.model.weights_hash()}"}


def _decode(image: SourceImage | None) -> Any:
    try:
        return None if image is None else decode_image(image.read(), "the image of a question")
    except UserError as error:
        raise RejectedError(BROKEN_PHOTO, str(error)) from error
