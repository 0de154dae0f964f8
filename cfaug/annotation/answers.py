"""Answers of annotators: the jsonl lines of a page, checked against the questions; or simulated."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from cfaug.annotation.question import AnnotationQuestion
from cfaug.annotation.records import Answer, ImageItem
from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.rng import derive
from cfaug.core.validation import Share, check
from cfaug.data.sources.lists import list_records
from cfaug.data.sources.row import ErrorCollector

SIMULATED = "simulated"
"""Prefix of simulated annotators' names; their agreement says nothing about people."""
ANNOTATOR = re.compile(r"[\w .@-]{1,64}")
"""Valid annotators: a number or a name, never markup, a path or a formula."""
NO_ANSWERS = (
    "annotate.answers has no answers: name the files that annotators downloaded, as in "
    "annotate.answers=[answers-1.jsonl,answers-2.jsonl]"
)
LINE = 10_000
"""Maximum size of a line in bytes; the page writes about 120."""


def answer_files(name: str, patterns: Sequence[str]) -> list[str]:
    """Return the files matched by names and patterns, each once, in order.

    Args:
        name: the name of the setting below ``annotate``, for the error.
    """
    if isinstance(patterns, str):
        raise UserError(
            f"annotate.{name}={patterns} should be a list: annotate.{name}=[{patterns}]"
        )
    files: dict[str, None] = {}
    for pattern in patterns:
        if glob.has_magic(pattern) and not Path(pattern).exists():
            files |= dict.fromkeys(sorted(glob.glob(pattern)))
        else:
            files[pattern] = None
    return list(files)


def read_answers(
    files: Iterable[str | Path],
    items: Sequence[ImageItem],
    *,
    field: str,
    choices: Iterable[str],
    offers: Callable[[ImageItem, str], bool] | None = None,
) -> list[Answer]:
    """Read the answers of every annotator, in the order of the files.

    The same answer may be in several files, for example if somebody downloads twice; if an
    annotator changed an answer, the later file should replace the earlier one.

    Args:
        files: jsonl, csv or tsv files with ``key``, ``member``, ``annotator`` and ``field``.
        offers: a function that returns whether a choice fits an image; ``None`` if every choice
            does.
    """
    places = {item.name: i for i, item in enumerate(items)}
    allowed = tuple(choices)
    given: dict[tuple[int, str], tuple[str, str]] = {}
    errors = ErrorCollector()
    for file in files:
        for where, record in list_records(require_list(Path(file))):
            with errors.collect():
                answer = _answer(record, where, places, field, allowed)
                item = items[answer.item]
                check_texts(record, where, item)
                if offers is not None and not offers(item, answer.label):
                    raise UserError(
                        f"{where}: {field}={answer.label} does not fit {item.name}, whose caption "
                        f"is {item.text!r}: correct or remove the line"
                    )
                pair = (answer.item, answer.annotator)
                before = given.setdefault(pair, (answer.label, where))
                if before[0] != answer.label:
                    raise UserError(
                        f"{where}: annotator {answer.annotator!r} answers {answer.label} for "
                        f"{items[answer.item].name}, and {before[0]} in {before[1]}: keep the "
                        "file that was downloaded last"
                    )
    errors.report()
    if not given:
        raise UserError(NO_ANSWERS)
    return [Answer(item, who, label) for (item, who), (label, _) in given.items()]


def require_list(path: Path) -> Path:
    """Return a file of answers after checking its suffix and the length of its lines."""
    file = path.expanduser()
    if file.suffix not in (".jsonl", ".csv", ".tsv"):
        raise UserError(f"{file}: answers are read from .jsonl, .csv or .tsv files")
    try:
        with require_regular(file).open("rb") as handle:
            for number, line in enumerate(iter(lambda: handle.readline(LINE + 1), b""), 1):
                if len(line) > LINE:
                    raise UserError(
                        f"{file}, line {number} is longer than {LINE:,} bytes: not an answer"
                    )
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    return file


