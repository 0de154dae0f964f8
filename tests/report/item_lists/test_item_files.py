"""Files of items, right or wrong: read, matched and compared; hand-made ones with known answers."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.report.document import to_markdown
from cfaug.report.item_lists.item_files import (
    compare_item_files,
    comparison_document,
    read_item_files,
)
from cfaug.report.item_lists.item_tables import ItemColumns
from cfaug.run.compare_answers import main
from cfaug.stats.item_tests import mcnemar
from cfaug.stats.significance import holm

# Items on which both, only the first, only the other, and none of two models is right: those of the
# released results of BiVLC's group score (github.com/IMirandaM/BiVLC, results/*.csv).
TEXT_COCO = (1534, 152, 254, 993)


def answers(counts: tuple[int, int, int, int]) -> tuple[list[bool], list[bool]]:
    both, first, other, none = counts
    ours = [True] * (both + first) + [False] * (other + none)
    return ours, [True] * both + [False] * first + [True] * other + [False] * none


def write(file: Path, rows: list[dict]) -> Path:
    with file.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, [*rows[0]], quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows)
    return file


def released(file: Path, right: list[bool], address: int = 0) -> Path:
    """Write answers in the released form: an image as Python prints it, captions, True or False."""
    image = "<PIL.JpegImageFile image mode=RGB size=500x332 at 0x7F89A456{:04X}>"
    rows = [
        {
            "image": image.format(address + place), "caption": f"A dog, {place}.\nA line.",
            "negative_caption": f"A cat, {place}.", "type": ("add", "swap")[place % 2],
            "group_score": value,
        }
        for place, value in enumerate(right)
    ]  # fmt: skip
    return write(file, rows)


def compare(*files: Path, **columns):
    return compare_item_files(read_item_files(files, ItemColumns(**columns)))


def test_the_released_form_gives_the_numbers_of_its_counts(tmp_path):
    ours, theirs = answers(TEXT_COCO)
    files = released(tmp_path / "a.csv", ours), released(tmp_path / "b.csv", theirs, 4096)
    [comparison] = compare(*files)
    assert round(100 * comparison.drawn.mean, 2) == -3.48
    assert round(100 * comparison.error, 2) == 0.68
    assert f"{comparison.p_exact:.1e}" == "4.7e-07"
    assert (comparison.better, comparison.worse, comparison.drawn.items) == (*TEXT_COCO[1:3], 2933)
    assert (comparison.metric, comparison.first, comparison.other) == ("group_score", "a", "b")


def rows(right, **columns) -> list[dict]:
    return [
        {"caption": f"c{n}", "right": value, **{k: v[n] for k, v in columns.items()}}
        for n, value in enumerate(right)
    ]


RIGHT, WRONG = [1, 1, 1, 0, 1, 1], [0, 0, 1, 0, 0, 1]


def test_rows_are_matched_by_name_or_by_place(tmp_path):
    ours = write(tmp_path / "a.csv", rows(RIGHT, item=[*"abcdef"]))
    mixed = list(reversed(rows(WRONG, item=[*"abcdef"])))
    theirs = write(tmp_path / "b.csv", mixed)
    [comparison] = compare(ours, theirs)
    assert (comparison.better, comparison.worse) == (3, 0)
    assert comparison.p == mcnemar(3, 0) == 0.25
    [named] = compare(ours, theirs, item="caption")
    assert replace(named, cluster_error=0) == replace(comparison, cluster_error=0)  # NaN in both
    by_place = [{k: v for k, v in row.items() if k != "item"} for row in mixed]
    third = write(tmp_path / "c.csv", by_place)
    with pytest.raises(UserError, match=r"c\.csv, line 2: caption is 'c5', and 'c0' at .*a\.csv"):
        compare(ours, third)
    [again] = compare(ours, third, item=["caption"])
    assert (again.better, again.worse) == (3, 0)


def test_other_items_are_named(tmp_path):
    ours = write(tmp_path / "a.csv", rows(RIGHT, item=[*"abcdef"]))
    theirs = write(tmp_path / "b.csv", rows(WRONG, item=[*"abcxyz"]))
    with pytest.raises(UserError, match=r"b\.csv lacks the items 'd', 'e', 'f':"):
        compare(ours, theirs)
    more = write(tmp_path / "c.csv", rows([*WRONG, 1], item=[*"abcdefg"]))
    with pytest.raises(UserError, match=r"a\.csv lacks the items 'g':"):
        compare(ours, more)
    short = write(tmp_path / "d.csv", rows(WRONG[:-1]))
    long = write(tmp_path / "e.csv", rows(RIGHT))
    with pytest.raises(UserError, match=r"e\.csv has 6 items and .*d\.csv 5: nothing names them"):
        compare(long, short)
    double = write(tmp_path / "f.csv", rows(RIGHT, photo=[*"aabbcc"]))
    with pytest.raises(UserError, match=r"line 3: the item 'a' is duplicated, it is at .*line 2"):
        compare(double, double, item="photo")


def test_clusters_are_drawn_together(tmp_path):
    rng = np.random.default_rng(0)
    base = rng.random(60) < 0.5
    gain = np.repeat(rng.random(20) < 0.4, 3)  # a photo is answered better, or it is not
    photo = [f"p{n // 3}" for n in range(60)]
    ours = write(tmp_path / "a.csv", rows((base | gain).astype(int), photo=photo))
    theirs = write(tmp_path / "b.csv", rows(base.astype(int), photo=photo))
    [clustered] = compare(ours, theirs, cluster="photo")
    [single] = compare(ours, theirs)
    assert (clustered.drawn.clusters, single.drawn.clusters) == (20, 60)
    assert clustered.error == single.error
    assert clustered.cluster_error > 1.1 * clustered.error
    assert math.isnan(single.cluster_error)
    assert (single.p, clustered.p) == (single.p_exact, clustered.drawn.p)
    called = [{**row, "cluster": row["photo"]} for row in rows(base.astype(int), photo=photo)]
    usual = write(tmp_path / "c.csv", called)
    assert compare(usual, ours)[0].drawn.clusters == 20


def test_parts_metrics_and_files_are_one_family(tmp_path):
    kinds = [*"xyxyxy"]
    files = [
        write(tmp_path / f"{name}.csv", rows(right, kind=kinds, score=np.linspace(0, level, 6)))
        for name, right, level in (("a", RIGHT, 1), ("b", WRONG, 2), ("c", [1] * 6, 3))
    ]
    tests = compare(*files, metrics=["right", "score"], by="kind")
    assert [(test.first, test.other) for test in tests][::6] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [test.part for test in tests[:3]] == ["all", "x", "y"]
    assert [test.p_holm for test in tests] == pytest.approx(
        holm([test.p for test in tests]).tolist()
    )
    score = tests[3]
    assert (score.metric, score.part, score.better, score.worse) == ("score", "all", 0, 5)
    assert math.isnan(score.p_exact)
    assert score.means == pytest.approx((0.5, 1.0))
    x = tests[1]
    assert (x.drawn.items, x.better, x.means) == (3, 2, (1.0, 1 / 3))


def test_what_is_right_or_wrong_is_found(tmp_path):
    def about(file, right, label, answer):
        made = rows(right, label=label, answer=answer, index=range(6))
        return write(tmp_path / file, made)

    ours = about("a.csv", RIGHT, [1, 0, 1, 0, 1, 0], [0.5, 0.1, 0.2, 0.3, 0.4, 1])
    theirs = about("b.csv", WRONG, [1, 0, 1, 0, 1, 0], [0.9, 0.1, 0.2, 0.3, 0.4, 1])
    read = read_item_files([ours, theirs], ItemColumns())
    assert ([*read.metrics], read.left_out) == (["right"], ["label"])
    [comparison] = compare_item_files(read)
    text = to_markdown(comparison_document(read, [comparison], "x"))
    assert "Not compared, as the same in all files: label." in text
    assert "McNemar's exact test" in text
    assert re.search(
        r"6 items: standard error \d+\.\d points; a difference of \d+\.\d points is found", text
    )
    with pytest.raises(UserError, match=r"label is '1'|no column") as caught:
        compare(ours, theirs, metrics="nothing")
    assert "it has caption, right, label" in str(caught.value)
    with pytest.raises(UserError, match=r"line 2: caption is 'c0': it should be 0 or 1"):
        compare(ours, theirs, metrics=["caption"])
    texts = [write(tmp_path / f"{n}.csv", [{"caption": "a", "answer": "yes"}]) for n in "xy"]
    with pytest.raises(UserError, match=r"columns\.metrics=.*among caption, answer"):
        compare(*texts)


def test_items_that_do_not_count_do_so_in_all(tmp_path):
    ours = write(tmp_path / "a.csv", rows(["right", 1, "", 0, 1, 1]))
    theirs = write(tmp_path / "b.csv", rows(["Wrong", 1, "nan", 0, 0, 1]))
    [comparison] = compare(ours, theirs)
    assert (comparison.drawn.items, comparison.better, comparison.worse) == (5, 2, 0)
    third = write(tmp_path / "c.csv", rows([0, 1, 1, "", 0, 1]))
    with pytest.raises(UserError, match=r"2 items have a value in one file .*a\.csv, line 4"):
        compare(ours, third)


def test_json_lines_and_hostile_files(tmp_path):
    lines = [json.dumps({"id": n, "right": bool(right)}) for n, right in enumerate(RIGHT)]
    ours = tmp_path / "a.jsonl"
    ours.write_text("\n".join(lines) + "\n")
    theirs = write(tmp_path / "b.csv", rows(WRONG, id=range(6)))
    [comparison] = compare(ours, theirs)
    assert (comparison.better, comparison.worse) == (3, 0)
    empty = tmp_path / "empty.csv"
    empty.write_text("item,right\n")
    with pytest.raises(UserError, match="has no items"):
        compare(ours, empty)
    ragged = tmp_path / "ragged.jsonl"
    ragged.write_text('{"id": 1, "right": 1}\n{"id": 2}\n')
    with pytest.raises(UserError, match="line 2: not every row has the column 'right'"):
        compare(ours, ragged)
    with pytest.raises(UserError, match="two files"):
        compare(ours)
    script = "<script>alert(1)</script>"
    hostile = [write(tmp_path / f"h{n}.csv", [{script: v, "x": 1 - v} for v in r])
               for n, r in enumerate((RIGHT, WRONG))]  # fmt: skip
    read = read_item_files(hostile, ItemColumns(metrics=script))
    page = to_markdown(comparison_document(read, compare_item_files(read), "x"))
    assert "<script" not in page


@pytest.mark.slow
def test_the_command_writes_every_form(tmp_path, capsys):
    files = [
        str(released(tmp_path / f"{name}.csv", right[:40] + right[-40:]))
        for name, right in zip("ab", answers((30, 20, 5, 50)), strict=True)
    ]
    words = [f"paths.runs={tmp_path / 'runs'}", "columns.by=type"]
    assert main([*files, *words]) == 0
    said = capsys.readouterr().out
    folder = tmp_path / "runs/compared"
    assert (
        "a scores 12.5 points higher on group_score than b (95 % 6.9 to 21.5, p = 0.002)." in said
    )
    with (folder / "a-against-b-by=type.csv").open() as handle:
        cells = {(row["row"], row["column"]): row["value"] for row in csv.DictReader(handle)}
    assert float(cells["a | b | group_score | all", "only first right"]) == 10
    assert "80 items: standard error" in (folder / "a-against-b-by=type.html").read_text()
    otherwise = f"{tmp_path}/../{Path(files[0]).relative_to(tmp_path.parent)}"
    for wrong, said in (
        (f"{tmp_path}/c.csv", "there is no file"),
        (files[0], "more than once"),
        (otherwise, f"{otherwise} is named more than once"),
    ):
        assert main([files[0], wrong, *words]) == 2
        assert said in capsys.readouterr().err


def test_a_part_called_all_and_files_of_one_stem_have_names_of_their_own(tmp_path):
    table = [{"item": i, "right": i % 2, "type": ("all", "dog")[i // 4]} for i in range(8)]
    first, second = write(tmp_path / "x.csv", table), tmp_path / "x.jsonl"
    second.write_text(
        "".join(json.dumps({**row, "right": int(row["item"] == 1)}) + "\n" for row in table)
    )
    rows = compare(first, second, by="type")
    assert {row.part: row.drawn.items for row in rows} == {"all": 8, "type=all": 4, "dog": 4}
    assert {(row.first, row.other) for row in rows} == {("x.csv", "x.jsonl")}


def test_the_p_of_values_that_are_not_right_or_wrong_is_in_the_table(tmp_path):
    files = [
        write(tmp_path / f"{name}.csv", [{"item": i, "score": value + i / 9} for i in range(5)])
        for name, value in (("a", 0.5), ("b", 0.1))
    ]
    answers = read_item_files(files, ItemColumns(metrics="score"))
    rows = compare_item_files(answers)
    text = to_markdown(comparison_document(answers, rows, "x"))
    assert "p, sign flips" in text
    assert "in their unit, and the signs of their differences are flipped for p" in text
    answers = read_item_files(files, ItemColumns(metrics="score", cluster="item"))
    text = to_markdown(comparison_document(answers, compare_item_files(answers), "x"))
    assert "whole clusters are flipped; values other than right and wrong are in their" in text
