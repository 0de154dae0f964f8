"""The stress test on edits of somebody's own: its numbers, by hand; and what it cannot compare."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.evaluation.failures import FailureRule, Finder, find_failures
from cfaug.evaluation.stress.stress import Stress
from cfaug.evaluation.stress.stress_items import describe_limits, drops_document, write_drops
from cfaug.models.task_specs import ImageClassification
from cfaug.report.items import Items, read_items, write_items
from tests.data.edits import file_of
from tests.evaluation.drawn_questions import rows
from tests.evaluation.joined import CLASSES, picture
from tests.evaluation.stress.test_stress import Twin, opener
from tests.models import tiny
from tests.report.example import data_of

RULE = FailureRule(minimum=-1, alpha=1, least_items=2)
NAMES = [f"{label}/{number}" for number in range(3) for label in CLASSES]
KINDS = ("fog/1", "fog/3", "blur")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tiny.save_classifier(tmp_path_factory.mktemp("weights") / "classifier")
    return ImageClassification(str(folder)).load()


def lay(folder: Path, *, again: int = 0) -> Path:
    """Write nine photos with three edits each, and reconstructions of the first ones."""

    def put(name: str, *seed: int) -> None:
        file = folder / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(*seed))

    for n, name in enumerate(NAMES):
        put(f"original/{name}", 0, n)
        for k, kind in enumerate(KINDS, 1):
            put(f"edited/{kind}/{name}", 0, n, k)
        if n < again:
            put(f"edited/reconstruction/{name}", 0, n, 9)
    return folder


def ask(folder: Path, classifier, **settings):
    (benchmark,) = Stress(str(folder), **settings).open(opener(folder.parent))
    return benchmark, benchmark.run(classifier)


def cells_of(benchmark, evaluation):
    return benchmark.failure_cells(Items(benchmark.name, "", "", evaluation.items))


@pytest.fixture(scope="module")
def answered(tmp_path_factory, classifier):
    """Probabilities of the true class and hits by file, one image at a time, by no code of ours."""
    folder = lay(tmp_path_factory.mktemp("own") / "x", again=9)
    twin = Twin(classifier)
    answers = {}
    for file in folder.rglob("*.png"):
        name = file.relative_to(folder).with_suffix("").as_posix()
        answers[name] = twin.describe(file.read_bytes(), name.split("/")[-2])
    return folder, answers


def test_every_number_is_what_one_file_at_a_time_gives(answered, classifier):
    folder, answers = answered
    benchmark, evaluation = ask(folder, classifier, parts=["kind", "class", "severity"])
    items = rows(evaluation)
    assert len(items) == len(answers) == 9 * 5
    index = benchmark._sets[0].index
    files = {index.key(r): file_of(index, r).removesuffix(".png") for r in range(len(index))}
    by_kind, by_level = defaultdict(list), defaultdict(list)
    for row in items.values():
        assert row["classes"] == len(classifier.classes)
        photo = items[row["photo"]]
        place = files[row["item"].partition("/")[2]]
        assert row["p"] == pytest.approx(answers[place]["p"], abs=1e-6)
        parts = place.split("/")
        name = "/".join(parts[-2:])
        assert row["class"] == parts[-2]
        before, again = answers[f"original/{name}"], answers[f"edited/reconstruction/{name}"]
        if row["set"] == "original":
            assert place == f"original/{name}"
            continue
        assert photo["p"] == pytest.approx(before["p"], abs=1e-6)
        assert row["p_reconstruction"] == pytest.approx(again["p"], abs=1e-6)
        assert row["p_drop"] == pytest.approx(before["p"] - answers[place]["p"], abs=2e-6)
        assert row["paired_drop1"] == before["acc1"] - answers[place]["acc1"]
        if row["set"] == "edited":
            assert row["kind"] == parts[1]
            assert row["severity"] == (parts[2] if len(parts) == 5 else None)
            assert row["net_drop1"] == again["acc1"] - answers[place]["acc1"]
            by_kind[parts[1]].append(row["paired_drop1"])
            by_level[row["severity"]].append(row["paired_drop1"])
    drops_by_part = {
        tuple(o.by.items())[-1]: o.value for o in evaluation.outcomes
        if o.metric == "paired_drop1" and len(o.by) == 2
    }  # fmt: skip
    for kind, drops in by_kind.items():
        assert drops_by_part["kind", kind] == pytest.approx(sum(drops) / len(drops))
    for level in ("1", "3"):
        assert drops_by_part["severity", level] == pytest.approx(np.mean(by_level[level]))
    chances = {o.metric: o.chance for o in evaluation.outcomes}
    assert chances["acc1"] == pytest.approx(1 / len(classifier.classes))
    assert chances["paired_drop1"] is None


@pytest.mark.parametrize("control", ["reconstruction", "original", "blur"])
def test_cells_are_edits_of_a_class_and_their_effects_by_hand(answered, classifier, control):
    folder, answers = answered
    benchmark, evaluation = ask(folder, classifier, control=control)
    search = find_failures(cells_of(benchmark, evaluation), RULE, "stress", Finder("", "", "", ""))
    sides = {"reconstruction": "edited/reconstruction", "original": "original",
             "blur": "edited/blur"}  # fmt: skip
    kinds = [*KINDS, "reconstruction"] if control != "reconstruction" else [*KINDS]
    kinds = [kind for kind in kinds if kind != control]
    words = {"fog/1": "fog, severity 1", "fog/3": "fog, severity 3", "blur": "blur"}
    # Photos that were made again are an edit like others where something else is the control, and
    # have no words.
    expected = {}
    for kind in kinds:
        for label in CLASSES:
            names = [name for name in NAMES if name.startswith(label)]
            excess = [
                answers[f"{sides[control]}/{name}"]["p"] - answers[f"edited/{kind}/{name}"]["p"]
                for name in names
            ]
            if kind in words:
                expected[label, words[kind]] = sum(excess) / len(excess)
    measured = {(f.labels[0], f.after): f.effect for f in search.failures}
    assert measured == pytest.approx(expected, abs=2e-6)
    assert {f.kind for f in search.failures} == {
        kind.split("/")[0] for kind in kinds if kind in words
    }


def test_without_a_reconstruction_nothing_is_blank(tmp_path, classifier):
    folder = lay(tmp_path / "x")
    benchmark, evaluation = ask(folder, classifier)
    cells = cells_of(benchmark, evaluation)
    search = find_failures(cells, RULE, "stress", Finder("", "", "", ""))
    assert (search.measured, search.uncontrolled) == (0, 27)
    assert "none of 27 edited items has a control" in search.reason
    assert "benchmark.control=original" in search.reason
    (tmp_path / "run").mkdir()
    items = Items(benchmark.name, "w", benchmark.data_hash, evaluation.items)
    write_items(tmp_path / "run", items)
    page = benchmark.write_page(tmp_path / "run", "net").read_text()
    assert "No photo has a reconstruction" in page
    table = (tmp_path / "run" / "stress.md").read_text()
    assert "No photo has a reconstruction" in table
    lines = [line for line in table.splitlines() if line.startswith("| edited")]
    assert len(lines) == 1 + 2 + 3 + 2  # the set, kinds, classes, severities
    for line in lines:
        cells_of_line = [cell.strip() for cell in line.strip("|").split("|")]
        assert "no reconstruction" in cells_of_line
        assert not {"", "–", "nan", "NaN", "None"} & set(cells_of_line)
    data = data_of(tmp_path / "run" / "stress.html")
    assert all(row[7] is None for row in data["effects"][0]["edited"][""])  # "not tested" there
    assert all(insight["x"] == "" for insight in data["insights"][0]["edited"])


def test_some_reconstructions(tmp_path, classifier):
    folder = lay(tmp_path / "x", again=4)
    benchmark, evaluation = ask(folder, classifier)
    search = find_failures(cells_of(benchmark, evaluation), RULE, "stress", Finder("", "", "", ""))
    assert search.uncontrolled == 15
    document = drops_document("net", Items(benchmark.name, "", "", evaluation.items))
    assert any("15 of 27 edits are of photos without a reconst" in note for note in document.notes)


def test_photos_at_chance_are_said(tmp_path):
    def items(right: int) -> Items:
        sets = ["original"] * 40 + ["edited"] * 40
        hits = np.array([1.0] * right + [0.0] * (80 - right))
        columns = {"set": sets, "acc1": hits, "classes": np.full(80, 4), "net_drop1": np.zeros(80)}
        return Items("x_stress", "w", "d", columns)

    (note,) = describe_limits("net", items(12))
    assert "not shown to be better than chance on the photos themselves (12 of 40 right" in note
    assert "chance is 25.0 %" in note
    assert describe_limits("net", items(20)) == []


def test_the_page_names_classes_in_words(tmp_path, classifier):
    """Labels that are WordNet ids are shown by the model's names of them."""
    lay(tmp_path / "x")

    class Named:
        transform, training = classifier.transform, False
        classes = tuple({"ball": "n02123045", "cube": "n02123159"}.get(name, name)
                        for name in classifier.classes)  # fmt: skip
        classify = staticmethod(classifier.classify)

    for side in (tmp_path / "x" / "original", *(tmp_path / "x" / "edited" / k for k in KINDS)):
        for label, wnid in (("ball", "n02123045"), ("cube", "n02123159")):
            (side / label).rename(side / wnid)
    benchmark, evaluation = ask(tmp_path / "x", Named())
    (tmp_path / "run").mkdir()
    items = Items(benchmark.name, "w", benchmark.data_hash, evaluation.items)
    write_items(tmp_path / "run", items)
    data = data_of(benchmark.write_page(tmp_path / "run", "net"))
    assert data["classes"] == [["star", "star"], ["n02123045", "tabby cat"],
                               ["n02123159", "tiger cat"]]  # fmt: skip
    write_drops(tmp_path / "run", "net", read_items(tmp_path / "run", benchmark.name))
    assert "tabby cat (n02123045)" in (tmp_path / "run" / "stress.md").read_text()


