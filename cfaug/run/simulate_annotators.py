"""``evaluate.py annotate=simulate``: answers of simulated annotators, to try the tool."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cfaug.core.errors import UserError
from cfaug.core.messages import say
from cfaug.run.annotation_source import (
    AnnotationSource,
    find_answers,
    other_folder,
    refuse_form,
    write_lines,
)

if TYPE_CHECKING:
    from cfaug.annotation.assignment import Assignment
    from cfaug.annotation.caption_form import CaptionForm
    from cfaug.annotation.question import AnnotationQuestion, ImageItem
    from cfaug.annotation.simulate import Causes


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
        from cfaug.annotation.caption_form import CaptionForm
        from cfaug.annotation.preference import Preference

        question = self.question
        if not isinstance(question, CaptionForm):
            refuse_form(question, "simulate")
        items, truth = self._truth(source)
        mistakes = simulate.Mistakes(self.mistakes, self.assignment.seed)
        answers = simulate.simulate_answers(question, items, truth, self.assignment, mistakes)
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
        from cfaug.annotation.attention import split_checks
        from cfaug.annotation.caption_form import CaptionForm
        from cfaug.annotation.preference import Preference
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
    """Return the items that the oracle can answer; the others are counted in a message.

    Raises:
        UserError: if the oracle can answer none of them.
    """
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
