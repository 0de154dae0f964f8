"""LANCE on ShapeScapes, by an oracle: is the planted shortcut of a classifier found?

Each of the zoo's classifiers was trained in a world with one planted factor, or none. As the
planted factor is known, the findings of a stress test can be counted as right or wrong.
``WorldEdits`` knows the truth about edits of photos of the world, for ``benchmark=edit_quality``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.types import CLUSTER, CounterfactualSet, Member
from cfaug.core.weights import resolve
from cfaug.data.shards.shards import read_sets
from cfaug.evaluation.stress.stress_items import StressItems
from cfaug.papers.lance.tables import StressTable
from cfaug.report.arm_results import Runs
from cfaug.report.document import Column, Document, Entry, make_part, text_column
from cfaug.report.page import DASH, percent
from cfaug.report.paper_tables import Models, PaperTable
from cfaug.stats.edit_effects import (
    MINIMUM,
    TOP_MEMBERS,
    SliceRetrieval,
    compare_factors,
    discover_factors,
    group_effects,
    precision_at,
)
from cfaug.stats.image_metrics import psnr_outside
from cfaug.worlds.shapescapes.drawing import scene_of
from cfaug.worlds.shapescapes.judge import Judge, load_judge
from cfaug.worlds.shapescapes.language import parse
from cfaug.worlds.shapescapes.oracle import edit_scene, redraw_edited
from cfaug.worlds.shapescapes.settings import PHOTO, STYLES, Factors

OTHER = "other"
"""The factor of an edit that does not change exactly one factor of the world."""
FACTORS = ("subject", "colour", "background", "domain")


def changed_factor(before: str, after: str) -> str:
    """Return the one factor in which two captions differ; ``other`` if there is no such factor.

    >>> changed_factor("a red ball on the beach", "a sketch of a red ball on the beach")
    'domain'
    >>> changed_factor("a red ball on the beach", "a blue cube on the beach")
    'other'
    """
    old, new = parse(before), parse(after)
    if old is None or new is None:
        return OTHER
    first, second = (
        {**vars(statement), "domain": statement.domain or PHOTO} for statement in (old, new)
    )
    differing = [name for name in FACTORS if first[name] != second[name]]
    return differing[0] if len(differing) == 1 else OTHER


@dataclass(frozen=True)
class SliceFinding:
    """The finding of a stress test about one classifier.

    Attributes:
        strongest: the found factor that moves the classifier farthest; ``None`` if none was found.
        found: all factors found, the strongest first.
        precision: share of edits of the planted factor among the ten that move the classifier
            farthest; ``None`` if no factor was planted.
        chance: share of edits of the planted factor among all edits; ``None`` likewise.
    """

    strongest: str | None
    found: tuple[str, ...]
    precision: float | None
    chance: float | None
    edits: int


def find_factor(
    answers: StressItems, part: str, planted: str | None, *, minimum: float, alpha: float
) -> SliceFinding:
    """Look for the factor that a classifier relies on, by the drop of its class's probability.

    Args:
        planted: the factor that the classifier was trained to rely on; ``None`` for no factor.
        minimum: least excess over the reconstruction, see
            ``cfaug.stats.edit_effects.discover_factors``.
    """
    rows = answers.rows(part)
    before, after = answers.texts("text_before"), answers.texts("text")
    factors = np.array([changed_factor(before[row], after[row]) for row in rows])
    delta, control = answers.deltas(rows, "drop")
    clusters = np.array(answers.texts(CLUSTER))[rows]
    effects = group_effects(delta, control, clusters, factors)
    discovered = tuple(map(str, discover_factors(effects, minimum=minimum, alpha=alpha)))
    precision = chance = None
    if planted is not None:
        order = np.argsort(-delta, kind="stable").tolist()
        right = set(np.flatnonzero(factors == planted).tolist())
        precision, chance = precision_at(order, right), len(right) / len(rows)
    return SliceFinding(
        discovered[0] if discovered else None, discovered, precision, chance, len(rows)
    )


Findings = list[tuple[str, SliceFinding]]
"""The planted factor of each classifier, and what was found."""


@dataclass(frozen=True, kw_only=True)
class DiscoveryTable(StressTable):
    """Precision and recall of finding the planted factors of classifiers, by set of edits.

    Args:
        models: {planted factor, or ``none``: checkpoints}, as in other tables of answers.
        sets: {printed name: set of edits}.
        minimum: least excess over the reconstruction, in probability.
    """

    models: Models
    sets: Mapping[str, str]
    minimum: float = MINIMUM
    alpha: float = 0.05
    """the largest p of a factor that is discovered"""

    def build(self, runs: Runs) -> Document:
        """Return a part with precision and recall, and one with the finding for each classifier.

        Raises:
            MissingError: if no classifier has answers, unless ``partial``.
        """
        findings: dict[str, Findings] = {}
        for planted, pairs in self.read(runs).items():
            factor = None if planted == "none" else planted
            for (printed, part), (_, answers) in product(self.sets.items(), pairs):
                if part in answers.sets:
                    finding = find_factor(
                        answers, part, factor, minimum=self.minimum, alpha=self.alpha
                    )
                    findings.setdefault(printed, []).append((planted, finding))
        findings = {printed: findings[printed] for printed in self.sets if findings.get(printed)}
        self.require(findings, "answers of classifiers")
        if not findings:
            return self.document()
        rows = [((printed,), results) for printed, results in findings.items()]
        retrieved = make_part(
            "Ours: the factor that moves a classifier most, against the planted one",
            ("Edits",),
            RETRIEVAL,
            rows,
            (
                "Found: the class's probability drops by at least "
                f"{self.minimum:g} more than under a reconstruction (sign-flip permutation over "
                f"photos, Holm over factors, p <= {self.alpha:g}). A factor found in a classifier "
                f"without a planted one lowers precision. {TOP}: share of edits "
                f"of the planted factor among the {TOP_MEMBERS} that move the classifier most; by "
                "chance: among all edits.",
            ),
        )

        def strongest(planted: str, results: Findings) -> Entry:
            each = [finding.strongest or DASH for name, finding in results if name == planted]
            return Entry(", ".join(each))

        planted_factors = dict.fromkeys(
            name for results in findings.values() for name, _ in results
        )
        each = make_part(
            "Ours: the factors found, classifier by classifier",
            ("Edits",),
            [Column(f"planted: {name}", partial(strongest, name)) for name in planted_factors],
            rows,
            ("The strongest factor of each seed's classifier; a dash: none.",),
        )
        return self.document(retrieved, each, answer=summarise_findings(findings))


def summarise_findings(findings: Mapping[str, Findings]) -> str:
    """Say how many planted shortcuts are found, and how many false alarms there are."""
    right, alarms = [], []
    for printed, results in findings.items():
        planted = [finding.strongest == name for name, finding in results if name != "none"]
        right.append(f"{printed} {sum(planted)} of {len(planted)}")
        free = [finding.strongest is not None for name, finding in results if name == "none"]
        alarms.append(f"{printed} {sum(free)} of {len(free)}")
    return (
        f"Planted shortcuts that are found: {', '.join(right)}. False alarms in classifiers "
        f"without one: {', '.join(alarms)}."
    )


def _share(value: float, n: int) -> Entry:
    if np.isnan(value):
        return Entry(DASH)
    return Entry(percent(value, 1), numbers={"value": value, "n": float(n)})


def _mean_share(values: Iterable[float | None]) -> Entry:
    known = [value for value in values if value is not None]
    return _share(float(np.mean(known)) if known else math.nan, len(known))


def _compare(findings: Findings) -> SliceRetrieval:
    return compare_factors(
        [{finding.strongest} - {None} for _, finding in findings],
        [set() if planted == "none" else {planted} for planted, _ in findings],
    )


TOP = f"Precision@{TOP_MEMBERS}"
RETRIEVAL: tuple[Column[Findings], ...] = (
    text_column("Classifiers", lambda findings: str(len(findings))),
    Column("Precision", lambda f: _share(_compare(f).precision, _compare(f).found)),
    Column("Recall", lambda f: _share(_compare(f).recall, _compare(f).planted)),
    Column(TOP, lambda findings: _mean_share(finding.precision for _, finding in findings)),
    Column("by chance", lambda findings: _mean_share(finding.chance for _, finding in findings)),
    text_column(
        "Edits each", lambda findings: f"{np.mean([finding.edits for _, finding in findings]):.0f}"
    ),
)


# Quality of edited photos, by an oracle: did the right factor change, and nothing else?
#
# A judge, trained on drawn scenes, predicts what a picture shows; the oracle redraws the scene for
# the edited caption, so it is known where the picture may change.


@dataclass(frozen=True)
class EditedPicture:
    """A picture of a joined set, and the factors that it should show.

    Attributes:
        kind: the kind of the edit; ``original`` for the photo itself.
        factor: the factor that should change; ``None`` for a photo and its reconstruction.
        pixels: the picture, uint8 (size, size, 3).
        psnr: PSNR to the photo in dB, outside the region that the edit may change; ``nan`` if it
            may change everything.
    """

    kind: str
    factor: str | None
    wanted: Factors
    pixels: NDArray[np.uint8]
    psnr: float


@dataclass(frozen=True)
class EditQuality:
    """Quality of the pictures of one kind.

    Attributes:
        changed: share of pictures in which the judge sees the wanted value of the factor; ``nan``
            if no factor should change.
        label: share of pictures in which the judge sees the photo's subject.
        rest: share of pictures in which it sees the photo's value of every other factor.
        all: share of pictures in which it sees all of these.
        psnr: mean PSNR in dB over pictures with a finite one; ``nan`` without any.
    """

    kind: str
    n: int
    changed: float
    label: float
    rest: float
    all: float
    psnr: float


def measure_edits(pictures: Iterable[EditedPicture], judge: Judge) -> list[EditQuality]:
    """Return the quality of edits by kind, in alphabetical order."""
    qualities, subject = [], FACTORS.index("subject")
    ordered = sorted(pictures, key=lambda picture: picture.kind)
    for kind, group in groupby(ordered, lambda picture: picture.kind):
        of_kind = list(group)
        seen = judge.factors(np.stack([picture.pixels.transpose(2, 0, 1) for picture in of_kind]))
        right = np.array(
            [
                [getattr(saw, name) == getattr(picture.wanted, name) for name in FACTORS]
                for saw, picture in zip(seen, of_kind, strict=True)
            ]
        )
        # Which factor of each picture should change.
        edited = np.array([[picture.factor == name for name in FACTORS] for picture in of_kind])
        others = ~edited
        others[:, subject] = False
        finite = [picture.psnr for picture in of_kind if np.isfinite(picture.psnr)]
        qualities.append(
            EditQuality(
                kind=kind,
                n=len(of_kind),
                changed=float(right[edited].mean()) if edited.any() else math.nan,
                label=float(right[:, subject].mean()),
                rest=float((right | ~others).all(axis=1).mean()),
                all=float(right.all(axis=1).mean()),
                psnr=float(np.mean(finite)) if finite else math.nan,
            )
        )
    return qualities


def read_pictures(folder: Path, style: str) -> Iterator[EditedPicture]:
    """Yield the photos, reconstructions and edits of joined sets of the embedded world.

    Edits whose captions are not sentences of the world, or change no factor, are left out.
    """
    for photo_set in read_sets(folder):
        photo, *others = photo_set.members
        try:
            scene = scene_of(photo.extra)
        except (KeyError, ValueError) as error:
            raise UserError(
                f"{folder}: set {photo_set.key!r} is not a scene of the world"
            ) from error
        first = _pixels(photo_set, photo)
        yield EditedPicture("original", None, scene.factors, first, math.nan)
        for member in others:
            kind, wanted, factor = member.edit.kind if member.edit else "", scene.factors, None
            mask = np.zeros(first.shape[:2], np.bool_)
            if member.text != photo.text:
                after = edit_scene(scene, photo.text, member.text)
                factor = changed_factor(photo.text, member.text)
                if after is None or factor == OTHER:
                    continue
                wanted = after.factors
                _, mask = redraw_edited(scene, after, size=len(first), style=STYLES[style])
            pixels = _pixels(photo_set, member)
            psnr = psnr_outside(pixels, first, mask)
            yield EditedPicture(kind, factor, wanted, pixels, psnr)


def _pixels(counterfactual: CounterfactualSet, member: Member) -> NDArray[np.uint8]:
    image = counterfactual.images[member.image_name]
    return np.asarray(decode_image(image, f"set {counterfactual.key!r}"))


@dataclass(frozen=True, kw_only=True)
class EditQualityTable(PaperTable):
    """Shares of edited photos that show what their captions say and keep everything else.

    Args:
        folders: {printed name: folder of shards}.
        judge: the model that predicts what a picture shows.
    """

    folders: Mapping[str, str]
    judge: str = "zoo:judge-domains"
    style: str = "clear"
    """the style of the world in which edits were made"""

    def build(self, runs: Runs) -> Document:
        """Return a part with a row for each folder and kind of edit.

        Raises:
            MissingError: if a folder is missing, unless ``partial``.
        """
        there = {
            name: Path(f) for name, f in self.folders.items() if (Path(f) / "card.json").is_file()
        }
        lacking = [folder for name, folder in self.folders.items() if name not in there]
        self.require(not lacking, *lacking)
        judge = load_judge(resolve(self.judge))
        rows = [
            ((name, edit.kind), edit)
            for name, folder in there.items()
            for edit in measure_edits(read_pictures(folder, self.style), judge)
        ]
        if not rows:
            return self.document()
        part = make_part(
            "Ours: pictures as a judge sees them",
            ("Images", "Kind"),
            QUALITY,
            rows,
            (
                "PSNR: outside the region that the edit may change, by the oracle's masks; "
                "everywhere for a reconstruction. A dash: the edit may change everything. The "
                "judge errs too: the originals show how often.",
            ),
        )
        return self.document(part)


def _psnr(quality: EditQuality) -> Entry:
    if np.isnan(quality.psnr):
        return Entry(DASH)
    return Entry(f"{quality.psnr:.1f}", numbers={"value": quality.psnr})


QUALITY: tuple[Column[EditQuality], ...] = (
    text_column("n", lambda quality: str(quality.n)),
    Column("Factor changed", lambda quality: _share(quality.changed, quality.n)),
    Column("Label kept", lambda quality: _share(quality.label, quality.n)),
    Column("Rest kept", lambda quality: _share(quality.rest, quality.n)),
    Column("All three", lambda quality: _share(quality.all, quality.n)),
    Column("PSNR (dB)", _psnr),
)
