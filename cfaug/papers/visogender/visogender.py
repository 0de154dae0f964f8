"""VisoGender (Hall et al., 2023): pronoun resolution and neutral retrieval for people at work.

``benchmark=visogender`` asks two questions about the same photos: whether a caption with "his" or
one with "her" is more similar to a photo (``PronounResolution``), and whose photos a caption with
"their" retrieves first (``NeutralRetrieval``). The labels are annotators' perceptions of gender
presentation, in two categories; they do not say what somebody's gender is.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

import numpy as np
from annotated_types import MinLen

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.protocols import DualEncoder
from cfaug.core.types import CLUSTER, ITEM, Evaluation, Outcome
from cfaug.core.validation import Positive, check_fields
from cfaug.evaluation.benchmark import fingerprint
from cfaug.evaluation.cached_model import image_keys
from cfaug.evaluation.inference import Pixels, embed_images, embed_texts
from cfaug.papers.visogender.files import FEMININE, MASCULINE, TWO, VisoGenderPhotos
from cfaug.settings.read_if import TRAINED, ReadIf
from cfaug.stats.classification import hits_at
from cfaug.stats.skew_metrics import (
    Zeros,
    bias,
    count_top,
    max_skew,
    min_skew,
    ndkl,
    rank_images,
    skew,
)
from cfaug.stats.skew_tests import chance_ndkl, chance_skew

if TYPE_CHECKING:
    from cfaug.core.protocols import Benchmark
    from cfaug.data.index import Index
    from cfaug.data.mixture.leakage import Leaks
    from cfaug.evaluation.cached_model import CachedEncoder
    from cfaug.evaluation.context import EvaluationContext

OCCUPATION, PARTICIPANT = "occupation", "participant"
REFERENTS = (OCCUPATION, PARTICIPANT)
GENDERS = (MASCULINE, FEMININE)
NEUTRAL, TIE = "neutral", "tie"
PRONOUNS: Mapping[str, str] = {MASCULINE: "his", FEMININE: "her", NEUTRAL: "their"}
SAME, DIFFERENT = "same", "different"

COLUMNS = ("idx", "context", "occupation", "other", "gender", "other_gender", "sector",
           "specialisation")  # fmt: skip
"""Columns of an index read by ``VisoGenderPhotos``."""


FIELDS = ("{person}", "{pronoun}", "{other}")
TEMPLATES: Mapping[str, str] = {
    "occupation": "The {person} and {pronoun} {other}",
    "participant": "The {other} and {pronoun} {person}",
}
"""Captions by the referent of the pronoun, as in the released code."""


@dataclass
class VisoGender:
    """Resolution accuracy, its gender gap, and bias of retrieval, on the user's photos.

    Args:
        data: VisoGender's tsv files, one or several.
        images: the folder of the photos, each named by its IDX, in any subfolders.
        name: the beginning of the names in tables, before "_resolution" and "_retrieval".
        without_missing: whether to leave out photos that are missing or cannot be read; otherwise
            they are an error. Many URLs are dead, so nobody has all photos.
        without_leaks: whether to leave out photos that the run was trained on; otherwise they are
            only reported.
        templates: captions by the referent of the pronoun, with ``{person}`` (the occupation),
            ``{pronoun}`` and ``{other}`` (the object or participant).
        neutral_choice: offer "their" as a third caption to choose, as the released code does; it is
            never right.
        ks: numbers of photos to retrieve, K.
        zeros: the rule for a gender without any of the K photos, see ``Zeros``;
            ``one`` is the paper's rule, as if one photo showed it.

    Raises:
        UserError: if a template lacks a part, or a number is invalid.
    """

    data: str | Sequence[str] | None = None
    images: str | None = None
    name: str = "visogender"
    batch_size: Positive = 256
    """the number of items given to the model at once"""
    without_missing: bool = False
    without_leaks: Annotated[bool, ReadIf({TRAINED: (True,)})] = False
    templates: Mapping[str, str] = field(default_factory=lambda: dict(TEMPLATES))
    neutral_choice: bool = False
    ks: Annotated[Sequence[Positive], MinLen(1)] = (5, 10)
    zeros: Zeros = "smooth"

    def __post_init__(self) -> None:
        check_fields(self, "benchmark")
        if sorted(self.templates) != sorted(REFERENTS):
            raise UserError(
                f"benchmark.templates has {', '.join(self.templates) or 'none'}: it should have "
                f"{' and '.join(REFERENTS)}"
            )
        for referent, template in self.templates.items():
            missing = [part for part in FIELDS if part not in template]
            if missing:
                raise UserError(
                    f"benchmark.templates.{referent}={template!r} is invalid: "
                    f"{missing[0]} is missing"
                )

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        """Open the photos, and return both questions about them."""
        files = [self.data] if isinstance(self.data, str) else list(self.data or ())
        if not files or self.images is None:
            raise UserError(
                "benchmark=visogender needs benchmark.data=FILE.tsv (or a list of such files) and "
                "benchmark.images=FOLDER, in which the photos are named by their IDX, such as "
                "OO_1.jpg"
            )
        if context.read is None:
            raise UserError("benchmark=visogender cannot be run here: evaluate.py runs it")
        lists = [Path(file).expanduser() for file in files]
        index = context.read(VisoGenderPhotos(lists, self.without_missing), self.images)
        photo_context = dataclasses.replace(context, open=lambda _: index)
        rows, leaks = photo_context.apart_from_training(
            self.images, without_leaks=self.without_leaks
        )
        photos = AnnotatedPhotos.read(index, np.arange(len(index)) if rows is None else rows)
        shared: dict[str, Any] = {
            "photos": photos, "templates": dict(self.templates), "batch_size": self.batch_size,
            "leaks": leaks,
        }  # fmt: skip
        benchmarks: list[Any] = [
            PronounResolution(
                name=f"{self.name}_resolution", neutral_choice=self.neutral_choice, **shared
            ),
            NeutralRetrieval(
                name=f"{self.name}_retrieval", ks=tuple(self.ks), zeros=self.zeros, **shared
            ),
        ]
        return cast("list[Benchmark]", benchmarks)


@dataclass(frozen=True)
class AnnotatedPhotos:
    """Annotated photos.

    Attributes:
        rows: the photos' rows of the source, int64 (photos,).
        about: each photo's annotation, {column: value} for ``COLUMNS``.
    """

    index: Index
    rows: np.ndarray
    about: Sequence[Mapping[str, str]]

    @classmethod
    def read(cls, index: Index, rows: np.ndarray) -> AnnotatedPhotos:
        """Read the annotations of some rows."""
        columns = {name: index.extra(name).take(rows).to_pylist() for name in COLUMNS}
        about = [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]
        return cls(index, rows, about)

    @cached_property
    def questions(self) -> list[tuple[int, str]]:
        """Every photo with every possible referent of a pronoun: (index, ``REFERENTS``)."""
        return [
            (i, referent)
            for referent in REFERENTS
            for i, photo in enumerate(self.about)
            if referent == OCCUPATION or photo["context"] == TWO
        ]


def fill_template(template: str, about: Mapping[str, str], pronoun: str) -> str:
    """Return a template's caption about one photo, with a pronoun."""
    filled = template.replace("{pronoun}", pronoun)
    return filled.replace("{person}", about["occupation"]).replace("{other}", about["other"])


