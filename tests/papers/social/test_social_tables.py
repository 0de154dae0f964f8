"""The figures of the social bias paper, from items of made-up models."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from itertools import product
from statistics import mean

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.papers.social.skew_items import RankingTask, SkewItems
from cfaug.papers.social.skew_rankings import compare_over_sets, read_rankings
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import Part, read_document
from cfaug.report.item_tests import compare_items
from cfaug.report.items import RANKINGS, Items, read_items, write_items
from cfaug.report.page import Measure, p_text
from cfaug.report.paper_tables import published, write_tables_page
from cfaug.stats.significance import holm
from cfaug.stats.skew_tests import chance_skew
from tests.paper_tables import table
from tests.papers.social.skew_example import GENDERS, OCCUPATIONS, RACES, skew_items

MODELS = {"alip": {}, "clip": {"male": 3.0}, "slip": {"White": 1.0, "male": 1.0}}
GRID = "race_gender"


@cache
def answers(name: str) -> SkewItems:
    return skew_items(name, MODELS[name], ks=(None, 12))


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    """Three models that were asked, and a folder of something else."""
    root = tmp_path_factory.mktemp("runs")
    for name in MODELS:
        write_items(root / "weights" / name / "seed=0", answers(name).items)
    (root / "weights" / "vilt" / "seed=0" / "items").mkdir(parents=True)
    return Runs(root)


def rows_of(part: Part) -> dict[tuple[str, ...], dict[str, object]]:
    return {labels: dict(zip(range(99), cells, strict=False)) for labels, cells in part.rows}


def column(name: str, labelling: str, k: int, metric: str) -> dict[str, float]:
    """Return a column by subject, looked up row by row."""
    columns = answers(name).items.columns
    return {
        columns["subject"][i]: columns[metric][i]
        for i in range(len(columns["item"]))
        if (columns["labelling"][i], columns["k"][i]) == (labelling, k)
    }


def test_figure_2_prints_the_distribution_beside_chance(runs):
    document = table("social_figure_2").build(runs)
    part, conditional = document.parts
    assert part.title == f"Ours: MaxSkew@12 over {len(OCCUPATIONS)} occupations, race_gender"
    for (name,), cells in part.rows:
        skew = column(name, GRID, 12, "max_skew")
        chance = column(name, GRID, 12, "max_skew_chance")
        said = [cells[n].text for n in range(5)]
        values = list(skew.values())
        assert said == [str(len(skew)), *(f"{f(values) + 0:.2f}" for f in (mean, min, max)),
                        f"{mean(chance.values()):.2f}"]  # fmt: skip
        beyond = mean(skew[subject] - chance[subject] for subject in skew)
        assert cells[5].text == f"{beyond:+.2f}"
        p = column(name, GRID, 12, "p_permutation")
        assert cells[6].text == str(sum(holm(list(p.values())) <= 0.05))
        assert cells[7].text == str(sum(uncorrected <= 0.05 for uncorrected in p.values()))
        alarms = column(name, GRID, 12, "p_level")
        assert cells[8].text == f"{sum(alarms.values()):.1f}"
    (box,) = document.boxes
    assert set(box.rows) == set(MODELS)
    assert box.rows["clip"] == pytest.approx(column("clip", GRID, 12, "max_skew"))
    assert conditional.groups == tuple((name, 2) for name in MODELS)


def test_a_band_of_chance_is_that_of_random_rankings(runs):
    document = table("social_figure_2").build(runs)
    ranking = chance_skew([10] * 6, 12)
    expected = (ranking.quantile(0.05), ranking.mean, ranking.quantile(0.95))
    assert document.boxes[0].chance["clip"] == pytest.approx(expected)
    (bars,) = document.bars
    low, expected, high = bars.chance["White"]
    pair = chance_skew([10, 10], 12)
    draw = np.random.default_rng(0).choice(pair.values, (4000, len(OCCUPATIONS)), p=pair.p)
    assert expected == pytest.approx(pair.mean)
    assert (low, high) == pytest.approx(np.quantile(draw.mean(axis=1), [0.05, 0.95]), abs=0.02)


def test_figure_2_has_gender_by_race_on_its_right(runs):
    document = table("social_figure_2").build(runs)
    (bars,) = document.bars
    assert bars.title == "Mean gender MaxSkew@12 by race"
    assert list(bars.groups) == list(RACES)
    for race in RACES:
        for name, value, low, high in bars.groups[race]:
            skew = column(name, f"gender|race={race}", 12, "max_skew")
            assert value == pytest.approx(mean(skew.values()))
            assert low <= value <= high
    clip = [bars.groups[race][1][1] for race in RACES]
    more = 100 * (max(clip) / min(clip) - 1)
    assert f"clip {more:.0f} %" in document.parts[1].notes[0]
    alone = table("social_figure_2", conditional=None).build(runs)
    assert (len(alone.parts), alone.bars) == (1, ())
    unasked = table("social_figure_2", conditional="age|race").build(runs)
    assert len(unasked.parts) == 1


def test_each_model_is_compared_with_the_first_over_subjects(runs):
    part = table("social_figure_2").build(runs).parts[0]
    rows = rows_of(part)
    assert [cell.text for cell in list(rows["alip",].values())[-6:]] == ["–"] * 6
    by = {"grid": GRID, "labelling": GRID, "k": "12"}
    tests = {
        name: compare_items([answers(name).items], [answers("alip").items], "max_skew",
                            Measure("nats", "lower"), by)
        for name in ("clip", "slip")
    }  # fmt: skip
    corrected = holm([test.p_two_sided for test in tests.values()])
    for (name, test), p in zip(tests.items(), corrected, strict=True):
        change, tested, p_holm = list(rows[name,].values())[-6:-3]
        ours, theirs = (column(model, GRID, 12, "max_skew") for model in (name, "alip"))
        assert change.text == f"{mean(ours[s] - theirs[s] for s in ours):+.2f}"
        assert (tested.text, p_holm.text) == (p_text(test.p_two_sided), p_text(p))
        low, high = test.interval(Measure("nats", "lower"))
        assert change.small == f"[{low:+.2f}, {high:+.2f}]"
    assert test.clusters == len(OCCUPATIONS)
    single = table("social_figure_2", models={"clip": "weights/clip"}).build(runs).parts[0]
    assert len(single.columns) == 9


def test_who_stands_out_is_said_with_what_chance_gives(runs):
    notes = table("social_figure_2", k=None).build(runs).parts[0].notes
    corrected = column("clip", GRID, 6, "p_holm")
    skewed = [name for name, p in corrected.items() if p <= 0.05]
    (said,) = [note for note in notes if note.startswith("clip: ")]
    assert said.startswith(f"clip: {len(skewed)} of {len(corrected)} subjects stand out")
    assert all(name in said for name in skewed)
    alarms = sum(column("clip", GRID, 6, "p_level").values())
    assert f"; {alarms:.1f} are expected by chance." in said


def test_checkpoints_of_one_model_are_averaged(runs):
    both = {"both": ["weights/alip", "weights/clip"]}
    document = table("social_figure_2", models=both).build(runs)
    values = [column(name, GRID, 12, "max_skew") for name in ("alip", "clip")]
    assert document.boxes[0].rows["both"] == pytest.approx(
        {subject: mean(by_subject[subject] for by_subject in values) for subject in values[0]}
    )
    assert any("checkpoint by checkpoint" in note for note in document.parts[0].notes)


def test_a_k_that_was_not_asked_is_the_number_of_labels(runs):
    document = table("social_figure_2", k=7, conditional_k=None).build(runs)
    assert document.parts[0].title.startswith("Ours: MaxSkew@6 ")
    assert document.bars[0].title == "Mean gender MaxSkew@2 by race"


def test_figure_3_shows_what_is_retrieved(runs):
    document = table("social_figure_3", subject="Doctor").build(runs)
    assert [plot.title for plot in document.bars] == [
        "Doctor, race", "Doctor, gender", "Doctor, race_gender"
    ]  # fmt: skip
    columns = answers("clip").items.columns
    for plot, labelling in zip(document.bars, ("race", "gender", GRID), strict=True):
        (row,) = [i for i in range(len(columns["item"])) if columns["item"][i]
                  == f"{GRID}/{labelling}/doctor@12"]  # fmt: skip
        top = json.loads(columns["top_counts"][row])
        assert [plot.groups[label][1][1] for label in plot.groups] == [n / 12 for n in top]
        assert sum(bars[1][1] for bars in plot.groups.values()) == pytest.approx(1)
        assert list(plot.groups) == json.loads(columns["labels"][row])
    low, share, high = document.bars[1].chance["male"]
    draws = np.random.default_rng(1).hypergeometric(30, 30, 12, 20_000) / 12
    assert share == 0.5
    assert (low, high) == pytest.approx(np.quantile(draws, [0.05, 0.95]), abs=0.01)
    part = document.parts[1]
    assert [labels for labels, _ in part.rows] == [(gender,) for gender in GENDERS]
    assert part.columns == (*MODELS, "by chance")


def test_another_subject_is_named(runs):
    with pytest.raises(UserError, match=r"table\.subject=doctr is not one of the 8.*as doctor"):
        table("social_figure_3", subject="doctr").build(runs)
    with pytest.raises(MissingError, match="about the grid shapes"):
        table("social_figure_3", grid="shapes").build(runs)


def test_figure_5_has_a_panel_a_grid_and_type(tmp_path):
    grids = {
        "race_gender": {"race": RACES, "gender": GENDERS},
        "colour_background": {"colour": ("red", "blue"), "background": ("sea", "snow")},
    }
    clip = skew_items("clip", grids=grids)
    types = ["trait" if name in ("poet", "cook") else "occupation"
             for name in clip.items.columns["subject"]]  # fmt: skip
    columns = dict(clip.items.columns) | {"subject_type": np.array(types, object)}
    write_items(tmp_path / "weights/clip/seed=0", replace(clip.items, columns=columns))
    document = table("social_figure_5").build(Runs(tmp_path))
    assert [box.title for box in document.boxes] == [
        "MaxSkew@6 over 6 occupations, race_gender", "MaxSkew@6 over 2 traits, race_gender",
        "MaxSkew@4 over 6 occupations, colour_background",
        "MaxSkew@4 over 2 traits, colour_background",
    ]  # fmt: skip
    assert len(document.parts) == 4
    one_panel = table("social_figure_5", grid="colour_background", subject_type="trait")
    assert len(one_panel.build(Runs(tmp_path)).boxes) == 1
    with pytest.raises(MissingError, match="about the grid x"):
        table("social_figure_5", grid="x").build(Runs(tmp_path))


def test_models_stand_side_by_side_on_every_labelling(runs):
    document = table("social_models").build(runs)
    part, gaps = document.parts
    assert [labels for labels, _ in gaps.rows] == [
        (labelling, name) for labelling in ("race", "gender", GRID) for name in MODELS
    ]
    values = [column(name, "gender", 2, "rank_gap") for name in ("alip", "clip")]
    clip = dict(gaps.rows)["gender", "clip"]
    assert clip[1].text == f"{mean(values[1].values()):.3f}"
    assert clip[2].text == f"{0.1 * mean(values[1].values()):.3f}"
    assert clip[3].text == str(sum(gap > 0.5 for gap in values[1].values()))
    assert clip[4].text == f"{mean(values[1][s] - values[0][s] for s in values[0]):+.2f}"
    asked = [(labelling, k) for labelling, labels in (("race", 3), ("gender", 2), (GRID, 6))
             for k in (labels, 12)]  # fmt: skip
    wanted = [(labelling, str(k), name) for labelling, k in asked for name in MODELS]
    assert [labels for labels, _ in part.rows] == wanted
    tested = [cells[-4].text for labels, cells in part.rows if labels[2] != "alip"]
    assert "–" not in tested
    assert [curve.title for curve in document.curves] == [
        f"MaxSkew@K by K: race_gender, {labelling}" for labelling in ("race", "gender", GRID)
    ]
    series = document.curves[0].series
    assert set(series) == {*MODELS, "by chance"}
    assert series["clip"][12.0][0] == pytest.approx(
        mean(column("clip", "race", 12, "max_skew").values())
    )
    more = table("social_models", conditional=True).build(runs)
    assert len(more.parts[0].rows) > len(part.rows)


def test_places_within_sets_say_which_labels_are_preferred(runs):
    document = table("social_gaps").build(runs)
    assert [plot.title for plot in document.bars] == [
        f"race_gender, {labelling}" for labelling in ("race", "gender", GRID)
    ]
    part = document.parts[1]
    assert part.columns == tuple(MODELS)
    columns = answers("clip").items.columns
    gaps = [json.loads(columns["rank_gaps"][i]) for i in range(len(columns["item"]))
            if (columns["labelling"][i], columns["k"][i]) == ("gender", 2)]  # fmt: skip
    for n, (labels, cells) in enumerate(part.rows):
        assert labels == (GENDERS[n],)
        assert cells[1].text == f"{mean(by_label[n] for by_label in gaps):+.3f}"
    (male, female) = (document.bars[1].groups[label][1] for label in GENDERS)
    assert male[1] == pytest.approx(-female[1])
    assert male[2] <= male[1] <= male[3]
    # Eight subjects have no p below .0078: 6 comparisons pass Holm's correction, 24 do not.
    (alone,) = table("social_gaps", labellings=["gender"]).build(runs).parts
    bold = [[cell.bold for cell in cells[:2]] for _, cells in alone.rows]
    assert bold == [[False, True], [False, True]], "clip ranks by gender, alip does not"
    assert not any(cell.bold for part in document.parts for _, cells in part.rows for cell in cells)
    conditional = table("social_gaps", labellings=["gender|race=White"]).build(runs)
    assert len(conditional.parts) == 1
    both = table("social_gaps", models={"both": ["weights/alip", "weights/clip"]}).build(runs)
    averaged = both.bars[1].groups["male"][0][1]
    assert averaged == pytest.approx((document.bars[1].groups["male"][0][1] + male[1]) / 2)


def test_what_was_left_out_does_not_count(tmp_path):
    write_items(tmp_path / "weights/clip/seed=0", skew_items(left_out=["doctor"]).items)
    document = table("social_figure_2").build(Runs(tmp_path))
    assert document.parts[0].rows[0][1][0].text == str(len(OCCUPATIONS) - 1)
    assert "doctor" not in document.boxes[0].rows["clip"]


def test_other_items_are_refused(runs, tmp_path):
    items = answers("clip").items
    columns = {k: v for k, v in items.columns.items() if k not in ("labels", "k")}
    with pytest.raises(UserError, match=r"lack k, labels: .*=skew.*; remove items/\S+t in"):
        SkewItems("clip", replace(items, columns=columns))
    for name, text, said in (
        ("labels", "[1", "Expecting"), ("labels", "[" * 100_000, "levels"),
        ("labels", '["a", "a", "b"]', "a label twice"), ("labels", '["a"]', "different lengths"),
        ("top_counts", "[1, 1, 0]", "do not add up"), ("top_counts", "[-1, 2, 2]", "below 0"),
        ("pool_counts", "[0, 0, 0]", "do not add up"), ("top_counts", "null", "not iterable"),
    ):  # fmt: skip
        broken = dict(items.columns) | {name: np.array([text] * len(items), object)}
        with pytest.raises(
            UserError, match=f"'race_gender/race/doctor@3' (is|are) invalid.*{said}"
        ):
            SkewItems("clip", replace(items, columns=broken)).retrieved(0)


def test_models_that_were_asked_about_other_labels_stand_beside_each_other(tmp_path):
    few = {"race_gender": {"race": RACES[:2], "gender": GENDERS}}
    for name, grids in (("alip", None), ("clip", few)):
        items = skew_items(name, ks=(12,), **({} if grids is None else {"grids": grids})).items
        write_items(tmp_path / "weights" / name / "seed=0", replace(items, data=name))
    part = table("social_figure_3").build(Runs(tmp_path)).parts[0]
    assert [cell.text for cell in dict(part.rows)["Indian",]][1] == "–"
    assert table("social_figure_3").build(Runs(tmp_path)).bars[0].groups["Indian"][1][1] is None


def test_a_model_that_was_asked_about_other_images_has_no_change_and_the_table_says_why(tmp_path):
    for name in ("alip", "clip"):
        items = skew_items(name, ks=(12,)).items
        write_items(tmp_path / "weights" / name / "seed=0", replace(items, data=name))
    document = table("social_models").build(Runs(tmp_path))
    assert {tuple(cell.text for cell in cells[-3:]) for _, cells in document.parts[0].rows} == {
        ("–", "–", "–")
    }
    assert "A model with other images or another K than the first has no change" in " ".join(
        document.notes
    )


def rankings_of(skewed: SkewItems) -> Items:
    """Return the rankings that made-up items are of: with K = 60 they name every image."""
    texts: dict[str, list] = {n: [] for n in ("item", "cluster", "grid", "subject", "attributes")}
    places: list[int] = []
    every = list(product(RACES, GENDERS))
    columns = skewed.items.columns
    for row in range(len(columns["item"])):
        if (columns["labelling"][row], columns["k"][row]) != (GRID, 60):
            continue
        for place, key in enumerate(json.loads(columns["top"][row])):
            subject, _, number = key.rpartition("_")
            values = json.dumps(dict(zip(("race", "gender"), every[int(number)], strict=True)))
            said = (key, subject, GRID, columns["subject"][row], values)
            for column, value in zip(texts.values(), said, strict=True):
                column.append(value)
            places.append(place)
    asked = (skewed.items.benchmark, skewed.items.weights, skewed.items.data)
    return Items(*asked, {**texts, "place": places, "score": -np.array(places, float)})


@pytest.mark.slow
def test_models_are_compared_over_subjects_and_sets_where_rankings_are_kept(tmp_path):
    """A test of the cells; ``tests/social/test_skew_rankings.py`` is one of the numbers."""
    read = {}
    for name in MODELS:
        folder = tmp_path / "weights" / name / "seed=0"
        skewed = skew_items(name, MODELS[name], ks=(None, 60))
        write_items(folder, skewed.items)
        if name != "slip":
            write_items(folder, rankings_of(skewed), RANKINGS)
        read[name] = SkewItems(name, read_items(folder, skewed.items.benchmark))
    document = table("social_models").build(Runs(tmp_path))
    part, gaps = document.parts
    ranked = {name: [(read[name], read_rankings(read[name]))] for name in ("alip", "clip")}
    compared = 0
    for metric, rows in (("max_skew", part.rows), ("rank_gap", gaps.rows)):
        for labels, cells in rows:
            last = [cell.text for cell in cells[-3:]]
            if labels[-1] != "clip":
                assert last == ["–"] * 3
                continue
            k = int(labels[1]) if metric == "max_skew" else read["clip"].choose(GRID, labels[0]).k
            question = RankingTask(GRID, labels[0], k)
            comparison = compare_over_sets(ranked["clip"], ranked["alip"], question, metric)
            assert last[:2] == [
                f"[{comparison.low:+.2f}, {comparison.high:+.2f}]",
                p_text(comparison.p),
            ]
            compared += 1
    assert compared == 6 + 3
    (said,) = [note for note in document.notes if note.startswith("No rankings")]
    assert "No rankings of slip were saved, so" in said
    assert str(tmp_path / "weights" / "slip" / "seed=0") in said


# The paper's own numbers of Tables 1 to 4: transcribed whole, and consistent where it is.


def test_the_counts_of_table_1_give_its_percentages():
    printed = published("social_1")
    assert sum(printed["counts"]) == 1200
    for count, row in zip(printed["counts"], printed["rows"], strict=True):
        assert abs(100 * count / 1200 - row["values"][0]) <= 0.0501


def test_table_3_sums_to_the_failures_of_table_1():
    counts = {
        row["category"]: count
        for row, count in zip(published("social_1")["rows"], published("social_1")["counts"],
                              strict=True)
    }  # fmt: skip
    for row in published("social_3")["rows"]:
        assert sum(row["values"]) == counts[row["category"]]  # of 100 images each


def test_table_4_is_of_the_images_whose_gender_can_be_discerned():
    support = [row["values"][3] for row in published("social_4")["rows"]]
    assert sum(support) == 1138 == 1200 - published("social_1")["counts"][1]
    for row in published("social_4")["rows"]:
        precision, recall, f1, _ = row["values"]
        assert abs(2 * precision * recall / (precision + recall) - f1) <= 0.01
    # What was taken for the one and not for the other: the two rows are of one matrix.
    (male, female) = (row["values"] for row in published("social_4")["rows"])
    missed = (1 - male[1]) * male[3]
    assert missed / (missed + female[1] * female[3]) == pytest.approx(1 - female[0], abs=0.01)


@pytest.mark.slow
def test_figures_are_read_back_and_their_page_has_bands_of_chance(runs, tmp_path):
    for name in ("social_figure_2", "social_gaps"):
        document = table(name).build(runs)
        (tmp_path / f"{name}.json").write_text(document.to_json())
        back = json.loads(read_document(tmp_path / f"{name}.json").to_json())
        assert back == json.loads(document.to_json())
    text = write_tables_page(tmp_path).read_text()
    assert "<b>clerk" not in text
    assert len(re.findall(r"<title>by chance [\d.]+ \(", text)) == 6
