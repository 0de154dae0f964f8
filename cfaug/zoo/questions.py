"""Write ShapeScapes-VQA as a question set: ``python -m cfaug.zoo.questions out=FOLDER part=test``.

``FOLDER/questions.jsonl`` is of the form that ``benchmark.data`` reads, ``FOLDER/images`` are the
pictures. The same settings give the same bytes, and more pairs begin with those of fewer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cfaug.data.exporters import write_questions
from cfaug.shapescapes.question_parts import PARTS, make_questions
from cfaug.shapescapes.settings import WorldSettings
from cfaug.validation import OneOf, Positive, check_fields
from cfaug.zoo.command import read, run


@dataclass(frozen=True, kw_only=True)
class QuestionSettings:
    """What the command takes, as ``name=value``.

    Attributes:
        out: the folder, empty or not there yet.
        part: train or test; no scene is in both.
        pairs: of pictures, five questions each; of every six pairs one is of each category.
        seed: of the world.
        image_size: side of the pictures in pixels; small shapes can be told apart from about 64.
        style: a name of ``cfaug.shapescapes.styles.STYLES``.
    """

    out: str
    part: Annotated[str, OneOf(PARTS)] = "test"
    pairs: Positive = 150
    seed: int = 0
    image_size: int = 64
    style: str = "drawing"

    def __post_init__(self) -> None:
        check_fields(self)


def main(argv: list[str]) -> int:
    """Write the questions and the pictures, and say how many."""
    given = read(QuestionSettings, argv)
    world = WorldSettings(seed=given.seed, image_size=given.image_size, style=given.style)
    size: dict[str, Any] = {PARTS[given.part]: given.pairs}
    images = make_questions(replace(world, **size), given.part)
    count = write_questions(images, Path(given.out))
    print(f"{count:,} pictures with five questions each in {given.out}")
    return 0


if __name__ == "__main__":
    run(main)
