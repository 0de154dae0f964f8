"""Write ShapeScapes-VQA as a question set: ``python -m cfaug zoo questions out=FOLDER part=test``.

``FOLDER/questions.jsonl`` has the form that ``benchmark.data`` reads, and ``FOLDER/images`` has
the pictures. The same settings give the same bytes, and a larger set begins with the smaller one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cfaug.core.validation import OneOf, Positive, Seed, check_fields
from cfaug.data.export import write_questions
from cfaug.shapescapes.question_parts import PARTS, make_questions
from cfaug.shapescapes.settings import WorldSettings
from cfaug.shapescapes.zoo.command import read


@dataclass(frozen=True, kw_only=True)
class QuestionSettings:
    """The settings of the command, given as ``name=value``.

    Attributes:
        out: the folder to write, empty or missing.
        part: ``train`` or ``test``, which have no scene in common.
        pairs: the number of pairs of pictures, each with five questions; of every six pairs one is
            of each category.
        image_size: the side of the pictures in pixels; small shapes are distinguishable from about
            64.
        style: a name of ``cfaug.shapescapes.settings.STYLES``.
    """

    out: str
    part: Annotated[str, OneOf(PARTS)] = "test"
    pairs: Positive = 150
    seed: Seed = 0
    image_size: int = 64
    style: str = "drawing"

    def __post_init__(self) -> None:
        check_fields(self)


def main(argv: list[str]) -> int:
    """Write the questions and the pictures, and print their numbers."""
    given = read(QuestionSettings, argv)
    world = WorldSettings(seed=given.seed, image_size=given.image_size, style=given.style)
    size: dict[str, Any] = {PARTS[given.part]: given.pairs}
    images = make_questions(replace(world, **size), given.part)
    count = write_questions(images, Path(given.out))
    print(f"{count:,} pictures with five questions each in {given.out}")
    return 0
