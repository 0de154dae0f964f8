"""``evaluate.py annotate=...``: pages for annotators, their answers read or simulated."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cfaug.core.binding import GIVEN, ReadWith
from cfaug.core.errors import UserError, say
from cfaug.core.validation import Seed, check_fields
from cfaug.planning.build import build
from cfaug.planning.sources import say_source
from cfaug.run.annotation_source import (
    AnnotationSource,
    find_answer_files,
    find_answers,
    refuse_form,
    write_lines,
)
from cfaug.run.launch import DONE

if TYPE_CHECKING:
    from cfaug.annotation.assignment import Assignment
    from cfaug.annotation.findings import Analysis, Findings, ReportSection
    from cfaug.annotation.forms import Form
    from cfaug.annotation.question import AnnotationQuestion, ImageItem
    from cfaug.annotation.record import Sorting
    from cfaug.data.index import Index

LABELS = "labels.jsonl"


def annotation(
    node: Mapping[str, Any],
    data: Mapping[str, Any],
    seed: int,
    paths: Mapping[str, Any],
) -> int:
    """Carry out a node of ``conf/annotate`` with the pairs of ``data.counterfactual``.

    Args:
        node: the node of ``conf/annotate``.
        data: the node ``data``.
        seed: the seed of the world, if ``data`` has none.
        paths: the folders ``shards``, ``cache`` and ``image_roots``.
    """
    from cfaug.core.weights import is_world
    from cfaug.planning.sources import label_file, open_source, permitted_roots

    if "_target_" not in node:
        raise UserError("annotate=... is one of export, taxonomy, read, simulate")
    settings = build(data).with_seed(seed)
    name, shards = settings.counterfactual, Path(paths["shards"])
    if name is None:
        raise UserError("annotate=... asks about the pairs of data.counterfactual: name a folder")

    def oracle() -> Path:
        if not is_world(name):
            raise UserError(
                "annotate=simulate asks the embedded world's oracle, which knows nothing of "
                f"{name}: leave data.counterfactual as it is, or let people answer "
                "(annotate=export)"
            )
        return label_file(name, settings.world, settings.seed, shards)

    cache, roots = Path(paths["cache"]), permitted_roots(paths)

    def open_other(other: str) -> Index:
        return open_source(other, settings.world, settings.seed, shards, cache, roots)

    index = open_other(name)
    say_source("pairs", name, index)
    source = AnnotationSource(
        name=name if is_world(name) else Path(name).resolve().name,
        index=index,
        oracle=oracle,
        open=open_other,
    )
    build(node).run(source)
    return DONE


@dataclass(frozen=True)
class Export:
    """Write the page that asks annotators a question.

    Args:
        out: the page to write, an .html file.
        question: the question to ask, or a form of several.
        assignment: the distribution of the images over annotators.
        screening: a file of images with known answers, which everyone is asked about; ``None`` for
            no such images, and for a form.
        pages: ``one`` page for everybody, or one for ``each``, with the annotator's number.
        side: longest side of the pictures, in pixels.

    Raises:
        UserError: naming a setting that is invalid.
    """

    out: str
    question: AnnotationQuestion | Form
    assignment: Assignment
    screening: str | None
    pages: Literal["one", "each"]
    side: int

    def __post_init__(self) -> None:
        check_fields(self, "annotate")
        if Path(self.out).suffix != ".html":
            raise UserError(f"annotate.out={self.out}: the page is an .html file")

    def run(self, source: AnnotationSource) -> None:
        """Write the page or pages, and say how many questions there are."""
        from cfaug.annotation.page import share_out, write_questions

        items, everyone = self._items(source)
        title = f"{self.question.title} {source.name}"
        examples = self._examples(source)
        questions = share_out(self.question, items, self.assignment, title, everyone, examples)
        out = Path(self.out)
        pages: list[tuple[Path, list[str] | None]] = [(out, None)]
        if self.pages == "each":
            pages = [(out.with_stem(f"{out.stem}-{who}"), [who]) for who in questions.orders]
        for file, people in pages:
            written = write_questions(
                questions, file, source.index.read_image, side=self.side, annotators=people
            )
            say(f"wrote {written} ({written.stat().st_size / 2**20:.1f} MiB)", sys.stdout)
        asked = sum(map(len, questions.orders.values()))
        several = len(self.assignment.choose_overlap(items))
        say(
            f"{asked:,} questions about {len(items):,} images, {several:,} of them to "
            f"{self.assignment.annotators_per_item} people, for {self.assignment.annotators} "
            f"annotators{f'; {len(everyone):,} to everyone' if everyone else ''}",
            sys.stdout,
        )

    def _examples(self, source: AnnotationSource) -> Sequence[ImageItem]:
        """Return the instructions, shown before the first question."""
        from cfaug.annotation.caption_form import CaptionForm

        if not isinstance(self.question, CaptionForm):
            return ()
        return self.question.example_items(source.index, self.assignment.seed)

    def _items(self, source: AnnotationSource) -> tuple[list[ImageItem], set[int]]:
        """Return the images to ask about, and the places of those that go to everyone."""
        from cfaug.annotation.answers import read_known, split_checks
        from cfaug.annotation.forms import Form

        items, checks = split_checks(source.items(self.question, self.assignment.seed))
        drawn: Sequence[ImageItem] = items
        if not isinstance(self.question, Form):  # a form has drawn its own
            drawn = self.question.draw(items, self.assignment.seed)
        chosen = {item.name for item in self.assignment.choose_items(drawn)}
        known = {item.name for item in checks}
        if self.screening is not None:
            if isinstance(self.question, Form):
                raise UserError(
                    f"annotate.screening={self.screening} needs answers that are known; those to a "
                    "form are opinions: leave it out"
                )
            places = read_known(Path(self.screening), items, self.question)
            known |= {items[i].name for i in places}
        asked = [item for item in (*items, *checks) if item.name in chosen or item.name in known]
        return asked, {i for i, item in enumerate(asked) if item.name in known}


@dataclass(frozen=True)
class Taxonomy:
    """Write the page on which rejected images are sorted into categories.

    Args:
        out: the page to write, an .html file.
        question: the question that was asked about the images.
        category_question: the question that sorts the rejected images.
        answers: files of answers, or patterns of their names.
        sample: number of rejected images to sort, drawn at random.
        seed: the seed of the random draw.
        side: longest side of the pictures, in pixels.
    """

    out: str
    question: AnnotationQuestion
    category_question: AnnotationQuestion
    answers: Sequence[str]
    sample: int
    seed: Seed
    side: int

    def run(self, source: AnnotationSource) -> None:
        """Write the page."""
        from cfaug.annotation.page import ask_one, write_questions

        refuse_form(self.question, "taxonomy")
        findings = find_answers(self.question, self.answers, source.items(self.question))
        sampled = findings.sample_rejected(self.sample, self.seed)
        questions = ask_one(
            self.category_question,
            [findings.items[i] for i in sampled],
            [f"The marked image was labelled: {findings.said_of(i)}." for i in sampled],
            f"{self.category_question.title} {source.name}",
        )
        written = write_questions(
            questions, Path(self.out), source.index.read_image, side=self.side
        )
        say(f"wrote {written}: {len(sampled):,} of {len(findings.rejected):,} errors", sys.stdout)


@dataclass(frozen=True)
class ReadAnswers:
    """Read answers back: labels, agreement, a record for tables, and a page that shows them.

    For a form, the means by kind of edit are computed, and only ``out``, ``question`` and
    ``answers`` are used.

    Args:
        out: the folder for ``labels.jsonl`` (for ``data.human_labels``), ``annotation.json`` (for
            the tables) and ``annotation.html``; for a form ``ratings.json`` and ``ratings.html``.
        question: the question that was asked, or the form of several.
        category_question: the question that sorted the rejected images.
        answers: files of answers, or patterns of their names.
        categories: files of categories of rejected images; an empty list reads none.
        screening: a file of images with known answers; ``None`` keeps every annotator.
        screening_minimum: share of correct answers to these below which annotators are left out.
        analyses: further analyses, each a section of the report.
    """

    out: str
    question: AnnotationQuestion | Form
    category_question: AnnotationQuestion
    answers: Sequence[str]
    categories: Sequence[str]
    screening: str | None
    screening_minimum: float
    analyses: Mapping[str, Analysis]

    read_with: ClassVar[ReadWith] = {"screening_minimum": {"screening": GIVEN}}

    def run(self, source: AnnotationSource) -> None:
        """Write all files, and print the findings."""
        from cfaug.annotation.forms import Form

        if isinstance(self.question, Form):
            _read_form(self.question, self.answers, source, Path(self.out))
        else:
            self._read_question(self.question, source)

    def _read_question(self, question: AnnotationQuestion, source: AnnotationSource) -> None:
        from cfaug.annotation.page import sentences, write_report
        from cfaug.annotation.record import are_simulated, record_of, write_record

        findings = find_answers(question, self.answers, source.items(question))
        findings = _leave_out_inattentive(findings)
        if self.screening is not None:
            findings = self._screen(findings, Path(self.screening))
        sorting = self._sorting(findings)
        simulated = are_simulated(findings)
        sections = self._sections(findings, simulated, source)
        record = record_of(findings, sorting, source.name, source.index.read_image, sections)
        out = Path(self.out)
        written = [
            write_lines(out / LABELS, findings.label_lines()),
            write_record(record, out),
            write_report(record, findings, sorting, sections, out),
        ]
        for line in sentences(record, question, self.category_question, sections):
            say(line, sys.stdout)
        say("wrote " + ", ".join(map(str, written)), sys.stdout)

    def _sections(
        self, findings: Findings, simulated: bool, source: AnnotationSource
    ) -> list[ReportSection]:
        """Return the question's own counts, then the results of the analyses."""
        from cfaug.annotation.assignment import count_strata, illustrate
        from cfaug.annotation.caption_form import Preference
        from cfaug.annotation.findings import Selective

        question = findings.question
        sections = [] if question.strata is None else [count_strata(findings, question.strata)]
        if isinstance(question, Preference):
            sections.append(question.count(findings))
        if question.illustrated:
            sections.append(illustrate(findings, source.index.read_image))
        for name, one in self.analyses.items():
            if isinstance(one, Selective) and not one.concerns(findings):
                say(f"annotate.analyses.{name} is left out: it is not about such sets")
            elif one:
                sections.append(one.analyse(findings, simulated))
        return sections

    def _screen(self, findings: Findings, file: Path) -> Findings:
        from cfaug.annotation.answers import Screening, read_known

        known = read_known(file, findings.items, findings.question)
        kept, failed = Screening(known, self.screening_minimum).screen(findings.answers)
        for name, share in failed.items():
            say(f"annotator {name} is left out: {100 * share:.0f} % right on {file}", sys.stdout)
        return replace(findings, answers=kept)

    def _sorting(self, findings: Findings) -> Sorting:
        from cfaug.annotation.answers import answer_files, read_answers
        from cfaug.annotation.record import Sorting

        files, question = answer_files("categories", self.categories), self.category_question
        if not files:
            return Sorting(question)
        choices = read_answers(files, findings.items, field=question.field, choices=question.labels)
        return Sorting(question, choices)


