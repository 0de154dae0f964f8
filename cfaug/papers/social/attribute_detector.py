"""Do images show what their captions asked for? A dual encoder is prompted with each value.

SocialCounterfactuals, A.4: an image shows whichever of "A male person" and "A female person" is
more similar to it. This tests the images if the model is trusted, and the model if people have
labelled the images.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np

from cfaug.annotation.record import HumanAnswers, read_human_answers
from cfaug.core.errors import UserError, say
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.types import CLUSTER, ITEM, Evaluation, Outcome
from cfaug.editing.caption_grids import right_articles
from cfaug.evaluation.benchmark import SourceBenchmark, fingerprint
from cfaug.evaluation.cached_model import image_keys
from cfaug.evaluation.inference import Pixels, embed_images, embed_texts
from cfaug.papers.social.grid_sets import GridSets, Invalid, read_grid_sets
from cfaug.settings.read_if import GIVEN, ReadIf
from cfaug.stats.classification import class_scores, confusion_matrix
from cfaug.stats.ranking import Candidates, first_equal

if TYPE_CHECKING:
    from cfaug.core.protocols import DualEncoder
    from cfaug.data.index import Index
    from cfaug.evaluation.cached_model import CachedEncoder
    from cfaug.evaluation.context import EvaluationContext

VALUE, SUBJECT = "{value}", "{subject}"
TIE = "its prompts are equally similar, as when a model knows no word of them"
AS_CAPTIONED, LEFT_OUT = "asked", "left_out"
"""Meanings of people's answers: the image shows the value in its caption; it is left out."""


