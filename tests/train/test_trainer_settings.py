from __future__ import annotations

import math

import pytest

from cfaug.core.errors import UserError
from cfaug.train.settings import LoggerSettings, OptimSettings, TrainerSettings


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TrainerSettings(max_steps=None, max_epochs=None), "trainer.max_steps"),
        (lambda: TrainerSettings(max_steps=-1), "trainer.max_steps=-1"),
        (lambda: TrainerSettings(devices=0), "trainer.devices=0"),
        (lambda: TrainerSettings(gradient_clip=0), "trainer.gradient_clip=0"),
        (lambda: TrainerSettings(precision="fp16"), "32, bf16"),
        (lambda: TrainerSettings(checkpoint="first"), "best, last"),
        (lambda: OptimSettings(lr=0.0), "optim.lr=0.0"),
        (lambda: OptimSettings(lr="high"), "optim.lr=high should be a number"),
        (lambda: OptimSettings(betas=[0.9]), "optim.betas"),
        (lambda: OptimSettings(schedule="cosin"), "linear, cosine"),
        (lambda: LoggerSettings(kind="mlflow"), "csv, wandb, tensorboard"),
    ],
)
def test_settings_that_make_no_sense_are_named(make, words):
    with pytest.raises(UserError, match=words):
        make()


def test_a_number_as_precision_is_what_yaml_gives():
    assert TrainerSettings(precision=32) == TrainerSettings()


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_schedules_are_those_of_transformers(schedule):
    import torch
    from transformers import get_scheduler

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = get_scheduler(schedule, optimizer, num_warmup_steps=4, num_training_steps=20)
    ours = OptimSettings(schedule=schedule, warmup_steps=4)
    for step in range(20):
        assert ours.factor(step, 20) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()


def test_a_constant_schedule_is_constant():
    settings = OptimSettings(schedule="constant", warmup_steps=2)
    assert [settings.factor(step, 5) for step in range(5)] == [0.0, 0.5, 1.0, 1.0, 1.0]
    assert math.isclose(OptimSettings().factor(5, 5), 0.0)
