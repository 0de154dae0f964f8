"""Importing released data: once, whole or not at all, into shards like any other."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets, write_shards
from cfaug.data.sources.importing import import_sets
from tests.data.released import PAIRS, coco_counterfactuals, edit_lines, jpeg


def test_a_released_folder_is_a_source_and_is_imported_once(tmp_path):
    folder, cache = coco_counterfactuals(tmp_path / "coco"), tmp_path / "cache"
    index = open_index(folder, cache)
    assert (index.kind, index.source, len(index)) == ("coco_counterfactuals", str(folder), 6)
    assert index.text(1) == PAIRS[0][2]
    assert index.read_image(5) == jpeg(5)
    assert index.groups[0] == index.groups[2] != index.groups[4]
    (imported,) = cache.glob("imported-*")
    written = (imported / "00000.tar").stat().st_mtime_ns
    assert open_index(folder, cache).hash == index.hash
    assert (imported / "00000.tar").stat().st_mtime_ns == written
    edit_lines(folder, lambda lines: lines.pop())
    assert len(open_index(folder, cache)) == 4


def test_imported_sets_are_shards_like_any_other(tmp_path):
    folder = coco_counterfactuals(tmp_path / "coco")
    write_shards(import_sets(folder), tmp_path / "shards", sets_per_shard=2)
    assert list(read_sets(tmp_path / "shards")) == list(import_sets(folder))
    assert list(import_sets(tmp_path / "shards")) == list(import_sets(folder))


def test_a_cache_that_cannot_be_written(tmp_path):
    folder = coco_counterfactuals(tmp_path / "coco")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"shards of .*coco cannot be kept .*paths\.cache"):
        open_index(folder, tmp_path / "file" / "cache")


def test_a_killed_import_leaves_nothing_that_counts(tmp_path, monkeypatch):
    folder, cache = coco_counterfactuals(tmp_path / "coco"), tmp_path / "cache"
    whole = open_index(folder, tmp_path / "other").hash
    with monkeypatch.context() as patch:
        # As a kill would leave it.
        patch.setattr("cfaug.core.files.shutil.rmtree", lambda *_, **__: None)
        patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            open_index(folder, cache)
    assert [f.name[:10] for f in cache.iterdir()] == [".imported-"]
    assert open_index(folder, cache).hash == whole


def test_an_unknown_folder_lists_the_forms(tmp_path):
    (tmp_path / "odd").mkdir()
    with pytest.raises(UserError, match=r"examples\.jsonl and images\.zip(?s:.*)SEED_0\.jpg"):
        import_sets(tmp_path / "odd")
    with pytest.raises(UserError, match="no folder"):
        import_sets(tmp_path / "nowhere")


def test_a_parquet_beside_shards_is_no_source(tmp_path):
    """Candidate logs lie beside our shards, img2dataset's urls beside its tars."""
    folder = coco_counterfactuals(tmp_path / "coco")
    write_shards(import_sets(folder), tmp_path / "shards")
    buffer = io.BytesIO()
    pq.write_table(pa.table({"seed": [1], "accepted": [True]}), buffer)
    (tmp_path / "shards" / "00000.parquet").write_bytes(buffer.getvalue())
    assert open_index(tmp_path / "shards", tmp_path / "cache").kind == "shards"
