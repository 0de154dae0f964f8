"""Pages of human annotation: where people answer, and what they answered.

The script inserts questions and captions as text, so they are never read as markup.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfaug.annotation.assignment import Assignment
from cfaug.annotation.findings import Agreement, AnswerCounts, Findings, ReportSection
from cfaug.annotation.forms import Form
from cfaug.annotation.question import AnnotationQuestion
from cfaug.annotation.record import AnnotationRecord, Sorting
from cfaug.annotation.records import ImageItem
from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.progress import watch
from cfaug.report.charts import grouped_bars
from cfaug.report.document import plain_part
from cfaug.report.drawing import Drawing, style
from cfaug.report.page import percent, render, script_data, small_picture, write_page
from cfaug.report.plots import (
    ACCENT,
    LINE,
    PAPER,
    QUIET,
    RULE,
    SMALL,
    bar,
    lines_of,
    name_rows,
    new_axes,
    write,
)
from cfaug.stats.effects import wilson_interval

MAX_PAGE = 300 * 2**20
"""Maximum size, in bytes, of a page that browsers open without trouble."""
SIDES = (32, 1024)


PageQuestion = AnnotationQuestion | Form
"""The question of a page about an image, or a form of several."""


@dataclass(frozen=True)
class Questionnaire:
    """The content of a page for all annotators.

    Attributes:
        orders: {annotator: [(index of the image, whether its captions are in reverse order)]}.
        examples: images with captions that are shown before the questions.
        notes: a line below the pictures of each image; empty without any.
    """

    question: PageQuestion
    title: str
    items: tuple[ImageItem, ...]
    orders: Mapping[str, Sequence[tuple[int, bool]]]
    examples: tuple[ImageItem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """Return the browser's storage key for answers, which fit only these questions."""
        content = [(item.name, item.texts, self.own_options(item)) for item in self.items]
        text = json.dumps([*self.question.identity(), content], ensure_ascii=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def own_options(self, item: ImageItem) -> tuple[tuple[str, str], ...]:
        """Return (label, caption) of the captions offered as answers about an image."""
        captions = self.question.captions
        return tuple(zip(captions, item.texts, strict=True)) if captions else ()


def share_out(
    question: PageQuestion,
    items: Sequence[ImageItem],
    assignment: Assignment,
    title: str,
    to_everyone: Collection[int] = (),
    examples: Sequence[ImageItem] = (),
) -> Questionnaire:
    """Build the questionnaire of a question about images, distributed over annotators."""
    orders = assignment.distribute(items, to_everyone)

    def order(who: int, indices: Sequence[int]) -> list[tuple[int, bool]]:
        if question.balanced:
            swapped = assignment.reversed_half(who, [items[i] for i in indices])
            return [(i, items[i].name in swapped) for i in indices]
        return [(i, assignment.is_reversed(who, items[i])) for i in indices]

    shared = {str(who): order(who, indices) for who, indices in enumerate(orders, 1)}
    return Questionnaire(question, title, tuple(items), shared, tuple(examples))


def ask_one(
    question: AnnotationQuestion, items: Sequence[ImageItem], notes: Sequence[str], title: str
) -> Questionnaire:
    """Build the questionnaire of a question about images with notes for one annotator."""
    order = {"1": [(i, False) for i in range(len(items))]}
    return Questionnaire(question, title, tuple(items), order, notes=tuple(notes))


QUESTIONS_PAGE = "a page of questions for annotators"
"""What the record of outputs calls the page."""


def write_questions(
    questions: Questionnaire,
    file: Path,
    read_image: Callable[[int], bytes],
    *,
    side: int = 256,
    annotators: Iterable[str] | None = None,
) -> Path:
    """Write one page and return its path; equal questions give equal bytes.

    Args:
        read_image: a function that returns the encoded image of a row of the source.
        annotators: names of the annotators who answer on this page, which asks for their name;
            ``None`` for all.
    """
    if type(side) is not int or not SIDES[0] <= side <= SIDES[1]:
        raise UserError(f"annotate.side={side}: choose from {SIDES[0]} to {SIDES[1]} pixels")
    people = list(questions.orders if annotators is None else annotators)
    used = sorted({i for who in people for i, _ in questions.orders[who]})
    if not used:
        raise UserError(f"there is nothing to ask in {file}: no image is left for these settings")
    question = questions.question
    shown = {i: question.rows_shown(questions.items[i]) for i in used}
    names = {row: name for rows in shown.values() for row, name in rows.items()}
    names |= {item.row: item.name for item in questions.examples}
    pictures = _pictures(names, read_image, side, file)
    numbers = {row: number for number, row in enumerate(names)}
    # k key, m member, h hash of its captions, p pictures, c captions below them, s index of the
    # one in question, o own options, x common options that do not fit it, n note.
    tasks = []
    for i, rows in shown.items():
        item, note = questions.items[i], questions.notes[i] if questions.notes else ""
        tasks.append({
            "k": item.key, "m": item.member, "h": item.texts_hash,
            "p": [numbers[row] for row in rows], "o": questions.own_options(item),
            **question.shown(item), **({"n": note} if note else {}),
        })  # fmt: skip
    number_of = {i: number for number, i in enumerate(used)}
    data = {
        "plan": questions.hash,
        **question.script_data(),
        "tasks": tasks,
        "pictures": pictures,
        "people": {
            who: [[number_of[i], int(swap)] for i, swap in questions.orders[who]] for who in people
        },
    }
    if questions.examples:
        data["examples"] = [[numbers[item.row], item.text] for item in questions.examples]
    text = render(
        "annotate.html", title=questions.title, question=question.text, data=script_data(data)
    )
    return write_page(file, text, QUESTIONS_PAGE)


def _pictures(
    names: Mapping[int, str], read_image: Callable[[int], bytes], side: int, file: Path
) -> list[dict[str, Any]]:
    """Return small copies of rows' images, made on all cores with a progress bar."""

    def small(row: int) -> dict[str, Any]:
        return small_picture(decode_image(read_image(row), names[row]), side)

    shrunk: list[dict[str, Any]] = []
    size = 0
    # Pillow releases the interpreter's lock while it decodes, shrinks and encodes.
    with ThreadPoolExecutor() as pool:
        try:
            pictures = pool.map(small, names)
            for picture in watch(pictures, f"pictures of {file.name}", len(names), "images"):
                shrunk.append(picture)
                size += len(picture["i"])
                if size > MAX_PAGE:
                    raise UserError(
                        f"{file}: the page would contain more than {MAX_PAGE / 2**20:.0f} MiB of "
                        f"pictures, that is {len(shrunk):,} of {len(names):,}; write a page for "
                        "each annotator (annotate.pages=each) and have more of them, choose a "
                        "smaller annotate.side, or ask about an annotate.sample"
                    )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return shrunk


# ``annotation.html``: annotators' answers, on one page that opens anywhere, offline.

FILE = "annotation.html"
NOT_PEOPLE = (
    "Simulated: an oracle's answers with mistakes drawn by key. It shows that the tool works and "
    "says nothing about people."
)


def sentences(
    record: AnnotationRecord,
    question: AnnotationQuestion,
    categories: AnnotationQuestion,
    sections: Sequence[ReportSection] = (),
) -> list[str]:
    """Return the findings as sentences, the verdict first."""

    def reference(about: AnnotationQuestion, statement: str) -> str:
        """Return known results to show beside people's answers; empty for simulated ones."""
        text = about.reference.get(statement, "")
        return f"; {text}" if text and not record.simulated else ""

    everything, agreed = record.tallies[-1], record.agreement
    accepted = sum(everything.counts[name] for name in question.accepted)
    low, high = wilson_interval(accepted, everything.images)
    lines = [
        f"{percent(accepted / everything.images, 1)} % of {everything.images:,} images were "
        f"{question.accepted_as} (95 % interval {percent(low, 1)} to {percent(high, 1)}"
        f"{reference(question, 'accepted')})."
    ]
    if math.isnan(agreed.fleiss):
        lines.append("No image has several answers that differ: agreement cannot be measured.")
    else:
        lines.append(
            f"On {agreed.images:,} images with {agreed.raters} answers Fleiss' kappa is "
            f"{agreed.fleiss:.2f}; Krippendorff's alpha on {agreed.several:,} images with two or "
            f"more is {agreed.alpha:.2f}{reference(question, 'agreement')}."
        )
    for about, counts, total, kind in (
        (question, everything.counts, everything.images, "answered images"),
        (categories, record.categories, record.sampled, "sorted errors"),
    ):
        for phrase, members in about.groups.items() if total else ():
            share = sum(counts[name] for name in members) / total
            lines.append(
                f"Of {total:,} {kind} {percent(share, 0)} % are {phrase}{reference(about, phrase)}."
            )
    lines += [sentence for section in sections for sentence in section.sentences]
    if everything.images < record.items:
        lines.append(f"{record.items - everything.images:,} images have no answer.")
    return lines + ([NOT_PEOPLE] if record.simulated else [])


def write_report(
    record: AnnotationRecord,
    findings: Findings,
    sorting: Sorting,
    sections: Sequence[ReportSection],
    folder: Path,
) -> Path:
    """Write ``annotation.html`` and return its path."""
    question = findings.question
    names = {name: question.wording(name) for name in question.reported}
    heads = [f"{name}, %" for name in names.values()]
    categories = dict(sorting.question.options)
    verdict, *more = sentences(record, question, sorting.question, sections)
    tallies = (
        (t.name, f"{t.images:,}", f"{t.answers:,}", *(percent(t.share(name)) for name in names))
        for t in record.tallies
    )
    counts: dict[str, Counter[str]] = {name: Counter() for name in findings.annotators}
    for answer in findings.answers:
        counts[answer.annotator][findings.outcome(answer)] += 1
    people = (
        (
            who,
            f"{outcomes.total():,}",
            *(percent(outcomes[name] / outcomes.total(), 1) for name in names),
        )
        for who, outcomes in counts.items()
    )
    matrix = causes = None
    if record.agreement.several:
        matrix = disagreement_matrix(record.agreement, list(names.values()))
    if record.sampled:
        causes = category_bars(record.categories, record.sampled, categories)
    text = render(
        "annotation.html",
        title=f"Annotation: {record.title}",
        verdict=verdict,
        more=more,
        record=record,
        question=question,
        outcomes=names,
        bars=outcome_bars(record.tallies, names),
        matrix=matrix,
        causes=causes,
        categories=categories,
        tallies=plain_part(("image set", "images", "answers", *heads), tallies),
        people=plain_part(("annotator", "answers", *heads), people),
        sections=[
            (section, plain_part(section.columns, section.rows[:40])) for section in sections
        ],
    )
    return write_page(folder / FILE, text)


CELL, COLUMN = 39, 14
"""Height of a cell of the matrix in pixels, and letters in a line of a column's name."""


def outcome_bars(tallies: Sequence[AnswerCounts], names: Mapping[str, str]) -> Drawing:
    """Draw a bar per outcome and set of images, with Wilson's 95 % interval over the images.

    Args:
        names: {outcome: its name in the figure}, in the order of the figure.
    """
    groups = {
        name: [(t.name, t.counts[outcome], t.images) for t in tallies]
        for outcome, name in names.items()
    }
    return _grouped(groups, "share of the images, %")


def category_bars(
    categories: Mapping[str, float], sampled: int, names: Mapping[str, str]
) -> Drawing:
    """Draw a bar per category of rejected images, most frequent first, with Wilson's interval."""
    ordered = sorted(categories, key=lambda name: -categories[name])
    groups = {names[name]: [("", categories[name], sampled)] for name in ordered}
    return _grouped(groups, "share of the sorted images, %")


def _grouped(groups: Mapping[str, Sequence[tuple[str, float, int]]], title: str) -> Drawing:
    """Draw shares as groups of bars: {group: [(name, count, total)]}."""
    spans = {
        group: [(name, c / n if n else 0.0, *wilson_interval(c, n)) for name, c, n in bars]
        for group, bars in groups.items()
    }
    return grouped_bars(spans, title)


@style()
def disagreement_matrix(agreement: Agreement, names: Sequence[str]) -> Drawing:
    """Draw how often each pair of answers to the same image occurs; rows sum to 100 %.

    A row is an answer, a column the answer of another annotator of the image. Darker is more.
    """
    totals = agreement.matrix.sum(axis=1)
    row, above = max(CELL, LINE * lines_of(names)), LINE * lines_of(names, COLUMN)
    axes = new_axes(row * len(names) + above + 50)
    middles = [(name, row * (i + 0.5)) for i, name in enumerate(names)]
    for i, (name, y) in enumerate(middles):
        for j, other in enumerate(names):
            share = float(agreement.matrix[i, j] / totals[i]) if totals[i] else float("nan")
            caption = f"{name}, another: {other}: {percent(share, 1)}"
            fill = (ACCENT, share if share == share else 0.0)
            bar(axes, (j - 0.485, j + 0.485), y, row - 2, caption, facecolor=fill, edgecolor=RULE)
            strong = {"color": PAPER, "fontweight": "bold"} if share > 0.55 else {}
            write(axes, percent(share, 1), (j, y), ha="center", **strong)
        up = (0, 10 + above / 2)
        write(axes, name, (i, 0), up, width=COLUMN, ha="center")
    name_rows(axes, middles, row * len(names))
    axes.set(xlim=(-0.5, len(names) - 0.5), xticks=[])
    title = "answer of another annotator of the same image"
    axes.set_title(title, fontsize=SMALL, color=QUIET, pad=above + 18)
    return Drawing.of(axes, "Disagreement between annotators")
