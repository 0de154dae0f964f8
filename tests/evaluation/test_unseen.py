"""Asking only about subjects whose sets the experiment kept out of training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.data.index.disk_format import group_code
from cfaug.data.mixture.leakage import withhold
from cfaug.data.mixture.settings import RatioData
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.context import EvaluationContext
from cfaug.run import evaluate_checkpoint
from cfaug.run.evaluation_data import DataOpener, describe_data
from tests.data.making import pair

SUBJECTS = ("nurse", "doctor", "baker", "pilot", "judge", "clerk", "miner", "tailor")


def subject_sets(first: int = 0, each: int = 3):
    """Return sets of three about every subject."""
    numbers = [(i, subject) for subject in SUBJECTS for i in range(each)]
    return [pair(first + n, members=3, group=s) for n, (_, s) in enumerate(numbers)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unseen")
    write_shards(subject_sets(), folder / "sets", sets_per_shard=9)
    write_shards(subject_sets(500, each=1), folder / "others", sets_per_shard=9)
    write_shards([pair(900, group="poet")], folder / "strangers", sets_per_shard=9)
    return folder


@pytest.fixture(scope="module")
def opener(folder):
    return DataOpener(folder / "shards", folder / "index")


def context_of(folder, opener, holdout=0.25, **data):
    given = {"cf_ratio": 1.0, "size": 30, "seed": 5, "counterfactual_holdout": holdout}
    settings = RatioData(**{"real": None, "counterfactual": str(folder / "sets"), **given, **data})
    target = evaluate_checkpoint.EvaluationTarget(folder, "arm", 4, None, settings, "experiment")
    return describe_data(target, opener)


def names(context, source, rows):
    index = context.open(source)
    return {index.group_name(int(row)) for row in rows}


def test_every_arm_is_asked_about_the_same_subjects_and_trained_on_none_of_them(folder, opener):
    sets, others = str(folder / "sets"), str(folder / "others")
    context = context_of(folder, opener)
    rows = context.unseen_rows(sets)
    unseen = names(context, sets, rows)
    assert len(unseen) == 2
    assert len(rows) == 2 * 3 * 3
    assert names(context, others, context.unseen_rows(others)) == unseen
    trained = {name for i, r in context.training() for name in {i.group_name(int(x)) for x in r}}
    assert trained
    assert not trained & unseen
    known = sorted(group_code(name) for name in trained)
    assert context.trained_groups().tolist() == known
    for arm in (
        {"seed": 9},
        {"pairs_in_batch": True},
        {"cf_ratio": 0.0, "real": others, "size": 10},
    ):
        rows_of_arm = context_of(folder, opener, **arm).unseen_rows(sets)
        assert np.array_equal(rows_of_arm, rows)


def test_a_subject_counts_whole_though_the_share_cuts_it(folder, opener):
    """7 of 24 sets are kept out: two subjects and one set of a third, which nobody trains on."""
    sets = str(folder / "sets")
    context = context_of(folder, opener, holdout=0.29)
    index = context.open(sets)
    assert len(withhold(index, 0.29).rows) == 7 * 3
    assert len(context.unseen_rows(sets)) == 3 * 9


def test_without_a_holdout_there_is_no_unseen_subject(folder, opener):
    with pytest.raises(UserError, match=r"data\.counterfactual_holdout=0\.3.*subjects=all"):
        context_of(folder, opener, holdout=0).unseen_rows(str(folder / "sets"))


def test_sets_of_other_subjects_are_refused(folder, opener):
    with pytest.raises(UserError, match="none of the subjects"):
        context_of(folder, opener).unseen_rows(str(folder / "strangers"))


def test_a_run_that_saw_a_held_out_subject_is_refused(folder, opener):
    """As a run whose source has changed since: the rows it trained on are what it says they are."""
    sets = str(folder / "sets")
    context = context_of(folder, opener)
    rows = context.unseen_rows(sets)
    [(index, trained)] = [part for part in context.training() if len(part[1])]
    leaky = replace(context, training=lambda: [(index, np.append(trained, rows[:1]))])
    [name] = names(context, sets, rows[:1])
    with pytest.raises(UserError, match=rf"1 of the subjects it should not have seen \({name}\)"):
        leaky.unseen_rows(sets)


def test_a_checkpoint_was_trained_on_nothing_that_is_known(folder, opener):
    plain = EvaluationContext(lambda name: opener.open(name, None), False, lambda: None)
    assert not len(plain.trained_groups())
    with pytest.raises(UserError, match="no subject was held out"):
        plain.unseen_rows(str(folder / "sets"))
