"""Data for anybody's Trainer of Lightning, by the settings of ``cfaug train``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.run.api import plan_for_trainer
from cfaug.train.data_module import MixtureDataModule
from cfaug.train.mixture_task import MixtureTask


class CounterfactualDataModule(MixtureDataModule):
    """An exact mixture of real and counterfactual examples, for a Trainer of Lightning.

    The batches are those of ``cfaug.fine_tune`` with the same settings. They depend on the settings
    and the step alone, so ``fit(..., ckpt_path=...)`` resumes in the middle of an epoch and
    produces byte-identical weights, with any number of workers. Validation is on the split that is
    held out.
    ``make_module`` makes the module that learns from them: a ``ContrastiveModule`` (or
    ``ClassificationModule``, ``EntailmentModule``, ``AnswerModule``, by the task), or your own
    subclass of it. For another LightningModule a batch is a dictionary with ``pixels`` uint8
    (n, 3, size, size), this process's share of the batch, ``texts``, n captions, and
    ``global_size``, the number of examples of all processes.

    Args:
        settings: settings of ``cfaug train`` about data, model, loss, tuning and optimizer, such as
            ``{"data.stratify": True, "optim.lr": 1e-6}``; ``None`` for the defaults.
        real: ``data.real``, a source of any form: see ``cfaug.open_source``. Photos of one's own
            need ``data="folder"``.
        counterfactual: ``data.counterfactual``, likewise.
        cf_ratio: ``data.cf_ratio``, the exact share of counterfactual training examples.
        size: ``data.size``, the number of examples before the validation split.
        batch_size: ``data.batch_size``, over all processes together.
        config_dir: a folder of configurations and classes of one's own, as ``--config-dir``.
        more: further settings, whose names hold no dot: ``model="clip_vit_b32", seed=107``.

    Raises:
        UserError: for invalid settings, those of the Trainer among them, or data from which the
            mixture cannot be drawn.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        real: str | Path | None = None,
        counterfactual: str | Path | None = None,
        cf_ratio: float | None = None,
        size: int | None = None,
        batch_size: int | None = None,
        config_dir: str | Path | None = None,
        **more: Any,
    ) -> None:
        named = {
            "data.real": real, "data.counterfactual": counterfactual, "data.cf_ratio": cf_ratio,
            "data.size": size, "data.batch_size": batch_size,
        }  # fmt: skip
        more |= {key: value for key, value in named.items() if value is not None}
        job = plan_for_trainer(settings, more, config_dir)
        if not isinstance(job.task, MixtureTask):
            raise UserError(
                "this task is not trained on a mixture of real and counterfactual examples"
            )
        identity = {
            key: value
            for key, value in job.folder.identity.items()
            if key.startswith(("seed", "data.", "content.")) and key != "content.weights"
        }
        super().__init__(job.task, identity)
