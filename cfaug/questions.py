"""Questions about images as models are asked them: options, and solved examples before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cfaug.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

    from cfaug.types import OptionScore


@dataclass(frozen=True)
class Demonstration:
    """A solved example that stands before a question.

    Attributes:
        question: its text.
        answer: what follows it, such as a rationale and the answer.
        image: RGB; ``None`` for an example in words alone.
    """

    question: str
    answer: str
    image: Image | None = None


@dataclass(frozen=True)
class Question:
    """A question about an image, and the options that are ranked as its answer.

    Attributes:
        text: the question, without options or image.
        options: any number.
        demonstrations: solved examples, in the order in which they are shown.
        opening: what the answer begins with before an option, such as a rationale that the model
            wrote; it is not scored.

    Raises:
        UserError: if the question or an option is empty.
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
    """What a model made of a question.

    Attributes:
        scores: of each option, in order; none where the question was left out.
        left_out: why it was, a short text that is counted; empty otherwise.
        text: what the model wrote; ``None`` where it was not to, or the question was left out.
    """

    scores: tuple[OptionScore, ...] = ()
    left_out: str = ""
    text: str | None = None
