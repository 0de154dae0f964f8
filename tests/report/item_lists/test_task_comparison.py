"""Models compared over the tasks of two folders: which files, which numbers, which words."""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
from pathlib import Path

import numpy as np
import openpyxl
import pytest

from cfaug.core.errors import UserError
from cfaug.report.item_lists.comparison_page import (
    explain,
    forest_plot,
    list_differing,
    overview_document,
    write_comparison_page,
)
from cfaug.report.item_lists.evaluation_folders import find_tasks
from cfaug.report.item_lists.item_files import comparison_document
from cfaug.report.item_lists.item_tables import ItemColumns, shorten_paths
from cfaug.report.item_lists.task_comparison import (
    compare_tasks,
    describe_difference,
    list_differences,
    pool,
    verdict,
)
from cfaug.report.plots import ACCENT
from cfaug.run.compare_answers import main
from cfaug.run.evaluate import main as evaluate

LOGS = Path(__file__).parent / "logs"
DATE = "2026-11-01T10-00-00.000000"


def write_log(folder, task, right, *, filters=("none",), metric="acc", date=DATE):
    """Write a log of lm-evaluation-harness in the form of its release 0.4.13."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({
            "doc_id": number,
            "doc": {"question": f"{task}: is {number} <b>odd</b>?", "photo": number // 3},
            "target": str(number % 2), "arguments": {}, "resps": [["x"]],
            "filtered_resps": [str(number % 2) if value else "<i>no</i>"], "filter": name,
            "doc_hash": f"h{number}", "prompt_hash": f"p{number}", "target_hash": f"t{number}",
            metric: float(value),
        })
        for name in filters for number, value in enumerate(right)
    ]  # fmt: skip
    (folder / f"samples_{task}_{date}.jsonl").write_text("\n".join(lines) + "\n")


@pytest.fixture
def pair(tmp_path):
    """Return two folders: b is better on sums, a on words, and they are alike on facts."""
    rng = np.random.default_rng(0)
    base = {task: rng.random(300) for task in ("sums", "words", "facts")}
    for name, gains in (("a", (0.4, 0.7, 0.5)), ("b", (0.6, 0.5, 0.5))):
        for task, share in zip(base, gains, strict=True):
            noise = rng.random(300) * 0.3
            write_log(tmp_path / name / "org__model", task, 0.7 * base[task] + noise < share)
    write_log(tmp_path / "a" / "org__model", "alone", [1, 0, 1])
    return tmp_path / "a", tmp_path / "b"


def compared(places, **columns):
    shared = find_tasks(places)
    results, left = compare_tasks(shared, ItemColumns(**columns))
    differences = list_differences(results)
    return shared, results, differences, pool(differences), left


def write_page(file, overview, results, differences, pooled):
    details = [(r, comparison_document(r.answers, r.comparisons, "x").parts[0]) for r in results]
    answer = verdict(differences, pooled)
    return write_comparison_page(file, overview, answer, details, differences, pooled)


def test_every_number_is_that_of_a_plain_loop(pair):
    shared, results, differences, pooled, left = compared(pair)
    assert left == {"alone": "alone is not compared: only a has it."}
    assert shared.names == ["a", "b"]
    assert shared.lacking == {"alone": ["a"]}
    assert [result.task for result in results] == ["facts", "sums", "words"]
    plain = {}
    for task in ("facts", "sums", "words"):
        answers = []
        for place in pair:
            [file] = place.rglob(f"samples_{task}_*")
            answers.append([json.loads(line)["acc"] for line in file.read_text().splitlines()])
        plain[task] = [x - y for x, y in zip(*answers, strict=True)]
    for d in differences:
        values = plain[d.task]
        mean = sum(values) / 300
        error = math.sqrt(sum((v - mean) ** 2 for v in values) / 299 / 300)
        assert d.row.drawn.mean == pytest.approx(mean)
        assert d.error == pytest.approx(error)
        if d.task != "facts":  # the same items again: enough, as the difference is detectable
            assert d.items_needed <= 300
            assert abs(mean) >= d.visible
    # Holm, written down: the smallest p times 3, the next times 2, never falling.
    order = sorted(differences, key=lambda d: d.row.p)
    least = 0.0
    for left_over, d in zip((3, 2, 1), order, strict=True):
        least = max(least, min(1.0, left_over * d.row.p))
        assert d.p_holm == pytest.approx(least)
    [mean] = pooled
    assert (mean.tasks, mean.metric) == (3, "")
    assert mean.mean == pytest.approx(sum(map(sum, plain.values())) / 900)
    assert mean.error == pytest.approx(math.sqrt(sum(d.error**2 for d in differences)) / 3)
    assert mean.heterogeneity_p < 1e-6
    [said] = verdict(differences, pooled)
    low, high = (100 * (mean.mean + side * 1.96 * mean.error) for side in (-1, 1))
    assert said == (
        "a is better on words, b on sums; no other difference is shown; on average a answers "
        f"{100 * mean.mean:.1f} points more (95 % {low:.1f} to {high:.1f})."
    )
    assert len(said.split()) <= 25


def test_one_task_is_a_sentence_with_the_better_model_first(pair):
    files = [next(place.rglob("samples_sums_*")) for place in pair]
    _, _, differences, pooled, _ = compared(files)
    assert not pooled
    said = describe_difference(differences[0])
    row = differences[0].row
    amount = f"{100 * abs(row.drawn.mean):.1f}"
    assert f" answers {amount} points more of sums than " in said
    assert said.startswith(row.other)
    low, high = -100 * row.drawn.high, -100 * row.drawn.low
    assert f"(95 % {low:.1f} to {high:.1f}, p = " in said
    assert len(said.split()) <= 25
    _, _, alike, _, _ = compared([next(place.rglob("samples_facts_*")) for place in pair])
    assert "No difference between" in describe_difference(alike[0])


def test_clusters_count_as_they_do_in_one_file(pair):
    _, _, differences, _, _ = compared(pair, cluster="doc.photo")
    for d in differences:
        assert d.row.drawn.clusters == 100
        assert d.error == d.row.cluster_error
        assert d.components.clusters == 100
        assert d.components.per_cluster == 3


def test_each_filter_is_a_row_and_counts_in_no_mean_of_all(tmp_path):
    rng = np.random.default_rng(1)
    for name in "ab":
        write_log(tmp_path / name, "math", rng.random(60) < 0.5, filters=("strict", "loose"))
        write_log(tmp_path / name, "facts", rng.random(60) < 0.5)
    places = (tmp_path / "a", tmp_path / "b")
    _, _, differences, pooled, _ = compared(places)
    assert [d.task for d in differences] == ["facts", "math, strict", "math, loose"]
    assert not pooled
    assert verdict(differences, pooled)[0].endswith("of 3 comparisons.")
    _, _, differences, pooled, _ = compared(places, filter="loose")
    assert [d.task for d in differences] == ["facts", "math, loose"]
    assert pooled[0].tasks == 2
    _, _, differences, _, left = compared(places, filter="none")
    assert [d.task for d in differences] == ["facts"]
    assert (
        "columns.filter=none is not a filter of its logs, which have strict, loose" in left["math"]
    )


def test_what_could_mean_two_things_is_asked_about(pair, tmp_path):
    first, second = pair
    write_log(first / "org__model", "sums", [1, 0], date="2026-11-02T10-00-00.000000")
    with pytest.raises(UserError, match=r"several logs of sums: .*newest=true takes the last"):
        find_tasks(pair)
    tasks = {task.task: task.files for task in find_tasks(pair, newest=True).tasks}
    assert "2026-11-02" in tasks["sums"][0].name
    write_log(first / "other__model", "words", [1, 0])
    with pytest.raises(UserError, match=r"several logs of words, .*the folder of one model"):
        find_tasks(pair, newest=True)
    (tmp_path / "none").mkdir()
    for places, said in (
        ([first, tmp_path / "gone"], "no file or folder"),
        ([second, tmp_path / "b/../b"], "more than once"),
        ([second], "two folders or files"),
        ([second, next(second.rglob("*.jsonl"))], "is a file and .* a folder"),
        ([second, tmp_path / "none"], "has no log that is read"),
    ):
        with pytest.raises(UserError, match=said):
            find_tasks(places)
    write_log(tmp_path / "c", "poems", [1, 0])
    with pytest.raises(UserError, match=r"no task in common: b has .*; c has poems"):
        find_tasks([second, tmp_path / "c"])


@pytest.mark.parametrize("evaluator", ["lm_eval", "lmms_eval", "inspect_ai"])
def test_the_evaluators_own_logs_are_found_in_their_folders(tmp_path, evaluator):
    places = []
    for name in "ab":
        source = LOGS / evaluator / name
        place = tmp_path / name
        place.mkdir()
        logs = source.iterdir() if source.is_dir() else [source.with_suffix(".eval")]
        for file in logs:
            (place / file.name).write_bytes(file.read_bytes())
        (place / "results_2026.json").write_text('{"results": {}}')
        places.append(place)
    _, results, differences, _, _ = compared(places)
    assert len(results) == (2 if evaluator == "lm_eval" else 1)  # that task has two filters
    assert differences
    assert any(any(said) for said in results[0].answers.said)


def test_names_are_as_long_as_they_have_to_be():
    assert shorten_paths([Path("x/v1.5/run"), Path("x/v2.0/run")]) == ["v1.5/run", "v2.0/run"]


def test_a_log_that_was_cut_off_is_left_out_with_what_to_do(pair):
    [file] = pair[1].rglob("samples_words_*")
    file.write_text(file.read_text()[:-9])
    *_, left = compared(pair)
    assert re.search(r"line 300 is not JSON: .*cut off; copy it again, or run its", left["words"])


def test_a_page_shows_the_items_that_differ_and_escapes_them(pair, tmp_path):
    _, results, differences, pooled, _ = compared(pair)
    ahead, behind = list_differing(results[1])
    values = results[1].answers.metrics["acc"]
    assert ahead[3] == int((values[0] > values[1]).sum())
    assert behind[3] == int((values[1] > values[0]).sum())
    item = behind[2][0]
    assert (item.better, item.worse) == (item.target, "<i>no</i>")
    assert re.fullmatch(r"doc_id \d+", item.item)
    overview = overview_document("x", "x", differences, pooled, ["<script>"])
    page = write_page(tmp_path / "x.html", overview, results, differences, pooled)
    text = page.read_text()
    assert text.count("<svg") == 1
    assert "&lt;b&gt;odd&lt;/b&gt;" in text
    assert not [part for part in ("<b>odd", "<i>no", "<script") if part in text]


@pytest.mark.slow
def test_the_command_writes_every_form_and_one_table(pair, tmp_path, capsys, monkeypatch):
    runs = tmp_path / "all runs"
    words = [*map(str, pair), f"paths.runs='{runs}'"]
    assert main([*words, "plan=2"]) == 0
    said = capsys.readouterr()
    # A row in two blocks of columns, and four of the plan.
    assert said.out.count("\nfacts | ") == 6
    assert said.out.splitlines()[-1].startswith("a is better on words, b on sums; no other ")
    assert "; *: p of at most 0.05." in " ".join(said.out.split())  # not a terminal
    assert "; bold: p of at most 0.05." in (runs / "compared/a-against-b-plan=2.md").read_text()
    assert "alone is not compared: only a has it" in said.out
    assert said.err.startswith("next: open ")
    folder = runs / "compared"
    stem = "a-against-b-plan=2"
    assert {file.name for file in folder.iterdir() if not file.name.startswith(".")} == {
        f"{stem}.{kind}" for kind in ("tex", "md", "csv", "json", "html")
    }
    with (folder / f"{stem}.csv").open() as handle:
        cells = {(row["row"], row["column"]): row["value"] for row in csv.DictReader(handle)}
    first = compared(pair)[2][0]
    assert float(cells["facts | acc", "difference [95 %]"]) == pytest.approx(first.row.drawn.mean)
    assert main([*words, "plan=2", "quiet=true"]) == 0
    assert capsys.readouterr().err == "warning: 1 of 4 tasks are not compared: alone\n"
    before = (folder / f"{stem}.html").read_bytes()
    assert main([*words, "plan=2"]) == 0  # the same names, the same bytes
    assert (folder / f"{stem}.html").read_bytes() == before
    monkeypatch.chdir(pair[0].parent)
    capsys.readouterr()
    for wrong, reason in (
        (["a", "gone"], "no file or folder gone"),
        (["a"], "two folders or files"),
        (["a", "b", "plan=0"], "plan"),
        (["a", "b", "column.by=x"], "did you mean columns.by"),
        (["a", "b", "places=[a,b]"], "not both"),
    ):
        assert main(wrong) == 2, wrong
        assert reason in capsys.readouterr().err


def write_sheet(folder, name, columns, model=None):
    """Write a table of VLMEvalKit: ``MODEL/MODEL_DATASET_JUDGE_result.xlsx``."""
    book = openpyxl.Workbook()
    names = ["index", "image", "question", "A", "B", "answer", "prediction", *columns]
    book.active.append(names)
    for number, values in enumerate(zip(*columns.values(), strict=True)):
        question = f"=1+{number}" if number == 3 else f"Is {number} odd?"
        answer = "AB"[number % 2]
        book.active.append([number, "iVBORw0KGgo=", question, "yes", "no", answer, "A", *values])
    folder.mkdir(exist_ok=True)
    book.save(folder / f"{model or folder.name}_{name}.xlsx")


RIGHT = {"a": [1, 1, 1, 0, 1, 0, 1, 1], "b": [0, 1, 0, 0, 1, 0, 0, 0]}


def test_vlmevalkits_tables_are_read_and_shown_without_their_judge(tmp_path):
    for name, hits in RIGHT.items():
        write_sheet(tmp_path / name, "MMBench_openai_result", {"hit": hits, "log": ["x"] * 8})
        for task in ("MMBench", "Poems"):
            write_sheet(tmp_path / name, task, {"category": ["c"] * 8})
        for numbers in ("acc", f"{name}_MMBench_acc"):
            (tmp_path / name / f"{numbers}.csv").write_text("split,overall\ndev,0.5\n")
    _, results, differences, _, left = compared((tmp_path / "a", tmp_path / "b"))
    [d] = differences
    assert (d.task, d.row.metric, d.row.better, d.row.worse) == ("MMBench", "hit", 4, 0)
    assert results[0].answers.questions[0] == "Is 0 odd?"
    assert results[0].answers.said[0][0] == "A"
    assert [*left] == ["Poems"]  # predictions that nobody judged
    broken = tmp_path / "a/a_MMBench_openai_result.xlsx"
    broken.write_bytes(broken.read_bytes()[:500])
    with pytest.raises(UserError, match="no task can be compared"):
        compared((tmp_path / "a", tmp_path / "b"))


def write_evaluation(folder, model, judge, tasks):
    for task in tasks:
        hits = RIGHT["a"]
        write_sheet(folder, task, {"category": ["c"] * 8}, model)
        write_sheet(folder, f"{task}_{judge}_result", {"hit": hits}, model)


@pytest.mark.parametrize("tasks", [("AI2D_TEST", "MMB_EN"), ("MMB_EN", "MMB_CN")])
@pytest.mark.parametrize("models", [("Atlas-VL", "llava_v1.5_7b"), ("vl_7b", "vl_13b")])
def test_the_models_name_is_no_part_of_a_task_whatever_the_folder_is_called(
    tmp_path, tasks, models
):
    places = [tmp_path / "before", tmp_path / "after"]
    for place, model in zip(places, models, strict=True):
        write_evaluation(place, model, "exact_matching", tasks)
    shared = find_tasks(places)
    assert {task.task for task in shared.tasks} == {*tasks}
    assert {file.name for task in shared.tasks for file in task.files} == {
        f"{model}_{task}_exact_matching_result.xlsx" for model in models for task in tasks
    }
    assert [note.split(": ")[0] for note in shared.notes] == ["before", "after"]
    assert f"begin with {models[0]}_, which is taken for the model's name" in shared.notes[0]
    assert not shared.lacking


def test_of_a_single_table_the_models_name_is_asked_for(tmp_path):
    for place, model in (("before", "Atlas-VL"), ("after", "Boreas-VL")):
        write_evaluation(tmp_path / place, model, "exact_matching", ["MMBench"])
    with pytest.raises(UserError, match=r"no task in common: .*call each folder by it, or name tw"):
        find_tasks([tmp_path / "before", tmp_path / "after"])


def test_two_judges_are_named_and_one_that_both_had_is_taken(tmp_path):
    places = [tmp_path / "Atlas-VL", tmp_path / "Boreas-VL"]
    for place, judge in zip(places, ("exact_matching", "chatgpt-0125"), strict=True):
        write_evaluation(place, place.name, judge, ["AI2D_TEST", "MMBench"])
    with pytest.raises(
        UserError,
        match="judged by exact_matching in Atlas-VL and by chatgpt-0125 in Boreas-VL; judge them ",
    ):
        find_tasks(places)
    write_evaluation(places[0], "Atlas-VL", "chatgpt-0125", ["MMBench"])
    shared = find_tasks(places)
    [task] = shared.tasks
    assert task.task == "MMBench"
    assert all("_chatgpt-0125_result" in file.name for file in task.files)
    assert [*shared.unlike] == ["AI2D_TEST"]
    assert not shared.lacking


def test_help_has_no_heading_without_lines(capsys):
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert "Settings (key=value) and their defaults:" in said
    assert "Choices (" not in said
    assert "read only in some cases" not in said


def test_the_old_word_is_answered_with_the_new_command(capsys):
    assert evaluate(["compare=[a.csv,'b c.csv']", "compare_columns.by=type"]) == 2
    said = capsys.readouterr().err
    assert "a command of its own now; type\ncfaug compare a.csv 'b c.csv' columns.by=type" in said


def test_another_choice_of_logs_is_another_table(pair, tmp_path, capsys):
    words = [*map(str, pair), f"paths.runs={tmp_path / 'runs'}"]
    assert main(words) == 0
    later = "2026-11-02T10-00-00.000000"
    write_log(pair[0] / "org__model", "sums", [1, 0] * 150, date=later)
    assert main(words) == 2
    assert "newest=true" in capsys.readouterr().err
    assert main([*words, "newest=true"]) == 0
    assert len(list((tmp_path / "runs/compared").glob("*.html"))) == 2


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    for name in "AB":
        right = rng.random(30) < 0.5
        write_log(Path(name), "TASK", right, filters=("strict-match", "flexible"), date="DATE")
        (Path(f"{name}.eval")).write_bytes((LOGS / f"inspect_ai/{name.lower()}.eval").read_bytes())
        [log] = Path(name).iterdir()
        log.write_text(log.read_text().replace('"photo"', '"image_id"'))
    page = (Path(__file__).parents[3] / "docs/evaluators.md").read_text()
    commands = re.findall(r"^cfaug compare (.*)$", page, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        assert main(shlex.split(command)) == 0, command
    said = capsys.readouterr().out
    assert "Is a difference of 1 point found?" in said
    assert "1 points" not in said
    assert len(list(Path("runs/compared").glob("*.html"))) == 4


def write_list(file, right, metric="correct"):
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [f"{number},{int(value)}" for number, value in enumerate(right)]
    file.write_text("\n".join([f"id,{metric}", *rows]) + "\n")
    return file


def compared_lists(folder, ours, theirs, metric="correct"):
    """Return the differences of two lists of one task, and the sentence on them."""
    files = [write_list(folder / f"{n}.csv", r, metric) for n, r in (("a", ours), ("b", theirs))]
    chosen = None if metric != "perplexity" else [metric]
    _, _, differences, pooled, _ = compared(files, metrics=chosen)
    return differences, verdict(differences, pooled)[0]


def test_lower_is_better_where_the_metric_says_so(tmp_path):
    right, wrong = [0] * 30 + [1] * 10, [1] * 30 + [0] * 10
    [d], said = compared_lists(tmp_path / "one", right, wrong, "word_error")
    assert d.gain > 0 > d.row.drawn.mean
    assert said.startswith("a scores 50.0 points lower, so better, on word_error than b (95 % ")
    [d], said = compared_lists(tmp_path / "words", [3] * 20, [5] * 20, "perplexity")
    assert said.startswith("a scores 2 lower, so better, on perplexity than b (95 % ")
    assert "in points, or in the metric's unit" in explain([d], [])[0]
    for name, errors in (("a", right), ("b", wrong)):
        write_list(tmp_path / name / "errors.csv", errors, "word_error")
        write_list(tmp_path / name / "facts.csv", right)
    places = (tmp_path / "a", tmp_path / "b")
    _, results, differences, pooled, _ = compared(places)
    assert not pooled  # one task of each direction
    assert verdict(differences, pooled) == [
        "a is better on errors; no difference is shown on the other task."
    ]
    ahead, behind = list_differing(results[0])
    assert (ahead[0], ahead[3], behind[3]) == ("a", 30, 10)


def test_too_few_items_or_no_spread_promise_nothing(tmp_path):
    [d], said = compared_lists(tmp_path, [1] * 5, [0] * 4 + [1])
    assert math.isnan(d.visible)
    assert d.items_needed == 6  # no p of 5 items is small
    assert said.endswith("(p = 0.12); with 5 items no p is below 0.062.")
    [d], _ = compared_lists(tmp_path, [1] * 30, [0] * 30)
    assert d.shown
    assert math.isnan(d.visible)
    assert d.items_needed is None
    [d], said = compared_lists(tmp_path, [1, 0] * 15, [1, 0] * 15)
    assert math.isnan(d.visible)
    assert said == "a and b score the same on every item."
    [d], said = compared_lists(tmp_path, [1] * 15 + [0] * 15, [0] * 11 + [1] * 19)
    assert "would find one of" in said
    assert len(said.split()) <= 25


def test_tasks_that_share_photos_are_not_counted_as_independent(tmp_path):
    rng = np.random.default_rng(5)
    for name in "ab":
        right = rng.random(90) < 0.5
        for task in ("sums", "words"):  # the same answers to the same photos twice
            write_log(tmp_path / name, task, right)
    _, _, differences, pooled, _ = compared((tmp_path / "a", tmp_path / "b"), cluster="doc.photo")
    [mean] = pooled
    assert mean.shared == 30
    assert mean.error == pytest.approx(differences[0].error, rel=0.03)  # of one task, not of two
    assert math.isnan(mean.heterogeneity_p)
    [said] = verdict(differences, pooled)
    assert " is shown on any of 2 tasks or on average (" in said
    assert len(said.split()) <= 25


def test_the_mean_of_small_tasks_has_students_interval(tmp_path):
    for name, shift in (("a", 0), ("b", 1)):
        for task in ("sums", "words"):
            write_list(tmp_path / name / f"{task}.csv", [1, 1 - shift, 0, 1, shift, 1 - shift])
    _, _, _, [mean], _ = compared((tmp_path / "a", tmp_path / "b"))
    assert mean.freedom == pytest.approx(10)
    assert mean.interval[1] - mean.mean == pytest.approx(2.228139 * mean.error)


def test_files_are_not_guessed(tmp_path):
    for name in "ab":
        write_list(tmp_path / name / "card_game.csv", [1, 0, 1])
        write_list(tmp_path / name / "summary.csv", [1, 0, 1])
    a, b = tmp_path / "a", tmp_path / "b"
    assert [task.task for task in find_tasks([a, b]).tasks] == ["card_game"]
    # VLMEvalKit's links to the tables of the last run, whose folder is within the model's.
    run = write_list(a / "T2026_G1" / "a_words.csv", [1, 0])
    (a / "a_words.csv").symlink_to(run)
    write_list(b / "words.csv", [1, 1])
    assert [task.task for task in find_tasks([a, b]).tasks] == ["words", "card_game"]
    (a / "other.json").write_text("{broken")
    assert find_tasks([a, b]).notes[0].startswith("other.json is left out: ")
    write_list(a / "words.tsv", [1, 0]).rename(a / "T2026_G1" / "a_words.tsv")
    with pytest.raises(UserError, match="no dates say which is the newest"):
        find_tasks([a, b], newest=True)
    for model in ("m1", "m2"):
        write_log(tmp_path / "c" / model, f"task-{model}", [1, 0])
        write_log(tmp_path / "d" / "m3", f"task-{model}", [1, 0])
    notes = find_tasks([tmp_path / "c", tmp_path / "d"]).notes
    assert [note.partition("/c ")[2] for note in notes] == [
        "has logs in several folders, m1, m2: they count as one model."
    ]
    with pytest.raises(UserError, match="have the same file of task-m1"):
        find_tasks([tmp_path / "c", tmp_path / "c/m1"])
    (tmp_path / "d" / "more").symlink_to(a)
    (tmp_path / "d" / ".hidden").mkdir()
    notes = find_tasks([tmp_path / "c", tmp_path / "d"]).notes
    assert f"more in {tmp_path / 'd'} is a link to a folder, which is not searched." in notes
    again = tmp_path / "again.csv"
    again.hardlink_to(b / "words.csv")
    with pytest.raises(UserError, match="more than once"):
        find_tasks([again, b / "words.csv"])


@pytest.mark.slow
def test_names_with_signs_are_folders_and_nothing_of_others_is_replaced(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for name in ("lr=0.1", "lr=0.2"):
        write_list(Path(name) / "words, 'x'.csv", [1, 0, 1], "hallucinated")
    compared_there = Path("runs/compared")
    compared_there.mkdir(parents=True)
    theirs = compared_there / "lr-0.1-against-lr-0.2.html"
    theirs.write_text("mine")
    assert main(["lr=0.1", "lr=0.2"]) == 2
    assert [file.name for file in compared_there.iterdir()] == [theirs.name]
    theirs.unlink()
    assert main(["lr=0.1", "lr=0.2", "plan=2"]) == 0
    said = capsys.readouterr().out
    assert "Lower is better" in said  # the cautions of a single task are printed, too
    assert main(["lr=0.1", "lr=0.2", "plan=101"]) == 2
    assert main(["lr=0.1", "lr=0.2", "plan=1", "columns.by=id"]) == 0


def test_the_newest_log_is_not_that_of_another_model(tmp_path):
    for place, logs in (("a", "ab"), ("b", "b")):
        (tmp_path / place).mkdir()
        for name in logs:
            log = (LOGS / f"inspect_ai/{name}.eval").read_bytes()
            (tmp_path / place / f"{name}.eval").write_bytes(log)
    with pytest.raises(UserError, match=r"a has logs of several models, .*: name the folder of"):
        find_tasks([tmp_path / "a", tmp_path / "b"], newest=True)


def test_a_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    for name in "ab":
        write_list(tmp_path / name / "facts.csv", [1, 0, 1])

    def walk(folder, onerror):
        onerror(PermissionError(13, "Permission denied", f"{folder}/closed"))

    monkeypatch.setattr("os.walk", walk)  # a superuser reads every folder
    with pytest.raises(UserError, match="a/closed cannot be read: Permission denied"):
        find_tasks([tmp_path / "a", tmp_path / "b"])


def test_long_names_and_names_of_columns_fit_the_page(tmp_path):
    places = [tmp_path / "items", tmp_path / ("long" * 30)]
    for place in places:
        write_list(place / "facts.csv", [1, 0, 1])
    _, results, differences, pooled, _ = compared(places)
    overview = overview_document("x", "x", differences, pooled, [])
    assert overview.parts[0].columns[:3] == ("items", "first", "other")
    page = write_page(tmp_path / "x.html", overview, results, differences, pooled)
    assert "points by which items is better than longlonglongl...glonglonglong" in " ".join(
        page.read_text().split()
    )


def test_one_cluster_is_not_counted_as_its_items(tmp_path):
    for name, right in (("a", 1), ("b", 0)):
        for task, photos in (("one", 1), ("two", 10), ("three", 10)):
            file = write_list(tmp_path / name / f"{task}.csv", [right] * 4 + [1] * 16)
            rows = file.read_text().splitlines()
            photo = ["photo", *(f"{task}{number % photos}" for number in range(20))]
            file.write_text("\n".join(f"{r},{c}" for r, c in zip(rows, photo, strict=True)) + "\n")
    _, _, differences, [mean], _ = compared((tmp_path / "a", tmp_path / "b"), cluster="photo")
    single = next(d for d in differences if d.task == "one")
    assert math.isnan(single.error)
    assert math.isnan(single.visible)
    assert mean.tasks == 2
    assert describe_difference(single).endswith("cannot be tested: all items are of one cluster.")


def test_a_p_below_all_numbers_is_not_zero(tmp_path):
    _, said = compared_lists(tmp_path, [1] * 1200, [0] * 1200)
    assert said.endswith(", p < 1e-300).")


def test_a_sentence_says_on_which_tasks_a_model_is_better(tmp_path):
    gains = {"sums": 9, "words": 0, "poems": 0, "facts": 0, "names": 0}
    for name in "ab":
        for task, shift in gains.items():
            right = [1] * 20 + [0] * (shift if name == "a" else 0) + [1] * 20
            write_log(tmp_path / name, task, right[:40])
        two = rng_answers(name)
        write_log(tmp_path / name, "math", two, filters=("strict", "loose"))
    places = (tmp_path / "a", tmp_path / "b")
    _, results, differences, pooled, _ = compared(places)
    assert verdict(differences, pooled) == [
        "b is better on sums (acc); no difference is shown on the other 6 rows of 5 tasks."
    ]
    # Each task alone has another p than all of them together.
    sums = next(result for result in results if result.task == "sums")
    [row] = sums.comparisons
    [d] = [d for d in differences if d.task == "sums"]
    assert row.p_holm < d.p_holm
    part = comparison_document(sums.answers, sums.comparisons, "x", within=True).parts[0]
    assert part.columns[-1] == "Holm, this task alone"
    assert not any(cell.bold for _, cells in part.rows for cell in cells)
    assert "and not over those of other tasks" in part.notes[0]
    alone = comparison_document(sums.answers, sums.comparisons, "x").parts[0]
    assert alone.columns[-1] == "Holm"
    assert alone.rows[0][1][-1].bold
    assert "Intervals are of one comparison each, without the corr" in explain(differences, [])[0]
    # With five tasks ahead they are counted.
    for task in gains:
        write_log(tmp_path / "c", task, [0] * 30 + [1] * 10)
    _, _, differences, pooled, _ = compared((tmp_path / "b", tmp_path / "c"))
    assert verdict(differences, [])[0] == "Of 5 tasks, b is better on 5 and c on 0."


def rng_answers(name):
    return np.random.default_rng("ab".index(name)).random(40) < 0.5


def test_a_mean_names_the_tasks_that_are_not_in_it_and_has_no_colour_of_significance(tmp_path):
    rng = np.random.default_rng(1)
    for name in "ab":
        for task in ("facts", "sums"):
            write_log(tmp_path / name, task, rng.random(60) < 0.5 + 0.4 * (name == "a"))
        write_log(tmp_path / name, "math", rng.random(60) < 0.5, metric="exact_match")
        write_log(tmp_path / name, "two", rng.random(60) < 0.5, filters=("s", "l"), metric="em")
    _, _, differences, pooled, _ = compared((tmp_path / "a", tmp_path / "b"))
    [mean] = pooled
    assert mean.names == ["facts", "sums"]
    said = next(line for line in explain(differences, pooled) if line.startswith("Mean over acc"))
    assert "for these tasks and no others. Not in it: math, two." in said
    assert mean.interval[0] > 0  # a difference, which the correction over tasks says nothing of
    drawn = forest_plot(differences, pooled, "x").svg
    without = forest_plot(differences, [], "x").svg
    assert drawn.lower().count(ACCENT.lower()) == without.lower().count(ACCENT.lower())


def write_choices(folder, likelihoods, texts, targets):
    folder.mkdir()
    lines = [
        json.dumps({
            "doc_id": number + 10, "doc": {"question": f"Which is number {number}?"},
            "target": target,
            "arguments": {
                f"gen_args_{i}": {"arg_0": "Question", "arg_1": f" {text}"}
                for i, text in enumerate(texts)
            },
            "resps": [[[str(v), "False"]] for v in values],
            "filtered_resps": [[str(v), "False"] for v in values], "filter": "none",
            "doc_hash": f"h{number}", "target_hash": f"t{number}", "prompt_hash": "p",
            "acc": float(str(values.index(max(values))) == target),
        })
        for number, (values, target) in enumerate(zip(likelihoods, targets, strict=True))
    ]  # fmt: skip
    (folder / f"samples_arc_{DATE}.jsonl").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("texts", "right", "wrong"),
    [
        (("one cat", "two dogs", "no fox"), "1: two dogs", "2: no fox"),
        (("same", "same", "same"), "1 of 0-2", "2 of 0-2"),
    ],
)
def test_choices_are_read_by_their_likelihoods(tmp_path, texts, right, wrong):
    good, bad = [-13.1, -2.5, -12.0], [-13.1, -12.5, -12.0]
    write_choices(tmp_path / "a", [good, good, bad], texts, ["1", "1", "1"])
    write_choices(tmp_path / "b", [bad, good, bad], texts, ["1", "1", "1"])
    _, results, *_ = compared((tmp_path / "a", tmp_path / "b"))
    ahead, _ = list_differing(results[0])
    [item] = ahead[2]
    assert (item.item, item.target, item.better, item.worse) == ("doc_id 10", right, right, wrong)
