"""Models compared over subjects and sets, against plain Python on the same draws."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.rng import generator
from cfaug.data.index import open_index
from cfaug.papers.social.skew import Skew
from cfaug.papers.social.skew_items import RankingTask, SkewItems
from cfaug.papers.social.skew_page import compare_with_first
from cfaug.papers.social.skew_rankings import SkewRankings, compare_over_sets, read_rankings
from cfaug.report.items import RANKINGS, Items, items_file, read_items, write_items
from cfaug.stats.cluster_tests import cluster_mean
from cfaug.stats.skew_tests import draw_sets
from tests.grid_sets import grid_set, lay_grid_sets

SUBJECTS = ("doctor", "nurse", "pilot", "cook", "poet")
QUESTIONS = (
    RankingTask("race_gender", "race_gender", 6),
    RankingTask("race_gender", "gender", 4),
    RankingTask("race_gender", "gender|race=White", 4),
)
RESAMPLES = 40


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    root = tmp_path_factory.mktemp("ranked")
    sets = [grid_set(name, n) for at, name in enumerate(SUBJECTS) for n in range(2 + at % 3)]
    index = open_index(lay_grid_sets(root / "sets", sets), root / "index")
    return Skew(
        name="own_skew", k=[6, 4], labellings=["race_gender", "gender", "gender|race"],
        permutations=9, resamples=9,
    ).use(index)  # fmt: skip


def retrieve(benchmark, folder, seed, male=0.0, model="clip") -> SkewItems:
    """Ask embeddings of noise, nearer to the prompts where a man was asked for."""
    rng = np.random.default_rng(seed)
    (grid,) = benchmark.sets.grids.values()
    images = rng.normal(size=(len(grid.rows), 8)) + 9 * np.eye(8)[0]
    codes, labels = grid.label(["gender"])
    images[codes == labels.index("male"), 0] += male
    queries = {("race_gender", n): np.eye(8)[0] for n in range(len(SUBJECTS))}
    evaluation = benchmark.judge(queries, images)
    asked = (str(benchmark.name), f"weights {seed}", benchmark.data_hash)
    write_items(folder, Items(*asked, evaluation.rankings), RANKINGS)
    write_items(folder, Items(*asked, evaluation.items))
    items = read_items(folder, "own_skew")
    assert items is not None
    return SkewItems(model, items)


@pytest.fixture(scope="module")
def models(benchmark, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return [retrieve(benchmark, root / str(seed), seed, male)
            for seed, male in ((1, 0.0), (2, 6.0), (3, 0.5))]  # fmt: skip


def ranked(*models: SkewItems) -> list[tuple[SkewItems, SkewRankings]]:
    pairs = [(answers, read_rankings(answers)) for answers in models]
    assert all(rankings is not None for _, rankings in pairs)
    return pairs  # type: ignore[return-value]


def slow_images(answers, question, subject):
    """Return (set, label, score) of a subject's images, the best first, row by row."""
    (_, rankings) = ranked(answers)[0]
    columns = rankings.items.columns
    names, _, given = question.labelling.partition("|")
    images = []
    for row in range(len(rankings.items)):
        attributes = json.loads(columns["attributes"][row])
        if columns["subject"][row] != subject:
            continue
        if given and attributes[given.split("=")[0]] != given.split("=")[1]:
            continue
        label = " ".join(attributes[name] for name in names.split("_"))
        images.append(
            (columns["place"][row], columns["cluster"][row], label, columns["score"][row])
        )
    return [image[1:] for image in sorted(images)]


