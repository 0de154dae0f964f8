"""Accuracies and validity of questions, against sums written out one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.questions import QuestionImage, SourceQuestion
from cfaug.evaluation.questions.question_checks import (
    DUPLICATED,
    EQUAL_OPTIONS,
    FEW_OPTIONS,
    LEAK,
    NO_ANSWER,
    NO_BIAS,
    NO_CONDITION,
    NOT_AN_OPTION,
    SIMILAR_OPTIONS,
    UNBALANCED,
    check_question,
    condition,
    group_accuracies,
    leaks,
    phi_interval,
    validate,
    whole_groups,
)
from cfaug.evaluation.questions.question_items import QuestionItems
from cfaug.evaluation.questions.question_page import compare_kinds, compare_models
from cfaug.stats.choices import accuracies, phi_from_margins
from cfaug.stats.item_tests import mcnemar
from tests.report.question_example import ASKED, question_items
from tests.report.question_example import IMAGES as ASKED_IMAGES


def counterfactual(text: str, right: str = "4", wrong: str = "5", **extra: Any) -> SourceQuestion:
    return SourceQuestion("c1", "counterfactual", text, (right, wrong), 0, extra)


def problems_of(question: SourceQuestion) -> list[str]:
    return [what for what, _ in check_question(question)]


def asked(key: str, *questions: SourceQuestion) -> QuestionImage:
    return QuestionImage(key, key, None, "count", questions)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("If two dogs left, how many dogs would there be?", "If two dogs left"),
        ("How many dogs would there be if two dogs left?", "if two dogs left"),
        ("If the red, blue and green balls left, which one is big?",
         "If the red, blue and green balls left"),
        ("Suppose a dog came. How many dogs would there be?", "Suppose a dog came"),
        ("Imagine it rained, then what would be wet?", "Imagine it rained"),
        ("Had the dog left, how many would there be?", "Had the dog left"),
        ("Without the dog, would it be quiet?", "Without the dog"),
        ("How many dogs are there?", ""),
        ("What was there before they had a dog?", ""),
        ("Is the cliff high?", ""),
    ],
)  # fmt: skip
def test_the_condition_is_found_in_the_text(text: str, said: str) -> None:
    assert condition(counterfactual(text)) == said


def test_a_condition_that_is_stated_goes_before_what_is_found() -> None:
    text = "If two dogs left, how many would there be?"
    assert condition(counterfactual(text, presupposition="two dogs left")) == "two dogs left"
    assert condition(counterfactual("How many?", presupposition="two dogs left")) == ""


@pytest.mark.parametrize(
    ("right", "text", "leak"),
    [
        ("blue", "If I painted this bus blue, what color would it be?", True),
        ("Blue.", "If I painted this bus BLUE, what color would it be?", True),
        ("the left side", "If it were on left side, on which side would it be?", True),
        ("2", "If two dogs stayed, how many dogs would there be?", True),
        ("two", "If 2 dogs stayed, how many dogs would there be?", True),
        ("blue", "If I painted this bus, would it be blue or red?", False),
        ("red", "If it were covered, what color would be seen?", False),
        ("left side", "If the side that is left were empty, which would be full?", False),
        ("no", "If there were no dogs, would it be quiet?", False),
        ("12", "If 1 or 2 dogs came, how many dogs would there be?", False),
    ],
)
def test_an_answer_in_the_condition_is_a_leak(right: str, text: str, leak: bool) -> None:
    assert (LEAK in problems_of(counterfactual(text, right, "something else"))) == leak


def test_only_the_right_answer_leaks_and_only_in_counterfactual_questions() -> None:
    text = "If I painted this bus blue, what color would it be?"
    assert LEAK not in problems_of(counterfactual(text, "red", "blue"))
    basic = SourceQuestion("basic", "basic", text, ("blue", "red"), 0)
    assert problems_of(basic) == []


WORDS = st.text("ab 2,", max_size=12)


@given(WORDS, WORDS)
def test_leaks_is_containment_of_whole_words(answer: str, said: str) -> None:
    wanted, words = (
        " ".join(word for word in text.replace(",", " ").split() if word != "a")
        for text in (answer, said)
    )
    assert leaks(answer, said) == (bool(wanted) and f" {wanted} " in f" {words} ")


@pytest.mark.parametrize(
    ("options", "answer", "expected"),
    [
        (("a", "b"), 1, []),
        (("a", "b"), 2, [NOT_AN_OPTION]),
        (("a", "b"), -1, [NOT_AN_OPTION]),
        (("a", "b"), None, [NO_ANSWER]),
        (("a", "a"), 0, [EQUAL_OPTIONS]),
        (("a dog", "A  Dog"), 0, [SIMILAR_OPTIONS]),
        (("a dog", "adog"), 0, [SIMILAR_OPTIONS]),
        (("a",), 0, [FEW_OPTIONS]),
        ((), None, [FEW_OPTIONS, NO_ANSWER]),
    ],
)
def test_options_are_checked(
    options: tuple[str, ...], answer: int | None, expected: list[str]
) -> None:
    assert problems_of(SourceQuestion("basic", "basic", "Who?", options, answer)) == expected


@pytest.mark.parametrize(
    ("memorised", "expected"), [("b", []), ("a", [NO_BIAS]), ("c", [NO_BIAS]), (1, [NO_BIAS])]
)
def test_a_memorised_answer_is_a_wrong_option(memorised: object, expected: list[str]) -> None:
    extra = {"expected_bias": memorised}
    assert problems_of(SourceQuestion("basic", "basic", "Who?", ("a", "b"), 0, extra)) == expected


def test_a_counterfactual_question_without_a_condition_is_found() -> None:
    assert problems_of(counterfactual("How many dogs are there?")) == [NO_CONDITION]


def test_problems_are_counted_with_their_first_examples_and_the_fatal_first() -> None:
    images = [
        asked(
            f"i{i}",
            SourceQuestion("basic", "basic", f"How many, {i}?", ("1", "2"), i % 2),
            counterfactual(f"If 4 of {i} came, how many?"),
            SourceQuestion("c2", "counterfactual", f"If {i} came, who?", ("x", "x"), 0),
        )
        for i in range(5)
    ]
    *problems, position = validate(images)
    assert (position.what, position.fatal) == (UNBALANCED, False)
    assert [(problem.what, problem.count, problem.of, problem.fatal) for problem in problems] == [
        (EQUAL_OPTIONS, 5, 15, True),
        (LEAK, 5, 15, False),
    ]
    assert len(problems[1].examples) == 3
    assert problems[1].examples[0].startswith("i0/c1: '4' stands in 'If 4 of 0 came'")
    assert str(problems[0]).startswith("equal options: 5 of 15 (i0/c2: ")


def test_a_question_asked_twice_about_one_image_is_duplicated() -> None:
    first, second = (
        SourceQuestion(name, "basic", "How  many?", ("1", "2"), 0) for name in ("a", "b")
    )
    (problem,) = validate([asked("i", first, second)])
    assert (problem.what, problem.examples) == (DUPLICATED, ("i/b: as i/a",))
    assert validate([asked("i", first), asked("j", first)]) == []
    unlike = [SourceQuestion(str(i), "basic", text, ("1", "2"), i % 2)
              for i, text in enumerate(("Is 2 > 1?", "Is 2 < 1?"))]  # fmt: skip
    assert validate([asked("i", *unlike)]) == []


def positions(answers: Sequence[int], options: Sequence[str], kind: str = "basic") -> list[str]:
    images = [
        asked(f"i{i}", SourceQuestion("q", kind, f"If so, who is {i}?", tuple(options), answer))
        for i, answer in enumerate(answers)
    ]
    return [f"{p.count}/{p.of}" for p in validate(images) if p.what == UNBALANCED]


def test_a_position_that_gives_the_answer_away_is_found() -> None:
    assert positions([0] * 30, ["x", "y"]) == ["30/30"]
    assert positions([0, 1] * 15, ["x", "y"]) == []
    assert positions([0] * 5, ["x", "y"]) == []  # too few to say so
    assert positions([0, 1, 2] * 10, ["x", "y", "z"]) == []
    assert positions([2] * 20 + [0] * 5, ["x", "y", "z"]) == ["20/25"]
    assert positions([0] * 30, ["yes", "no"]) == []  # the position says what the option says


def test_positions_are_tested_by_kind() -> None:
    first = [
        asked(f"a{i}", SourceQuestion("q", "basic", f"{i}?", ("x", "y"), 0)) for i in range(20)
    ]
    other = [
        asked(f"b{i}", SourceQuestion("q", "counterfactual", f"If {i}, who?", ("x", "y"), 1))
        for i in range(20)
    ]
    assert [problem.count for problem in validate([*first, *other])] == [20, 20]


IMAGES = st.lists(
    st.tuples(st.booleans(), st.lists(st.booleans(), min_size=0, max_size=5)),
    min_size=1, max_size=12,
)  # fmt: skip


@given(images=IMAGES)
def test_accuracies_are_those_of_a_slow_count(images):
    measured = accuracies(np.array([b for b, _ in images]), [np.array(c) for _, c in images])
    pairs = [(b, c) for b, answers in images for c in answers]
    assert measured.acc_b == pytest.approx(sum(b for b, _ in images) / len(images))
    strict = sum(1 for b, answers in images if b and all(answers))
    assert measured.strict == pytest.approx(strict / len(images))
    if not pairs:
        assert math.isnan(measured.acc_c)
        assert math.isnan(measured.acc_plus)
        return
    assert measured.acc_c == pytest.approx(sum(c for _, c in pairs) / len(pairs))
    assert measured.acc_plus == pytest.approx(sum(b and c for b, c in pairs) / len(pairs))
    assert measured.drop == pytest.approx(measured.acc_b - measured.acc_c)
    of_right = [c for b, c in pairs if b]
    if of_right:
        assert measured.consistency == pytest.approx(sum(of_right) / len(of_right))
    else:
        assert math.isnan(measured.consistency)
    first, second = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    if first.std() and second.std():
        assert measured.phi == pytest.approx(np.corrcoef(first, second)[0, 1])
    else:
        assert math.isnan(measured.phi)


def test_the_printed_correlations_follow_from_the_printed_fractions():
    """Qwen-VL 0-shot, the totals of Table 3 over six categories, as worked out by hand."""
    assert phi_from_margins(4.8365 / 6, 3.4110 / 6, 2.6286 / 6) == pytest.approx(-0.1029, abs=1e-4)


@given(bits=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=8))
def test_groups_are_counted_as_naturalbench_does(bits):
    right = np.array(bits).reshape(-1, 2, 2)
    measured = group_accuracies(right)
    groups = len(right)
    questions = images = whole = 0
    for group in right.tolist():
        (q0i0, q0i1), (q1i0, q1i1) = group
        questions += (q0i0 and q0i1) + (q1i0 and q1i1)
        images += (q0i0 and q1i0) + (q0i1 and q1i1)
        whole += q0i0 and q0i1 and q1i0 and q1i1
    assert measured["q_acc"] == pytest.approx(questions / (2 * groups))
    assert measured["i_acc"] == pytest.approx(images / (2 * groups))
    assert measured["g_acc"] == pytest.approx(whole / groups)


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match="2 questions x 2 images"):
        group_accuracies(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="1 images have 0"):
        accuracies(np.array([1]), [])


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0, math.nan]), st.sampled_from(["a", "b", None])))
)
@settings(max_examples=50, deadline=None)
def test_groups_are_whole_as_plain_loops_say(answers):
    right, groups = [value for value, _ in answers], [name for _, name in answers]
    expected = [math.nan] * len(answers)
    for name in ("a", "b"):
        members = [value for value, group in answers if group == name]
        if members and not any(math.isnan(value) for value in members):
            expected[groups.index(name)] = float(all(value == 1 for value in members))
    np.testing.assert_equal(whole_groups(np.array(right, dtype=float), groups), expected)


def test_the_interval_of_phi_is_that_of_resampled_clusters():
    rng = np.random.default_rng(5)
    basic = rng.random(60) < 0.7
    counterfactuals = [rng.random(rng.integers(1, 5)) < (0.3 if b else 0.7) for b in basic]
    clusters = rng.integers(0, 25, size=60)
    low, high = phi_interval(
        basic, counterfactuals, clusters, np.random.default_rng(0), resamples=4000
    )
    names, slow = np.unique(clusters), []
    for _ in range(1500):
        rows = np.concatenate(
            [np.flatnonzero(clusters == c) for c in rng.choice(names, len(names))]
        )
        slow.append(accuracies(basic[rows], [counterfactuals[row] for row in rows]).phi)
    expected = np.nanquantile(slow, [0.025, 0.975])
    assert [low, high] == pytest.approx(expected, abs=0.04)
    assert low < accuracies(basic, counterfactuals).phi < high < 0


def test_phi_has_no_interval_with_one_cluster_or_equal_answers():
    basic, counterfactuals = np.array([1, 1, 0]), [np.array([1, 0])] * 3
    for some, clusters in ((basic, ["a"] * 3), (np.ones(3), ["a", "b", "c"])):
        assert np.isnan(
            phi_interval(some, counterfactuals, clusters, np.random.default_rng(0))
        ).all()


LEFT_OUT = ("count-0/b", "color-1/c2")


def slow_answers(items) -> dict[str, tuple[float, list[float]]]:
    """Return {image: basic answer, counterfactual answers}, read row by row from ``right``."""
    by_image: dict[str, tuple[list[float], list[float]]] = {}
    columns = items.items.columns
    for name, kind, right in zip(columns["item"], columns["kind"], columns["right"], strict=True):
        answers = by_image.setdefault(name.split("/")[0], ([], []))
        if not math.isnan(right):
            answers[kind != "basic"].append(right)
    return {key: (b[0], c) for key, (b, c) in by_image.items() if b and c}


def test_images_are_those_with_both_kinds_of_answers():
    items = question_items(left_out=LEFT_OUT)
    expected = slow_answers(items)
    assert len(items.images) == len(expected) == sum(ASKED_IMAGES.values()) - 1
    for b, c, (basic, counterfactuals) in zip(
        items.images.basic, items.images.counterfactual, expected.values(), strict=True
    ):
        assert (float(b), c.astype(float).tolist()) == (basic, counterfactuals)
    measured = items.images.measure()
    strict = [b * min(c) for b, c in expected.values()]
    assert measured.strict == pytest.approx(np.mean(strict))
    assert items.count_left_out() == {"too long": 2}


def test_means_of_a_category_are_over_what_counts():
    items = question_items(left_out=LEFT_OUT)
    answers = [c for key, (_, c) in slow_answers(items).items() if key.startswith("color")]
    assert items.means("acc_c")["color"] == pytest.approx(np.mean(np.concatenate(answers)))
    assert len(items.by_category("acc_c")["color"]) == ASKED * ASKED_IMAGES["color"] - 1
    assert items.total("acc_b") == pytest.approx(100 * sum(items.means("acc_b").values()))


def test_questions_without_counterfactual_ones_are_refused_for_that():
    items = question_items().items
    columns = {
        name: values for name, values in items.columns.items() if not name.startswith("acc_")
    }
    with pytest.raises(UserError, match="asks no basic and counterfactual questions"):
        QuestionItems("llava", replace(items, columns=columns))
    del columns["kind"]
    with pytest.raises(UserError, match="lack kind, acc_b"):
        QuestionItems("llava", replace(items, columns=columns))


def test_a_category_without_a_name_has_one_in_tables():
    assert question_items(images={"": 3}).categories == ("all questions",)


def test_the_drop_is_that_of_images_and_significant_where_it_is_large():
    large = question_items("large", (1.0, 0.3))
    none = question_items("none", (0.7, 0.7), seed=3)
    steep, level = compare_kinds([[large], [none]])
    pairs = slow_answers(large).values()
    assert steep.test.mean.mean == pytest.approx(np.mean([b - np.mean(c) for b, c in pairs]))
    assert steep.test.mean.mean == pytest.approx(large.images.measure().drop)
    assert steep.p_holm == pytest.approx(2 * steep.p)
    assert steep.p_holm <= 0.001 < 0.05 < level.p_holm
    assert steep.phi is None  # every basic answer is right
    assert level.phi_low < level.phi.mean < level.phi_high
    assert level.phi.mean == pytest.approx(none.images.measure().phi)


def test_a_model_without_counterfactual_answers_has_no_drop():
    only_basic = question_items(left_out=[f"count-0/c{n}" for n in range(1, 5)],
                                images={"count": 1})  # fmt: skip
    assert compare_kinds([[only_basic]]) == [None]


def test_checkpoints_are_averaged_question_by_question():
    first, second = question_items(seed=1), question_items(seed=2)
    (drop,) = compare_kinds([[first, second]])
    drops = [items.images.measure().drop for items in (first, second)]
    assert drop.test.mean.mean == pytest.approx(np.mean(drops))
    assert drop.phi.n == 2


def test_models_are_compared_on_images_that_both_answered_whole():
    good = question_items("good", (0.95, 0.9), left_out=LEFT_OUT)
    poor = question_items("poorer", (0.4, 0.5), left_out=["other-0/c1"])
    (comparison,), refused = compare_models([(("good", [good]), ("poor", [poor]))])
    assert not refused
    left = {"count-0", "color-1", "other-0"}
    answers = [slow_answers(items) for items in (good, poor)]
    keys = [key for key in answers[0] if key not in left and key in answers[1]]
    differences = [answers[0][key][0] - answers[1][key][0] for key in keys]
    test = comparison.tests["acc_b"]
    assert test.gain == pytest.approx(np.mean(differences))
    assert test.p_two_sided == mcnemar(differences.count(1.0), differences.count(-1.0))
    p = sorted(test.p_two_sided for test in comparison.tests.values())
    assert min(comparison.p_holm.values()) == pytest.approx(min(1.0, 3 * p[0]))
    assert comparison.left_out == 5 * len(left)


def test_models_asked_about_other_questions_are_not_compared():
    plain, altered = question_items("one"), question_items("other")
    altered.items.columns["question"][3] = "and now?"
    moved = question_items("moved", images={"shape": 2})
    pairs = [(("one", [plain]), ("other", [altered])), (("one", [plain]), ("moved", [moved]))]
    comparisons, refused = compare_models(pairs)
    assert comparisons == []
    assert "one against other: the question count-0/c3 differs" in refused[0]
    assert "one against moved: no question was answered by both" in refused[1]
