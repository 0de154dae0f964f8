"""``annotation.json``: a summary of the answers, saved for later tables."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cfaug.annotation.answers import SIMULATED
from cfaug.annotation.findings import Agreement, AnswerCounts, Findings, ReportSection
from cfaug.annotation.question import AnnotationQuestion
from cfaug.annotation.records import Answer
from cfaug.annotation.strata import ILLUSTRATIONS, SHOWN
from cfaug.core.errors import UserError, name_some
from cfaug.core.files import require_regular
from cfaug.core.json_records import from_json
from cfaug.core.pixels import decode_image
from cfaug.core.rng import derive
from cfaug.core.safety.json_text import load_json
from cfaug.data.sources.lists import list_records
from cfaug.data.sources.row import NAMED_AT_ONCE, ErrorCollector
from cfaug.report.page import write_page
from cfaug.stats.significance import require_finite

FILE = "annotation.json"
SIDE = 160
"""Longest side of an example's picture in pixels."""


@dataclass(frozen=True)
class ImageExample:
    """An image as an example of a category of rejected images, or of an outcome.

    Attributes:
        member: the image's number in the set, from 0.
        said: summary of the image's answers, such as ``2 correct, 1 both``.
        png: the pictures as one PNG in base64.
    """

    category: str
    key: str
    member: int
    texts: tuple[str, ...]
    said: str
    png: str


