"""XMAI's tables and figures beside ours, and its own numbers, consistent where the paper is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from cfaug.core.errors import UserError
from cfaug.core.types import ENTAILMENT
from cfaug.papers.xmai.answer_tables import read_settings, read_timings
from cfaug.planning.build import build
from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Part, to_latex
from cfaug.report.items import write_items
from cfaug.report.paper_tables import published
from cfaug.stats.classification import confusion_matrix, macro_scores
from cfaug.stats.item_tests import mcnemar
from cfaug.stats.significance import SeedSummary, welch
from tests.files_of_settings import settings_file
from tests.report.insertion_example import METHODS, entailment_items, insertion_items

MODELS = ("clip-a", "clip-bb")
CLIP = {"clip": "weights/clip"}


def table(name: str, **changes):
    return build(yaml.safe_load(settings_file(f"table/{name}").read_text()) | changes)


def record(folder: Path, k: int = 3, t: float = 0.7, weights=(1, 5, 5)) -> Path:
    """Write what generate.py records of a folder."""
    captions = {
        "recipe.editor.k": k,
        "recipe.editor.threshold": t,
        "recipe.editor.weights": list(weights),
    }
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps({"captions": captions, "images": None, "shards": 1})
    )
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    """Two models that were asked about methods' texts."""
    root = tmp_path_factory.mktemp("runs")
    for name in MODELS:
        write_items(root / "weights" / name / "seed=0", insertion_items(name).items)
    write_items(
        root / "weights" / "own" / "seed=0",
        insertion_items("own", benchmark="own_text_overlap").items,
    )
    return Runs(root)


@pytest.fixture(scope="module")
def entailed(tmp_path_factory) -> Runs:
    """A model asked about hypotheses, and a dual encoder about most of the same methods."""
    root = tmp_path_factory.mktemp("entailed")
    write_items(root / "ve" / "vilt" / "seed=0", entailment_items().items)
    some = {name: fall for name, fall in METHODS.items() if name != "clare"}
    items = insertion_items("clip", some, benchmark="ve_insertion").items
    write_items(root / "ve" / "clip" / "seed=0", items)
    return Runs(root)


@pytest.fixture(scope="module")
def ablation(tmp_path_factory) -> Runs:
    """One model, two checkpoints, that was asked about folders of other settings each."""
    root = tmp_path_factory.mktemp("ablation")
    sources, methods = {}, {}
    variants = [(3, 0.7, (1, 5, 5)), (5, 0.7, (1, 5, 5)), (10, 0.7, (1, 5, 5)), (3, 0.5, (1, 5, 5)),
                (3, 0.7, (0, 5, 5)), (3, 0.7, (1, 0, 5)), (3, 0.7, (1, 5, 1)),
                (3, 0.7, (0, 0, -1))]  # fmt: skip
    for number, (k, t, weights) in enumerate(variants):
        sources[f"m{number}"] = str(record(root / "shards" / f"folder-{number}", k, t, weights))
        methods[f"m{number}"] = 0.02 * (k - weights[2])
    sources["released"], methods["released"] = str(root / "nowhere"), 0.1
    for seed, name in enumerate(("m", "mm")):
        items = insertion_items(name, methods, photos=6, sources=sources).items
        write_items(root / "weights" / "clip" / f"seed={seed}", items)
    return Runs(root)


def ours(document: Document) -> list[Part]:
    return [part for part in document.parts if part.ours]


def cells(part: Part) -> dict[tuple, tuple]:
    return dict(part.rows)


def values(part: Part, row: str) -> dict[str, float]:
    named = zip(part.columns, cells(part)[(row,)], strict=True)
    return {name: cell.numbers.get("value", np.nan) for name, cell in named}


