"""Clusters of edits: class by class, named by the nearest, and the page that shows them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.stress.edit_clusters import EditClusters
from cfaug.evaluation.stress.stress import Stress
from cfaug.evaluation.stress.stress_items import CENTRE, GROUP, StressItems
from cfaug.models.specs import HFClip
from cfaug.models.task_specs import ImageClassification
from cfaug.report.items import Items, read_items, write_items
from cfaug.stats.edit_effects import cluster_edits, difference_features, group_equal, group_within
from tests.evaluation.joined import joined_sets, random_sets
from tests.evaluation.stress.test_stress import opener
from tests.models import tiny
from tests.report.example import data_of
from tests.report.stress_example import stress_items

WORDS = ("on the beach", "in the snow", "at night", "red", "blue", "photo", "sketch", "")


class Embedder:
    """Says the same of a text every time; a word's letters count."""

    def __init__(self, zero: str | None = None) -> None:
        self.zero = zero

    def encode(self, texts):
        counts = np.array([[text.count(letter) for letter in "abeghinorst"] for text in texts])
        embeddings = np.concatenate([counts, np.ones((len(texts), 1))], axis=1)
        return embeddings * np.array([[text != self.zero] for text in texts])

    def describe(self):
        return {"sentence_encoder": "letters"}


def embed(text: str) -> np.ndarray:
    return Embedder().encode([text])[0]


@pytest.mark.parametrize("unit", ["word", "caption"])
@pytest.mark.parametrize("feature", ["abs_diff", "signed_diff"])
def test_clusters_are_those_of_each_class_by_itself(unit, feature):
    answers = stress_items(sets=("edited", "random"))
    columns = EditClusters(Embedder(), feature, unit, clusters=2).columns(answers.items.columns)
    before, after = {"word": ("before", "after"), "caption": ("text_before", "text")}[unit]
    seen: set[int] = set()
    for part in ("edited", "random"):
        for label in ("ball", "cube", "star"):
            rows = [r for r in answers.rows(part) if answers.texts("class")[r] == label]
            features = difference_features(
                [embed(answers.texts(before)[r]) for r in rows],
                [embed(answers.texts(after)[r]) for r in rows], feature,
            )  # fmt: skip
            wanted = cluster_edits(features, 2)
            groups = columns[GROUP][rows]
            assert len(set(groups.tolist())) == 2
            assert seen.isdisjoint(groups.tolist())
            seen |= set(groups.tolist())
            assert ((groups[:, None] == groups) == (wanted.groups[:, None] == wanted.groups)).all()
            assert [r for r in rows if columns[CENTRE][r]] == sorted(rows[i] for i in wanted.names)
    others = [
        r
        for r in range(len(answers))
        if r not in {*answers.rows("edited"), *answers.rows("random")}
    ]
    assert (columns[GROUP][others] == -1).all()
    assert not columns[CENTRE][others].any()


def test_settings_that_cannot_be_are_refused():
    for change, said in (
        ({"feature": "l1"}, "feature=l1: choose from abs_diff, signed_diff"),
        ({"unit": "letter"}, "clusters.unit=letter: choose from word, caption"),
        ({"clusters": 0}, "clusters=0"),
    ):
        with pytest.raises(UserError, match=said):
            EditClusters(Embedder(), **change)
    with pytest.raises(UserError, match=r"encoder cannot be used here.*zero vector"):
        EditClusters(Embedder(zero="blue")).columns(stress_items().items.columns)


def test_a_benchmark_with_clusters_is_another_test(tmp_path):
    write_shards(joined_sets(), tmp_path / "lance")
    hashes = set()
    for clusters in (None, EditClusters(Embedder()), EditClusters(Embedder(), clusters=3)):
        (opened,) = Stress(str(tmp_path / "lance"), clusters=clusters).open(opener(tmp_path))
        hashes.add(opened.data_hash)
    assert len(hashes) == 3


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """A run's folder with the items of a tiny classifier, clustered by a tiny CLIP's text tower."""
    root = tmp_path_factory.mktemp("stress")
    write_shards(joined_sets(), root / "lance")
    write_shards(random_sets(), root / "lance_r")
    clusters = EditClusters(HFClip(str(tiny.save_clip(root / "clip"))), clusters=2)
    node = Stress(str(root / "lance"), random=str(root / "lance_r"), clusters=clusters,
                  name="own", apply=["apply", "{after}", "{label}"])  # fmt: skip
    (benchmark,) = node.open(opener(root))
    classifier = ImageClassification(str(tiny.save_classifier(root / "net"))).load()
    evaluation = benchmark.run(classifier)
    folder = root / "runs" / "weights" / "net" / "seed=0"
    write_items(folder, Items(benchmark.name, "w", benchmark.data_hash, evaluation.items))
    return benchmark, folder, evaluation


def test_the_page_of_a_benchmark_shows_its_edits(tested):
    benchmark, folder, evaluation = tested
    file = benchmark.write_page(folder, "net")
    assert file == folder / "stress.html"
    page = data_of(file)
    again = StressItems("net", read_items(folder, "own_stress"))
    assert again.is_clustered
    for insight in again.insights():
        assert {again.texts("class")[row] for row in insight.effect.rows} == {insight.label}
        assert bool(again.items.columns[CENTRE][insight.named_by])
    edits = [
        name
        for name, part in zip(evaluation.items["item"], evaluation.items["set"], strict=True)
        if part in ("edited", "random")
    ]
    assert sorted(pair["i"] for pair in page["pairs"]) == sorted(edits)
    insights = page["insights"][0]["edited"]
    assert insights
    assert insights[0]["x"].startswith("apply ")
    assert not (folder.parents[1] / "stress.html").exists()