@dataclass(frozen=True)
class AnnotationRecord:
    """The results of annotation that tables print.

    Attributes:
        tallies: counts of the answers for each set of images; the last is for all images.
        validated: number of images that more than half of their annotators accepted.
        sampled: number of rejected images that were sorted into categories.
        categories: {category: number of images}; an image sorted by several people counts once, in
            equal parts.
    """

    source: str
    simulated: bool
    annotators: int
    items: int
    tallies: tuple[AnswerCounts, ...]
    validated: int
    agreement: Agreement
    sampled: int
    categories: Mapping[str, float]
    examples: tuple[ImageExample, ...]
    question: str
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name of the data and the annotators, for the head of a table."""
        who = "simulated annotators" if self.simulated else "annotators"
        return f"{self.source}, {self.annotators} {who}"


def are_simulated(findings: Findings) -> bool:
    """Return whether the answers are those of simulated annotators."""
    fake = [name for name in findings.annotators if name.startswith(SIMULATED)]
    if 0 < len(fake) < len(findings.annotators):
        raise UserError(
            f"the answers of {name_some(fake)} are simulated and cannot be combined with those of "
            "people: remove their files, or name the others in annotate.answers"
        )
    return bool(fake)


@dataclass(frozen=True)
class Sorting:
    """Rejected images that people sorted into categories.

    Attributes:
        question: the question that sorts them; its options are the categories.
    """

    question: AnnotationQuestion
    answers: Sequence[Answer] = ()


def record_of(
    findings: Findings,
    sorting: Sorting,
    source: str,
    read_image: Callable[[int], bytes],
    sections: Sequence[ReportSection] = (),
) -> AnnotationRecord:
    """Build the record of the answers."""
    times = Counter(answer.item for answer in sorting.answers)
    rejected = set(findings.rejected)
    foreign = [findings.items[i].name for i in times if i not in rejected]
    if foreign:
        raise UserError(
            f"annotate.categories sorts {len(foreign)} images that most annotators accepted, or "
            f"that nobody answered ({name_some(foreign)}): give the same annotate.answers as "
            "to cfaug annotate taxonomy"
        )
    categories = dict.fromkeys(sorting.question.labels if sorting.answers else (), 0.0)
    firsts: dict[str, int] = {}  # the first image of each category
    for answer in sorted(sorting.answers, key=lambda answer: answer.item):
        categories[answer.label] += 1 / times[answer.item]
        firsts.setdefault(answer.label, answer.item)
    shown = sorted(categories, key=lambda name: (-categories[name], name))[:6]
    extra: dict[str, Any] = {}
    for section in sections:
        for key, value in section.data.items():
            if key in extra or key in {f.name for f in fields(AnnotationRecord)}:
                raise UserError(f"annotate.analyses: the key {key!r} is duplicated in {FILE}")
            extra[key] = value
    return AnnotationRecord(
        source=source,
        simulated=are_simulated(findings),
        annotators=len(findings.annotators),
        items=sum(not item.expected for item in findings.items),
        tallies=findings.tallies(),
        validated=len(findings.by_item) - len(findings.rejected),
        agreement=findings.agreement(),
        sampled=len(times),
        categories=categories,
        examples=tuple(
            picture_example(findings, sorting.question, name, firsts[name], read_image)
            for name in shown
            if name in firsts
        ),
        question=findings.question.title,
        extra=extra,
    )


def picture_example(
    findings: Findings,
    question: AnnotationQuestion,
    category: str,
    i: int,
    read_image: Callable[[int], bytes],
) -> ImageExample:
    """Return an image as an example of a category, its pictures side by side with white gaps."""
    item = findings.items[i]
    pictures = [
        decode_image(read_image(row), name) for row, name in question.rows_shown(item).items()
    ]
    for picture in pictures:
        picture.thumbnail((SIDE, SIDE))
    gap = max(1, max(p.width for p in pictures) // 16)
    width = sum(p.width + gap for p in pictures) - gap
    sheet = Image.new("RGB", (width, max(p.height for p in pictures)), "white")
    left = 0
    for picture in pictures:
        sheet.paste(picture, (left, 0))
        left += picture.width + gap
    file = io.BytesIO()
    sheet.save(file, "PNG")
    png = base64.b64encode(file.getvalue()).decode()
    return ImageExample(category, item.key, item.member, item.texts, findings.said_of(i), png)


def illustrate(findings: Findings, read_image: Callable[[int], bytes]) -> ReportSection:
    """Save some example images of each outcome in ``Question.illustrated``.

    An image is an example of an outcome if all its answers agree; examples are drawn by key.
    """
    examples = []
    for outcome in findings.question.illustrated:
        indices = [i for i in findings.by_item if set(findings.outcomes_of(i)) == {outcome}]
        keys = {i: derive(0, "illustration", findings.items[i].name) for i in indices}
        for i in sorted(indices, key=keys.__getitem__)[:SHOWN]:
            examples.append(picture_example(findings, findings.question, outcome, i, read_image))
    return ReportSection(
        title="Examples",
        notes=(f"{len(examples)} images are kept as examples for tables.",),
        data={ILLUSTRATIONS: [asdict(example) for example in examples]},
    )


def write_record(record: AnnotationRecord, folder: Path) -> Path:
    """Write ``annotation.json`` and return its path."""
    content = asdict(record)
    content |= content.pop("extra")
    content["agreement"]["matrix"] = record.agreement.matrix.tolist()
    for name in ("fleiss", "alpha"):
        if math.isnan(content["agreement"][name]):
            content["agreement"][name] = None
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return write_page(folder / FILE, text)


def read_record(file: Path) -> AnnotationRecord:
    """Read a record of answers that ``cfaug annotate read`` wrote."""
    try:
        record = load_json(require_regular(file).read_text(encoding="utf-8"))
        about = dict(record["agreement"])
        kappas = {n: math.nan if about[n] is None else float(about[n]) for n in ("fleiss", "alpha")}
        matrix = np.array([require_finite(row) for row in about["matrix"]])
        known = {f.name for f in fields(AnnotationRecord)}
        return AnnotationRecord(
            source=str(record["source"]),
            simulated=bool(record["simulated"]),
            annotators=int(record["annotators"]),
            items=int(record["items"]),
            tallies=from_json(tuple[AnswerCounts, ...], record["tallies"]),
            validated=int(record["validated"]),
            agreement=Agreement(**{**about, **kappas, "matrix": matrix}),
            sampled=int(record["sampled"]),
            categories=from_json(dict[str, float], record["categories"]),
            examples=from_json(tuple[ImageExample, ...], record["examples"]),
            question=str(record["question"]),
            extra={key: value for key, value in record.items() if key not in known},
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{file} is not what cfaug annotate read writes ({error}): make it with "
            "`cfaug annotate read annotate.answers=[...]`"
        ) from error


# People's answers about images, as ``cfaug annotate read`` writes them: the majority for each.


@dataclass(frozen=True)
class HumanAnswers:
    """The majority answer for each image.

    Attributes:
        labels: {``<set>_<member>``: its majority answer}; images without a majority are absent.
        disputed: number of images without a majority.
        hash: sha256 of the file.
    """

    file: Path
    labels: Mapping[str, str]
    disputed: int
    hash: str

    def check_images(self, names: Collection[str], source: str) -> None:
        """Refuse answers about images that are not in a source."""
        known = set(names)
        strangers = [name for name in self.labels if name not in known]
        if strangers:
            raise UserError(
                f"{self.file} has answers about {len(strangers)} images that are not in {source} "
                f"({', '.join(strangers[:NAMED_AT_ONCE])}): is it the file of another source?"
            )


def read_human_answers(file: str | Path, choices: Collection[str]) -> HumanAnswers:
    """Read people's answers, such as those of ``labels.jsonl``.

    Args:
        file: a jsonl, csv or tsv file with ``key``, ``member``, ``annotator`` and ``label``.
    """
    path = Path(file).expanduser().resolve()
    given: dict[str, dict[str, str]] = {}
    errors = ErrorCollector()
    for where, record in list_records(path):
        with errors.collect():
            missing = [n for n in ("key", "member", "label") if record.get(n) in (None, "")]
            if missing:
                raise UserError(f"{where} lacks {', '.join(missing)}")
            label = str(record["label"])
            if label not in choices:
                raise UserError(
                    f"{where}: label={label[:40]!r} is invalid: choose from {', '.join(choices)}"
                )
            labels_of = given.setdefault(f"{record['key']}_{record['member']}", {})
            who = str(record.get("annotator") or f"line {len(labels_of)}")
            if who in labels_of:
                raise UserError(f"{where}: {who[:40]!r} is duplicated for this image")
            labels_of[who] = label
    errors.report()
    if not given:
        raise UserError(f"{path} has no answers")
    labels = {}
    for name, answers in given.items():
        label, count = Counter(answers.values()).most_common(1)[0]
        if 2 * count > len(answers):
            labels[name] = label
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return HumanAnswers(path, labels, len(given) - len(labels), digest)