def test_table_1_has_the_papers_layout_and_marks_beside_ours(runs):
    document = table("xmai_1").build(runs)
    theirs, first, second, *tests = document.parts
    assert (theirs.ours, first.ours) == (False, True)
    assert [labels[0] for labels, _ in theirs.rows] == [
        "Original", "Deletion", "EDA", "CheckList", "CLARE", "XMAI",
    ]  # fmt: skip
    assert theirs.columns == ("MRR ↓", "Sim T-T' ↑", "Sim I-T' ↑", "BLEU ↑", "METEOR ↑")
    marks = {
        labels[0]: "".join("b" * c.bold + "u" * c.underlined or "." for c in entries)
        for labels, entries in theirs.rows
    }
    assert marks == {
        "Original": ".....", "Deletion": ".uuu.", "EDA": ".....", "CheckList": ".bbbb",
        "CLARE": "u....", "XMAI": "b...u",
    }  # fmt: skip
    assert (first.title, second.title) == ("Ours: clip-a", "Ours: clip-bb")
    assert [labels[0] for labels, _ in first.rows] == [
        "Original", "Deletion", "CheckList", "CLARE", "XMAI",
    ]  # fmt: skip
    assert first.ranked
    assert first.groups[0] == ("MRR ↓", 2)
    assert len(tests) == 4


def test_table_1_shows_the_means_of_the_items(runs):
    part = ours(table("xmai_1").build(runs))[0]
    answers = insertion_items("clip-a")
    for printed, method in (("XMAI", "xmai"), ("CLARE", "clare")):
        shown = values(part, printed)
        rows = answers.rows(method)
        for title, metric in (("all photos", "mrr"), ("batches", "mrr_batches"),
                              ("Sim T-T' ↑", "similarity_text"), ("BLEU ↑", "bleu")):  # fmt: skip
            assert shown[title] == pytest.approx(answers.items.metric(metric)[rows].mean())
    before = values(part, "Original")
    assert before["all photos"] == pytest.approx(answers.items.metric("mrr_original").mean())
    assert np.isnan(before["BLEU ↑"])
    assert cells(part)[("XMAI",)][0].bold


def test_table_1_tests_each_method_against_its_originals_and_xmai_against_the_others(runs):
    changes, methods = ours(table("xmai_1").build(runs))[2:4]
    assert "clip-a" in changes.title
    rows = cells(changes)
    assert list(rows) == [("Deletion",), ("CheckList",), ("CLARE",), ("XMAI",)]
    xmai = dict(zip(changes.columns, rows[("XMAI",)], strict=False))
    assert xmai["texts"].text == "12"  # of the kept ones, which come last
    drops = insertion_items("clip-a")
    mean = -drops.items.metric("mrr_drop")[drops.rows("xmai")].mean()
    assert rows[("XMAI",)][4].numbers["value"] == pytest.approx(mean)
    assert rows[("XMAI",)][6].bold
    assert xmai["share"].text == "0.667"
    assert [labels[0] for labels, _ in methods.rows] == [
        "XMAI against Deletion", "XMAI against CheckList", "XMAI against CLARE",
    ]  # fmt: skip


def test_checkpoints_of_one_model_are_averaged_and_tested_over_seeds(runs):
    models = {"CLIP": [f"weights/{name}/seed=0" for name in MODELS]}
    part, changes, _ = ours(table("xmai_1", models=models).build(runs))
    xmai = cells(part)[("XMAI",)][0]
    means = [insertion_items(n).by_key("mrr", "xmai").values() for n in MODELS]
    assert xmai.numbers["value"] == pytest.approx(np.mean([np.mean(list(mrr)) for mrr in means]))
    assert xmai.sub
    assert changes.columns[-2:] == ("over seeds", "p")


def test_a_whole_name_of_a_benchmark_is_not_the_end_of_another(tmp_path):
    folder = tmp_path / "a" / "clip" / "seed=0"
    for name, fall in (("insertion", 0.1), ("k_insertion", 0.3), ("ve_insertion", 0.2)):
        write_items(folder, insertion_items("clip", {"xmai": fall}, benchmark=name).items)
    part = ours(table("xmai_1").build(Runs(tmp_path)))[0]
    assert values(part, "XMAI")["BLEU ↑"] == pytest.approx(0.8)
    part = ours(table("xmai_1", benchmark="k_insertion").build(Runs(tmp_path)))[0]
    assert values(part, "XMAI")["BLEU ↑"] == pytest.approx(0.4)
    with pytest.raises(UserError, match="has answers to insertion, k_insertion, ve_insertion"):
        table("xmai_1", benchmark="tion").build(Runs(tmp_path))


