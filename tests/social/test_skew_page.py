"""The page and the figures of real items: what the benchmark writes, its readers understand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.evaluation.benchmark import KeepsPages
from cfaug.planning.build import build
from cfaug.report.arm_results import Runs
from cfaug.report.items import Items, read_items, write_items
from cfaug.social.skew import Skew
from cfaug.social.skew_items import SkewItems
from tests.grid_sets import grid_set, lay_grid_sets

CONF = Path(__file__).parents[2] / "conf/table"
SUBJECTS = ("doctor", "nurse")


@pytest.fixture(scope="module")
def asked(encoder, tmp_path_factory):
    """A run's folder with items and page of sets of two subjects, and one with a single set."""
    root = tmp_path_factory.mktemp("skew")
    sets = [grid_set(subject, n) for subject in SUBJECTS for n in range(2)]
    index = open_index(lay_grid_sets(root / "social", sets), root / "index")
    benchmark = Skew(name="social_skew", k=[6, 12, 200], permutations=99, resamples=50).ask(index)
    found = benchmark.run(encoder)
    folder = root / "runs" / "weights" / "clip" / "seed=0"
    write_items(folder, Items(str(benchmark.name), "w", benchmark.data_hash, found.items))
    return benchmark, index, folder, benchmark.write_page(folder, "clip")


def test_the_page_shows_the_images_that_were_retrieved(asked):
    benchmark, index, folder, page = asked
    assert isinstance(benchmark, KeepsPages)
    assert benchmark.page_files == ("social_skew.html",)
    assert page == folder / "social_skew.html"
    (text,) = re.findall(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    data = json.loads(text)
    items = benchmark_items(folder, benchmark)
    labels = {}
    for grid in benchmark.sets.grids.values():
        codes, names = grid.label(list(grid.attributes))
        labels = {index.key(int(row)): names[code]
                  for row, code in zip(grid.rows, codes, strict=True)}  # fmt: skip
    shown = 0
    for question, here in zip(items.questions, data["questions"], strict=True):
        for row, subject in zip(items.places(question), here["r"], strict=True):
            if "m" not in subject:
                assert "more than the pool" in subject["o"]
                continue
            top = json.loads(items.texts("top")[row])
            places = subject["m"][0]["p"]
            told = [data["pictures"][place]["t"] for place in places]
            assert told == [labels[key] for key in top[: len(told)]]
            shown += len(told)
    assert shown
    assert any("o" in one for here in data["questions"] for one in here["r"])


def benchmark_items(folder, benchmark) -> SkewItems:
    found = read_items(folder, str(benchmark.name))
    assert found is not None
    return SkewItems("clip", found)


def test_no_page_is_written_if_none_is_asked_for(asked, tmp_path):
    _, index, _, _ = asked
    quiet = Skew(name="social_skew", page=None, permutations=9, resamples=9).ask(index)
    assert quiet.write_page(tmp_path, "clip") is None
    assert not list(tmp_path.iterdir())
    assert quiet.page_files == ()


@pytest.mark.parametrize("name", ["social_figure_2", "social_figure_3", "social_models"])
def test_figures_are_made_of_real_items(asked, name):
    _, _, folder, _ = asked
    node = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    document = build(node | ({"k": 6} if "k" in node else {})).build(Runs(folder.parents[2]))
    assert document.parts
    assert all(part.rows for part in document.parts)


def test_items_that_name_another_image_are_refused(asked, tmp_path):
    benchmark, _, folder, _ = asked
    items = benchmark_items(folder, benchmark).items
    top = np.array(['["elsewhere_0"]'] * len(items), object)
    write_items(tmp_path, replace(items, columns={**items.columns, "top": top}))
    with pytest.raises(
        UserError,
        match=r"'elsewhere_0', which is not an image of .*; remove items/.*_skew.parquet in the",
    ):
        benchmark.write_page(tmp_path, "clip")
