"""Read returned answers: the page's jsonl lines, checked against the questions."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfaug.annotation.question import ImageItem
from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.data.sources.lists import list_records
from cfaug.data.sources.row import ErrorCollector

ANNOTATOR = re.compile(r"[\w .@-]{1,64}")
"""Valid annotators: a number or a name, never markup, a path or a formula."""

NO_ANSWERS = (
    "annotate.answers has no answers: name the files that annotators downloaded, as in "
    "annotate.answers=[answers-1.jsonl,answers-2.jsonl]"
)

LINE = 10_000
"""Maximum size of a line in bytes; the page writes about 120."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One annotator's answer about one image.

    Attributes:
        item: the index of the image among all possible images.
        annotator: the name of the annotator.
        label: the answer.
    """

    item: int
    annotator: str
    label: str


def answer_files(name: str, patterns: Sequence[str]) -> list[str]:
    """Return the files matched by names and patterns, each once, in order.

    Args:
        name: the name of the setting below ``annotate``, for the error.
        patterns: the value of that setting.

    Raises:
        UserError: if the value is one string and not a list.
    """
    if isinstance(patterns, str):
        raise UserError(
            f"annotate.{name}={patterns} should be a list: annotate.{name}=[{patterns}]"
        )
    found: dict[str, None] = {}
    for pattern in patterns:
        if glob.has_magic(pattern) and not Path(pattern).exists():
            found |= dict.fromkeys(sorted(glob.glob(pattern)))
        else:
            found[pattern] = None
    return list(found)


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
        items: all possible images.
        field: the name of the column with the answer, such as ``label``.
        choices: the valid answers.
        offers: a function that returns whether a choice fits an image; ``None`` if every choice
            does.

    Raises:
        UserError: if there are no answers; or naming file and line, if an answer is invalid: its
            image or captions are not in the source, it is not among the choices or does not fit the
            image, or it contradicts an earlier answer of its annotator.
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
                one = (answer.item, answer.annotator)
                before = given.setdefault(one, (answer.label, where))
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
    """Return a file of answers after checking its suffix and the length of its lines.

    Raises:
        UserError: if the suffix is unknown, a line is too long, or the file cannot be read.
    """
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
            f"{where}: {name[:80]!r} is not an image of data.counterfactual: are these the answers "
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
    """Refuse an answer about captions that the image no longer has; a csv may lack their hash.

    Raises:
        UserError: if the captions differ from those of the answer.
    """
    asked = record.get("texts")
    if asked not in (None, "", item.texts_hash):
        raise UserError(
            f"{where}: {item.name} had other captions when it was labelled: name the data that the "
            "page was made from, or export the page again"
        )
