"""Every command of docs/visogender.md runs on hand-laid files and a tiny model."""

from __future__ import annotations

import pytest

from tests.papers.visogender.making import lay_photos, oo_rows, op_rows, write_tsv
from tests.run.conftest import commands_of
from tests.scripts import ROOT

PAGE = ROOT / "docs" / "visogender.md"


@pytest.mark.slow
def test_every_command_of_the_page_runs(tmp_path, monkeypatch, script, capfd):
    monkeypatch.chdir(tmp_path)
    write_tsv(tmp_path / "OO_Visogender.tsv", oo_rows())
    write_tsv(tmp_path / "OP_Visogender.tsv", op_rows())
    lay_photos(tmp_path / "photos", [*oo_rows(), *op_rows()])
    for name, words in commands_of(PAGE):
        shrunk = ["model=tiny_clip" if word == "model=clip_vit_b32" else word for word in words]
        alike = ["max_indistinct=1"] if "model=tiny_clip" in shrunk else []  # to the tiny model
        assert script(name)([*shrunk, *alike]) == 0, capfd.readouterr().err
    assert (tmp_path / "runs/tables/visogender.md").is_file()
