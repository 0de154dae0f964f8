"""Trainings on an exact mixture of real and counterfactual rows; dual encoders among them."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from cfaug.core.errors import say_once
from cfaug.core.protocols import DualEncoder
from cfaug.data.mixture.records import COUNTERFACTUAL
from cfaug.models.checkpoints import Folder
from cfaug.models.indistinct import (
    MOST_CAPTIONS,
    WARNED_SHARE,
    count_in_folder,
    count_indistinct,
)
from cfaug.train.records import Plan
from cfaug.train.settings import LoggerSettings
from cfaug.train.task import Task

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.hard_negatives import PairNegatives, SetCaptions
    from cfaug.data.mixture.loader import Examples, KeptPixels, Loader
    from cfaug.data.mixture.records import Mixture
    from cfaug.data.mixture.settings import DataSettings
    from cfaug.models.encoder import Encoder
    from cfaug.train.contrastive_module import ContrastiveModule
    from cfaug.train.module import TrainingModule
    from cfaug.train.settings import LossSettings

# The base of all trainings on an exact mixture of real and counterfactual rows.
#
# It does not import torch.

ORDER_HASH_EXAMPLES = 1000
"""Number of keys, in the order of training, that ``order_hash`` covers."""


@dataclass(frozen=True, kw_only=True)
class MixtureTask(Task):
    """Images and their texts, drawn from two sources.

    Attributes: those of :class:`cfaug.train.task.Task`, and
        data: the settings of the data: batch size, workers and order.
        mixture: the rows of the training and validation splits.
        indexes: the indexes of the real and the counterfactual source.
    """

    data: DataSettings
    mixture: Mixture
    indexes: tuple[Index | None, Index | None]

    @property
    def counts(self) -> Mapping[str, int]:
        return self.mixture.counts

    @property
    def batch_size(self) -> int:
        return self.data.batch_size

    @property
    def batches_per_epoch(self) -> int:
        return self.data.steps_per_epoch(len(self.mixture.train))

    @property
    def default_size(self) -> int | None:
        """The number of examples drawn before the split, if ``data.size`` does not set it."""
        return self.mixture.size if self.data.size is None else None

    @property
    def lower_validation(self) -> str:
        return f"data.validation={self.data.validation}"

    @property
    def captions(self) -> SetCaptions | None:
        """The captions of the counterfactual source's images; ``None`` without such a source."""
        from cfaug.data.mixture.hard_negatives import SetCaptions

        index = self.indexes[COUNTERFACTUAL]
        if index is None:
            return None
        return SetCaptions(index, self.data.counterfactual_captions, self.data_seed)

    @property
    def cf_ratio(self) -> float:
        """The share of counterfactuals in train, by ``data.cf_ratio`` or else by the plan."""
        if self.data.cf_ratio is not None:
            return self.data.cf_ratio
        return round(self.mixture.counts["counterfactual"] / self.mixture.counts["train"], 4)

    @property
    @abstractmethod
    def kind(self) -> type[TrainingModule]:
        """The class of the module that learns from the task's batches."""

    @abstractmethod
    def make_module(
        self, trained: Any, total_steps: int | None, kind: type[TrainingModule] | None = None
    ) -> Any:
        """Return a model from ``load_tuned`` with its loss and optimizer.

        Args:
            total_steps: the number of optimizer steps of the whole run; ``None`` for somebody's own
                Trainer, which then decides about the gradient's norm as well.
            kind: the class of the module, a subclass of the task's own; ``None`` for that.
        """

    @abstractmethod
    def make_examples(self, trained: Any, rows: int, kept: KeptPixels | None) -> Examples:
        """Return the dataset that turns a batch's rows into the module's input.

        Args:
            trained: the result of ``load``.
            kept: the decoded pixels that runs of one process share.
        """

    def make_plan(self, trained: Any, total_steps: int, kept: KeptPixels | None) -> Plan:
        """Return the batches of every step, read and decoded."""
        from cfaug.data.mixture.loader import TrainingBatches, make_loader

        data, mixture = self.data, self.mixture
        batches = total_steps * self.trainer.accumulate_grad_batches

        def training(start: int, rank: int, world: int) -> Iterable[Any]:
            numbered = TrainingBatches(
                mixture, data, seed=self.seed, data_seed=self.data_seed, start_step=start,
                total_steps=batches, rank=rank, world=world,
            )  # fmt: skip
            examples = self.make_examples(trained, len(mixture.train), kept)
            return _Unsized(make_loader(examples, numbered, data.workers))

        def validation(rank: int, world: int) -> Iterable[Any]:
            return self.validation_batches(trained, kept, rank, world)

        return Plan(
            training,
            validation if len(mixture.validation) else None,
            steps_per_epoch=self.batches_per_epoch,
            total_steps=total_steps,
        )

    def validation_batches(
        self, trained: Any, kept: KeptPixels | None, rank: int, world: int
    ) -> Iterable[Any]:
        """Return a process's shares of the validation split, in a fixed order."""
        from cfaug.data.mixture.loader import ValidationBatches, make_loader

        batches = ValidationBatches(self.mixture, self.data.batch_size, rank=rank, world=world)
        examples = self.make_examples(trained, len(self.mixture.validation), kept)
        return make_loader(examples, batches, self.data.workers)

    def save(self, trained: Any, folder: Path) -> None:
        """Write the folder that the model's own library loads, adapters merged."""
        from cfaug.models.lora import merge

        merge(trained.model)
        trained.save(folder)

    def record(self) -> dict[str, Any]:
        return {"cf_ratio": self.cf_ratio}

    def describe(self) -> dict[str, Any]:
        """Return the sources' sizes, a hash of the order, and the held-out and joined rows."""
        from cfaug.data.mixture.leakage import count_joined_groups
        from cfaug.data.mixture.order import epoch_order, split_sets

        data, mixture = self.data, self.mixture
        order = epoch_order(
            mixture, data_seed=self.data_seed, seed=self.seed, epoch=0,
            batch_size=data.batch_size, stratify=data.stratify,
            pairs_in_batch=data.whole_sets, window=data.window(),
        )  # fmt: skip
        keys = []
        rows = mixture.rows_in(0, self.data_seed)
        for source, row in rows[order[:ORDER_HASH_EXAMPLES]]:
            index = self.indexes[source]
            assert index is not None
            keys.append(index.key(int(row)))
        described: dict[str, Any] = {
            "sizes": {
                role: None if index is None else len(index)
                for role, index in zip(("real", "counterfactual"), self.indexes, strict=True)
            },
            "order_hash": hashlib.sha256("\n".join(keys).encode()).hexdigest(),
        }
        held = mixture.held_out
        if held is not None:
            described["held_out"] = {
                "images": held.images, "examples": len(held.rows), "copies": held.copies,
            }  # fmt: skip
        if (near := mixture.near) is not None:
            described["near_duplicates"] = {
                "images": len(near.pairs), "checked": near.checked, "unhashed": near.unhashed,
                "distance": near.rule.distance, "left_out": near.left_out,
            }  # fmt: skip
        if mixture.join is not None:
            edited, missed = int(mixture.join.rows.sum()), len(mixture.join.missed)
            described["real_captions"] = {"edited": edited, "missed": missed}
        if (captions := mixture.captions) is not None:
            photos, drawn = len(captions.photos), len(captions.rows)
            described["real_captions"] = {"photos": photos, "captions": drawn}
        joined = count_joined_groups(self.indexes)
        if joined:
            described["groups_joined"] = joined  # equal images under several names
        if data.whole_sets:
            described["split_sets"] = split_sets(mixture, order, data.batch_size)
        return described


