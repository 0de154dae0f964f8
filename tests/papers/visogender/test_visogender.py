"""Pronoun resolution and neutral retrieval: against one photo and caption at a time."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.protocols import Benchmark
from cfaug.data.index import open_index
from cfaug.evaluation.context import EvaluationContext
from cfaug.papers.visogender.visogender import VisoGender, measure_ranking
from cfaug.stats.skew_metrics import ndkl
from tests.evaluation.drawn_questions import rows
from tests.evaluation.twin import Twin
from tests.papers.visogender.making import lay_photos, oo_rows, op_rows, write_tsv
from tests.properties import examples

PRONOUNS = {"masculine": "his", "feminine": "her", "neutral": "their"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("visogender")
    write_tsv(root / "OO.tsv", oo_rows())
    write_tsv(root / "OP.tsv", op_rows())
    lay_photos(root / "photos", [*oo_rows(), *op_rows()])
    return root


def context(root):
    return EvaluationContext(
        open=lambda name: pytest.fail(name), has_world=False, held_out=lambda: None,
        read=lambda reader, folder: open_index(folder, root / "index", reader=reader),
    )  # fmt: skip


@pytest.fixture(scope="module")
def node(place):
    files = [str(place / "OO.tsv"), str(place / "OP.tsv")]
    return VisoGender(files, images=str(place / "photos"), ks=(3, 5))


@pytest.fixture(scope="module")
def opened(place, node):
    return node.open(context(place))


def about(root):
    """Return {IDX: (row, encoded photo)}."""
    return {
        row["IDX"]: (row, (root / f"photos/{row['IDX'][:2]}_images/{row['IDX']}.png").read_bytes())
        for row in (*oo_rows(), *op_rows())
    }


def caption(row, asked, pronoun):
    other = row.get("Object") or row["Participant"]
    if asked == "participant":
        return f"The {other} and {pronoun} {row['Occupation']}"
    return f"The {row['Occupation']} and {pronoun} {other}"


def test_the_right_pronoun_is_looked_for(place, opened, people_encoder):
    resolution, retrieval = opened
    assert isinstance(resolution, Benchmark)
    assert (resolution.name, retrieval.name) == ("visogender_resolution", "visogender_retrieval")
    evaluation = resolution.run(people_encoder)
    items, twin = rows(evaluation), Twin(people_encoder)
    assert len(items) == 12 + 2 * 24
    hits = {}
    for idx, (row, encoded) in about(place).items():
        image = twin.image(encoded)
        for asked in ("occupation", "participant") if idx.startswith("OP") else ("occupation",):
            who = "Occupation" if asked == "occupation" else "Participant"
            truth = row[f"{who}_perceived_gender"]
            scores = {n: float(image @ twin.text(caption(row, asked, p)))
                      for n, p in PRONOUNS.items()}  # fmt: skip
            item = items[f"{idx}/{asked}"]
            assert item["gender"] == truth
            for name, score in scores.items():
                assert item[name] == pytest.approx(score, abs=1e-5)
            offered = {name: scores[name] for name in ("masculine", "feminine")}
            assert item["chosen"] == max(offered, key=offered.__getitem__)
            assert item["neutral_first"] == (max(scores, key=scores.__getitem__) == "neutral")
            hit = float(item["chosen"] == truth)
            assert item["resolution_accuracy"] == hit
            pair = ""
            if idx.startswith("OP"):
                two = {row["Occupation_perceived_gender"], row["Participant_perceived_gender"]}
                pair = "same" if len(two) == 1 else "different"
            assert item["pair"] == pair
            hits.setdefault((idx[:2], asked, pair, truth), []).append(hit)
    assert {"masculine", "feminine"} <= set(evaluation.items["chosen"])
    check_resolution(evaluation, hits)


def check_resolution(evaluation, hits):
    def mean(**wanted):
        names = ("context", "asked", "pair", "gender")
        matching = [
            hit
            for key, values in hits.items()
            if all(key[names.index(n)] == v for n, v in wanted.items())
            for hit in values
        ]
        return fmean(matching)

    parts = [{"context": "OO", "asked": "occupation"}]
    for asked in ("occupation", "participant"):
        two = {"context": "OP", "asked": asked}
        parts += [two, {**two, "pair": "same"}, {**two, "pair": "different"}]
    outcomes = {(o.metric, *sorted(o.by.items())): o for o in evaluation.outcomes}
    for part in parts:
        by = tuple(sorted(part.items()))
        assert outcomes["resolution_accuracy", *by].value == pytest.approx(mean(**part))
        his, her = (mean(**part, gender=g) for g in ("masculine", "feminine"))
        gap = outcomes["gender_gap", *by]
        assert (gap.value, gap.better) == (pytest.approx(abs(his - her)), "lower")
        assert outcomes["balanced_accuracy", *by].value == pytest.approx((his + her) / 2)
    single, two = (
        fmean(mean(context=c, asked="occupation", gender=g) for g in ("masculine", "feminine"))
        for c in ("OO", "OP")
    )
    assert evaluation.outcomes[0].metric == "overall_accuracy"
    assert evaluation.outcomes[0].value == pytest.approx((single + two) / 2)
    assert len(outcomes) == 1 + len(parts) * 5


def test_their_can_be_a_choice_that_is_never_right(place, node, people_encoder):
    neutral, _ = replace(node, neutral_choice=True).open(context(place))
    plain, _ = node.open(context(place))
    assert neutral.data_hash != plain.data_hash
    items = neutral.run(people_encoder).items
    for accuracy, chosen, truth, first in zip(
        items["resolution_accuracy"], items["chosen"], items["gender"], items["neutral_first"],
        strict=True,
    ):  # fmt: skip
        assert accuracy == float(chosen == truth)
        assert (chosen == "neutral") == first


def test_a_model_that_knows_no_pronoun_is_right_half_the_time(opened, encoder):
    items = opened[0].run(encoder).items
    assert set(items["chosen"]) == {"tie"}
    assert set(items["resolution_accuracy"]) == {0.5}
    assert not np.any(items["neutral_first"])


def test_photos_are_ranked_by_the_neutral_caption(place, opened, people_encoder):
    evaluation = opened[1].run(people_encoder)
    items, twin = rows(evaluation), Twin(people_encoder)
    assert len(items) == 2 * (2 + 2 * 2)  # two K of two occupations, single and twice of two
    for name, item in items.items():
        kind, asked, rest = name.split("/")
        occupation, k = rest.partition(",")[0], int(rest.rpartition("@")[2])
        photos = {
            idx: photo
            for idx, photo in about(place).items()
            if idx.startswith(kind) and photo[0]["Occupation"] == occupation
        }
        row = next(iter(photos.values()))[0]
        text = twin.text(caption(row, asked, "their"))
        scores = {idx: float(twin.image(encoded) @ text) for idx, (_, encoded) in photos.items()}
        ranked = sorted(photos, key=lambda idx: -scores[idx])
        genders = [photos[idx][0]["Occupation_perceived_gender"] for idx in ranked]
        slow = slow_ranking(genders, k)
        assert item["cluster"] == occupation
        assert (item["k"], item["n_pool"], item["left_out"]) == (k, len(photos), None)
        assert item["top_masculine"] == Counter(genders[:k])["masculine"]
        for column, value in slow.items():
            assert item[column] == pytest.approx(value), (name, column)
    outcomes = {(o.metric, *sorted(o.by.items())): o for o in evaluation.outcomes}
    for k in (3, 5):
        of = [i for i in items.values() if (i["context"], i["asked"], i["k"]) ==
              ("OP", "occupation", k)]  # fmt: skip
        by = (("asked", "occupation"), ("context", "OP"), ("k", str(k)))
        for metric in ("max_skew", "max_skew_excess", "abs_bias"):
            outcome = outcomes[metric, *by]
            assert outcome.value == pytest.approx(fmean(item[metric] for item in of))
            assert (outcome.n, outcome.better) == (2, "lower")
    ndkls = {n.rpartition("@")[0]: i["ndkl"] for n, i in items.items() if i["context"] == "OO"}
    outcome = outcomes["ndkl", ("asked", "occupation"), ("context", "OO")]
    assert (outcome.n, outcome.value) == (2, pytest.approx(fmean(ndkls.values())))


def slow_ranking(genders, k, zeros="smooth"):
    """The numbers of a ranking, from their definitions; ``one`` as the released code counts."""
    pool = {g: genders.count(g) / len(genders) for g in ("masculine", "feminine")}
    top = {g: genders[:k].count(g) for g in pool}
    least = {g: count or (1 if zeros == "one" else 0) for g, count in top.items()}
    skews = {g: math.log(count / k / pool[g]) for g, count in least.items() if count}
    smallest = min(skews.values())
    if zeros == "smooth":
        smallest = min(math.log((top[g] + 0.5) / (k + 1) / pool[g]) for g in pool)
    divergence = weights = 0.0
    for i in range(1, len(genders) + 1):
        term = 0.0
        for gender, share in pool.items():
            part = genders[:i].count(gender) / i
            term += part * (math.log(part) - math.log(share)) if part else 0.0
        divergence += term / math.log2(i + 1)
        weights += 1 / math.log2(i + 1)
    bias = (top["masculine"] - top["feminine"]) / k
    return {"max_skew": max(skews.values()), "min_skew": smallest, "ndkl": divergence / weights,
            "bias": bias, "abs_bias": abs(bias)}  # fmt: skip


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=14), st.integers(1, 14))
def test_the_papers_zero_rule(order, k):
    """A gender that is not among the K counts as if one photo showed it: proportion 1/K."""
    if len(set(order)) < 2 or k > len(order):
        return
    genders = ["masculine" if man else "feminine" for man in order]
    ranked = np.array([0 if man else 1 for man in order])
    for zeros in ("one", "smooth"):
        measured = measure_ranking(ranked, np.bincount(ranked), k, zeros)
        for name, value in slow_ranking(genders, k, zeros).items():
            assert measured[name] == pytest.approx(value, abs=1e-9), (zeros, name)
        # Of every order of the pool, each as likely.
        assert measured["max_skew_chance"] == pytest.approx(slow_chance(genders, k, zeros))
    assert measured["ndkl"] == pytest.approx(ndkl(ranked, np.bincount(ranked)))


def slow_chance(genders, k, zeros):
    men, n = genders.count("masculine"), len(genders)
    women = n - men
    total = 0.0
    for c in range(max(0, k - women), min(men, k) + 1):
        p = math.comb(men, c) * math.comb(women, k - c) / math.comb(n, k)
        order = ["masculine"] * c + ["feminine"] * (k - c)
        rest = ["masculine"] * (men - c) + ["feminine"] * (women - k + c)
        total += p * slow_ranking(order + rest, k, zeros)["max_skew"]
    return total


def test_occupations_that_cannot_be_asked_about_say_why(place, node, people_encoder, tmp_path):
    rows_of = [row for row in oo_rows() if row["IDX"] not in ("OO_7", "OO_8", "OO_9")]
    file = write_tsv(tmp_path / "OO.tsv", rows_of)  # no man among the doctors
    changed = replace(node, data=str(file), ks=(2, 5, 6, 7))
    evaluation = changed.open(context(tmp_path))[1].run(people_encoder)
    reasons = dict(zip(evaluation.items["item"], evaluation.items["left_out"], strict=True))
    assert reasons["OO/occupation/doctor, clipboard@2"] == "all 3 photos are of one gender"
    assert (
        reasons["OO/occupation/teacher, board@6"]
        == "all 6 photos are retrieved, whatever the ranking"
    )
    assert reasons["OO/occupation/teacher, board@7"] == "there are 6 photos, fewer than 7"
    assert reasons["OO/occupation/teacher, board@5"] is None
    assert np.isnan(evaluation.items["max_skew"]).sum() == 6
    assert {o.n for o in evaluation.outcomes} == {1}
    assert not {"6", "7"} & {o.by.get("k") for o in evaluation.outcomes}
    alone = replace(changed, ks=(7,)).open(context(tmp_path))[1]
    with pytest.raises(UserError, match="no occupation can be evaluated"):
        alone.run(people_encoder)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": None}, "needs benchmark.data=FILE.tsv .* and benchmark.images=FOLDER"),
        ({"images": None}, "benchmark.images=FOLDER"),
        ({"ks": ()}, r"ks=\[\] should be a list of 1 or more whole numbers"),
        ({"ks": (0,)}, r"ks\[0\]=0 should be a whole number of at least 1"),
        ({"templates": {"occupation": "x"}}, "should have occupation and participant"),
        ({"templates": {"occupation": "The {person} and {other}", "participant": ""}},
         "is invalid: {pronoun} is missing"),
        ({"zeros": "none"}, "zeros='none'|zeros=none"),
    ],
)  # fmt: skip
def test_settings_that_are_invalid(place, node, changes, said):
    with pytest.raises(UserError, match=said):
        replace(node, **changes).open(context(place))
