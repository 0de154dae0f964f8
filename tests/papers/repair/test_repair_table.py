"""The declared comparison of a repair: what counts as declared, its rounds, its pictures."""

from __future__ import annotations

import hashlib
import io
import json
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.shards.shards import write_card, write_chosen, write_shard
from cfaug.evaluation.failures import ModelFailure, write_failures
from cfaug.papers.repair.repair_table import RoundResult, compare_excess, count_failing, read_excess
from cfaug.planning.build import build
from cfaug.report.arm_results import Runs
from cfaug.report.items import Items, write_items
from cfaug.report.results import Result, append_results
from cfaug.report.training_table import declaration_text, find_undeclared, write_declaration
from cfaug.stats.item_tests import MeanDifference
from tests.evaluation.joined import picture
from tests.files_of_settings import read_settings

CONF = read_settings("table/repair")
SEEDS = (0, 1, 2)
LEFT = {"before": 0.8, "real_again": 0.8, "more_real": 0.7, "retrieved": 0.5, "random": 0.4,
        "borrowed": 0.6, "unpaired": 0.3, "augmented": 0.8, "targeted": 0.1,
        "other_editor": 0.2, "random_2": 0.3, "targeted_2": 0.05}  # fmt: skip
FAILURES = ("ball: background: snow → sand", "cube: background: road → sea")


def table(**changes):
    return build(
        {**CONF, "seeds_and_items": False, "verdicts": False, "found": None, "made": [], **changes}
    )


def excess_of(arm: str, seed: int) -> np.ndarray:
    """Return the excess of 40 edits of GATE, 20 of each failure; the second is hardly mended."""
    rng = np.random.default_rng([seed, *map(ord, arm)])
    return np.clip(LEFT[arm] * np.repeat([0.8, 1.2], 20) + rng.normal(0, 0.02, 40), -1, 1)


