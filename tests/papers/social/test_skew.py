"""The skew benchmark on hand-laid sets, against one image at a time and plain Python."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Benchmark
from cfaug.core.rng import derive
from cfaug.data.grids import attribute_combinations, find_labellings, usual_labellings
from cfaug.data.index import open_index
from cfaug.evaluation.benchmark import HasSummary
from cfaug.evaluation.context import EvaluationContext
from cfaug.papers.social.skew import MEANS, Skew
from cfaug.stats.significance import holm
from tests.evaluation.drawn_questions import rows
from tests.grid_sets import SUBJECTS, every_grid_set, grid_set, lay_grid_sets

QUICK = {"permutations": 99, "resamples": 50}
LABELLINGS = ["race_gender", "race", "gender", *(f"race|gender={g}" for g in ("male", "female")),
              *(f"gender|race={r}" for r in ("White", "Black", "Latino"))]  # fmt: skip


@pytest.fixture(scope="module")
def sets():
    """Two sets of every subject and prefix; the pilot has one set only."""
    return [*every_grid_set(SUBJECTS[:3]), grid_set("pilot")]


@pytest.fixture(scope="module")
def index(sets, tmp_path_factory):
    root = tmp_path_factory.mktemp("skew")
    return open_index(lay_grid_sets(root / "sets", sets), root / "index")


@pytest.fixture(scope="module")
def evaluation(index, encoder):
    return Skew(name="sets_skew", k=[6, 3, "labels"], **QUICK).use(index).run(encoder)


def slow_ranking(encoder, sets, subject):
    """Embed image after image and prompt after prompt; return (name, attributes, cosine) ranked."""
    of_subject = [laid for laid in sets if laid.group == subject]
    with torch.inference_mode():
        prompts = dict.fromkeys(laid.members[0].extra["neutral"] for laid in of_subject)
        features = [encoder.encode_text(encoder.tokenize([p]))[0].double() for p in prompts]
        query = torch.stack(features).mean(0)
        images = []
        for laid in of_subject:
            for number, member in enumerate(laid.members):
                image = decode_image(laid.images[member.image_name], "it")
                pixels = torch.from_numpy(encoder.transform(image)[None].copy())
                vector = encoder.encode_image(pixels)[0].double()
                cosine = float(torch.cosine_similarity(vector, query, dim=0))
                images.append(
                    (f"{laid.key}_{number}", member.extra["attributes"], cosine, laid.key)
                )
    return sorted(images, key=lambda image: (-image[2], derive(0, "rank", image[0])))


def slow_label(attributes, labelling):
    names, _, given = labelling.partition("|")
    if given and attributes[given.split("=")[0]] != given.split("=")[1]:
        return None
    return " ".join(attributes[name] for name in names.split("_"))


def test_every_item_is_what_one_image_at_a_time_gives(evaluation, encoder, sets):
    items, seen = rows(evaluation), set()
    for subject in SUBJECTS:
        ranking = slow_ranking(encoder, sets, subject)
        for labelling in LABELLINGS:
            images = [(n, slow_label(a, labelling), c, s) for n, a, c, s in ranking]
            images = [image for image in images if image[1] is not None]
            pool = Counter(label for _, label, *_ in images)
            for k in dict.fromkeys([6, 3, len(pool)]):
                row = items[f"race_gender/{labelling}/{subject}@{k}"]
                seen.add(row["item"])
                assert (row["cluster"], row["subject"], row["subject_type"]) == (
                    subject, subject, "occupation",
                )  # fmt: skip
                assert (row["grid"], row["labelling"], row["k"]) == ("race_gender", labelling, k)
                assert row["n_pool"] == len(images)
                assert row["n_sets"] == len({image[3] for image in images})
                labels = json.loads(row["labels"])
                assert set(labels) == set(pool)
                if k > len(images):
                    assert row["left_out"] == f"k={k} is more than the pool of {len(images)} images"
                    assert math.isnan(row["max_skew"])
                    assert row["top_counts"] == "[]"
                    continue
                assert row["left_out"] is None
                top = Counter(label for _, label, *_ in images[:k])
                assert json.loads(row["top"]) == [image[0] for image in images[:k]]
                assert json.loads(row["top_counts"]) == [top[label] for label in labels]
                assert json.loads(row["pool_counts"]) == [pool[label] for label in labels]
                ratios = [top[a] / k / (pool[a] / len(images)) for a in labels]
                assert row["max_skew"] == pytest.approx(math.log(max(ratios)), abs=1e-12)
                smooth = [
                    math.log((top[a] + 0.5) / (k + 0.5 * len(labels)) * len(images) / pool[a])
                    for a in labels
                ]
                assert row["min_skew"] == pytest.approx(min(smooth))
                assert json.loads(row["skews"]) == pytest.approx(smooth)
                assert row["n_absent"] == sum(not top[a] for a in labels)
                if len(labels) == 2:
                    difference = (top[labels[0]] - top[labels[1]]) / k
                    assert row["signed_bias"] == pytest.approx(difference)
                    assert row["bias"] == abs(row["signed_bias"])
                else:
                    assert math.isnan(row["bias"])
                check_gaps(row, images, labels)
    assert seen == set(items)


def check_gaps(row, images, labels):
    """Compare the paired gaps with every set by itself."""
    by_set = {}
    for _, label, cosine, key in images:
        by_set.setdefault(key, []).append((label, cosine))
    gaps = {label: [] for label in labels}
    places = {label: [] for label in labels}
    for members in by_set.values():
        mean = sum(c for _, c in members) / len(members)
        for label in labels:
            mine = [c for other_label, c in members if other_label == label]
            gaps[label].append(sum(mine) / len(mine) - mean)
            place = [sum(c > other for _, other in members) / (len(members) - 1) for c in mine]
            places[label].append(sum(place) / len(place) - 0.5)
    for name, values in (("gaps", gaps), ("rank_gaps", places)):
        means = [sum(values[label]) / len(by_set) for label in labels]
        assert json.loads(row[name]) == pytest.approx(means, abs=1e-5)
        total = row["score_gap" if name == "gaps" else "rank_gap"]
        assert total == pytest.approx(max(means) - min(means), abs=1e-5)
    low, high = json.loads(row["gap_low"]), json.loads(row["gap_high"])
    if len(by_set) == 1:
        assert low == high == [None] * len(labels)
        assert math.isnan(row["max_skew_low"])
    else:
        assert all(a < b < c for a, b, c in zip(low, json.loads(row["gaps"]), high, strict=True))


def test_outcomes_are_means_over_subjects_and_p_is_corrected_over_them(evaluation):
    items = list(rows(evaluation).values())
    for outcome in evaluation.outcomes:
        chosen = [
            r for r in items if all(str(r[name]) == value for name, value in outcome.by.items())
        ]
        values = [r[outcome.metric] for r in chosen if not math.isnan(r[outcome.metric])]
        assert (outcome.value, outcome.n) == (pytest.approx(sum(values) / len(values)), len(values))
        assert outcome.better == ("higher" if outcome.metric == "min_skew" else "lower")
        assert outcome.unit == MEANS[outcome.metric][1]
    assert {tuple(outcome.by) for outcome in evaluation.outcomes} == {("grid", "labelling", "k")}
    first = evaluation.outcomes[0]
    assert (first.metric, dict(first.by)) == (
        "max_skew", {"grid": "race_gender", "labelling": "race_gender", "k": "6"},
    )  # fmt: skip
    for labelling in LABELLINGS:
        family = [r for r in items if (r["labelling"], r["k"]) == (labelling, 3)]
        for corrected, name in (("p_holm", "p_permutation"), ("p_gap_holm", "p_gap")):
            expected = holm([r[name] for r in family]).tolist()
            assert [r[corrected] for r in family] == pytest.approx(expected, nan_ok=True)


def test_a_benchmark_is_what_its_protocol_says_and_its_hash_what_was_asked(index, encoder):
    benchmark = Skew(name="s", **QUICK).use(index)
    assert isinstance(benchmark, Benchmark)
    hashes = {benchmark.data_hash}
    for changed in (
        {"k": 3}, {"labellings": ["race"]}, {"zeros": "drop"}, {"permute": "pool"}, {"seed": 1},
        {"templates": ["a {subject}"]}, {"prompts": "unit_mean"},
    ):  # fmt: skip
        hashes.add(Skew(name="s", **{**QUICK, **changed}).use(index).data_hash)
    some = np.flatnonzero(np.asarray(index.sets) > 0)
    hashes.add(Skew(name="s", **QUICK).use(index, some).data_hash)
    assert len(hashes) == 9
    again = Skew(name="s", **QUICK).use(index)
    assert again.data_hash == benchmark.data_hash


def planted(sets, subject, bonus, seed=0):
    """Unit embeddings whose cosine to the first axis is higher for women of one subject."""
    rng = np.random.default_rng(seed)
    cosines = []
    for laid in sets:
        common = 0.05 * rng.normal()
        for member in laid.members:
            woman = member.extra["attributes"]["gender"] == "female"
            individual = 0.02 * rng.normal() + bonus * (woman and laid.group == subject)
            cosines.append(0.3 + common + individual)
    embeddings = np.zeros((len(cosines), 8), np.float32)
    embeddings[:, 0] = cosines
    embeddings[:, 1] = np.sqrt(1 - np.square(cosines))
    return embeddings


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Ten sets of each of four subjects."""
    root = tmp_path_factory.mktemp("many")
    sets = every_grid_set(sets=5)
    return sets, open_index(lay_grid_sets(root / "sets", sets), root / "index")


