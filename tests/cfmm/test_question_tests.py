"""Answers to questions: images, and tests over images and between models."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cfaug.cfmm.question_items import QuestionItems
from cfaug.cfmm.question_page import compare_kinds, compare_models
from cfaug.core.errors import UserError
from cfaug.stats.item_tests import mcnemar
from tests.report.question_example import ASKED, IMAGES, question_items

LEFT_OUT = ("count-0/b", "color-1/c2")


def slow_answers(items) -> dict[str, tuple[float, list[float]]]:
    """Return {image: basic answer, counterfactual answers}, read row by row from ``right``."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    columns = items.items.columns
    for name, kind, right in zip(columns["item"], columns["kind"], columns["right"], strict=True):
        own = found.setdefault(name.split("/")[0], ([], []))
        if not math.isnan(right):
            own[kind != "basic"].append(right)
    return {key: (b[0], c) for key, (b, c) in found.items() if b and c}


def test_images_are_those_with_both_kinds_of_answers():
    items = question_items(left_out=LEFT_OUT)
    expected = slow_answers(items)
    assert len(items.images) == len(expected) == sum(IMAGES.values()) - 1
    for b, c, (basic, own) in zip(
        items.images.basic, items.images.counterfactual, expected.values(), strict=True
    ):
        assert (float(b), c.astype(float).tolist()) == (basic, own)
    measured = items.images.measure()
    strict = [b * min(c) for b, c in expected.values()]
    assert measured.strict == pytest.approx(np.mean(strict))
    assert items.count_left_out() == {"too long": 2}


def test_means_of_a_category_are_over_what_counts():
    items = question_items(left_out=LEFT_OUT)
    own = [c for key, (_, c) in slow_answers(items).items() if key.startswith("color")]
    assert items.means("acc_c")["color"] == pytest.approx(np.mean(np.concatenate(own)))
    assert len(items.by_category("acc_c")["color"]) == ASKED * IMAGES["color"] - 1
    assert items.total("acc_b") == pytest.approx(100 * sum(items.means("acc_b").values()))


def test_questions_without_counterfactual_ones_are_refused_for_that():
    items = question_items().items
    columns = {name: own for name, own in items.columns.items() if not name.startswith("acc_")}
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
    found, level = compare_kinds([[large], [none]])
    pairs = slow_answers(large).values()
    assert found.test.mean.mean == pytest.approx(np.mean([b - np.mean(c) for b, c in pairs]))
    assert found.test.mean.mean == pytest.approx(large.images.measure().drop)
    assert found.p_holm == pytest.approx(2 * found.p)
    assert found.p_holm <= 0.001 < 0.05 < level.p_holm
    assert found.phi is None  # every basic answer is right
    assert level.phi_low < level.phi.mean < level.phi_high
    assert level.phi.mean == pytest.approx(none.images.measure().phi)


def test_a_model_without_counterfactual_answers_has_no_drop():
    only_basic = question_items(left_out=[f"count-0/c{n}" for n in range(1, 5)],
                                images={"count": 1})  # fmt: skip
    assert compare_kinds([[only_basic]]) == [None]


def test_checkpoints_are_averaged_question_by_question():
    first, second = question_items(seed=1), question_items(seed=2)
    (found,) = compare_kinds([[first, second]])
    drops = [one.images.measure().drop for one in (first, second)]
    assert found.test.mean.mean == pytest.approx(np.mean(drops))
    assert found.phi.n == 2


def test_models_are_compared_on_images_that_both_answered_whole():
    good = question_items("good", (0.95, 0.9), left_out=LEFT_OUT)
    poor = question_items("poorer", (0.4, 0.5), left_out=["other-0/c1"])
    (found,), refused = compare_models([(("good", [good]), ("poor", [poor]))])
    assert not refused
    left = {"count-0", "color-1", "other-0"}
    answers = [slow_answers(one) for one in (good, poor)]
    keys = [key for key in answers[0] if key not in left and key in answers[1]]
    differences = [answers[0][key][0] - answers[1][key][0] for key in keys]
    test = found.tests["acc_b"]
    assert test.gain == pytest.approx(np.mean(differences))
    assert test.p_two_sided == mcnemar(differences.count(1.0), differences.count(-1.0))
    p = sorted(one.p_two_sided for one in found.tests.values())
    assert min(found.p_holm.values()) == pytest.approx(min(1.0, 3 * p[0]))
    assert found.left_out == 5 * len(left)


def test_models_asked_about_other_questions_are_not_compared():
    one, other = question_items("one"), question_items("other")
    other.items.columns["question"][3] = "and now?"
    moved = question_items("moved", images={"shape": 2})
    pairs = [(("one", [one]), ("other", [other])), (("one", [one]), ("moved", [moved]))]
    found, refused = compare_models(pairs)
    assert found == []
    assert "one against other: the question count-0/c3 differs" in refused[0]
    assert "one against moved: no question was answered by both" in refused[1]
