"""A linear classifier of a model's image features: ``benchmark=linear_probe``.

The recipe is CLIP's (Radford et al., 2021, section A.3): logistic regression by L-BFGS, its penalty
chosen on a validation split of the training images and then trained on all of them. Published
numbers differ in the features: ``features`` chooses those of CLIP_benchmark, of CLIP's README, or
of the paper. They are cached, each kind by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Lt

from cfaug.core.errors import UserError, say_once
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.types import CLUSTER, ITEM, Evaluation
from cfaug.core.validation import Seed
from cfaug.data.mixture.records import random_keys
from cfaug.data.sources.row import split_home
from cfaug.evaluation.benchmark import SourceBenchmark, cluster_rows, fingerprint, name_rows
from cfaug.evaluation.classification import labels_of, tested_folder
from cfaug.evaluation.inference import ImageFeatures, Pixels, embed_images, image_keys
from cfaug.stats.linear_probe import DECADES, choose_strength, fit_logistic

if TYPE_CHECKING:
    from cfaug.core.protocols import DualEncoder
    from cfaug.data.index import Index
    from cfaug.evaluation.cached_model import CachedEncoder
    from cfaug.evaluation.context import EvaluationContext


@dataclass
class LinearProbe(SourceBenchmark):
    """A linear classifier of image features, trained on one source and tested on another.

    Args:
        data: the test images with classes, in any form of ``benchmark=classification``.
        name: the name in tables, ending in "_linear_probe"; ``None`` takes the folder's name.
        without_leaks: whether to leave out images that the run was trained on, or whose COCO photo
            it was trained on; otherwise they are only reported.
        train: the training images with classes; ``None`` takes the split ``train`` of ``data``.
        label: the column that names the classes, of both; ``None`` takes those of their form.
        shots: number of training images of each class, drawn by ``seed``; ``None`` takes all.
        validation: the share of the training images on which the penalty is chosen.
        seed: seed of the draw and of the split.
        features: ``embedding`` of unit length, as CLIP_benchmark's probe has it; what
            ``encode_image`` returns, as in CLIP's README; or ``before_projection``, as the paper's
            A.3 for ViTs, from a model that has a projection.
    """

    train: str | None = None
    label: str | None = None
    shots: Annotated[int, Ge(2)] | None = None
    validation: Annotated[float, Gt(0), Lt(1)] = 0.2
    seed: Seed = 0
    features: ImageFeatures = "embedding"

    kind: ClassVar[str] = "linear_probe"
    primary_metrics: ClassVar[tuple[str, ...]] = ("acc1",)
    item_schema: ClassVar[ItemSchema] = ItemSchema(
        "an image",
        (
            ItemColumn("item", "the image", "text", always=True),
            ItemColumn("cluster", "its group, such as its photo", "text", always=True),
            ItemColumn("acc1", "1 if the probe predicts its class"),
            ItemColumn("label", "its class", "text"),
            ItemColumn("predicted", "the class that the probe predicts", "text"),
        ),
    )

    def source(self) -> str:
        return tested_folder(super().source())

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        trained = self._open_train(context)
        rows = np.arange(len(index)) if rows is None else rows
        self._pixels, labels = self._read(index, rows)
        self._train_pixels, train_labels = self._read(trained, np.arange(len(trained)))
        tested = set(image_keys(index, self._pixels.rows))
        keys = image_keys(trained, self._train_pixels.rows)
        if both := [at for at, key in enumerate(keys) if key in tested]:
            shown = trained.image_name(int(self._train_pixels.rows[both[0]]))
            raise UserError(
                f"{self.name}: {len(both):,} images of {trained.source} are also in "
                f"{index.source}, such as {shown}: a probe is tested on images that it was not "
                "trained on. Name two splits: benchmark.train=FOLDER:train "
                "benchmark.data=FOLDER:test"
            )
        self.class_names = sorted(set(train_labels))
        if len(self.class_names) < 2:
            raise UserError(
                f"{self.name}: every training image of {trained.source} is of the class "
                f"{self.class_names[0]!r}; a probe needs two"
            )
        if unknown := sorted(set(labels) - set(self.class_names)):
            raise UserError(
                f"{self.name}: {index.source} has classes that {trained.source} lacks, such as "
                f"{unknown[0]!r}; there are {', '.join(self.class_names[:10])}"
            )
        number = {label: at for at, label in enumerate(self.class_names)}
        self._labels = np.array([number[label] for label in labels])
        self._train_labels = np.array([number[label] for label in train_labels])
        self._draw(trained)

    def _open_train(self, context: EvaluationContext) -> Index:
        if self.train is not None:
            return context.open(self.train)
        source = SourceBenchmark.source(self)
        home = split_home(Path(source))[0]
        split = str(home / "train") if (home / "train").is_dir() else f"{home}:train"
        try:
            return context.open(split)
        except UserError as error:
            raise UserError(
                f"{self.name}: benchmark.train=FOLDER is missing, the training images with their "
                f"classes; benchmark.data={source} has no split `train` of its own ({error})"
            ) from error

    def _read(self, index: Index, rows: np.ndarray) -> tuple[Pixels, list[str]]:
        """Return the different images of some rows, and their classes."""
        _, first = np.unique(index.images[rows], return_index=True)
        labels = labels_of(index, self.label)
        shown = [labels[row] for row in rows[first].tolist()]
        if "" in shown:
            culprit = index.image_name(int(rows[first][shown.index("")]))
            raise UserError(
                f"{self.name}: {culprit} of {index.source} has no class; benchmark.label=COLUMN "
                "names the column of classes"
            )
        return Pixels(index, rows[first]), shown

    def _draw(self, trained: Index) -> None:
        """Draw the training images, and choose those to validate on.

        Of each class, groups of images are validated on in the order of the seed, up to the share,
        and at least one of two or more.
        """
        groups = np.asarray(trained.groups)[self._train_pixels.rows]
        order = np.argsort(random_keys(groups, self.seed, "linear_probe"), kind="stable")
        kept, held = [], set()
        for number, name in enumerate(self.class_names):
            of_class = order[self._train_labels[order] == number]
            if self.shots is not None and len(of_class) < self.shots:
                raise UserError(
                    f"{self.name}: benchmark.shots={self.shots} asks for more than there is: "
                    f"{len(of_class)} images of {name!r} in {trained.source}"
                )
            of_class = of_class[: self.shots]
            kept += of_class.tolist()
            in_class = list(dict.fromkeys(groups[of_class].tolist()))
            share = max(int(self.validation * len(in_class)), int(len(in_class) > 1))
            held |= set(in_class[: min(share, len(in_class) - 1)])
        rows = np.array(sorted(kept))
        self._train_pixels = Pixels(trained, self._train_pixels.rows[rows])
        self._train_labels = self._train_labels[rows]
        self._validation = np.isin(groups[rows], np.array(sorted(held), groups.dtype))
        if not held or len(set(self._train_labels[~self._validation].tolist())) < 2:
            raise UserError(
                f"{self.name}: {len(rows):,} training images of {len(self.class_names)} classes "
                f"cannot be split with benchmark.validation={self.validation}: two classes need "
                "two groups of images each"
            )

    @property
    def data_hash(self) -> str:
        tested = (self._pixels.index.hash, self._pixels.rows, self._labels)
        trained = (self._train_pixels.index.hash, self._train_pixels.rows, self._train_labels)
        others = [] if self.features == "embedding" else [self.features]
        return fingerprint(*tested, *trained, self._validation, self.class_names, *others)

    def run(self, model: DualEncoder | CachedEncoder) -> Evaluation:
        """Return accuracy and mean recall over classes; say what penalty was chosen if extreme."""
        features = embed_images(model, self._train_pixels, self.batch_size, self.features)
        strength = choose_strength(features, self._train_labels, self._validation)
        if not 1.1 * 10.0 ** DECADES[0] < strength < 0.9 * 10.0 ** DECADES[-1]:
            say_once(
                f"warning: {self.name}: the penalty that validates best, {strength:g}, is at the "
                f"end of what was tried: {int(self._validation.sum()):,} images are validated on"
            )
        probe = fit_logistic(features, self._train_labels, strength)
        tested = embed_images(model, self._pixels, self.batch_size, self.features)
        predicted = probe.predict(tested)
        if len(np.unique(predicted)) == 1 < len(np.unique(self._labels)):
            only = self.class_names[int(predicted[0])]
            say_once(f"warning: {self.name}: every image is predicted to be {only!r}")
        right = (predicted == self._labels).astype(float)
        recalls = [right[self._labels == number].mean() for number in np.unique(self._labels)]
        chance = 1 / len(self.class_names)
        outcomes = [
            *self.mean_outcomes({"acc1": right}, {"acc1": chance}),
            self.outcome("mean_per_class_recall", float(np.mean(recalls)), len(right), chance),
        ]
        names = np.array(self.class_names, dtype=object)
        items = {
            ITEM: name_rows(self._pixels.index, self._pixels.rows),
            CLUSTER: cluster_rows(self._pixels.index, self._pixels.rows),
            "acc1": right,
            "label": names[self._labels],
            "predicted": names[predicted],
        }
        return Evaluation(outcomes, items)