def test_a_list_with_a_line_for_each_edit_counts_a_photo_once(tmp_path, classifier):
    """Pairs with captions: the photo of two lines is one photo with two edits."""
    lines = []
    for n in range(4):
        for k in (1, 2):
            names = [f"{n}.png", f"{n}-{k}.png"]
            for name, seed in zip(names, ((0, n), (0, n, k)), strict=True):
                (tmp_path / "x").mkdir(exist_ok=True)
                (tmp_path / "x" / name).write_bytes(picture(*seed))
            lines.append({"image": names[0], "caption": "by day", "cf_image": names[1],
                          "cf_caption": f"by night {k}", "label": CLASSES[n % 3]})  # fmt: skip
    file = tmp_path / "x" / "pairs.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, evaluation = ask(tmp_path / "x", classifier)
    sets = list(evaluation.items["set"])
    assert (sets.count("original"), sets.count("edited")) == (4, 8)
    items = rows(evaluation)
    for row in items.values():
        assert items[row["photo"]]["class"] == row["class"]
    lines[1]["label"] = CLASSES[1]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UserError, match=r"class 'cube' in one line and 'ball' in another: which"):
        ask(tmp_path / "x", classifier)


def test_edits_that_change_nothing_and_settings_without_effect_are_said(
    tmp_path, classifier, capsys
):
    folder = lay(tmp_path / "x")
    (folder / "edited/blur/ball/0.png").write_bytes((folder / "original/ball/0.png").read_bytes())
    ask(folder, classifier)
    assert "1 edits are their photo, byte for byte" in capsys.readouterr().err
    shutil.rmtree(folder / "edited" / "fog")
    with pytest.raises(UserError, match=r"no edit of .* has a severity"):
        ask(folder, classifier, parts=["severity"])
    with pytest.raises(UserError, match="control=nothing: no edit is of that kind; there are blur"):
        ask(folder, classifier, control="nothing")


def test_kinds_without_their_photos_say_how_to_lay_them(tmp_path):
    """ImageNet-C's folders alone look like folders of classes."""
    for n, kind in enumerate(("fog", "snow")):
        (tmp_path / "x" / kind).mkdir(parents=True)
        (tmp_path / "x" / kind / "1.png").write_bytes(picture(n))
    with pytest.raises(
        UserError, match=r"none of its 2 images is edited.*original/ and edited/KIND"
    ):
        Stress(str(tmp_path / "x")).open(opener(tmp_path))
