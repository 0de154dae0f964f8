"""The paper's own numbers: transcribed whole, and consistent where the paper is."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cfaug.coco_cf.tables import mean_sd
from cfaug.report.paper_tables import PACKAGE, published

FOLDER = PACKAGE / "coco_cf" / "published"
TABLES = range(1, 14)


def means(name: str) -> np.ndarray:
    return np.array([[mean_sd(v)[0] for v in row["values"]] for row in published(name)["rows"]])


@pytest.mark.parametrize("number", TABLES)
def test_every_table_is_there_and_rectangular(number):
    found = published(f"coco_cf_{number}")
    assert found["note"].startswith(f"COCO-CFs, Table {number}")
    assert found["rows"]
    for row in found["rows"]:
        assert len(row["values"]) == len(found["columns"])
        assert len(row.get("change", row["values"])) == len(found["columns"])


def test_no_other_file_lies_there():
    assert {path.stem for path in FOLDER.glob("*.json")} == {f"coco_cf_{n}" for n in TABLES}
    for path in FOLDER.glob("*.json"):
        assert isinstance(json.loads(path.read_text()), dict)


@pytest.mark.parametrize(
    ("number", "off"),
    [(3, 0.01), (4, 0.014), (5, 0.01), (11, 0.01), (12, 0.01)],
)
def test_the_means_are_those_of_their_row(number, off):
    """Table 4's 67 % row is printed 78.80 where its cells give 78.787."""
    values = means(f"coco_cf_{number}")
    assert np.abs(values[:, :-1].mean(axis=1) - values[:, -1]).max() < off


def test_gains_of_table_5():
    """A.1 says 11.83, 21.55 and 11.47; the third is 10.50 in the table."""
    mean = means("coco_cf_5")[:, -1].reshape(3, 3)
    assert (mean[:, 2] - mean[:, 0]).round(2).tolist() == [11.83, 21.55, 10.5]
    assert (mean[:, 2] - mean[:, 1]).round(2).tolist() == [6.06, 10.08, 5.28]
    relative = (mean[:, 2] / mean[:, 0] - 1).mean()
    assert relative == pytest.approx(0.2381, abs=1e-4)


IMPLIED = {  # MS-COCO recall that both rows of a model allow, to a tenth
    "bridgetower": [
        (44.3, 44.8), (71.7, 72.6), (82.2, 83.2), (33.8, 34.2), (59.6, 60.4), (70.9, 71.8),
    ],
    "flava": [(48.9, 49.7), (78.4, 79.2), (88.5, 89.7), (44.7, 45.0), (74.8, 75.0), (84.4, 84.7)],
    "clip": [(47.4, 47.8), (71.5, 71.7), (79.8, 80.6), (33.2, 33.3), (58.3, 58.5), (69.7, 70.0)],
}  # fmt: skip


@pytest.mark.parametrize("model", IMPLIED)
def test_two_rows_of_a_model_imply_one_baseline(model):
    """Each change in percent bounds the MS-COCO recall it is over; both rows' bounds overlap."""
    rows = [
        row
        for name in ("coco_cf_2", "coco_cf_13")
        for row in published(name)["rows"]
        if row["model"].startswith(model)
    ]
    assert len(rows) == 2
    for column, (low, high) in enumerate(IMPLIED[model]):
        bounds = [
            (row["values"][column] / (1 + (row["change"][column] + 0.5) / 100),
             row["values"][column] / (1 + (row["change"][column] - 0.5) / 100))
            for row in rows
        ]  # fmt: skip
        least, most = max(b[0] for b in bounds), min(b[1] for b in bounds)
        assert least <= most
        assert (least, most) == pytest.approx((low, high), abs=0.06)


def test_shares_sum_to_a_hundred():
    assert means("coco_cf_1").sum(axis=1) == pytest.approx(100, abs=0.011)
    assert means("coco_cf_7").sum() == 100
    assert means("coco_cf_10").min() >= 20
    assert len(means("coco_cf_10")) == 20
