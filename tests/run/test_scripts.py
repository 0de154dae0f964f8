"""The scripts in-process, on a small world: what a user does, and what a user does wrong."""

from __future__ import annotations

import csv
import html
import re

import pytest

from tests.run.conftest import SCENES, output_of, refusal, stdout_of


def test_dry_run_says_exact_counts_and_writes_no_run(place):
    said = place.plan("data.cf_ratio=0.6", "seed=107")
    assert said["counts"]["counterfactual"] == round(0.6 * said["counts"]["total"])
    assert said["counts"]["real"] + said["counts"]["counterfactual"] == said["counts"]["train"]
    assert said["steps"] == 3
    assert len(said["order_hash"]) == 64
    assert not place.root.exists()


@pytest.mark.slow
def test_order_depends_on_the_seeds_and_nothing_else(place):
    def order(*words: str) -> str:
        return place.plan("data.cf_ratio=0.6", *words)["order_hash"]

    first = order("seed=107")
    assert order("seed=107", "data.workers=2", "logger=tensorboard") == first
    assert order("--seed=107", "_wandb={}") == first
    assert order("seed=108", "data.seed=108") != first
    assert order("seed=107", "data.seed=7") != first


@pytest.mark.slow
def test_a_run_is_recorded_skipped_refused_and_started_anew(place):
    assert place.train("data.cf_ratio=0.6", "seed=107") == 0
    record = place.record()
    assert record["state"] == "done"
    assert record["counts"]["seen"] == 3 * 16
    assert record["attempts"] == [{"start_step": 0, "end_step": 3, "seconds": record["wall_s"]}]
    assert (record["seed"], record["data_seed"], record["cf_ratio"]) == (107, 108, 0.6)
    assert record["wall_s"] > 0
    assert record["peak_rss_mib"] > 0
    assert record["threads"] >= 1
    folder = place.folder()
    assert {p.name for p in folder.iterdir()} >= {"checkpoint", "config.yaml", "metrics.csv"}
    said = stdout_of(place.train, "data.cf_ratio=.6", "seed=107", "data.workers=1")
    assert "already done" in said

    before = (folder / "metrics.csv").read_bytes()
    said = refusal(place.train, "data.cf_ratio=0.6", "seed=107", "optim.lr=0.01")
    assert "optim.lr: there 0.0006, asked 0.01" in said
    assert "overwrite=true" in said
    assert "arm=NAME" in said
    assert (folder / "metrics.csv").read_bytes() == before
    words = ["data.cf_ratio=0.6", "seed=107", "optim.lr=0.01"]
    assert place.train(*words, "overwrite=true") == 0
    assert place.record()["config_hash"] != record["config_hash"]


