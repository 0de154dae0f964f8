"""Logs of other evaluators. Those in ``logs`` were written by their own code.

The models only repeat given answers: lm-eval 0.4.13, lmms-eval 0.7.3, and inspect_ai 0.3.285
without the conversations.
"""

from __future__ import annotations

import contextlib
import json
import struct
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from cfaug.core.errors import UserError
from cfaug.report.document import to_markdown
from cfaug.report.item_lists import evaluator_logs
from cfaug.report.item_lists.evaluator_logs import HEADER, SUMMARIES, ZSTANDARD
from cfaug.report.item_lists.item_files import (
    compare_item_files,
    comparison_document,
    read_item_files,
)
from cfaug.report.item_lists.item_tables import ItemColumns
from cfaug.stats.item_tests import mcnemar

LOGS = Path(__file__).parent / "logs"
LM_EVAL = sorted(LOGS.glob("lm_eval/*/*.jsonl"))
LMMS_EVAL = sorted(LOGS.glob("lmms_eval/*/*.jsonl"))
INSPECT = [LOGS / "inspect_ai/a.eval", LOGS / "inspect_ai/b.eval"]


def compare(files, **columns):
    return compare_item_files(read_item_files([*files], ItemColumns(**columns)))


def test_lm_evaluation_harness_by_filter():
    strict = {"filter": "strict-match", "cluster": "doc.photo"}
    [tested] = compare(LM_EVAL, **strict)
    lines = [[json.loads(line) for line in file.read_text().splitlines()] for file in LM_EVAL]
    ours, theirs = (
        [d["exact_match"] for d in log if d["filter"] == "strict-match"] for log in lines
    )
    assert tested.means == (sum(ours) / 6, sum(theirs) / 6) == (4 / 6, 2 / 6)
    assert (tested.first, tested.other, tested.metric) == ("a", "b", "exact_match")
    assert (tested.better, tested.worse, tested.p_exact) == (3, 1, mcnemar(3, 1))
    assert (tested.drawn.items, tested.drawn.clusters) == (6, 3)
    [loose] = compare(LM_EVAL, filter="flexible-extract", item="doc_id")
    assert (loose.better, loose.worse) == (2, 1)
    with pytest.raises(UserError, match=r"several filters: .* strict-match, flexible-extract"):
        compare(LM_EVAL)
    with pytest.raises(UserError, match="no filter 'none'; it has strict-match, flexible-extract"):
        compare(LM_EVAL, filter="none")
    with pytest.raises(UserError, match=r"filter=x: .*a\.eval is not a log of lm-eval"):
        compare(INSPECT, filter="x")


def test_lmms_eval_by_dotted_columns():
    answers = read_item_files(LMMS_EVAL, ItemColumns(cluster="acc_plus.group"))
    every, counterfactual = compare_item_files(answers)
    assert every.metric == "acc_plus.question_right"
    assert counterfactual.metric == "acc_c.question_right"
    assert (every.drawn.items, every.drawn.clusters) == (10, 2)
    assert counterfactual.means == (0.25, 0.625)  # acc_c, as lmms-eval printed it
    assert answers.copies == {"strict.question_right": "acc_plus.question_right"}
    with pytest.raises(UserError, match=r"line 2 has no acc_b\.group: name a column of clusters"):
        compare(LMMS_EVAL, cluster="acc_b.group")


