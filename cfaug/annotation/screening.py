"""Screening: leave out annotators with too many wrong answers to images with known answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cfaug.annotation.answers import Answer
from cfaug.annotation.question import AnnotationQuestion, ImageItem
from cfaug.core.errors import UserError
from cfaug.core.validation import Share, check
from cfaug.data.sources.lists import list_records


def read_known(
    file: Path, items: Sequence[ImageItem], question: AnnotationQuestion
) -> dict[int, str]:
    """Read known answers: ``{index of the image: label}``.

    Args:
        file: a jsonl, csv or tsv file with ``key``, ``member`` and the question's field.
        items: all possible images.
        question: the question.

    Raises:
        UserError: if an image or answer is unknown, naming file and line, or if the file is empty.
    """
    places = {item.name: i for i, item in enumerate(items)}
    found: dict[int, str] = {}
    for where, record in list_records(file):
        name = f"{record.get('key')}_{record.get('member')}"
        label = record.get(question.field)
        if name not in places:
            raise UserError(f"{where}: {name[:80]!r} is not an image of the data")
        if label not in question.labels:
            raise UserError(
                f"{where}: {question.field}={label!r} is invalid: choose from "
                f"{', '.join(question.labels)}"
            )
        found[places[name]] = str(label)
    if not found:
        raise UserError(f"{file} has no known answers")
    return found


@dataclass(frozen=True)
class Screening:
    """Screens annotators by their answers to images with known answers.

    Args:
        known: {index of the image: label}.
        minimum: least share of the known images that an annotator must answer right, from 0 to 1.

    Raises:
        UserError: if the minimum is not a number from 0 to 1.
    """

    known: Mapping[int, str]
    minimum: float

    def __post_init__(self) -> None:
        check(self.minimum, Share, "annotate.screening_minimum")

    def shares(self, answers: Sequence[Answer]) -> dict[str, float]:
        """Return the share of the known images that each annotator answered right.

        Images without an answer count as wrong, as everyone was asked about them.
        """
        right = dict.fromkeys((answer.annotator for answer in answers), 0)
        for answer in answers:
            right[answer.annotator] += self.known.get(answer.item) == answer.label
        return {name: count / len(self.known) for name, count in right.items()}

    def screen(self, answers: Sequence[Answer]) -> tuple[list[Answer], dict[str, float]]:
        """Return the answers to the other images by annotators who pass, and those who fail.

        The known images are left out, as everyone answered them and they are not a random sample.

        Raises:
            UserError: if nobody passes, or no other image was answered.
        """
        shares = self.shares(answers)
        failed = {name: share for name, share in shares.items() if share < self.minimum}
        kept = [a for a in answers if a.annotator not in failed and a.item not in self.known]
        if not kept:
            raise UserError(
                f"no answers are left after screening: {len(failed)} of {len(shares)} annotators "
                f"answer less than {100 * self.minimum:g} % of the known images right; lower "
                "annotate.screening_minimum"
            )
        return kept, failed