def judge(many, bonus, **settings):
    sets, index = many
    asked = Skew(name="s", **{**QUICK, "permutations": 999, **settings}).use(index)
    queries = {("race_gender", n): np.eye(8, dtype=np.float32)[0] for n in range(4)}
    return rows(asked.judge(queries, planted(sets, "nurse", bonus)))


@pytest.mark.parametrize("permute", ["sets", "pool"])
def test_a_planted_skew_is_found_where_it_was_planted_and_nowhere_else(many, permute):
    items = judge(many, 0.2, permute=permute)
    for labelling, label in (("gender", "female"), ("gender|race=White", "female")):
        for subject in SUBJECTS:
            row = items[f"race_gender/{labelling}/{subject}@6"]
            assert (row["p_gap_holm"] <= 0.05) == (subject == "nurse")
            if subject == "nurse":
                gaps = dict(zip(json.loads(row["labels"]), json.loads(row["gaps"]), strict=True))
                assert max(gaps, key=gaps.get) == label
                assert row["max_skew"] == pytest.approx(math.log(2), abs=0.2)
    row = items["race_gender/gender/nurse@6"]
    assert row["p_permutation"] <= 0.05
    assert row["max_skew_excess"] == row["max_skew"] - row["max_skew_chance"] > 0.3
    assert row["signed_bias"] < -0.6
    assert row["ndkl_excess"] > 0
    assert row["rank_gap_excess"] == row["rank_gap"] - row["rank_gap_chance"] > 0.4
    null = judge(many, 0.0, permute=permute)
    assert sum(item["p_holm"] <= 0.05 for item in null.values()) == 0
    # Over the pool any ranking is as likely: the null is that of chance.
    alike = [item["max_skew_null"] == item["max_skew_chance"] for item in null.values()]
    assert all(alike) == (permute == "pool")
    assert all(item["p_level"] <= 0.05 for item in null.values())
    assert all(item["max_skew_low"] <= item["max_skew_high"] for item in null.values())


