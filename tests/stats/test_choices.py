"""Choices among captions and options, and scores of pairs, against their definitions."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.stats.choices import (
    ABSENT,
    FALSE,
    NUMBERS,
    TRUE,
    Reduction,
    brittle,
    categories_that_count,
    choice_hits,
    choose,
    group_means,
    mean_by,
    original_hits,
    pair_hits,
    pair_similarities,
    parse_answer,
    reduce_scores,
    text_only_hits,
    winoground,
)
from tests.properties import examples


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 10**6))
def test_every_score_equals_its_definition(seed):
    sim = np.random.default_rng(seed).integers(0, 4, (20, 2, 2)).astype(float)
    scores, wanted = pair_hits(sim), []
    for pair, (c0_i0, c0_i1, c1_i0, c1_i1) in enumerate(sim.reshape(20, 4)):
        expected = {
            "group_matching": c0_i0 + c1_i1 > c0_i1 + c1_i0,
            "text_score_i0": c0_i0 > c1_i0, "text_score_i1": c1_i1 > c0_i1,
            "image_score_c0": c0_i0 > c0_i1, "image_score_c1": c1_i1 > c1_i0,
        }  # fmt: skip
        expected["text_score"] = expected["text_score_i0"] and expected["text_score_i1"]
        expected["image_score"] = expected["image_score_c0"] and expected["image_score_c1"]
        expected["group_score"] = expected["text_score"] and expected["image_score"]
        assert {name: bool(hits[pair]) for name, hits in scores.items()} == expected
        wanted.append(expected)
    names = ["text_score", "image_score", "group_score"]
    assert list(scores)[:3] == names
    assert winoground(sim) == {name: np.mean([hit[name] for hit in wanted]) for name in names}
    with pytest.raises(ValueError, match="2 captions"):
        winoground(sim[:, :, :1])


def test_similarities_of_any_number_of_captions_and_images():
    rng = np.random.default_rng(2)
    texts, images = rng.normal(size=(5, 4, 8)), rng.normal(size=(5, 3, 8))
    texts[2, 3], images[1, 2] = texts[2, 1], images[1, 0]
    similarities = pair_similarities(texts, images)
    for item in range(5):
        for k in range(4):
            for m in range(3):
                a, b = texts[item, k], images[item, m]
                cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
                assert similarities[item, k, m] == pytest.approx(cosine)
    assert (similarities[2, 3] == similarities[2, 1]).all()
    assert (similarities[1, :, 2] == similarities[1, :, 0]).all()


WORTH = {"miss": 0.0, "half": 0.5, "hit": 1.0}


def draw_items(seed, count=12):
    """Items of two to four captions, with many ties; absent captions hold what nobody may read."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, (count, 4)).astype(float)
    truth = rng.choice([TRUE, FALSE, ABSENT], (count, 4))
    truth[:, 0], truth[:, 3] = TRUE, FALSE
    scores[truth == ABSENT] = np.nan
    return scores, truth


def decide(pairs, ties):
    """What an item is worth whose (true, false) pairs of scores these are."""
    if all(true > false for true, false in pairs):
        return 1.0
    return WORTH[ties] if all(true >= false for true, false in pairs) else 0.0


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(list(WORTH)))
def test_hits_equal_their_definitions(seed, ties):
    scores, truth = draw_items(seed)
    hits, originals = choice_hits(scores, truth, ties), original_hits(scores, truth, ties)
    by_item = zip(hits, originals, brittle(scores, truth), strict=True)
    for item_scores, item_truth, (hit, original, is_brittle) in zip(
        scores, truth, by_item, strict=True
    ):
        true = [s for s, t in zip(item_scores, item_truth, strict=True) if t == TRUE]
        false = [s for s, t in zip(item_scores, item_truth, strict=True) if t == FALSE]
        assert hit == decide([(a, b) for a in true for b in false], ties)
        assert original == decide([(true[0], b) for b in false], ties)
        best = max(false)
        assert is_brittle == (any(a > best for a in true) and any(a < best for a in true))


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(list(WORTH)))
def test_text_only_equals_its_definition(seed, ties):
    """SugarCrepe++: s(P1, P2) > s(P1, N) and s(P1, P2) > s(P2, N); more captions likewise."""
    rng = np.random.default_rng(seed)
    _, truth = draw_items(seed)
    truth[:, 1] = TRUE
    similar = rng.integers(0, 4, (len(truth), 4, 4)).astype(float)
    similar = np.triu(similar, 1) + np.swapaxes(np.triu(similar, 1), 1, 2)
    hits = text_only_hits(similar, truth, ties)
    for similarity, item_truth, hit in zip(similar, truth, hits, strict=True):
        pairs = [
            (a, b) for a in range(4) for b in range(a) if item_truth[a] == item_truth[b] == TRUE
        ]
        mixed = [
            (a, b)
            for a in range(4)
            for b in range(4)
            if item_truth[a] == TRUE and item_truth[b] == FALSE
        ]
        assert hit == decide([(similarity[p], similarity[m]) for p in pairs for m in mixed], ties)