def put(root: Path, declared: str | None, arms=LEFT, name: str = "repair") -> Path:
    for arm in arms:
        for seed in SEEDS:
            folder = root / name / arm / f"seed={seed}"
            folder.mkdir(parents=True)
            identity = {} if declared is None else {"content.declared": declared}
            new = 0 if arm in ("before", "real_again", "augmented") else 160
            record = {
                "state": "done", "experiment": name, "arm": arm, "seed": seed,
                "steps": 0 if arm == "before" else 100, "identity": identity,
                "counts": {"train": 640 + new, "counterfactual": new, "real": 640},
            }  # fmt: skip
            (folder / "run.json").write_text(json.dumps(record))
            noise = np.random.default_rng([seed, *map(ord, arm)]).normal(0, 0.01)
            values = {
                ("test_repair", "excess", "lower"): LEFT[arm] + noise,
                ("test_repair", "acc1", "higher"): 1 - LEFT[arm],
                ("test_repair", "repair_rate", "higher"): 1 - LEFT[arm],
                ("test_repair", "collateral", "lower"): 2.0,
                ("test_repair", "worst_cell", "lower"): LEFT[arm] + 0.1,
                ("shapescapes_id_classification", "acc1", "higher"): 0.9 + noise / 10,
            }
            append_results(folder / "results.jsonl", [
                Result(f"{name}/{arm}/seed={seed}", arm, seed, benchmark, metric, value, 4,
                       f"{arm} {seed}", "d", better=better)
                for (benchmark, metric, better), value in values.items()
            ])  # fmt: skip
            excess = excess_of(arm, seed)
            columns = {
                "item": [f"edited/{i}" for i in range(40)],
                "cluster": [f"photo {i}" for i in range(40)],
                "failure": [FAILURES[i // 20] for i in range(40)],
                "loss": excess, "control": np.zeros(40), "excess": excess,
            }  # fmt: skip
            write_items(folder, Items("gate_repair", f"{arm} {seed}", "d", columns))
    return root


def declared_hash(**changes) -> str:
    return hashlib.sha256(declaration_text(table(**changes)).encode()).hexdigest()


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    return table().build(Runs(put(tmp_path_factory.mktemp("runs"), declared_hash())))


def part(document, title):
    (section,) = [part for part in document.parts if part.title == title]
    return section


def test_what_was_declared_before_training_is_not_exploratory(document):
    assert document.answer.startswith("Of what was declared before looking, shown to be better")
    assert len(part(document, "Declared before looking").rows) == len(CONF["declared"])
    assert "shown to be no worse: targeted edits against no new images" in document.answer


@pytest.mark.slow
def test_a_table_that_differs_from_what_was_declared_is_exploratory(tmp_path):
    """Another rule after training, whatever it is, makes the page say so, and which it is."""
    root = put(tmp_path, declared_hash())
    (root / "repair/declared.json").write_text(declaration_text(table()))
    document = table(minimum=0.2).build(Runs(root))
    said = "Exploratory, as something else was declared (table.minimum)"
    assert document.answer.startswith(said)
    assert part(document, "Exploratory: not declared before training")


@pytest.mark.parametrize(("hashes", "reason"), [
    ((None, None), "the runs name no declaration"),
    (("0" * 64, None), "the runs differ in what was declared"),
    (("0" * 64, "0" * 64), "have another declaration than this table"),
])  # fmt: skip
def test_runs_that_do_not_name_the_declaration_are_exploratory(tmp_path, hashes, reason):
    first, other = hashes
    put(tmp_path, first, ["targeted", "random"])
    put(tmp_path, other, [arm for arm in LEFT if arm not in ("targeted", "random")])
    arms = [Runs(tmp_path).arm(f"repair/{arm}") for arm in LEFT]
    assert reason in find_undeclared(table(), tmp_path, arms)


def test_texts_and_places_of_pictures_are_not_declared():
    same = table(title="Another", commands=[], notes=["x"], failures="elsewhere")
    assert declaration_text(same) == declaration_text(table())


def test_a_declaration_is_written_once_and_before_the_first_run(tmp_path):
    file = write_declaration(table(), tmp_path)
    assert json.loads(file.read_text()) == json.loads(declaration_text(table()))
    assert write_declaration(table(), tmp_path) == file
    with pytest.raises(UserError, match=r"declares something else \(table.minimum\)"):
        write_declaration(table(minimum=0.3), tmp_path)
    file.unlink()
    put(tmp_path, None, ["targeted"])
    with pytest.raises(UserError, match="trained already"):
        write_declaration(table(), tmp_path)


@pytest.mark.parametrize(("changes", "message"), [
    ({"unit": "nothing"}, "table.unit: 'nothing' is not an arm"),
    ({"gain": "nothing"}, "table.gain=nothing is not a column"),
    ({"rounds": [{"targeted": "targeted"}]}, "should have targeted and random"),
    ({"rounds": [{"targeted": "targeted", "random": "x"}]}, "'x' is not an arm"),
    ({"rounds": []}, "rounds"),
    ({"declared": {}}, "table.declared.harm is missing"),
])  # fmt: skip
def test_an_invalid_setting_is_named(tmp_path, changes, message):
    with pytest.raises(UserError, match=message.replace("[", r"\[")):
        table(**changes).check()


def test_points_count_new_images_alone(document):
    shown = {row[0]: cells for (row, cells) in part(document, "What new images gain").rows}
    assert not shown["no new images"][1].numbers
    targeted = shown["targeted edits"]
    assert targeted[0].text == "160"
    points = targeted[1].numbers["value"]
    assert points == pytest.approx(100 * 0.7 * 1000 / 160, rel=0.05)
    # An arm of the second round has learned the images of the first one, too.
    again = shown["targeted edits, second round"]
    assert again[0].text == "320"
    assert again[1].numbers["value"] == pytest.approx(100 * 0.75 * 1000 / 320, rel=0.05)


def test_a_round_says_what_gate_says(document, tmp_path):
    first, second = (
        [cell.text for cell in cells] for _, cells in part(document, "Rounds, on GATE").rows
    )
    assert first[0].startswith("1 of 2")  # 0.08 is below the rule's 0.1, and 0.12 above it
    assert float(first[1]) == pytest.approx(0.3, abs=0.02)
    assert first[-1] == "go on"  # nothing was made of the budget
    assert second[0].startswith("0 of 2")
    assert float(second[1]) == pytest.approx(0.25, abs=0.02)
    assert second[-1] == "stop: no failure passes; it was the last round"


def test_items_are_averaged_over_seeds_and_compared_on_those_of_both(tmp_path):
    runs = Runs(put(tmp_path, None, ["targeted", "random"]))
    random, targeted = (
        read_excess(runs, f"repair/{arm}", "gate_repair") for arm in ("random", "targeted")
    )
    wanted = np.mean([excess_of("random", s) - excess_of("targeted", s) for s in SEEDS], axis=0)
    missing = {item: of for item, of in random.items() if item != "edited/3"}
    result = compare_excess(missing, targeted)
    assert result.mean == pytest.approx(np.delete(wanted, 3).mean())
    assert result.low < result.mean < result.high


def test_failing_counts_the_size_and_the_correction(tmp_path):
    runs = Runs(put(tmp_path, None, ["random"]))
    items = read_excess(runs, "repair/random", "gate_repair")
    assert count_failing(items, minimum=0.1, alpha=0.05) == 2
    assert count_failing(items, minimum=0.45, alpha=0.05) == 1
    assert count_failing(items, minimum=0.1, alpha=1e-9) == 0


def result(number=1, passing=3, low=0.1, harm=0.0, used=50):
    gain = MeanDifference(0.2, low, 0.3, 0.01, "two-sided", 40, 40)
    return RoundResult(number, 0.025, passing, 4, gain, harm, used)


@pytest.mark.parametrize(("changes", "reasons"), [
    ({}, ()),
    ({"passing": 0}, ("no failure passes",)),
    ({"low": 0.0}, ("targeted is not shown better than random",)),
    ({"harm": 0.011}, ("harm exceeds the margin",)),
    ({"used": 160}, ("the budget is used",)),
    ({"number": 3}, ("it was the last round",)),
    ({"passing": 0, "harm": 0.02}, ("no failure passes", "harm exceeds the margin")),
])  # fmt: skip
def test_rounds_stop_for_declared_reasons(changes, reasons):
    assert result(**changes).stop_reasons(160, 0.01) == reasons


def made(key: str, words: tuple[str, str], control: bool = False) -> CounterfactualSet:
    first = Member(words[0], "0", key, None, label="ball")
    edited = Member(words[1], "1", key, Edit("background", *words), label="ball")
    members = (first, first, edited) if control else (first, edited)
    return CounterfactualSet(key, key, members, {"0": picture(0), "1": picture(1)})


@pytest.mark.slow
def test_pictures_show_what_failed_and_what_was_made(tmp_path):
    searched, new = tmp_path / "found", tmp_path / "made"
    for folder in (searched, new):
        folder.mkdir()
        control = folder == searched
        write_shard([made(f"p{i}", ("snow", "sand"), control) for i in range(3)], folder, 0)
        write_card(folder)
    failures = tmp_path / "failures.jsonl"
    write_failures(failures, [
        ModelFailure("stress", "background", "snow", "sand", ("ball",), items=("edited/p1_2",)),
    ])  # fmt: skip
    chosen = {"keys": ["p2"], "budget": 160, "failures": [
        {"failure": "ball", "planned": 8, "chosen": 1, "tried_forward": 2, "tried_reverse": 3,
         "accepted_forward": 1, "accepted_reverse": 0, "editable": True},
    ]}  # fmt: skip
    write_chosen(new, chosen)
    root = put(tmp_path / "runs", declared_hash())
    document = table(failures=str(failures), found=str(searched), made=[str(new)]).build(Runs(root))
    captions = [shown.caption for shown in document.pictures]
    assert captions[0].startswith("Failed: ball: background: snow → sand, 1.00")
    assert captions[1] == "Made: snow → sand (p2)"
    strip = Image.open(io.BytesIO(b64decode(document.pictures[0].png)))
    single = Image.open(io.BytesIO(picture(0)))
    assert strip.size == (2 * single.width + 4, single.height)
    # The second member of a set may share the first one's image: the edited one's is shown.
    assert strip.crop((36, 0, 68, 32)).tobytes() == Image.open(io.BytesIO(picture(1))).tobytes()
    ((labels, cells),) = part(document, "What was made").rows
    assert labels == ("1", "ball")
    assert [cell.text for cell in cells] == ["8", "5", "1", "1", "yes"]
    used = [cells[4].text for _, cells in part(document, "Rounds, on GATE").rows]
    assert used == ["1 of 320", "1 of 320"]
