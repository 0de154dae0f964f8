"""Retrieval, classification and pair scores against CLIP_benchmark and slow obvious twins."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import wilcoxon

from cfaug.stats.choices import pair_similarities, winoground
from cfaug.stats.classification import (
    class_scores,
    class_vectors,
    confusion_matrix,
    fill_templates,
    hits_at,
    mean_per_class_recall,
    zero_shot_scores,
)
from cfaug.stats.ranking import (
    GAPS,
    SCORES,
    Candidates,
    QueryRanks,
    as_array,
    first_equal,
    gaps,
    shift,
    standing,
    standings,
    summary,
    text_standing,
)
from cfaug.stats.ranking import hits_at as recall_hits
from tests.properties import examples


def accuracy(sim_NC, labels, **settings):
    """Return the mean over images of each cut-off."""
    return {name: hits.mean() for name, hits in hits_at(sim_NC, labels, **settings).items()}


def recall(sim_TI, image_of_text, **settings):
    """Return recall both ways from a whole matrix of scores, texts x images."""
    sim, of_text = as_array(sim_TI), np.asarray(image_of_text)
    images = np.arange(sim.shape[1])
    ranks = {
        "image_to_text": standing(sim.T, images, of_text),
        "text_to_image": standing(sim, of_text, images),
    }
    return {name: hits.mean() for name, hits in recall_hits(ranks, **settings).items()}


def recall_from_embeddings(texts, images, image_of_text, **settings):
    """Return recall both ways as evaluations measure it, in pieces."""
    ranks = standings(texts, images, image_of_text)
    return {name: hits.mean() for name, hits in recall_hits(ranks, **settings).items()}


def captions_of(n_images: int, rng: np.random.Generator) -> np.ndarray:
    """One to five captions per image, in mixed order."""
    return rng.permutation(np.repeat(np.arange(n_images), rng.integers(1, 6, n_images)))


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.integers(1, 6),
)
def test_tie_policies_are_best_mean_and_worst_over_all_orders(scores, right, k):
    relevant = right[: len(scores)]
    if not any(relevant):
        relevant[0] = True
    hits = [
        any(relevant[i] for i in sorted(order, key=lambda i: -scores[i])[:k])
        for order in permutations(range(len(scores)))  # a stable sort keeps each order among ties
    ]
    ranks = standing(np.array([scores], float), np.array([1]), np.array(relevant, int))
    assert ranks.hits(k, "min")[0] == max(hits)
    assert ranks.hits(k, "max")[0] == min(hits)
    assert ranks.hits(k, "mean")[0] == pytest.approx(np.mean(hits))


@settings(max_examples=examples(80), deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 7), st.integers(1, 4))
def test_standing_counts_what_a_slow_twin_counts(seed, queries, candidates, groups):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (queries, candidates)).astype(np.float32)  # many ties
    of_candidate = rng.integers(0, groups, candidates)
    of_query = rng.choice(of_candidate, queries)
    ranks = standing(scores, of_query, of_candidate)
    for q in range(queries):
        right = [s for s, g in zip(scores[q], of_candidate, strict=True) if g == of_query[q]]
        wrong = [s for s, g in zip(scores[q], of_candidate, strict=True) if g != of_query[q]]
        best = max(right)
        expected = (sum(s > best for s in wrong), sum(s == best for s in wrong), right.count(best))
        assert (ranks.above[q], ranks.tied[q], ranks.best[q]) == expected


def test_no_full_matrix_is_ever_held(monkeypatch):
    import tracemalloc

    from cfaug.stats import ranking

    monkeypatch.setattr(ranking, "SCORES_AT_ONCE", 2**18)
    rng = np.random.default_rng(0)
    n = 2_500
    texts = rng.standard_normal((n, 8), np.float32)
    images = texts + rng.standard_normal((n, 8), np.float32)
    tracemalloc.start()
    in_pieces = recall_from_embeddings(texts, images, np.arange(n), ks=[1])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * n * n / 5  # bytes: a fifth of the matrix in float32
    whole = recall(as_array(texts / np.linalg.norm(texts, axis=1, keepdims=True))
                   @ (images / np.linalg.norm(images, axis=1, keepdims=True)).T,
                   np.arange(n), ks=[1])  # fmt: skip
    assert in_pieces == pytest.approx(whole)


def test_recall_equals_clip_benchmark():
    import torch
    from clip_benchmark.metrics import zeroshot_retrieval as theirs

    rng = np.random.default_rng(0)
    images = captions_of(60, rng)
    random = torch.Generator().manual_seed(0)
    texts_emb = torch.nn.functional.normalize(torch.randn(len(images), 16, generator=random), dim=1)
    images_emb = torch.nn.functional.normalize(torch.randn(60, 16, generator=random), dim=1)
    scores = texts_emb @ images_emb.T
    positive = torch.zeros_like(scores, dtype=torch.bool)
    positive[torch.arange(len(images)), torch.from_numpy(images)] = True
    ours = recall(scores, images)
    from_embeddings = recall_from_embeddings(3 * texts_emb, images_emb / 7, images)
    for k in (1, 5, 10):
        for name, s, p in (
            ("text_to_image", scores, positive),
            ("image_to_text", scores.T, positive.T),
        ):
            hit = theirs.batchify(theirs.recall_at_k, s, p, 32, "cpu", k=k) > 0
            assert ours[f"{name}_R@{k}"] == pytest.approx(hit.float().mean().item())
            assert from_embeddings[f"{name}_R@{k}"] == pytest.approx(hit.float().mean().item())


@pytest.mark.parametrize(
    ("texts", "images", "of_text", "message"),
    [(1, 2, [0], "no caption"), (1, 2, [0, 1], "there are 1 texts"), (2, 1, [0, 3], "outside")],
)
def test_recall_refuses_what_has_no_answer(texts, images, of_text, message):
    with pytest.raises(ValueError, match=message):
        standings(np.ones((texts, 3)), np.ones((images, 3)), of_text)


class _Encoder:
    """What clip_benchmark asks of a model: texts are rows of a fixed table."""

    def __init__(self, table):
        self.table = table

    def encode_text(self, tokens):
        return self.table[tokens]


def test_classification_equals_clip_benchmark(monkeypatch):
    import torch
    from clip_benchmark.metrics import zeroshot_classification as theirs

    # NumPy 2.4 no longer makes a float of a one-element array, which clip_benchmark 1.6.2 asks for.
    monkeypatch.setattr(theirs, "float", lambda array: array.item(), raising=False)
    random = torch.Generator().manual_seed(0)
    names, templates = [f"class{i}" for i in range(7)], ["a {c}", "the {c}.", "my {c}"]
    prompts = fill_templates(templates, names)
    table = torch.randn(len(prompts), 12, generator=random)
    images = torch.randn(200, 12, generator=random)
    labels = torch.randint(0, 6, (200,), generator=random)  # the last class has no image

    def tokenize(texts):
        return torch.tensor([prompts.index(text) for text in texts])

    classifier = theirs.zero_shot_classifier(
        _Encoder(table), tokenize, names, templates, "cpu", amp=False
    )
    vectors = class_vectors(table.reshape(7, 3, 12))
    np.testing.assert_allclose(vectors, classifier.T.numpy(), atol=1e-6)
    scores = zero_shot_scores(images, vectors)
    logits = torch.from_numpy(scores)
    acc1, acc5 = theirs.accuracy(logits, labels, topk=(1, 5))
    assert accuracy(scores, labels) == pytest.approx({"acc1": acc1, "acc5": acc5})
    balanced = theirs.balanced_accuracy_score(labels.numpy(), logits.argmax(1).numpy())
    assert mean_per_class_recall(logits, labels) == pytest.approx(balanced)


def test_classification_states_its_limits():
    assert accuracy(np.eye(3), [0, 1, 2]) == {"acc1": 1.0}, "acc5 of three classes says nothing"
    assert accuracy(np.zeros((4, 10)), [0, 1, 2, 3])["acc5"] == pytest.approx(0.5)
    with pytest.raises(ValueError, match=r"\{c\}"):
        fill_templates(["a photo"], ["cat"])
    with pytest.raises(ValueError, match="zero vector"):
        class_vectors(np.zeros((1, 1, 4)))
    with pytest.raises(ValueError, match="no right answer"):
        accuracy(np.eye(3), [0, 1, 5])
    assert fill_templates(["{c} {0} {c.__class__}"], ["a"]) == ["a {0} {c.__class__}"]


def test_half_precision_tensors_are_widened():
    import torch

    assert as_array(torch.ones(2, dtype=torch.bfloat16, requires_grad=True)).dtype == np.float32
    assert as_array(np.ones(2, np.float16)).dtype == np.float32
    assert as_array(torch.tensor([1, 2])).dtype == np.int64


@pytest.mark.parametrize("count", [5, 23, 67])
@pytest.mark.parametrize("dim", [16, 33, 64])
def test_equal_captions_and_images_are_ties_of_every_metric(count, dim):
    """The last digits of a product depend on the place in the kernel's blocks."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((count, dim), np.float32)
    rows[rng.permutation(count)[: count // 2 + 1]] = rows[0]
    equal = (rows == rows[0]).all(axis=1)
    queries = rng.standard_normal((3, dim), np.float32)
    scores = Candidates(rows, first_equal(rows)).score(queries)
    assert (scores[:, equal] == scores[:, equal][:, :1]).all()
    np.testing.assert_allclose(scores, queries @ rows.T, rtol=1e-5, atol=1e-5)
    same = np.repeat(rows[:1], count, axis=0)
    apart = rng.standard_normal((count, dim), np.float32)
    places = np.arange(count)
    for ranks in (standings(same, apart, places), standings(apart, same, places)):
        (tied,) = (way for way in ranks.values() if way.tied.any())
        assert (tied.tied == count - 1).all()
        assert (tied.above == 0).all()
    hits = accuracy(zero_shot_scores(apart, same), places, ks=[1])
    assert hits["acc1"] == pytest.approx(1 / count)
    pairs = np.stack([apart, apart], axis=1)
    others = rng.standard_normal((count, 2, dim), np.float32)
    assert winoground(pair_similarities(pairs, others))["text_score"] == 0
    assert winoground(pair_similarities(others, pairs))["image_score"] == 0


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_the_first_equal_row_is_found(numbers):
    rows = np.array(numbers, np.float32)[:, None] * np.ones(3, np.float32)
    assert first_equal(rows).tolist() == [numbers.index(number) for number in numbers]


def test_rows_whose_hashes_collide_are_told_apart(monkeypatch):
    import builtins

    monkeypatch.setattr(builtins, "hash", lambda _: 7)
    assert first_equal(np.array([[1.0], [2.0], [1.0]])).tolist() == [0, 1, 0]


@settings(max_examples=examples(40))
@given(above=st.integers(0, 4), tied=st.integers(0, 3), best=st.integers(1, 3))
def test_reciprocal_ranks_are_those_of_every_order_of_the_tied(above, tied, best):
    ranks = QueryRanks(*(np.array([count]) for count in (above, tied, best)))
    orders = set(permutations([0] * tied + [1] * best))
    every = [1 / (above + order.index(1) + 1) for order in orders]
    assert ranks.reciprocal_ranks()[0] == pytest.approx(sum(every) / len(every))
    assert ranks.reciprocal_ranks("min")[0] == max(every)
    assert ranks.reciprocal_ranks("max")[0] == min(every)
    with pytest.raises(ValueError, match="ties='best' is not one of min, mean, max"):
        ranks.reciprocal_ranks("best")


def test_one_way_is_what_both_ways_have():
    rng = np.random.default_rng(4)
    texts, images, of_text = rng.normal(size=(9, 5)), rng.normal(size=(4, 5)), np.arange(9) % 4
    images[3] = images[0]
    both_ways, one_way = (
        standings(texts, images, of_text)["text_to_image"],
        text_standing(texts, images, of_text),
    )
    for name in ("above", "tied", "best"):
        assert getattr(one_way, name).tolist() == getattr(both_ways, name).tolist()
    with pytest.raises(ValueError, match="1 of 5 images have no caption"):
        text_standing(texts, rng.normal(size=(5, 5)), of_text)


# Matching gaps against their formulae, one pair at a time.

NAMES = [name for names in SCORES.values() for name in names]


@given(arrays(np.float64, (6, 4), elements=st.floats(-50, 50)))
def test_the_papers_four_differences(values):
    scores = dict(zip(NAMES, values, strict=True))
    differences = gaps(scores)
    assert list(differences) == list(GAPS)
    for i in range(4):

        def g(text, image, i=i):
            return scores[f"G({text},{image})"][i]

        assert differences["IR_r"][i] == g("C_r", "I_r") - g("C_r", "I_o")
        assert differences["TR_r"][i] == g("C_r", "I_r") - g("C_o", "I_r")
        assert differences["IR_c"][i] == g("C_c", "I_c") - g("C_c", "I_o")
        assert differences["TR_c"][i] == g("C_c", "I_c") - g("C_o", "I_c")
    for gap in differences.values():
        gap_summary = summary(gap)
        assert gap_summary.below_zero == sum(v < 0 for v in gap) / 4
        assert gap_summary.above_zero == sum(v > 0 for v in gap) / 4
        assert gap_summary.mean == pytest.approx(np.mean(gap))


def test_without_photographs_there_are_two_gaps_and_a_diverged_model_is_refused():
    half = {name: np.ones(3) for name in SCORES["c"]}
    assert list(gaps(half)) == ["IR_c", "TR_c"]
    half["G(C_c,I_c)"] = np.array([1.0, np.nan, 1.0])
    with pytest.raises(ValueError, match="diverged"):
        gaps(half)


def test_the_shift_is_paired_by_anchor():
    rng = np.random.default_rng(1)
    counterfactual = rng.normal(size=40)
    random = counterfactual + rng.normal(0.3, 1, size=40)
    random[[3, 7]] = np.nan
    shifted = shift(random, counterfactual)
    both = np.isfinite(random)
    difference = random[both] - counterfactual[both]
    assert shifted.n == 38
    assert shifted.mean == pytest.approx(difference.mean())
    assert shifted.smaller == pytest.approx(np.mean(counterfactual[both] < random[both]))
    assert shifted.p == pytest.approx(wilcoxon(difference, alternative="greater").pvalue)
    with pytest.raises(ValueError, match="value"):
        shift(np.full(3, np.nan), np.ones(3))


# Precision, recall and F1 against scikit-learn's, and what is undefined.

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


@settings(max_examples=examples(50), deadline=None)
@given(PAIRS)
def test_as_counted_one_by_one(pairs):
    truth, predicted = np.array(pairs).T
    matrix = confusion_matrix(truth, predicted, 4)
    for c, scores in enumerate(class_scores(matrix)):
        hits = sum(t == p == c for t, p in pairs)
        assert scores.support == sum(t == c for t, _ in pairs)
        assert scores.predicted == sum(p == c for _, p in pairs)
        for share, whole in ((scores.precision, scores.predicted), (scores.recall, scores.support)):
            assert math.isnan(share) if not whole else share == hits / whole
        if not math.isnan(scores.precision) and not math.isnan(scores.recall) and hits:
            mean = 2 * scores.precision * scores.recall / (scores.precision + scores.recall)
            assert scores.f1 == pytest.approx(mean)
    assert matrix.sum() == len(pairs)


def test_what_is_no_class_is_refused():
    with pytest.raises(ValueError, match="outside 0 to 1"):
        confusion_matrix(np.array([0, 2]), np.array([0, 1]), 2)
    with pytest.raises(ValueError, match="do not fit"):
        confusion_matrix(np.array([0]), np.array([0, 1]), 2)


def test_unknown_policies_and_scores_are_refused():
    with pytest.raises(ValueError, match="min, mean, max"):
        recall([[1.0]], [0], ties="best")
    with pytest.raises(ValueError, match="at least 1"):
        recall([[1.0]], [0], ks=[0])
    with pytest.raises(ValueError, match="NaN"):
        standing(np.array([[0.1, np.nan], [0.1, 0.2]]), np.arange(2), np.arange(2))
