"""The steps of ``cfaug annotate``: pages for annotators, their answers read or simulated."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cfaug.core.errors import UserError, say
from cfaug.core.outputs import check_output
from cfaug.core.validation import Seed, check_fields
from cfaug.settings.read_if import GIVEN, Fact, ReadIf

if TYPE_CHECKING:
    from cfaug.annotation.assignment import Assignment
    from cfaug.annotation.findings import Analysis, Findings
    from cfaug.annotation.forms import CaptionForm, Form, Preference
    from cfaug.annotation.question import AnnotationQuestion
    from cfaug.annotation.records import ImageItem
    from cfaug.annotation.simulation import Causes
    from cfaug.data.index import Index


QUESTION = Fact(
    {
        "question": "a question (annotate/question=which_caption, ...), not with a form",
        "images": "a question about images, not with one about captions",
    }
)
"""The kind of question to people."""
# Settings of a question that some steps do not read.
IN_TEXTS = ReadIf("by cfaug annotate export and read", of="text")
IN_EXPORTS = ReadIf("by cfaug annotate export", of="strata.each examples balanced")
IN_DRAWS = ReadIf("by cfaug annotate export and simulate", of="per_kind")
IN_READING = ReadIf(
    "by cfaug annotate read", of="image_sets accepted_as groups reference illustrated"
)
IN_REPORTS = ReadIf("by cfaug annotate read and taxonomy", of="reported")
IN_ANSWERS = ReadIf("by cfaug annotate read and taxonomy and simulate", of="accepted")


@dataclass(frozen=True)
class AnnotationSource:
    """The data of the questions to people.

    Attributes:
        name: the data's name on pages and in tables: the part of the world, or the folder's name.
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
        from cfaug.annotation.forms import Form, Preference
        from cfaug.annotation.question import QuestionReview

        if isinstance(question, QuestionReview):
            return question.items(self.index)
        if isinstance(question, Form):
            return question.items(self.index, seed)
        if isinstance(question, Preference):
            return question.items_of_two(self.index, self.open(_other_folder(question)))
        return items_of(self.index, question)


def _other_folder(question: Preference) -> str:
    """Return the folder of the method that the question compares with."""
    if question.against is None:
        raise UserError(
            "annotate.question.against=FOLDER: name the sets of the method that "
            f"{question.captions[0]} is compared with"
        )
    return question.against


def _refuse_form(question: object, mode: str) -> None:
    """Refuse a form where one question is needed.

    Args:
        mode: the name of the choice in ``conf/annotate``, such as ``taxonomy``.
    """
    from cfaug.annotation.forms import Form

    if isinstance(question, Form):
        raise UserError(
            f"cfaug annotate {mode} is about one question with answers to choose from, and "
            f"{question.title!r} is a form that people fill in: "
            "use cfaug annotate export or cfaug annotate read"
        )


def _find_answer_files(patterns: Sequence[str]) -> list[str]:
    """Return the files of answers that match names and patterns."""
    from cfaug.annotation.answers import answer_files

    files = answer_files("answers", patterns)
    if not files:
        raise UserError(
            f"no file of answers matches {', '.join(patterns) or '[]'}: put the files that "
            "annotators downloaded there, or name them in annotate.answers=[...]"
        )
    return files


def _find_answers(
    question: AnnotationQuestion, patterns: Sequence[str], items: Sequence[ImageItem]
) -> Findings:
    """Return the answers to a question.

    Args:
        items: all items that questions could be about.
    """
    from cfaug.annotation.answers import read_answers
    from cfaug.annotation.findings import Findings

    files = _find_answer_files(patterns)
    answers = read_answers(
        files, items, field=question.field, choices=question.labels, offers=question.offers
    )
    return Findings(question, items, answers)


