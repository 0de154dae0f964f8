"""``evaluate.py benchmark=visogender``: from the command to the table."""

from __future__ import annotations

import pytest

from cfaug.report.items import read_items
from tests.papers.visogender.making import lay_photos, oo_rows, op_rows, write_tsv

CLIP = ("weights=zoo:clip-0", "model=tiny_clip", "device=cpu", "max_indistinct=1")


@pytest.mark.slow
def test_visogender_is_asked_by_one_command(place, tmp_path, capsys):
    files = [write_tsv(tmp_path / "OO.tsv", oo_rows()), write_tsv(tmp_path / "OP.tsv", op_rows())]
    photos = lay_photos(tmp_path / "photos", [*oo_rows(), *op_rows()])
    asked = (*CLIP, "benchmark=visogender", f"benchmark.images={photos}", "benchmark.ks=[3]",
             f"benchmark.data=[{files[0]},{files[1]}]")  # fmt: skip
    assert place.evaluate(*asked) == 0
    said = capsys.readouterr()
    assert "photos read as VisoGender's annotations of photos" in said.err
    assert "visogender_resolution of zoo-clip-0" in said.out
    assert " to 60 items." in " ".join(said.out.split())
    (folder,) = place.root.glob("weights/*/seed=0")
    assert len(read_items(folder, "visogender_resolution")) == 60
    items = read_items(folder, "visogender_retrieval")
    assert len(items) == 6
    assert place.table("visogender") == 0
    assert "Single person" in capsys.readouterr().out
    assert place.evaluate(*asked) == 0
    assert "already evaluated" in capsys.readouterr().out
    assert place.evaluate(*asked, "benchmark.zeros=one") == 0
    assert "visogender_retrieval" in capsys.readouterr().out
    next(photos.glob("OO_images/OO_4.png")).unlink()
    assert place.evaluate(*asked) == 2
    assert "1 of 36 photos are missing" in capsys.readouterr().err
    assert place.evaluate(*asked, "benchmark.without_missing=true") == 0
    assert "test: 35 images of" in capsys.readouterr().err
