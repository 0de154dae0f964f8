"""Logs of other evaluators, read as lists of items: lm-evaluation-harness, lmms-eval, inspect_ai.

A reader returns ``None`` for a file that it does not recognise. To add one: a function like
``_read_harness``, and its call in ``read_log``.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, name_some
from cfaug.core.files import require_regular
from cfaug.data.sources.lists import Record, json_file, json_lines, parse_json

TARGET = "target"
"""The column with the right answer: equal in all logs of one task."""
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
    """

    model: str
    records: Sequence[Record]


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
            f"compare_columns.filter={chosen}: {file} is not a log of lm-evaluation-harness, whose "
            "tasks may have several filters; leave it out"
        )
    return log or _read_inspect(file)


# lm-evaluation-harness (0.4.13) and lmms-eval (0.7.3): a line for each document and filter.

NO_RESULT = {
    "doc", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash", "prompt_hash",
    "target_hash", "input", "input_media", "token_counts",
}  # fmt: skip
"""Keys of a line that are neither its item, nor its target, nor results; ``doc`` is unfolded."""


def _read_harness(file: Path, chosen: str | None) -> EvaluatorLog | None:
    lines = json_lines(file)
    first = next(lines, None)
    if first is None or not {"doc_id", "filtered_resps"} <= first[1].keys():
        return None
    filters: dict[str, list[Record]] = {}
    for where, line in chain([first], lines):
        results = {name: value for name, value in line.items() if name not in NO_RESULT}
        record = unfold({"doc": line.get("doc")}) | results
        filters.setdefault(str(line.get("filter", "")), []).append((where, record))
    if chosen is None and len(filters) > 1:
        raise UserError(
            f"{file} has answers of several filters: compare_columns.filter=NAME chooses one of "
            f"{', '.join(filters)}"
        )
    if chosen is not None and chosen not in filters:
        raise UserError(f"{file} has no filter {chosen!r}; it has {', '.join(filters)}")
    records = filters[next(iter(filters)) if chosen is None else chosen]
    if len({str(record.get("doc_id")) for _, record in records}) < len(records):
        why = "keep those of one run"
        if "filter" not in first[1]:
            why = (
                "lmms-eval does not write which filter, or which of several runs, a line is from; "
                "run the task again with one filter"
            )
        raise UserError(f"{file} has several lines for a doc_id: {why}")
    return EvaluatorLog(file.absolute().parent.name, records)


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
        return EvaluatorLog(str(header["eval"]["model"]), [*_mean_over_epochs(samples, file)])
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"{file} is not a log of inspect_ai with samples: {error!r}") from error


def _mean_over_epochs(samples: Any, file: Path) -> Iterator[Record]:
    """Yield a record for each sample, with the mean of its scores over epochs."""
    epochs: dict[str, list[dict[str, Any]]] = {}
    for sample in samples:
        scores = {name: score["value"] for name, score in (sample.get("scores") or {}).items()}
        epochs.setdefault(str(sample["id"]), []).append(
            unfold({"metadata": sample.get("metadata")}) | unfold(scores)
            | {"id": sample["id"], TARGET: sample["target"]}
        )  # fmt: skip
    for name, records in epochs.items():
        merged = {key: value for record in reversed(records) for key, value in record.items()}
        for key in merged.keys() - {"id", TARGET}:
            if not key.startswith(ABOUT):
                merged[key] = _mean([record[key] for record in records if key in record])
        yield f"{file}, sample {name}", merged


def _mean(values: Sequence[Any]) -> Any:
    """Return the mean of grades and numbers; the value of a single epoch if it is neither."""
    numbers = [GRADES.get(value, value) if isinstance(value, str) else value for value in values]
    counted = [number for number in numbers if isinstance(number, int | float) and number == number]
    if len(numbers) == 1 and not counted:
        return numbers[0]
    return sum(counted) / len(counted) if counted else None


def _read_archive(file: Path) -> tuple[Any, Any]:
    """Return header and summaries of samples, which hold every score but no conversation."""
    try:
        with zipfile.ZipFile(require_regular(file)) as archive:
            missing = {SUMMARIES, HEADER} - {*archive.namelist()}
            if missing:
                raise UserError(
                    f"{file} lacks {name_some(sorted(missing))}: the evaluation is unfinished"
                )
            contents = [_read_member(archive, name, file) for name in (HEADER, SUMMARIES)]
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError) as error:
        raise UserError(f"{file} is not a readable .eval log: {error}") from error
    header, samples = (parse_json(content, str(file)) for content in contents)
    return header, samples


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
