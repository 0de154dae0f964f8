"""Runs that a table leaves out, and why."""

from __future__ import annotations

import json

from cfaug.report.arm_results import Runs
from tests.papers.coco_cf import made_up


def test_a_table_of_the_paper_leaves_them_out_too(tmp_path, capsys):
    made_up.mixtures(tmp_path)
    file = tmp_path / "coco_cf_3/medium/seed=108/run.json"
    record = json.loads(file.read_text())
    record["identity"]["optim.lr"] = 1
    file.write_text(json.dumps(record))
    runs = Runs(tmp_path)
    assert runs.arm("coco_cf_3/medium").seeds == {107, 109, 110, 111}
    assert "medium/seed=108 (optim.lr is 1, not (absent))" in capsys.readouterr().err
    assert len(runs.left_out) == 1


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