def _read_form(form: Form, patterns: Sequence[str], source: AnnotationSource, out: Path) -> None:
    """Read forms, write a summary of their answers, and print it."""
    from cfaug.annotation.ratings import (
        leave_out_inattentive,
        read_ratings,
        sentences,
        summarise_ratings,
        write_ratings,
        write_ratings_page,
    )

    items = replace(form, per_kind=None).items(source.index)
    ratings = read_ratings(find_answer_files(patterns), items, form)
    ratings, failed = leave_out_inattentive(ratings, items, form)
    _say_failed(failed)
    found = summarise_ratings(ratings, items, form, source.name)
    written = [write_ratings(found, out), write_ratings_page(found, out)]
    for line in sentences(found):
        say(line, sys.stdout)
    say("wrote " + ", ".join(map(str, written)), sys.stdout)


def _leave_out_inattentive(findings: Findings) -> Findings:
    """Return the answers of annotators who passed every attention check, without the checks."""
    from cfaug.annotation.answers import require_somebody, who_failed

    failed = who_failed(findings.answers, findings.items)
    kept = [
        answer
        for answer in findings.answers
        if answer.annotator not in failed and not findings.items[answer.item].expected
    ]
    require_somebody(failed, kept)
    _say_failed(failed)
    return replace(findings, answers=kept)


def _say_failed(failed: Mapping[str, float]) -> None:
    for name, share in failed.items():
        said = f"{100 * share:.0f} % of the attention checks answered correctly"
        say(f"annotator {name} is left out: {said}", sys.stdout)
