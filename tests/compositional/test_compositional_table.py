"""The table of compositional tests, beside published numbers."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest

from cfaug.compositional.tables import CompositionalTable
from cfaug.core.errors import UserError
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.items import Items, write_items
from cfaug.report.paper_tables import published

SETS: dict[str, dict[str, Any]] = {
    "Winoground": {"benchmark": "winoground_pairs", "scores": {"group": "group_score"}},
    "SugarCrepe": {
        "benchmark": "sugarcrepe_choice",
        "scores": {"micro": "accuracy", "macro": "accuracy_macro"},
        "parts": "accuracy",
    },
}


def table(**settings: Any) -> CompositionalTable:
    return CompositionalTable(
        **{"name": "compositional", "title": "Tests", "sets": SETS, "commands": ["make it"]}
        | settings
    )


def write(root: Path, name: str, seed: int, cells: dict[tuple[str, str, str], float]) -> None:
    folder = root / name / f"seed={seed}"
    folder.mkdir(parents=True)
    lines = [
        {
            "run": name, "arm": Path(name).name, "seed": seed, "benchmark": benchmark,
            "metric": metric, "value": value, "n": 10, "weights": f"{name}{seed}",
            "data": benchmark,
            **({"by": {"category": part}} if part else {}),
        }
        for (benchmark, metric, part), value in cells.items()
    ]  # fmt: skip
    (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    sugarcrepe = {
        ("sugarcrepe_choice", "accuracy", ""): 0.5,
        ("sugarcrepe_choice", "accuracy_macro", ""): 0.25,
        ("sugarcrepe_choice", "accuracy", "swap_obj"): 0.75,
        ("sugarcrepe_choice", "accuracy", "odd"): 1.0,
    }
    write(tmp_path, "weights/one", 0, {**sugarcrepe, ("winoground_pairs", "group_score", ""): 0.1})
    write(tmp_path, "made/arm", 0, sugarcrepe)
    write(tmp_path, "made/arm", 1, {cell: value / 2 for cell, value in sugarcrepe.items()})
    write(tmp_path, "made/other", 0, {("another_pairs", "group_score", ""): 0.1})
    return Runs(tmp_path)


def test_ours_stand_beside_published_numbers(runs: Runs) -> None:
    (part,) = table().build(runs).parts
    assert part.columns[:2] == ("made/arm", "weights/one")
    assert part.columns[2:] == (
        "CLIP openai", "fine-tuned on COCO", "TROHN-Text", "TROHN-Img", "NegCLIP",
    )  # fmt: skip
    assert part.groups == (("Ours", 2), ("Reference", 5))
    assert [labels for labels, _ in part.rows] == [
        ("Winoground", "group"), ("SugarCrepe", "micro"), ("SugarCrepe", "macro"),
        ("SugarCrepe", "accuracy: swap_obj"), ("SugarCrepe", "accuracy: odd"),
    ]  # fmt: skip
    shown = {labels[1]: dict(zip(part.columns, cells, strict=True)) for labels, cells in part.rows}
    assert [shown["group"][name].text for name in ("made/arm", "weights/one", "CLIP openai")] == [
        "–", "10.00", "8.75",
    ]  # fmt: skip
    assert (shown["micro"]["made/arm"].text, shown["micro"]["TROHN-Text"].text) == (
        "37.50",
        "93.40",
    )
    assert shown["micro"]["made/arm"].numbers["n"] == 2
    assert shown["micro"]["TROHN-Text"].above == ("a",)
    assert shown["accuracy: swap_obj"]["CLIP openai"].text == "61.38"
    assert shown["accuracy: odd"]["CLIP openai"].text == "–"
    assert "7,512" in part.notes[0]


def test_what_a_set_of_this_size_can_show(runs: Runs) -> None:
    """Winoground's 400 items, 35 of them right: a standard error of 1.4 points."""
    right = (np.arange(400) < 35).astype(np.float64)
    names = [f"item {i}" for i in range(400)]
    columns = {"item": names, "cluster": names, "group_score": right}
    folder = runs.root / "weights" / "one" / "seed=0"
    write_items(folder, Items("winoground_pairs", "weights", "data", columns))
    (part,) = table().build(runs).parts
    assert part.notes[1:] == (
        "Winoground, group_score: 400 items: standard error 1.4 points; a difference below 2.8 "
        "points cannot be seen on this set.",
    )


def test_models_and_references_are_chosen(runs: Runs) -> None:
    chosen = table(models={"Mine": "weights/one"}, references=["NegCLIP"])
    (part,) = chosen.build(runs).parts
    assert part.columns == ("Mine", "NegCLIP")
    (part,) = table(models={"Mine": "weights/one"}, references=[]).build(runs).parts
    assert (part.columns, part.notes) == (("Mine",), ())


def test_a_table_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="results of winoground_pairs"):
        table().build(Runs(tmp_path))


def test_an_unknown_reference() -> None:
    with pytest.raises(UserError, match=r"'GPT'.*choose from CLIP openai"):
        table(references=["GPT"])


def test_other_test_data_under_one_name_is_refused(runs: Runs) -> None:
    file = runs.root / "weights" / "one" / "seed=0" / "results.jsonl"
    file.write_text(file.read_text().replace('"data": "sugarcrepe_choice"', '"data": "smaller"'))
    with pytest.raises(UserError, match="on other test data"):
        table().build(runs)


def test_the_published_numbers_agree_with_each_other() -> None:
    """SugarCrepe as the files of BiVLC's authors have it: 246 items of swap_obj, 7,512 in all."""
    found = published("compositional")
    sizes = {
        "add_obj": 2062, "add_att": 692, "replace_obj": 1652, "replace_att": 788,
        "replace_rel": 1406, "swap_obj": 246, "swap_att": 666,
    }  # fmt: skip
    rows = {
        (row["benchmark"], row["metric"], row["by"].get("category")): row["values"]
        for row in found["rows"]
    }
    for i in range(4):
        split = {name: rows["sugarcrepe_choice", "accuracy", name][i] for name in sizes}
        micro = sum(split[name] * count for name, count in sizes.items()) / sum(sizes.values())
        assert rows["sugarcrepe_choice", "accuracy", None][i] == pytest.approx(micro, abs=0.01)
        macro = rows["sugarcrepe_choice", "accuracy_macro", None][i]
        assert macro == pytest.approx(mean(split.values()), abs=0.01)
        groups = [
            mean(value for name, value in split.items() if name.startswith(group))
            for group in ("replace", "swap", "add")
        ]
        of_groups = rows["sugarcrepe_choice", "accuracy_macro_groups", None][i]
        assert of_groups == pytest.approx(mean(groups), abs=0.01)
        parts = {"replace_obj": 1200, "replace_rel": 462, "replace_att": 437, "add_obj": 399,
                 "add_att": 76, "swap_att": 278, "swap_obj": 81}  # fmt: skip
        own = {name: rows["bivlc_pairs", "group_score", name][i] for name in parts}
        total = sum(own[name] * count for name, count in parts.items()) / sum(parts.values())
        assert rows["bivlc_pairs", "group_score", None][i] == pytest.approx(total, abs=0.01)
    assert rows["sugarcrepe_choice", "accuracy", "swap_obj"][0] == round(100 * 151 / 246, 2)


def test_every_published_number_says_its_source() -> None:
    found = published("compositional")
    for row in found["rows"]:
        assert len(row["values"]) == len(row["sources"]) == len(found["columns"])
        for value, source in zip(row["values"], row["sources"], strict=True):
            assert (value is None) == (source is None)
            assert source is None or f"{source}: " in found["note"]
