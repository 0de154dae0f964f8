"""Best and second best of a column."""

from __future__ import annotations

from itertools import product

import pytest

from cfaug.report.arm_table import mark_best_two
from cfaug.report.document import Entry


def rows(*columns):
    return [((str(n),), tuple(Entry(f"{v:.2f}" if v is not None else "–",
                                    numbers={} if v is None else {"value": v}) for v in values))
            for n, values in enumerate(zip(*columns, strict=True))]  # fmt: skip


def marks(found, column=0):
    return "".join(
        "b" * cells[column].bold + "u" * cells[column].underlined or "." for _, cells in found
    )


def test_ties_as_printed_are_marked_alike():
    found = mark_best_two(rows([0.501, 0.499, 0.3, 0.301, 0.1, None]), ["higher"])
    assert marks(found) == "bbuu.."
    assert marks(mark_best_two(rows([0.5, 0.4, 0.3]), ["lower"])) == ".ub"


def test_what_stands_beside_does_not_compete_and_no_direction_is_no_mark():
    found = mark_best_two(rows([1.0, 0.4, 0.3], [1.0, 2.0, 3.0]), ["higher", None], beside=[0])
    assert (marks(found), marks(found, 1)) == (".bu", "...")


@pytest.mark.parametrize("values", product((0.1, 0.2, 0.3), repeat=3))
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_marks_equal_a_slow_count(values, better):
    sign = 1 if better == "higher" else -1
    distinct = {sign * v for v in values}
    above = [sum(other > sign * v for other in distinct) for v in values]
    expected = "".join("bu."[min(n, 2)] for n in above)
    assert marks(mark_best_two(rows(values), [better])) == expected