def slow_metric(metric, images, k, drawn):
    """Return a metric of images whose sets stand as often as they were drawn."""
    if metric == "max_skew":
        listed = [label for key, label, _ in images for _ in range(drawn[key])]
        top, pool = Counter(listed[:k]), Counter(listed)
        return max(math.log(top[a] / min(k, len(listed)) / (pool[a] / len(listed))) for a in top)
    places = {}
    for key, label, score in images:
        scores = [other for name, _, other in images if name == key]
        place = sum(score > other for other in scores) / (len(scores) - 1)
        places.setdefault(label, {}).setdefault(key, []).append(place - 0.5)
    total = sum(drawn.values())
    means = [sum(drawn[key] * sum(gaps) / len(gaps) for key, gaps in by_set.items()) / total
             for by_set in places.values()]  # fmt: skip
    return max(means) - min(means)


def slow_comparison(ours, theirs, question, metric):
    """Return the observed difference and that of every resample, one at a time."""
    observed, resampled = [], []
    for subject in SUBJECTS:
        sides = [
            [slow_images(answers, question, subject) for answers in checkpoints]
            for checkpoints in (ours, theirs)
        ]
        keys = sorted({key for key, *_ in sides[0][0]})
        stream = generator(0, "skew_sets", question.grid, subject)
        every = draw_sets(len(keys), RESAMPLES, stream).astype(int).tolist()

        def differ(counts, sides=sides, keys=keys):
            drawn = dict(zip(keys, counts, strict=True))
            means = [
                [slow_metric(metric, images, question.k, drawn) for images in side]
                for side in sides
            ]
            return sum(means[0]) / len(means[0]) - sum(means[1]) / len(means[1])

        observed.append(differ([1] * len(keys)))
        resampled.append([differ(counts) for counts in every])
    about = (*question.by().values(), "None", metric)
    stream = generator(0, "skew_models", *about)
    shape = (10_000, len(SUBJECTS))
    chosen, inner = stream.integers(shape[1], size=shape), stream.integers(RESAMPLES, size=shape)
    middle = [sum(differences) / len(differences) for differences in resampled]
    means = []
    for places in zip(chosen.tolist(), inner.tolist(), strict=True):
        drawn = [observed[g] + resampled[g][b] - middle[g] for g, b in zip(*places, strict=True)]
        means.append(sum(drawn) / len(drawn))
    return observed, means


@pytest.mark.parametrize("metric", ["max_skew", "rank_gap"])
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.labelling)
def test_the_comparison_is_what_one_resample_at_a_time_gives(models, question, metric):
    sides = models[1:], models[:1]  # two checkpoints of one model against one of another
    comparison = compare_over_sets(
        *(ranked(*side) for side in sides), question, metric, None, RESAMPLES
    )
    observed, means = slow_comparison(*sides, question, metric)
    assert comparison.mean == pytest.approx(np.mean(observed), abs=1e-6)
    # The wider interval and the larger p of the two: these subjects are few.
    flipped, ends = cluster_mean(observed, SUBJECTS), np.quantile(means, [0.025, 0.975])
    assert [comparison.low, comparison.high] == pytest.approx(
        [min(ends[0], flipped.low), max(ends[1], flipped.high)], abs=1e-5
    )
    below = sum(drawn <= 1e-6 for drawn in means)  # p counts ties with 0, which rounding may split
    larger = max((1 + below) / 10_001, flipped.p_greater)
    assert comparison.p_greater == pytest.approx(larger, abs=0.002)
    assert comparison.p >= 2.0 ** (1 - len(SUBJECTS))


def test_models_are_paired_and_the_same_draw_serves_both(models):
    question = QUESTIONS[0]
    same = compare_over_sets(ranked(models[1]), ranked(models[1]), question)
    assert (same.mean, same.low, same.high, same.p) == (0.0, 0.0, 0.0, 1.0)
    forward = compare_over_sets(ranked(models[1]), ranked(models[0]), question)
    backward = compare_over_sets(ranked(models[0]), ranked(models[1]), question)
    assert (forward.mean, forward.low, forward.high) == pytest.approx(
        (-backward.mean, -backward.high, -backward.low)
    )
    assert forward.mean == pytest.approx(
        np.mean(list(models[1].values(question).values()))
        - np.mean(list(models[0].values(question).values()))
    )
    assert forward.clusters == len(SUBJECTS)


