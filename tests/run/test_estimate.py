"""What a dry run says of a run's length: from the steps of a run before, not from its start."""

from __future__ import annotations

import pytest

from cfaug.run.run_plan import _seconds_per_step

HEAD = "attempt,step,epoch,train/loss,val/loss,lr,logit_scale,seconds\n"


def write(folder, *rows):
    (folder / "metrics.csv").write_text(
        HEAD + "".join(f"{a},{s},0,0,,0,0,{t}\n" for a, s, t in rows)
    )


def test_a_short_run_s_start_is_not_counted(tmp_path):
    write(tmp_path, (0, 1, 10.0), (0, 2, 10.1), (0, 11, 11.0))
    assert _seconds_per_step(tmp_path) == pytest.approx(0.1)


def test_the_last_attempt_counts(tmp_path):
    write(tmp_path, (0, 1, 10.0), (0, 9, 90.0), (1, 6, 3.0), (1, 10, 5.0))
    assert _seconds_per_step(tmp_path) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "rows", [[], [(0, 1, 10.0)], [(0, 1, "nonsense"), (0, 2, 1.0)]], ids=["none", "one", "damaged"]
)
def test_too_little_to_tell_by(tmp_path, rows):
    write(tmp_path, *rows)
    assert _seconds_per_step(tmp_path) is None
    (tmp_path / "metrics.csv").unlink()
    assert _seconds_per_step(tmp_path) is None