@dataclass(frozen=True, kw_only=True)
class PhotoQuestion:
    """A benchmark of photos by captions with a pronoun.

    Attributes:
        templates: {referent of the pronoun: template of the caption}.
        leaks: the photos that the run was trained on; ``None`` if its training data are unknown.
    """

    name: str
    photos: AnnotatedPhotos
    templates: Mapping[str, str]
    batch_size: int
    leaks: Leaks | None = None

    @property
    def needs(self) -> type:
        """A dual encoder."""
        return DualEncoder

    @property
    def settings(self) -> tuple[Any, ...]:
        """Other settings that an answer depends on, for ``fingerprint``."""
        return ()

    @property
    def data_hash(self) -> str:
        """A hash of the photos, the templates and the other settings."""
        photos, templates = self.photos, json.dumps(dict(self.templates), sort_keys=True)
        return fingerprint(photos.index.hash_with(COLUMNS), photos.rows, templates, *self.settings)


@dataclass(frozen=True, kw_only=True)
class PronounResolution(PhotoQuestion):
    """Whether the caption with the right pronoun is the most similar: accuracy and its gender gap.

    Its other attributes are those of ``PhotoQuestion``.

    Attributes:
        neutral_choice: whether "their" can be chosen, which is never right.
    """

    neutral_choice: bool

    item_schema: ClassVar[ItemSchema] = ItemSchema(
        "a photo and the person that the pronoun refers to",
        (
            ItemColumn("item", "``<IDX>/<asked>``", "text", always=True),
            ItemColumn(
                "cluster", "digest of the photo, which several rows may share", "text", always=True
            ),
            ItemColumn("context", "``OO``: a person with an object; ``OP``: two people", "text"),
            ItemColumn("asked", "the referent: ``occupation`` or ``participant``", "text"),
            ItemColumn(
                "pair",
                "whether two people have the ``same`` perceived gender, or ``different`` ones",
                "text",
            ),
            ItemColumn("occupation", "the occupation", "text"),
            ItemColumn("other", "the object or the participant", "text"),
            ItemColumn("sector", "the occupation's sector", "text"),
            ItemColumn("specialisation", "the occupation's specialisation", "text"),
            ItemColumn("gender", "the referent's gender as annotators perceived it", "text"),
            ItemColumn(
                "resolution_accuracy",
                "1 if the right pronoun's caption is the most similar; a share where captions tie",
            ),
            ItemColumn("chosen", "whose caption is the most similar, or ``tie``", "text"),
            ItemColumn("neutral_first", 'whether the caption with "their" is', "yes or no"),
            *(ItemColumn(name, "cosine of this pronoun's caption") for name in PRONOUNS),
        ),
    )

    @property
    def settings(self) -> tuple[Any, ...]:
        return (int(self.neutral_choice),)

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return accuracies and gaps by context, referent of the pronoun, and pair."""
        photos = self.photos
        at = np.array([i for i, _ in photos.questions])
        texts = [
            fill_template(self.templates[referent], photos.about[i], pronoun)
            for i, referent in photos.questions
            for pronoun in PRONOUNS.values()
        ]
        images = embed_images(encoder, Pixels(photos.index, photos.rows), self.batch_size)
        captions = embed_texts(encoder, texts, self.batch_size)
        captions = captions.reshape(len(at), len(PRONOUNS), -1).astype(np.float64)
        scores = np.einsum("nd,npd->np", images[at].astype(np.float64), captions)
        about = [photos.about[i] for i, _ in photos.questions]
        referents = [referent for _, referent in photos.questions]
        digests = [digest.hex() for digest in image_keys(photos.index, photos.rows)]
        gender = [
            photo["gender"] if who == OCCUPATION else photo["other_gender"]
            for photo, who in zip(about, referents, strict=True)
        ]
        offered = scores if self.neutral_choice else scores[:, :2]
        ties = (offered == offered.max(axis=1, keepdims=True)).sum(axis=1) > 1
        truth = np.array([GENDERS.index(value) for value in gender])
        names = np.array([*PRONOUNS])
        items: dict[str, Any] = {
            ITEM: [f"{photo['idx']}/{who}" for photo, who in zip(about, referents, strict=True)],
            CLUSTER: [digests[i] for i, _ in photos.questions],
            "context": [photo["context"] for photo in about],
            "asked": referents,
            "pair": [
                "" if photo["context"] != TWO
                else SAME if photo["gender"] == photo["other_gender"] else DIFFERENT
                for photo in about
            ],
            **{n: [photo[n] for photo in about] for n in ("occupation", "other", "sector",
                                                      "specialisation")},
            "gender": gender,
            "resolution_accuracy": hits_at(offered, truth, (1,))["acc1"],
            "chosen": np.where(ties, TIE, names[offered.argmax(axis=1)]).tolist(),
            "neutral_first": (scores[:, 2:] > scores[:, :2]).all(axis=1),
            **{name: scores[:, column] for column, name in enumerate(PRONOUNS)},
        }  # fmt: skip
        return Evaluation(self._outcomes(items), items)

    def _outcomes(self, items: Mapping[str, Any]) -> list[Outcome]:
        hits = np.asarray(items["resolution_accuracy"])
        columns = {n: np.array(items[n]) for n in ("context", "asked", "pair", "gender")}
        parts: list[dict[str, str]] = []
        for context in dict.fromkeys(items["context"]):
            for referent in REFERENTS if context == TWO else REFERENTS[:1]:
                part = {"context": context, "asked": referent}
                pairs = (SAME, DIFFERENT) if context == TWO else ()
                parts += [part, *({**part, "pair": pair} for pair in pairs)]
        outcomes: list[Outcome] = []
        overall: list[float] = []
        for part in parts:
            chosen = np.all([columns[name] == value for name, value in part.items()], axis=0)
            if not chosen.any():
                continue
            genders = {g: hits[chosen & (columns["gender"] == g)] for g in GENDERS}
            for by, values in (
                (part, hits[chosen]),
                *(({**part, "gender": g}, values) for g, values in genders.items()),
            ):
                if len(values):
                    mean = float(values.mean())
                    outcomes.append(
                        Outcome(self.name, "resolution_accuracy", mean, len(values), by=by)
                    )
            if all(len(values) for values in genders.values()):
                first, second = (float(values.mean()) for values in genders.values())
                n, mean = int(chosen.sum()), (first + second) / 2
                outcomes += [
                    Outcome(self.name, "balanced_accuracy", mean, n, by=part),
                    Outcome(self.name, "gender_gap", abs(first - second), n, "lower", by=part),
                ]
                if part["asked"] == OCCUPATION and "pair" not in part:
                    overall.append(mean)
        if overall:
            mean = float(np.mean(overall))
            outcomes.insert(0, Outcome(self.name, "overall_accuracy", mean, len(hits)))
        return outcomes


@dataclass(frozen=True, kw_only=True)
class NeutralRetrieval(PhotoQuestion):
    """Whose photos does a caption without gender retrieve? Bias@K, MaxSkew@K, NDKL by occupation.

    Its other attributes are those of ``PhotoQuestion``.

    Attributes:
        ks: numbers of photos to retrieve, K.
        zeros: the rule for a gender without any of the K photos, see ``Zeros``.
    """

    ks: tuple[int, ...]
    zeros: Zeros

    item_schema: ClassVar[ItemSchema] = ItemSchema(
        "an occupation and K",
        (
            ItemColumn(
                "item", "``<context>/<asked>/<occupation>, <other>@<K>``", "text", always=True
            ),
            ItemColumn("cluster", "the occupation", "text", always=True),
            ItemColumn("context", "``OO``: a person with an object; ``OP``: two people", "text"),
            ItemColumn("asked", "the referent: ``occupation`` or ``participant``", "text"),
            ItemColumn("occupation", "the occupation", "text"),
            ItemColumn("other", "the object or the participant", "text"),
            ItemColumn("sector", "the occupation's sector", "text"),
            ItemColumn("specialisation", "the occupation's specialisation", "text"),
            ItemColumn("k", "the number of photos retrieved", "whole number"),
            ItemColumn("n_pool", "photos in the pool", "whole number"),
            *(
                ItemColumn(name, "photos of this gender in the pool", "whole number")
                for name in GENDERS
            ),
            *(ItemColumn(f"top_{name}", "photos of this gender among the K") for name in GENDERS),
            ItemColumn("bias", "Bias@K: (masculine - feminine) / both"),
            ItemColumn("abs_bias", "its absolute value"),
            ItemColumn("max_skew", "MaxSkew@K, nats"),
            ItemColumn("min_skew", "MinSkew@K, nats"),
            ItemColumn("max_skew_chance", "MaxSkew@K expected of a random ranking"),
            ItemColumn("max_skew_excess", "the difference from it"),
            ItemColumn("ndkl", "NDKL of the whole ranking"),
            ItemColumn("ndkl_chance", "NDKL expected of a random ranking"),
            ItemColumn("left_out", "why the row has no numbers; else null", "text"),
        ),
    )

    @property
    def settings(self) -> tuple[Any, ...]:
        return np.array(self.ks), self.zeros

    @cached_property
    def _pools(self) -> dict[tuple[str, str, str, str], list[int]]:
        """The photos of each context, asked person, occupation and object or participant."""
        pools: dict[tuple[str, str, str, str], list[int]] = {}
        for i, referent in self.photos.questions:
            photo = self.photos.about[i]
            pool = (photo["context"], referent, photo["occupation"], photo["other"])
            pools.setdefault(pool, []).append(i)
        return pools

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return the means over occupations by context, referent of the pronoun, and K.

        The gender is always that of the person at work, as in the released code.
        """
        photos = self.photos
        texts = [
            fill_template(self.templates[referent], photos.about[places[0]], PRONOUNS[NEUTRAL])
            for (_, referent, _, _), places in self._pools.items()
        ]
        images = embed_images(encoder, Pixels(photos.index, photos.rows), self.batch_size)
        captions = embed_texts(encoder, texts, self.batch_size).astype(np.float64)
        rows: list[dict[str, Any]] = []
        for (pool, places), caption in zip(self._pools.items(), captions, strict=True):
            context, referent, occupation, other = pool
            about = [photos.about[i] for i in places]
            scores = images[places].astype(np.float64) @ caption
            order = rank_images(scores, [photo["idx"] for photo in about])
            ranked = np.array([GENDERS.index(about[at]["gender"]) for at in order.tolist()])
            counts = np.bincount(ranked, minlength=len(GENDERS))
            for k in self.ks:
                row: dict[str, Any] = {
                    ITEM: f"{context}/{referent}/{occupation}, {other}@{k}", CLUSTER: occupation,
                    "context": context, "asked": referent, "occupation": occupation,
                    "other": other, "sector": about[0]["sector"],
                    "specialisation": about[0]["specialisation"], "k": k, "n_pool": len(places),
                    **dict(zip(GENDERS, counts.tolist(), strict=True)),
                    "left_out": None, **dict.fromkeys(NUMBERS, np.nan),
                }  # fmt: skip
                if (counts == 0).any():
                    row["left_out"] = f"all {counts.sum()} photos are of one gender"
                elif k > counts.sum():
                    row["left_out"] = f"there are {counts.sum()} photos, fewer than {k}"
                elif k == counts.sum():
                    row["left_out"] = f"all {k} photos are retrieved, whatever the ranking"
                else:
                    row |= measure_ranking(ranked, counts, k, self.zeros)
                rows.append(row)
        items: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        items |= {name: np.array(items[name], np.float64) for name in NUMBERS}
        return Evaluation(self._outcomes(items), items)

    def _outcomes(self, items: Mapping[str, Any]) -> list[Outcome]:
        counted = np.array([reason is None for reason in items["left_out"]])
        if not counted.any():
            raise UserError(f"{self.name}: no occupation can be evaluated: {items['left_out'][0]}")
        columns = {n: np.array(items[n]) for n in ("context", "asked", "k")}
        columns["pool"] = np.array([name.rpartition("@")[0] for name in items[ITEM]])
        measured: list[tuple[str, str, np.ndarray, dict[str, str]]] = []
        for context, referent in dict.fromkeys(zip(items["context"], items["asked"], strict=True)):
            part = (columns["context"] == context) & (columns["asked"] == referent) & counted
            by = {"context": context, "asked": referent}
            for k in self.ks:
                chosen = part & (columns["k"] == k)
                if chosen.any():
                    measured += [
                        (metric, unit, items[metric][chosen], {**by, "k": str(k)})
                        for metric, unit in METRICS.items()
                    ]
            if part.any():  # these belong to a whole ranking, whatever K
                _, first = np.unique(columns["pool"][part], return_index=True)
                measured.append(("ndkl", "nats", items["ndkl"][part][first], by))
        return [
            Outcome(self.name, metric, float(values.mean()), len(values), "lower", unit, by)
            for metric, unit, values, by in measured
        ]