def test_means_by_category_pass_over_what_does_not_count():
    means = mean_by([1.0, np.nan, 0.0, 1.0, np.nan], ["a", "a", "a", None, "b"])
    assert means == {"a": 0.5}
    assert group_means({"a": 0.5}, {"first": ["a", "absent"], "second": ["b"]}) == {"first": 0.5}


def test_categories_that_are_small_or_dropped_do_not_count():
    given = ["red_small"] * 25 + ["blue_big"] * 24 + ["near"] * 30 + [None] * 40
    assert categories_that_count(given, at_least=25, drop=["near", "absent"]) == ["red_small"]
    assert categories_that_count([None]) == []


@pytest.mark.parametrize(
    ("scores", "truth", "ties", "message"),
    [
        ([[0.1, np.nan]], [[1, 0]], "miss", "NaN"),
        ([[0.1, 0.2]], [[1, 1]], "miss", "item 0 has no false"),
        ([[0.1, 0.2]], [[-1, 0]], "miss", "item 0 has no true"),
        ([[0.1, 0.2]], [[1, 2]], "miss", "true, false or absent"),
        ([[0.1, 0.2]], [[1, 0, 0]], "miss", "items x captions"),
        (np.zeros((0, 2)), np.zeros((0, 2)), "miss", "items x captions"),
        ([[0.1, 0.2]], [[1, 0]], "lose", "miss, half, hit"),
    ],
)
def test_what_is_no_item_is_refused(scores, truth, ties, message):
    with pytest.raises(ValueError, match=message):
        choice_hits(scores, truth, ties)


NLL, TOKENS, OPTIONS, BLIND = [4.0, 3.0, 9.0], [1, 2, 9], ["a", "bcd", "ef"], [1.0, 2.5, 8.5]


def test_each_reduction_divides_or_subtracts_what_it_says():
    reduced = {
        name: reduce_scores(NLL, TOKENS, OPTIONS, name, BLIND).tolist()
        for name in get_args(Reduction)
    }
    assert reduced == {
        "token_mean": [4.0, 1.5, 1.0], "sum": NLL, "char_norm": [4.0, 1.0, 4.5],
        "pmi": [3.0, 0.5, 0.5],
    }  # fmt: skip
    for wrong in ("pmi", "mean"):
        with pytest.raises(ValueError, match=wrong):
            reduce_scores(NLL, TOKENS, OPTIONS, wrong)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5), st.randoms())
def test_the_choice_does_not_depend_on_the_order_of_options(values, random):
    order = list(range(len(values)))
    random.shuffle(order)
    first, again = choose(np.array(values)), choose(np.array([values[at] for at in order]))
    assert first == (None if again is None else order[again])
    assert first is None or values[first] == min(values)
    assert first is not None or sorted(values)[0] == sorted(values)[1]


@pytest.mark.parametrize(
    ("text", "options", "place"),
    [
        ("yes", ["yes", "no"], 0),
        ("No.", ["yes", "no"], 1),
        ("**Yes**", ["yes", "no"], 0),
        ("The answer is: the red ball.", ["red ball", "blue ball"], 0),
        ("Answer: blue ball\nbecause the red one is gone", ["red ball", "blue ball"], 1),
        ("No, it would not", ["yes", "no"], 1),
        ("two", ["2", "12"], 0),
        ("twelve", ["2", "12"], None),
        ("2.5", ["2", "5"], None),
        ("2.", ["2", "5"], 0),
        ("10", ["1", "10"], 1),
        ("10 apples", ["1", "10"], None),
        ("", ["yes", "no"], None),
        (".", ["yes", "."], None),
        ("yes and no", ["yes", "no"], None),
        ("not yes", ["yes", "no"], None),
        ("None of these", ["no", "none"], None),
        ("yes", ["yes", "Yes"], None),
        ("A", ["a", "b"], 0),
    ],
)
def test_an_answer_is_read_or_it_is_not(text, options, place):
    assert parse_answer(text, options) == place


@settings(max_examples=examples(50), deadline=None)
@given(st.text(max_size=30), st.lists(st.text("abc 12.", min_size=1, max_size=6), min_size=1))
def test_whatever_is_written_the_answer_is_an_option_in_it_or_none(text, options):
    choice = parse_answer(text, options)
    if choice is None:
        return
    letters = "".join(filter(str.isalnum, options[choice].casefold()))
    words = "".join(filter(str.isalnum, text.casefold()))
    for at, number in enumerate(NUMBERS):
        words, letters = words.replace(number, str(at)), letters.replace(number, str(at))
    assert letters.removeprefix("a").removeprefix("an") in words or letters in words
