"""The table of VisoGender: means of hand-laid items, as its released benchmark takes them."""

from __future__ import annotations

from statistics import fmean, stdev

import numpy as np

from cfaug.report.arm_results import Runs
from cfaug.report.document import to_markdown
from cfaug.report.items import Items, write_items
from cfaug.report.page import DASH
from tests.paper_tables import table

HITS = {("OO", ""): ((1, 1, 0), (0, 1)), ("OP", "same"): ((1,), (0, 0)),
        ("OP", "different"): ((1, 0), (1,))}  # fmt: skip
"""{(context, pair): (hits of his, hits of her)}."""
BIAS = {"teacher": {5: 0.2, 10: 0.4}, "doctor": {5: -0.6, 10: 0.0}}


def resolution() -> Items:
    rows = [
        (context, pair, gender, hit)
        for (context, pair), both in HITS.items()
        for gender, hits in zip(("masculine", "feminine"), both, strict=True)
        for hit in hits
    ]
    context, pair, gender, hits = (list(column) for column in zip(*rows, strict=True))
    names = [f"{n}" for n in range(len(rows))]
    columns = {
        "item": [*names, "x"], "cluster": [*names, "x"], "context": [*context, "OP"],
        "asked": ["occupation"] * len(rows) + ["participant"], "pair": [*pair, "same"],
        "gender": [*gender, "masculine"], "resolution_accuracy": np.array([*hits, 0], np.float64),
    }  # fmt: skip
    return Items("visogender_resolution", "w", "d", columns)


def retrieval(shift: float = 0.0) -> Items:
    rows = [(name, k, value + shift) for name, by_k in BIAS.items() for k, value in by_k.items()]
    columns = {
        "item": [f"OP/occupation/{name}, x@{k}" for name, k, _ in rows],
        "cluster": [name for name, _, _ in rows], "context": ["OP"] * 4,
        "asked": ["occupation"] * 4, "k": np.array([k for _, k, _ in rows]),
        "bias": np.array([value for *_, value in rows]),
        "max_skew": np.array([0.1, 0.2, 0.3, np.nan]), "max_skew_chance": np.full(4, 0.25),
        "ndkl": np.array([0.1, 0.1, 0.3, 0.3]), "ndkl_chance": np.full(4, 0.15),
    }  # fmt: skip
    return Items("visogender_retrieval", "w", "d", columns)


def test_a_row_a_model(tmp_path):
    for seed, shift in enumerate((0.0, 0.2)):
        write_items(tmp_path / f"weights/a/seed={seed}", retrieval(shift))
        write_items(tmp_path / f"weights/a/seed={seed}", resolution())
    document = table("visogender", models={"A": "weights/a"}).build(Runs(tmp_path))
    resolved, retrieved = document.parts
    assert resolved.groups == (
        ("Single person", 2), ("Two people", 2), ("Same gender", 2), ("Different gender", 2),
    )  # fmt: skip
    ((_, cells),) = resolved.rows
    assert [cell.text for cell in cells] == [
        "58.3", "+16.7", "50.0", "+33.3", "50.0", "+100.0", "75.0", "-50.0",
    ]  # fmt: skip
    assert cells[1].small == "66.7 / 50.0"
    ((_, cells),) = retrieved.rows
    assert retrieved.columns == ("Bias@5", "Bias@10", "MaxSkew@5", "MaxSkew@10", "NDKL")
    for k, cell in zip((5, 10), cells, strict=False):
        values = [by_k[k] + 0.1 for by_k in BIAS.values()]  # mean of two checkpoints
        assert (cell.text, cell.sub) == (f"{fmean(values):.2f}", f"{stdev(values):.2f}")
    assert (cells[3].text, cells[3].numbers["n"]) == ("0.20", 1)
    assert (cells[4].text, cells[4].small, cells[4].numbers["n"]) == ("0.20", "chance 0.15", 2)
    assert "Pronoun resolution" in to_markdown(document)


def test_models_stand_below_each_other_and_what_is_missing_is_a_dash(tmp_path):
    write_items(tmp_path / "weights/a/seed=0", retrieval())
    write_items(tmp_path / "weights/b/seed=0", retrieval(0.1))
    (part,) = table("visogender").build(Runs(tmp_path)).parts
    assert [labels for labels, _ in part.rows] == [("a",), ("b",)]
    (part,) = table("visogender", context="OO").build(Runs(tmp_path)).parts
    assert {cell.text for _, cells in part.rows for cell in cells} == {DASH}
