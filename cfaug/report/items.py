"""``items/<benchmark>.parquet``: one model's answers to every test item, one row per item.

``item`` names the test item, ``cluster`` the unit it was sampled in (an image, a set). A metric
that is a mean over items has a column of its own name: the mean of its values is the number in
``results.jsonl`` and their number is its ``n``; it is null where the item does not count. The
schema's metadata contains the hashes of the weights and of the data. If items are rankings,
``rankings/<benchmark>.parquet`` has the ranked candidates in the same form.

``.<benchmark>.parquet.crc32`` beside a file is its checksum. It is hidden, so that programs that
read a folder of parquet pass over it, and no part of the parquet, whose bytes do not depend on it.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote

import numpy as np

from cfaug.core.atomic_files import write_file
from cfaug.core.errors import UserError
from cfaug.core.files import checksum, require_regular
from cfaug.core.item_schema import ItemSchema
from cfaug.core.safety.json_text import load_json
from cfaug.core.types import CLUSTER, ITEM, ColumnValues

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


FOLDER = "items"
"""Name of the folder of items beside a run's results."""
RANKINGS = "rankings"
"""Name of the folder with one row per ranked candidate, if an item is a ranking."""
AGAIN = "remove it, and evaluate.py writes it again"
NUMERIC = "fiub"
"""Kinds of numpy's types that are numbers or truth values."""
FORMAT = "1"
ABOUT = ("format", "benchmark", "weights", "data")
"""Keys in the metadata of the schema."""


@dataclass(frozen=True)
class Items:
    """One model's answers to the items of one benchmark.

    Attributes:
        weights: the hash of the model's weights, as in its results.
        data: the hash of the test data, as in its results.
        columns: columns with one element per item: ``item`` and ``cluster``, then the values;
            ``nan`` or ``None`` where an item has none. Columns read from a file are arrays.
        folder: folder of the run that they were read from; ``None`` if they were not read.
    """

    benchmark: str
    weights: str
    data: str
    columns: Mapping[str, ColumnValues]
    folder: Path | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.columns[ITEM])

    def metric(self, name: str) -> np.ndarray:
        """Return the values of a metric, float64 (items,), ``nan`` where an item does not count."""
        column = np.asarray(self.columns.get(name, ""))
        if column.dtype.kind not in NUMERIC:
            arrays = {key: np.asarray(values) for key, values in self.columns.items()}
            numbers = [key for key, values in arrays.items() if values.dtype.kind in NUMERIC]
            raise UserError(
                f"the items of {self.benchmark} have no values of {name!r}; they have "
                f"{', '.join(numbers) or 'none'}"
            )
        floats = column.astype(np.float64)
        if np.isinf(floats).any():
            raise UserError(f"the items of {self.benchmark} have infinite values of {name!r}")
        return floats


def items_file(folder: Path, benchmark: str, kept: str = FOLDER) -> Path:
    """Return the path of a benchmark's items or, if ``kept`` is ``RANKINGS``, its rankings.

    >>> items_file(Path("run"), "cf/a").as_posix()
    'run/items/cf%2Fa.parquet'
    """
    return folder / kept / f"{quote(benchmark, safe='')}.parquet"


def how_to_renew(benchmark: str) -> str:
    """Return advice on renewing items that are readable but not as their benchmark writes them."""
    file = items_file(Path(), benchmark)
    return f"remove {file} in the run's folder, and evaluate.py writes it again"


