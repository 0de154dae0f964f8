"""The data that people are asked about, and the files of their answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError, say

if TYPE_CHECKING:
    from cfaug.annotation.assignment import Assignment
    from cfaug.annotation.caption_form import CaptionForm, Preference
    from cfaug.annotation.findings import Findings
    from cfaug.annotation.forms import Form
    from cfaug.annotation.question import AnnotationQuestion, ImageItem
    from cfaug.annotation.simulate import Causes
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
        from cfaug.annotation.caption_form import Preference
        from cfaug.annotation.forms import Form
        from cfaug.annotation.question import QuestionReview

        if isinstance(question, QuestionReview):
            return question.items(self.index)
        if isinstance(question, Form):
            return question.items(self.index, seed)
        if isinstance(question, Preference):
            return question.items_of_two(self.index, self.open(other_folder(question)))
        return items_of(self.index, question)


def other_folder(question: Preference) -> str:
    """Return the folder of the method that the question compares with."""
    if question.against is None:
        raise UserError(
            "annotate.question.against=FOLDER: name the sets of the method that "
            f"{question.captions[0]} is compared with"
        )
    return question.against


def refuse_form(question: object, mode: str) -> None:
    """Refuse a form where one question is needed.

    Args:
        mode: the name of the choice in ``conf/annotate``, such as ``taxonomy``.
    """
    from cfaug.annotation.forms import Form

    if isinstance(question, Form):
        raise UserError(
            f"annotate={mode} is about one question with answers to choose from, and "
            f"{question.title!r} is a form that people fill in: "
            "use annotate=export or annotate=read"
        )


def find_answer_files(patterns: Sequence[str]) -> list[str]:
    """Return the files of answers that match names and patterns."""
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
        patterns: files of answers, or patterns of their names.
        items: all items that could be asked about.
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


# ``evaluate.py annotate=simulate``: answers of simulated annotators, to try the tool.


@dataclass(frozen=True)
class Simulate:
    """Write answers of simulated annotators, from the world's oracle, to try the tool.

    Args:
        out: the folder for ``answers-simulated-<n>.jsonl`` and ``categories-simulated-1.jsonl``.
        question: the question to answer, or a form about captions.
        category_question: the question that sorts the rejected images.
        assignment: the distribution of the images over annotators; its seed also draws mistakes and
            the images to sort.
        mistakes: share of wrong answers.
        sorted_errors: number of rejected images that are sorted into categories.
        causes: the categories of these images.
    """

    out: str
    question: AnnotationQuestion | CaptionForm
    category_question: AnnotationQuestion
    assignment: Assignment
    mistakes: float
    sorted_errors: int
    causes: Causes

    def run(self, source: AnnotationSource) -> None:
        """Write the files."""
        from cfaug.annotation import simulate
        from cfaug.annotation.caption_form import CaptionForm, Preference

        question = self.question
        if not isinstance(question, CaptionForm):
            refuse_form(question, "simulate")
        items, truth = self._truth(source)
        answers = simulate.simulate_answers(
            question, items, truth, self.assignment, self.mistakes, self.assignment.seed
        )
        out = Path(self.out)
        files = [write_lines(out / f"answers-{who}.jsonl", lines) for who, lines in answers.items()]
        if not isinstance(question, Preference | CaptionForm):
            files.append(self._write_categories(question, items, truth, files))
        say("wrote " + ", ".join(map(str, files)), sys.stdout)

    def _write_categories(
        self,
        question: AnnotationQuestion,
        items: list[ImageItem],
        truth: list[str],
        files: Sequence[Path],
    ) -> Path:
        """Write the reasons why images were rejected, and return the file."""
        from cfaug.annotation import simulate

        findings = find_answers(question, list(map(str, files)), items)
        known = {item.name: label for item, label in zip(items, truth, strict=True)}
        sampled = findings.sample_rejected(self.sorted_errors, self.assignment.seed)
        lines = simulate.simulate_categories(
            findings, known, sampled, self.category_question, self.causes
        )
        return write_lines(Path(self.out) / "categories-simulated-1.jsonl", lines)

    def _truth(self, source: AnnotationSource) -> tuple[list[ImageItem], list[str]]:
        """Return the items, and the oracle's answer to each."""
        from cfaug.annotation import simulate
        from cfaug.annotation.answers import split_checks
        from cfaug.annotation.caption_form import CaptionForm, Preference
        from cfaug.data.shards.shards import read_scores

        question = self.question
        every, checks = split_checks(source.items(question, self.assignment.seed))
        items = [*self.assignment.choose_items(every), *checks]
        if isinstance(question, CaptionForm):
            scores = read_scores(Path(source.index.source))
            return _keep_known(items, question.oracle_answers(items, scores))
        if isinstance(question, Preference):
            folders = (source.index.source, other_folder(question))
            ours, theirs = (read_scores(Path(folder)) for folder in folders)
            return _keep_known(items, question.oracle_answers(items, ours, theirs))
        return items, simulate.read_truth(source.oracle(), items, question)


def _keep_known(
    items: Sequence[ImageItem], truth: Sequence[str | None]
) -> tuple[list[ImageItem], list[str]]:
    """Return the items that the oracle can answer; the others are counted in a message."""
    known = [(item, label) for item, label in zip(items, truth, strict=True) if label is not None]
    if all(item.expected for item, _ in known):
        raise UserError(
            "no set says whether its captions are true (truth_0, truth_1), as those of ShapeScapes "
            "do: let people answer (annotate=export)"
        )
    if len(known) < len(items):
        left_out = len(items) - len(known)
        say(f"the oracle cannot judge the captions of {left_out:,} questions: they are left out")
    return [item for item, _ in known], [label for _, label in known]