def test_models_of_one_experiment_stand_side_by_side(tested, capsys):
    benchmark, folder, evaluation = tested
    other = folder.parents[1] / "other" / "seed=0"
    write_items(other, Items(benchmark.name, "v", benchmark.data_hash, evaluation.items))
    asked_else = folder.parents[1] / "else" / "seed=0"
    write_items(asked_else, Items(benchmark.name, "v", "another test", evaluation.items))
    damaged = folder.parents[1] / "damaged" / "seed=0" / "items"
    damaged.mkdir(parents=True)
    (damaged / "own_stress.parquet").write_text("no parquet")
    benchmark.write_page(folder, "net")
    page = data_of(folder.parents[1] / "stress.html")
    assert page["models"] == ["net", "other"]
    assert all(len(pair["m"]) == 2 for pair in page["pairs"])
    assert "own_stress.parquet cannot be read" in capsys.readouterr().err
    assert data_of(folder / "stress.html")["models"] == ["net"]


# Groups of edits: features, K-Means against a slow twin, equal words, class by class.

POINTS = np.array([[0, 0], [0, 1], [9, 9], [9, 10], [-8, 9], [0, 0.4], [-8, 9.2]], np.float64)


@pytest.mark.parametrize("feature", ["abs_diff", "signed_diff"])
def test_features_are_those_of_a_slow_twin(feature):
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 5, 3))
    features = difference_features(before, after, feature)
    for i in range(5):
        lengths = [math.sqrt(sum(x * x for x in vectors[i])) for vectors in (before, after)]
        for d in range(3):
            wanted = after[i, d] / lengths[1] - before[i, d] / lengths[0]
            wanted = abs(wanted) if feature == "abs_diff" else wanted
            assert features[i, d] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(
    ("before", "after", "feature", "said"),
    [
        ([[1.0]], [[1.0, 2.0]], "abs_diff", "edits x dim"),
        ([[0.0]], [[1.0]], "abs_diff", "zero vector"),
        ([[math.nan]], [[1.0]], "abs_diff", "embeddings"),
        ([[1.0]], [[1.0]], "l1", "choose from abs_diff, signed_diff"),
    ],
)
def test_features_that_cannot_be(before, after, feature, said):
    with pytest.raises(ValueError, match=said):
        difference_features(before, after, feature)


def best_partition(points: np.ndarray, k: int) -> float:
    """Return the smallest sum of squares of any partition into k clusters: all are tried."""
    smallest = math.inf
    for code in range(k ** len(points)):
        labels = np.array([(code // k**i) % k for i in range(len(points))])
        total = sum(
            float(((members - members.mean(axis=0)) ** 2).sum())
            for label in range(k)
            for members in [points[labels == label]]
            if len(members)
        )
        smallest = min(smallest, total)
    return smallest


def test_clusters_are_the_best_ones_and_named_by_the_nearest():
    grouping = cluster_edits(POINTS, 3)
    assert grouping.groups.tolist() == [0, 0, 1, 1, 2, 0, 2]
    total = sum(
        float(((members - members.mean(axis=0)) ** 2).sum())
        for group in range(3)
        for members in [POINTS[grouping.groups == group]]
    )
    assert total == pytest.approx(best_partition(POINTS, 3))
    for group, name in enumerate(grouping.names):
        rows = np.flatnonzero(grouping.groups == group)
        centre = POINTS[rows].mean(axis=0)
        distance = [float(((POINTS[row] - centre) ** 2).sum()) for row in rows]
        assert name == rows[int(np.argmin(distance))]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(1, 6))
def test_there_are_never_more_clusters_than_different_edits(values, clusters):
    features = [[float(v)] for v in values]
    grouping = cluster_edits(features, clusters)
    assert len(grouping.names) == min(clusters, len(set(values)))
    assert sorted(set(grouping.groups.tolist())) == list(range(len(grouping.names)))
    assert (grouping.groups[grouping.names] == np.arange(len(grouping.names))).all()
    again = cluster_edits(features, clusters)
    assert np.array_equal(again.groups, grouping.groups)


def test_no_edits_have_no_clusters_and_bad_ones_are_refused():
    assert len(cluster_edits(np.zeros((0, 4))).groups) == 0
    for bad, clusters in (([[math.inf]], 2), ([1.0], 2), ([[1.0]], 0)):
        with pytest.raises(ValueError, match="features"):
            cluster_edits(bad, clusters)


@given(st.lists(st.sampled_from("abc"), max_size=12), st.data())
def test_groups_within_classes_never_cross_them(words, data):
    classes = data.draw(st.lists(st.sampled_from("xy"), min_size=len(words), max_size=len(words)))
    groupings = [
        group_equal([w for w, c in zip(words, classes, strict=True) if c == name])
        for name in dict.fromkeys(classes)
    ]
    grouping = group_within(classes, groupings)
    pairs = list(zip(classes, words, strict=True))
    for i in range(len(words)):
        for j in range(len(words)):
            assert (grouping.groups[i] == grouping.groups[j]) == (pairs[i] == pairs[j])
    assert [int(grouping.groups[name]) for name in grouping.names] == list(
        range(len(grouping.names))
    )


def test_groupings_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="2 edits, not 1"):
        group_within(["a", "a"], [group_equal(["x"])])
    with pytest.raises(ValueError, match="fewer than the classes"):
        group_within(["a", "b"], [group_equal(["x"])])