def test_lmms_evals_dictionaries_of_mmvp(tmp_path):
    files = []
    for name, right in (("a", (1, 1, 0, 1)), ("b", (1, 0, 0, 0))):
        files.append(tmp_path / name / "20260101_000000_samples_mmvp.jsonl")
        files[-1].parent.mkdir()
        results = [
            {"index": n, "pair_index": n // 2, "pred": f"{name} says", "gt": "A",
             "is_correct": bool(value)}
            for n, value in enumerate(right)
        ]  # fmt: skip
        files[-1].write_text("".join(
            json.dumps({"doc_id": n, "target": "A", "filtered_resps": [f"{name} says"],
                        "mmvp_accuracy": result, "mmvp_pair_accuracy": result, "input": "?"}) + "\n"
            for n, result in enumerate(results)
        ))  # fmt: skip
    [tested] = compare(files, cluster="mmvp_accuracy.pair_index")
    assert (tested.metric, tested.better, tested.worse) == ("mmvp_accuracy.is_correct", 2, 0)
    assert tested.drawn.clusters == 2
    [named] = compare(files, metrics=["mmvp_pair_accuracy.is_correct"], item="doc_id")
    assert named.means == (0.75, 0.25)
    files[1].write_text(files[1].read_text().replace('"target": "A"', '"target": "B"'))
    with pytest.raises(UserError, match=r"target is 'B', and 'A' at .* not the same questions"):
        compare(files)
    files[1].write_text(2 * files[0].read_text())
    with pytest.raises(UserError, match="several lines for a doc_id: lmms-eval does not write"):
        compare(files)


def test_inspect_ai_by_means_over_epochs():
    [tested] = compare(INSPECT, cluster="metadata.photo")
    assert (tested.first, tested.other, tested.metric) == ("mockllm/a", "mockllm/b", "match")
    assert tested.means == (4 / 6, 2.5 / 6)  # of 12 answers each, as inspect_ai printed them
    assert (tested.drawn.items, tested.drawn.clusters) == (6, 3)
    parts = compare(INSPECT, by="metadata.kind")
    assert [row.part for row in parts] == ["all", "basic", "counterfactual"]
    other = read_item_files([INSPECT[0], LOGS / "inspect_ai/b.json"], ItemColumns())
    assert compare_item_files(other)[0].drawn == compare(INSPECT)[0].drawn


def sample(number, value, **more):
    return {"id": number, "epoch": 1, "target": ["a", "b"], "scores": {"judge": {"value": value}},
            **more}  # fmt: skip


def inspect_log(file: Path, values, model="m") -> Path:
    samples = [sample(n, value) for n, value in enumerate(values)]
    content = {"status": "success", "eval": {"model": model}, "samples": samples}
    file.write_text(json.dumps(content))
    return file


def test_grades_are_numbers_and_names_are_escaped(tmp_path):
    first = inspect_log(tmp_path / "a.json", "CPIN", "<script>a|b")
    second = inspect_log(tmp_path / "b.json", "IPCC", "x/../y")
    answers = read_item_files([first, second], ItemColumns())
    assert answers.metrics["judge"].tolist() == [[1, 0.5, 0, 0], [0, 0.5, 1, 1]]
    assert "<script" not in to_markdown(comparison_document(answers, compare([first, second]), "x"))
    short = inspect_log(tmp_path / "c.json", "CP")
    with pytest.raises(UserError, match=r"c\.json lacks the items '2', '3'"):
        compare([first, short])
    same = inspect_log(tmp_path / "d.json", "IPCC", "<script>a|b")
    assert compare([first, same])[0].first == "a"  # two logs of one model: by their files
    errors = inspect_log(tmp_path / "e.json", "CPIN")
    content = json.loads(errors.read_text())
    del content["samples"][1]["scores"]
    errors.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"1 items have a value in one file .*, sample 1"):
        compare([first, errors])
    errors.write_text(json.dumps(content | {"samples": None}))
    with pytest.raises(UserError, match="not a log of inspect_ai with samples"):
        compare([first, errors])


