"""results.jsonl: appended whole, read back strictly, compared only on equal seeds."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.report.results import Result, answered, append_results, read_results, require_equal_seeds


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "results.jsonl"


ROW = Result("demo/real/seed=1", "real", 1, "shapescapes_id_retrieval", "acc1", 0.5, 800, "abc")


def test_rows_come_back_and_the_last_of_a_metric_wins(tmp_path):
    path = tmp_path / "new" / "results.jsonl"
    append_results(path, [ROW, replace(ROW, metric="acc5", value=0.9)])
    append_results(path, [replace(ROW, value=0.6)])
    assert read_results(path) == [replace(ROW, value=0.6), replace(ROW, metric="acc5", value=0.9)]
    assert set(json.loads(path.read_text().splitlines()[0])) == {
        "run", "arm", "seed", "benchmark", "metric", "value", "n", "weights",
    }  # fmt: skip
    renamed = replace(ROW, run="v2/real/seed=1", value=0.7, chance=0.25)
    append_results(path, [renamed])
    assert read_results(path)[0] == renamed


def test_of_two_equal_evaluations_at_once_one_is_written(path):
    rows = [replace(ROW, together=2), replace(ROW, metric="acc5", together=2)]
    other_digits = [replace(row, value=row.value + 1e-7) for row in rows]
    append_results(path, rows, once=True)
    append_results(path, other_digits, once=True)
    assert read_results(path) == rows
    assert len(path.read_bytes().splitlines()) == 2
    new = [replace(row, weights="def") for row in rows]
    append_results(path, new, once=True)
    append_results(path, [replace(ROW, benchmark="x", together=2)], once=True)  # half of it
    whole = [replace(row, benchmark="x") for row in rows]
    append_results(path, whole, once=True)
    append_results(path, whole, once=True)
    assert read_results(path) == [*new, *whole]
    assert len(path.read_bytes().splitlines()) == 2 + 2 + 1 + 2


def test_a_torn_last_line_is_dropped_and_said(path, capsys):
    append_results(path, [ROW])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    assert read_results(path) == [ROW]
    assert str(path) in capsys.readouterr().err
    assert read_results(path) == [ROW]
    assert capsys.readouterr().err == ""  # once is enough
    append_results(path, [replace(ROW, metric="acc5")])
    assert "torn" in capsys.readouterr().err
    assert read_results(path) == [ROW, replace(ROW, metric="acc5")]
    path.write_bytes((2 * whole)[:-20])
    read_results(path)
    assert f"run evaluate.py to measure {ROW.benchmark} again" in capsys.readouterr().err


def test_a_whole_last_line_without_newline_is_kept(path, capsys):
    path.write_text(json.dumps(asdict(ROW)))
    assert read_results(path) == [ROW]
    append_results(path, [replace(ROW, metric="acc5")])
    assert read_results(path) == [ROW, replace(ROW, metric="acc5")]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"run": "a"', "not JSON"),
        ("[1]", "JSON object"),
        *(
            (json.dumps({**asdict(ROW), **changes}), message)
            for changes, message in (
                ({"seed": "1"}, "'seed' is '1'"),
                ({"n": True}, "'n' is True"),
                ({"n": 0}, "'n' is 0; it should be at least 1"),
                ({"value": math.nan}, "not a number"),
                ({"value": 10**400}, "has 401 digits"),
                ({"arm": None}, "'arm' is None"),
                ({"data": None}, "'data' is None"),
                ({"metric": "a\nb"}, "'metric' has control characters"),
                ({"better": "less"}, "'better' is 'less'; choose higher or"),
                ({"better": ["lower"]}, "'better'"),
                ({"unit": 3}, "'unit' or 'by' is invalid"),
                ({"by": []}, "'by' is invalid"),
                ({"by": {"edit": 3}}, "'by' is invalid"),
                ({"by": {"edit": "a\x1b[0m"}}, "'by' is invalid"),
                ({"chance": "half"}, "'chance' is 'half', not a number"),
            )
        ),
    ],
)
def test_any_other_bad_line_is_an_error_that_names_it(path, line, message):
    good = json.dumps(asdict(ROW))
    path.write_text(f"{good}\n{line}\n{good}\n")
    with pytest.raises(UserError, match=message) as error:
        read_results(path)
    assert f"{path}, line 2" in str(error.value)


def test_nan_and_the_mean_of_nothing_are_not_written(path):
    with pytest.raises(UserError, match="acc1 of demo/real/seed=1 is of 0 items"):
        append_results(path, [ROW, replace(ROW, n=0)])
    with pytest.raises(UserError, match="is nan"):
        append_results(path, [ROW, replace(ROW, value=math.nan)])
    assert not path.exists()


def test_a_place_that_cannot_be_written_is_the_users_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        append_results(tmp_path / "file" / "results.jsonl", [ROW])


@pytest.mark.slow
def test_many_processes_append_whole_lines(path):
    code = (
        "import sys; from pathlib import Path; from dataclasses import replace\n"
        "from cfaug.report.results import append_results, Result\n"
        f"row = {ROW!r}\n"
        "for i in range(100): append_results(Path(sys.argv[1]), "
        "[replace(row, seed=int(sys.argv[2]), metric=f'm{i}{j}') for j in range(10)])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    jobs = [
        subprocess.Popen([sys.executable, "-c", code, str(path), str(seed)], env=environment)
        for seed in range(2)
    ]
    assert [job.wait() for job in jobs] == [0] * 2
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 2 * 1000


def test_a_benchmark_is_known_with_all_of_its_metrics_only(path):
    assert answered(path) == set()
    of_three = replace(ROW, data="d", together=3)
    rows = [of_three, replace(of_three, metric="acc5"), replace(of_three, by={"edit": "a"})]
    append_results(path, rows[:2])
    assert answered(path) == set(), "a part is missing"
    append_results(path, rows[2:])
    known = (ROW.benchmark, "abc", "d")
    assert answered(path) == {known}
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert answered(path) == set()
    # What is appended next removes the torn line for good; the metric is lost all the same.
    append_results(path, [replace(ROW, benchmark="other", together=1)])
    assert answered(path) == {("other", "abc", "")}
    append_results(path, rows)
    assert answered(path) == {known, ("other", "abc", "")}


def test_unequal_seeds_are_refused_by_name():
    rows = [replace(ROW, seed=s) for s in (1, 2, 3)]
    rows += [replace(ROW, arm="cf", seed=s) for s in (1, 3)]
    with pytest.raises(UserError, match="cf lacks seed 2"):
        require_equal_seeds(rows, "real")
    with pytest.raises(UserError, match="real lacks seeds 1, 3"):
        require_equal_seeds([replace(ROW, seed=2), *rows[3:]], "real")
    with pytest.raises(UserError, match="there are real, cf"):
        require_equal_seeds(rows, "rael")
    require_equal_seeds(rows, "real", untrained={"cf"})
    elsewhere = replace(ROW, arm="cf", benchmark="another")
    with pytest.raises(UserError, match="another acc1: real lacks seed 1"):
        require_equal_seeds([*rows[:3], elsewhere], "real")


def test_a_row_says_its_direction_unit_and_part_where_they_are_not_the_usual(path):
    skew = replace(ROW, metric="skew", better="lower", unit="nats", by={"edit": "colour"})
    append_results(path, [ROW, skew, replace(skew, by={"edit": "size"}), replace(skew, by={})])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert not {"better", "unit", "by"} & lines[0].keys()
    assert {k: lines[1][k] for k in ("better", "unit", "by")} == {
        "better": "lower", "unit": "nats", "by": {"edit": "colour"},
    }  # fmt: skip
    assert "by" not in lines[3]
    append_results(path, [replace(skew, value=0.75)])
    rows = read_results(path)
    assert [(row.cell[0], row.value) for row in rows[1:]] == [
        (f"{ROW.benchmark} [edit=colour]", 0.75),
        (f"{ROW.benchmark} [edit=size]", 0.5),
        (ROW.benchmark, 0.5),
    ]
    assert rows[0] == ROW
    assert rows[1] == replace(skew, value=0.75)


def test_a_metric_keeps_its_direction(path):
    append_results(path, [ROW, replace(ROW, metric="skew", better="lower")])
    before = path.read_bytes()
    turned = replace(ROW, metric="skew", by={"edit": "colour"})
    with pytest.raises(UserError, match=r"skew: lower values are better in earlier rows"):
        append_results(path, [turned])
    assert path.read_bytes() == before
    path.write_text(path.read_text().replace(', "better": "lower"', "") + before.decode())
    with pytest.raises(UserError, match=r"results.jsonl: .* give the benchmark another name"):
        read_results(path)
