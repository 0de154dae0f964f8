"""Questions and pairs as tasks of other evaluators: the numbers are those of cfaug's own."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.answers import Answered
from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.export import (
    PublisherStatements,
    evaluator_scores,
    export_hub,
    export_lmms_eval,
    export_vlmevalkit,
    hub,
)
from cfaug.data.export.evaluators import question_rows
from cfaug.data.questions import CATEGORY, QUESTION, SourceQuestion, details_of
from cfaug.evaluation.questions.question_checks import group_accuracies
from cfaug.report.item_lists.item_files import compare_item_files, read_item_files
from cfaug.report.item_lists.item_tables import ItemColumns
from cfaug.stats.choices import parse_answer
from tests.data.making import pair
from tests.data.question_files import own_record, write_own
from tests.evaluation.drawn_questions import Writer, image, opened
from tests.properties import examples
from tests.skips import skip

IMAGES = [image(n) for n in range(6)]
SCORES = ("acc_b", "acc_c", "acc_plus", "strict")


def asked_set(entry) -> CounterfactualSet:
    about = {CATEGORY: entry.category}
    members = tuple(
        Member(q.text, "0", entry.key, extra={**about, QUESTION: details_of(q)})
        for q in entry.questions
    )
    return CounterfactualSet(entry.key, entry.group, members, {"0": entry.image.read()})


SETS = [asked_set(entry) for entry in IMAGES]


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
    return {
        outcome.metric: outcome.value
        for outcome in outcomes
        if outcome.metric in SCORES and not outcome.by
    }


def pair_numbers() -> dict[str, float]:
    """Ask about every image and caption of a pair by plain loops."""
    right = np.zeros((8, 2, 2), bool)
    for number in range(8):
        for i, data in enumerate(pair(number).images.values()):
            for j, member in enumerate(pair(number).members):
                prompt = (
                    f'Does this image show "{member.text}"?\nAnswer with one of these: yes, no.'
                )
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
    numbers = by_hand(tmp_path / "Own Questions")
    assert numbers == pytest.approx(own_numbers())
    assert 0 < numbers["acc_plus"] < numbers["acc_b"] < 1
    export_lmms_eval(map(pair, range(8)), tmp_path / "no")
    assert by_hand(tmp_path / "no") == pytest.approx(pair_numbers())
    text = (tmp_path / "no/no.yaml").read_text().replace("!function", "")
    assert yaml.safe_load(text)["task"] == "no"  # a text, not false


def test_the_page_exports_questions_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_own(tmp_path, [own_record(number) for number in range(3)])
    page = Path(__file__).parents[2] / "docs/evaluators.md"
    exec(page.read_text().split("```python\n")[1].split("```")[0], {})
    assert set(by_hand(tmp_path / "tasks/mine")) == set(SCORES)
    assert len(read_table(tmp_path / "tasks/Mine.tsv")) == 15


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
            answer(prompt + self.salt, *visual(self.task_dict[task][split][number]))
            for prompt, _, visual, number, task, split in asked
        ]
    loglikelihood = generate_until_multi_round = generate_until

folder, tasks = sys.argv[1], sys.argv[2:]
numbers = {{}}
for name, salt in (("a", ""), ("b", " ")):
    model = Says()
    model.salt = salt
    results = simple_evaluate(
        model, tasks=tasks, bootstrap_iters=0, log_samples=True,
        task_manager=TaskManager("ERROR", include_path=folder, include_defaults=False),
    )
    tracker = EvaluationTracker(output_path=folder + "/logs")
    tracker.general_config_tracker.model_name_sanitized = name
    tracker.save_results_aggregated(
        results={{"results": results["results"]}}, samples=None, datetime_str="20261124_180000"
    )
    for task, rows in results["samples"].items():
        tracker.save_results_samples(task, rows)
    numbers[name] = {{
        task: {{key.removesuffix(",none"): value for key, value in of.items()}}
        for task, of in results["results"].items()
    }}
print(json.dumps(numbers, default=str))
"""
"""What runs in an environment of lmms-eval: two models, one of them as here."""
PACKAGES = (
    "lmms-eval==0.7.3", "evaluate==0.4.6", "sacrebleu==2.6.0", "portalocker==4.4.2",
    "tabulate==0.10.0", "colorama==0.4.6", "lxml==6.1.3", "loguru==0.7.3", "tenacity==9.2.1",
    "pytz==2026.6", "mlcroissant==1.1.1", "etils==1.15.0", "rdflib==7.6.0", "jsonpath-rw==1.4.0",
    "ply==3.11", "six==1.17.0",
)  # fmt: skip
"""What lmms-eval and mlcroissant import here; the rest of what they ask for conflicts with ours."""


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Return what runs code in an environment with lmms-eval and mlcroissant, over this one."""
    folder = tmp_path_factory.mktemp("others")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env/bin/python"
    [site] = (folder / "env/lib").glob("python3*/site-packages")
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    uv = Path(sys.executable).with_name("uv")
    words = [uv, "pip", "install", "--quiet", "--no-deps", "--python", python, *PACKAGES]
    if subprocess.run(words, capture_output=True, timeout=300).returncode:
        skip("registry")
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    environment = kept | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf")}

    def run(code: str, *words: object) -> str:
        done = subprocess.run(
            [python, "-c", code, *map(str, words)], cwd=folder, env=environment,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    return run


@pytest.mark.slow
def test_lmms_eval_runs_the_tasks_and_its_logs_are_compared(others, tmp_path):
    export_lmms_eval(SETS, tmp_path / "own")
    export_lmms_eval(map(pair, range(8)), tmp_path / "pairs")
    said = others(LMMS_EVAL.format(answer=inspect.getsource(answer)), tmp_path, "own", "pairs")
    numbers = json.loads(said.splitlines()[-1])
    for task, expected in (("own", own_numbers()), ("pairs", pair_numbers())):
        actual = {name: numbers["a"][task][name] for name in expected}
        assert actual == pytest.approx(expected)
    logs = [next((tmp_path / "logs" / name).glob("*samples_pairs.jsonl")) for name in "ab"]
    [compared] = compare_item_files(read_item_files(logs, ItemColumns(cluster="acc.group")))
    assert (compared.first, compared.other, compared.metric) == ("a", "b", "acc.question_right")
    assert compared.means == tuple(numbers[name]["pairs"]["acc"] for name in "ab")
    assert (compared.drawn.items, compared.drawn.clusters) == (32, 8)
    logs = [next((tmp_path / "logs" / name).glob("*samples_own.jsonl")) for name in "ab"]
    basic, *_ = compare_item_files(read_item_files(logs, ItemColumns()))
    assert basic.means == tuple(numbers[name]["own"]["acc_b"] for name in "ab")


@pytest.mark.slow
def test_mlcroissant_accepts_and_reads_the_metadata(others, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "BYTES_PER_FILE", 1)
    file = tmp_path / "hub/croissant.json"
    about = PublisherStatements("Pairs", "cc-by-4.0", authors="A. Uthor", url="https://a.org/b")
    export_hub(map(pair, range(101)), tmp_path / "hub", about, croissant=file)
    code = """if True:
        import sys, mlcroissant
        data = mlcroissant.Dataset(sys.argv[1])
        assert not data.metadata.issues.errors
        row = next(iter(data.records("rows-00001")))
        print(row["rows-00001/id"].decode(), row["rows-00001/image_1"].size)"""
    assert others(code, file).split("\n")[0] == "pair-00100 (8, 8)"


def test_croissant_says_what_is_known_and_overwrites_nothing(tmp_path, capsys):
    file = tmp_path / "about.json"
    about = PublisherStatements("Pairs", published="2026-11-24")
    export_hub([pair(0)], tmp_path / "hub", about, croissant=file)
    content = json.loads(file.read_text())
    assert (content["datePublished"], "license" in content) == ("2026-11-24", False)
    assert "1 sets with 2 image-text pairs" in content["description"]
    [data] = content["distribution"]
    written = tmp_path / data["contentUrl"]
    assert written == tmp_path / "hub/data/train-00000-of-00001.parquet"
    assert data["sha256"] == hashlib.sha256(written.read_bytes()).hexdigest()
    columns = [field["name"] for field in content["recordSet"][0]["field"]]
    assert columns == pq.read_schema(written).names
    said = "ask for export.about.license, export.about.url, export.about.authors"
    assert said in " ".join(capsys.readouterr().err.split())
    with pytest.raises(UserError, match="holds Croissant metadata already"):
        export_hub([pair(0)], tmp_path / "other", about, croissant=file)
    assert not (tmp_path / "other").exists()


# VLMEvalKit.


def read_table(file: Path) -> pandas.DataFrame:
    """Read a table as VLMEvalKit does, and put images in place of the rows that name them."""
    table = pandas.read_csv(file, sep="\t")
    images = dict(zip(map(str, table["index"]), map(str, table["image"]), strict=True))
    table["image"] = [images[cell] if len(cell) <= 64 else cell for cell in images.values()]
    return table


def test_vlmevalkit_reads_the_table_and_the_scores_are_those_of_the_benchmark(tmp_path):
    file = tmp_path / "Own.tsv"
    assert export_vlmevalkit(lambda: SETS, file) == 30
    table = read_table(file)
    hits = []
    for row in table.to_dict("records"):
        shown = [str(row[letter]) for letter in "ABC" if not pandas.isna(row[letter])]
        options = [option.strip('"') for option in shown]  # "12" in quotes, not 12.0
        prompt = f"{row['question']}\nAnswer with one of these: {', '.join(options)}."
        picture = decode_image(base64.b64decode(row["image"]), "it")
        chosen = parse_answer(answer(prompt, picture), options)
        hits.append(int(chosen == "ABC".index(row["answer"])))
    table["hit"] = hits
    table.drop(columns="image").to_csv(tmp_path / "result.tsv", sep="\t", index=False)
    words = [sys.executable, file.with_suffix(".py"), tmp_path / "result.tsv"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    scores = dict(zip(said[::2], map(float, said[1::2]), strict=True))
    assert scores == pytest.approx({k: 100 * v for k, v in own_numbers().items()}, abs=0.01)
    report = table.groupby("category")["hit"].mean()
    assert report["basic"] == pytest.approx(own_numbers()["acc_b"])
    for path in (file, file.with_suffix(".py")):
        with pytest.raises(UserError, match="holds a table of VLMEvalKit already"):
            export_vlmevalkit(lambda: SETS, path.with_suffix(".tsv"))
        path.unlink()
    with pytest.raises(UserError, match=r"should be a file NAME\.tsv"):
        export_vlmevalkit(lambda: SETS, tmp_path / "own.csv")


TEXTS = st.text(
    st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from('\t\n"'), min_size=1
)
ODD = ["None", "NA", "nan", "2", "007", "1.50", "-inf", "INFINITY", "true", "FALSE", '"', "=1+1"]
OPTIONS = st.sampled_from(ODD) | TEXTS


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(st.lists(st.lists(OPTIONS, min_size=2, max_size=4, unique=True), min_size=1, max_size=4))
def test_pandas_reads_every_option_as_it_is_or_in_quotes(options):
    options = [choices for choices in options if all(choice.strip() for choice in choices)]
    sets = []
    for number, choices in enumerate(options):
        questions = [
            SourceQuestion(kind, kind, f"What?\t{choices[0]}\n", tuple(choices), 1)
            for kind in ("basic", "counterfactual")
        ]
        sets.append(asked_set(image(number, questions=questions)))
    if not sets:
        return
    with tempfile.TemporaryDirectory() as folder:
        export_vlmevalkit(lambda: sets, Path(folder, "x.tsv"))
        table = read_table(Path(folder, "x.tsv"))
    assert len(table) == 2 * len(options)
    for row, choices in zip(table.to_dict("records")[::2], options, strict=True):
        shown = [str(row[a]) for a in "ABCD" if a in row and not pandas.isna(row[a])]
        assert [a in (b, f'"{b}"') for a, b in zip(shown, choices, strict=True)] == [True] * len(
            choices
        )
        assert row["question"] == f"What?\t{choices[0]}\n"


# What both share.


@settings(max_examples=examples(200))
@given(st.lists(st.sampled_from(["the ", "A", "two", "2", ", ", "answer is ", "Yes", ".", " no"])))
def test_written_answers_are_read_as_by_the_benchmark(parts):
    text = "".join(parts)
    for options in (("yes", "no"), ("2", "two cats", "A"), ("3", "a 2"), ("no", "no")):
        assert evaluator_scores.parse_answer(text, options) == parse_answer(text, options)


def test_questions_that_cannot_be_asked_are_left_out_or_refused(tmp_path):
    cf_set = SETS[0]
    bare = details_of(replace(IMAGES[0].questions[1], options=("2",)))
    members = [replace(cf_set.members[1], extra={**cf_set.members[1].extra, QUESTION: bare})]
    rows = [
        *question_rows([replace(cf_set, members=(cf_set.members[0], *members, cf_set.members[2]))])
    ]
    assert [row["id"] for row in rows] == ["i0/basic", "i0/c2"]
    assert [*question_rows([replace(cf_set, members=(cf_set.members[0], *members))])] == []
    assert [*question_rows([cf_set], {"i0_0": False})] == []
    assert [*question_rows(IMAGES)] == [*question_rows(SETS)]
    with pytest.raises(UserError, match="'i0' has no image"):
        next(question_rows([replace(IMAGES[0], image=None)]))
    three = [row["group"] for row in question_rows([pair(0, members=3)])]
    assert three == ["pair-00000_1"] * 4 + ["pair-00000_2"] * 4
    shared = replace(
        pair(0), members=tuple(replace(m, image_name="image0") for m in pair(0).members)
    )
    for sets, said in (
        ([cf_set, pair(0)], "exported apart"),
        ([shared], "members 0 and 1 share one image"),
        ([pair(0, members=1)], "one member"),
        ([], "no question to write"),
    ):
        with pytest.raises(UserError, match=said):
            export_lmms_eval(sets, tmp_path / said.replace(" ", "_"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/kept.txt").write_text("mine")
    with pytest.raises(UserError, match="holds what cfaug did not write"):
        export_lmms_eval(SETS, tmp_path / "mine")