def _checksum_file(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc32")


def _checksum_line(check: int) -> bytes:
    return f"{check:08x}\n".encode()


def is_changed(file: Path) -> bool:
    """Return whether a file of items has other bytes than were written.

    A file without a checksum, as all were before, counts as unchanged.

    Raises:
        OSError: if it cannot be read.
    """
    try:
        with require_regular(_checksum_file(file)).open("rb") as handle:
            line = handle.read(len(_checksum_line(0)) + 1)
    except FileNotFoundError:
        return False
    return line != _checksum_line(checksum(file))


def check_items(folder: Path, benchmark: str) -> None:
    """Refuse a folder in which a benchmark's items would replace a file that is not ours."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for kept in (FOLDER, RANKINGS):
        file = items_file(folder, benchmark, kept)
        if not os.path.lexists(file) or _checksum_file(file).is_file():
            continue
        try:
            about = pq.read_schema(require_regular(file)).metadata or {}
        except (OSError, pa.ArrowInvalid):
            about = {}
        if file.is_symlink() or not {name.encode() for name in ABOUT} <= set(about):
            raise UserError(
                f"{file} is there already and holds no items that cfaug wrote: move it away"
            )


def write_items(folder: Path, items: Items, kept: str = FOLDER) -> Path:
    """Write items in place of earlier ones of their benchmark; equal items give equal bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = np.asarray(items.columns[ITEM]).tolist()
    if len(set(names)) != len(names):
        raise UserError(f"{items.benchmark}: items are duplicated; each needs a name of its own")
    about = dict(zip(ABOUT, (FORMAT, items.benchmark, items.weights, items.data), strict=True))
    columns = {
        name: _column(values, f"{items.benchmark}: the items' column {name!r}")
        for name, values in items.columns.items()
    }
    table = pa.table(columns).replace_schema_metadata(about)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", write_statistics=False)
    file = items_file(folder, items.benchmark, kept)
    if file.parent.is_symlink():  # in a run from elsewhere, a link could lead to any file
        raise UserError(
            f"{file.parent} is a link, and links are not written through: put a folder in its place"
        )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Before the file: a process killed between the two leaves items that are written again.
        write_file(_checksum_file(file), _checksum_line(zlib.crc32(buffer.getvalue())))
        write_file(file, buffer.getvalue())
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error
    return file


def _column(values: ColumnValues, name: str) -> pa.Array:
    """Return a column as an Arrow array: NaN in an array of floats becomes null.

    ``pyarrow.array`` imports pandas if it is installed, which takes as long as everything else in
    an evaluation with cached embeddings. So columns of one type are passed as buffers.
    """
    import pyarrow as pa

    floats = isinstance(values, np.ndarray) and values.dtype.kind == "f"
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    try:
        if floats:
            return _array(pa.float64(), np.asarray(values, np.float64), nan_is_null=True)
        match [*{type(value) for value in listed}]:
            case [t] if t is str:
                return _texts(listed)
            case [t] if t is float:
                return _array(pa.float64(), np.array(listed, np.float64))
            case [t] if t is int:
                return _array(pa.int64(), np.array(listed, np.int64))
            case [t] if t is bool:
                bits = np.packbits(listed, bitorder="little")
                return pa.Array.from_buffers(pa.bool_(), len(listed), [None, pa.py_buffer(bits)])
        return pa.array(listed)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
        raise UserError(f"{name} should hold values of one type: {error}") from error


def _array(kind: pa.DataType, values: NDArray[Any], nan_is_null: bool = False) -> pa.Array:
    import pyarrow as pa

    known = ~np.isnan(values) if nan_is_null else np.ones(len(values), bool)
    bits = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    stored = pa.py_buffer(np.ascontiguousarray(values))
    missing = len(values) - int(known.sum())
    return pa.Array.from_buffers(kind, len(values), [bits, stored], missing)


def _texts(values: Sequence[str]) -> pa.Array:
    import pyarrow as pa

    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)])
    if ends[-1] > np.iinfo(np.int32).max:  # too much for 32-bit offsets
        return pa.array(values)
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def has_items(folder: Path, benchmark: str, weights: str, data: str, kept: str = FOLDER) -> bool:
    """Return whether items were saved for these hashes of weights and data, and are unchanged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = items_file(folder, benchmark, kept)
    if not file.exists():
        return False
    try:
        about = _about(pq.read_schema(require_regular(file)))
        if is_changed(file):
            return False
    except (OSError, pa.ArrowException):
        return False  # damaged: evaluating again rewrites it
    return about == (FORMAT, benchmark, weights, data)


def _about(schema: pa.Schema) -> tuple[str, ...]:
    metadata = schema.metadata or {}
    return tuple(metadata.get(name.encode(), b"").decode(errors="replace") for name in ABOUT)


def read_items(folder: Path, benchmark: str, kept: str = FOLDER) -> Items | None:
    """Read the items of a benchmark; ``None`` if there are none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = items_file(folder, benchmark, kept)
    if not file.exists():
        return None
    try:
        if is_changed(file):
            raise UserError(
                f"{file} cannot be read: it was changed or damaged since it was written; {AGAIN}"
            )
        with require_regular(file).open("rb") as handle:
            table = pq.read_table(handle)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{file} cannot be read: {reason}; {AGAIN}") from error
    form, name, weights, data = _about(table.schema)
    if form != FORMAT or not {ITEM, CLUSTER} <= set(table.column_names):
        raise UserError(f"{file} does not hold the items of a benchmark; {AGAIN}")
    if name != benchmark:
        raise UserError(f"{file} holds the items of {name}, not of {benchmark}; {AGAIN}")
    for key in (ITEM, CLUSTER):
        if table[key].null_count or pa.types.is_nested(table[key].type):
            raise UserError(f"{file}: {key!r} of an item is missing or no text; {AGAIN}")
    if len(table[ITEM].unique()) != len(table):
        raise UserError(f"{file}: items are duplicated; {AGAIN}")
    columns = {column: table[column].to_numpy() for column in table.column_names}
    return Items(name, weights, data, columns, folder)


