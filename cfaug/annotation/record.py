"""``annotation.json``: what the answers said, kept for tables that are made later."""

from __future__ import annotations

import base64
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cfaug.annotation.answers import Answer
from cfaug.annotation.findings import OUTCOMES, Agreement, Findings, Rate, Tally, outcome
from cfaug.annotation.page import CATEGORIES
from cfaug.errors import UserError
from cfaug.files import require_regular
from cfaug.metrics.significance import checked
from cfaug.pixels import decode_image
from cfaug.report.page import write_page

FILE = "annotation.json"

SIMULATED = "simulated"
"""What the names of annotators begin with who are none: what they say of people is nothing."""

EXAMPLES = 6
"""Categories that Tables 8 and 9 show an example of."""

SIDE = 160
"""Longest side of an example's picture."""


@dataclass(frozen=True)
class Example:
    """One error of a category: the pair's captions, whose image it is, what people said, a PNG."""

    category: str
    key: str
    member: int
    texts: tuple[str, str]
    said: str
    png: str


@dataclass(frozen=True)
class Record:
    """Everything that tables of annotation print.

    Attributes:
        source: what the pairs are called.
        simulated: whether no annotator was a person.
        annotators: how many answered.
        items: images that could be asked about.
        tallies: the rows of Table 1.
        validated: images that most annotators matched to their own caption.
        agreement: on images with several answers.
        at_least: errors that altered subjects must have to be listed.
        kinds: how many different altered subjects the errors have.
        most: errors of the most frequent of them.
        altered: (before, after, errors) of those that are listed, most first.
        human: images of human subjects, and how many are errors.
        hyponymy: images whose altered subjects are kinds of each other, and the others; ``None``
            if nobody looked.
        sampled: errors that were sorted into categories.
        categories: {category: errors}; an error sorted by several people counts once, in parts.
        examples: of the most frequent categories, one each.
    """

    source: str
    simulated: bool
    annotators: int
    items: int
    tallies: tuple[Tally, ...]
    validated: int
    agreement: Agreement
    at_least: int
    kinds: int
    most: int
    altered: tuple[tuple[str, str, int], ...]
    human: Rate
    hyponymy: tuple[Rate, Rate] | None
    sampled: int
    categories: Mapping[str, float]
    examples: tuple[Example, ...]

    @property
    def title(self) -> str:
        """Say whose answers these are, for the head of a table."""
        who = "simulated annotators" if self.simulated else "annotators"
        return f"{self.source}, {self.annotators} {who}"


def record_of(
    findings: Findings,
    sorted_errors: Sequence[Answer],
    source: str,
    at_least: int,
    read_image: Callable[[int], bytes],
    related: Callable[[str, str], bool] | None = None,
) -> Record:
    """Put together what the answers say.

    Args:
        findings: the answers to the paper's question.
        sorted_errors: the answers to why errors are wrong; may be none.
        source: what the pairs are called.
        at_least: errors that altered subjects must have to be listed; 20 in the paper's Table 10.
        read_image: gives the encoded image of a source's row.
        related: says whether of two nouns one is a kind of the other; ``None`` does not look.

    Raises:
        UserError: if an error was sorted that is none, ``at_least`` is no number from 1, or people
            and simulated annotators answered.
    """
    if type(at_least) is not int or at_least < 1:
        raise UserError(f"annotate.at_least={at_least}: choose 1 or more")
    fake = [name for name in findings.annotators if name.startswith(SIMULATED)]
    if 0 < len(fake) < len(findings.annotators):
        raise UserError(
            f"the answers of {', '.join(fake[:3])} are no people's and cannot stand beside those "
            "of people: remove their files, or name the others in annotate.answers"
        )
    categories, firsts = _categories(findings, sorted_errors)
    altered = findings.altered_in_errors()
    shown = sorted(categories, key=lambda name: (-categories[name], name))[:EXAMPLES]
    return Record(
        source=source,
        simulated=all(name.startswith(SIMULATED) for name in findings.annotators),
        annotators=len(findings.annotators),
        items=len(findings.items),
        tallies=findings.table_1(),
        validated=len(findings.by_item) - len(findings.errors),
        agreement=findings.agreement(),
        at_least=at_least,
        kinds=len(altered),
        most=max((count for *_, count in altered), default=0),
        altered=tuple(one for one in altered if one[2] >= at_least),
        human=findings.human(),
        hyponymy=None if related is None else findings.by_hyponymy(related),
        sampled=len({answer.item for answer in sorted_errors}),
        categories=categories,
        examples=tuple(
            _example(findings, name, firsts[name], read_image) for name in shown if name in firsts
        ),
    )