def _answer(
    record: Mapping[str, Any],
    where: str,
    places: Mapping[str, int],
    field: str,
    choices: Sequence[str],
) -> Answer:
    missing = [n for n in ("key", "member", "annotator", field) if record.get(n) in (None, "")]
    if missing:
        raise UserError(
            f"{where} lacks {', '.join(missing)}; an answer has key, member, annotator and {field}"
        )
    values = {n: str(record[n]).strip() for n in ("key", "member", "annotator", field)}
    name = f"{values['key']}_{values['member']}"
    if name not in places:
        raise UserError(
            f"{where}: {name[:80]!r} is not an image of the pairs: are these the answers "
            "to another source's page?"
        )
    if values[field] not in choices:
        raise UserError(
            f"{where}: {field}={values[field][:40]!r}: choose from {', '.join(choices)}"
        )
    if not ANNOTATOR.fullmatch(values["annotator"]):
        raise UserError(
            f"{where}: annotator={values['annotator'][:70]!r} should be up to 64 letters, digits, "
            "spaces and . @ - _"
        )
    return Answer(places[name], values["annotator"], values[field])


def check_texts(record: Mapping[str, Any], where: str, item: ImageItem) -> None:
    """Refuse an answer about captions that the image no longer has; a csv may lack their hash."""
    texts_hash = record.get("texts")
    if texts_hash not in (None, "", item.texts_hash):
        raise UserError(
            f"{where}: {item.name} had other captions when it was labelled: name the data that the "
            "page was made from, or export the page again"
        )


# Screening: leave out annotators with too many wrong answers to images with known answers.


def read_known(
    file: Path, items: Sequence[ImageItem], question: AnnotationQuestion
) -> dict[int, str]:
    """Read known answers: ``{index of the image: label}``.

    Args:
        file: a jsonl, csv or tsv file with ``key``, ``member`` and the question's field.
    """
    places = {item.name: i for i, item in enumerate(items)}
    known: dict[int, str] = {}
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
        known[places[name]] = str(label)
    if not known:
        raise UserError(f"{file} has no known answers")
    return known


@dataclass(frozen=True)
class Screening:
    """Screens annotators by their answers to images with known answers.

    Args:
        known: {index of the image: label}.
        minimum: least share of the known images that an annotator must answer right, from 0 to 1.
    """

    known: Mapping[int, str]
    minimum: float

    def __post_init__(self) -> None:
        check(self.minimum, Share, "annotate.screening_minimum")

    def shares(self, answers: Sequence[Answer]) -> dict[str, float]:
        """Return the share of the known images that each annotator answered right.

        Images without an answer count as wrong, as everyone got them.
        """
        right = dict.fromkeys((answer.annotator for answer in answers), 0)
        for answer in answers:
            right[answer.annotator] += self.known.get(answer.item) == answer.label
        return {name: count / len(self.known) for name, count in right.items()}

    def screen(self, answers: Sequence[Answer]) -> tuple[list[Answer], dict[str, float]]:
        """Return the answers to the other images by annotators who pass, and those who fail.

        The known images are left out, as everyone answered them and they are not a random sample.
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


# Attention checks: items that say which answer to give, shown to everyone (XMAI, A.1).
#
# All answers of an annotator who fails a check are left out.

PREFIX = "attention"
MOST = 20
"""Maximum number of checks on a page."""
CHECK_TEXT = "This is a check of attention. Whatever the photo shows, "
Checks = Annotated[int, Interval(ge=0, le=MOST)]
"""The number of checks in a form."""


def draw_check(number: int, choices: Sequence[str], rows: Sequence[int]) -> tuple[str, int]:
    """Return the answer that a check asks for, and the row of the photo that it is shown with.

    They depend only on these arguments, so that they are known when answers are read.

    Args:
        number: the number of the check, from 0.
        rows: the rows of the photos in the source, at least one.
    """
    expected = choices[derive(0, PREFIX, "answer", number) % len(choices)]
    return expected, rows[derive(0, PREFIX, "photo", number) % len(rows)]


def split_checks(items: Sequence[ImageItem]) -> tuple[list[ImageItem], list[ImageItem]]:
    """Return the real items and the checks."""
    return [item for item in items if not item.expected], [item for item in items if item.expected]


def who_failed(answers: Sequence[Answer], items: Sequence[ImageItem]) -> dict[str, float]:
    """Return {annotator: share of checks answered right} of those who failed a check.

    A check without an answer counts as failed, as everyone got it.
    """
    known = {i: item.expected for i, item in enumerate(items) if item.expected}
    if not known:
        return {}
    shares = Screening(known, 1.0).shares(answers)
    return {name: share for name, share in shares.items() if share < 1}


def require_somebody(failed: object, left: object) -> None:
    """Refuse answers if every annotator failed a check."""
    if failed and not left:
        raise UserError(
            "no answers are left: every annotator failed a check of attention; ask other people"
        )