def benchmarks_with_items(folder: Path) -> list[str]:
    """Return the benchmarks with items in the folder of a run, sorted by name."""
    return sorted(unquote(file.stem) for file in (folder / FOLDER).glob("*.parquet"))


# One model's answers to the items of a benchmark, with the model's name on pages and in tables.


@dataclass(frozen=True)
class ModelItems:
    """The answers of one model; a benchmark has a subclass that reads its own columns.

    Attributes:
        schema: the columns of the items; those of every evaluation have to be there.
        BENCHMARK: value of ``benchmark=`` with which ``evaluate.py`` writes them.
    """

    schema: ClassVar[ItemSchema]
    BENCHMARK: ClassVar[str] = ""

    model: str
    items: Items

    def __post_init__(self) -> None:
        lacking = self.schema.find_lacking(self.items.columns)
        if lacking:
            raise UserError(
                f"the items of {self.items.benchmark} lack {', '.join(lacking[:5])}: they are "
                f"not those of benchmark={self.BENCHMARK}; {self.renew}"
            )

    def __len__(self) -> int:
        return len(self.items)

    @property
    def renew(self) -> str:
        """The part of a message that says how to renew the items."""
        return how_to_renew(self.items.benchmark)

    @cached_property
    def _texts(self) -> dict[str, list[str]]:
        return {}

    def texts(self, name: str) -> list[str]:
        """Return a column of texts; empty where an item has none."""
        if name not in self._texts:
            values = np.asarray(self.items.columns[name]).tolist()
            self._texts[name] = ["" if value is None else str(value) for value in values]
        return self._texts[name]

    def has(self, name: str) -> bool:
        """Return whether any item has a value of a metric."""
        return name in self.items.columns and bool((~np.isnan(self.items.metric(name))).any())

    def column(self, name: str) -> np.ndarray:
        """Return a column of whole numbers, or of yes and no, as the schema declares it.

        Raises:
            UserError: if the items lack it, or it holds something else.
        """
        declared = next(column for column in self.schema.columns if column.is_of(name))
        values = self.items.columns.get(name)
        if values is None or not declared.holds(values):
            kind = f"holds something other than {declared.kind}"
            fault = "is missing" if values is None else kind
            raise UserError(
                f"the items of {self.items.benchmark} ({self.model}): the column {name!r} {fault}; "
                f"{self.renew}"
            )
        return np.asarray(values)

    def parse(self, name: str, row: int) -> Any:
        """Return the value of a column of JSON in a row; ``None`` where an item has none."""
        text = self.texts(name)[row]
        try:
            return load_json(text) if text else None
        except ValueError as error:
            raise UserError(
                f"the items of {self.items.benchmark}: {name} of {self.texts(ITEM)[row]!r} is "
                f"invalid ({error}); {self.renew}"
            ) from error
