"""``evaluate.py benchmark=vqa``: the whole command, its dry run, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
import pytest
import torch

from cfaug.core.files import KeptRecords
from cfaug.evaluation import cached_model
from cfaug.report.items import read_items
from cfaug.report.results import read_results
from tests import children
from tests.data.question_files import own_record, write_own
from tests.models import tiny_vlm


def words(file, model, *more):
    return [
        "benchmark=vqa", f"benchmark.data={file}", "model=vlm", f"model.name_or_path={model}",
        "device=cpu", "benchmark.batch_size=5", *more,
    ]  # fmt: skip


def test_a_dry_run_says_what_is_wrong_and_asks_no_model(place, tmp_path, capsys):
    file = write_own(tmp_path / "asked", [own_record(n) for n in range(3)])
    dry = ["benchmark=vqa", f"benchmark.data={file}", "dry_run=true"]
    assert place.evaluate(*dry) == 0
    said = capsys.readouterr().out
    assert "3 images, 15 questions (3 basic, 12 counterfactual)" in said
    assert "error" not in said
    bad = own_record(0)
    bad["basic"]["options"] = ["2", "2"]
    file = write_own(tmp_path / "bad", [bad])
    assert place.evaluate(*dry[:1], f"benchmark.data={file}", "dry_run=true") == 2
    assert "error: equal options: 1 of 5" in capsys.readouterr().out
    assert place.evaluate("benchmark=retrieval", "dry_run=true") == 2
    assert "no such check" in capsys.readouterr().err
    assert not (place.root / "weights").exists()


@pytest.mark.slow
def test_questions_are_answered_with_the_same_bytes_again_and_two_models_are_compared(
    place, tmp_path, capsys
):
    file = write_own(tmp_path / "asked", [own_record(n, category="ab"[n % 2]) for n in range(6)])
    for seed in (0, 1):
        tiny_vlm.save_llava(tmp_path / f"vlm{seed}", seed)
    first = words(file, tmp_path / "vlm0")
    assert place.evaluate(*first) == 0
    said = capsys.readouterr().out
    assert "without the image: acc_b" in said
    assert "options alone: acc_b" in said
    (results,) = place.root.rglob("results.jsonl")
    rows, items = read_results(results), read_items(results.parent, "questions_vqa")
    assert len(items) == 30
    for row in rows:
        if row.metric not in items.columns:
            continue
        chosen = np.ones(len(items), bool)
        for name, value in row.by.items():
            chosen &= np.asarray(items.columns[name]) == value
        assert row.value == pytest.approx(np.nanmean(items.metric(row.metric)[chosen]))
        assert row.n == int((~np.isnan(items.metric(row.metric)[chosen])).sum())
    kept = results.parent / "items" / "questions_vqa.parquet"
    before = {one: one.read_bytes() for one in (results, kept)}
    kept.unlink()
    assert place.evaluate(*first) == 0  # from answers that were kept
    assert {one: one.read_bytes() for one in before} == before
    again = words(file, tmp_path / "vlm1")
    assert place.evaluate(*again) == 0
    capsys.readouterr()
    named = [f"weights={tmp_path / 'vlm1'}", f"baseline={tmp_path / 'vlm0'}"]
    asked = [word for word in again if not word.startswith("model.name_or_path")]
    assert place.evaluate(*named, *asked) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Comparisons of one seed are tested over items (bootstrap of clusters of items" in said
    assert "acc_plus" in next(place.root.rglob("table.csv")).read_text()


def evaluate_and_die(place, given, answers) -> None:
    """Evaluate until so many pieces of the answers are written, then die of SIGKILL."""
    torch.set_num_threads(1)
    cached_model.KEPT_SECONDS = -1.0
    add, written = KeptRecords.add, []

    def add_and_die(records, found) -> None:
        add(records, found)
        written.append(len(found))
        if len(written) == answers:
            os.kill(os.getpid(), signal.SIGKILL)

    KeptRecords.add = add_and_die
    sys.exit(place.evaluate(*given))


@pytest.mark.slow
def test_an_evaluation_killed_at_any_moments_goes_on_to_the_same_bytes(place, tmp_path):
    file = write_own(tmp_path / "asked", [own_record(n) for n in range(8)])
    model = tiny_vlm.save_llava(tmp_path / "vlm")
    torch.set_num_threads(1)
    whole = words(file, model, f"paths.cache={tmp_path / 'other'}", f"paths.runs={tmp_path / 'o'}")
    assert place.evaluate(*whole) == 0
    cut = words(file, model, f"paths.cache={tmp_path / 'cache'}")
    kept: list = []
    for answers in (1, 3):
        before = len(kept)
        child = children.start(evaluate_and_die, place, cut, answers)
        child.join()
        assert child.exitcode == -signal.SIGKILL
        kept = list((tmp_path / "cache").rglob("features/*/*.jsonl"))
        assert len(kept) > before
        assert not list(place.root.rglob("questions_vqa.parquet"))
    written = {one: one.stat().st_mtime_ns for one in kept}
    assert place.evaluate(*cut) == 0
    assert {one: one.stat().st_mtime_ns for one in kept} == written  # nothing is asked twice
    for kind in ("parquet", "html"):
        (ours,) = place.root.rglob(f"questions_vqa.{kind}")
        (expected,) = (tmp_path / "o").rglob(f"questions_vqa.{kind}")
        assert ours.read_bytes() == expected.read_bytes()
    (ours,), (expected,) = (one.rglob("results.jsonl") for one in (place.root, tmp_path / "o"))
    assert ours.read_bytes() == expected.read_bytes()