@dataclass
class AttributeDetector(SourceBenchmark):
    """Precision, recall and F1 of one attribute's values, predicted by prompts.

    Args:
        name: the name in tables, ending in "_attribute_detector"; ``None`` takes the folder's.
        without_leaks: whether to leave out sets that the run was trained on; otherwise they are
            only reported.
        attribute: the attribute to predict; grids without it are skipped.
        template: the prompt of each value, with ``{value}`` and optionally ``{subject}``; "a"
            becomes "an" before a vowel.
        prompts: {value: a prompt, or a list of prompts to average as unit embeddings}; ``None``
            uses ``template``.
        grids: names of the grids to use; ``None`` uses all with the attribute.
        labels: people's answers about the images (``labels.jsonl`` of ``cfaug annotate read``);
            only these images are used. With ``None`` the truth is the value in each caption.
        answers: {people's answer: its meaning, which is a value, ``asked`` or ``left_out``}.
        invalid: ``refuse`` or ``leave_out`` sets that are incomplete or outside of their grid.
    """

    attribute: str = "gender"
    template: Annotated[str, ReadIf({"prompts": (None,)})] = "A {value} person"
    prompts: Mapping[str, str | Sequence[str]] | None = None
    grids: Sequence[str] | None = None
    labels: str | None = None
    answers: Annotated[Mapping[str, str], ReadIf({"labels": GIVEN})] = field(default_factory=dict)
    invalid: Invalid = "refuse"

    kind: ClassVar[str] = "attribute_detector"
    whole_sets: ClassVar[bool] = True
    item_schema: ClassVar[ItemSchema] = ItemSchema(
        "an image",
        (
            ItemColumn("item", "``<set>_<member>``", "text", always=True),
            ItemColumn("cluster", "its set", "text", always=True),
            ItemColumn("image", "digest of its bytes", "text"),
            ItemColumn("subject", "its subject", "text"),
            ItemColumn("subject_type", "the kind of the subject", "text"),
            ItemColumn("grid", "its grid", "text"),
            ItemColumn("label", "all values of its attributes, separated by spaces", "text"),
            ItemColumn("asked", "the value that its caption asked for", "text"),
            ItemColumn("truth", "what it shows, by caption or people; null if left out", "text"),
            ItemColumn("left_out", "why it does not count; else null", "text"),
            ItemColumn("predicted", "the value of the most similar prompt; null on a tie", "text"),
            ItemColumn("accuracy", "1 if that is the truth, else 0; null if left out"),
            ItemColumn("margin", "cosine of the truth's prompt minus the largest other"),
            ItemColumn("scores", "cosines by value", "JSON"),
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if VALUE not in self.template:
            raise UserError(
                f"benchmark.template={self.template!r} is invalid: {VALUE} is missing, where the "
                "value goes"
            )

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        self.use(read_grid_sets(index, rows, self.invalid))

    def use(self, sets: GridSets) -> Self:
        """Use sets, and return this benchmark."""
        self._sets = sets
        names = list(sets.grids) if self.grids is None else list(self.grids)
        unknown = [name for name in names if name not in sets.grids]
        if unknown:
            raise UserError(
                f"benchmark.grids: {unknown[0]!r} is missing in {sets.index.source}: choose from "
                f"{', '.join(sets.grids)}"
            )
        self._grids = [sets.grids[n] for n in names if self.attribute in sets.grids[n].attributes]
        if not names:
            raise UserError("benchmark.grids=[] is invalid: name some, or null for all")
        if not self._grids:
            there = {name for grid in sets.grids.values() for name in grid.attributes}
            raise UserError(
                f"benchmark.attribute={self.attribute} is invalid: the grids of "
                f"{sets.index.source} have {', '.join(sorted(there))}"
            )
        values = (grid.attributes[self.attribute] for grid in self._grids)
        self.class_names = list(dict.fromkeys(value for offered in values for value in offered))
        if self.prompts is not None:
            for wrong, problem in (
                (set(self.prompts) - set(self.class_names), "is not a value of the attribute"),
                (set(self.class_names) - set(self.prompts), "has no prompt"),
            ):
                if wrong:
                    raise UserError(
                        f"benchmark.prompts: {sorted(wrong)[0]!r} {problem}; {self.attribute} has "
                        f"{', '.join(self.class_names)}"
                    )
            empty = [value for value, texts in self.prompts.items() if not texts]
            if empty:
                raise UserError(f"benchmark.prompts: the prompt of {empty[0]!r} is empty")
        self._rows = np.concatenate([grid.rows for grid in self._grids])
        self._images = Pixels(sets.index, self._rows)
        self._said: HumanAnswers | None = None
        if self.labels is not None:
            choices = (AS_CAPTIONED, LEFT_OUT, *self.class_names)
            strange = [(n, v) for n, v in self.answers.items() if v not in choices]
            if strange or not self.answers:
                shown = "it is empty" if not strange else f"{strange[0][0]} is {strange[0][1]!r}"
                raise UserError(
                    f"benchmark.answers is invalid, {shown}: the meaning of an answer is one of "
                    f"{', '.join(choices)}"
                )
            self._said = read_human_answers(self.labels, self.answers)
            names_of_all = sets.index.keys(np.arange(len(sets.index)))
            self._said.check_images(names_of_all, sets.index.source)
        return self

    @property
    def data_hash(self) -> str:
        prompts = json.dumps(self.prompts and dict(self.prompts), sort_keys=True, default=list)
        labels_hash = "" if self._said is None else self._said.hash
        answers = json.dumps(dict(self.answers), sort_keys=True) if labels_hash else ""
        index = self._sets.index.hash_with(["attributes", "grid", "subject"])
        return fingerprint(
            index, self._rows, self.attribute, self.template, prompts, labels_hash, answers,
            self.class_names,
        )  # fmt: skip

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return accuracy, in total and by label, and precision, recall and F1 by value."""
        items = self._items()
        scores = self._scores(encoder, items[SUBJECT.strip("{}")])
        number = {value: at for at, value in enumerate(self.class_names)}
        truth = np.array([-1 if item is None else number[item] for item in items["truth"]])
        predicted = scores.argmax(axis=1)
        ties = (scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1
        items["left_out"] = [
            (TIE if tie else None) if reason is None else reason
            for reason, tie in zip(items["left_out"], ties.tolist(), strict=True)
        ]
        counted = (truth >= 0) & ~ties
        if not counted.any():
            raise UserError(f"{self.name}: no image is left: {items['left_out'][0]}")
        target = np.where(counted, truth, 0)
        picked = scores[np.arange(len(target)), target]
        others = np.where(np.arange(len(number)) == target[:, None], -np.inf, scores).max(axis=1)
        items |= {
            "predicted": [
                None if tie else self.class_names[at]
                for at, tie in zip(predicted.tolist(), ties.tolist(), strict=True)
            ],
            "accuracy": np.where(counted, predicted == truth, np.nan),
            "margin": np.where(counted, picked - others, np.nan),
            "scores": [
                json.dumps(dict(zip(self.class_names, map(float, row), strict=True)))
                for row in scores
            ],
        }
        reasons = Counter(filter(None, items["left_out"]))
        if reasons:
            listed = "; ".join(f"{reason} ({count:,})" for reason, count in reasons.items())
            say(f"{self.name}: {reasons.total():,} images are left out: {listed}")
        return Evaluation(self._outcomes(items, truth[counted], predicted[counted]), items)

    def _items(self) -> dict[str, Any]:
        """Return the columns that do not depend on a model."""
        sets, index = self._sets, self._sets.index
        columns: dict[str, list[Any]] = {
            name: [] for name in ("subject", "subject_type", "grid", CLUSTER, "label", "asked")
        }
        for grid in self._grids:
            codes, labels = grid.label(list(grid.attributes))
            columns["subject"] += [sets.subjects[at] for at in grid.subjects.tolist()]
            columns["subject_type"] += [sets.subject_types[at] for at in grid.subjects.tolist()]
            columns["grid"] += [grid.name] * len(grid.rows)
            columns[CLUSTER] += [sets.set_names[at] for at in grid.sets.tolist()]
            columns["label"] += [labels[code] for code in codes.tolist()]
            values = grid.values[:, list(grid.attributes).index(self.attribute)].tolist()
            columns["asked"] += [grid.attributes[self.attribute][value] for value in values]
        names = index.keys(self._rows)
        truth: list[str | None] = list(columns["asked"])
        reasons: list[str | None] = [None] * len(names)
        answered = {} if self._said is None else self._said.labels
        for at, name in enumerate(() if self._said is None else names):
            label = answered.get(name)
            shows = LEFT_OUT if label is None else self.answers[label]
            if shows == LEFT_OUT:
                reason = "nobody said, or no majority" if label is None else f"people said: {label}"
                truth[at], reasons[at] = None, reason
            elif shows != AS_CAPTIONED:
                truth[at] = shows
        digests = [digest.hex() for digest in image_keys(index, self._rows)]
        return {ITEM: names, **columns, "image": digests, "truth": truth, "left_out": reasons}

    def _scores(self, encoder: DualEncoder | CachedEncoder, subjects: Sequence[str]) -> np.ndarray:
        """Return the cosine of each image with each value's prompt, float64 (images, values)."""
        images = embed_images(encoder, self._images, self.batch_size)
        per_subject = SUBJECT in self.template and self.prompts is None
        order = list(dict.fromkeys(subjects)) if per_subject else [""]
        texts: list[list[str]] = []
        for subject in order:
            for value in self.class_names:
                if self.prompts is not None:
                    prompts = self.prompts[value]
                    texts.append([prompts] if isinstance(prompts, str) else list(prompts))
                else:
                    filled = self.template.replace(VALUE, value).replace(SUBJECT, subject)
                    texts.append([right_articles(filled)])
        flat = embed_texts(encoder, list(chain(*texts)), self.batch_size)
        ends = np.cumsum([len(prompts) for prompts in texts])
        means = np.stack([vectors.mean(axis=0) for vectors in np.split(flat, ends[:-1])])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        scores = np.empty((len(images), len(self.class_names)))
        for subject, vectors in zip(order, np.split(means, len(order)), strict=True):
            rows = np.array(subjects) == subject if per_subject else np.ones(len(images), bool)
            scores[rows] = (
                Candidates(vectors, first_equal(vectors)).score(images[rows]).astype(np.float64)
            )
        return scores

    def _outcomes(
        self, items: Mapping[str, Any], truth: np.ndarray, predicted: np.ndarray
    ) -> list[Outcome]:
        hits = np.asarray(items["accuracy"])
        outcomes = [self.outcome("accuracy", float(np.nanmean(hits)), int((~np.isnan(hits)).sum()))]
        matrix = confusion_matrix(truth, predicted, len(self.class_names))
        for value, scores in zip(self.class_names, class_scores(matrix), strict=True):
            for metric in ("precision", "recall", "f1"):
                score = getattr(scores, metric)
                n = scores.predicted if metric == "precision" else scores.support
                if not np.isnan(score):
                    outcomes.append(Outcome(str(self.name), metric, score, n, by={"value": value}))
        grids, labels = np.array(items["grid"]), np.array(items["label"])
        for grid in self._grids:
            for label in grid.label(list(grid.attributes))[1]:
                of_label = hits[(grids == grid.name) & (labels == label)]
                of_label = of_label[~np.isnan(of_label)]
                if len(of_label):
                    by = {"grid": grid.name, "label": label}
                    mean = float(of_label.mean())
                    outcomes.append(Outcome(str(self.name), "accuracy", mean, len(of_label), by=by))
        return outcomes
