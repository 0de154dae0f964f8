from __future__ import annotations

from cfaug.report.arm_results import Runs
from tests.coco_cf import made_up


def test_runs_of_other_settings_are_left_out_and_named(tmp_path, capsys):
    made_up.mixtures(tmp_path)
    arm, changed = (tmp_path / "coco_cf_3" / name for name in ("medium", "medium,max_epochs=1"))
    arm.rename(changed)
    assert not Runs(tmp_path).arm("coco_cf_3/medium").seeds
    said = capsys.readouterr().err
    assert said.count("left out, of other settings: ") == 1
    assert str(changed) in said
    assert "arm=medium" in said
    changed.rename(arm)
    assert Runs(tmp_path).arm("coco_cf_3/medium").seeds
    assert not capsys.readouterr().err