class _Unsized:
    """A loader without a length; Lightning would take a resumed one's for that of the epoch."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self.close = loader.close

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)


# Fine-tuning a dual encoder on an exact mixture of real and counterfactual pairs.
#
# No torch at import.

TRAINING_CAPTIONS = "the captions to train on"


@dataclass(frozen=True, kw_only=True)
class ContrastiveTask(MixtureTask):
    """Images and their captions, drawn together.

    Attributes: those of :class:`cfaug.train.mixture_task.MixtureTask`, and
        loss: the weights of negatives; ``None`` is the authors' loss.
    """

    loss: LossSettings | None = None
    measurable: ClassVar[Mapping[str, str]] = {
        r"((image_to_text|text_to_image)_)?recall@[1-9]\d*": "recall@1"
    }

    def load(self) -> Encoder:
        """Return the dual encoder with its initial weights.

        This warns of captions that the encoder cannot tell apart.
        """
        encoder: Encoder = self.model.load(DualEncoder)
        alike = count_indistinct(encoder.tokenize, self.some_captions())
        if alike.share > WARNED_SHARE:
            say_once(f"warning: {TRAINING_CAPTIONS}: {alike}")
        return encoder

    def some_captions(self) -> list[str]:
        """Return the captions of the first ``MOST_CAPTIONS`` training rows."""
        captions = []
        for source, row in self.mixture.train[:MOST_CAPTIONS].tolist():
            index = self.indexes[source]
            assert index is not None
            captions.append(index.text(row))
        return captions

    @property
    def kind(self) -> type[ContrastiveModule]:
        from cfaug.train.contrastive_module import ContrastiveModule

        return ContrastiveModule

    def make_module(
        self, trained: Encoder, total_steps: int | None, kind: Any = None
    ) -> ContrastiveModule:
        """Return the encoder with its loss and its optimizer."""
        from cfaug.train.contrastive_module import refuse_negatives
        from cfaug.train.module import refuse_batch_norm

        pieces = self.trainer.micro_batch_size
        if self.data.negatives in ("text", "image") and not trained.takes_negatives:
            refuse_negatives(f"data.negatives={self.data.negatives}", "data.negatives=both or none")
        module: ContrastiveModule = (kind or self.kind)(
            trained, self.make_steps(total_steps), weighting=self.loss, micro_batch_size=pieces
        )
        if pieces is not None:
            refuse_batch_norm(trained.train())
        return module

    def make_examples(self, trained: Encoder, rows: int, kept: KeptPixels | None) -> Examples:
        """Return the dataset of images with their captions."""
        from cfaug.data.mixture.loader import Examples

        neutral = self.loss is not None and self.loss.set_invariance > 0
        return Examples(
            self.indexes, trained.transform, rows, kept, self.captions, neutral, pairs=self.pairs
        )

    @property
    def pairs(self) -> PairNegatives | None:
        """The counterfactuals' wrong answers; ``None`` if ``data.negatives`` is."""
        from cfaug.data.mixture.hard_negatives import PairNegatives

        index, kind = self.indexes[COUNTERFACTUAL], self.data.negatives
        if index is None or kind is None or index.has_negatives:  # then a batch has them anyway
            return None
        return PairNegatives(index, kind)

    def describe(self) -> dict[str, Any]:
        """Return the common entries, and two counts of the contrastive loss.

        These are the captions that the model cannot tell apart, and the average number of wrong
        answers in a batch.
        """
        described = super().describe()
        if isinstance(self.model, Folder):
            alike = count_in_folder(
                self.model.folder(), self.model.max_length, self.some_captions()
            )
            if alike is not None:
                described["captions"] = {
                    "different": alike.captions, "different_to_the_model": alike.sequences,
                }  # fmt: skip
                if alike.share > WARNED_SHARE:
                    described["captions"]["warning"] = str(alike)
        if self.data.negatives is None:
            return described
        names = ("train", "text_negatives", "image_negatives")
        averages = [round(self.counts.get(n, 0) / self.batches_per_epoch, 2) for n in names]
        described["a_batch"] = dict(zip(("positives", *names[1:]), averages, strict=True))
        return described

    def log_examples(self, folder: Path) -> None:
        """Write a table of counterfactual pairs to Weights & Biases, if that is the logger."""
        if isinstance(self.logger, LoggerSettings) and self.logger.kind == "wandb":
            from cfaug.train.wandb_runs import log_pairs

            log_pairs(folder, self.mixture, self.captions)
