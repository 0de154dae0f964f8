"""The paper's own numbers of Tables 1 to 4: transcribed whole, and consistent where it is."""

from __future__ import annotations

import pytest

from cfaug.report.paper_tables import published


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_every_table_is_rectangular_and_says_where_it_stands(number):
    found = published(f"social_{number}")
    assert found["note"].startswith(f"SocialCounterfactuals, Table {number} (A.")
    assert all(len(row["values"]) == len(found["columns"]) for row in found["rows"])


def test_the_counts_of_table_1_give_its_percentages():
    found = published("social_1")
    assert sum(found["counts"]) == 1200
    for count, row in zip(found["counts"], found["rows"], strict=True):
        assert abs(100 * count / 1200 - row["values"][0]) <= 0.0501


def test_table_3_sums_to_the_failures_of_table_1():
    counts = {
        row["category"]: count
        for row, count in zip(published("social_1")["rows"], published("social_1")["counts"],
                              strict=True)
    }  # fmt: skip
    for row in published("social_3")["rows"]:
        assert sum(row["values"]) == counts[row["category"]]  # of 100 images each


def test_table_4_is_of_the_images_whose_gender_can_be_discerned():
    support = [row["values"][3] for row in published("social_4")["rows"]]
    assert sum(support) == 1138 == 1200 - published("social_1")["counts"][1]
    for row in published("social_4")["rows"]:
        precision, recall, f1, _ = row["values"]
        assert abs(2 * precision * recall / (precision + recall) - f1) <= 0.01
    # What was taken for the one and not for the other: the two rows are of one matrix.
    (male, female) = (row["values"] for row in published("social_4")["rows"])
    missed = (1 - male[1]) * male[3]
    assert missed / (missed + female[1] * female[3]) == pytest.approx(1 - female[0], abs=0.01)