def _write_lines(file: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    """Write records as JSON lines, whole or not at all, and return the file."""
    from cfaug.report.page import write_page

    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return write_page(file, text)


@dataclass(frozen=True)
class Export:
    """Write the page that asks annotators a question, or a form of several.

    Args:
        out: the page to write, an .html file.
        screening: a file of images with known answers, which everyone answers; ``None`` for
            no such images, and for a form.
        side: longest side of the pictures, in pixels.

    Raises:
        UserError: naming a setting that is invalid.
    """

    out: str
    question: Annotated[AnnotationQuestion | Form, IN_READING, IN_REPORTS, IN_ANSWERS]
    """the question, or form of several"""
    assignment: Assignment
    """who labels which images"""
    screening: Annotated[str | None, ReadIf({QUESTION: ("question",)})]
    pages: Literal["one", "each"]
    """``one`` page for everybody, or ``each``: a page for every annotator"""
    side: int

    def __post_init__(self) -> None:
        check_fields(self, "annotate")
        if Path(self.out).suffix != ".html":
            raise UserError(f"annotate.out={self.out}: the page is an .html file")

    def run(self, source: AnnotationSource) -> list[Path]:
        """Write the page or pages, say how many questions there are, and return the files."""
        from cfaug.annotation.answers import read_known, split_checks
        from cfaug.annotation.forms import CaptionForm, Form
        from cfaug.annotation.page import QUESTIONS_PAGE, share_out, write_questions

        check_output(Path(self.out).expanduser(), QUESTIONS_PAGE, "annotate.out")
        # The images to ask about, and the places of those that go to everyone.
        every, checks = split_checks(source.items(self.question, self.assignment.seed))
        drawn: Sequence[ImageItem] = every
        if not isinstance(self.question, Form):  # a form has drawn its own
            drawn = self.question.draw(every, self.assignment.seed)
        chosen = {item.name for item in self.assignment.choose_items(drawn)}
        known = {item.name for item in checks}
        if self.screening is not None:
            if isinstance(self.question, Form):
                raise UserError(
                    f"annotate.screening={self.screening} needs answers that are known; those to a "
                    "form are opinions: leave it out"
                )
            places = read_known(Path(self.screening), every, self.question)
            known |= {every[i].name for i in places}
        wanted = chosen | known
        items = [item for item in (*every, *checks) if item.name in wanted]
        everyone = {i for i, item in enumerate(items) if item.name in known}
        instructions: Sequence[ImageItem] = ()
        if isinstance(self.question, CaptionForm):
            instructions = self.question.example_items(source.index, self.assignment.seed)
        title = f"{self.question.title} {source.name}"
        questions = share_out(self.question, items, self.assignment, title, everyone, instructions)
        out = Path(self.out).expanduser()
        pages: list[tuple[Path, list[str] | None]] = [(out, None)]
        if self.pages == "each":
            pages = [(out.with_stem(f"{out.stem}-{who}"), [who]) for who in questions.orders]
        for file, _ in pages:
            check_output(file, QUESTIONS_PAGE, "annotate.out")
        files = [
            write_questions(
                questions, file, source.index.read_image, side=self.side, annotators=people
            )
            for file, people in pages
        ]
        for file in files:
            say(f"wrote {file} ({file.stat().st_size / 2**20:.1f} MiB)", sys.stdout)
        count = sum(map(len, questions.orders.values()))
        several = len(self.assignment.choose_overlap(items))
        say(
            f"{count:,} questions about {len(items):,} images, {several:,} of them to "
            f"{self.assignment.annotators_per_item} people, for {self.assignment.annotators} "
            f"annotators{f'; {len(everyone):,} to everyone' if everyone else ''}",
            sys.stdout,
        )
        return files


@dataclass(frozen=True)
class Taxonomy:
    """Write the page on which rejected images are sorted into categories.

    Args:
        sample: number of rejected images to sort, drawn at random.
    """

    out: str
    """the page to write, an .html file"""
    question: Annotated[AnnotationQuestion, IN_TEXTS, IN_EXPORTS, IN_DRAWS, IN_READING]
    """the question, or form of several"""
    category_question: Annotated[AnnotationQuestion, ReadIf({QUESTION: ("question",)})]
    """the question by which rejected images are sorted"""
    answers: Sequence[str]
    """files of answers, or patterns of their names"""
    sample: int
    seed: Seed
    """the seed of the sample"""
    side: int
    """longest side of the pictures, in pixels"""

    def run(self, source: AnnotationSource) -> list[Path]:
        """Write the page, and return its file."""
        from cfaug.annotation.page import QUESTIONS_PAGE, ask_one, write_questions

        _refuse_form(self.question, "taxonomy")
        check_output(Path(self.out).expanduser(), QUESTIONS_PAGE, "annotate.out")
        findings = _find_answers(self.question, self.answers, source.items(self.question))
        sampled = findings.sample_rejected(self.sample, self.seed)
        questions = ask_one(
            self.category_question,
            [findings.items[i] for i in sampled],
            [f"The marked image was labelled: {findings.said_of(i)}." for i in sampled],
            f"{self.category_question.title} {source.name}",
        )
        written = write_questions(
            questions, Path(self.out).expanduser(), source.index.read_image, side=self.side
        )
        say(f"wrote {written}: {len(sampled):,} of {len(findings.rejected):,} errors", sys.stdout)
        return [written]


_READ_FILES = ("labels.jsonl", "annotation.json", "annotation.html")
_FORM_FILES = ("ratings.json", "ratings.html")


@dataclass(frozen=True)
class ReadAnswers:
    """Read answers back: labels, agreement, a record for tables, and a page that shows them.

    For a form, the means by kind of edit are computed, and only ``out``, ``question`` and
    ``answers`` are used.

    Args:
        out: the folder for ``labels.jsonl`` (for ``data.human_labels``), ``annotation.json`` (for
            the tables) and ``annotation.html``; for a form ``ratings.json`` and ``ratings.html``.
        answers: files of answers, or patterns of their names.
        categories: files of categories of rejected images; an empty list reads none.
        screening: a file of images with known answers; ``None`` keeps every annotator.
        screening_minimum: share of correct answers to these below which annotators are left out.
        analyses: further analyses, each a section of the report.
    """

    out: str
    question: Annotated[AnnotationQuestion | Form, IN_EXPORTS, IN_DRAWS]
    """the question, or form of several"""
    category_question: Annotated[AnnotationQuestion, ReadIf({QUESTION: ("question",)})]
    """the question by which rejected images are sorted"""
    answers: Sequence[str]
    categories: Annotated[Sequence[str], ReadIf({QUESTION: ("question",)})]
    screening: Annotated[str | None, ReadIf({QUESTION: ("question",)})]
    screening_minimum: Annotated[float, ReadIf({QUESTION: ("question",), "screening": GIVEN})]
    analyses: Annotated[Mapping[str, Analysis], ReadIf({QUESTION: ("question",)})]

    def run(self, source: AnnotationSource) -> list[Path]:
        """Write all files, print the findings, and return the files."""
        from cfaug.annotation.answers import (
            Screening,
            answer_files,
            read_answers,
            read_known,
            require_somebody,
            who_failed,
        )
        from cfaug.annotation.findings import Selective, count_strata
        from cfaug.annotation.forms import Form, Preference
        from cfaug.annotation.page import sentences, write_report
        from cfaug.annotation.record import (
            Sorting,
            are_simulated,
            illustrate,
            record_of,
            write_record,
        )

        question, out = self.question, Path(self.out).expanduser()
        for name in _FORM_FILES if isinstance(question, Form) else _READ_FILES:
            check_output(out / name, name)
        if isinstance(question, Form):
            return self._read_form(question, source)
        findings = _find_answers(question, self.answers, source.items(question))
        failed = who_failed(findings.answers, findings.items)
        kept = [
            answer
            for answer in findings.answers
            if answer.annotator not in failed and not findings.items[answer.item].expected
        ]
        require_somebody(failed, kept)
        _say_failed(failed, "of the attention checks answered correctly")
        findings = replace(findings, answers=kept)
        if self.screening is not None:
            known = read_known(Path(self.screening), findings.items, question)
            kept, failed = Screening(known, self.screening_minimum).screen(findings.answers)
            _say_failed(failed, f"right on {Path(self.screening)}")
            findings = replace(findings, answers=kept)
        sorting = Sorting(self.category_question)
        files = answer_files("categories", self.categories)
        if files:
            field, choices = self.category_question.field, self.category_question.labels
            answered = read_answers(files, findings.items, field=field, choices=choices)
            sorting = Sorting(self.category_question, answered)
        # The question's own counts, then the results of the analyses.
        simulated = are_simulated(findings)
        sections = [] if question.strata is None else [count_strata(findings, question.strata)]
        if isinstance(question, Preference):
            sections.append(question.count(findings))
        if question.illustrated:
            sections.append(illustrate(findings, source.index.read_image))
        for name, analysis in self.analyses.items():
            if isinstance(analysis, Selective) and not analysis.concerns(findings):
                say(f"annotate.analyses.{name} is left out: it is not about such sets")
            elif analysis:
                sections.append(analysis.analyse(findings, simulated))
        record = record_of(findings, sorting, source.name, source.index.read_image, sections)
        written = [
            _write_lines(out / "labels.jsonl", findings.label_lines()),
            write_record(record, out),
            write_report(record, findings, sorting, sections, out),
        ]
        for line in sentences(record, question, self.category_question, sections):
            say(line, sys.stdout)
        say("wrote " + ", ".join(map(str, written)), sys.stdout)
        return written

    def _read_form(self, form: Form, source: AnnotationSource) -> list[Path]:
        from cfaug.annotation import ratings

        items = replace(form, per_kind=None).items(source.index)
        rated = ratings.read_ratings(_find_answer_files(self.answers), items, form)
        rated, failed = ratings.leave_out_inattentive(rated, items, form)
        _say_failed(failed, "of the attention checks answered correctly")
        summary = ratings.summarise_ratings(rated, items, form, source.name)
        out = Path(self.out).expanduser()
        written = [ratings.write_ratings(summary, out), ratings.write_ratings_page(summary, out)]
        for line in ratings.sentences(summary):
            say(line, sys.stdout)
        say("wrote " + ", ".join(map(str, written)), sys.stdout)
        return written


def _say_failed(failed: Mapping[str, float], reason: str) -> None:
    for name, share in failed.items():
        say(f"annotator {name} is left out: {100 * share:.0f} % {reason}", sys.stdout)


@dataclass(frozen=True)
class Simulate:
    """Write answers of simulated annotators, from the world's oracle, to try the tool.

    Args:
        out: the folder for ``answers-simulated-<n>.jsonl`` and ``categories-simulated-1.jsonl``.
        assignment: its seed also draws mistakes and the images to sort.
        mistakes: share of wrong answers.
        sorted_errors: number of rejected images that are sorted into categories.
    """

    out: str
    question: Annotated[
        AnnotationQuestion | CaptionForm, IN_TEXTS, IN_EXPORTS, IN_READING, IN_REPORTS
    ]
    """the question, or form of several"""
    category_question: Annotated[AnnotationQuestion, ReadIf({QUESTION: ("images",)})]
    """the question by which rejected images are sorted"""
    assignment: Assignment
    mistakes: float
    sorted_errors: Annotated[int, ReadIf({QUESTION: ("images",)})]
    causes: Annotated[Causes, ReadIf({QUESTION: ("images",)})]
    """the category of an error"""

    def run(self, source: AnnotationSource) -> list[Path]:
        """Write the files, and return them."""
        from cfaug.annotation.forms import CaptionForm, Preference
        from cfaug.annotation.simulation import simulate_answers, simulate_categories

        question, seed, out = self.question, self.assignment.seed, Path(self.out).expanduser()
        if not isinstance(question, CaptionForm):
            _refuse_form(question, "simulate")
        items, truth = self._truth(source)
        answers = simulate_answers(question, items, truth, self.assignment, self.mistakes, seed)
        files = [
            _write_lines(out / f"answers-{who}.jsonl", lines) for who, lines in answers.items()
        ]
        if not isinstance(question, Preference | CaptionForm):
            findings = _find_answers(question, list(map(str, files)), items)
            known = {item.name: label for item, label in zip(items, truth, strict=True)}
            sampled = findings.sample_rejected(self.sorted_errors, seed)
            lines = simulate_categories(
                findings, known, sampled, self.category_question, self.causes
            )
            files.append(_write_lines(out / "categories-simulated-1.jsonl", lines))
        say("wrote " + ", ".join(map(str, files)), sys.stdout)
        return files

    def _truth(self, source: AnnotationSource) -> tuple[list[ImageItem], list[str]]:
        """Return the items that the oracle can answer, and its answers; count the others."""
        from cfaug.annotation.answers import split_checks
        from cfaug.annotation.forms import CaptionForm, Preference
        from cfaug.annotation.simulation import read_truth
        from cfaug.data.shards.shards import read_scores

        question = self.question
        every, checks = split_checks(source.items(question, self.assignment.seed))
        items = [*self.assignment.choose_items(every), *checks]
        if isinstance(question, CaptionForm):
            truth = question.oracle_answers(items, read_scores(Path(source.index.source)))
        elif isinstance(question, Preference):
            folders = (source.index.source, _other_folder(question))
            ours, theirs = (read_scores(Path(folder)) for folder in folders)
            truth = question.oracle_answers(items, ours, theirs)
        else:
            return items, read_truth(source.oracle(), items, question)
        known = [
            (item, label) for item, label in zip(items, truth, strict=True) if label is not None
        ]
        if all(item.expected for item, _ in known):
            raise UserError(
                "no set says whether its captions are true (truth_0, truth_1), as those of "
                "ShapeScapes do: let people answer (cfaug annotate export)"
            )
        if len(known) < len(items):
            say(
                f"the oracle cannot judge the captions of {len(items) - len(known):,} questions: "
                "they are left out"
            )
        return [item for item, _ in known], [label for _, label in known]
