from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfaug.core.errors import UserError
from cfaug.report.candidates import BINS, tally, write_candidates

SCORES = {"sim_0": "base", "sim_1": "edited", "of_texts": "", "sim_direction": "changes"}
THRESHOLDS = {"sim_0": 0.2, "sim_1": 0.2, "of_texts": 0.7, "sim_direction": None}


def write_log(file: Path, count: int, seed: int) -> list[dict]:
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        p = float(rng.uniform(0.1, 0.9))
        sim_0 = float(rng.normal(0.3, 0.1))
        reason = "caption_0" if sim_0 < 0.2 else "image" if rng.uniform() > p else ""
        for member in (1, 2):
            scores = [None] * 3 if reason == "caption_0" else rng.uniform(0, 1, 3).tolist()
            rows.append(
                {"set": "s<&>", "candidate": i, "member": member, "p": p, "accepted": not reason,
                 "reason": reason, **dict(zip(SCORES, [sim_0, *scores], strict=True))}
            )  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), file)
    return rows


def test_counts_are_those_of_the_rows(tmp_path: Path) -> None:
    rows = [row for i in range(3) for row in write_log(tmp_path / f"{i:05d}.parquet", 40, i)]
    counts = tally(sorted(tmp_path.glob("*.parquet")), list(SCORES))
    assert counts.total == 120
    for name in SCORES:
        for histogram, wanted in (
            (counts.scored[name], rows), (counts.accepted[name], [r for r in rows if r["accepted"]])
        ):  # fmt: skip
            bins = [int((r[name] + 1) * BINS / 2) for r in wanted if r[name] is not None]
            assert histogram.tolist() == np.bincount(bins, minlength=BINS).tolist()
    for at, count in enumerate(counts.by_p):
        here = [r["reason"] for r in rows if r["member"] == 1 and at <= r["p"] * 20 < at + 1]
        assert dict(count) == {reason: here.count(reason) for reason in set(here)}


@pytest.mark.slow
def test_the_picture_is_svg_with_thresholds_and_every_reason(tmp_path: Path) -> None:
    write_log(tmp_path / "00000.parquet", 60, 0)
    text = write_candidates(tmp_path, SCORES, THRESHOLDS).read_text()
    root = ET.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    lines = [e for e in root.iter(f"{space}path") if "dasharray" in e.get("style", "")]
    assert len(lines) == 3
    said = [e.text for e in root.iter(f"{space}text")]
    assert {"accepted", "caption_0", "image", "sim_0: base (120)"} <= set(said)
    notes = [e.text for e in root.iter(f"{space}title")]
    scored = [re.fullmatch(r"(-?[\d.]+) to [\d.-]+: (\d+), \d+ accepted", note) for note in notes]
    assert sum(int(match[2]) for match in scored if match) >= 120
    assert not any("nan" in value for e in root.iter() for value in e.attrib.values())


def test_scores_that_are_all_missing_or_all_equal_are_drawn(tmp_path: Path) -> None:
    row = {"member": 1, "p": 1.0, "accepted": False, "reason": "same_text"}
    kinds = {"member": pa.int32(), "p": pa.float32(), "accepted": pa.bool_(), "reason": pa.string()}
    schema = pa.schema({**dict.fromkeys(SCORES, pa.float32()), **kinds})
    pq.write_table(
        pa.Table.from_pylist([dict.fromkeys(SCORES) | row], schema), tmp_path / "00000.parquet"
    )
    ET.fromstring(write_candidates(tmp_path, SCORES, THRESHOLDS).read_text())
    full = dict.fromkeys(SCORES, 1.0000001) | row
    pq.write_table(pa.Table.from_pylist([full], schema), tmp_path / "00001.parquet")
    ET.fromstring(write_candidates(tmp_path, SCORES, {}).read_text())


def test_what_is_no_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no candidate log"):
        write_candidates(tmp_path, SCORES, THRESHOLDS)
    (tmp_path / "00000.parquet").write_bytes(b"no parquet")
    with pytest.raises(UserError, match=r"00000\.parquet is not a readable candidate log.*") as it:
        write_candidates(tmp_path, SCORES, THRESHOLDS)
    # N39: no way out was named.
    assert "Remove it and its commit, 00000.json, and run the same generate.py" in str(it.value)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "00000.parquet")
    with pytest.raises(UserError, match=r"00000\.parquet is not a readable candidate log"):
        write_candidates(tmp_path, SCORES, THRESHOLDS)


def test_scores_that_are_no_cosines_are_drawn_over_their_own_range(tmp_path: Path) -> None:
    """And candidates of which nothing is random have no p."""
    rows = [
        {"member": 0, "accepted": True, "reason": "", "perplexity": value, "cosine": 0.5}
        for value in (3.0, 40.0, 203.0)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "00000.parquet")
    counts = tally([tmp_path / "00000.parquet"], ["perplexity", "cosine"])
    assert counts.ranges == {"perplexity": (3.0, 203.0), "cosine": (-1.0, 1.0)}
    assert np.flatnonzero(counts.scored["perplexity"]).tolist() == [0, 37, 199]
    assert (counts.total, counts.has_p) == (3, False)
    text = write_candidates(tmp_path, {"perplexity": "", "cosine": "of two"}, {}).read_text()
    ET.fromstring(text)
    assert "outcomes of candidates (3; 100.0% accepted)" in text
    assert "perplexity (3)" in text
    assert "cosine: of two (3)" in text
