"""What items of a stress test say: kinds, insights and factors, against slow twins."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import RECONSTRUCTION
from cfaug.evaluation.stress.stress_items import (
    CENTRE,
    EDITED,
    FILE,
    GROUP,
    StressItems,
    compare_drops,
    drops_document,
    write_drops,
)
from cfaug.report.items import Items
from cfaug.stats.cluster_tests import cluster_mean
from cfaug.stats.item_tests import mcnemar
from cfaug.stats.significance import holm, sign_flip
from tests.report.stress_example import INTERVENTIONS, NAMES, stress_items


@pytest.fixture(scope="module")
def answers() -> StressItems:
    return stress_items(photos=18)


def table(answers: StressItems) -> list[dict]:
    columns = answers.items.columns
    return [{name: columns[name][row] for name in columns} for row in range(len(answers))]


def test_effects_of_kinds_are_those_of_a_slow_twin(answers):
    rows = table(answers)
    effects = {effect.group: effect for effect in answers.effects_by()}
    assert list(effects) == ["background", "domain", "adjective"]
    for kind, effect in effects.items():
        edits = [row for row in rows if row["set"] == EDITED and row["kind"] == kind]
        moved = [abs(row["p_photo"] - row["p"]) for row in edits]
        usual = [abs(row["p_photo"] - row["p_reconstruction"]) for row in edits]
        assert effect.mean == pytest.approx(sum(moved) / len(moved))
        assert effect.excess == pytest.approx((sum(moved) - sum(usual)) / len(moved))
        assert {rows[row]["item"] for row in effect.rows} == {row["item"] for row in edits}
        assert rows[effect.rows[0]]["delta_p"] == max(row["delta_p"] for row in edits)
    signed = {effect.group: effect for effect in answers.effects_by(delta="drop")}
    drops = [row["p_drop"] for row in rows if row["kind"] == "domain"]
    assert signed["domain"].mean == pytest.approx(sum(drops) / len(drops))


def test_effects_within_classes_are_corrected_together(answers):
    effects = answers.effects_within_classes()
    assert len(effects) == 3 * 3
    for effect in effects:
        label, kind = effect.group
        rows = table(answers)
        assert all((rows[r]["class"], rows[r]["kind"]) == (label, kind) for r in effect.rows)
    assert sum(len(effect) for effect in effects) == len(answers.rows(EDITED))
    assert all(effect.p_holm >= effect.p for effect in effects)


def test_insights_are_interventions_on_a_class(answers):
    insights = answers.insights()
    assert [insight.label for insight in insights] == [
        c for c in ("ball", "cube", "star") for _ in NAMES
    ]
    assert len({(insight.label, insight.kind, insight.after) for insight in insights}) == len(
        insights
    )
    for label in ("ball", "cube", "star"):
        means = [insight.effect.mean for insight in insights if insight.label == label]
        assert means == sorted(means, reverse=True)
    best = insights[0]
    assert (best.kind, best.before, best.after) == INTERVENTIONS[0]
    assert best.words == "on the beach → in the snow"
    assert (
        next(insight for insight in insights if insight.after == "at night").words == "+ at night"
    )
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
        members = edits[(labels == label) & (kinds == "background")]
        group[members] = 7 - number
        centre[members[1]] = True
    clustered = StressItems("m", replace(answers.items, columns={**columns, GROUP: group,
                                                                 CENTRE: centre}))  # fmt: skip
    insights = clustered.insights()
    assert [
        (insight.label, insight.effect.photos, len(insight.effect)) for insight in insights
    ] == [("ball", 6, 12), ("cube", 6, 12)]
    members = edits[(labels == "ball") & (kinds == "background")]
    assert insights[0].named_by == members[1]
    assert insights[0].after == answers.texts("after")[members[1]]


def test_insights_need_no_reconstructions(answers):
    columns = dict(answers.items.columns) | {"p_reconstruction": np.full(len(answers), np.nan)}
    bare = StressItems("m", replace(answers.items, columns=columns))
    assert bare.insights()[0].effect.mean == answers.insights()[0].effect.mean


def test_sets_are_told_apart():
    answers = stress_items(photos=4, sets=(EDITED, "random"))
    assert answers.edit_sets == (EDITED, "random")
    assert answers.sets == ("original", RECONSTRUCTION, EDITED, "random")
    assert [effect.group for effect in answers.effects_by(part="random")] == ["random"]
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
        group = np.where(edits, groups, -1)
        centres = np.isin(np.arange(len(group)), centre)
        return columns | {"edit_group": group, "edit_centre": centres}

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
        (cluster(0.5, [0]), "holds something other than whole number"),
    ],
)
def test_items_that_were_changed_by_hand_are_refused(answers, damage, said):
    columns = damage(dict(answers.items.columns))
    with pytest.raises(UserError, match=re.escape(said)):
        StressItems("net", replace(answers.items, columns=columns))


# Drops from photos to edits: tests on hand-made items.


def made(photos=20, seed=0):
    """Items of photos with 0 to 3 edits of kinds a and b, of which b is hard."""
    draw = np.random.default_rng(seed)
    rows = []
    for n in range(photos):
        hit, control = draw.random() < 0.8, draw.random() < 0.8
        edits = [
            ("a", draw.random() < 0.75),
            ("b", draw.random() < 0.2),
            ("b", draw.random() < 0.3),
        ]
        edits = edits[: n % 4]
        about = {"cluster": f"g{n}", "class": "cat" if n % 2 else "dog",
                 "photos": "edited" if edits else "unedited"}  # fmt: skip
        nan = math.nan
        rows.append({**about, "set": "original", "kind": "original", "acc1": float(hit),
                     "photo_acc1": nan, "net_drop1": nan})  # fmt: skip
        rows.append({**about, "set": "reconstruction", "kind": "reconstruction",
                     "acc1": float(control), "photo_acc1": float(hit),
                     "net_drop1": nan})  # fmt: skip
        for kind, right in edits:
            net = nan if n % 3 == 0 else float(control) - right
            rows.append({**about, "set": "edited", "kind": kind, "acc1": float(right),
                         "photo_acc1": float(hit), "net_drop1": net})  # fmt: skip
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return Items("lance_stress", "w", "d", {"item": [str(n) for n in range(len(rows))], **columns})


def rows_of(items):
    names = list(items.columns)
    values = zip(*items.columns.values(), strict=True)
    return [dict(zip(names, row, strict=True)) for row in values]


@pytest.mark.parametrize("by", [None, "kind", "class"])
def test_every_drop_is_that_of_plain_counting(by):
    items = made()
    drops = compare_drops(items, "acc1", by)
    names = [(drop.name, drop.part) for drop in drops]
    assert (
        names
        == {
            None: [("reconstruction", ""), ("edited", "")],
            "kind": [("edited", "a"), ("edited", "b")],
            "class": [("edited", "cat"), ("edited", "dog")],
        }[by]
    )
    from scipy.stats import fisher_exact

    for drop in drops:
        redrawn = [r for r in rows_of(items) if r["set"] == drop.name and r["photos"] == "edited"]
        redrawn = [r for r in redrawn if by is None or r[by] == drop.part]
        photos = [r for r in rows_of(items) if r["set"] == "original" and r["photos"] == "edited"]
        photos = [r for r in photos if by != "class" or r["class"] == drop.part]
        lost = sum(r["photo_acc1"] > r["acc1"] for r in redrawn)
        won = sum(r["photo_acc1"] < r["acc1"] for r in redrawn)
        assert (drop.images, drop.paired.lost, drop.paired.won) == (len(redrawn), lost, won)
        assert drop.paired.p_sign == mcnemar(lost, won)
        assert drop.paired.mean.mean == pytest.approx((lost - won) / len(redrawn))
        nets = [r["net_drop1"] for r in redrawn if not math.isnan(r["net_drop1"])]
        assert bool(nets) == (drop.name == "edited")
        assert math.isnan(drop.net) or drop.net == pytest.approx(sum(nets) / len(nets))
        right, before = (int(sum(r["acc1"] for r in some)) for some in (redrawn, photos))
        assert drop.unpaired == pytest.approx(before / len(photos) - right / len(redrawn))
        table = [[before, len(photos) - before], [right, len(redrawn) - right]]
        assert drop.p_fisher == pytest.approx(fisher_exact(table)[1])
        assert drop.paired.mean.clusters == len({r["cluster"] for r in redrawn})
        drawn = cluster_mean(
            [r["photo_acc1"] - r["acc1"] for r in redrawn], [r["cluster"] for r in redrawn]
        )
        assert drop.paired.mean == drawn
        sums = {r["cluster"]: 0.0 for r in redrawn}
        for r in redrawn:
            sums[r["cluster"]] += r["photo_acc1"] - r["acc1"]
        assert drop.p == sign_flip([sums[name] for name in sorted(sums)], "two-sided")
    assert [drop.p_holm for drop in drops] == pytest.approx(holm([drop.p for drop in drops]))


def test_a_hard_kind_is_found_and_an_easy_one_is_not():
    easy, hard = compare_drops(made(200, seed=2), "acc1", "kind")
    assert hard.p_holm < 0.001 < 0.05 < easy.p_holm
    assert hard.paired.mean.low > 0.2
    assert easy.paired.mean.low < 0 < easy.paired.mean.high


def test_what_two_photos_agree_on_is_no_finding():
    """A bootstrap of two equal photos has no spread: it would call any drop certain."""
    columns = {
        "item": [*"abcdef"], "cluster": ["g", "h"] * 3,
        "set": ["original"] * 2 + ["edited"] * 4, "kind": ["original"] * 2 + ["domain"] * 4,
        "photos": ["edited"] * 6, "class": ["cat"] * 6, "acc1": [1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        "photo_acc1": [math.nan] * 2 + [1.0] * 4, "net_drop1": [math.nan] * 6,
    }  # fmt: skip
    (drop,) = compare_drops(Items("x", "w", "d", columns))
    assert drop.paired.mean.p == drop.p == 0.5


def test_items_without_photos_have_no_drops():
    items = made()
    columns = {name: values for name, values in items.columns.items() if name != "photos"}
    with pytest.raises(UserError, match="lack the column 'photos'"):
        compare_drops(Items("x", "w", "d", columns))
    with pytest.raises(UserError, match="lack the column 'photo_acc5'"):
        compare_drops(items, "acc5")


def test_the_tables_are_written(tmp_path):
    items = made()
    document = drops_document("resnet_50", items)
    assert [part.title for part in document.parts] == ["Sets", "Kinds of edits", "Classes"]
    file = write_drops(tmp_path, "resnet_50", items)
    text = file.read_text()
    assert file.name == FILE
    assert r"resnet\_50: lance\_stress" in text
    assert "Holm" in text
    assert text.count("| edited") == 5
