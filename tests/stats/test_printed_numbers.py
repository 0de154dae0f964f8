"""Tests from printed numbers, held against scipy, against samples, and against the papers."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cfaug.core.plugins import plugin_files
from cfaug.report.paper_tables import published
from cfaug.stats.effects import wilson_interval

NAMES = sorted(file.stem for file in plugin_files("published/*.json"))

samples = st.lists(st.floats(-5, 5), min_size=3, max_size=12).filter(lambda x: np.std(x) > 0.01)


@pytest.mark.parametrize("name", NAMES)
def test_every_table_is_rectangular_and_says_where_it_stands(name):
    table = published(name)
    width = len(table["columns"])
    assert table["rows"]
    assert len(table.get("better", table["columns"])) == width
    for row in table["rows"]:
        assert len(row["values"]) == len(row.get("change", row["values"])) == width
    if printed := re.fullmatch(r".+?_(figure_)?(\d+)", name):
        figure, number = printed.groups()
        where = f"[\\w-]+, {'Figure' if figure else 'Table'} {number}"
        assert re.match(rf"{where}\b", table["note"])


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 60))
def test_wilsons_interval_is_scipys(count, more):
    n = count + more
    expected = stats.binomtest(count, n).proportion_ci(0.95, method="wilson")
    assert wilson_interval(count, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_where_there_is_no_answer():
    assert math.isnan(wilson_interval(0, 0)[0])
