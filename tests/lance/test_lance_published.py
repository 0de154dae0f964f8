"""LANCE's own numbers: transcribed whole, and consistent where the paper is."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.report.paper_tables import PACKAGE, published

NAMES = ("lance_1", "lance_2", "lance_3", "lance_4", "lance_6", "lance_figure_4")


@pytest.mark.parametrize("name", NAMES)
def test_every_table_is_there_rectangular_and_says_where_it_stands(name):
    found = published(name)
    what = name.removeprefix("lance_").replace("figure_", "Figure ")
    assert found["note"].startswith(f"LANCE, {what if 'Figure' in what else f'Table {what}'}")
    for row in found["rows"]:
        assert len(row["values"]) == len(found["columns"])
        assert len(row.get("change", row["values"])) == len(found["columns"])


def test_no_other_file_lies_there():
    files = {path.stem for path in (PACKAGE / "lance/published").glob("*.json")}
    assert files == set(NAMES)
    with pytest.raises(UserError, match=r"no numbers of lance_9; there are .*coco_cf_1, .*lance_2"):
        published("lance_9")
    names = [path.stem for path in PACKAGE.glob("*/published/*.json")]
    assert len(names) == len(set(names)), "a name is one paper's"


def counts(row: str) -> list[int]:
    found = published("lance_2")
    n = found["sizes"][row]
    (values,) = [one["values"] for one in found["rows"] if one["set"] == row]
    return [round(value * n / 100) for value in values]


@pytest.mark.parametrize("row", ["Original", "Reconstructed", "LANCE-R", "LANCE"])
def test_the_sizes_of_the_sets_give_every_percentage_of_table_2(row):
    found = published("lance_2")
    n = found["sizes"][row]
    (values,) = [one["values"] for one in found["rows"] if one["set"] == row]
    assert [round(100 * count / n, 2) for count in counts(row)] == values


@pytest.mark.parametrize("row", ["Reconstructed", "LANCE-R", "LANCE"])
def test_the_changes_of_table_2_follow_from_its_values(row):
    """They were cut off or rounded: ResNet-50's -1.05 and -5.85 are printed -1.0 and -5.8."""
    rows = {one["set"]: one for one in published("lance_2")["rows"]}
    true = np.subtract(rows[row]["values"], rows["Original"]["values"])
    assert np.abs(true - rows[row]["change"]).max() < 0.1


def test_sums_and_means_of_the_other_tables():
    perturber = {row["generator"]: row["values"] for row in published("lance_1")["rows"]}
    assert sum(perturber["GPT-3.5 turbo"][:-1]) == pytest.approx(0.6)
    assert sum(perturber["Finetuned LLAMA-7B"][:-1]) == pytest.approx(35.6)
    means = [np.mean(row["values"][:-1]) for row in published("lance_3")["rows"]]
    assert means == pytest.approx([89.6, 97.2, 98.38])
    study = {
        row["metric"]: (np.mean([mean for mean, _ in row["values"][:-1]]), row["values"][-1][0])
        for row in published("lance_4")["rows"]
    }
    for metric, (mean, printed) in study.items():
        assert mean == pytest.approx(printed, abs=0.25), metric
    assert study["Image Fidelity (1-5)"][0] == pytest.approx(4.58)


def test_files_are_json_objects():
    for path in (PACKAGE / "lance/published").glob("*.json"):
        assert isinstance(json.loads(path.read_text()), dict)
