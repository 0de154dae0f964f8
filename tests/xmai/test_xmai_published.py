"""XMAI's own numbers: transcribed whole, and consistent where the paper is."""

from __future__ import annotations

import pytest

from cfaug.report.paper_tables import PACKAGE, published
from cfaug.stats.item_tests import mcnemar
from cfaug.stats.significance import SeedSummary, welch

TABLES = {f"xmai_{n}": f"XMAI, Table {n}:" for n in range(1, 7)}
NAMES = {**TABLES, "xmai_figure_7": "XMAI, Figure 7:", "xmai_preference": "XMAI, section 5.1:"}


def values(name: str, key: str = "method") -> dict:
    found = published(name)
    return {row[key]: dict(zip(found["columns"], row["values"], strict=True))
            for row in found["rows"]}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_table_is_there_rectangular_and_says_where_it_stands(name):
    found = published(name)
    assert found["note"].startswith(NAMES[name])
    for row in found["rows"]:
        assert len(row["values"]) == len(found["columns"])
    assert len(found.get("better", found["columns"])) == len(found["columns"])


def test_no_other_file_lies_there():
    assert {path.stem for path in (PACKAGE / "xmai/published").glob("*.json")} == set(NAMES)


def test_the_falls_that_the_abstract_names_follow_from_the_tables():
    retrieval, entailment = values("xmai_1"), values("xmai_2")
    fall = 1 - retrieval["XMAI"]["MRR"] / retrieval["Original"]["MRR"]
    assert 100 * fall == pytest.approx(15.19, abs=0.005)
    fall = 1 - entailment["XMAI"]["F1"] / entailment["Original"]["F1"]
    assert 100 * fall == pytest.approx(20.99, abs=0.005)


def test_xmai_is_the_strongest_of_table_1_and_second_of_table_2():
    retrieval, entailment = values("xmai_1"), values("xmai_2")
    assert min(retrieval, key=lambda name: retrieval[name]["MRR"]) == "XMAI"
    for metric in ("Acc.", "Precision", "Recall"):
        order = sorted(entailment, key=lambda name: entailment[name][metric])
        assert order[:2] == ["CLARE", "XMAI"], metric


def test_the_default_setting_stands_in_tables_1_3_and_6_with_the_same_numbers():
    shared = ["MRR", "Sim T-T'", "Sim I-T'", "BLEU", "METEOR"]
    rows = [values("xmai_1")["XMAI"], values("xmai_3", "k")["3"],
            values("xmai_6", "Ablation")["Original"]]  # fmt: skip
    assert [[row[name] for name in shared] for row in rows] == [
        [0.536, 0.924, 0.283, 0.623, 0.969]
    ] * 3


def test_no_more_texts_have_a_new_word_than_are_changed_and_no_more_than_there_are():
    found = published("xmai_5")
    for row in found["rows"]:
        new, any_change, new_ve, any_ve = row["values"]
        assert new <= any_change <= found["sizes"][0] == 25_010
        assert new_ve <= any_ve <= found["sizes"][2] == 17_859


def test_people_preferred_xmai_and_the_welch_test_did_not_tell_quality_apart():
    found = published("xmai_preference")
    first, second, neither, examples = found["rows"][0]["values"]
    assert first + second + neither == examples
    assert mcnemar(first, second) == pytest.approx(1.1e-4, abs=0.05e-4)
    original, changed = (SeedSummary(*found["quality"][name]) for name in ("Original", "XMAI"))
    assert welch(original, changed, "two-sided") == pytest.approx(0.477, abs=0.0005)
