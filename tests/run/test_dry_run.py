"""What a dry run says to a person, and to a program."""

from __future__ import annotations

import json

from tests.run.conftest import WORLD


def test_a_person_is_given_lines_and_a_program_json(script, tmp_path, capsys):
    words = [*WORLD, f"paths.runs={tmp_path}", f"paths.shards={tmp_path}", "dry_run=json"]
    assert script("train")(words) == 0
    found = capsys.readouterr()
    about = json.loads(found.out)
    assert "1 run: 1 absent" in found.err
    assert script("train")([*words[:-1], "dry_run=true"]) == 0
    shown = capsys.readouterr().out
    assert f"  run              {about['run']}\n" in shown
    assert f"  steps            {about['steps']:,}\n" in shown
    assert f"train {about['counts']['train']:,}, " in shown
    assert "{" not in shown
    assert "sources" not in shown
    assert "  estimate         0:00:" in shown