def test_an_absent_label_is_no_number_where_zeros_are_minus_infinity(many):
    items = judge(many, 0.4, zeros="neg_inf")
    row = items["race_gender/gender/nurse@6"]
    assert row["n_absent"] == 1
    assert math.isnan(row["min_skew"])
    assert json.loads(row["skews"]) == [None, pytest.approx(math.log(2))]


def test_prompts_are_those_of_the_sets_or_of_templates(index, encoder, monkeypatch):
    asked = []

    def embed(encoder, texts, batch_size, normalise=True):
        asked.append((list(texts), normalise))
        return np.ones((len(texts), 8), np.float32)

    monkeypatch.setattr("cfaug.papers.social.skew.embed_texts", embed)
    Skew(name="s", **QUICK).use(index)._embed_prompts(encoder)
    templates = ["a {subject}", "A drawing of a {subject}"]
    Skew(name="s", templates=templates, prompts="unit_mean").use(index)._embed_prompts(encoder)
    (texts, raw), (templated, normalised) = asked
    assert (raw, normalised) == (False, True)
    assert set(texts) >= {"a doctor", "A photo of a doctor", "an engineer", "A photo of a pilot"}
    assert templated[:2] == ["a doctor", "A drawing of a doctor"]
    assert "A drawing of an engineer" in templated


