"""People's judgements of XMAI's captions (section 5.1): preference and quality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from cfaug.annotation.caption_form import ORIGINAL
from cfaug.annotation.ratings import FILE as RATINGS
from cfaug.annotation.ratings import OVERALL, Score, read_summary
from cfaug.annotation.record import FILE as RECORD
from cfaug.annotation.record import AnnotationRecord, read_record
from cfaug.core.errors import UserError
from cfaug.core.validation import check_fields
from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Entry, Part
from cfaug.report.numbers import DASH, p_text
from cfaug.report.paper_tables import PaperTable
from cfaug.report.published import published
from cfaug.stats.item_tests import mcnemar
from cfaug.stats.significance import SeedSummary, equivalence

PREFER = ("prefer the first", "prefer the second", "neither", "photos", "p")
QUALITY = ("original", "changed", "difference [90 %]", "t", "p, different", "p, equivalent",
           "alpha")  # fmt: skip

PREFER_NOTE = "Photos for which more than half of the annotators prefer one caption; p: sign test."
QUALITY_NOTE = (
    "Mean ± standard deviation over captions of each caption's mean over annotators. Different: "
    "Welch's two-sided test; a large p does not show equality. Equivalent: two one-sided tests "
    "(TOST). A small p shows that the means differ by less than {margin:g}, the setting "
    "table.margin; the 90 % interval then lies within it."
)


@dataclass(frozen=True, kw_only=True)
class PreferenceTable(PaperTable):
    """The paper's numbers with additional tests, and ours.

    Args:
        preference: the folder below ``paths.runs`` of the answers to
            ``annotate/question=preference``.
        quality: the folder below ``paths.runs`` of the answers to ``annotate/question=quality``.
        margin: the margin of equivalence on the scale: means that differ by less count as equal.
    """

    preference: str = "preference"
    quality: str = "quality"
    margin: Annotated[float, Interval(gt=0, lt=9)] = 0.25

    def __post_init__(self) -> None:
        check_fields(self, "table")

    def build(self, runs: Runs) -> Document:
        """Return the parts on which caption people prefer, and on whether quality is the same.

        Raises:
            MissingError: if there are no answers, unless ``partial``.
            UserError: if their answers cannot be read.
        """
        record, ratings = (
            runs.root / folder / file
            for folder, file in ((self.preference, RECORD), (self.quality, RATINGS))
        )
        self.require(
            record.exists() or ratings.exists(), f"{record}: nobody was asked",
            f"{ratings}: nobody was asked",
        )  # fmt: skip
        parts = [*self._theirs()]
        if record.exists():
            parts.append(_prefer_part(read_record(record), record))
        if ratings.exists():
            parts.append(self._quality_part(ratings))
        return self.document(*parts)

    def _theirs(self) -> list[Part]:
        found = published(self.name)
        rows = []
        for row in found["rows"]:
            first, second, neither, examples = row["values"]
            rows.append(_prefer_row(row["first"], row["second"], (first, second, neither)))
            assert examples == first + second + neither
        original, changed = (SeedSummary(*found["quality"][name]) for name in ("Original", "XMAI"))
        alpha = Entry(f"{found['alpha']:.2f}", numbers={"value": found["alpha"]})
        cells = (*self._compare(original, changed), alpha)
        prefer = Part(
            f"{self.paper}, preference", ("Captions",), (), PREFER, tuple(rows), ours=False,
            notes=(found["note"], PREFER_NOTE),
        )  # fmt: skip
        quality = Part(
            f"{self.paper}, quality from 1 to 5", ("Captions",), (), QUALITY,
            ((("XMAI",), cells),), ours=False,
            notes=(QUALITY_NOTE.format(margin=self.margin),),
        )  # fmt: skip
        return [prefer, quality]

    def _quality_part(self, file: Path) -> Part:
        ratings = read_summary(file)
        scales = [field for field in ratings.fields.values() if field.kind == "scale"]
        field = scales[0] if scales else None
        if field is None or ORIGINAL not in field.by:
            raise UserError(
                f"{file} has no scale about original captions: read the answers to "
                "annotate/question=quality"
            )
        original = _summary(field.by[ORIGINAL])
        rows = []
        for kind, score in field.by.items():
            if kind in (ORIGINAL, OVERALL):
                continue
            alpha = Entry(DASH) if field.alpha != field.alpha else Entry(
                f"{field.alpha:.2f}", numbers={"value": field.alpha, "n": float(field.several)}
            )  # fmt: skip
            rows.append(((kind,), (*self._compare(original, _summary(score)), alpha)))
        who = f"{ratings.source}, {ratings.annotators} annotators"
        return Part(f"Ours: {field.title}, {who}", ("Captions",), (), QUALITY, tuple(rows))

    def _compare(self, original: SeedSummary, changed: SeedSummary) -> tuple[Entry, ...]:
        found = equivalence(original, changed, self.margin)
        known = found.p == found.p
        small = f"[{found.low:+.2f}, {found.high:+.2f}]" if known else ""
        return (
            _mean(original),
            _mean(changed),
            Entry(f"{found.difference:+.2f}", small=small, numbers={"value": found.difference}),
            Entry(f"{found.t:.3f}" if known else DASH),
            Entry(p_text(found.p_different)),
            Entry(p_text(found.p)),
        )


def _summary(score: Score) -> SeedSummary:
    return SeedSummary(score.mean, score.sd, score.images)


def _mean(one: SeedSummary) -> Entry:
    known = one.sd == one.sd
    numbers = {"value": one.mean, "n": float(one.n), **({"sd": one.sd} if known else {})}
    return Entry(f"{one.mean:.2f}", f"{one.sd:.2f}" * known, numbers=numbers)


def _prefer_row(
    first: str, second: str, counts: Sequence[int]
) -> tuple[tuple[str, ...], tuple[Entry, ...]]:
    total = sum(counts)
    cells = [
        Entry(f"{count:,}", numbers={"value": float(count), "n": float(total)}) for count in counts
    ]
    p = Entry(p_text(mcnemar(counts[0], counts[1])))
    return (f"{first} against {second}",), (*cells, Entry(f"{total:,}"), p)


def _prefer_part(record: AnnotationRecord, file: Path) -> Part:
    found: Any = record.extra.get("preference")
    try:
        first, second = (str(found[name]) for name in ("first", "second"))
        counts = [int(found["counts"][name]) for name in (first, second, "neither")]
        if min(counts) < 0:
            raise ValueError("a count below 0")
    except (TypeError, KeyError, ValueError) as error:
        raise UserError(
            f"{file} does not hold answers to annotate/question=preference ({error!r}): read them "
            "with python evaluate.py annotate=read annotate/question=preference"
        ) from error
    agreed = record.agreement
    alpha = "" if agreed.alpha != agreed.alpha else f"Krippendorff's alpha {agreed.alpha:.2f}."
    return Part(
        f"Ours: {record.title}", ("Captions",), (), PREFER, (_prefer_row(first, second, counts),),
        notes=(alpha,) if alpha else (),
    )  # fmt: skip