def test_what_was_not_measured_is_left_out_and_other_methods_follow(tmp_path):
    answers = insertion_items("m", {"mine": 0.1, "xmai": 0.2})
    columns = {n: v for n, v in answers.items.columns.items() if n != "meteor"}
    columns["mrr_batches"] = np.full(len(answers), np.nan)
    items = type(answers.items)("insertion", "w", "d", columns)
    write_items(tmp_path / "a" / "m" / "seed=0", items)
    part = ours(table("xmai_1").build(Runs(tmp_path)))[0]
    assert part.columns == ("all photos", "Sim T-T' ↑", "Sim I-T' ↑", "BLEU ↑")
    assert [labels[0] for labels, _ in part.rows] == ["Original", "XMAI", "mine"]


def test_table_2_has_scores_of_all_hypotheses_and_likenesses_of_another_model(entailed):
    theirs, part, changes, f1, methods = table("xmai_2").build(entailed).parts
    assert theirs.columns[:4] == part.columns[:4] == ("Acc. ↓", "Precision ↓", "Recall ↓", "F1 ↓")
    assert part.columns[4:] == ("Sim T-T' ↑", "Sim I-T' ↑", "BLEU ↑", "METEOR ↑")
    answers = entailment_items()
    rows = answers.rows("xmai")
    truth, predicted = (
        [ENTAILMENT.index(answers.texts(name)[row]) for row in rows]
        for name in ("label", "predicted")
    )
    scores = macro_scores(confusion_matrix(np.array(truth), np.array(predicted), 3))
    xmai = [cell.numbers["value"] for cell in cells(part)[("XMAI",)]]
    assert xmai[:4] == pytest.approx([scores.accuracy, scores.precision, scores.recall, scores.f1])
    assert xmai[6] == pytest.approx(0.7)
    assert [cell.text for cell in cells(part)[("CLARE",)][4:]] == ["–"] * 4
    before = cells(part)[("Original",)]
    assert before[0].numbers["value"] == pytest.approx(
        answers.items.metric("accuracy_original").mean()
    )
    change = cells(f1)[("XMAI",)][1]
    assert change.numbers["value"] == pytest.approx(xmai[3] - before[3].numbers["value"])
    assert cells(f1)[("XMAI",)][3].bold
    assert cells(changes)[("XMAI",)][7].text == "0.778"  # 28 of 36 kept their label
    assert len(methods.rows) == 3


def test_several_dual_encoders_need_a_name(entailed, tmp_path):
    write_items(tmp_path / "a" / "vilt" / "seed=0", entailment_items().items)
    for name in ("clip", "other"):
        write_items(tmp_path / "a" / name / "seed=0", insertion_items(name).items)
    with pytest.raises(UserError, match=r"clip, other answered benchmark=insertion: name one"):
        table("xmai_2").build(Runs(tmp_path))
    part = ours(table("xmai_2", relevance_models={"c": "a/other"}).build(Runs(tmp_path)))[0]
    assert len(part.columns) == 8
    alone = ours(table("xmai_2", relevance="text_of_nothing").build(Runs(tmp_path)))[0]
    assert len(alone.columns) == 4


def test_labels_outside_the_three_are_refused(tmp_path):
    columns = dict(entailment_items().items.columns)
    columns["predicted"] = np.array(["perhaps", *columns["predicted"][1:]], object)
    items = type(entailment_items().items)("entailment", "w", "d", columns)
    write_items(tmp_path / "a" / "m" / "seed=0", items)
    with pytest.raises(UserError, match=r"predicted='perhaps' is invalid: choose from entailment"):
        table("xmai_2").build(Runs(tmp_path))


