"""Table 4: precision, recall and F1 of a model's answers, beside the paper's."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.items import Items, write_items
from cfaug.report.writers import to_markdown
from tests.social.test_errors import table

TRUTH = ("male", "male", None, "female", "female", "female")
TAKEN = ("male", "female", "male", "female", "female", "male")


def items(name: str, taken=TAKEN) -> Items:
    columns = {
        "item": [f"{n}" for n in range(6)], "cluster": ["set"] * 6, "truth": list(TRUTH),
        "asked": ["male", "male", "female", "female", "female", "female"],
        "predicted": list(taken), "accuracy": np.ones(6),
        "left_out": [None if value else "people said: unclear" for value in TRUTH],
    }  # fmt: skip
    return Items(name, "w", "d", columns)


def test_table_4_has_the_papers_layout(tmp_path):
    write_items(tmp_path / "weights/a/seed=0", items("sets_attribute_detector"))
    document = table("social_4").build(Runs(tmp_path))
    theirs, ours, taken = document.parts
    assert [(labels[0], *(c.text for c in cells)) for labels, cells in theirs.rows] == [
        ("male", "0.99", "0.95", "0.97", "549"), ("female", "0.96", "0.99", "0.97", "589"),
    ]  # fmt: skip
    assert theirs.columns == ours.columns
    assert [(labels[0], *(c.text for c in cells)) for labels, cells in ours.rows] == [
        ("male", "0.50", "0.50", "0.50", "2"), ("female", "0.67", "0.67", "0.67", "3"),
    ]  # fmt: skip
    assert ours.notes == ("5 images; 1 more are left out.",)
    assert [[c.text for c in cells] for _, cells in taken.rows] == [["1", "1"], ["1", "2"]]
    assert "0.99" in to_markdown(document)


def test_checkpoints_are_averaged_and_what_is_undefined_is_no_zero(tmp_path):
    never = ["female"] * 6
    write_items(tmp_path / "weights/a/seed=0", items("sets_attribute_detector"))
    write_items(tmp_path / "weights/a/seed=1", items("sets_attribute_detector", never))
    document = table("social_4", models={"A": "weights/a"}).build(Runs(tmp_path))
    male = document.parts[1].rows[0][1]
    assert male[0].text == "0.50"  # of the one that took any for male
    assert (male[1].text, male[1].sub) == ("0.25", "0.35")
    with pytest.raises(MissingError, match="answers of a model"):
        table("social_4").build(Runs(tmp_path / "none"))
    assert len(table("social_4", partial=True).build(Runs(tmp_path / "none")).parts) == 1
