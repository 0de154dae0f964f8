"""The table of compositional tests, beside published numbers."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.sources.compositional import FORMS, ITEM_LISTS
from cfaug.evaluation.choices.caption_choice import CaptionChoice
from cfaug.evaluation.choices.pairs import PairMatching
from cfaug.evaluation.context import EvaluationContext
from cfaug.evaluation.suites import Suite
from cfaug.papers.compositional.tables import CompositionalTable
from cfaug.report.arm_results import Runs
from cfaug.report.items import Items, write_items
from cfaug.report.paper_tables import published
from tests.data.compositional import aro, coco_name, sugarcrepe, vismin, winoground

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
        "Winoground, group_score: 400 items: standard error 1.4 points; a difference of 4.0 "
        "points is found in 80 % of such tests.",
    )


def test_models_and_references_are_chosen(runs: Runs) -> None:
    chosen = table(models={"Mine": "weights/one"}, references=["NegCLIP"])
    (part,) = chosen.build(runs).parts
    assert part.columns == ("Mine", "NegCLIP")
    (part,) = table(models={"Mine": "weights/one"}, references=[]).build(runs).parts
    assert (part.columns, part.notes) == (("Mine",), ())


def test_other_test_data_under_one_name_is_refused(runs: Runs) -> None:
    file = runs.root / "weights" / "one" / "seed=0" / "results.jsonl"
    file.write_text(file.read_text().replace('"data": "sugarcrepe_choice"', '"data": "smaller"'))
    with pytest.raises(UserError, match="on other test data"):
        table().build(runs)


def test_the_published_numbers_agree_with_each_other() -> None:
    """SugarCrepe as the files of BiVLC's authors have it: 246 items of swap_obj, 7,512 in all."""
    printed = published("compositional")
    sizes = {
        "add_obj": 2062, "add_att": 692, "replace_obj": 1652, "replace_att": 788,
        "replace_rel": 1406, "swap_obj": 246, "swap_att": 666,
    }  # fmt: skip
    rows = {
        (row["benchmark"], row["metric"], row["by"].get("category")): row["values"]
        for row in printed["rows"]
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
        scores = {name: rows["bivlc_pairs", "group_score", name][i] for name in parts}
        total = sum(scores[name] * count for name, count in parts.items()) / sum(parts.values())
        assert rows["bivlc_pairs", "group_score", None][i] == pytest.approx(total, abs=0.01)
    assert rows["sugarcrepe_choice", "accuracy", "swap_obj"][0] == round(100 * 151 / 246, 2)


def test_every_published_number_says_its_source() -> None:
    printed = published("compositional")
    for row in printed["rows"]:
        assert len(row["values"]) == len(row["sources"]) == len(printed["columns"])
        for value, source in zip(row["values"], row["sources"], strict=True):
            assert (value is None) == (source is None)
            assert source is None or f"{source}: " in printed["note"]


# Where the items of compositional tests come from, and which of a suite are there.


@pytest.fixture
def context(tmp_path: Path) -> EvaluationContext:
    cache = tmp_path / "cache"
    return EvaluationContext(
        open=lambda source: open_index(source, cache), has_world=False, held_out=lambda: None,
        read=lambda reader, folder: open_index(folder, cache, reader=reader),
    )  # fmt: skip


def choice(folder: Path, **settings: Any) -> CaptionChoice:
    return CaptionChoice(data=str(folder), blind=None, **settings)


def items(opened: Any) -> int:
    (benchmark,) = opened
    return len(benchmark._choices.first)


def test_photos_in_a_folder_that_is_named(context, tmp_path: Path) -> None:
    folder = sugarcrepe(tmp_path / "sugarcrepe", "../far/away")
    with pytest.raises(UserError, match=r"benchmark\.images=FOLDER"):
        choice(folder).open(context)
    assert items(choice(folder, images=str(tmp_path / "far/away")).open(context)) == 10
    with pytest.raises(UserError, match=r"benchmark\.images: there is no folder"):
        choice(folder, images=str(tmp_path / "nowhere")).open(context)


def test_the_number_of_items_is_said_once_beside_the_released_one(context, tmp_path, capsys):
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    choice(folder).open(context)
    said = capsys.readouterr().err
    assert "SugarCrepe: 10 items, where the released files have 7,511 (add_obj 1 for" in said
    assert "swap_obj 3 for 245" in said
    assert "the paper, and copies made of an earlier release, have 7,512" in said
    choice(folder).open(context)
    assert "released" not in capsys.readouterr().err
    (folder / "val2017" / coco_name(2)).unlink()
    assert items(choice(folder, missing="skip").open(context)) == 8


def test_released_counts_add_up():
    known = {form.kind: form.released for form in FORMS if form.released is not None}
    assert {item_list.kind for item_list in ITEM_LISTS} - set(known) == {
        "naturalbench_retrieval", "trohn_text", "negbench", "negbench_retrieval", "bla", "fairface",
        "vl_checklist", "spec", "spec_images",
    }  # fmt: skip
    for released in known.values():
        by_category = released.by_category
        assert not by_category or sum(by_category.values()) == released.items


def test_one_of_two_tests_in_a_folder(context, tmp_path: Path) -> None:
    folder = aro(tmp_path / "aro")
    with pytest.raises(UserError, match=r"benchmark\.form=aro_relation or aro_attribution"):
        choice(folder).open(context)
    (opened,) = choice(folder, form="aro_attribution").open(context)
    assert opened._index.kind == "aro_attribution"


def test_a_folder_of_another_test_or_none_says_what_it_should_hold(context, tmp_path: Path) -> None:
    asked = PairMatching(data=str(tmp_path / "winoground"), form="winoground")
    with pytest.raises(UserError, match=r"no folder .*winoground: .*gated.*examples\.jsonl"):
        asked.open(context)
    (tmp_path / "winoground").mkdir()
    with pytest.raises(UserError, match=r"winoground does not hold Winoground: .*gated"):
        asked.open(context)
    vismin(tmp_path / "winoground")
    with pytest.raises(UserError, match="holds VisMin, not Winoground"):
        asked.open(context)


def suite(tmp_path: Path, **settings: Any) -> Suite:
    members = {
        "winoground_pairs": PairMatching(
            data=str(tmp_path / "winoground"), name="winoground", form="winoground"
        ),
        "own_pairs": PairMatching(data=str(tmp_path / "own"), name="own"),
    }
    layouts = {"own_pairs": "make it yourself"}
    return Suite(**{"folders": members, "where": "folders", "layouts": layouts} | settings)


def test_a_suite_asks_what_is_there_and_says_what_is_not(context, tmp_path: Path, capsys) -> None:
    winoground(tmp_path / "winoground")
    (opened,) = suite(tmp_path, absent="say").open(context)
    assert opened.name == "winoground_pairs"
    said = capsys.readouterr().err
    assert "1 of 2 tests are not run:" in said
    assert f"own_pairs: there is no {tmp_path / 'own'}: make it yourself" in said
    with pytest.raises(UserError, match=r"own_pairs: (?s:.*)benchmark\.skip=\[own_pairs\]"):
        suite(tmp_path).open(context)
    with pytest.raises(UserError, match="own_pairs"):
        suite(tmp_path, absent="say", only=["own_pairs"]).open(context)


def test_a_suite_of_which_nothing_is_there(context, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"all data are missing:(?s:.*)gated(?s:.*)make it yourself"
    ):
        suite(tmp_path, absent="say").open(context)


def test_a_folder_that_is_there_and_broken_is_an_error(context, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    winoground(tmp_path / "winoground")
    with pytest.raises(UserError, match=r"own_pairs: .*no form that is known"):
        suite(tmp_path, absent="say").open(context)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda x: PairMatching(data="here", form="winogrand"),
            "form=winogrand is invalid",
        ),
        (lambda x: PairMatching(data="here", missing="ignore"), "missing=ignore: choose from refu"),
        (lambda x: suite(x, absent="maybe"), "absent=maybe: choose from refuse, say"),
        (lambda x: suite(x, layouts={"odd": "x"}), "no member is called"),
        (lambda x: table(references=["GPT"]), r"'GPT'.*choose from CLIP openai"),
        (lambda x: table().build(Runs(x)), "results of winoground_pairs"),
    ],
)
def test_what_cannot_be_asked_is_refused(tmp_path: Path, make, said: str) -> None:
    with pytest.raises(UserError, match=said):
        make(tmp_path)
