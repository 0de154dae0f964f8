"""Settings that change nothing, or that another word removes, are refused before a start."""

from __future__ import annotations

import errno
import math
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cfaug
from cfaug.core.errors import UserError
from cfaug.core.processes import use_threads
from cfaug.evaluation.stress.stress_page import PageSettings
from cfaug.run.launch import explain
from cfaug.run.train import SCRIPT, main
from cfaug.settings.compose import compose_jobs, without_rounding
from cfaug.train.settings import ClassLoss
from tests.properties import examples


def refusal(*words: str) -> str:
    with pytest.raises(UserError) as refused:
        compose_jobs("train", list(words), multirun=False, command=SCRIPT.command)
    return str(refused.value)


@pytest.mark.parametrize("removing", ["trainer.callbacks=null", "trainer.callbacks={}"])
def test_callbacks_that_another_word_removes_are_refused(removing):
    said = refusal("callbacks=early_stopping", removing)
    assert "callbacks=early_stopping has no effect" in said
    assert removing in said


@pytest.mark.parametrize("target", ["functools.partial", "builtins.dict", "cfaug.core.errors.FULL"])
@pytest.mark.parametrize("node", ["model", "data", "logger", "+trainer.callbacks.x"])
def test_a_target_without_settings_is_no_traceback(node, target):
    assert "_target_" in refusal(f"{node}._target_={target}")


def test_a_list_of_names_has_each_once():
    said = refusal("task=classification", "loss.augment=[flip,flip]")
    assert "loss.augment=[flip,flip] lists flip more than once" in said
    with pytest.raises(UserError, match="lists flip more than once"):
        ClassLoss(augment=("flip", "flip"))


def test_the_words_of_a_command_may_be_equal():
    [(config, words)] = compose_jobs("train", ["seed=1"], multirun=False, command=SCRIPT.command)
    SCRIPT.command(**config, overrides=[*words, *words]).check()
    page = PageSettings(command=["edit", "-e", "{before}", "-e", "{after}"])
    assert page.command.count("-e") == 2


def test_numbers_of_a_calculation_are_the_arm_of_the_typed_number():
    words = ["data.cf_ratio=0.6000000000000001", "optim.lr=0.00030000000000000003"]
    [(config, _)] = compose_jobs("train", words, multirun=False, command=SCRIPT.command)
    assert (config["data"]["cf_ratio"], config["optim"]["lr"]) == (0.6, 0.0003)


@settings(max_examples=examples(200), deadline=None)
@given(st.decimals(-1000, 1000, places=6), st.integers(-3, 3))
def test_a_typed_number_is_the_nearest_float_and_others_stay(number, steps):
    typed = calculated = float(number)
    for _ in range(abs(steps)):
        calculated = float(math.nextafter(calculated, steps * float("inf")))
    assert without_rounding(typed) == typed
    assert without_rounding(calculated) in (typed, calculated)


def test_numbers_of_many_digits_stay():
    for number in (1 / 3, 2 / 7, math.pi, 1e-5 / 3):
        assert without_rounding(number) == number


def test_threads_beyond_any_machine_are_refused():
    with pytest.raises(UserError, match="from 1 to 1024"):
        use_threads(100_000)


@pytest.mark.slow
def test_more_batches_than_an_epoch_has_are_refused_or_noted_in_a_sweep(tmp_path, capsys):
    words = [f"paths.{name}={tmp_path / name}" for name in ("runs", "shards", "cache")]
    words += ["data.size=64", "data.batch_size=8", "trainer.max_steps=3", "dry_run=true"]
    assert main([*words, "trainer.limit_train_batches=100000"]) == 2
    assert "an epoch has 7 batches" in capsys.readouterr().err
    assert main([*words, "-m", "trainer.limit_train_batches=0.5,1.0"]) == 0
    said = capsys.readouterr().err
    assert "note: in 1 of 2 jobs" in said
    assert "leave it out" not in said
    assert main([*words, "tuning=heads_only", "optim.layer_decay=0.7"]) == 2
    assert "optim.layer_decay=0.7 would have no effect" in capsys.readouterr().err


@pytest.mark.parametrize(
    "module", ["ContrastiveModule", "ClassificationModule", "EntailmentModule"]
)
def test_a_module_says_which_models_it_trains(module):
    with pytest.raises(UserError, match=r"not a Linear.*data\.make_module\(\)"):
        getattr(cfaug, module)(torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.EMFILE, "ulimit -n"), (errno.EFBIG, "ulimit -f"), (errno.ENFILE, "file-max")],
)
def test_a_limit_of_the_shell_blames_no_photo(number, remedy):
    limit = OSError(number, os.strerror(number), "photo.jpg")
    wrapped = UserError("photo.jpg cannot be read; replace or remove it")
    wrapped.__cause__ = limit
    worker = RuntimeError(f"in worker 0: OSError: [Errno {number}] {os.strerror(number)}: 'a'")
    for error in (limit, wrapped, worker):
        said = explain(error)
        assert remedy in said
        assert "replace or remove" not in said
