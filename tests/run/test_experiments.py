"""Many experiments in one evaluation: each gets its table, though another fails; Holm's family."""

from __future__ import annotations

import csv
import json
import shutil

import pytest


@pytest.fixture
def trained(place, capsys):
    """One experiment of two arms over two seeds, evaluated."""
    for arm, ratio in (("real", 0), ("counterfactual", 0.6)):
        words = [f"arm={arm}", f"data.cf_ratio={ratio}", "seed=1,2", "name=good"]
        assert place.train("--multirun", *words, f"data.size={30 if arm == 'real' else 75}") == 0
    assert place.evaluate() == 0
    capsys.readouterr()
    return place


def copied(place, name):
    """Copy the experiment under another name."""
    folder = place.root / name
    shutil.copytree(place.root / "good", folder, ignore=shutil.ignore_patterns("table.*"))
    for file in folder.glob("*/seed=*/run.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "experiment": name}))
    return folder


def lines(folder):
    with (folder / "table.csv").open() as handle:
        return list(csv.DictReader(handle))


@pytest.mark.slow
def test_every_experiment_gets_its_table_though_another_fails(trained, capsys):
    shutil.rmtree(copied(trained, "a_seed_less") / "real" / "seed=2")
    (copied(trained, "b_record") / "real/seed=1/run.json").write_text("{")
    (copied(trained, "c_config") / "counterfactual/seed=1/config.yaml").write_text("model: [")
    copied(trained, "z_last")
    assert trained.evaluate() == 2
    said, told = capsys.readouterr()
    assert "experiment a_seed_less" in told
    assert "real lacks seed 2" in told
    assert str(trained.root / "b_record/real/seed=1/run.json") in told
    assert str(trained.root / "c_config/counterfactual/seed=1/config.yaml") in told
    assert (trained.root / "z_last/table.md").exists()
    assert (trained.root / "z_last/report.html").exists()
    assert not (trained.root / "a_seed_less/table.md").exists()
    assert "Traceback" not in told
    # More than three experiments: a line each, with the way to its table.
    [line] = [line for line in said.splitlines() if line.startswith("z_last: ")]
    assert line.startswith("z_last: 2 arms, ")
    assert line.endswith(str(trained.root / "z_last/table.md"))
    assert "±" not in said
    assert said.count("already evaluated: ") <= 7
    assert trained.evaluate("name=z_last") == 0
    assert "±" in capsys.readouterr().out


@pytest.mark.slow
def test_the_table_and_its_family_are_what_was_asked(trained, capsys):
    folder = trained.root / "good"
    first = (folder / "table.csv").read_bytes()
    own = {row["benchmark"] for row in lines(folder)}
    assert len(own) > 3
    only = ["benchmark=ood", "benchmark.only=[shapescapes_ood_colour_classification]"]
    assert trained.evaluate("name=good", *only) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert {row["benchmark"] for row in lines(folder)} == {"shapescapes_ood_colour_classification"}
    assert "tabulate=all adds shapescapes_id_retrieval" in said
    assert f"{len(lines(folder)) // 2} comparisons: 1 arm against real only on" in said
    assert trained.evaluate("name=good", *only, "tabulate=all") == 0
    everything = {row["benchmark"] for row in lines(folder)}
    assert everything == own | {"shapescapes_ood_colour_classification"}
    # The suite of the run itself again: more questions since have changed no corrected p.
    assert trained.evaluate("name=good") == 0
    again = (folder / "table.csv").read_text()
    assert [{k: v for k, v in row.items() if k != "note"} for row in lines(folder)] == [
        {k: v for k, v in row.items() if k != "note"}
        for row in csv.DictReader(first.decode().splitlines())
    ]
    assert "tabulate=all adds shapescapes_ood_colour_classification" in again
    capsys.readouterr()
    # Over seeds and items at once, beside it and in its documents.
    with (folder / "seeds_and_items.csv").open() as handle:
        joint = list(csv.DictReader(handle))
    assert {row["benchmark"] for row in joint} == own
    assert {row["seeds"] for row in joint} == {"2"}
    for file in ("table.md", "report.html"):
        assert "Comparisons over seeds and items" in (folder / file).read_text()
    assert trained.evaluate("name=good", "comparison.seeds_and_items=false") == 0
    assert (folder / "table.csv").read_text() == again
    assert not (folder / "seeds_and_items.csv").exists()
    assert "Comparisons over seeds and items" not in (folder / "table.md").read_text()
    capsys.readouterr()
    assert trained.evaluate("name=good", "tabulate=everything") == 2
    assert "tabulate=everything: choose from asked, all" in capsys.readouterr().err


@pytest.mark.slow
def test_arms_of_other_sizes_are_named_under_the_table(trained):
    text = (trained.root / "good/table.md").read_text()
    assert (
        "Arms differ in their number of training examples: 24 (real only); 60 (real + "
        "counterfactual pairs)."
    ) in text


@pytest.mark.slow
def test_arms_of_other_settings_are_named_under_the_table(trained):
    """An arm that was named by hand hides what it was trained with."""
    folder = copied(trained, "other")
    for file in folder.glob("real/seed=*/run.json"):
        record = json.loads(file.read_text())
        record["identity"] |= {"optim.lr": 0.5}
        file.write_text(json.dumps(record))
    lr = json.loads((trained.root / "good/real/seed=1/run.json").read_text())["identity"][
        "optim.lr"
    ]
    assert trained.evaluate("name=other") == 0
    assert (
        f"Arms differ in more than their data: optim.lr {lr} (real + counterfactual pairs), "
        "0.5 (real only)."
    ) in (folder / "table.md").read_text()
    assert "more than their data" not in (trained.root / "good/table.md").read_text()


@pytest.mark.slow
def test_a_baseline_may_be_named_as_the_table_calls_it(trained, capsys):
    folder = copied(trained, "labelled")
    (folder / "real").rename(folder / "cf_ratio=0,real=x")
    (folder / "counterfactual").rename(folder / "cf_ratio=0.6,real=x")
    assert trained.evaluate("name=labelled", "baseline='cf_ratio=0.6'") == 0
    once = lines(folder)
    assert {row["baseline"] for row in once} == {"cf_ratio=0.6,real=x"}
    # By both of its names it is still one: nothing is corrected for twice.
    both = "baseline=['cf_ratio=0.6','cf_ratio=0.6,real=x']"
    assert trained.evaluate("name=labelled", both) == 0
    assert lines(folder) == once
    assert trained.evaluate("name=labelled", "baseline='cf_ratio=0.7'") == 2
    assert "no arm is called 'cf_ratio=0.7'" in capsys.readouterr().err
