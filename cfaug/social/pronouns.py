"""Photos of people at work, compared with captions that differ in a pronoun."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.protocols import DualEncoder
from cfaug.core.types import CLUSTER, ITEM, Evaluation, Outcome
from cfaug.data.sources.visogender import FEMININE, MASCULINE, TWO
from cfaug.evaluation.benchmark import fingerprint
from cfaug.evaluation.cached_model import image_keys
from cfaug.evaluation.inference import Pixels, embed_images, embed_texts
from cfaug.stats.classification import hits_at

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.leakage import Leaks
    from cfaug.evaluation.cached_model import CachedEncoder

OCCUPATION, PARTICIPANT = "occupation", "participant"
ASKED = (OCCUPATION, PARTICIPANT)
GENDERS = (MASCULINE, FEMININE)
NEUTRAL, TIE = "neutral", "tie"
PRONOUNS: Mapping[str, str] = {MASCULINE: "his", FEMININE: "her", NEUTRAL: "their"}
SAME, DIFFERENT = "same", "different"

COLUMNS = ("idx", "context", "occupation", "other", "gender", "other_gender", "sector",
           "specialisation")  # fmt: skip
"""Columns of an index read by ``VisoGenderPhotos``."""


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
        """Every photo with every possible referent of a pronoun: (place, ``ASKED``)."""
        return [
            (place, asked)
            for asked in ASKED
            for place, one in enumerate(self.about)
            if asked == OCCUPATION or one["context"] == TWO
        ]

    def hash(self) -> str:
        """Return a hash of the photos and their annotations."""
        return self.index.hash_with(COLUMNS)


def fill_template(template: str, about: Mapping[str, str], pronoun: str) -> str:
    """Return a template's caption about one photo, with a pronoun."""
    filled = template.replace("{pronoun}", pronoun)
    return filled.replace("{person}", about["occupation"]).replace("{other}", about["other"])


@dataclass(frozen=True, kw_only=True)
class PhotoQuestion:
    """A benchmark of photos by captions with a pronoun.

    Attributes:
        name: the benchmark's name in tables.
        templates: {referent of the pronoun: template of the caption}.
        batch_size: number of images or captions embedded at once.
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
        told = json.dumps(dict(self.templates), sort_keys=True)
        return fingerprint(self.photos.hash(), self.photos.rows, told, *self.settings)


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
        """Whether "their" can be chosen."""
        return (int(self.neutral_choice),)

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return accuracies and gaps by context, referent of the pronoun, and pair."""
        photos = self.photos
        at = np.array([place for place, _ in photos.questions])
        texts = [
            fill_template(self.templates[asked], photos.about[place], pronoun)
            for place, asked in photos.questions
            for pronoun in PRONOUNS.values()
        ]
        images = embed_images(encoder, Pixels(photos.index, photos.rows), self.batch_size)
        captions = embed_texts(encoder, texts, self.batch_size)
        captions = captions.reshape(len(at), len(PRONOUNS), -1).astype(np.float64)
        scores = np.einsum("nd,npd->np", images[at].astype(np.float64), captions)
        items = self._items(scores)
        return Evaluation(self._outcomes(items), items)

    def _items(self, scores: np.ndarray) -> dict[str, Any]:
        photos = self.photos
        about = [photos.about[place] for place, _ in photos.questions]
        asked = [one for _, one in photos.questions]
        digests = [digest.hex() for digest in image_keys(photos.index, photos.rows)]
        gender = [
            one["gender"] if who == OCCUPATION else one["other_gender"]
            for one, who in zip(about, asked, strict=True)
        ]
        offered = scores if self.neutral_choice else scores[:, :2]
        truth = np.array([GENDERS.index(one) for one in gender])
        names = np.array([*PRONOUNS])
        return {
            ITEM: [f"{one['idx']}/{who}" for one, who in zip(about, asked, strict=True)],
            CLUSTER: [digests[place] for place, _ in photos.questions],
            "context": [one["context"] for one in about],
            "asked": asked,
            "pair": [_pair(one) for one in about],
            **{n: [one[n] for one in about] for n in ("occupation", "other", "sector",
                                                      "specialisation")},
            "gender": gender,
            "resolution_accuracy": hits_at(offered, truth, (1,))["acc1"],
            "chosen": np.where(_ties(offered), TIE, names[offered.argmax(axis=1)]).tolist(),
            "neutral_first": (scores[:, 2:] > scores[:, :2]).all(axis=1),
            **{name: scores[:, column] for column, name in enumerate(PRONOUNS)},
        }  # fmt: skip

    def _outcomes(self, items: Mapping[str, Any]) -> list[Outcome]:
        hits = np.asarray(items["resolution_accuracy"])
        columns = {n: np.array(items[n]) for n in ("context", "asked", "pair", "gender")}
        parts: list[dict[str, str]] = []
        for context in dict.fromkeys(items["context"]):
            for asked in ASKED if context == TWO else ASKED[:1]:
                part = {"context": context, "asked": asked}
                pairs = (SAME, DIFFERENT) if context == TWO else ()
                parts += [part, *({**part, "pair": pair} for pair in pairs)]
        outcomes: list[Outcome] = []
        overall: list[float] = []
        for part in parts:
            own = np.all([columns[name] == value for name, value in part.items()], axis=0)
            if not own.any():
                continue
            outcomes.append(self._outcome("resolution_accuracy", hits[own], part))
            by = {g: hits[own & (columns["gender"] == g)] for g in GENDERS}
            outcomes += [
                self._outcome("resolution_accuracy", by[g], {**part, "gender": g})
                for g in GENDERS if len(by[g])
            ]  # fmt: skip
            if all(len(values) for values in by.values()):
                first, second = (float(by[g].mean()) for g in GENDERS)
                n = int(own.sum())
                mean = (first + second) / 2
                outcomes += [
                    Outcome(self.name, "balanced_accuracy", mean, n, by=part),
                    Outcome(self.name, "gender_gap", abs(first - second), n, "lower", by=part),
                ]
                if part["asked"] == OCCUPATION and "pair" not in part:
                    overall.append(mean)
        if overall:
            outcomes.insert(
                0, Outcome(self.name, "overall_accuracy", float(np.mean(overall)), len(hits))
            )
        return outcomes

    def _outcome(self, metric: str, values: np.ndarray, by: Mapping[str, str]) -> Outcome:
        return Outcome(self.name, metric, float(values.mean()), len(values), by=by)


def _ties(scores: np.ndarray) -> np.ndarray:
    """Return which rows have a tie for the largest score, bool (rows,)."""
    found: np.ndarray = (scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1
    return found


def _pair(about: Mapping[str, str]) -> str:
    if about["context"] != TWO:
        return ""
    return SAME if about["gender"] == about["other_gender"] else DIFFERENT
