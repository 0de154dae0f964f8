"""Exports of counterfactual questions and pairs as tasks of lmms-eval and tables of VLMEvalKit.

A set of questions is asked as it is. Of a pair, whether each image shows each caption is asked: the
group of four of NaturalBench. In larger sets the first member is paired with each of the others.
``evaluator_scores`` has the scores, and is copied beside what is written.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from cfaug.core.atomic_files import write_file
from cfaug.core.errors import UserError
from cfaug.core.outputs import (
    check_output,
    check_output_folder,
    output_folder,
    replace_output,
    write_output,
)
from cfaug.core.types import CounterfactualSet
from cfaug.data.export import evaluator_scores
from cfaug.data.export.hub import judged_questions, write_parquet
from cfaug.data.questions import BASIC, COUNTERFACTUAL, QUESTION, QuestionImage
from cfaug.data.shards.codec import image_extension

LMMS_EVAL, VLMEVALKIT = "a task of lmms-eval", "a table of VLMEvalKit"
"""What the record of outputs calls the exports."""
PAIR = "pair"
"""The kind of a question about a pair; others are ``basic`` and ``counterfactual``."""
SHOWS = 'Does this image show "{caption}"?'
YES_NO = ("yes", "no")
Row = dict[str, Any]


def question_rows(
    sets: Iterable[CounterfactualSet | QuestionImage], verdicts: Mapping[str, bool] | None = None
) -> Iterator[Row]:
    """Yield a row for each question that can be scored, the basic one of a group first.

    An image without a basic or without a counterfactual question is left out, as by
    ``benchmark=vqa``.

    Args:
        sets: sets of questions, pairs of images, or the entries of a question set.
        verdicts: people's judgements of the questions of sets, as in ``export_questions``.
    """
    kinds: set[bool] = set()
    for item in sets:
        of_questions = isinstance(item, QuestionImage) or QUESTION in item.members[0].extra
        kinds.add(of_questions)
        if len(kinds) > 1:
            raise UserError(
                f"set {item.key!r}: questions and pairs of images have different scores, so they "
                "are exported apart"
            )
        if isinstance(item, QuestionImage):
            if item.image is None:
                raise UserError(f"{item.key!r} has no image: only questions about images are asked")
            yield from _image_rows(item, item.image.read())
        elif of_questions:
            for entry, data in judged_questions([item], verdicts):
                yield from _image_rows(entry, data)
        else:
            yield from _pair_rows(item)


def _image_rows(image: QuestionImage, data: bytes) -> Iterator[Row]:
    questions = [question for question in image.questions if not question.unscorable]
    if not {BASIC, COUNTERFACTUAL} <= {question.kind for question in questions}:
        return
    for number, question in enumerate(sorted(questions, key=lambda q: q.kind != BASIC)):
        yield {
            "id": f"{image.key}/{question.id}", "group": image.key, "kind": question.kind,
            "question_number": number, "image_number": 0, "category": image.category,
            "image": data, "question": question.text, "options": question.options,
            "answer_number": question.answer,
        }  # fmt: skip


def _pair_rows(item: CounterfactualSet) -> Iterator[Row]:
    first, *others = item.members
    if not others:
        raise UserError(f"set {item.key!r} has one member: a pair has two")
    for index, other in enumerate(others, 1):
        pair = (first, other)
        if first.image_name == other.image_name:
            raise UserError(
                f"set {item.key!r}: members 0 and {index} share one image: export sets of pairs of "
                "images, or of questions"
            )
        group = item.key if len(others) == 1 else f"{item.key}_{index}"
        category = "" if other.edit is None else other.edit.kind
        for i, image in enumerate(pair):
            for j, caption in enumerate(pair):
                yield {
                    "id": f"{group}/caption_{j}-image_{i}", "group": group, "kind": PAIR,
                    "question_number": j, "image_number": i, "category": category,
                    "image": item.images[image.image_name],
                    "question": SHOWS.format(caption=caption.text), "options": YES_NO,
                    "answer_number": int(i != j),
                }  # fmt: skip


# lmms-eval (0.7): a folder with TASK.yaml, utils.py and parquet.

COLUMNS = {
    "id": "string", "group": "string", "kind": "string", "question_number": "int32",
    "image_number": "int32", "category": "string", "image": "image", "question": "string",
    "options": "string", "answer": "string", "answer_number": "int32",
}  # fmt: skip
TASK = """\
# Written by cfaug. python -m lmms_eval --include_path FOLDER --tasks {task} --model MODEL
task: "{task}"
dataset_path: parquet
dataset_kwargs:
  data_files:
    test: {files}
test_split: test
output_type: generate_until
doc_to_visual: !function utils.doc_to_visual
doc_to_text: !function utils.doc_to_text
doc_to_target: answer
process_results: !function utils.process_results
generation_kwargs:
  max_new_tokens: 16
  temperature: 0
  do_sample: false
metric_list:
{metrics}metadata:
  version: 1.0
"""
METRIC = """\
  - metric: {name}
    aggregation: !function utils.{name}
    higher_is_better: true
