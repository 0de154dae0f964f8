"""What the oracle says of MaxSkew, from made-up models with a known preference."""

from __future__ import annotations

import html
import json
import re
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml

from cfaug.core.errors import UserError
from cfaug.papers.social.oracle import compare_labels, read_world_runs
from cfaug.papers.social.skew import RankedSubject, Skew, item_columns, measure
from cfaug.planning.build import build
from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Entry, read_document
from cfaug.report.items import Items, write_items
from cfaug.report.paper_tables import write_tables_page
from cfaug.worlds.shapescapes.settings import SKEWED, SUBJECTS, WorldSettings
from cfaug.worlds.shapescapes.world import World
from tests.files_of_settings import settings_file

TABLE = settings_file("table/social_oracle")
STRENGTHS, SEEDS = (0.5, 1.0), (0, 1)
NULLS = 4
SETS = {"Oracle": "oracle_skew", "shuffled": "shuffled_skew"}

COLOURS, BACKGROUNDS = ("red", "yellow", "blue", "purple"), ("beach", "grass", "snow")
PLAIN = WorldSettings(shortcut="none", colours=COLOURS, backgrounds=BACKGROUNDS)
EVERY = list(product(COLOURS, BACKGROUNDS))
PER_SUBJECT = 8
HOW = Skew(permutations=99, resamples=4)


def answer(world: World, strength: float, *, shuffled: bool = False) -> dict:
    """Return the items of a model that prefers some labels everywhere, and the planted ones."""
    draw = np.random.default_rng([world.settings.known_seed(), int(100 * strength), shuffled])
    preferred = draw.normal(0, 0.6, len(EVERY))
    rows = []
    for subject in SUBJECTS:
        wanted = world.planted.get(subject)
        planted = np.array([
            wanted is not None and wanted.items() <= {"colour": c, "background": b}.items()
            for c, b in EVERY
        ])  # fmt: skip
        scores = preferred + 3 * strength * planted + draw.normal(0, 1, (PER_SUBJECT, len(EVERY)))
        scores += draw.normal(0, 0.5, (PER_SUBJECT, 1))
        if shuffled:
            scores = draw.permuted(scores, axis=1)
        order = np.argsort(-scores.ravel())
        sets = order // len(EVERY)
        ranked = RankedSubject(
            "colour_background", len(EVERY), subject, "shape", order, sets,
            scores.ravel()[order], [f"{subject}-{at}" for at in order],
        )  # fmt: skip
        for names in SKEWED.values():
            rows += measure(ranked, "_".join(names), *_label(names), HOW)
    return item_columns(rows)


def _label(names: tuple[str, ...]) -> tuple[np.ndarray, list[str]]:
    values = {"colour": COLOURS, "background": BACKGROUNDS}
    labels = [" ".join(combination) for combination in product(*(values[name] for name in names))]
    shown = [dict(zip(values, combination, strict=True)) for combination in EVERY]
    codes = [labels.index(" ".join(attributes[name] for name in names)) for attributes in shown]
    return np.tile(codes, PER_SUBJECT), labels


def lay_world_run(
    root: Path,
    arm: str,
    settings: WorldSettings,
    seed: int,
    steps: int = 60,
) -> Path:
    """Write a finished run with its answers to the oracle's sets, and to shuffled ones."""
    folder = root / "social" / arm / f"seed={seed}"
    folder.mkdir(parents=True)
    record = {"state": "done", "seed": seed, "data_seed": seed + 1, "steps": steps}
    (folder / "run.json").write_text(json.dumps(record))
    world = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(settings).items()}
    node = {"_target_": "cfaug.worlds.shapescapes.WorldSettings", **world}
    (folder / "config.yaml").write_text(yaml.safe_dump({"data": {"world": node}}))
    planted = World(replace(settings, seed=seed + 1))
    for shuffled in (False, True)[: 1 + (settings.skew == 0)]:
        name = "shuffled_skew" if shuffled else "oracle_skew"
        columns = answer(planted, settings.skew, shuffled=shuffled)
        write_items(folder, Items(name, "w", "d", columns))
    return folder


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
    assert [run.seed for run in worlds.before] == [0]
    assert {k: len(runs) for k, runs in worlds.planted("both").items()} == {0.0: 2, 0.5: 2, 1.0: 2}
    run = worlds.planted("both")[1.0][1]
    expected = World(replace(PLAIN, skew=1.0, seed=run.seed + 1)).planted
    assert run.labels("both") == {
        s: f"{v['colour']} {v['background']}" for s, v in expected.items()
    }
    coloured = World(replace(PLAIN, skew=1.0, skewed="colour", seed=run.seed + 1)).planted
    assert run.labels("colour") == {s: v["colour"] for s, v in coloured.items()}


