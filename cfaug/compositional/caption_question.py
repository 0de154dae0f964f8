"""The wording of the question to a model whether a caption is true of an image."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from cfaug.core.errors import UserError
from cfaug.core.prompt_files import find_prompt_file, read_keys

CAPTION = "{caption}"
SHIPPED = ("plain", "vqascore", "caption")

_PLACES = re.compile(r"\{\w*\}")


@dataclass(frozen=True)
class CaptionQuestion:
    """A question and an answer; the likelihood of the answer is the caption's score.

    Attributes:
        question: a template, with ``{caption}`` once unless the answer has it.
        answer: a template, with ``{caption}`` once unless the question has it.
    """

    question: str
    answer: str

    def ask(self, caption: str) -> tuple[str, str]:
        """Return the question about a caption, and the answer whose likelihood is its score.

        >>> CaptionQuestion("Does this picture show: {caption}?", "Yes").ask("a {red} dog")
        ('Does this picture show: a {red} dog?', 'Yes')
        """
        return self.question.replace(CAPTION, caption), self.answer.replace(CAPTION, caption)


def read_caption_question(name: str) -> CaptionQuestion:
    """Read a shipped question or your own YAML file.

    >>> read_caption_question("caption").answer
    '{caption}'

    Args:
        name: one of ``SHIPPED``, or a path.

    Raises:
        UserError: if there is no such file, or its keys or placeholders are wrong.
    """
    file = find_prompt_file(
        name, SHIPPED, "compositional/caption_questions", "benchmark.question",
        "the keys question and answer",
    )  # fmt: skip
    wanted = [one.name for one in fields(CaptionQuestion)]
    found = read_keys(file, wanted)
    for key in wanted:
        if not isinstance(found[key], str) or not found[key].strip():
            raise UserError(f"{file}: {key} should be a text, not {found[key]!r}")
    places = [place for key in wanted for place in _PLACES.findall(found[key])]
    if places != [CAPTION]:
        raise UserError(
            f"{file} should have {CAPTION} once, in the question or in the answer, and no other "
            f"placeholder; it has {', '.join(places) or 'none'}"
        )
    return CaptionQuestion(**found)