def _categories(
    findings: Findings, answers: Sequence[Answer]
) -> tuple[dict[str, float], dict[str, int]]:
    """Return errors by category, and the first image of each."""
    times = Counter(answer.item for answer in answers)
    wrong = set(findings.errors)
    foreign = [findings.items[i].name for i in times if i not in wrong]
    if foreign:
        raise UserError(
            f"annotate.categories sorts {len(foreign)} images that most annotators matched to "
            f"their caption, or that nobody answered ({', '.join(foreign[:5])}): give the same "
            "annotate.answers as to annotate=taxonomy"
        )
    found = dict.fromkeys(CATEGORIES, 0.0)
    firsts: dict[str, int] = {}
    for answer in sorted(answers, key=lambda one: one.item):
        found[answer.label] += 1 / times[answer.item]
        firsts.setdefault(answer.label, answer.item)
    return {name: count for name, count in found.items() if count or answers}, firsts


def said_of(findings: Findings, i: int) -> str:
    """Return what people said of an image, for people: ``incorrect``, or ``2 correct, 1 both``."""
    item = findings.items[i]
    counts = Counter(outcome(item, label) for label in findings.by_item[i])
    if counts.total() == 1:
        return next(iter(counts))
    return ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts[name])


def _example(
    findings: Findings, category: str, i: int, read_image: Callable[[int], bytes]
) -> Example:
    item = findings.items[i]
    first = item.row - item.member
    pictures = [
        decode_image(read_image(first + member), f"{item.key}_{member}") for member in (0, 1)
    ]
    return Example(
        category=category,
        key=item.key,
        member=item.member,
        texts=item.texts,
        said=said_of(findings, i),
        png=_side_by_side(pictures),
    )


def _side_by_side(pictures: Sequence[Image.Image]) -> str:
    """Return two pictures as one PNG in base64, a white gap between them."""
    for picture in pictures:
        picture.thumbnail((SIDE, SIDE))
    gap = max(1, max(p.width for p in pictures) // 16)
    width = sum(p.width for p in pictures) + gap
    sheet = Image.new("RGB", (width, max(p.height for p in pictures)), "white")
    sheet.paste(pictures[0], (0, 0))
    sheet.paste(pictures[1], (pictures[0].width + gap, 0))
    file = io.BytesIO()
    sheet.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def write_record(record: Record, folder: Path) -> Path:
    """Write ``annotation.json`` and return its path."""
    content = asdict(record)
    content["agreement"]["matrix"] = record.agreement.matrix.tolist()
    for name in ("fleiss", "alpha"):
        if math.isnan(content["agreement"][name]):
            content["agreement"][name] = None
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return write_page(folder / FILE, text)


def read_record(file: Path) -> Record:
    """Read what ``write_record`` wrote.

    Raises:
        UserError: if it is missing or something else.
    """
    try:
        return _record(json.loads(require_regular(file).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{file} is not what annotate=read writes ({error}): make it with "
            "`python evaluate.py annotate=read annotate.answers=[...]`"
        ) from error


def _record(found: Mapping[str, Any]) -> Record:
    about = dict(found["agreement"])
    kappas = {n: math.nan if about[n] is None else float(about[n]) for n in ("fleiss", "alpha")}
    matrix = np.array([checked(row) for row in about["matrix"]])
    return Record(
        source=str(found["source"]),
        simulated=bool(found["simulated"]),
        annotators=int(found["annotators"]),
        items=int(found["items"]),
        tallies=tuple(
            Tally(str(t["name"]), int(t["images"]), int(t["answers"]),
                  {name: float(t["counts"][name]) for name in OUTCOMES})
            for t in found["tallies"]
        ),
        validated=int(found["validated"]),
        agreement=Agreement(**{**about, **kappas, "matrix": matrix}),
        at_least=int(found["at_least"]),
        kinds=int(found["kinds"]),
        most=int(found["most"]),
        altered=tuple((str(a), str(b), int(n)) for a, b, n in found["altered"]),
        human=_rate(found["human"]),
        hyponymy=None
        if found["hyponymy"] is None
        else (_rate(found["hyponymy"][0]), _rate(found["hyponymy"][1])),
        sampled=int(found["sampled"]),
        categories={name: float(found["categories"].get(name, 0)) for name in CATEGORIES}
        if found["sampled"] else {},
        examples=tuple(
            Example(str(e["category"]), str(e["key"]), int(e["member"]),
                    (str(e["texts"][0]), str(e["texts"][1])), str(e["said"]), str(e["png"]))
            for e in found["examples"]
        ),
    )  # fmt: skip


def _rate(found: Mapping[str, Any]) -> Rate:
    return Rate(int(found["images"]), int(found["errors"]))
