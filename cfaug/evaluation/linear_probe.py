"""A linear classifier of a model's image features: ``benchmark=linear_probe``.

The recipe is CLIP's (Radford et al., 2021, section A.3): logistic regression by L-BFGS, its penalty
chosen on a validation split of the training images and then trained on all of them. Features are
the unit embeddings that retrieval uses, and are cached with them; the paper takes those before the
projection.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Lt

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.types import CLUSTER, ITEM, Evaluation
from cfaug.core.validation import Seed
from cfaug.data.mixture.records import random_keys
from cfaug.data.sources.row import split_home
from cfaug.evaluation.benchmark import SourceBenchmark, cluster_rows, fingerprint, name_rows
from cfaug.evaluation.classification import labels_of, tested_folder
from cfaug.evaluation.inference import Pixels, embed_images, image_keys
from cfaug.stats.linear_probe import choose_strength, fit_logistic

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
    """

    train: str | None = None
    label: str | None = None
    shots: Annotated[int, Ge(2)] | None = None
    validation: Annotated[float, Gt(0), Lt(1)] = 0.2
    seed: Seed = 0

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
        trained = context.open(self._train_source())
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
        if unknown := sorted(set(labels) - set(self.class_names)):
            raise UserError(
                f"{self.name}: {index.source} has classes that {trained.source} lacks, such as "
                f"{unknown[0]!r}; there are {', '.join(self.class_names[:10])}"
            )
        number = {label: at for at, label in enumerate(self.class_names)}
        self._labels = np.array([number[label] for label in labels])
        self._train_labels = np.array([number[label] for label in train_labels])
        self._draw(trained)

    def _train_source(self) -> str:
        if self.train is not None:
            return self.train
        home = split_home(Path(SourceBenchmark.source(self)))[0]
        return str(home / "train") if (home / "train").is_dir() else f"{home}:train"

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
        """Draw the training images, and choose those to validate on: whole groups, by the seed."""
        groups = np.asarray(trained.groups)[self._train_pixels.rows]
        order = np.argsort(random_keys(groups, self.seed, "linear_probe"), kind="stable")
        if self.shots is not None:
            places: list[int] = []
            for number, name in enumerate(self.class_names):
                of_class = [at for at in order.tolist() if self._train_labels[at] == number]
                if len(of_class) < self.shots:
                    raise UserError(
                        f"{self.name}: benchmark.shots={self.shots} asks for more than there is: "
                        f"{len(of_class)} images of {name!r} in {trained.source}"
                    )
                places += of_class[: self.shots]
            kept = set(places)
            order = np.array([at for at in order.tolist() if at in kept])
        self._train_pixels = Pixels(trained, self._train_pixels.rows[order])
        self._train_labels = self._train_labels[order]
        groups = groups[order]
        _, first = np.unique(groups, return_index=True)
        whole = np.append(np.sort(first), len(order))  # where a group begins, in the order drawn
        wanted = self.validation * len(order)
        self._validation = int(whole[np.searchsorted(whole, wanted)])
        fitted = set(self._train_labels[self._validation :].tolist())
        if len(fitted) < 2:
            raise UserError(
                f"{self.name}: {len(order):,} training images with benchmark.validation="
                f"{self.validation} leave fewer than two classes to train on"
            )

    @property
    def data_hash(self) -> str:
        tested = (self._pixels.index.hash, self._pixels.rows, self._labels)
        trained = (self._train_pixels.index.hash, self._train_pixels.rows, self._train_labels)
        return fingerprint(*tested, *trained, self._validation, self.class_names)

    def run(self, model: DualEncoder | CachedEncoder) -> Evaluation:
        """Return accuracy, mean recall over classes and the penalty that was chosen."""
        features = embed_images(model, self._train_pixels, self.batch_size)
        is_validation = np.arange(len(features)) < self._validation
        strength = choose_strength(features, self._train_labels, is_validation)
        probe = fit_logistic(features, self._train_labels, strength)
        predicted = probe.predict(embed_images(model, self._pixels, self.batch_size))
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
