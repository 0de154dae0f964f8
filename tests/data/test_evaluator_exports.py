"""Questions and pairs as tasks of other evaluators: the numbers are those of cfaug's own."""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
import sys
import sysconfig
import venv
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.cfmm.question_checks import group_accuracies
from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.questions import CATEGORY, QUESTION, Answered, details_of
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.export import evaluator_scores, export_lmms_eval, export_vlmevalkit
from cfaug.data.export.evaluators import question_rows
from cfaug.report.item_files import ItemColumns, compare_item_files, read_item_files
from cfaug.stats.choices import parse_answer
from tests.data.making import pair
from tests.evaluation.questions import Writer, image, opened
from tests.skips import skip

IMAGES = [image(n) for n in range(6)]
SCORES = ("acc_b", "acc_c", "acc_plus", "strict")


def asked_set(one) -> CounterfactualSet:
    about = {CATEGORY: one.category}
    members = tuple(
        Member(q.text, "0", one.key, extra={**about, QUESTION: details_of(q)})
        for q in one.questions
    )
    return CounterfactualSet(one.key, one.group, members, {"0": one.image.read()})


SETS = [asked_set(one) for one in IMAGES]


def answer(prompt, picture) -> str:
    """Return what a model says of a picture: right, wrong, wordy or no option at all."""
    drawn = zlib.crc32(prompt.encode() + picture.convert("RGB").tobytes())
    shown = prompt.rpartition("these: ")[2].removesuffix(".").split(", ")
    said = ("{}", "The answer is {}.", "{}, I think", "{}", "a {}?", "perhaps {}")[drawn % 6]
    return said.format(shown[drawn // 6 % len(shown)].upper())


class Says(Writer):
    def write(self, images, questions, max_new_tokens):
        asked = zip(images, questions, strict=True)
        return [
            Answered(text="none" if picture is None else answer(question.text, picture))
            for picture, question in asked
        ]


def own_numbers() -> dict[str, float]:
    outcomes = opened(IMAGES, protocol="write").run(Says()).outcomes
    return {one.metric: one.value for one in outcomes if one.metric in SCORES and not one.by}


def pair_numbers() -> dict[str, float]:
    """Ask about every image and caption of a pair by plain loops."""
    right = np.zeros((8, 2, 2), bool)
    for number in range(8):
        for i, data in enumerate(pair(number).images.values()):
            for j, member in enumerate(pair(number).members):
                prompt = f'Does this image show "{member.text}"?\nAnswer with one of these: yes, no.'
                said = answer(prompt, decode_image(data, "it"))
                right[number, j, i] = parse_answer(said, ("yes", "no")) == int(i != j)
    return group_accuracies(right)


def by_hand(folder: Path) -> dict[str, float]:
    """Do what lmms-eval does with a task's folder."""
    spec = importlib.util.spec_from_file_location("utils", folder / "utils.py")
    utils = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(utils)
    results: dict[str, list] = {}
    for doc in pq.read_table(folder / "data").to_pylist():
        picture = decode_image(doc["image"]["bytes"], "it")
        said = utils.process_results(doc, [answer(utils.doc_to_text(doc), picture)])
        for name, value in said.items():
            results.setdefault(name, []).append(value)
    return {name: getattr(utils, name)(values) for name, values in results.items()}


def test_the_exported_task_gives_the_numbers_of_the_benchmark(tmp_path):
    assert export_lmms_eval(SETS, tmp_path / "Own Questions") == "own_questions"
    found = by_hand(tmp_path / "Own Questions")
    assert found == pytest.approx(own_numbers())
    assert 0 < found["acc_plus"] < found["acc_b"] < 1
    export_lmms_eval(map(pair, range(8)), tmp_path / "pairs")
    assert by_hand(tmp_path / "pairs") == pytest.approx(pair_numbers())


LMMS_EVAL = """
import json, pathlib, sys, zlib
from lmms_eval.api.model import lmms
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.loggers import EvaluationTracker
from lmms_eval.tasks import TaskManager

{answer}

class Says(lmms):
    def generate_until(self, requests):
        asked = [request.args for request in requests]
        return [
            answer(prompt, *visual(self.task_dict[task][split][number]))
            for prompt, _, visual, number, task, split in asked
        ]
    loglikelihood = generate_until_multi_round = generate_until

folder, tasks = sys.argv[1], sys.argv[2:]
results = simple_evaluate(
    Says(), tasks=tasks, bootstrap_iters=0, log_samples=True,
    task_manager=TaskManager("ERROR", include_path=folder, include_defaults=False),
)
for name in ("a", "b"):
    tracker = EvaluationTracker(output_path=folder + "/logs")
    tracker.general_config_tracker.model_name_sanitized = name
    import copy
    samples = copy.deepcopy(results["samples"])
    tracker.save_results_aggregated(
        results={{"results": results["results"]}}, samples=samples, datetime_str="20261124_180000"
    )
    for task, rows in samples.items():
        tracker.save_results_samples(task, rows)
print(json.dumps(results["results"], default=str))
"""
