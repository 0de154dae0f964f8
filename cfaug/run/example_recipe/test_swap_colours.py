"""The parts of the method by themselves, and the method from captions to a number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cfaug
from cfaug.__main__ import main
from cfaug.report.document import read_document

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> cfaug.Index:
    root = tmp_path_factory.mktemp("pairs")
    settings = {"paths.shards": str(root / "made"), "paths.worlds": str(root / "worlds")}
    folder = cfaug.generate_sets(settings, recipe="swap_colours", limit=60, config_dir=HERE)
    return cfaug.open_source(folder)


def test_colours_change_places_in_caption_and_image(pairs: cfaug.Index) -> None:
    assert len(pairs) > 0
    for row in range(0, len(pairs), 2):
        before, after = pairs.text(row).split(), pairs.text(row + 1).split()
        changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        assert changed in ([("red", "green")], [("green", "red")])
        photo, edited = (np.asarray(pairs.image(index)) for index in (row, row + 1))
        assert np.array_equal(edited, photo[:, :, [1, 0, 2]])


def test_a_model_is_tested(pairs: cfaug.Index, tmp_path: Path) -> None:
    settings = {"benchmark.data": pairs.source, "paths.runs": str(tmp_path)}
    results = cfaug.evaluate("zoo:clip-0", settings, benchmark="swap_colours", config_dir=HERE)
    [result] = [result for result in results if result.metric == "own_caption"]
    assert result.n == len(pairs)
    assert result.chance == 0.5
    assert 0 <= result.value <= 1


def test_the_table_has_the_printed_numbers_and_ours(pairs: cfaug.Index, tmp_path: Path) -> None:
    settings = {"benchmark.data": pairs.source, "paths.runs": str(tmp_path)}
    cfaug.evaluate("zoo:clip-0", settings, benchmark="swap_colours", config_dir=HERE)
    words = ["swap_colours", "--config-dir", str(HERE), f"paths.runs={tmp_path}"]
    assert main(["table", *words]) == 0
    [printed, ours] = read_document(tmp_path / "tables" / "swap_colours.json").parts
    assert [labels for labels, _ in printed.rows] == [("chance",)]
    assert [labels for labels, _ in ours.rows] == [("zoo-clip-0",)]