def test_figures_5_and_6_have_the_entailment_of_folders_by_their_records(tmp_path):
    sources = {f"m{n}": str(record(tmp_path / f"f{n}", t=t, weights=(1, weight, 5)))
               for n, (t, weight) in enumerate([(0.7, 5), (0.5, 5), (0.7, 1)])}  # fmt: skip
    methods = {"m0": 0.05, "m1": 0.1, "m2": 0.02}
    items = entailment_items("vilt", methods, sources=sources).items
    write_items(tmp_path / "a" / "vilt" / "seed=0", items)
    document = table("xmai_figure_6").build(Runs(tmp_path))
    assert [curve.title for curve in document.curves] == [
        f"Entailment, vilt: {name} ↓" for name in ("Acc.", "Precision", "Recall", "F1")
    ]
    assert sorted(document.curves[0].series["λ2"]) == [1.0, 5.0]
    [curve] = table("xmai_figure_5", metrics=["Acc. ↓"]).build(Runs(tmp_path)).curves
    answers = entailment_items("vilt", methods, sources=sources)
    right = list(answers.by_key("accuracy", "m1").values())
    assert curve.series["t"][0.5][0] == pytest.approx(np.mean(right))
    with pytest.raises(UserError, match="'skew' is invalid: choose from insertion, entailment"):
        table("xmai_figure_6", tasks={"X": "skew"}).build(Runs(tmp_path))


def test_tables_4_and_5_count_words_and_texts(runs):
    words = ours(table("xmai_4").build(runs))[0]
    inserted = insertion_items("own").by_key("inserted_words", "xmai")
    entry = cells(words)[("XMAI",)][0]
    assert entry.numbers == pytest.approx(
        {"value": np.mean(list(inserted.values())), "sd": np.std(list(inserted.values())), "n": 24}
    )
    texts = ours(table("xmai_5").build(runs))[0]
    assert texts.groups == (("own", 2),)
    novel, changed = cells(texts)[("CheckList",)]
    answers = insertion_items("own")
    rows = answers.rows("checklist")
    assert changed.text == f"{int(answers.items.metric('changed')[rows].sum())}"
    assert int(novel.text) == int(answers.items.metric("novel")[rows].sum())
    assert changed.small == "16.7 %"


def test_tables_3_and_6_read_settings_from_records_and_not_from_names(ablation):
    theirs, part = table("xmai_3", models=CLIP).build(ablation).parts
    assert theirs.labels == ("k",)
    assert [labels for labels, _ in part.rows] == [("3",), ("5",), ("10",)]
    part = ours(table("xmai_6", models=CLIP).build(ablation))[0]
    assert part.labels == ("λ1", "λ2", "λ3", "k", "t")
    assert r"$\lambda$1" in to_latex(table("xmai_6", models=CLIP).build(ablation))
    assert [labels for labels, _ in part.rows] == [
        ("0", "0", "-1", "3", "0.7"), ("0", "5", "5", "3", "0.7"), ("1", "0", "5", "3", "0.7"),
        ("1", "5", "1", "3", "0.7"), ("1", "5", "5", "3", "0.5"), ("1", "5", "5", "3", "0.7"),
        ("1", "5", "5", "5", "0.7"), ("1", "5", "5", "10", "0.7"),
    ]  # fmt: skip
    mrr = cells(part)[("1", "5", "5", "10", "0.7")][0]
    means = [np.mean(list(read.values())) for read in _by_seed(ablation, "m2")]
    assert mrr.numbers["value"] == pytest.approx(np.mean(means))


def _by_seed(runs: Runs, method: str):
    from cfaug.evaluation.text_pairs.text_pair_items import InsertionItems
    from cfaug.report.items import read_items

    for seed in (0, 1):
        items = read_items(runs.root / "weights" / "clip" / f"seed={seed}", "own_insertion")
        yield InsertionItems("m", items).by_key("mrr", method)


def test_table_3_has_the_time_of_the_row_with_the_same_setting(ablation, tmp_path):
    file = tmp_path / "timing.csv"
    file.write_text(
        "method,seconds_per_caption,captions,machine,k\nxmai,0.2,100,2 cores,\n"
        "xmai,0.25,100,2 cores,5\nclare,3,10,2 cores,\n"
    )
    part = ours(table("xmai_3", timing=str(file), models=CLIP).build(ablation))[0]
    times = {labels[0]: entries[-1].text for labels, entries in part.rows}
    assert times["5"] == "0.250"
    assert times["10"] == "–"
    assert part.columns[-1] == "Time (s) ↓"
    assert "2 cores" in part.notes[0]


