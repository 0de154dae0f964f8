"""Logs of other evaluators, read as lists of items: lm-evaluation-harness, lmms-eval, inspect_ai.

A reader returns ``None`` for a file that it does not recognise. To add one: a function like
``_read_harness``, and its call in ``read_log``.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, name_some
from cfaug.core.files import require_regular
from cfaug.core.safety.json_text import json_file, parse_json
from cfaug.data.sources.lists import Record, json_lines
from cfaug.report.item_lists.choice_answers import (
    describe_choice,
    describe_target,
    find_choice,
    read_choices,
)

TARGET = "target"
"""The column with the right answer: equal in all logs of one task."""
TASK = "task"
ABOUT = ("doc.", "metadata.")
"""How the names of columns begin that describe an item: they are never taken for results."""
LARGEST = 2**30
"""The largest JSON that is read, in bytes."""
PART = 2**20
"""Bytes that are unpacked at once: what an archive says of its sizes is not believed."""


@dataclass(frozen=True)
class EvaluatorLog:
    """The items of a log.

    Attributes:
        model: the name of the evaluated model.
        records: a record for each item; a value that is missing from some is missing there.
        question: keys of a record that describe the item, besides those that begin with ``ABOUT``.
        prompts: keys of a record with the prompt of the item.
        answers: the model's answer to each item, in the order of the records; empty if unknown.
        targets: the right answers as a page shows them; empty if a column has them as they are.
        about: statements on all items of the log: its task, the filter of its answers.
        unfinished: why items may be missing, and how they are added; empty if none are.
        remarks: sentences that a comparison should print.
    """

    model: str
    records: Sequence[Record]
    question: frozenset[str]
    prompts: frozenset[str] = frozenset()
    about: Mapping[str, str] = field(default_factory=dict)
    unfinished: str = ""
    remarks: Sequence[str] = ()
    answers: Sequence[str] = ()
    targets: Sequence[str] = ()


def read_log(file: Path, chosen: str | None = None) -> EvaluatorLog | None:
    """Return what a log says of each item; ``None`` for a file of another kind.

    Args:
        file: ``samples_*.jsonl`` of lm-evaluation-harness, ``*_samples_*.jsonl`` of lmms-eval,
            ``.eval`` or ``.json`` of inspect_ai.
        chosen: the filter of lm-evaluation-harness whose answers are taken; ``None`` if it has one.
    """
    log = _read_harness(file, chosen) if file.suffix.lower() == ".jsonl" else None
    if log is None and chosen is not None:
        raise UserError(
            f"columns.filter={chosen}: {file} is not a log of lm-evaluation-harness, whose "
            "tasks may have several filters; leave it out"
        )
    return log or _read_inspect(file)


# lm-evaluation-harness (0.4.13) and lmms-eval (0.7.3): a line for each document and filter.

NO_RESULT = {
    "doc", "arguments", "resps", "filtered_resps", "filter", "metrics", "input_media",
    "token_counts",
}  # fmt: skip
"""Keys of a line that are not columns; ``doc`` is unfolded."""
PROMPTS = frozenset({"prompt_hash", "arguments", "input"})
SAMPLES_FILE = re.compile(
    r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl"
    r"|(?P<lmms_date>\d{8}_\d{6})_samples_(?P<lmms_task>.+)\.jsonl"
)
"""The name of a log as lm-evaluation-harness writes it, and as lmms-eval does."""


def _read_lines(file: Path) -> Iterator[Record]:
    """Yield (place, object) of every line of a log, of which the last may be cut off."""
    try:
        yield from json_lines(file)
    except UserError as error:
        raise UserError(
            f"{error}: the file is damaged or was cut off; copy it again, or run its task again"
        ) from error


def _read_harness(file: Path, chosen: str | None) -> EvaluatorLog | None:
    lines = _read_lines(file)
    first = next(lines, None)
    if first is None or not {"doc_id", "filtered_resps"} <= first[1].keys():
        return None
    filters: dict[str, list[Record]] = {}
    said: dict[str, list[str]] = {}
    targets: dict[str, list[str]] = {}
    for where, line in chain([first], lines):
        results = {name: value for name, value in line.items() if name not in NO_RESULT}
        record = unfold({"doc": line.get("doc")}) | results
        if "arguments" in line and "prompt_hash" not in line:  # of versions without hashes
            record["arguments"] = [line["arguments"]]
        filters.setdefault(str(line.get("filter", "")), []).append((where, record))
        answer = line["filtered_resps"]
        while isinstance(answer, list) and len(answer) == 1:
            [answer] = answer
        target = as_written(line.get(TARGET, ""))
        if (choice := find_choice(answer)) is not None:
            texts = read_choices(line, len(answer))
            target = describe_target(target, texts, len(answer))
            answer = describe_choice(choice, texts, len(answer))
        said.setdefault(str(line.get("filter", "")), []).append(as_written(answer))
        targets.setdefault(str(line.get("filter", "")), []).append(target)
    if chosen is None and len(filters) > 1:
        raise UserError(
            f"{file} has answers of several filters: columns.filter=NAME chooses one of "
            f"{', '.join(filters)}"
        )
    if chosen is not None and chosen not in filters:
        raise UserError(f"{file} has no filter {chosen!r}; it has {', '.join(filters)}")
    name = next(iter(filters)) if chosen is None else chosen
    records = filters[name]
    why = "keep those of one run"
    if "filter" not in first[1]:
        why = (
            "lmms-eval does not write which filter, or which of several runs, a line is from; "
            "run the task again with one filter"
        )
    places: dict[str, str] = {}
    for where, answered in records:
        doc_id = str(answered.get("doc_id"))
        if doc_id in places:
            raise UserError(
                f"{where}: doc_id {doc_id} is duplicated, it is at {places[doc_id]} already: "
                f"several lines for a doc_id: {why}"
            )
        places[doc_id] = where
    about = {"filter": name} if name else {}
    unfinished, remarks = "", []
    if written := SAMPLES_FILE.fullmatch(file.name):
        task = written["task"] or written["lmms_task"]
        about[TASK] = task
        results_name = f"results_{written['date']}.json"
        if written["lmms_date"]:
            results_name = f"{written['lmms_date']}_results.json"
        original, effective = _count_documents(file.with_name(results_name), task)
        if len(records) < effective:
            unfinished = (
                f"{file} has {len(records):,} of the {effective:,} items that {results_name} "
                f"counts of {task}: run the task again"
            )
        if effective < original:
            remarks.append(
                f"{file.parent.name}: a run of {effective:,} of the {original:,} items of {task}."
            )
    return EvaluatorLog(
        file.absolute().parent.name, records, frozenset({"doc_hash", "target_hash", TARGET, "doc"}),
        PROMPTS, about, unfinished, remarks, said[name], targets[name],
    )  # fmt: skip


def as_written(value: Any) -> str:
    """Return an answer as a page shows it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def filters_of(file: Path) -> list[str]:
    """Return the filters whose answers a log of lm-evaluation-harness has; empty for others."""
    if file.suffix.lower() != ".jsonl":
        return []
    lines = _read_lines(file)
    first = next(lines, None)
    if first is None or not {"doc_id", "filtered_resps", "filter"} <= first[1].keys():
        return []
    return list(dict.fromkeys(str(line.get("filter", "")) for _, line in chain([first], lines)))


