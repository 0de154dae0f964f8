"""What ``cfaug.compare`` returns is what the table says."""

from __future__ import annotations

import io
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from cfaug.core.errors import UserError
from cfaug.report.layout import comparisons_csv
from cfaug.report.significance_table import significance_table
from cfaug.run.comparison import Comparison
from tests.report.example import OOD, results


@pytest.fixture(scope="module")
def rows():
    return results()


@pytest.fixture(scope="module")
def found(rows):
    table = significance_table(rows, ["real"], frozenset({"before"}))
    return Comparison(Path("demo"), table, tuple(rows))


def test_a_difference_is_a_paired_t_test_with_its_own_interval(found, rows):
    [one] = [d for d in found if (d.arm, d.benchmark) == ("counterfactual", OOD)]
    values = {arm: [r.value for r in rows if (r.arm, r.benchmark) == (arm, OOD)]
              for arm in ("counterfactual", "real")}  # fmt: skip
    test = stats.ttest_rel(values["counterfactual"], values["real"])
    gains = np.subtract(values["counterfactual"], values["real"])
    assert one.value == pytest.approx(gains.mean())
    assert one.interval == pytest.approx(test.confidence_interval(0.95))
    assert (one.p, one.over) == (pytest.approx(test.pvalue), "seeds")
    assert one.test == "Student's t, paired by seed"


def test_the_family_is_corrected_together(found):
    """Against statsmodels' definition: the k-th smallest p times the number that are left."""
    assert len(found.family) == len(found) == 8
    p = sorted(one.p for one in found.family)
    holm = np.minimum(1, np.maximum.accumulate([v * (8 - i) for i, v in enumerate(p)]))
    assert sorted(one.p_holm for one in found.family) == pytest.approx(list(holm))


def test_pandas_has_the_rows_of_the_csv(found):
    frame = found.to_pandas()
    text = comparisons_csv(found._table)
    pd.testing.assert_frame_equal(frame, pd.read_csv(io.StringIO(text)))
    assert list(frame[frame.arm != frame.baseline]["diff"]) == [one.value for one in found]


def test_it_prints_the_table(found):
    assert OOD in str(found)
    assert found.notes[0].partition(":")[0] == "Seeds per arm"
    assert "Seeds per arm" in str(found)


def test_without_a_test_there_is_no_p(rows):
    one_seed = [row for row in rows if row.seed == 11]
    table = significance_table(one_seed, ["real"], frozenset({"before"}))
    found = Comparison(Path("demo"), table, tuple(one_seed))
    assert not found.family
    for one in found:
        assert math.isnan(one.p)
        assert (one.over, one.test) == (None, "one seed")


def test_without_pandas_the_remedy_is_named(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"pip install 'cfaug\[notebook\]'"):
        replace(found).to_pandas()