def test_the_order_of_rows_does_not_matter(models, tmp_path):
    question, rng = QUESTIONS[0], np.random.default_rng(0)
    for model in models[:2]:
        ((_, rankings),) = ranked(model)
        order = rng.permutation(len(rankings.items))
        columns = {n: np.asarray(v)[order] for n, v in rankings.items.columns.items()}
        folder = tmp_path / model.items.weights
        write_items(folder, replace(rankings.items, columns=columns), RANKINGS)
        write_items(folder, model.items)
    moved = [SkewItems(model.model, read_items(tmp_path / model.items.weights, "own_skew"))
             for model in models[:2]]  # fmt: skip
    assert compare_over_sets(ranked(moved[1]), ranked(moved[0]), question) == compare_over_sets(
        ranked(models[1]), ranked(models[0]), question
    )


def test_a_type_without_subjects_has_no_comparison(models):
    some = ranked(models[0]), ranked(models[1])
    with pytest.raises(UserError, match="models share no subject"):
        compare_over_sets(*some, QUESTIONS[0], subject_type="trait")


def test_rankings_of_other_weights_are_none_and_the_page_says_what_to_run(
    benchmark, models, tmp_path
):
    old = retrieve(benchmark, tmp_path, 7, model="old")
    items_file(tmp_path, "own_skew", RANKINGS).unlink()
    assert read_rankings(old) is None
    new = replace(models[0], model="new")
    (said,) = compare_with_first([new, old])
    assert said.startswith("No rankings of old were saved, so")
    assert "evaluate.py command again" in said
    other = replace(read_items(models[0].items.folder, "own_skew", RANKINGS), weights="others")
    write_items(tmp_path, other, RANKINGS)
    assert read_rankings(old) is None
    assert read_rankings(replace(old, items=replace(old.items, folder=None))) is None


def test_the_page_compares_models_with_the_first(models):
    first, second = replace(models[0], model="a"), replace(models[1], model="b")
    (said,) = compare_with_first([first, second])
    comparison = compare_over_sets(ranked(second), ranked(first), QUESTIONS[0])
    assert said.startswith(
        f"b minus a: MaxSkew@6 {comparison.mean:+.2f} (95 % {comparison.low:+.2f} to "
    )
    assert compare_with_first([first]) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: {n: v for n, v in c.items() if n != "place"}, "the column 'place' is missing"),
        (lambda c: c | {"place": np.full(len(c["place"]), np.nan)}, "a place is missing"),
        (lambda c: c | {"attributes": ["["] * len(c["place"])}, "attributes '\\['"),
        (lambda c: c | {"attributes": ["[" * 9**5] * len(c["place"])}, "attributes '\\[\\["),
        (lambda c: c | {"attributes": ['{"age": "old"}'] * len(c["place"])}, "no 'race_gender'"),
        (lambda c: c | {"grid": ["another"] * len(c["place"])}, "'race_gender' is missing"),
        (lambda c: c | {"attributes": [c["attributes"][0]] * len(c["place"])}, "do not fit its"),
        (lambda c: {n: np.asarray(v)[:9] for n, v in c.items()}, "do not fit its items"),
    ],
)  # fmt: skip
def test_rankings_that_were_edited_name_the_file_to_remove(models, tmp_path, change, said):
    kept = read_items(models[0].items.folder, "own_skew", RANKINGS)
    write_items(tmp_path, models[0].items)
    write_items(tmp_path, replace(kept, columns=change(dict(kept.columns))), RANKINGS)
    answers = SkewItems("clip", read_items(tmp_path, "own_skew"))
    with pytest.raises(UserError, match=said) as raised:
        compare_with_first([answers, replace(answers, model="again")])
    assert str(items_file(tmp_path, "own_skew", RANKINGS)) in str(raised.value)