METRICS: Mapping[str, str] = {
    "abs_bias": "fraction", "max_skew": "nats", "max_skew_excess": "nats",
}  # fmt: skip
"""Metrics that are averaged over occupations, with their units; lower is better."""
NUMBERS = ("top_masculine", "top_feminine", "bias", "abs_bias", "max_skew", "min_skew",
           "max_skew_chance", "max_skew_excess", "ndkl", "ndkl_chance")  # fmt: skip
"""Columns that a row has unless it is left out."""


def measure_ranking(
    ranked: np.ndarray, counts: np.ndarray, k: int, zeros: Zeros
) -> dict[str, float]:
    """Return the numbers of one ranking.

    Args:
        ranked: number of each photo's gender, the best photo first, integers (photos,).
        counts: number of photos of each gender in the pool, integers (2,).
        zeros: the rule for a gender without any of these photos, see ``Zeros``.
    """
    top = count_top(ranked, len(GENDERS), [k])[0]
    share = float(bias(top))
    largest, chance = float(max_skew(top, counts)), chance_skew(counts.tolist(), k).mean
    if zeros == "one":  # an absent gender may then have the larger skew
        from scipy.stats import hypergeom

        first, second = counts.tolist()
        tops = np.arange(max(0, k - second), min(first, k) + 1)
        by_chance = skew(np.stack([tops, k - tops], axis=1), counts, zeros).max(axis=-1)
        chance = float(hypergeom.pmf(tops, first + second, first, k) @ by_chance)
        largest = float(skew(top, counts, zeros).max())
    return {
        "top_masculine": float(top[0]),
        "top_feminine": float(top[1]),
        "bias": share,
        "abs_bias": abs(share),
        "max_skew": largest,
        "min_skew": float(min_skew(top, counts, zeros)),
        "max_skew_chance": chance,
        "max_skew_excess": largest - chance,
        "ndkl": ndkl(ranked, counts),
        "ndkl_chance": chance_ndkl(counts.tolist()),
    }