def test_what_cannot_be_asked_says_why(tmp_path, encoder):
    one_value = {"hue": ("red",), "size": ("big", "small")}
    sets = [grid_set("doctor"), grid_set("ball", attributes=one_value, grid="hue_size"),
            grid_set("nurse", leave_out=[2])]  # fmt: skip
    index = open_index(lay_grid_sets(tmp_path / "sets", sets), tmp_path / "index")
    with pytest.raises(UserError, match="a_photo_of_race_gender_nurse-0: incomplete"):
        Skew(name="s").use(index)

    def ask(**changes):
        asked = {"name": "s", "invalid": "leave_out", **QUICK, **changes}
        return rows(Skew(**asked).use(index).run(encoder))

    items = ask(k=[2, 7])
    reasons = {name: row["left_out"] for name, row in items.items()}
    assert {row["subject"] for row in items.values()} == {"doctor", "ball"}
    assert reasons["race_gender/race_gender/doctor@7"] == "k=7 is more than the pool of 6 images"
    assert reasons["race_gender/gender|race=White/doctor@2"] is None
    assert [name for name in items if name.startswith("hue_size")] == [
        "hue_size/size/ball@2", "hue_size/size/ball@7",
    ]  # fmt: skip
    assert reasons["hue_size/size/ball@2"] is None
    items = ask(labellings=["hue", "size|hue", "size|hue=red"], k=2)
    assert items["hue_size/hue/ball@2"]["left_out"] == "one label: there is nothing to compare"
    assert items["hue_size/size|hue=red/ball@2"]["left_out"] is None
    with pytest.raises(UserError, match="no subject can be evaluated: one image"):
        ask(labellings=["hue|size=big"], k=1)
    with pytest.raises(UserError, match="no subject can be evaluated: k=99 is more than"):
        ask(k=99)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"zeros": "none"}, "zeros=none: choose from smooth, neg_inf, drop,"),
        ({"permute": "images"}, "permute=images: choose from sets, pool"),
        ({"subjects": "some"}, "subjects=some: choose from all, unseen"),
        ({"prompts": "mean"}, r"prompts=mean: choose from raw_mean, unit_mean \(did"),
        ({"invalid": "keep"}, "invalid=keep: choose from refuse, leave_out"),
        ({"permutations": 0}, "permutations=0 should be a whole number from 1 to"),
        ({"resamples": 10**11}, "resamples=100000000000 should be a whole number"),
        ({"alpha": 0}, "alpha=0 should be a number above 0"),
        ({"k": 0}, "k: 0 is invalid"),
        ({"k": [12, "all"]}, "k: all is invalid"),
        ({"k": []}, r"k=\[\] is invalid"),
        ({"page": -1}, "page=-1 should be a whole number of at least 0 or"),
        ({"templates": ["a doctor"]}, "'a doctor' is invalid: it should have {subject}"),
        ({"templates": ["a {race} {subject}"]}, "and nothing else in braces"),
        ({"templates": ["a {Race} {subject}"]}, "braces hold a name"),
    ],
)
def test_invalid_settings_name_the_choices(settings, said):
    with pytest.raises(UserError, match=said):
        Skew(**settings)


def test_a_labelling_that_no_grid_has_names_the_choices(index, tmp_path):
    for wrong in ("age", "gender_race", "gender|age", "gender|race=Green", "gender|gender",
                  "gender|", "gender|race="):  # fmt: skip
        with pytest.raises(UserError, match=r"invalid: choose from race, gender, race_gender, "):
            Skew(name="s", labellings=["race", wrong]).use(index)
    with pytest.raises(UserError, match=r"labellings=\[\] is invalid: name some, or null"):
        Skew(name="s", labellings=[]).use(index)
    alone = grid_set("doctor", attributes={"race": ("White",)}, grid="race")
    race_only = open_index(lay_grid_sets(tmp_path / "sets", [alone]), tmp_path / "index")
    with pytest.raises(UserError, match="the grids race have no attribute of two values"):
        Skew(name="s").use(race_only)


def test_an_embedding_that_is_no_direction_names_its_image(index):
    asked = Skew(name="s", **QUICK).use(index)
    queries = {("race_gender", n): np.ones(4, np.float32) for n in range(4)}
    good = np.random.default_rng(0).normal(size=(len(index), 4)).astype(np.float32)
    for value, said in ((math.nan, "NaN or infinite"), (0.0, "zero vector")):
        images = good.copy()
        images[9] = value
        key = index.key(9)
        with pytest.raises(UserError, match=f"{said}.*such as .*{key}"):
            asked.judge(queries, images)
    with pytest.raises(UserError, match="the prompts of 'doctor' hold NaN"):
        asked.judge({**queries, ("race_gender", 0): np.full(4, np.nan)}, good)


