"""Strict reading of lists: csv, tsv, jsonl, and json with a list of records.

A row that does not fit the header, an unclosed quote, and text that is not UTF-8 are errors that
name the line.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, say_once
from cfaug.core.files import require_regular
from cfaug.core.safety.json_text import json_file, parse_json
from cfaug.core.text import require_unicode
from cfaug.data.sources.fields import field_names

LISTS = (".csv", ".json", ".jsonl", ".tsv")
"""Extensions of lists."""
LONGEST_LINE = 16 * 2**20
"""Maximum size of a line in bytes: a file without line ends is not a list, and is not read into
memory."""
DELIMITERS = {",": "a comma", "\t": "a tab", ";": "a semicolon", "|": "a bar"}
CARRIAGE_RETURNS = r"lines end in \r alone, as on old Macs; save the file with line ends \n"
Record = tuple[str, Mapping[str, Any]]
"""The place of a record, ``FILE, line N``, and its fields by column."""


def list_records(file: Path, longest_field: int | None = None) -> Iterator[Record]:
    """Return every record of a list, in order, under the names of ``data.fields``.

    The extension determines the format. A csv may be separated by tabs, semicolons or bars instead
    of commas, which its header shows. Empty lines are skipped.

    Args:
        file: a ``.csv``, ``.tsv``, ``.jsonl`` (a JSON object a line) or ``.json`` (a list of
            objects).
        longest_field: maximum number of characters in a field, for fields with an image; ``None``
            is ``csv``'s limit, beyond which a quote is probably not closed.
    """
    return field_names().records(file, _records_of(file, longest_field))


def _records_of(file: Path, longest_field: int | None) -> Iterator[Record]:
    kind = file.suffix.lower()
    if kind == ".json":
        content = json_file(file)
        if not isinstance(content, list):
            raise UserError(f"{file} should be a list of JSON objects")
        for number, record in enumerate(content):
            if not isinstance(record, dict):
                raise UserError(f"{file}, [{number}] should be a JSON object")
            yield f"{file}, [{number}]", record
    elif kind == ".jsonl":
        yield from json_lines(file)
    elif kind in (".csv", ".tsv"):
        yield from table_records(file, longest_field)
    else:
        advice = "; save the sheet as .csv" if kind in (".xlsx", ".xls", ".ods") else ""
        raise UserError(f"{file} is not a readable list: choose from {', '.join(LISTS)}{advice}")


def text_lines(file: Path) -> Iterator[tuple[str, str]]:
    r"""Yield (place, line) for every line of a text file, with its line end and without a BOM.

    Lines end at ``\n``; a ``\r`` before it belongs to the end.
    """
    try:
        with require_regular(file).open("rb") as handle:
            lines = iter(lambda: handle.readline(LONGEST_LINE + 1), b"")
            for number, data in enumerate(lines, 1):
                where = f"{file}, line {number}"
                if len(data) > LONGEST_LINE:
                    raise UserError(
                        f"{where} is longer than {LONGEST_LINE:,} bytes: is it a text file?"
                    )
                try:
                    line = data.decode()
                except UnicodeDecodeError as error:
                    raise UserError(
                        f"{where} is not UTF-8 (byte 0x{data[error.start]:02x}); save the file as "
                        "UTF-8"
                    ) from error
                if number == 1 and "\n" not in line and "\r" in line.rstrip("\r"):
                    raise UserError(f"{where}: {CARRIAGE_RETURNS}")
                if "\0" in line:
                    raise UserError(f"{where} holds a NUL byte: is it a text file in UTF-8?")
                yield where, line.removeprefix("\ufeff") if number == 1 else line
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error


def json_lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, object) of every line of a jsonl file that is not blank."""
    for where, line in text_lines(file):
        if line.strip():
            record = parse_json(line, where)
            if not isinstance(record, dict):
                raise UserError(f"{where} should be a JSON object")
            yield where, record


