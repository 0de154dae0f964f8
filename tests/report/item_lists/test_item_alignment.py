"""Files of the same items and of others, in every form: matched, or refused by file and line."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.report.item_lists.item_alignment import REMOVED
from cfaug.report.item_lists.item_files import compare_item_files, read_item_files
from cfaug.report.item_lists.item_tables import ItemColumns
from cfaug.run.compare_answers import CompareSettings
from cfaug.run.compare_answers import compare as compare_places
from tests.properties import examples

Rows = Sequence[dict[str, Any]]


def make_rows(right: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {"id": n, "question": f"How many, {n}?", "target": f"t{n % 3}", "photo": f"p{n // 2}",
         "right": value}
        for n, value in enumerate(right)
    ]  # fmt: skip


def write_lm_eval(folder: Path, rows: Rows) -> Path:
    file = folder / "samples_sums_2026-11-24T18-19-22.635100.jsonl"
    lines = [
        {"doc_id": row["id"], "doc": {"question": row["question"], "photo": row["photo"]},
         "target": row["target"], "filtered_resps": [folder.name], "filter": "none",
         "doc_hash": f"hash of {row['question']}", "prompt_hash": f"prompt {row['id']}",
         "acc": row["right"]}
        for row in rows
    ]  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def write_lmms_eval(folder: Path, rows: Rows) -> Path:
    file = folder / "20261124_180000_samples_cats.jsonl"
    lines = [
        {"doc_id": row["id"], "target": row["target"], "filtered_resps": folder.name,
         "doc_hash": "the same", "input": row["question"],
         "score": {"group": row["photo"], "is_correct": row["right"], "pred": folder.name}}
        for row in rows
    ]  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def inspect_content(folder: Path, rows: Rows) -> dict[str, Any]:
    samples = [
        {"id": row["id"], "epoch": epoch, "target": row["target"],
         "input": [{"id": f"{folder.name}{epoch}", "role": "user", "content": row["question"]}],
         "metadata": {"photo": row["photo"]}, "scores": {"match": {"value": "IC"[row["right"]]}}}
        for row in rows for epoch in (1, 2)
    ]  # fmt: skip
    about = {"model": f"test/{folder.name}", "task": "sums"}
    return {"status": "success", "eval": about, "samples": samples,
            "results": {"total_samples": len(samples)}}  # fmt: skip


def write_inspect(folder: Path, rows: Rows) -> Path:
    file = folder / "log.json"
    file.write_text(json.dumps(inspect_content(folder, rows)))
    return file


def with_answers(folder: Path, rows: Rows) -> list[dict[str, Any]]:
    return [{**row, "prediction": folder.name, "score": row["right"] / 3} for row in rows]


def write_csv(folder: Path, rows: Rows) -> Path:
    file = folder / "answers.csv"
    with file.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, with_answers(folder, rows)[0])
        writer.writeheader()
        writer.writerows(with_answers(folder, rows))
    return file


def write_jsonl(folder: Path, rows: Rows) -> Path:
    file = folder / "answers.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in with_answers(folder, rows)))
    return file


def write_parquet(folder: Path, rows: Rows) -> Path:
    file = folder / "answers.parquet"
    pq.write_table(pa.Table.from_pylist(with_answers(folder, rows)), file)
    return file


FORMS: dict[str, tuple[Callable[[Path, Rows], Path], str]] = {
    "lm-eval": (write_lm_eval, "doc.photo"),
    "lmms-eval": (write_lmms_eval, "score.group"),
    "inspect_ai": (write_inspect, "metadata.photo"),
    "csv": (write_csv, "photo"),
    "jsonl": (write_jsonl, "photo"),
    "parquet": (write_parquet, "photo"),
}
"""The writer of each form, and its column of clusters."""


def write(root: Path, form: str, name: str, rows: Rows) -> Path:
    folder = root / name
    folder.mkdir(exist_ok=True)
    return FORMS[form][0](folder, rows)


def compare(files: Sequence[Path], form: str, **columns: Any):
    answers = read_item_files(files, ItemColumns(cluster=FORMS[form][1], **columns))
    [tested] = compare_item_files(answers)
    return tested, answers


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_rows_that_are_permuted_dropped_doubled_or_changed(form, data):
    scores = st.lists(st.integers(0, 1), min_size=4, max_size=9)
    ours = data.draw(scores.filter(lambda right: len({*right}) > 1))
    theirs = [1 - value if n % 3 else value for n, value in enumerate(ours)]
    rows, others = make_rows(ours), make_rows(theirs)
    with TemporaryDirectory() as name:
        root = Path(name)
        first = write(root, form, "a", rows)
        plain, _ = compare([first, write(root, form, "b", others)], form)
        assert plain.drawn.mean == pytest.approx((sum(ours) - sum(theirs)) / len(ours))

        random.Random(data.draw(st.integers(0, 9))).shuffle(others)
        permuted, _ = compare([first, write(root, form, "b", others)], form)
        assert repr(permuted) == repr(plain)

        at = data.draw(st.integers(0, len(others) - 1))
        fewer = [*others[:at], *others[at + 1 :]]
        with pytest.raises(UserError, match=rf"lacks the items '{others[at]['id']}'"):
            compare([first, write(root, form, "b", fewer)], form)
        shared, answers = compare([first, write(root, form, "b", fewer)], form, common=True)
        assert shared.drawn.items == len(fewer)
        kept = [row for row in rows if row["id"] != others[at]["id"]]
        alone, _ = compare([write(root, form, "c", kept), write(root, form, "b", fewer)], form)
        assert (shared.better, shared.worse) == (alone.better, alone.worse)
        assert any(f"1 of {len(rows)} items are left out" in note for note in answers.notes)

        doubled = [*others, others[at]]
        with pytest.raises(UserError, match="duplicated"):
            compare([first, write(root, form, "b", doubled)], form)

        key = data.draw(st.sampled_from(["question", "target", "photo"]))
        changed = [*others[:at], {**others[at], key: "another"}, *others[at + 1 :]]
        with pytest.raises(UserError, match=r"is 'another|: another'|hash of another"):
            compare([first, write(root, form, "b", changed)], form)


def pair(root: Path, form: str, change: Callable[[Rows], Any] = lambda rows: rows) -> list[Path]:
    """Write two files of a form, the second one changed."""
    ours, theirs = make_rows([1, 1, 0, 1, 0, 1]), make_rows([0, 1, 0, 0, 1, 1])
    return [write(root, form, "a", ours), write(root, form, "b", change(theirs) or theirs)]


def edit_lines(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change every line of a jsonl."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        change(line)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_another_prompt_of_the_same_documents_is_said(tmp_path):
    files = pair(tmp_path, "lm-eval")
    edit_lines(files[1], lambda line: line.update(prompt_hash=f"other {line['doc_id']}"))
    _, answers = compare(files, "lm-eval")
    assert any("prompt_hash differs in 6 of 6 items" in note for note in answers.notes)
    edit_lines(files[1], lambda line: (line.pop("doc"), line.pop("doc_hash")))
    with pytest.raises(UserError, match=r"b/samples.*line 1: prompt_hash is 'other 0', and 'pro"):
        read_item_files(files, ItemColumns())


@pytest.mark.parametrize(
    ("change", "column"),
    [
        (lambda line: line.update(doc_hash="other"), "doc_hash"),
        (lambda line: line["doc"].update(question="Why?"), r"doc\.question"),
        (lambda line: line.update(target_hash="0") or line.update(target="no"), "target"),
    ],
)
def test_what_both_logs_say_of_a_document_agrees(tmp_path, change, column):
    files = pair(tmp_path, "lm-eval")
    edit_lines(files[1], change)
    with pytest.raises(UserError, match=rf"line 1: {column} is .*6 of 6 items.*not the same quest"):
        compare(files, "lm-eval")


def test_ignored_columns_may_differ(tmp_path):
    files = pair(tmp_path, "lm-eval")
    edit_lines(files[1], lambda line: line.update(doc_hash="of another version"))
    compare(files, "lm-eval", ignore=["doc_hash"])
    with pytest.raises(UserError, match="no file has a column 'doc_hsh'; they have doc"):
        compare(files, "lm-eval", ignore="doc_hsh")
    with pytest.raises(UserError, match=r"doc\.photo is read and ignored"):
        compare(files, "lm-eval", ignore=["doc.photo"])


def test_another_task_is_refused(tmp_path):
    files = pair(tmp_path, "lm-eval")
    renamed = files[1].rename(files[1].with_name(files[1].name.replace("sums", "sums_cot")))
    with pytest.raises(UserError, match="its task is 'sums_cot', and 'sums' in"):
        compare([files[0], renamed], "lm-eval")
    compare([files[0], renamed], "lm-eval", ignore="task")
    logs = pair(tmp_path, "inspect_ai")
    content = json.loads(logs[1].read_text())
    for task in ("other", "package/sums"):
        content["eval"]["task"] = task
        logs[1].write_text(json.dumps(content))
        if task == "other":
            with pytest.raises(UserError, match="its task is 'other'"):
                compare(logs, "inspect_ai")
        else:
            compare(logs, "inspect_ai")


def test_another_input_of_lmms_eval_is_another_question_unless_documents_agree(tmp_path):
    files = pair(tmp_path, "lmms-eval")
    edit_lines(files[1], lambda line: line.update(input=line["input"] + " Answer briefly."))
    with pytest.raises(UserError, match="line 1: input is 'How many, 0"):
        compare(files, "lmms-eval")
    for file in files:
        edit_lines(file, lambda line: line.update(doc_hash=f"h{line['doc_id']}"))
    _, answers = compare(files, "lmms-eval")
    assert any("input differs in 6 of 6 items" in note for note in answers.notes)


@pytest.mark.parametrize("status", ["error", "cancelled", "started"])
def test_a_log_that_did_not_finish_is_refused_and_its_items_can_be_compared(tmp_path, status):
    files = pair(tmp_path, "inspect_ai", lambda rows: rows[:4])
    content = json.loads(files[1].read_text())
    content |= {"status": status, "error": {"message": "out of memory\nTraceback"}}
    files[1].write_text(json.dumps(content))
    with pytest.raises(
        UserError, match=rf"status is '{status}' \(out of memory\).*eval-retry"
    ) as e:
        compare(files, "inspect_ai")
    assert "columns.common=true" in str(e.value)
    tested, answers = compare(files, "inspect_ai", common=True)
    assert tested.drawn.items == 4
    assert any(f"status is '{status}'" in note for note in answers.notes)
    assert any("2 of 6 items are left out" in note for note in answers.notes)


def test_logs_with_fewer_items_than_they_count_are_refused(tmp_path):
    logs = pair(tmp_path, "inspect_ai")
    content = json.loads(logs[1].read_text())
    del content["samples"][3:]
    logs[1].write_text(json.dumps(content))
    with pytest.raises(UserError, match="has 3 of the 12 samples"):
        compare(logs, "inspect_ai")
    notes = " ".join(compare(logs, "inspect_ai", common=True)[1].notes)
    assert "log.json: samples have 1 to 2 epochs" in notes
    assert str(tmp_path) not in notes
    counts = {"n-samples": {"sums": {"original": 9, "effective": 7}}}
    for form, name in (
        ("lm-eval", "results_2026-11-24T18-19-22.635100.json"),
        ("lmms-eval", "20261124_180000_results.json"),
    ):
        files = pair(tmp_path, form)
        counts["n-samples"]["cats"] = counts["n-samples"]["sums"]
        files[0].with_name(name).write_text(json.dumps(counts))
        with pytest.raises(UserError, match=r"has 6 of the 7 items .*: run the task again; or"):
            compare(files, form)
        _, answers = compare(files, form, common=True)
        assert any("a run of 7 of the 9 items" in note for note in answers.notes)


def test_samples_of_one_name_in_one_log_are_one_sample(tmp_path):
    logs = pair(tmp_path, "inspect_ai")
    content = json.loads(logs[1].read_text())
    content["samples"][1]["input"] = "What else?"
    logs[1].write_text(json.dumps(content))
    with pytest.raises(UserError, match="sample 0: input differs between its epochs"):
        compare(logs, "inspect_ai")


def test_texts_that_a_summary_cut_agree_with_the_whole(tmp_path):
    long = "word  and\nword " * 400
    logs = pair(tmp_path, "inspect_ai")
    for log, text, note in ((logs[0], long, "x" * 2000), (logs[1], long[:5120], "x" * 1021)):
        content = json.loads(log.read_text())
        cut = text is not long
        for sample in content["samples"]:
            sample["input"] = text + "...\n(content truncated)" * cut
            sample["metadata"] |= {"note": note + "..." * cut, "list": REMOVED if cut else [1, 2]}
        log.write_text(json.dumps(content))
    compare(logs, "inspect_ai")


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_names_count_where_they_are_numbers(tmp_path, form):
    files = pair(tmp_path, form, lambda rows: rows[3].update(id=2))
    with pytest.raises(UserError, match=r"b/answers.* the item '2' is duplicated, it is at .*b/an"):
        compare(files, form)
    files = pair(tmp_path, form, lambda rows: rows[3].update(id=None))
    with pytest.raises(
        UserError, match=r"b/answers.*, (line|row) \d: the item has no name, its id"
    ):
        compare(files, form)


def test_numbers_that_pandas_writes_are_the_same_names(tmp_path):
    files = pair(
        tmp_path, "csv", lambda rows: [row.update(id=float(row["id"])) for row in rows][6:]
    )
    assert compare(files, "csv")[0].drawn.items == 6


def test_a_number_of_rows_is_no_name_where_names_are_doubled(tmp_path):
    files = pair(tmp_path, "csv")
    for file in files:
        rows = [*csv.DictReader(file.open())]
        for number, row in enumerate(rows):
            row["index"] = number
            row["id"] = row["id"].replace("3", "2") if file is files[1] else row["id"]
        with file.open("w", newline="") as handle:
            writer = csv.DictWriter(handle, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    with pytest.raises(UserError, match="line 5: the item '2' is duplicated"):
        compare(files, "csv")
    with pytest.raises(UserError, match="line 5: id is '2', and '3' at"):
        compare(files, "csv", item="index")


def test_clusters_and_parts_are_those_of_all_files(tmp_path):
    for form, (_, column) in FORMS.items():
        files = pair(tmp_path, form, lambda rows: rows[4].update(photo="elsewhere"))
        with pytest.raises(UserError, match=r"'elsewhere', and 'p2' at .*clusters or parts"):
            compare(files, form)
        with pytest.raises(UserError, match=r"'elsewhere', and 'p2' at .*clusters or parts"):
            read_item_files(files, ItemColumns(by=column))


def test_answers_of_lists_may_differ_and_are_named(tmp_path):
    _, answers = compare(pair(tmp_path, "csv"), "csv")
    assert "Taken for the models' answers" in " ".join(answers.notes)
    assert "prediction, score" in " ".join(answers.notes)
    table = [{"text": f"q{n}", "prediction": "x", "right": n % 2} for n in range(4)]
    files = []
    for name in "ab":
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text("".join(
            json.dumps({**row, "prediction": name, "right": int(name == "a")}) + "\n"
            for row in table
        ))  # fmt: skip
    answers = read_item_files(files, ItemColumns())
    assert "matched by their position" in " ".join(answers.notes)
    edit_lines(files[1], lambda line: line.update(text="else"))
    with pytest.raises(
        UserError, match=r"text is 'else', and 'q0' at .*: other items, or another o"
    ):
        read_item_files(files, ItemColumns())


def test_right_answers_that_are_numbers_are_not_results(tmp_path):
    files = pair(tmp_path, "csv", lambda rows: [row.update(target=1) for row in rows][6:])
    ours = make_rows([1, 1, 0, 1, 0, 1])
    files[0] = write(tmp_path, "csv", "a", [{**row, "target": row["id"] % 2} for row in ours])
    with pytest.raises(UserError, match="target is '1', and '0' at"):
        compare(files, "csv")


def compare_files(files, columns, runs) -> int:
    node = {"_target_": "cfaug.report.item_lists.item_tables.ItemColumns", **columns}
    paths = {"runs": str(runs)}
    return compare_places(
        CompareSettings(
            places=[*map(str, files)], columns=node, newest=False, plan=None, paths=paths
        )
    )


def test_comparisons_are_named_by_what_they_compare(tmp_path):
    """All tasks of a model are in one folder, as lm-evaluation-harness writes them."""
    files = pair(tmp_path, "lm-eval")
    others = [file.with_name(file.name.replace("sums", "logic")) for file in files]
    for file, other in zip(files, others, strict=True):
        other.write_text(file.read_text())
    runs = tmp_path / "runs"
    for logs, columns in ((files, {}), (others, {}), (files, {"cluster": "doc.photo"})):
        assert compare_files(logs, columns, runs) == 0
    names = ["logic-a-against-b", "sums-a-against-b",
             "sums-a-against-b-cluster=doc.photo"]  # fmt: skip
    assert {file.stem for file in (runs / "compared").glob("*.csv")} == {*names}


def test_comparisons_of_files_with_equal_names_stand_side_by_side(tmp_path):
    for folder in "xyz":
        (tmp_path / folder).mkdir()
    files = [pair(tmp_path / folder, "csv") for folder in "xyz"]
    contents = []
    for logs in (*files[:2], *files[:2]):
        compare_files(logs, {}, tmp_path / "runs")
        written = sorted((tmp_path / "runs/compared").glob("*.json"))
        contents.append([file.read_bytes() for file in written])
    assert [len(content) for content in contents] == [1, 2, 2, 2]
    assert contents[1] == contents[3]


def write_lines(file: Path, rows: Rows) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_names_in_one_file_or_by_another_column_match_nothing_by_chance(tmp_path):
    ours = [{"item": name, "right": n % 2} for n, name in enumerate("abcd")]
    first = write_lines(tmp_path / "a.jsonl", ours)
    for theirs in (
        [{"right": n % 3 == 0} for n in range(4)],
        [{"id": name, "right": n % 3 == 0} for n, name in enumerate("abcd")],
    ):
        second = write_lines(tmp_path / "b.jsonl", theirs)
        with pytest.raises(
            UserError, match=r"b\.jsonl has no column 'item', which names the items"
        ):
            read_item_files([first, second], ItemColumns())
        ignored = [name for name in ("item", "id") if name in {*ours[0], *theirs[0]}]
        answers = read_item_files([first, second], ItemColumns(ignore=ignored))
        assert "matched by their position" in answers.notes[0]
    rows = [{"caption": f"c{n}", **row} for n, row in enumerate(ours)]
    first = write_lines(tmp_path / "a.jsonl", rows)
    unnamed = [{"caption": row["caption"], "right": 1 - row["right"]} for row in rows]
    second = write_lines(tmp_path / "b.jsonl", unnamed)
    assert compare_item_files(read_item_files([first, second], ItemColumns()))[0].drawn.items == 4


def test_a_models_answers_are_not_results_and_right_answers_agree(tmp_path):
    def questions(file: str, right: Sequence[int], answer: str = "yes") -> Path:
        return write_lines(tmp_path / file, [
            {"index": n, "question": f"q{n}", "answer": answer, "pred": value, "hit": value}
            for n, value in enumerate(right)
        ])  # fmt: skip

    files = [questions("a.jsonl", [1, 1, 0, 1]), questions("b.jsonl", [0, 1, 1, 0])]
    answers = read_item_files(files, ItemColumns())
    assert [*answers.metrics] == ["hit"]
    assert "Taken for the models' answers, since the files differ in them: pred." in answers.notes
    assert [*read_item_files(files, ItemColumns(metrics="pred")).metrics] == ["pred"]
    files[1] = questions("b.jsonl", [0, 1, 1, 0], "no")
    with pytest.raises(UserError, match=r"line 1: answer is 'no', and 'yes' at .*same questions"):
        read_item_files(files, ItemColumns())


def test_items_without_a_value_in_one_file_are_left_out_if_asked(tmp_path):
    rows = [{"item": n, "right": n % 2} for n in range(4)]
    first = write_lines(tmp_path / "a.jsonl", rows)
    second = write_lines(tmp_path / "b.jsonl", [{**row, "right": None} if row["item"] == 2
                                                else row for row in rows])  # fmt: skip
    with pytest.raises(UserError, match=r"1 items have a value in one .*common=true leaves them"):
        compare_item_files(read_item_files([first, second], ItemColumns()))
    answers = read_item_files([first, second], ItemColumns(common=True))
    assert compare_item_files(answers)[0].drawn.items == 3
    assert "right: 1 of 4 items, without a value in one file, are left out." in answers.notes