def write_eval(file: Path, members: dict[str, bytes], method: int, size: int | None = None) -> Path:
    """Write a zip; with zstd as inspect_ai does, in frames (of 200 MB), and with a wrong size."""

    def packed(data: bytes) -> bytes:
        parts = (data[: len(data) // 2], data[len(data) // 2 :])
        return b"".join(pa.compress(part, "zstd", asbytes=True) for part in parts)

    stored = {n: packed(data) if method == ZSTANDARD else data for n, data in members.items()}
    with zipfile.ZipFile(file, "w", 0 if method == ZSTANDARD else method) as archive:
        for name, data in stored.items():
            archive.writestr(name, data)
    if method == ZSTANDARD:  # zipfile before Python 3.14 cannot write it: change the directory
        content = bytearray(file.read_bytes())
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
        at = content.index(b"PK\x01\x02")
        for info in infos:
            plain = members[info.filename]
            crc, length = zipfile.crc32(plain), len(plain) if size is None else size
            struct.pack_into("<H", content, at + 10, ZSTANDARD)
            struct.pack_into("<I", content, at + 16, crc)
            struct.pack_into("<I", content, at + 24, length)
            struct.pack_into("<H", content, info.header_offset + 8, ZSTANDARD)
            at = content.find(b"PK\x01\x02", at + 4)
        file.write_bytes(content)
    return file


HEAD = json.dumps({"eval": {"model": "m"}}).encode()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, ZSTANDARD])
def test_archives_are_read_by_every_method_and_checked(tmp_path, method, monkeypatch):
    summaries = json.dumps([sample(n, value) for n, value in enumerate("CCIC")]).encode()
    members = {HEADER: HEAD, SUMMARIES: summaries}
    file = write_eval(tmp_path / "a.eval", members, method)
    log = evaluator_logs.read_log(file)
    assert [record["judge"] for _, record in log.records] == [1, 1, 0, 1]
    unfinished = write_eval(tmp_path / "b.eval", {HEADER: HEAD}, method)
    with pytest.raises(UserError, match=r"lacks summaries\.json: the evaluation is unfinished"):
        evaluator_logs.read_log(unfinished)
    for place in range(40, len(file.read_bytes()), 7):  # nothing but a UserError, or the content
        content = bytearray(file.read_bytes())
        content[place] ^= 0xFF
        (tmp_path / "c.eval").write_bytes(content)
        with contextlib.suppress(UserError):
            read = evaluator_logs.read_log(tmp_path / "c.eval")
            assert [record for _, record in read.records] == [record for _, record in log.records]
    monkeypatch.setattr(evaluator_logs, "LARGEST", 100)
    with pytest.raises(UserError, match=r"says it has .* bytes: not read"):
        evaluator_logs.read_log(file)
    (tmp_path / "d.json").write_bytes(b" " * 101)
    with pytest.raises(UserError, match=r"larger than 100 bytes: give the log as \.eval"):
        evaluator_logs.read_log(tmp_path / "d.json")


def test_an_archive_that_unpacks_to_more_than_it_says_is_refused(tmp_path):
    bomb = b"[" + b" " * 2**26 + b"]"
    members = {HEADER: HEAD, SUMMARIES: bomb}
    file = write_eval(tmp_path / "a.eval", members, ZSTANDARD, size=len(HEAD))
    assert file.stat().st_size < 2**16
    before = pa.total_allocated_bytes()
    with pytest.raises(UserError, match=r"summaries\.json is damaged"):
        evaluator_logs.read_log(file)
    assert pa.total_allocated_bytes() - before < 2**20


def test_a_target_that_one_version_writes_as_a_number_is_the_same_target(tmp_path):
    files = []
    for name, target in (("a", 2), ("b", "2")):
        (tmp_path / name).mkdir()
        line = {"doc_id": 0, "target": target, "filtered_resps": ["x"], "acc": int(name == "a")}
        files.append(tmp_path / name / "samples_t.jsonl")
        files[-1].write_text(json.dumps(line) + "\n")
    assert compare(files)


def test_two_logs_in_one_file_are_refused(tmp_path):
    twice = tmp_path / "b" / LM_EVAL[1].name
    twice.parent.mkdir()
    twice.write_text(2 * LM_EVAL[1].read_text())
    with pytest.raises(UserError, match="several lines for a doc_id: keep those of one run"):
        compare([LM_EVAL[0], twice], filter="strict-match")
