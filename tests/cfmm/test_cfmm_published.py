"""CFMM's own numbers: transcribed whole, and what the definitions make of them."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest

from cfaug.cfmm.composition import cells, derived_part, drop, mean_phi, text_part, totals
from cfaug.cfmm.question_checks import accuracies, total
from cfaug.report.paper_tables import PACKAGE, published

NAMES = {"cfmm_2": "CFMM, Table 2:", "cfmm_3": "CFMM, Table 3:",
         "cfmm_figure_4": "CFMM, Figure 4", "cfmm_text": "CFMM, sections"}  # fmt: skip
METRICS = ("acc_b", "acc_c", "acc_plus")
WRONG_TOTAL = ("BLIP2", "0-shot")
"""The one row of 21 whose printed total (240.83) is not the sum of its cells (240.85)."""

AVERAGE_DROP = 105.75
"""As the paper's text says it."""


def off_grid() -> set[tuple[str, str, str]]:
    return {(one["model"], one["prompt"], one["column"]) for one in published("cfmm_2")["off_grid"]}


def answers(images: int, b: float, c: float, plus: float) -> tuple[np.ndarray, np.ndarray]:
    """Return right and wrong answers, four counterfactual ones an image, that give these cells."""
    basic = np.arange(images) < round(b * images / 100)
    own = np.zeros((images, 4), dtype=bool)
    right, wrong = own[basic].reshape(-1), own[~basic].reshape(-1)
    both = round(plus * 4 * images / 100)
    right[:both] = True
    wrong[: round(c * 4 * images / 100) - both] = True
    own[basic], own[~basic] = right.reshape(-1, 4), wrong.reshape(-1, 4)
    return basic, own


@pytest.mark.parametrize("name", NAMES)
def test_every_table_is_there_rectangular_and_says_where_it_stands(name):
    found = published(name)
    assert found["note"].startswith(NAMES[name])
    for row in found["rows"]:
        assert len(row["values"]) == len(found["columns"])


def test_no_other_file_lies_there():
    assert {path.stem for path in (PACKAGE / "cfmm/published").glob("*.json")} == set(NAMES)


def test_seven_models_with_three_prompts_in_the_same_order():
    rows = [[(row["model"], row["prompt"]) for row in published(name)["rows"]]
            for name in ("cfmm_2", "cfmm_3")]  # fmt: skip
    assert rows[0] == rows[1]
    assert len(set(rows[0])) == 21


def test_the_definitions_give_every_cell_of_table_2_but_fourteen():
    images, missed = published("cfmm_2")["images"], set()
    for (model, prompt), own in cells().items():
        for category, printed in own.items():
            found = accuracies(*answers(images[category], *printed))
            for name, value in zip(METRICS, printed, strict=True):
                if abs(100 * getattr(found, name) - value) > 0.0101:
                    missed.add((model, prompt, f"{category} {name}"))
    assert missed == off_grid()
    assert len(missed) == 14
    assert all(column.endswith("acc_b") for _, _, column in missed)


def test_totals_are_sums_of_the_categories_in_all_rows_but_one():
    wrong = []
    for setting, own in cells().items():
        for place, printed in enumerate(totals()[setting]):
            summed = total({name: values[place] / 100 for name, values in own.items()})
            if abs(summed - printed) > 0.0101:
                wrong.append((setting, place, round(summed, 2), printed))
    assert wrong == [(WRONG_TOTAL, 2, 240.85, 240.83)]


def test_no_more_pairs_are_right_than_the_margins_allow():
    slack = 0.0151
    for own in cells().values():
        for acc_b, acc_c, acc_plus in own.values():
            assert max(0.0, acc_b + acc_c - 100) - slack <= acc_plus <= min(acc_b, acc_c) + slack


def test_average_drops_and_the_slight_negative_correlation():
    zero = [one for one in totals() if one[1] == "0-shot"]
    assert len(zero) == 7
    assert fmean(map(drop, zero)) == pytest.approx(105.60, abs=0.005)
    assert fmean(map(drop, totals())) == pytest.approx(116.14, abs=0.005)
    assert all(abs(fmean(map(drop, some)) - AVERAGE_DROP) > 0.1 for some in (zero, totals()))
    phi = [mean_phi(one) for one in zero]
    assert -0.135 < min(phi) < max(phi) < -0.05
    rows = dict(derived_part().rows)
    assert rows["Qwen-VL", "0-shot"][2].text == "-0.112"


def test_phi_of_the_margins_is_that_of_answers_with_these_cells():
    images = published("cfmm_2")["images"]
    for category, printed in cells()["LLaVA", "0-shot"].items():
        basic, own = answers(images[category], *printed)
        exact = np.corrcoef(np.repeat(basic, 4), own.reshape(-1))[0, 1]
        assert accuracies(basic, own).phi == pytest.approx(exact, abs=1e-9)


def test_six_categories_have_1198_images_and_the_text_rounds_them():
    figure, table = published("cfmm_figure_4"), published("cfmm_2")
    assert figure["categories"] == table["images"]
    assert sum(figure["categories"].values()) == 1198
    images, questions = figure["rows"][0]["values"][:2]
    assert (images, questions) == (1200, 5 * 1200)


def test_the_text_is_held_against_the_tables():
    rows = {labels[0]: [cell.text for cell in own] for labels, own in text_part().rows}
    assert rows["LLaVA, 0-shot: acc_c of counting questions"] == ["50.63", "50.65"]
    assert rows["InfMLLM, 0-shot: acc_b of colour questions"] == ["93.21", "93.21"]
    gain = rows["Qwen-VL: total by which 1-shot ICL is better, more than"]
    assert gain == ["40", "acc_b -1.10, acc_c +44.56, acc+ +39.15"]
