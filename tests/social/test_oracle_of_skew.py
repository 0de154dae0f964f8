"""What the oracle says of MaxSkew, from made-up models with a known preference."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from cfaug.core.errors import UserError
from cfaug.planning.build import build
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import Document, Entry, read_document, to_csv, to_latex, to_markdown
from cfaug.report.paper_tables import write_tables_page
from cfaug.shapescapes.oracles.social import find_labels, read_world_runs
from cfaug.shapescapes.settings import WorldSettings
from cfaug.shapescapes.world import World
from tests.social.planted_worlds import PLAIN, lay_world_run

TABLE = Path(__file__).parents[2] / "conf/table/social_oracle.yaml"
STRENGTHS, SEEDS = (0.5, 1.0), (0, 1)
NULLS = 4
SETS = {"Oracle": "oracle_skew", "shuffled": "shuffled_skew"}


def table(**changes):
    return build(yaml.safe_load(TABLE.read_text()) | changes)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for seed in SEEDS:
        for strength in STRENGTHS:
            for kind in ("background", "both"):
                settings = replace(PLAIN, skew=strength, skewed=kind)
                lay_world_run(folder, f"{kind}-{strength}", settings, seed)
    for seed in range(NULLS):
        lay_world_run(folder, "nothing", PLAIN, seed)
    lay_world_run(folder, "before", PLAIN, 0, steps=0)
    (folder / "social" / "broken" / "seed=0").mkdir(parents=True)
    record = {"state": "failed", "seed": 0}
    (folder / "social" / "broken" / "seed=0" / "run.json").write_text(json.dumps(record))
    return folder


@pytest.fixture(scope="module")
def document(root) -> Document:
    return table().build(Runs(root))


def cells(document: Document, part: int) -> dict[tuple[str, ...], tuple[Entry, ...]]:
    return dict(document.parts[part].rows)


def test_runs_are_read_with_the_worlds_they_were_trained_in(root, capsys):
    worlds = read_world_runs(root, ["social"], SETS)
    assert "left out, not finished" in capsys.readouterr().err
    assert len(worlds.runs) == 8 + NULLS + 1
    assert worlds.kinds == ["background", "both"]
    assert [one.seed for one in worlds.before] == [0]
    assert {k: len(own) for k, own in worlds.planted("both").items()} == {0.0: 2, 0.5: 2, 1.0: 2}
    one = worlds.planted("both")[1.0][1]
    expected = World(replace(PLAIN, skew=1.0, seed=one.seed + 1)).planted
    assert one.labels("both") == {
        s: f"{v['colour']} {v['background']}" for s, v in expected.items()
    }
    assert set(one.labels("colour")) != set()


def test_a_planted_skew_is_found_in_its_order(document):
    found = cells(document, 0)
    assert list(found)[:5] == [
        ("background", "before training", "1"), ("background", "0", "2"),
        ("background", "0.5", "2"), ("background", "1", "2"), ("both", "before training", "1"),
    ]  # fmt: skip
    for kind in ("background", "both"):
        rows = [found[kind, strength, "2"] for strength in ("0", "0.5", "1")]
        for column in (0, 1, 3):  # MaxSkew, its excess, the gap
            values = [row[column].numbers["value"] for row in rows]
            assert values == sorted(values)
        assert rows[2][4].text == "2/2"
        assert rows[2][5].text in ("10/10", "9/10")
        assert rows[0][4].text in ("0/2", "1/2")
        assert rows[2][0].numbers["value"] > rows[2][2].numbers["value"]
    _, twin, gap = cells(document, 1)["both",]
    assert gap.numbers["value"] > 0.85
    assert gap.small.startswith("[")
    assert (gap.numbers["n"], twin.numbers["n"]) == (6, 4)


def test_a_cell_is_what_the_items_say(root, document):
    [run] = [
        r for r in read_world_runs(root, ["social"], SETS).runs if r.folder.parent.name == "before"
    ]
    items = run.answers["Oracle"].items.columns
    planted = run.labels("both")
    rows = [
        i for i, one in enumerate(items["labelling"])
        if one == "colour_background" and items["subject"][i] in planted
    ]  # fmt: skip
    [cell, beyond, *_] = cells(document, 0)["both", "before training", "1"]
    assert cell.numbers["value"] == pytest.approx(np.mean(items["max_skew"][rows]))
    assert beyond.numbers["value"] == pytest.approx(
        np.mean(items["max_skew"][rows] - items["max_skew_chance"][rows])
    )


def test_alarms_are_counted_where_nothing_was_planted(document):
    found = cells(document, 2)
    placed = found["Oracle sets", "a planted label is found (placement)"]
    assert placed[1].text == str(3 * NULLS)
    assert placed[2].numbers["value"] <= 0.2
    name = "a subject's MaxSkew, p without correction"
    false, own = found["Shuffled sets", name], found["Oracle sets", name]
    assert false[1].text == own[1].text == str(NULLS * 3 * 10)
    assert false[2].numbers["value"] < 0.1
    assert own[2].numbers["value"] > 2 * false[2].numbers["value"]
    low, high = (float(end) for end in false[3].text.split(" to "))
    assert low <= 100 * false[2].numbers["value"] <= high


def test_curves_have_a_band_of_chance_and_survive_the_page(document, tmp_path):
    assert [one.title for one in document.curves] == [
        "Oracle sets, planted labels: background; MaxSkew@12 by strength, nats",
        "Oracle sets, planted labels: both; MaxSkew@12 by strength, nats",
    ]  # fmt: skip
    both = document.curves[1]
    assert set(both.series) == {"planted subjects", "other subjects"}
    assert set(both.series["planted subjects"]) == {0.0, 0.5, 1.0}
    low, mean, high = both.chance
    assert low < mean < high < both.series["planted subjects"][1.0][0]
    (tmp_path / "social_oracle.json").write_text(document.to_json())
    assert read_document(tmp_path / "social_oracle.json") == document
    page = write_tables_page(tmp_path).read_text()
    assert page.count("<title>by chance") == 2
    assert "by chance" in page
    head = page.partition("</header>")[0]
    assert document.answer in html.unescape(re.sub("<[^>]*>", "", head))
    assert head.count("<svg") == 1 == page.count(document.curves[0].title)
    for written in (to_markdown(document), to_latex(document), to_csv(document)):
        assert "nan" not in written.lower()


def test_what_is_not_there(root, tmp_path):
    with pytest.raises(MissingError, match="make social"):
        table().build(Runs(tmp_path))
    assert table(partial=True).build(Runs(tmp_path)).parts == ()
    lay_world_run(tmp_path, "both-1", replace(PLAIN, skew=1), 0)
    alone = table(shuffled=None).build(Runs(tmp_path))
    assert len(alone.parts) == 2
    [(_, row)] = alone.parts[1].rows
    assert [one.text for one in row] == ["–"] * 3


def test_answers_that_do_not_fit_the_world(tmp_path):
    folder = lay_world_run(tmp_path, "both-1", replace(PLAIN, skew=1), 0)
    [run] = read_world_runs(tmp_path, ["social"], SETS).runs
    answers = run.answers["Oracle"]
    question = answers.choose("colour_background", "colour_background")
    with pytest.raises(UserError, match="'green night' was planted on 'ball'"):
        find_labels(answers, question, {"ball": "green night"})
    with pytest.raises(UserError, match="none of these subjects"):
        find_labels(answers, question, {"doctor": "red beach"})
    (folder / "config.yaml").write_text("data: {world: null}\n")
    with pytest.raises(UserError, match="has no world"):
        read_world_runs(tmp_path, ["social"], SETS)
    (folder / "config.yaml").write_text("data: {world: {sked: 1}}\n")
    with pytest.raises(UserError, match=r"data\.world is invalid"):
        read_world_runs(tmp_path, ["social"], SETS)
    assert WorldSettings().skew == 0
