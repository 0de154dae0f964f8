"""LANCE's tables and figures: the paper's rows beside ours, from items of made-up classifiers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from cfaug.annotation.forms import EditedItem
from cfaug.annotation.ratings import Rating, summarise_ratings, write_ratings
from cfaug.core.errors import UserError
from cfaug.data.shards.shards import FOLDER
from cfaug.evaluation.stress.edit_clusters import FILE as INSIGHTS
from cfaug.evaluation.stress.stress_items import EDITED, StressItems
from cfaug.evaluation.stress.stress_page import write_stress_pages
from cfaug.planning.build import build
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import Document, Part
from cfaug.report.items import items_file, write_items
from cfaug.report.paper_tables import published, read_answers, write_tables_page
from cfaug.report.results import Result, append_results
from tests.annotation.test_form import ALL, FULL
from tests.files_of_settings import settings_file
from tests.report.stress_example import read_image, stress_items

NETS = {"resnet50": {"background": 0.5, "domain": 0.1}, "vit_b16": {"domain": 0.4}}


def table(name: str, **changes):
    node = yaml.safe_load(settings_file(f"table/{name}").read_text()) | changes
    if node.get("backends") and not changes:  # what the command line fills in
        node["backends"] = {"shards/lance": "shards-of-nobody/lance"}
    return build(node)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    """Two models that were asked, and a folder of something else."""
    root = tmp_path_factory.mktemp("runs")
    for name, relies_on in NETS.items():
        answers = stress_items(name, 12, relies_on, sets=(EDITED, "random"))
        folder = root / "weights" / name / "seed=0"
        write_items(folder, answers.items)
        write_stress_pages(folder, name, answers.items.benchmark, read_image)
    (root / "weights" / "clip" / "seed=0" / "items").mkdir(parents=True)
    return Runs(root)


def items(name: str) -> StressItems:
    return stress_items(name, 12, NETS[name], sets=(EDITED, "random"))


def ours(document: Document) -> list[Part]:
    return [part for part in document.parts if part.ours]


def cells(part: Part) -> dict[tuple, tuple]:
    return dict(part.rows)


def test_table_2_has_the_papers_layout_twice(runs):
    document = table("lance_2").build(runs)
    theirs, unpaired, paired = document.parts
    assert (theirs.ours, unpaired.ours) == (False, True)
    assert theirs.groups == (("ResNet-50", 2), ("ViT-B", 2), ("ConvNext", 2), ("CLIP", 2))
    assert [labels for labels, _ in theirs.rows] == [
        ("Original", "Reference"), ("Reconstructed", "Control"), ("LANCE-R", "Ours - Baseline"),
        ("LANCE", "Ours"),
    ]  # fmt: skip
    assert [(c.text, c.small) for c in theirs.rows[3][1][:2]] == [
        ("74.01", "-5.8"),
        ("92.96", "-2.9"),
    ]
    assert unpaired.groups == (("resnet50", 2), ("vit_b16", 2))
    assert [labels[0] for labels, _ in unpaired.rows] == \
        ["Original", "Reconstructed", "LANCE-R", "LANCE"]  # fmt: skip
    for column, name in ((0, "resnet50"), (2, "vit_b16")):
        answers = items(name)
        hits = answers.items.metric("acc1")
        original = hits[answers.rows("original")].mean()
        for printed, part in (("LANCE", EDITED), ("LANCE-R", "random")):
            entry = cells(unpaired)[printed, {"LANCE": "Ours", "LANCE-R": "Baseline"}[printed]][
                column
            ]
            accuracy = hits[answers.rows(part)].mean()
            assert entry.text == f"{100 * accuracy:.2f}"
            assert entry.small == f"{100 * (accuracy - original):+.1f}"
            assert entry.numbers["n"] == len(answers.rows(part))
    drops = cells(paired)
    assert set(drops) == {(n, s) for n in NETS for s in ("Reconstructed", "LANCE-R", "LANCE")}
    lost = items("resnet50").items.metric("paired_drop1")[items("resnet50").rows(EDITED)].mean()
    assert drops["resnet50", "LANCE"][4].text == f"{-100 * lost:+.1f}"


def test_checkpoints_of_one_model_are_averaged(runs):
    models = {"both": ["weights/resnet50", "weights/vit_b16"]}
    unpaired, paired = ours(table("lance_2", models=models).build(runs))
    assert unpaired.groups == (("both", 2),)
    values = [items(n).items.metric("acc1")[items(n).rows(EDITED)].mean() for n in NETS]
    entry = cells(unpaired)["LANCE", "Ours"][0]
    assert entry.text == f"{100 * np.mean(values):.2f}"
    assert entry.sub == f"{100 * np.std(values, ddof=1):.1f}"
    assert {labels[0] for labels, _ in paired.rows} == {"both, 1", "both, 2"}
    (part,) = table("lance_figure_3", models=models).build(runs).parts
    assert cells(part)["domain",][0].sub


def test_figure_3_shows_every_kind(runs):
    document = table("lance_figure_3").build(runs)
    (part,) = document.parts
    (plot,) = document.bars
    for name, column in (("resnet50", 0), ("vit_b16", 1)):
        for effect in items(name).effects_by():
            entry = cells(part)[effect.group,][column]
            assert entry.text == f"{effect.mean:.3f}"
            assert entry.bold == (effect.p_holm <= 0.05 and effect.excess > 0)
            drawn = dict((n, rest) for n, *rest in plot.groups[effect.group])  # noqa: C402
            assert drawn[name] == pytest.approx([effect.mean, effect.low, effect.high])
    assert cells(part)["background",][0].bold
    assert "no numbers" in document.notes[0]


def test_figure_4_from_results(runs, tmp_path):
    quality = [("fid", 12.5, {"set": "edited"}), ("fid", 3.25, {"set": "reconstruction"}),
               ("fid", 99.0, {"set": "edited", "kind": "domain"}),
               ("fid_halves", 5.0, {"set": "original"})]  # fmt: skip
    rows = [Result("r", "vit", 0, "own_quality", m, v, 12, "w", by=by) for m, v, by in quality]
    perplexity = [("perplexity", 9.0, {"set": "original"}),
                  ("perplexity", 8.0, {"set": "original", "photos": "edited"})]  # fmt: skip
    rows += [
        Result("r", "vit", 0, "own_perplexity", m, v, 12, "w", by=by) for m, v, by in perplexity
    ]
    folder = tmp_path / "weights" / "vit" / "seed=0"
    folder.mkdir(parents=True)
    append_results(folder / "results.jsonl", rows)
    document = table("lance_figure_4").build(Runs(tmp_path))
    theirs, images, captions = document.parts
    assert cells(theirs)["LANCE",][0].text == "55.4"
    assert images.columns == ("FID", "FID of two halves")
    assert [[c.text for c in row] for row in cells(images).values()] == [
        ["–", "5"], ["3.25", "–"], ["–", "–"], ["12.5", "–"], ["–", "–"]
    ]  # fmt: skip
    assert captions.columns == ("Perplexity",)
    assert cells(captions)["Original",][0].text == "8"


def test_figure_6_shows_insights_with_pictures(runs):
    document = table("lance_figure_6").build(runs)
    (part,) = document.parts
    assert len(part.rows) == len(document.pictures) == 6
    insights = sorted(items("resnet50").insights(), key=lambda insight: -insight.effect.mean)[:3]
    assert [labels for labels, _ in part.rows[:3]] == [
        ("resnet50", insight.label, insight.kind, insight.words) for insight in insights
    ]
    assert document.pictures[0].png.startswith("iVBOR")
    assert f"{insights[0].effect.mean:.2f}" in document.pictures[0].caption


def test_figures_7_to_9_go_by_class(runs):
    answers = items("vit_b16")
    rows = {label: [r for r in answers.rows(EDITED) if answers.texts("class")[r] == label]
            for label in ("ball", "cube", "star")}  # fmt: skip
    hits, photo = answers.items.metric("acc1"), answers.items.metric("photo_acc1")
    for number, wanted in (
        (7, {label: f"{len(edits)}" for label, edits in rows.items()}),
        (8, {label: f"{100 * hits[edits].mean():.1f}" for label, edits in rows.items()}),
    ):
        document = table(f"lance_figure_{number}").build(runs)
        (part,) = document.parts
        assert part.columns == ("resnet50", "vit_b16")
        assert {labels[0]: row[1].text for labels, row in part.rows} == wanted
        assert [len(bars) for bars in document.bars[0].groups.values()] == [2, 2, 2]
    (part,) = table("lance_figure_9", after="SKETCH").build(runs).parts
    for labels, row in part.rows:
        edits = [r for r in rows[labels[0]] if answers.texts("after")[r] == "sketch"]
        assert len(edits) == 4
        assert row[1].text == f"{100 * (hits[edits] - photo[edits]).mean():+.1f}"
    both = {"both": ["weights/resnet50", "weights/vit_b16"]}
    (part,) = table("lance_figure_8", models=both).build(runs).parts
    assert all(row[0].sub for _, row in part.rows)
    with pytest.raises(MissingError, match="edits of kind domain to 'painting'"):
        table("lance_figure_9").build(runs)
    with pytest.raises(UserError, match="choose from edits, accuracy, change"):
        table("lance_figure_9", shows="drop")


def test_insights_of_other_answers_are_not_shown(runs, tmp_path):
    for folder in (runs.root / "weights" / name / "seed=0" for name in NETS):
        other = tmp_path / folder.relative_to(runs.root)
        other.mkdir(parents=True)
        (other / INSIGHTS).write_text((folder / INSIGHTS).read_text())
        answers = items(folder.parent.name).items
        write_items(other, replace(answers, weights="of another checkpoint"))
    with pytest.raises(MissingError, match="insights into classes"):
        table("lance_figure_6").build(Runs(tmp_path))
    (tmp_path / "weights/vit_b16/seed=0" / INSIGHTS).write_text("[]")
    with pytest.raises(UserError, match=r"insights\.json is not what"):
        table("lance_figure_6").build(Runs(tmp_path))


def edits_of(folder: Path) -> None:
    """Write edits as the captions stage does: two kinds, judged."""
    lines = []
    for n in range(4):
        kind = ("adjective", "domain")[n % 2]
        note = {"kind_correct": n != 2, "label_kept": True}
        lost = {
            "text": "b",
            "kind": "subject",
            "before": "ball",
            "after": "cube",
            "reason": "changes the label",
            "extra": {"kind_correct": True, "label_kept": n == 1},
        }
        made = {"key": f"k{n}", "texts": ["a", "b"], "extra": {}, "details": [{}, note],
                "edits": [None, {"kind": kind, "before": "x", "after": "y"}]}  # fmt: skip
        lines.append({"key": f"k{n}", "group": f"g{n}", "texts": ["a"], "survivors": {},
                      "sets": [made], "rejected": [lost]})  # fmt: skip
    import hashlib

    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    (folder / FOLDER).mkdir(parents=True)
    (folder / FOLDER / "00000.jsonl").write_bytes(content)
    commit = {
        "kind": "cfaug-captions", "sha256": hashlib.sha256(content).hexdigest(), "captions": 0,
        "sets": 0, "members": 0, "rejected": {}, "models": {}, "failed": 0,
    }  # fmt: skip
    (folder / FOLDER / "00000.json").write_text(json.dumps(commit))


def test_table_3_counts_what_checks_said(tmp_path):
    edits_of(tmp_path / "rules")
    document = table("lance_3", backends={"rules": str(tmp_path / "rules")}).build(Runs(tmp_path))
    theirs, part = document.parts
    assert cells(theirs)["Edit Success (%)",][-1].text == "89"
    assert part.columns == ("Subject", "Adjective", "Domain", "Overall")
    percents = {labels[0]: [c.text for c in row] for labels, row in part.rows}
    assert percents["Edit Success (%)"] == ["100.0", "50.0", "100.0", "87.5"]
    assert percents["Filter precision (%)"] == ["75.0", "–", "–", "75.0"]
    assert percents["Filter recall (%)"] == ["100.0", "–", "–", "100.0"]
    with pytest.raises(MissingError, match="checked edits in nowhere"):
        table("lance_3", backends={"x": "nowhere"}).build(Runs(tmp_path))


def test_table_4_from_peoples_ratings(tmp_path):
    people = [
        EditedItem(f"k{i}", 2, ("a", "b"), 2, kind=("adjective", "domain")[i % 2], change="x")
        for i in range(4)
    ]
    given = [Rating(i, who, FULL | {"realism": 1 + i}) for i in range(4) for who in "ab"]
    write_ratings(summarise_ratings(given, people, ALL, "shards"), tmp_path / "annotation")
    theirs, part = table("lance_4").build(Runs(tmp_path)).parts
    assert [(c.text, c.sub) for c in cells(theirs)["Image Realism (1-5)",]][:2] == [
        ("4.2", "0.5"), ("4.4", "0.5")
    ]  # fmt: skip
    assert cells(part)["Image Realism (1-5)",][2].text == "2.5"
    assert part.columns == ("Adjective", "Domain", "Overall", "Agreement")


def test_a_kind_that_one_model_was_not_asked_about_has_no_bar(runs, tmp_path):
    for name in NETS:
        answers = items(name).items
        kinds = np.asarray(answers.columns["kind"])
        kept = kinds != "domain" if name == "vit_b16" else np.ones(len(answers), bool)
        columns = {column: np.asarray(values)[kept] for column, values in answers.columns.items()}
        write_items(tmp_path / "weights" / name / "seed=0", replace(answers, columns=columns))
    document = table("lance_figure_3").build(Runs(tmp_path))
    assert cells(document.parts[0])["domain",][1].text == "–"
    assert document.bars[0].groups["domain"][1] == ("vit_b16", None, None, None)
    (tmp_path / "t.json").write_text(document.to_json())
    assert write_tables_page(tmp_path).read_text().count("fill: var(--accent)") == 1 + 2


def test_two_benchmarks_of_one_checkpoint_are_told_apart(runs, tmp_path):
    folder = tmp_path / "weights" / "net" / "seed=0"
    for name in ("a_stress", "b_stress"):
        write_items(folder, stress_items(benchmark=name).items)
    with pytest.raises(UserError, match=r"a_stress, b_stress: name one, as in table\.benchmark"):
        read_answers(tmp_path, "stress", None, StressItems)
    assert set(read_answers(tmp_path, "b_stress", None, StressItems)) == {"net"}
    items_file(folder, "b_stress").unlink()
    write_items(tmp_path / "weights" / "net" / "seed=1", stress_items(benchmark="a_stress").items)
    assert set(read_answers(tmp_path, "stress", None, StressItems)) == {
        "net, seed=0",
        "net, seed=1",
    }


# LANCE's own numbers: transcribed whole, and consistent where the paper is.


def test_a_name_that_is_not_published_is_refused():
    with pytest.raises(UserError, match=r"no numbers of lance_9; there are .*lance_2"):
        published("lance_9")


@pytest.mark.parametrize("row", ["Reconstructed", "LANCE-R", "LANCE"])
def test_the_changes_of_table_2_follow_from_its_values(row):
    """They were cut off or rounded: ResNet-50's -1.05 and -5.85 are printed -1.0 and -5.8."""
    rows = {printed["set"]: printed for printed in published("lance_2")["rows"]}
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
