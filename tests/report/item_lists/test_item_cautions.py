"""Lists and logs of public evaluators whose columns are not what their numbers look like."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cfaug.core.errors import UserError
from cfaug.report.item_lists.item_files import ItemAnswers, compare_item_files, read_item_files
from cfaug.report.item_lists.item_tables import ItemColumns

RIGHT = ([1, 1, 1, 1, 1, 0, 1, 1], [1, 0, 0, 1, 0, 0, 1, 0])
"""What two models answer right."""
Row = Callable[[int, int, int], dict[str, Any]]
"""Returns the row of an item, from its number, whether it is right, and the model's number."""


def write_both(root: Path, row: Row, name: str = "answers.csv") -> list[Path]:
    """Write the answers of two models, in folders of their own."""
    files = []
    for model, right in enumerate(RIGHT):
        rows = [row(item, value, model) for item, value in enumerate(right)]
        file = root / "ab"[model] / name
        file.parent.mkdir(parents=True)
        if file.suffix == ".csv":
            with file.open("w", newline="") as handle:
                writer = csv.DictWriter(handle, rows[0])
                writer.writeheader()
                writer.writerows(rows)
        elif file.suffix == ".json":
            file.write_text(json.dumps(rows))
        else:
            file.write_text("".join(json.dumps(each) + "\n" for each in rows))
        files.append(file)
    return files


def read(root: Path, row: Row, name: str = "answers.csv", **columns: Any) -> ItemAnswers:
    return read_item_files(write_both(root, row, name), ItemColumns(**columns))


LMMS = "20260101_000000_samples_vqav2_test.jsonl"
NOT_RIGHT: Mapping[str, tuple[str, Row]] = {
    "VQAv2's results": ("r.json", lambda i, v, m: {"question_id": i, "answer": v}),
    "lmms-eval's submissions": (
        LMMS,
        lambda i, v, m: {"doc_id": i, "filtered_resps": "x", "target": "", "input": f"q{i}",
                         "submission": {"question_id": i, "answer": v}},
    ),
    "predicted classes": ("r.csv", lambda i, v, m: {"id": i, "label": i % 2, "pred_label": v}),
    "a model's answers": ("r.csv", lambda i, v, m: {"id": i, "answer": i % 2, "model_answer": v}),
    "chosen numbers": ("r.csv", lambda i, v, m: {"id": i, "gt_idx": i % 2, "chosen": v}),
    "ranks from 0": ("r.csv", lambda i, v, m: {"id": i, "caption": f"c{i}", "rank": 1 - v}),
    "said yes": ("r.jsonl", lambda i, v, m: {"id": i, "gold": "yes", "yes": v}),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_RIGHT)
def test_answers_and_ranks_are_not_taken_for_right_and_wrong(tmp_path, case):
    name, row = NOT_RIGHT[case]
    with pytest.raises(UserError, match=r"says which answers are right.*columns\.metrics"):
        read(tmp_path, row, name)


def test_numbers_beside_results_are_not_results(tmp_path):
    """HELM's statistics, in which a number of tokens may be 0 or 1 throughout."""

    def row(i: int, v: int, m: int) -> dict[str, Any]:
        stats = {"exact_match": float(v), "num_output_tokens": float((i + m) % 2)}
        return {"instance_id": f"id{i}", "train_trial_index": 0, "stats": stats}

    answers = read(tmp_path, row, "display_predictions.json")
    assert [*answers.metrics] == ["stats.exact_match"]
    assert not any("by their position" in note for note in answers.notes)


@pytest.mark.parametrize("name", ["wrong", "is_error", "hallucination"])
def test_columns_of_wrong_answers_are_said_to_be_better_when_lower(tmp_path, name):
    answers = read(tmp_path, lambda i, v, m: {"id": i, name: 1 - v})
    assert any(f"Lower is better, by the name of {name}" in note for note in answers.notes)


@pytest.mark.parametrize("name", ["correct", "hit", "acc_norm", "no_error"])
def test_columns_of_right_answers_get_no_such_note(tmp_path, name):
    answers = read(tmp_path, lambda i, v, m: {"id": i, name: v})
    assert not any("Lower is better" in note for note in answers.notes)


def test_an_unknown_name_is_named_as_what_it_is_taken_for(tmp_path):
    answers = read(tmp_path, lambda i, v, m: {"id": i, "i2t": v})
    assert any("Taken for right (1) and wrong (0)" in n and "i2t" in n for n in answers.notes)


@pytest.mark.parametrize(
    "row",
    [
        lambda i, v, m: {"id": i, "score": 100 * v if m else v},
        lambda i, v, m: {"id": i, "score": 8.0 * v - 5 if m else 0.3 + v / 10},
    ],
)
def test_shares_and_percent_or_logits_have_no_difference(tmp_path, row):
    with pytest.raises(UserError, match="in one unit in all files"):
        read(tmp_path, row, metrics="score")


def test_losses_around_one_are_compared(tmp_path):
    answers = read(
        tmp_path, lambda i, v, m: {"id": i, "loss": 0.9 + m * 0.2 - v / 10}, metrics="loss"
    )
    assert len(compare_item_files(answers)) == 1


def test_two_models_in_one_list_are_not_more_items(tmp_path):
    def row(i: int, v: int, m: int) -> dict[str, Any]:
        return {"model": "xy"[i % 2], "question": f"q{i // 2}", "correct": v}

    with pytest.raises(UserError, match="several models in 'model', x, y: a file is one model"):
        read(tmp_path, row)
    with pytest.raises(UserError, match="no column 'question_id'"):  # named, it is not refused
        read(tmp_path / "named", row, item=["question_id", "model"])


def test_items_of_one_question_are_said_to_belong_together(tmp_path):
    """VLMEvalKit's circular evaluation: a question is asked in every order of its options."""

    def row(i: int, v: int, m: int) -> dict[str, Any]:
        return {"index": i // 2 + 10**6 * (i % 2), "g_index": i // 2, "answer": "A",
                "prediction": "AB"[v], "hit": v}  # fmt: skip

    answers = read(tmp_path, row)
    assert any("columns.cluster=g_index" in note for note in answers.notes)
    together = read(tmp_path / "together", row, cluster="g_index")
    assert not any("count as independent" in note for note in together.notes)


def test_equal_files_are_said(tmp_path):
    answers = read(tmp_path, lambda i, v, m: {"id": i, "correct": i % 2})
    assert any("answers of one model?" in note for note in answers.notes)


def test_a_workbook_is_to_be_saved_as_csv(tmp_path):
    files = [tmp_path / f"{name}.xlsx" for name in "ab"]
    for file in files:
        file.write_bytes(b"PK")
    with pytest.raises(UserError, match="save the sheet as"):
        read_item_files(files, ItemColumns())
