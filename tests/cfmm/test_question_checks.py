from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.cfmm.question_checks import (
    DUPLICATED,
    EQUAL_OPTIONS,
    FEW_OPTIONS,
    LEAK,
    NO_ANSWER,
    NO_CONDITION,
    NOT_AN_OPTION,
    SIMILAR_OPTIONS,
    UNBALANCED,
    check_question,
    condition,
    leaks,
    validate,
)
from cfaug.core.questions import AskedImage, AskedQuestion


def counterfactual(text: str, right: str = "4", wrong: str = "5", **extra: Any) -> AskedQuestion:
    return AskedQuestion("c1", "counterfactual", text, (right, wrong), 0, extra)


def problems_of(question: AskedQuestion) -> list[str]:
    return [what for what, _ in check_question(question)]


def asked(key: str, *questions: AskedQuestion) -> AskedImage:
    return AskedImage(key, key, None, "count", questions)


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
    basic = AskedQuestion("basic", "basic", text, ("blue", "red"), 0)
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
    assert problems_of(AskedQuestion("basic", "basic", "Who?", options, answer)) == expected


def test_a_counterfactual_question_without_a_condition_is_found() -> None:
    assert problems_of(counterfactual("How many dogs are there?")) == [NO_CONDITION]


def test_problems_are_counted_with_their_first_examples_and_the_fatal_first() -> None:
    images = [
        asked(
            f"i{i}",
            AskedQuestion("basic", "basic", f"How many, {i}?", ("1", "2"), i % 2),
            counterfactual(f"If 4 of {i} came, how many?"),
            AskedQuestion("c2", "counterfactual", f"If {i} came, who?", ("x", "x"), 0),
        )
        for i in range(5)
    ]
    *found, position = validate(images)
    assert (position.what, position.fatal) == (UNBALANCED, False)
    assert [(one.what, one.count, one.of, one.fatal) for one in found] == [
        (EQUAL_OPTIONS, 5, 15, True),
        (LEAK, 5, 15, False),
    ]
    assert len(found[1].examples) == 3
    assert found[1].examples[0].startswith("i0/c1: '4' stands in 'If 4 of 0 came'")
    assert str(found[0]).startswith("equal options: 5 of 15 (i0/c2: ")


def test_a_question_asked_twice_about_one_image_is_duplicated() -> None:
    one, two = (AskedQuestion(name, "basic", "How  many?", ("1", "2"), 0) for name in ("a", "b"))
    (found,) = validate([asked("i", one, two)])
    assert (found.what, found.examples) == (DUPLICATED, ("i/b: as i/a",))
    assert validate([asked("i", one), asked("j", one)]) == []
    unlike = [AskedQuestion(str(i), "basic", text, ("1", "2"), i % 2)
              for i, text in enumerate(("Is 2 > 1?", "Is 2 < 1?"))]  # fmt: skip
    assert validate([asked("i", *unlike)]) == []


def positions(answers: Sequence[int], options: Sequence[str], kind: str = "basic") -> list[str]:
    images = [
        asked(f"i{i}", AskedQuestion("q", kind, f"If so, who is {i}?", tuple(options), answer))
        for i, answer in enumerate(answers)
    ]
    return [f"{one.count}/{one.of}" for one in validate(images) if one.what == UNBALANCED]


def test_a_position_that_gives_the_answer_away_is_found() -> None:
    assert positions([0] * 30, ["x", "y"]) == ["30/30"]
    assert positions([0, 1] * 15, ["x", "y"]) == []
    assert positions([0] * 5, ["x", "y"]) == []  # too few to say so
    assert positions([0, 1, 2] * 10, ["x", "y", "z"]) == []
    assert positions([2] * 20 + [0] * 5, ["x", "y", "z"]) == ["20/25"]
    assert positions([0] * 30, ["yes", "no"]) == []  # the position says what the option says


def test_positions_are_tested_by_kind() -> None:
    first = [asked(f"a{i}", AskedQuestion("q", "basic", f"{i}?", ("x", "y"), 0)) for i in range(20)]
    other = [
        asked(f"b{i}", AskedQuestion("q", "counterfactual", f"If {i}, who?", ("x", "y"), 1))
        for i in range(20)
    ]
    assert [one.count for one in validate([*first, *other])] == [20, 20]
