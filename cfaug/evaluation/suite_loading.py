"""Check the object that ``benchmark=`` names, and the benchmarks that it opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cfaug.core.errors import UserError
from cfaug.report.result_row import NAME_OF_PART

if TYPE_CHECKING:
    from cfaug.core.protocols import Benchmark
    from cfaug.evaluation.context import EvaluationContext


class SuiteMember(Protocol):
    """An object that a suite's YAML names and that opens a benchmark: a ``SourceBenchmark``, ..."""

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        """Open the benchmark's data, and return a list of the benchmark."""
        ...


ATTRIBUTES = ("name", "needs", "data_hash", "run")
"""The attributes of a ``Benchmark``."""


def check_member(member: object, key: str = "benchmark") -> None:
    """Refuse an object that is not a member, before any of a suite is opened.

    Args:
        member: the object that a suite's YAML names.
        key: the setting that names it, for the error.

    Raises:
        UserError: naming the class.
    """
    if not callable(getattr(member, "open", None)):
        raise UserError(
            f"{key}: {_name_class(member)} has no open(context), which returns a list of "
            'benchmarks: see CONTRIBUTING.md, "Add a benchmark"'
        )


def open_member(member: SuiteMember, context: EvaluationContext) -> list[Benchmark]:
    """Open a member of a suite, and check that it returns benchmarks.

    Args:
        member: the object that a suite's YAML names.
        context: the run or checkpoint under test.

    Raises:
        UserError: as ``open`` does; naming a class that lacks a part of a benchmark, or a name that
            in tables would look like a part of another benchmark.
    """
    found: object = member.open(context)
    if not isinstance(found, list | tuple):
        raise UserError(
            f"{_name_class(member)}.open should return a list of benchmarks, not "
            f"{_name_class(found)}"
        )
    for one in found:
        # Check the class first: an object's property may compute a hash of all its data.
        lacks = [name for name in ATTRIBUTES if not hasattr(type(one), name)]
        lacks = [name for name in lacks if not hasattr(one, name)]
        if lacks:
            raise UserError(
                f"{_name_class(one)} is not a benchmark, as it has no {', '.join(lacks)}: "
                "see cfaug.core.protocols.Benchmark"
            )
        if not isinstance(one.name, str) or NAME_OF_PART.search(one.name):
            raise UserError(
                f"{_name_class(one)}: name={one.name!r} is invalid: it should be a text that does "
                "not end in [...=...], which names a part of a benchmark in tables"
            )
    return list(found)


def _name_class(one: object) -> str:
    return f"{type(one).__module__}.{type(one).__qualname__}"
