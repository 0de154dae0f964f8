"""Questions to an ``Answerer`` about images, and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cfaug.core.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

    from cfaug.core.types import OptionScore


@dataclass(frozen=True)
class Demonstration:
    """A solved example that stands before a question.

    Attributes:
        question: the text of the example's question.
        answer: the text that follows the question, such as a rationale and the answer.
        image: the RGB image; ``None`` for an example in words alone.
    """

    question: str
    answer: str
    image: Image | None = None


@dataclass(frozen=True)
class Question:
    """A question about an image, and the options that are ranked as its answer.

    Attributes:
        text: the question, without options or image.
        demonstrations: the solved examples, in the order in which they are shown.
        opening: the beginning of the answer before an option, such as a rationale that the model
            wrote; it is not scored.
    """

    text: str
    options: tuple[str, ...] = ()
    demonstrations: tuple[Demonstration, ...] = ()
    opening: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple(self.options))
        object.__setattr__(self, "demonstrations", tuple(self.demonstrations))
        if not self.text.strip():
            raise UserError("a question is empty")
        for number, option in enumerate(self.options):
            if not option.strip():
                raise UserError(f"the question {self.text!r}: option {number} is empty")


@dataclass(frozen=True)
class Answered:
    """A model's result for a question.

    Attributes:
        scores: the score of each option, in order; empty if the question was left out.
        left_out: the reason why the question was left out, a short text that is counted; otherwise
            empty.
        text: the text that the model wrote; ``None`` if it should not, or the question was
            left out.
    """

    scores: tuple[OptionScore, ...] = ()
    left_out: str = ""
    text: str | None = None
