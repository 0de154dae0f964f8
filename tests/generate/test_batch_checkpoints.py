from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import Draw, Images
from cfaug.generate.candidate_scoring import Journal, ScoredCandidate, ScoredSlice
from tests.properties import examples

COSINES = st.floats(-1, 1, width=32)
COLUMNS = st.lists(COSINES, max_size=3).map(tuple)
SCORES = st.dictionaries(st.sampled_from(["sim_0", "sim_1", "of_texts"]), COSINES | COLUMNS)
PARAMETERS = st.dictionaries(st.sampled_from(["f", "g"]), COSINES)
DRAWS = st.builds(Draw, st.integers(0, 2**64 - 1), st.floats(0, 1), st.floats(1, 20), PARAMETERS)
CANDIDATES = st.builds(
    ScoredCandidate, st.integers(0, 99), DRAWS, st.sampled_from(["", "image"]), SCORES
)
FILES = st.lists(st.binary(max_size=9), min_size=2, max_size=3).map(tuple)
SHARED = st.builds(Images, FILES, st.lists(st.integers(0, 1), max_size=4).map(tuple))
IMAGES = st.dictionaries(st.integers(0, 99), SHARED)
SLICES = st.builds(
    ScoredSlice, st.integers(0, 9), st.lists(CANDIDATES, max_size=3).map(tuple), IMAGES
)


@settings(max_examples=examples(60), deadline=None)
@given(batch=st.lists(SLICES, max_size=3))
def test_a_batch_comes_back_as_it_was(tmp_path_factory, batch) -> None:
    journal = Journal(tmp_path_factory.mktemp("journal") / "00000")
    journal.save(3, "plan", batch)
    assert journal.load(3, "plan") == batch
    assert journal.load(3, "another") is None
    assert journal.load(4, "plan") is None


@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "head only", "longer"])
def test_a_damaged_batch_is_ignored(tmp_path: Path, damage: str) -> None:
    journal = Journal(tmp_path / "00000")
    candidate = ScoredCandidate(0, Draw(1, 0.5, 7.5), "", {"sim_0": 0.5, "sim_1": (0.5,)})
    batch = [ScoredSlice(0, (candidate,), {0: Images((b"image 0", b"image 1"))})]
    journal.save(0, "plan", batch)
    file = tmp_path / "00000" / "00000.batch"
    data = file.read_bytes()
    damaged = {
        "flipped": data[:-3] + bytes([data[-3] ^ 1]) + data[-2:], "truncated": data[:-1],
        "empty": b"", "head only": data[:20], "longer": data + b"x",
    }  # fmt: skip
    file.write_bytes(damaged[damage])
    assert journal.load(0, "plan") is None
    journal.save(0, "plan", batch)
    assert journal.load(0, "plan") == batch
    journal.clear()
    assert not (tmp_path / "00000").exists()
    journal.clear()


def test_a_full_disk_is_explained(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "00000")
    (tmp_path / "00000").mkdir()
    (tmp_path / "00000" / f"00000.batch.{os.getpid()}.tmp").symlink_to("/dev/full")
    with pytest.raises(UserError, match=f"no space left in {tmp_path}: batch 0"):
        journal.save(0, "plan", [])
    assert journal.load(0, "plan") is None
