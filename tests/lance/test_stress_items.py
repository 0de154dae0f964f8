"""What items of a stress test say: kinds, insights and factors, against slow twins."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import RECONSTRUCTION
from cfaug.lance.stress_items import CENTRE, EDITED, GROUP, StressItems
from cfaug.report.items import Items
from tests.report.stress_example import INTERVENTIONS, NAMES, stress_items


@pytest.fixture(scope="module")
def answers() -> StressItems:
    return stress_items(photos=18)


def table(answers: StressItems) -> list[dict]:
    columns = answers.items.columns
    return [{name: columns[name][row] for name in columns} for row in range(len(answers))]


def test_effects_of_kinds_are_those_of_a_slow_twin(answers):
    rows = table(answers)
    found = {one.group: one for one in answers.effects_by()}
    assert list(found) == ["background", "domain", "adjective"]
    for kind, one in found.items():
        own = [row for row in rows if row["set"] == EDITED and row["kind"] == kind]
        moved = [abs(row["p_photo"] - row["p"]) for row in own]
        usual = [abs(row["p_photo"] - row["p_reconstruction"]) for row in own]
        assert one.mean == pytest.approx(sum(moved) / len(moved))
        assert one.excess == pytest.approx((sum(moved) - sum(usual)) / len(moved))
        assert {rows[row]["item"] for row in one.rows} == {row["item"] for row in own}
        assert rows[one.rows[0]]["delta_p"] == max(row["delta_p"] for row in own)
    signed = {one.group: one for one in answers.effects_by(delta="drop")}
    own = [row["p_drop"] for row in rows if row["kind"] == "domain"]
    assert signed["domain"].mean == pytest.approx(sum(own) / len(own))


def test_effects_within_classes_are_corrected_together(answers):
    found = answers.effects_within_classes()
    assert len(found) == 3 * 3
    for one in found:
        label, kind = one.group
        rows = table(answers)
        assert all((rows[r]["class"], rows[r]["kind"]) == (label, kind) for r in one.rows)
    assert sum(len(one) for one in found) == len(answers.rows(EDITED))
    assert all(one.p_holm >= one.p for one in found)


def test_insights_are_interventions_on_a_class(answers):
    found = answers.insights()
    assert [one.label for one in found] == [c for c in ("ball", "cube", "star") for _ in NAMES]
    assert len({(one.label, one.kind, one.after) for one in found}) == len(found)
    for label in ("ball", "cube", "star"):
        means = [one.effect.mean for one in found if one.label == label]
        assert means == sorted(means, reverse=True)
    best = found[0]
    assert (best.kind, best.before, best.after) == INTERVENTIONS[0]
    assert best.words == "on the beach → in the snow"
    assert next(one for one in found if one.after == "at night").words == "+ at night"
    rows = table(answers)
    for row in best.effect.rows:
        assert (rows[row]["class"], rows[row]["after"]) == ("ball", "in the snow")
    assert best.effect.photos == 6


def test_interventions_on_few_photos_are_no_matter_of_a_class(answers):
    assert answers.insights(min_photos=6)
    assert answers.insights(min_photos=7) == []


def test_clusters_of_the_items_are_taken_where_there_are_some(answers):
    columns = dict(answers.items.columns)
    group, centre = np.full(len(answers), -1), np.zeros(len(answers), bool)
    edits = answers.rows(EDITED)
    kinds = np.array(answers.texts("kind"))[edits]
    labels = np.array(answers.texts("class"))[edits]
    for number, label in enumerate(("ball", "cube")):
        own = edits[(labels == label) & (kinds == "background")]
        group[own] = 7 - number
        centre[own[1]] = True
    clustered = StressItems("m", replace(answers.items, columns={**columns, GROUP: group,
                                                                 CENTRE: centre}))  # fmt: skip
    found = clustered.insights()
    assert [(one.label, one.effect.photos, len(one.effect)) for one in found] == [
        ("ball", 6, 12), ("cube", 6, 12),
    ]  # fmt: skip
    own = edits[(labels == "ball") & (kinds == "background")]
    assert found[0].named_by == own[1]
    assert found[0].after == answers.texts("after")[own[1]]


def test_insights_need_no_reconstructions(answers):
    columns = dict(answers.items.columns) | {"p_reconstruction": np.full(len(answers), np.nan)}
    bare = StressItems("m", replace(answers.items, columns=columns))
    assert bare.insights()[0].effect.mean == answers.insights()[0].effect.mean


def test_sets_are_told_apart():
    answers = stress_items(photos=4, sets=(EDITED, "random"))
    assert answers.edit_sets == (EDITED, "random")
    assert answers.sets == ("original", RECONSTRUCTION, EDITED, "random")
    assert [one.group for one in answers.effects_by(part="random")] == ["random"]
    with pytest.raises(UserError, match="no set 'oracle'; there are original"):
        answers.rows("oracle")


def test_items_of_another_benchmark_are_refused(answers):
    few = {name: answers.items.columns[name] for name in ("item", "cluster", "acc1")}
    with pytest.raises(UserError, match="own lack set, photos, kind, class, text"):
        StressItems("m", Items("own", "w", "d", few))
    with pytest.raises(UserError, match="delta=l1 is invalid: choose from absolute, drop"):
        answers.effects_by(delta="l1")
    lost = dict(answers.items.columns) | {"p": np.full(len(answers), np.nan)}
    with pytest.raises(UserError, match="lack the probability of a photo"):
        StressItems("m", replace(answers.items, columns=lost)).effects_by()


def change(column, row, value):
    """Change a value of one column, by which it may come to hold values of several types."""

    def changed(columns):
        values = np.array(columns[column], object)
        values[row] = value
        return columns | {column: values}

    return changed


def cluster(groups, centre):
    def changed(columns):
        edits = np.array(columns["set"]) == EDITED
        found = np.where(edits, groups, -1)
        centres = np.isin(np.arange(len(found)), centre)
        return columns | {"edit_group": found, "edit_centre": centres}

    return changed


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (change("p", 3, "high"), "have no values of 'p'"),
        (lambda columns: columns | {"acc1": columns["acc1"] * 7}, "acc1 of an item is not between"),
        (lambda columns: columns | {"acc1": columns["acc1"] * np.nan}, "acc1 of an item is not"),
        (change("photo", 3, "original/k77_0"), "the photo 'original/k77_0' of 'edited/k0_3' is no"),
        (change("set", 0, "random"), "the photo 'original/k0_0' of 'original/k0_0' is not one of"),
        (cluster(4, [0]), "no edit names the cluster 4"),
        (cluster(0.5, [0]), "edit_group should hold whole numbers"),
    ],
)
def test_items_that_were_changed_by_hand_are_refused(answers, damage, said):
    columns = damage(dict(answers.items.columns))
    with pytest.raises(UserError, match=re.escape(said)):
        StressItems("net", replace(answers.items, columns=columns))