def table_records(
    file: Path, longest_field: int | None = None, *, unquoted: bool = False
) -> Iterator[Record]:
    """Yield every record of a csv or tsv, whatever its extension.

    Args:
        unquoted: whether the second of two columns may contain the separator without quotes, as
            captions of Flickr8k do.
    """
    lines = (line for _, line in text_lines(file))
    head = [*islice(lines, 2)]
    delimiter = _delimiter(file, head)
    content: Iterable[str] = chain(head, lines)
    if unquoted and head and head[0].count(delimiter) == 1:
        content = _quote_captions(content, delimiter, file)
    table = csv.reader(content, delimiter=delimiter, strict=True)
    columns: list[str] = []
    while True:
        start = table.line_num + 1
        where = f"{file}, line {start}"
        limit = csv.field_size_limit()
        try:
            # The limit is global in the process, and is restored.
            csv.field_size_limit(longest_field or limit)
            row = next(table, None)
        except csv.Error as error:
            cause = f'{error}; put a caption with quotes in quotes, and write its own twice ("")'
            if "field limit" in str(error):
                cause = f"a field is longer than {limit:,} characters: is a quote not closed?"
            elif "new-line character" in str(error):
                cause = CARRIAGE_RETURNS
            elif table.line_num > start or "end of data" in str(error):
                cause = (
                    "a quote opens here and is not closed; close it, or write it twice "
                    '("") in a field'
                )
            raise UserError(f"{where}: {cause}") from error
        finally:
            csv.field_size_limit(limit)
        if row is None:
            return
        if not any(field.strip() for field in row) and (len(row) < 2 or not columns):
            continue
        if not columns:
            columns = [name.strip() for name in row]
            if "" in columns[1:]:  # only the first one, pandas' index, may be without a name
                at = columns.index("", 1) + 1
                raise UserError(
                    f"{where}: column {at} of the header has no name; name or remove it"
                )
            twice = next((name for name in columns if columns.count(name) > 1), None)
            if twice is not None:
                raise UserError(
                    f"{where}: the column {twice!r} is duplicated; rename or remove one"
                )
            continue
        if len(row) != len(columns):
            raise UserError(
                f"{where}: {len(row)} field{'s' * (len(row) != 1)}, the header has {len(columns)}: "
                f"quote captions that contain {DELIMITERS[delimiter]}"
            )
        record = dict(zip(columns, row, strict=True))
        record.pop("", None)
        yield where, record


def _quote_captions(lines: Iterable[str], mark: str, file: Path) -> Iterator[str]:
    """Yield lines of two columns, the second one in quotes even if the list has none."""
    inside = False
    for line in lines:
        name, separator, text = line.rstrip("\r\n").partition(mark)
        if inside or not separator or '"' in (name[:1], text[:1]):
            inside ^= line.count('"') % 2 == 1
            yield line
            continue
        if mark in text:
            say_once(f"{file}: {DELIMITERS[mark]} in a caption without quotes is read as such")
        doubled = text.replace('"', '""')
        yield f'{name}{mark}"{doubled}"\n'


def _delimiter(file: Path, head: Sequence[str]) -> str:
    """Return the separator of fields: open_clip's lists have tabs, whatever their extension.

    Of several in the header it is the one that divides the next line into as many fields, the most.
    """
    header = head[0] if head else ""
    if file.suffix.lower() == ".tsv" or "\t" in header:
        return "\t"

    def fields_alike(mark: str) -> int:
        try:
            lengths = {len(row) for row in csv.reader(head, delimiter=mark) if row}
        except csv.Error:
            return 0  # reported by the reader of the table
        return lengths.pop() if len(lengths) == 1 else 0

    return max([mark for mark in DELIMITERS if mark in header] or [","], key=fields_alike)


# Lists in a cell of a table, as printed by Python or JSON: parsed, never executed.

LONGEST_CELL = 2**20
"""Maximum number of characters in a cell: a longer one is not a list of names."""
_STRING = r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\""

# Possessive quantifiers (*+, ?+) avoid backtracking: a cell of a million spaces is refused at once.
_LIST = re.compile(rf"\s*+\[\s*+(?:(?:{_STRING})\s*+(?:,\s*+(?:{_STRING})\s*+)*+,?+\s*+)?+\]\s*+")
_ITEM = re.compile(_STRING)


def is_list_of_texts(cell: object) -> bool:
    """Return whether a cell begins and ends like a list, or is already one, as in JSON.

    >>> is_list_of_texts("['a']"), is_list_of_texts(["a"]), is_list_of_texts("a dog")
    (True, True, False)
    """
    if isinstance(cell, list):
        return all(isinstance(item, str) for item in cell)
    return isinstance(cell, str) and cell.strip()[:1] == "[" and cell.strip()[-1:] == "]"


def read_texts(cell: object, where: str) -> list[str]:
    r"""Return the texts of a flat list, printed in a cell of a csv or read from JSON.

    Each text is one string literal, and nothing else is allowed between the brackets.

    >>> read_texts("['dog', \"dog's tail\", ]", "line 2")
    ['dog', "dog's tail"]
    """
    if isinstance(cell, list) and all(isinstance(item, str) for item in cell):
        return list(cell)
    if isinstance(cell, str) and len(cell) <= LONGEST_CELL and _LIST.fullmatch(cell):
        try:
            texts = [str(ast.literal_eval(match.group())) for match in _ITEM.finditer(cell)]
            return [require_unicode(text, where) for text in texts]
        except (ValueError, SyntaxError) as error:  # for an invalid escape
            raise UserError(f"{where}: {cell[:80]!r} is not a list of texts: {error}") from error
    raise UserError(
        f"{where} should be a list of texts in quotes, as in ['dog', 'fire hydrant'], not "
        f"{str(cell)[:80]!r}; nothing of a cell is run"
    )