def test_figure_4_varies_one_weight_while_the_others_stay(ablation):
    document = table("xmai_figure_4", models=CLIP).build(ablation)
    titles = [curve.title for curve in document.curves]
    assert titles[0] == "Retrieval, clip: MRR ↓ all photos"
    assert len(titles) == 6
    points = document.curves[0].series
    assert {name: sorted(line) for name, line in points.items()} == {
        "λ1": [0.0, 1.0], "λ2": [0.0, 5.0], "λ3": [1.0, 5.0],
    }  # fmt: skip
    assert set(points["λ1"][1.0]) == {0, 1}
    assert "prints no numbers" in " ".join(document.notes)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("xmai,0.2,ten,GPU", r"timing.csv, line 2.*should be numbers above 0"),
        ("xmai,0.2,9,GPU\nxmai,0.3,9,GPU", "line 3: the time of 'xmai' is duplicated"),
        ("xmai,-1,10,GPU", "should be numbers above 0"),
        ("xmai,inf,10,GPU", "should be numbers above 0"),
        ("xmai,0.2,10,", "lacks machine"),
    ],
)
def test_invalid_times_are_named(tmp_path, line, said):
    file = tmp_path / "timing.csv"
    file.write_text(f"method,seconds_per_caption,captions,machine\n{line}\n")
    with pytest.raises(UserError, match=said):
        read_timings(file)


def test_missing_times_name_the_command(tmp_path):
    with pytest.raises(UserError, match=r"is missing: write it with .*benchmarks.insertion"):
        read_timings(tmp_path / "timing.csv")
    (tmp_path / "timing.csv").write_text("method,seconds_per_caption,captions,machine\n")
    with pytest.raises(UserError, match="has no rows"):
        read_timings(tmp_path / "timing.csv")


def test_settings_that_are_no_numbers_or_missing(tmp_path):
    folder = record(tmp_path / "a")
    assert read_settings(folder, {"λ3": "recipe.editor.weights[2]"}) == {"λ3": 5.0}
    assert read_settings(folder, {"λ9": "recipe.editor.weights[9]"}) is None
    assert read_settings(folder, {"x": "recipe.editor.x"}) is None
    assert read_settings(tmp_path / "nowhere", {"k": "recipe.editor.k"}) is None
    file = folder / "run.json"
    file.write_text(file.read_text().replace("0.7", '"often"'))
    with pytest.raises(UserError, match=r"recipe.editor.threshold='often' is not a number"):
        read_settings(folder, {"t": "recipe.editor.threshold"})


def printed_values(name: str, key: str = "method") -> dict:
    printed = published(name)
    return {row[key]: dict(zip(printed["columns"], row["values"], strict=True))
            for row in printed["rows"]}  # fmt: skip


def test_the_falls_that_the_abstract_names_follow_from_the_tables():
    retrieval, entailment = printed_values("xmai_1"), printed_values("xmai_2")
    fall = 1 - retrieval["XMAI"]["MRR"] / retrieval["Original"]["MRR"]
    assert 100 * fall == pytest.approx(15.19, abs=0.005)
    fall = 1 - entailment["XMAI"]["F1"] / entailment["Original"]["F1"]
    assert 100 * fall == pytest.approx(20.99, abs=0.005)


def test_people_preferred_xmai_and_the_welch_test_did_not_tell_quality_apart():
    preference = published("xmai_preference")
    first, second, neither, examples = preference["rows"][0]["values"]
    assert first + second + neither == examples
    assert mcnemar(first, second) == pytest.approx(1.1e-4, abs=0.05e-4)
    original, changed = (SeedSummary(*preference["quality"][name]) for name in ("Original", "XMAI"))
    assert welch(original, changed, "two-sided") == pytest.approx(0.477, abs=0.0005)