def test_a_model_that_overflows_on_one_image_names_it(index, encoder, monkeypatch):
    def overflow(pixels):
        features = torch.ones(len(pixels), 8)
        features[1] = math.inf
        return features

    monkeypatch.setattr(encoder, "encode_image", overflow)
    asked = Skew(name="s", batch_size=4, **QUICK).use(index)
    with pytest.raises(UserError, match=rf"its numbers overflow, first for .*{index.key(1)}"):
        asked.run(encoder)


def test_equal_scores_and_equal_images_do_not_depend_on_the_order_of_files(tmp_path, sets):
    """All images tie: the ranking is the hash's, not the source's, so labels come mixed."""
    judged = []
    for name, some in (("a", sets), ("b", sets[::-1])):
        index = open_index(lay_grid_sets(tmp_path / name, some), tmp_path / "index")
        asked = Skew(name="s", labellings=["race_gender"], **QUICK).use(index)
        queries = {("race_gender", n): np.ones(4, np.float32) for n in range(4)}
        images = np.ones((len(index), 4), np.float32)
        judged.append(rows(asked.judge(queries, images)))
    assert judged[0].keys() == judged[1].keys()
    for name, row in judged[0].items():
        assert row["top"] == judged[1][name]["top"]
        assert row["max_skew"] == judged[1][name]["max_skew"]
        assert row["p_gap"] == 1.0
    tops = [json.loads(row["top_counts"]) for row in judged[0].values()]
    assert any(max(counts) > 1 for counts in tops)


def test_open_asks_unseen_subjects_alone(index, encoder):
    nurses = np.flatnonzero([index.group_name(row) == "nurse" for row in range(len(index))])
    context = EvaluationContext(
        open=lambda name: index,
        has_world=False,
        held_out=lambda: None,
        withheld=lambda: np.unique(np.asarray(index.groups)[nurses]),
    )
    (unseen,) = Skew("some/sets", subjects="unseen", **QUICK).open(context)
    assert unseen.name == "sets_skew"
    assert {row["subject"] for row in rows(unseen.run(encoder)).values()} == {"nurse"}
    (every,) = Skew("some/sets", **QUICK).open(context)
    assert every.data_hash != unseen.data_hash
    with pytest.raises(UserError, match=r"needs benchmark\.data"):
        Skew().open(context)


def test_more_than_two_attributes():
    values = {"hue": ("red", "blue"), "size": ("big", "small"), "kind": ("new", "old")}
    names = [labelling.name for labelling in usual_labellings(values)]
    assert names[:4] == ["hue_size_kind", "hue", "size", "kind"]
    assert len(names) == 4 + 3 * 2 * 2
    asked = find_labellings(values, ["hue_kind|size=big", "kind_hue", "size_kind"])
    assert [
        (labelling.name, labelling.attributes, dict(labelling.given)) for labelling in asked
    ] == [
        ("hue_kind|size=big", ("hue", "kind"), {"size": "big"}),
        ("size_kind", ("size", "kind"), {}),
    ]
    assert len(attribute_combinations(values)) == 8
    with pytest.raises(UserError, match="give the grid's attributes other names"):
        find_labellings({"a": "xy", "b": "xy", "a_b": "xy"}, ["a"])


def test_a_summary_says_who_stands_out_and_how_many_would_by_chance(many):
    sets, index = many
    queries = {("race_gender", n): np.eye(8, dtype=np.float32)[0] for n in range(4)}
    images = planted(sets, "nurse", 0.2)

    def summarise(**settings):
        asked = Skew(name="s", resamples=9, **settings).use(index)
        assert isinstance(asked, HasSummary)
        return asked.summarise(asked.judge(queries, images))

    lines = summarise(k=[6, 12], permutations=999)
    assert lines[4].startswith("race_gender by race, K=6: mean MaxSkew ")
    (gender,) = [line for line in lines if line.startswith("race_gender by gender, K=12")]
    assert "1 of 4 subjects stand out after correction (Holm, p <= 0.05): nurse." in gender
    assert " are expected by chance" in gender
    assert lines[lines.index(gender) + 1].startswith(
        "  within sets: 1 of 4 subjects prefer a label after correction"
    )
    assert any(
        line.startswith("under a condition (race|gender=male and 9 more): ") for line in lines
    )
    assert not any("too few" in line or "left out" in line for line in lines)
    few = summarise(k=[6, 99], permutations=50)
    assert "left out 12 times: k=99 is more than the pool of 60 images" in few
    assert "give benchmark.permutations=80 or more" in few[-1]
    assert not any("too few" in line for line in summarise(permute="pool", permutations=50))
