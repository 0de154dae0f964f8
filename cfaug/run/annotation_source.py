"""The data that people are asked about, and the files of their answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError

if TYPE_CHECKING:
    from cfaug.annotation.findings import Findings
    from cfaug.annotation.form import Form
    from cfaug.annotation.preference import Preference
    from cfaug.annotation.question import AnnotationQuestion, ImageItem
    from cfaug.data.index import Index


@dataclass(frozen=True)
class AnnotationSource:
    """The data that people are asked about.

    Attributes:
        name: the data's name on pages and in tables: the part of the world, or the folder's name.
        index: the index of the data.
        oracle: a function that returns the file of the true answers, or raises a UserError if they
            are unknown.
        open: a function that returns the index of another folder.
    """

    name: str
    index: Index
    oracle: Callable[[], Path]
    open: Callable[[str], Index]

    def items(self, question: AnnotationQuestion | Form, seed: int = 0) -> Sequence[ImageItem]:
        """Return all items of a question; ``seed`` draws the images of a form."""
        from cfaug.annotation.assignment import items_of
        from cfaug.annotation.form import Form
        from cfaug.annotation.preference import Preference
        from cfaug.annotation.question_review import QuestionReview

        if isinstance(question, QuestionReview):
            return question.items(self.index)
        if isinstance(question, Form):
            return question.items(self.index, seed)
        if isinstance(question, Preference):
            return question.items_of_two(self.index, self.open(other_folder(question)))
        return items_of(self.index, question)


def other_folder(question: Preference) -> str:
    """Return the folder of the method that the question compares with.

    Raises:
        UserError: if no folder is named.
    """
    if question.against is None:
        raise UserError(
            "annotate.question.against=FOLDER: name the sets of the method that "
            f"{question.captions[0]} is compared with"
        )
    return question.against


def refuse_form(question: object, mode: str) -> None:
    """Refuse a form where one question is needed.

    Args:
        question: the question, or a form.
        mode: the name of the choice in ``conf/annotate``, such as ``taxonomy``.

    Raises:
        UserError: if it is a form.
    """
    from cfaug.annotation.form import Form

    if isinstance(question, Form):
        raise UserError(
            f"annotate={mode} is about one question with answers to choose from, and "
            f"{question.title!r} is a form that people fill in: "
            "use annotate=export or annotate=read"
        )


def find_answer_files(patterns: Sequence[str]) -> list[str]:
    """Return the files of answers that match names and patterns.

    Raises:
        UserError: if no file matches.
    """
    from cfaug.annotation.answers import answer_files

    files = answer_files("answers", patterns)
    if not files:
        raise UserError(
            f"no file of answers matches {', '.join(patterns) or '[]'}: put the files that "
            "annotators downloaded there, or name them in annotate.answers=[...]"
        )
    return files


def find_answers(
    question: AnnotationQuestion, patterns: Sequence[str], items: Sequence[ImageItem]
) -> Findings:
    """Return the answers to a question.

    Args:
        question: the question that was asked.
        patterns: files of answers, or patterns of their names.
        items: all items that could be asked about.

    Raises:
        UserError: if there are no answers, or one is invalid.
    """
    from cfaug.annotation.answers import read_answers
    from cfaug.annotation.findings import Findings

    files = find_answer_files(patterns)
    answers = read_answers(
        files, items, field=question.field, choices=question.labels, offers=question.offers
    )
    return Findings(question, items, answers)


def write_lines(file: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    """Write records as JSON lines, whole or not at all, and return the file."""
    from cfaug.report.page import write_page

    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return write_page(file, text)
