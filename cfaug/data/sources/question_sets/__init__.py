"""Readers of question sets: our own form, and released ones.

To add one: a ``QuestionForm``, and its place in ``FORMS``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from cfaug.core.errors import UserError, name_some, say_once
from cfaug.data.questions import QuestionImage
from cfaug.data.sources.question_sets.released import (
    C_VQA,
    HALLUSION_BENCH,
    MMVP,
    NATURALBENCH,
    VISMIN,
    VLMS_ARE_BIASED,
)
from cfaug.data.sources.question_sets.rows import OWN, QuestionForm, SetTable, open_table
from cfaug.data.sources.row import ErrorCollector

__all__ = ["FORMS", "read_questions"]

FORMS = (OWN, C_VQA, NATURALBENCH, VISMIN, HALLUSION_BENCH, MMVP, VLMS_ARE_BIASED)
"""In the order in which they are tried; the first whose columns all exist reads a file."""


MANY = 12
"""Questions after which it is odd that the first option is never right."""


def read_questions(path: Path | str, image_roots: Sequence[Path] = ()) -> list[QuestionImage]:
    """Read a question set; images are located now, and read on demand.

    Args:
        path: a question set: our JSONL; C-VQA's csv; NaturalBench's parquet; VisMin's Arrow streams
            or parquet; HallusionBench's json or parquet; MMVP's ``Questions.csv``; the parquet of
            VLMs Are Biased; or a folder with one of them, ``FOLDER:SPLIT`` if parquet has several
            splits.

    Returns:
        Every image in the set's order, with unique keys.
    """
    source = Path(path).expanduser()
    tables = open_table(source, image_roots)
    fitting = []
    for table in tables:
        fits = (form for form in FORMS if set(form.columns) <= set(table.columns))
        fitting += [(table, form) for form in islice(fits, 1)]
    if len(fitting) > 1:
        names = ", ".join(str(table.source) for table, _ in fitting)
        raise UserError(f"{source} holds several question sets; name one of {names}")
    if not fitting:
        raise _unknown(source, tables)
    table, form = fitting[0]
    errors = ErrorCollector()
    images = form.read(table.read(form.folders), errors)
    errors.report()
    if not images:
        raise UserError(f"{source} holds no question")
    seen: set[str] = set()
    for image in images:
        if image.key in seen:
            raise UserError(f"{source}: the id {image.key!r} is duplicated")
        seen.add(image.key)
    if form is OWN:
        _check_numbers(table.source, images)
    elif form is MMVP:
        _say_incomplete(table.source, images)
    if form in (MMVP, NATURALBENCH, VISMIN):
        _say_same_answers(table.source, images)
    _say_unanswerable(table.source, images)
    return images


def _say_incomplete(source: Path, images: Sequence[QuestionImage]) -> None:
    """Say which images of MMVP are without the other one of their pair."""
    sizes = Counter(image.group for image in images)
    alone = [str(int(image.key)) for image in images if sizes[image.group] < 2]
    if alone:
        say_once(
            f"{source}: Index {name_some(alone)} without the other row of the pair (1 and 2, 3 and "
            "4, ...): counted among single questions, not among pairs; fetch the file again if "
            "rows are missing"
        )
    texts_of: dict[str, set[str]] = {}
    for image in images:
        texts_of.setdefault(image.group, set()).update(q.text for q in image.questions)
    others = [str(2 * int(pair) + 1) for pair, texts in texts_of.items() if len(texts) > 1]
    if others:
        say_once(
            f"{source}: the pairs that begin with Index {name_some(others)} ask two different "
            "questions: are rows missing, so that the pairs are of other images?"
        )


def _say_same_answers(source: Path, images: Sequence[QuestionImage]) -> None:
    """Say which questions have one answer for both images of a pair, where they should have two."""
    answers: dict[tuple[str, str], list[str]] = {}
    for image in images:
        for question in image.questions:
            if question.right is not None:
                answers.setdefault((image.group, question.text), []).append(question.right)
    pairs = {name: rights for name, rights in answers.items() if len(rights) > 1}
    same = [name for name, rights in pairs.items() if len({*rights}) == 1]
    if same:
        group, text = same[0]
        say_once(
            f"{source}: {len(same):,} of {len(pairs):,} questions have one answer for both images "
            f"of a pair, first {text[:60]!r} of pair {group}, which can be answered without them: "
            "are answers or images exchanged?"
        )


def _say_unanswerable(source: Path, images: Sequence[QuestionImage]) -> None:
    """Say which answers are not among the options, and in which form they are."""
    every = [(image, question) for image in images for question in image.questions]
    without = [
        (image, question)
        for image, question in every
        if question.answer is not None and question.right is None
    ]  # fmt: skip
    if not without:
        return
    image, question = without[0]
    options = ", ".join(map(repr, question.options)) or "none, as no answer is a number"
    say_once(
        f"{source}: {len(without):,} of {len(every):,} answers are not among the options, such as "
        f"{question.extra.get('answer', question.answer)!r} to {question.text[:60]!r} of "
        f"{image.key!r} (options: {options}): these questions are left out; write the text of an "
        "option, or its letter or number where the form has them"
    )


def _check_numbers(source: Path, images: Sequence[QuestionImage]) -> None:
    """Refuse answers that are numbers from 1: the last option's number is there, and no 0."""
    numbered = [
        question
        for image in images
        for question in image.questions
        if question.answer is not None and "answer" not in question.extra
    ]
    if any(question.answer == 0 for question in numbered):
        return
    beyond = [question for question in numbered if question.answer == len(question.options)]
    if beyond:
        raise UserError(
            f"{source}: no answer is 0, and that of {beyond[0].text!r} is {beyond[0].answer} of "
            f"{len(beyond[0].options)} options: answers are numbers from 0, and these seem to "
            "count from 1; subtract 1, or write the texts of the options"
        )
    if len(numbered) >= MANY:
        say_once(
            f"{source}: the first option is the answer to none of {len(numbered):,} questions: if "
            "answers count from 1 here, subtract 1, since they are read as numbers from 0"
        )


def _unknown(source: Path, tables: Sequence[SetTable]) -> UserError:
    nearest: tuple[int, QuestionForm, SetTable] | None = None
    for table in tables:
        for form in FORMS:
            common = len(set(form.columns) & set(table.columns))
            if 2 * common >= len(form.columns) and (nearest is None or common > nearest[0]):
                nearest = (common, form, table)
    if nearest is not None:
        _, form, table = nearest
        missing = [name for name in form.columns if name not in table.columns]
        return UserError(
            f"{table.source} looks like {form.name} and lacks {', '.join(missing)}; there are "
            f"{', '.join(table.columns)}"
        )
    forms = "\n".join(f"  {form.name}: {', '.join(form.columns)}" for form in FORMS)
    return UserError(
        f"{source} is not a known form of question set; one of them has the columns\n{forms}"
    )
