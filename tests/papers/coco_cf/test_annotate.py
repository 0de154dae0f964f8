"""``cfaug annotate`` from simulated people to the paper's tables."""

from __future__ import annotations

import pytest

from tests.run.test_annotate import annotate  # noqa: F401


@pytest.mark.slow
def test_answers_fill_the_papers_tables(place, annotate):  # noqa: F811
    assert annotate("simulate", "annotate.mistakes=0.1") == 0
    assert annotate("read", "annotate.analyses.altered_subjects.at_least=1") == 0
    for number in (1, 7, 8, 9, 10):
        assert place.table(f"coco_cf_{number}") == 0
        text = (place.root / "tables" / f"coco_cf_{number}.md").read_text()
        assert "3 simulated annotators" in text
        assert "The paper" in text