def _count_documents(results: Path, task: str) -> tuple[int, int]:
    """Return how many documents a task has, and how many were evaluated; 0 if unknown."""
    with suppress(UserError, AttributeError, KeyError, TypeError, ValueError, OSError):
        if results.is_file() and results.stat().st_size <= LARGEST:
            counts = json_file(results)["n-samples"][task]
            return int(counts["original"]), int(counts["effective"])
    return 0, 0


def unfold(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record whose dictionaries have a dotted name for each of their values, one level.

    >>> unfold({"id": 1, "score": {"right": True, "by": {"a": 1}}})
    {'id': 1, 'score.right': True, 'score.by': {'a': 1}}
    """
    unfolded: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            unfolded |= {f"{name}.{key}": part for key, part in value.items()}
        else:
            unfolded[name] = value
    return unfolded


# inspect_ai (0.3.285): a zip of JSON (.eval), or one JSON.

GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partial, incorrect and no answer, with the values of inspect_ai's ``value_to_float``."""
SUMMARIES, HEADER = "summaries.json", "header.json"
ZSTANDARD = 93
"""A method of compression in zips that ``zipfile`` reads from Python 3.14 on."""


IMAGES = "input.images"
"""The column with the pictures of an input, which summaries of samples lack."""


def _read_inspect(file: Path) -> EvaluatorLog | None:
    if file.suffix.lower() == ".eval":
        header, samples = _read_archive(file)
    elif file.suffix.lower() == ".json":
        if require_regular(file).stat().st_size > LARGEST:
            raise UserError(f"{file} is larger than {LARGEST:,} bytes: give the log as .eval")
        header = json_file(file)
        if not (isinstance(header, dict) and {"eval", "status"} <= header.keys()):
            return None
        samples = header.get("samples")
    else:
        return None
    try:
        unfinished = _why_unfinished(header, samples, file)
        if not samples and unfinished:
            raise UserError(unfinished)
        failed = sum(sample.get("error") is not None for sample in samples)
        remarks = [f"{failed:,} of {len(samples):,} samples of {file.name} ended with an error."]
        remarks = remarks * bool(failed)
        if header.get("invalidated"):
            remarks.append(f"{file.name} is marked as invalidated by its author.")
        counts = {*Counter(str(sample["id"]) for sample in samples).values()}
        if len(counts) > 1:
            remarks.append(
                f"{file.name}: samples have {min(counts)} to {max(counts)} epochs, over which "
                "their scores are averaged."
            )
        records = [*_mean_over_epochs(samples, file)]
        # Of each sample's first epoch, as its first scorer read it.
        answers: dict[str, str] = {}
        for sample in samples:
            scores = [*(sample.get("scores") or {}).values()]
            answer = next((score["answer"] for score in scores if score.get("answer")), "")
            answers.setdefault(str(sample["id"]), str(answer))
        return EvaluatorLog(
            str(header["eval"]["model"]), records, frozenset({"input", IMAGES, "choices", TARGET}),
            # A task of a package has its name before it: inspect_evals/gsm8k.
            about={TASK: str(header["eval"]["task"]).rpartition("/")[2]}
            if "task" in header["eval"]
            else {},
            unfinished=unfinished, remarks=remarks,
            answers=[*answers.values()],
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"{file} is not a log of inspect_ai with samples: {error!r}") from error


def _why_unfinished(header: Mapping[str, Any], samples: Any, file: Path) -> str:
    """Return why samples of a log are missing; empty if none are."""
    again = f"`inspect eval-retry {file}` runs what is missing"
    status = header.get("status", "success")
    if status != "success":
        message = str((header.get("error") or {}).get("message") or "").partition("\n")[0]
        cause = f" ({message[:100]})" if message else ""
        return f"{file}: the evaluation did not finish, its status is {status!r}{cause}: {again}"
    planned = (header.get("results") or {}).get("total_samples") or 0
    if samples and len(samples) < planned:
        return f"{file} has {len(samples):,} of the {planned:,} samples that it counts: {again}"
    return ""


def _mean_over_epochs(samples: Any, file: Path) -> Iterator[Record]:
    """Yield a record for each sample, with the mean of its scores over epochs."""
    epochs: dict[str, list[dict[str, Any]]] = {}
    numbers: set[tuple[str, str]] = set()
    for sample in samples:
        name, number = str(sample["id"]), str(sample.get("epoch"))
        if (name, number) in numbers:
            raise UserError(
                f"{file}, sample {name}: epoch {number} is duplicated: keep the samples of one run"
            )
        numbers.add((name, number))
        scores = {name: score["value"] for name, score in (sample.get("scores") or {}).items()}
        epochs.setdefault(name, []).append(
            unfold({"metadata": sample.get("metadata")}) | unfold(scores) | _read_input(sample)
            | {"id": sample["id"], TARGET: sample["target"]}
        )  # fmt: skip
    for name, records in epochs.items():
        where = f"{file}, sample {name}"
        merged = {key: value for record in reversed(records) for key, value in record.items()}
        for key in merged.keys() - {"id", "input", IMAGES, "choices", TARGET}:
            if not key.startswith(ABOUT):
                merged[key] = _mean([record[key] for record in records if key in record])
        for key in ("input", TARGET):
            if any(record.get(key) != merged.get(key) for record in records):
                raise UserError(
                    f"{where}: {key} differs between its epochs: two samples have this name"
                )
        yield where, merged


def _read_input(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return the question of a sample in words, without the names of its messages, and pictures."""
    question: dict[str, Any] = {}
    pictures: list[Any] = []
    if isinstance(given := sample.get("input"), list):
        texts = []
        for message in given:
            content = message.get("content")
            for part in content if isinstance(content, list) else [{"text": content}]:
                if part.get("type", "text") != "text":
                    pictures.append(part)
                text = part.get("text", f"({str(part.get('type')).capitalize()})")
                texts.append(f"{message.get('role')}: {text}")
        given = "\n".join(texts)
    if given is not None:
        question["input"] = given
    if pictures:
        question[IMAGES] = pictures
    if sample.get("choices"):
        question["choices"] = sample["choices"]
    return question


def _mean(values: Sequence[Any]) -> Any:
    """Return the mean of grades and numbers; the value of a single epoch if it is neither."""
    numbers = [GRADES.get(value, value) if isinstance(value, str) else value for value in values]
    counted = [number for number in numbers if isinstance(number, int | float) and number == number]
    if len(numbers) == 1 and not counted:
        return numbers[0]
    return sum(counted) / len(counted) if counted else None


@dataclass(frozen=True)
class LogHeader:
    """What a log of inspect_ai says of itself before its samples are read."""

    task: str
    created: str
    model: str


def read_header(file: Path) -> LogHeader | None:
    """Return the task of a log of inspect_ai and its date; ``None`` for a file of another kind."""
    suffix = file.suffix.lower()
    if suffix == ".eval":
        header, _ = _read_archive(file, (HEADER,))
    elif suffix == ".json" and file.stat().st_size <= LARGEST:
        header = json_file(file)
    else:
        return None
    about = header.get("eval") if isinstance(header, dict) else None
    if not isinstance(about, dict):
        return None
    task = str(about.get("task", "")).rpartition("/")[2]
    return LogHeader(task, str(about.get("created", "")), str(about.get("model", "")))


def _read_archive(file: Path, wanted: Sequence[str] = (HEADER, SUMMARIES)) -> tuple[Any, Any]:
    """Return header and summaries of samples, which hold every score but no conversation."""
    try:
        with zipfile.ZipFile(require_regular(file)) as archive:
            missing = {*wanted} - {*archive.namelist()}
            if missing:
                raise UserError(
                    f"{file} lacks {name_some(sorted(missing))}: the evaluation is unfinished; "
                    f"`inspect eval-retry {file}` runs what is missing"
                )
            contents = [_read_member(archive, name, file) for name in wanted]
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError) as error:
        raise UserError(f"{file} is not a readable .eval log: {error}") from error
    header, *samples = (parse_json(content, str(file)) for content in contents)
    return header, next(iter(samples), None)


def _read_member(archive: zipfile.ZipFile, name: str, file: Path) -> bytes:
    import pyarrow as pa

    member = archive.getinfo(name)
    if member.file_size > LARGEST:
        raise UserError(f"{file}: {name} says it has {member.file_size:,} bytes: not read")
    raw = copy(member)
    if member.compress_type == ZSTANDARD:  # read what is stored, and unpack it here
        raw.compress_type, raw.file_size = zipfile.ZIP_STORED, raw.compress_size
        raw.CRC = None  # type: ignore[assignment]  # that of the unpacked bytes, checked below
    with archive.open(raw) as stream:
        plain = stream
        if member.compress_type == ZSTANDARD:
            plain = pa.CompressedInputStream(pa.PythonFile(stream, "r"), "zstd")
        content = bytearray()
        while len(content) <= member.file_size and (part := plain.read(PART)):
            content += part
    if len(content) != member.file_size or zlib.crc32(content) != member.CRC:
        raise UserError(f"{file}: {name} is damaged")
    return bytes(content)


# VLMEvalKit: a sheet for each model and data set, with a column ``hit``.

PICTURE = "image"
"""The column with pictures in base64, which is not read."""


def sheet_records(file: Path) -> Iterator[Record]:
    """Yield the rows of the first sheet of a workbook by the names in its first row.

    Raises:
        UserError: if openpyxl is missing, or the file is no workbook of at most ``LARGEST`` bytes.
    """
    try:
        from openpyxl import load_workbook
    except ModuleNotFoundError as error:
        raise UserError(
            f"{file}: workbooks are read by openpyxl: pip install 'cfaug[xlsx]', or save the sheet "
            "as .csv"
        ) from error
    try:
        with zipfile.ZipFile(require_regular(file)) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > LARGEST:
            raise UserError(f"{file} has {size:,} bytes when unpacked: save the sheet as .csv")
        book = load_workbook(file, read_only=True, data_only=True)
        rows = book.worksheets[0].iter_rows(values_only=True)
        names = [str(name) for name in next(rows, ()) if name is not None]
        if len({*names}) < len(names):
            raise UserError(f"{file}: a column is duplicated in its first row")
        for number, row in enumerate(rows, 2):
            if any(cell is not None for cell in row):
                record = dict(zip(names, row, strict=False))
                record.pop(PICTURE, None)
                yield f"{file}, row {number}", record
    except (zipfile.BadZipFile, zlib.error, OSError, KeyError, ValueError, SyntaxError) as error:
        raise UserError(
            f"{file} is not a readable workbook ({error}): save the sheet as .csv"
        ) from error