def test_a_planted_skew_is_found_in_its_order(document):
    by_labels = cells(document, 0)
    assert list(by_labels)[:5] == [
        ("background", "before training", "1"), ("background", "0", "2"),
        ("background", "0.5", "2"), ("background", "1", "2"), ("both", "before training", "1"),
    ]  # fmt: skip
    for kind in ("background", "both"):
        rows = [by_labels[kind, strength, "2"] for strength in ("0", "0.5", "1")]
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
        i for i, labelling in enumerate(items["labelling"])
        if labelling == "colour_background" and items["subject"][i] in planted
    ]  # fmt: skip
    [cell, beyond, *_] = cells(document, 0)["both", "before training", "1"]
    assert cell.numbers["value"] == pytest.approx(np.mean(items["max_skew"][rows]))
    assert beyond.numbers["value"] == pytest.approx(
        np.mean(items["max_skew"][rows] - items["max_skew_chance"][rows])
    )


def test_alarms_are_counted_where_nothing_was_planted(document):
    by_labels = cells(document, 2)
    placed = by_labels["Oracle sets", "a planted label is found (placement)"]
    assert placed[1].text == str(3 * NULLS)
    assert placed[2].numbers["value"] <= 0.2
    name = "a subject's MaxSkew, p without correction"
    false, oracle = by_labels["Shuffled sets", name], by_labels["Oracle sets", name]
    assert false[1].text == oracle[1].text == str(NULLS * 3 * 10)
    assert false[2].numbers["value"] < 0.1
    assert oracle[2].numbers["value"] > 2 * false[2].numbers["value"]
    low, high = (float(end) for end in false[3].text.split(" to "))
    assert low <= 100 * false[2].numbers["value"] <= high


def test_curves_have_a_band_of_chance_and_survive_the_page(document, tmp_path):
    assert [curve.title for curve in document.curves] == [
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
    head = page.partition("</header>")[0]
    assert document.answer in html.unescape(re.sub("<[^>]*>", "", head))
    assert head.count("<svg") == 1 == page.count(document.curves[0].title)


def test_what_is_not_there(root, tmp_path):
    lay_world_run(tmp_path, "both-1", replace(PLAIN, skew=1), 0)
    alone = table(shuffled=None).build(Runs(tmp_path))
    assert len(alone.parts) == 2
    [(_, row)] = alone.parts[1].rows
    assert [cell.text for cell in row] == ["–"] * 3


def test_answers_that_do_not_fit_the_world(tmp_path):
    folder = lay_world_run(tmp_path, "both-1", replace(PLAIN, skew=1), 0)
    [run] = read_world_runs(tmp_path, ["social"], SETS).runs
    answers = run.answers["Oracle"]
    question = answers.choose("colour_background", "colour_background")
    with pytest.raises(UserError, match="'green night' was planted on 'ball'"):
        compare_labels(answers, question, {"ball": "green night"})
    with pytest.raises(UserError, match="none of these subjects"):
        compare_labels(answers, question, {"doctor": "red beach"})
    (folder / "config.yaml").write_text("data: {world: null}\n")
    with pytest.raises(UserError, match="has no world"):
        read_world_runs(tmp_path, ["social"], SETS)
    (folder / "config.yaml").write_text("data: {world: {sked: 1}}\n")
    with pytest.raises(UserError, match=r"data\.world is invalid"):
        read_world_runs(tmp_path, ["social"], SETS)
    assert WorldSettings().skew == 0
