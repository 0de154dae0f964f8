"""``export.used=FILE``: the examples that a run trains on, counted as its plan counts them."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.run.conftest import WORLD, refusal

WORDS = [*WORLD, "data.cf_ratio=0.5", "data.size=16", "trainer.max_steps=4", "data.batch_size=4",
         "trainer.progress=false", "seed=3"]  # fmt: skip


def listed(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_the_list_has_what_a_plan_counts(script, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    words = [*WORDS, "export.used=used.jsonl", "dry_run=json"]
    assert script("train")(words) == 0, capfd.readouterr().err
    counts = json.loads(capfd.readouterr().out.splitlines()[-1])["counts"]
    lines = listed(tmp_path / "used.jsonl")
    drawn = Counter()
    for line in lines:
        drawn[line["split"], line["kind"]] += line["times"]
    assert drawn["train", "real"] == counts["real"] > 0
    assert drawn["train", "counterfactual"] == counts["counterfactual"] > 0
    assert (
        sum(n for (split, _), n in drawn.items() if split == "validation") == (counts["validation"])
    )
    sources = {(line["kind"], line["source"].rpartition("/")[2]) for line in lines}
    assert sources == {("real", "real"), ("counterfactual", "counterfactual")}
    assert len({(line["source"], line["key"]) for line in lines}) == len(lines)
    assert all(line["caption"] and len(line["digest"]) == 32 for line in lines)
    assert script("train")(words) == 0  # the same list again: ours is replaced


@pytest.mark.slow
def test_the_list_changes_nothing_of_a_run(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert script("train")([*WORDS, "arm=a", "export.used=lists/used.jsonl"]) == 0
    assert script("train")([*WORDS, "arm=b"]) == 0
    first, second = (
        json.loads((tmp_path / f"runs/main/{arm}/seed=3/run.json").read_text()) for arm in "ab"
    )
    assert first["config_hash"] == second["config_hash"]
    listing, plain = (tmp_path / f"runs/main/{arm}/seed=3/config.yaml" for arm in "ab")
    assert "used" not in listing.read_text()
    assert listing.read_text().replace("arm: a", "arm: b") == plain.read_text()


def test_a_list_of_somebody_else_and_one_of_two_runs_are_refused(
    script, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "used.jsonl").write_text("mine")
    said = refusal(script("train"), [*WORDS, "export.used=used.jsonl", "dry_run=true"])
    assert "export.used=used.jsonl" in said
    assert (tmp_path / "used.jsonl").read_text() == "mine"
    words = [*WORDS[:-1], "-m", "seed=1,2", "export.used=other.jsonl", "dry_run=true"]
    assert "2 runs would write it" in refusal(script("train"), words)
    words[-2] = "export.used=list-${seed}.jsonl"
    assert script("train")(words) == 0, capfd.readouterr().err
    assert {file.name for file in tmp_path.glob("list-*.jsonl")} == {"list-1.jsonl", "list-2.jsonl"}
    words = ["task=vqa", "data.world.seed=5", "export.used=x.jsonl", "dry_run=true", "seed=3"]
    assert "lists the captions and images of a mixture" in refusal(script("train"), words)