"""


def export_lmms_eval(
    sets: Iterable[CounterfactualSet | QuestionImage],
    folder: Path,
    verdicts: Mapping[str, bool] | None = None,
    *,
    replace: bool = False,
) -> str:
    """Write a task of lmms-eval into a folder, whose name becomes the task's.

    Args:
        sets: sets, or entries of a question set, as in ``question_rows``.
        verdicts: people's judgements, as in ``export_questions``.
        replace: whether an earlier export of this kind is replaced, if nobody changed it.

    Returns:
        The task's name, of lower-case letters, digits and ``_``.
    """
    task = re.sub(r"[^a-z0-9]+", "_", folder.expanduser().absolute().name.lower()).strip("_")
    if not task:
        raise UserError(f"{folder} gives the task no name: use letters in the folder's name")
    folder = folder.expanduser()
    check_output_folder(folder, LMMS_EVAL, "export.lmms_eval", replace=replace)
    rows = question_rows(sets, verdicts)
    first = next(rows, None)
    if first is None:
        raise UserError(f"there is no question to write to {folder}")
    scores = evaluator_scores.PAIRS if first["kind"] == PAIR else evaluator_scores.QUESTIONS
    with output_folder(folder, LMMS_EVAL, "export.lmms_eval", replace=replace) as fresh:
        (fresh / "data").mkdir()
        write_parquet(map(_parquet_row, chain([first], rows)), fresh / "data", "test", COLUMNS)
        write_file(fresh / "utils.py", Path(evaluator_scores.__file__).read_bytes())
        metrics = "".join(METRIC.format(name=name) for name in scores)
        # Each by its name, since lmms-eval finds no pattern beside the file.
        files = json.dumps([f"data/{file.name}" for file in sorted((fresh / "data").iterdir())])
        text = TASK.format(task=task, files=files, metrics=metrics)
        write_file(fresh / f"{task}.yaml", text.encode())
    return task


def _parquet_row(row: Row) -> Row:
    name = row["id"].replace("/", "_")
    path = f"{name}.{image_extension(row['image'], name)}"
    return row | {
        "image": {"bytes": row["image"], "path": path},
        "options": json.dumps(row["options"], ensure_ascii=False),
        "answer": row["options"][row["answer_number"]],
    }


# VLMEvalKit: a table with images in base64, read by pandas.

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MISSING = re.compile(r"#N/A( N/A)?|#NA|-?1\.#(IND|QNAN)|-?NaN|-?nan|<NA>|N/A|NA|NULL|None|n/a|null")
"""Texts that pandas takes for missing, with which VLMEvalKit would leave out an option."""
PARSED = re.compile(r"\s*([-+\d.][\d.e+-]*|[-+]?inf(inity)?|true|false)\s*", re.IGNORECASE)
"""Texts that pandas parses where all of a column are so."""


def export_vlmevalkit(
    sets: Callable[[], Iterable[CounterfactualSet | QuestionImage]],
    file: Path,
    verdicts: Mapping[str, bool] | None = None,
    *,
    replace: bool = False,
) -> int:
    """Write a table that VLMEvalKit reads as a multiple-choice set, and ``FILE.py`` for its scores.

    ``category`` is the kind of a question, so that VLMEvalKit reports the accuracy of each kind
    itself; ``l2-category`` is the set's own category.

    Args:
        sets: returns the sets, which are read twice.
        file: the table, ``NAME.tsv``.
        verdicts: people's judgements, as in ``export_questions``.
        replace: whether an earlier export of this kind is replaced, if nobody changed it.

    Returns:
        The number of questions.
    """
    file = file.expanduser()
    if file.suffix != ".tsv":
        raise UserError(f"export.vlmevalkit={file} should be a file NAME.tsv")
    for path in (file, file.with_suffix(".py")):
        check_output(path, VLMEVALKIT, "export.vlmevalkit", replace=replace)
    choices = [row["options"] for row in question_rows(sets(), verdicts)]
    if not choices:
        raise UserError(f"there is no question to write to {file}")
    most = max(map(len, choices))
    if most > len(LETTERS):
        raise UserError(f"a question has {most} options: VLMEvalKit has {len(LETTERS)} letters")
    options = [
        _option_cells([row[number : number + 1] for row in choices]) for number in range(most)
    ]
    shown: dict[str, int] = {}
    rows = enumerate(zip(question_rows(sets(), verdicts), *options, strict=True))
    with replace_output(file, VLMEVALKIT, "export.vlmevalkit") as handle:
        text = io.TextIOWrapper(handle, encoding="utf-8", newline="")
        table = csv.writer(text, delimiter="\t", lineterminator="\n")
        table.writerow([
            "index", "image", "question", *LETTERS[:most], "answer", "category", "l2-category",
            "id", *evaluator_scores.COLUMNS,
        ])  # fmt: skip
        for index, (row, *cells) in rows:
            # An image that was shown before is named by the first row that has it.
            first = shown.setdefault(hashlib.blake2b(row["image"]).hexdigest(), index)
            image = base64.b64encode(row["image"]).decode() if first == index else str(first)
            table.writerow([
                index, image, row["question"], *cells, LETTERS[row["answer_number"]], row["kind"],
                row["category"] or "uncategorised", row["id"],
                *(row[name] for name in evaluator_scores.COLUMNS),
            ])  # fmt: skip
        text.detach()
    program = Path(evaluator_scores.__file__).read_bytes()
    write_output(file.with_suffix(".py"), program, VLMEVALKIT, "export.vlmevalkit")
    return len(choices)


def _option_cells(options: Sequence[Sequence[str]]) -> list[str]:
    """Return a column, one option or none in each row, that pandas reads as the same texts.

    Quotes keep an option such as None, and those of a column that would change: 007, true, or 2,
    which becomes 2.0 beside an empty cell.
    """
    given = [option for row in options for option in row]
    parsed = all(map(PARSED.fullmatch, given))
    whole = len(given) == len(options) and all(
        re.fullmatch(r"0|-?[1-9]\d{0,14}", option) for option in given
    )
    return [
        f'"{option}"'
        if option and (MISSING.fullmatch(option) or (parsed and not whole))
        else option
        for row in options
        for option in row or [""]
    ]