@pytest.mark.slow
def test_many_arms_become_a_table_and_a_page(place):
    words, spoils = ["name=small", "seed=1,2"], ["optim.lr=0.005", "optim.warmup=0"]
    for arm, extra in {
        "before": ["data.cf_ratio=0", "trainer.max_steps=0"],
        "real": ["data.cf_ratio=0", "data.size=30", *spoils],
        "counterfactual": ["data.cf_ratio=0.6", "data.size=75", *spoils],
    }.items():
        assert place.train("--multirun", f"arm={arm}", *words, *extra) == 0
    said, alarms = output_of(place.evaluate, "forgetting_threshold=0")
    assert "shapescapes_ood_classification" in said
    with (place.root / "small" / "table.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert list(rows[0])[:10] == [
        "arm", "baseline", "benchmark", "metric", "n", "mean", "sd",
        "p_welch", "p_paired", "p_holm",
    ]  # fmt: skip
    assert {row["arm"] for row in rows} == {"before", "real", "counterfactual"}
    assert {row["n"] for row in rows} == {"2"}
    page = (place.root / "small" / "report.html").read_text()
    answer = said.splitlines()[-1]  # before the next command, which is on stderr
    assert " of distribution " in answer
    assert answer in html.unescape(re.sub("<[^>]*>", "", page))
    assert alarms.endswith(f"next: open {place.root / 'small/report.html'} in a browser\n")
    assert "before fine-tuning" in page
    forgotten = [line for line in alarms.splitlines() if line.startswith("forgetting")]
    assert all(line in page for line in forgotten)
    assert len(forgotten) == page.count("forgetting, more than 0 points: ") > 0
    results = place.root / "small/real/seed=1/results.jsonl"
    before = results.read_bytes()
    assert "already evaluated" in stdout_of(place.evaluate)
    assert results.read_bytes() == before
    # A seed that one arm lacks is named, and the table is of the others.
    words = ["name=small", "arm=real", "seed=3", "data.cf_ratio=0", "data.size=30", *spoils]
    assert place.train(*words) == 0
    words = ["name=small", "tabulate=all"]
    assert place.evaluate(*words) == 0
    assert "lacks seed 3" in (place.root / "small/table.md").read_text()
    assert "lacks seed 3" in refusal(place.evaluate, *words, "seeds=1,3")
    assert place.evaluate(*words, "seeds=1") == 0
    with (place.root / "small/table.csv").open() as handle:
        assert {row["n"] for row in csv.DictReader(handle)} == {"1"}
    there = "(there are small/before, small/counterfactual, small/real)"
    assert there in refusal(place.evaluate, "name=smal")


def test_nothing_to_evaluate_names_the_next_command(place):
    assert "python train.py" in refusal(place.evaluate)


def test_a_folder_that_does_not_exist_is_named(script, tmp_path):
    words = ["data=folder", "data.real=/nowhere/photos", "data.cf_ratio=0"]
    said = refusal(script("train"), [*words, f"paths.runs={tmp_path}", f"paths.cache={tmp_path}"])
    assert "/nowhere/photos" in said


@pytest.mark.slow
def test_hydras_own_options_still_work(script):
    said = stdout_of(script("train"), ["--cfg", "job", "--resolve", "model=tiny_clips", "seed=3"])
    assert "weights: zoo:clip-1" in said
    said = refusal(script("train"), ["--cfg", "job", "data.cf_rato=3"])
    assert "did you mean data.cf_ratio" in said
    assert "data.cf_ratio=0.6" in stdout_of(script("train"), ["--help"])


@pytest.mark.parametrize("name", ["mps", "cuda:9"])
def test_evaluate_refuses_a_device_that_is_not_there(place, monkeypatch, name):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    words = ["weights=zoo:clip-0", *SCENES]
    said = refusal(place.evaluate, *words, f"device={name}")
    assert f"device={name}: " in said
    assert "cpu" in said
    assert len(said.splitlines()) == 1


def test_train_refuses_an_accelerator_that_is_not_there(place, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    said = refusal(place.train, "data.cf_ratio=0", "trainer.accelerator=gpu")
    assert "trainer.accelerator=gpu: this machine has none; choose auto or cpu" in said
    assert not list(place.root.rglob("run.json"))


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        ("evaluate", "annotate=export data=folder data.counterfactual=F",
         "cfaug annotate export pairs=F\n"),
        ("evaluate", "table=wise_ft paths.runs=r", "cfaug table wise_ft paths.runs=r\n"),
        ("evaluate", "-m table=cfmm_2,cfmm_3", "cfaug table cfmm_2 cfmm_3\n"),
        ("evaluate", "compare=[A,B] compare_columns.by=type",
         "cfaug compare A B columns.by=type\n"),
        ("annotate", "", "choose from export, read, simulate"),
        ("table", "", "wise_ft"),
        ("annotate", "export", "pairs=FOLDER is missing"),
        ("table", "wise_ft pairs=x", "cfaug annotate takes it"),
    ],
)  # fmt: skip
def test_a_command_line_of_another_command_is_answered_with_the_right_one(
    script, command, words, said
):
    assert said in refusal(script(command), words.split())
