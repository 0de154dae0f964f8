"""``benchmarks/inversion.py`` at smallest size: both ways draw the same, and are counted."""

from __future__ import annotations

import re

import pytest


@pytest.mark.slow
def test_both_ways_draw_the_same_and_are_timed(benchmark) -> None:
    said = benchmark("inversion.py", "--quick", "--threads", "1")
    # Two updates at each of four steps; the shared reference is float32 with every map written.
    assert float(re.search(r"differ by ([0-9.e-]+),", said)[1]) < 1e-4
    rows = {
        line.split("|")[1].strip(): line.split("|") for line in said.splitlines() if "|" in line
    }
    assert {"LANCE's way", "direct, tree", "together, ours"} <= set(rows)
    # 4 inverted, 4 x (1 + 2) and 2 x 4 of them forwards and backwards, 6 x 4 x 4 edited.
    assert int(rows["LANCE's way"][3]) == 4 + 4 * 3 + 8 * 3 + 6 * 4 * 4


@pytest.mark.slow
def test_stable_diffusion_is_counted_without_its_weights(benchmark) -> None:
    said = benchmark("inversion.py", "--count")
    assert "860 million weights" in said
    assert "0.803 TFLOP a row" in said  # as the layers' shapes give it
    assert re.search(r"^\| 1 \| 2900 \| 351 \|", said, re.MULTILINE)
