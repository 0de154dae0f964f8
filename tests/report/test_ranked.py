"""Best and second best of a column."""

from __future__ import annotations

from itertools import product

import pytest

from cfaug.report.arm_table import mark_best_two
from cfaug.report.document import Column, Entry, make_part


def entry(value):
    return Entry("–") if value is None else Entry(f"{value:.2f}", numbers={"value": value})


def part(*values):
    columns = [Column(str(at), lambda row, at=at: entry(row[at])) for at in range(len(values))]
    rows = [((str(n),), row) for n, row in enumerate(zip(*values, strict=True))]
    return make_part("", ("row",), columns, rows)


def marks(found, column=0):
    return "".join(
        "b" * cells[column].bold + "u" * cells[column].underlined or "." for _, cells in found.rows
    )


def test_ties_as_printed_are_marked_alike():
    found = mark_best_two(part([0.501, 0.499, 0.3, 0.301, 0.1, None]), ["higher"])
    assert marks(found) == "bbuu.."
    assert marks(mark_best_two(part([0.5, 0.4, 0.3]), ["lower"])) == ".ub"


def test_what_stands_beside_does_not_compete_and_no_direction_is_no_mark():
    found = mark_best_two(part([1.0, 0.4, 0.3], [1.0, 2.0, 3.0]), ["higher", None], beside=[0])
    assert (marks(found), marks(found, 1)) == (".bu", "...")


@pytest.mark.parametrize("values", product((0.1, 0.2, 0.3), repeat=3))
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_marks_equal_a_slow_count(values, better):
    sign = 1 if better == "higher" else -1
    distinct = {sign * v for v in values}
    above = [sum(other > sign * v for other in distinct) for v in values]
    expected = "".join("bu."[min(n, 2)] for n in above)
    assert marks(mark_best_two(part(values), [better])) == expected
