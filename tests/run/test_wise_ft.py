"""``evaluate.py wise_ft=[...]``: runs between their start and their end."""

from __future__ import annotations

import json

import pytest

from cfaug.core.errors import UserError
from cfaug.run.evaluate_checkpoint import check_factors


@pytest.mark.parametrize(
    ("given", "found"),
    [([0, 0.5, 1], (0.0, 0.5, 1.0)), (0.25, (0.25,)), ([1], (1.0,)), ((0.1, 0), (0.1, 0.0))],
)
def test_factors(given, found):
    assert check_factors(given) == found


@pytest.mark.parametrize(
    "given", [[], [0, 0], [1.5], [-0.1], [True], ["half"], "0.5", float("nan"), [None]]
)
def test_factors_that_are_invalid_are_named(given):
    with pytest.raises(UserError, match=r"wise_ft(\[\d\])?="):
        check_factors(given)


def rows(folder):
    lines = (folder / "results.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return {(one["benchmark"], one["metric"]): one["value"] for one in found}


@pytest.mark.slow
def test_the_ends_are_the_start_and_the_run_and_the_table_shows_both(place, capsys):
    """With low-rank adapters, and without a cache of embeddings: the numbers are made anew."""
    asked = [
        "benchmark=shapescapes", "benchmark.only=[shapescapes_id_classification,"
        "shapescapes_ood_classification]", "feature_cache=0", "label_frequency=null",
    ]  # fmt: skip
    assert place.train("seed=107", "tuning=lora", "data.cf_ratio=0.5", "optim.lr=0.01") == 0
    assert place.train("seed=107", "arm=start", "trainer.max_steps=0") == 0
    assert place.evaluate("name=main", "wise_ft=[0,0.5,1]", *asked) == 0
    said = capsys.readouterr().err
    assert "left out, not fine-tuned" in said
    assert place.evaluate("name=main", "evaluate_initial=true", *asked) == 0
    main = place.root / "main"
    found = {f: rows(main / f"run,wise_ft={f}" / "seed=107") for f in ("0", "0.5", "1")}
    assert found["1"] == rows(main / "run" / "seed=107")
    [initial] = place.root.glob("weights/*/seed=107")
    assert found["0"] == rows(initial)
    assert found["0.5"] not in (found["0"], found["1"])
    assert not (main / "start,wise_ft=0").exists()

    capsys.readouterr()
    assert place.evaluate("name=main", "wise_ft=[0,0.5,1]", *asked) == 0
    assert "already evaluated" in capsys.readouterr().out
    assert place.evaluate("table=wise_ft", "table.experiment=main") == 0
    said = capsys.readouterr().out
    assert "| run | 0.5" in " ".join(said.split())
    assert "change of" in (place.root / "tables" / "report.html").read_text()


def test_a_start_that_is_not_here_is_named(place, capsys, tmp_path):
    """Found before any model is loaded; nothing is fetched for a run that came from elsewhere."""
    folder = place.root / "main" / "run" / "seed=1"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"state": "done", "seed": 1, "steps": 3}))
    model = "_target_: cfaug.models.specs.HFClip\n  name_or_path: nobody/nothing-here"
    data = "_target_: cfaug.data.mixture.settings.DataSettings\n  real: null\n  seed: 2"
    (folder / "config.yaml").write_text(
        f"model:\n  {model}\ndata:\n  {data}\n  counterfactual: null\n  cf_ratio: 0\n"
    )
    assert place.evaluate("name=main", "wise_ft=[0,1]") == 2
    said = capsys.readouterr().err
    assert "wise_ft needs the weights that the run started from" in said
    assert "nobody/nothing-here" in said


def test_a_checkpoint_has_no_start(place, capsys):
    assert place.evaluate("weights=zoo:clip-0", "wise_ft=[0,1]") == 2
    assert "weights=zoo:clip-0 would have no effect" in capsys.readouterr().err
