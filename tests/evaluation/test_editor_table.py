"""table=edit_quality: means of editors, and the gains of arms trained on their sets."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau, ttest_rel

from cfaug.evaluation.editor_report import MEASURES, EditorGain, EditorsTable, compare_extremes
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import draw_figures
from cfaug.report.items import Items, write_items
from cfaug.report.results import RESULTS, Result, append_results

ARMS = {"sharp": "editors/sharp", "blurred": "editors/blurred", "oracle": "editors/oracle"}
ACCURACY = {"base": [0.3, 0.32, 0.31], "sharp": [0.45, 0.46, 0.44], "blurred": [0.4, 0.42, 0.35],
            "oracle": [0.6, 0.61, 0.59]}  # fmt: skip
KEPT = {"sharp": 24.0, "blurred": 12.0, "oracle": 100.0}


def items(edits=6):
    """Edits of three photos by three editors, two folders each; the last edit is a control."""
    columns = {name: [] for name in ("item", "cluster", "set", "folder", "photo", "kind",
                                     "text_before", "text", *MEASURES)}  # fmt: skip
    for editor, kept in KEPT.items():
        for folder in (0, 1):
            for n in range(edits):
                control = n == edits - 1
                row = {
                    "item": f"{editor}/{folder}/{n}", "cluster": f"photo {n % 3}", "set": editor,
                    "folder": folder, "photo": f"{editor}/{folder}/p", "text_before": "a",
                    "text": "b",
                    "kind": "reconstruction" if control else ("colour", "background")[n % 2],
                    "psnr": kept + n + folder, "ssim": 0.5, "feature_distance": 0.1,
                    "success": np.nan if control else float(n > 1), "direction": 0.2,
                    "text_similarity": 0.3, "rest_kept": 1.0,
                }  # fmt: skip
                for name, value in row.items():
                    columns[name].append(value)
    arrays = {n: np.array(v, np.float64) for n, v in columns.items() if n in MEASURES}
    return {**columns, **arrays, "folder": np.array(columns["folder"])}


@pytest.fixture
def runs(tmp_path):
    judge = tmp_path / "weights" / "clip" / "seed=0"
    write_items(judge, Items("edit_quality", "weights", "data", items()))
    for arm, accuracies in ACCURACY.items():
        for seed, value in enumerate(accuracies):
            folder = tmp_path / "editors" / arm / f"seed={seed}"
            folder.mkdir(parents=True)
            row = Result(
                f"editors/{arm}/seed={seed}", arm, seed, "ood_classification", "acc1", value, 560,
                f"{arm}{seed}", "data",
            )  # fmt: skip
            append_results(folder / RESULTS, [row])
    return Runs(tmp_path)


def table(**settings):
    given = {
        "name": "edit_quality", "title": "Editors", "arms": ARMS, "baseline": "editors/base",
        "gain": ["ood_classification", "acc1"], "compared": ["sharp", "blurred"],
    }  # fmt: skip
    return EditorsTable(**{**given, **settings})


def test_means_and_gains_are_those_of_the_items_and_results(runs):
    document = table().build(runs)
    quality, gains = document.parts
    cells = {labels: dict(zip(quality.columns, row, strict=True)) for labels, row in quality.rows}
    sharp = cells["sharp", "all edits"]
    assert sharp["n"].text == "10"
    assert sharp["psnr (dB)"].numbers["value"] == pytest.approx(24 + np.mean(range(5)) + 0.5)
    assert sharp["psnr (dB)"].numbers["sd"] == pytest.approx(np.std([26, 27], ddof=1))
    assert sharp["success"].numbers["value"] == pytest.approx(3 / 5)
    assert cells["sharp", "reconstruction"]["success"].text == "–"
    rows = {labels[0]: dict(zip(gains.columns, row, strict=True)) for labels, row in gains.rows}
    for name in ARMS:
        expected = np.mean(ACCURACY[name]) - np.mean(ACCURACY["base"])
        assert rows[name]["gain, points"].numbers["value"] == pytest.approx(expected)
    assert len(draw_figures(document)) == 2
    p = ttest_rel(ACCURACY["sharp"], ACCURACY["blurred"]).pvalue
    assert f"p = {p:.3f}" in document.answer
    assert "sharp, which keeps most (26.5 dB)" in document.answer
    assert "over 2 editors: 1.00" in document.answer


def test_the_answer_ranks_all_editors():
    rng = np.random.default_rng(0)
    gains = [
        EditorGain(f"e{n}", float(rng.normal()), {}, {s: float(rng.normal()) for s in range(4)})
        for n in range(5)
    ]
    kept, means = [gain.kept for gain in gains], [gain.gain for gain in gains]
    said = compare_extremes([*gains, EditorGain("unknown", float("nan"), {}, {0: 1.0})])
    assert f"over 5 editors: {kendalltau(kept, means).statistic:.2f}" in said
    assert said.startswith(f"e{int(np.argmax(kept))}, which keeps most")
    assert compare_extremes(gains[:1]) == ""


def test_what_is_missing_is_named_or_left_out(runs, tmp_path):
    with pytest.raises(MissingError, match=r"ood_classification acc1 of editors/none"):
        table(arms={"sharp": "editors/none"}).build(runs)
    left = table(arms={"sharp": "editors/none"}, partial=True).build(runs)
    assert len(left.parts) == 1
    assert table(arms={}, partial=True).build(runs).answer == ""
    with pytest.raises(MissingError, match="edits measured by"):
        table().build(Runs(tmp_path / "nothing"))
