"""Metrics of the validation split: equal to the pure functions, and without a trace in the run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.stats import ranking
from cfaug.train.settings import LoggerSettings
from tests.train import tiny_plan

NAMES = ("recall@1", "text_to_image_recall@5")


def run(folder, weights, **given):
    encoder, _, _ = tiny_plan.train(folder, weights, steps=6, **given)
    return encoder, tiny_plan.rows(folder)


def test_recalls_are_those_of_the_whole_split_and_change_nothing_else(tmp_path, weights):
    plain, without = run(tmp_path / "plain", weights)
    encoder, rows = run(tmp_path / "measured", weights, val_metrics=NAMES)
    assert tiny_plan.same_weights(plain.state_dict(), encoder.state_dict())
    columns = [f"val/{name}" for name in NAMES]
    assert list(rows[0]) == [*without[0], *columns]
    assert [row["val/loss"] for row in rows] == [row["val/loss"] for row in without]
    assert [row["step"] for row in rows if row[columns[0]]] == ["5", "6"]

    images, texts, numbers = [], [], []
    encoder.eval()
    with torch.no_grad():
        for i, size in enumerate((16, 5)):
            batch = tiny_plan.batch(10**6 + i, size)
            own_images, own_texts = encoder.features(batch["pixels"], batch["texts"])
            images += own_images
            texts += own_texts
            numbers += batch["images"].tolist()
    first = [numbers.index(one) for one in sorted(set(numbers))]
    found = ranking.standings(torch.stack(texts), torch.stack(images)[first], numbers)
    both = [ranks.hits(1).mean() for ranks in found.values()]
    assert float(rows[-1][columns[0]]) == pytest.approx(sum(both) / 2, abs=1e-12)
    at_5 = found["text_to_image"].hits(5).mean()
    assert float(rows[-1][columns[1]]) == pytest.approx(at_5, abs=1e-12)


@pytest.mark.slow
def test_a_run_of_a_wandb_agent_gets_each_validation_with_its_step(tmp_path, weights, monkeypatch):
    """Hyperband compares runs by what they logged so far, under the id that the agent gave."""
    import wandb
    from wandb.sdk.wandb_run import Run

    logged, log = [], Run.log

    def keep(run, row, *more, **named):
        logged.append((run.id, row))
        return log(run, row, *more, **named)

    monkeypatch.setattr(Run, "log", keep)
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep1")
    monkeypatch.setenv("WANDB_RUN_ID", "given")
    folder = tmp_path / "main" / "arm" / "seed=1"
    logger = LoggerSettings(kind="wandb", mode="offline")
    wandb.teardown()  # a process reads these variables once
    tiny_plan.train(folder, weights, steps=6, val_metrics=NAMES, val_every_steps=2, logger=logger)
    wandb.teardown()
    assert {run for run, _ in logged} == {"given"}
    assert [row["trainer/global_step"] for _, row in logged] == [1, 2, 3, 4, 5, 6]
    key = "val/recall@1"
    told = {str(row["trainer/global_step"]): row[key] for _, row in logged if key in row}
    assert told == {
        row["step"]: float(row[key]) for row in tiny_plan.rows(folder) if row[key]
    }  # at steps 2, 4 and 6
    assert list(told) == ["2", "4", "6"]


@pytest.mark.parametrize(
    ("names", "validation", "said"),
    [
        (("recal@1",), 0.2, "recal@1 is not of this task, which has recall@1"),
        (("recall@0",), 0.2, "recall@0 is not"),
        (("recall@1",), 0.0, "raise data.validation=0"),
    ],
)
def test_a_metric_of_another_task_or_of_no_split_is_refused(names, validation, said):
    from unittest.mock import MagicMock

    from cfaug.train.mixture_task import ContrastiveTask
    from cfaug.train.settings import TrainerSettings

    task = MagicMock(spec=ContrastiveTask)
    task.measurable = ContrastiveTask.measurable
    task.trainer = TrainerSettings(max_steps=1, checkpoint="last", val_metrics=names)
    task.counts = {"train": 8, "validation": round(8 * validation)}
    task.lower_validation = f"data.validation={validation:g}"
    task.steps = 1
    with pytest.raises(UserError, match=said):
        ContrastiveTask.check(task)
    task.trainer = replace(task.trainer, val_metrics=())
    ContrastiveTask.check(task)
