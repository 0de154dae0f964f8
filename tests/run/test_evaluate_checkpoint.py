"""Suites, matching, kept embeddings and interpolated weights through evaluate.py."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from cfaug.core.errors import USERS_MISTAKE, UserError
from cfaug.core.protocols import DualEncoder
from cfaug.core.types import Evaluation, Outcome
from cfaug.core.weights import resolve
from cfaug.data.mixture.leakage import Leaks
from cfaug.data.mixture.settings import RatioData
from cfaug.models.specs import HFClip
from cfaug.report.charts import read_gaps
from cfaug.report.checkpoint_tables import changes, initial_values
from cfaug.report.items import read_items
from cfaug.report.results import read_results
from cfaug.report.terminal import MEASURED
from cfaug.run.evaluate_checkpoint import EvaluationTarget as Checkpoint
from cfaug.run.evaluate_checkpoint import FeatureCache, check_factors, run_benchmarks
from cfaug.run.evaluation_data import refuse_contradictions, world_words
from cfaug.stats.ranking import GAPS
from cfaug.worlds.shapescapes import WorldSettings
from tests.data.making import noise_image
from tests.run.conftest import SCENES, Place, compose, refusal, stderr_of, stdout_of


@pytest.fixture(scope="module")
def run(tmp_path_factory, shards, script):
    place = Place(tmp_path_factory.mktemp("runs"), shards, script)
    assert place.train("data.cf_ratio=0.6", "seed=107", "data.counterfactual_holdout=0.3") == 0
    return place.root


@pytest.fixture
def trained(place, run):
    return place.begin_with(run)


def features(shards):
    return sorted((shards / "index/features").rglob("*.npy"))


@pytest.mark.slow
def test_the_counterfactual_suite_ends_in_results_pairs_and_a_page(trained, shards, capsys):
    assert trained.evaluate("benchmark=cf") == 0
    folder = trained.folder()
    rows = read_results(folder / "results.jsonl")
    assert list(dict.fromkeys(row.benchmark for row in rows)) == [
        "shapescapes_real_retrieval",
        "shapescapes_cf_retrieval",
        "shapescapes_cf_validated_retrieval",
        "shapescapes_cf_heldout_retrieval",
        "shapescapes_cf_matching",
    ]
    sizes = {row.benchmark: row.n for row in rows if row.metric == "text_to_image_R@1"}
    assert list(sizes.values()) == [320, 640, 468, 24]
    for name in dict.fromkeys(row.benchmark for row in rows):
        items = read_items(folder, name)
        for row in (row for row in rows if row.benchmark == name):
            values = items.metric(row.metric)
            assert (items.weights, items.data) == (row.weights, row.data)
            assert row.value == pytest.approx(np.nanmean(values), abs=1e-12)
            assert row.n == np.isfinite(values).sum()
    assert len(items) == 320
    assert items.columns["kind"][0] == "cosine x scale"
    shares = {row.metric: row.value for row in rows if row.benchmark == "shapescapes_cf_matching"}
    gaps = read_gaps(folder)["shapescapes_cf_matching"].gaps
    assert shares == {gap: sum(gaps[gap] > 0) / 320 for gap in GAPS}
    assert "<svg" in (folder / "matching.html").read_text()
    known = [file.stat().st_mtime_ns for file in features(shards)]
    assert known
    # Another folder of results, the same weights: nothing is embedded again.
    (folder / "results.jsonl").rename(folder / "before.jsonl")
    assert trained.evaluate("benchmark=cf", "benchmark.skip=[shapescapes_cf_matching]") == 0
    again = read_results(folder / "results.jsonl")
    assert again == [row for row in rows if row.benchmark != "shapescapes_cf_matching"]
    assert [file.stat().st_mtime_ns for file in features(shards)] == known
    capsys.readouterr()


def contents(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_items_that_were_removed_come_again_with_the_same_bytes(place, shards, capsys):
    words = [*SCENES, "weights=zoo:clip-0", "benchmark=cf"]
    words.append("benchmark.only=[shapescapes_cf_matching,shapescapes_cf_retrieval]")
    assert place.evaluate(*words) == 0
    folder = next(place.root.rglob("results.jsonl")).parent
    before = contents(folder)
    known = [kept.stat().st_mtime_ns for kept in features(shards)]

    def flip(file):
        """N40: a flipped byte was not noticed, a truncated file was."""
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)

    for harm in (lambda file: file.unlink(), lambda file: file.write_bytes(b"PAR1"), flip):
        for file in sorted(folder.glob("items/*.parquet")):
            harm(file)
            capsys.readouterr()
            assert place.evaluate(*words) == 0
            said = capsys.readouterr()
            assert said.err.count("evaluating weights/") == 1
            # The one that is evaluated again and the one that was kept are both printed.
            assert said.out.count(" of zoo-clip-0") == 2
            assert contents(folder) == before
    assert [kept.stat().st_mtime_ns for kept in features(shards)] == known
    assert place.evaluate(*words) == 0
    assert "already evaluated" in capsys.readouterr().out


@pytest.mark.slow
def test_a_model_that_is_not_what_a_benchmark_needs_is_refused_before_any_is_asked(place):
    words = [*SCENES, "weights=zoo:vilt-0", "model=vilt", "benchmark=cf"]
    said = refusal(place.evaluate, *words)
    assert "provides Matcher, but shapescapes_real_retrieval needs DualEncoder" in said
    assert "benchmark.skip=[shapescapes_real_retrieval,shapescapes_cf_retrieval," in said
    assert not list(place.root.rglob("results.jsonl"))


@pytest.mark.slow
def test_other_shifts_and_how_often_their_classes_were_altered(trained):
    words = ["benchmark=ood", "feature_cache=0"]
    some = "benchmark.only=[shapescapes_ood_classification,shapescapes_ood_solids_classification]"
    assert trained.evaluate(*words, some) == 0
    record = json.loads((trained.folder() / "label_frequency.json").read_text())
    assert record["pairs"] == 40
    assert record["frequency"]["shapescapes_ood_classification"] == 40
    assert 0 < record["frequency"]["shapescapes_ood_solids_classification"] < 40
    style = "benchmark.only=[shapescapes_ood_drawing_classification]"
    assert trained.evaluate(*words, style) == 0
    record = json.loads((trained.folder() / "label_frequency.json").read_text())
    assert len(record["frequency"]) == 3
    assert "already evaluated" in stdout_of(trained.evaluate, *words, some)
    said = refusal(trained.evaluate, "label_frequency=letters")
    assert ": choose from words, lemmas, null" in said


def test_folders_that_are_missing_are_all_named_once(trained, tmp_path, capsys):
    shutil.copytree(trained.folder().parent, trained.root / "main" / "other")
    words = ["benchmark=in_domain", "benchmark.where=folders", f"paths.data={tmp_path}"]
    assert trained.evaluate(*words) != 0
    said = capsys.readouterr().err
    assert said.count("coco5k_retrieval: ") == 1
    assert said.count("seed=107: the same") == 1
    assert "benchmark.skip=[coco5k_retrieval,coco5k_clean_retrieval]" in said


@pytest.mark.slow
def test_a_model_told_otherwise_is_another_model(place):
    setting = "+model.max_length=4"
    ask = ["weights=zoo:clip-0", *SCENES, "benchmark.world.only=[shapescapes_ood_retrieval]",
           "max_indistinct=1"]  # fmt: skip
    assert place.evaluate(*ask) == 0
    assert "already evaluated" in stdout_of(place.evaluate, *ask)
    assert "already evaluated" not in stdout_of(place.evaluate, *ask, setting)
    assert "already evaluated" in stdout_of(place.evaluate, *ask, setting)
    (file,) = (place.root / "weights").glob("*/seed=0/results.jsonl")
    values = {}
    for row in map(json.loads, file.read_text().splitlines()):
        values.setdefault(row["weights"], []).append(row["value"])
    plain, other = values.values()
    assert len(plain) == len(other) == 6
    assert plain != other
    assert next(iter(values)) == HFClip("zoo:clip-0").weights_hash()  # as rows were named before


@pytest.mark.slow
def test_weights_that_are_no_numbers_end_in_a_sentence(place, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(resolve("zoo:clip-0"), tmp_path / "damaged")
    weights = load_file(folder / "model.safetensors")
    weights["visual_projection.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for name in ("retrieval", "classification"):
        only = f"benchmark.world.only=[shapescapes_ood_{name}]"
        said = refusal(place.evaluate, f"weights={folder}", *SCENES, only)
        assert "visual_projection.weight holds values that are infinite or not numbers" in said


@pytest.mark.slow
def test_two_checkpoints_are_compared_over_items(place):
    words = [*SCENES, "benchmark.world.only=[shapescapes_ood_classification]"]
    said = refusal(place.evaluate, "weights=zoo:clip-0", "baseline=zoo:clip-1", *words)
    assert "baseline=zoo-clip-1" in said
    assert "has no result of shapescapes_ood_classification" in said
    assert place.evaluate("weights=zoo:clip-1", *words) == 0
    said = stdout_of(place.evaluate, "weights=zoo:clip-0", "baseline=zoo:clip-1", *words)
    assert "tested over items" in said
    (folder,) = (place.root / "weights").glob("zoo-clip-0*/seed=*")
    written = [*folder.glob("table-shapescapes_ood_classification-against-zoo-clip-1*")]
    assert {file.suffix for file in written} == {".csv", ".md", ".tex"}
    [table] = (file for file in written if file.suffix == ".csv")
    lines = list(csv.DictReader(table.open()))
    (acc1,) = (line for line in lines if line["metric"] == "acc1" and line["items_test"])
    arms = [line["arm"] for line in lines if line["metric"] == "acc1"]
    ours, theirs = (
        read_items(path, "shapescapes_ood_classification").metric("acc1")
        for path in (folder, next((place.root / "weights").glob("zoo-clip-1*/seed=*")))
    )
    assert len(arms) == 2
    assert float(acc1["diff"]) == pytest.approx(ours.mean() - theirs.mean())
    assert int(acc1["items"]) == len(ours)
    assert 0 < float(acc1["p_items"]) <= 1
    said = refusal(place.evaluate, "weights=zoo:clip-0", "baseline=zoo:clip-0", *words)
    assert "is the checkpoint itself" in said


@pytest.mark.slow
def test_an_unknown_checkpoint_is_refused_before_a_world_is_drawn(place, tmp_path):
    empty = tmp_path / "shards"
    for weights, said in (
        ("zoo:nope", "zoo:nope is not in the zoo"),
        (str(tmp_path), "no weights"),
    ):
        assert said in refusal(place.evaluate, f"weights={weights}", f"paths.shards={empty}")
    assert not empty.exists()


# Checkpoints that are no run: whose numbers stand where, and that no world takes another's.


ASKED = ["benchmark=shapescapes", "benchmark.only=[shapescapes_id_classification]"]


@pytest.mark.slow
def test_two_worlds_with_one_seed_keep_their_own_rows_before_fine_tuning(place):
    for name, style in (("first", "fog"), ("second", "drawing")):
        assert place.train("seed=107", f"name={name}", f"data.world.style={style}") == 0
    assert place.evaluate(*ASKED, "evaluate_initial=true") == 0
    files = sorted((place.root / "weights").glob("*/seed=107/results.jsonl"))
    world = "world.counterfactual_pairs=40,world.id_scenes=30"
    assert len(files) == 2
    assert all(file.parents[1].name.startswith(f"zoo-clip-0,{world}") for file in files)
    assert len({row.data for file in files for row in read_results(file)}) == 2
    for name in ("first", "second"):
        known = initial_values(place.root / name)
        assert changes(place.root / name / "run" / "seed=107", known)
    said = stdout_of(place.evaluate, *ASKED, "evaluate_initial=true")
    assert said.count("already evaluated") == 4


@pytest.mark.slow
def test_initial_weights_are_printed_once_for_all_arms_and_seeds(place):
    """Two arms start from the same weights, and seeds of one world have the same test data."""
    for ratio in (0, 0.5):
        words = [f"arm=a{ratio}", f"data.cf_ratio={ratio}", "data.world.seed=5"]
        assert place.train("--multirun", "seed=107,108", *words) == 0
    for again in (False, True):
        said = stdout_of(place.evaluate, *ASKED, "evaluate_initial=true")
        assert said.count(f"{MEASURED} ") == 1
        lines = [line for line in said.splitlines() if line.startswith("already evaluated: ")]
        assert len(lines) == len(set(lines)) == (6 if again else 0)


@pytest.mark.slow
def test_arms_of_one_world_are_held_against_what_each_validated_on(place):
    for ratio in (0, 0.5):
        assert place.train("seed=107", f"arm=a{ratio}", f"data.cf_ratio={ratio}") == 0
    assert place.evaluate("benchmark=heldout", "evaluate_initial=true") == 0
    known = initial_values(place.root / "main")
    for arm in ("a0", "a0.5"):
        metric_changes = changes(place.folder(arm), known)
        assert {change.benchmark for change in metric_changes} == {"validation_retrieval"}


@pytest.mark.parametrize(
    ("world", "data_seed", "words"),
    [
        (WorldSettings(), 108, []),
        (WorldSettings(), 7, ["world.seed=7"]),
        (WorldSettings(seed=7), 108, ["world.seed=7"]),
        (WorldSettings(edits=("subject", "colour")), 108, ["world.edits=subject+colour"]),
        (None, 7, []),
    ],
)
def test_a_world_is_named_by_what_is_unusual(world, data_seed, words):
    assert world_words(RatioData("a", "b", seed=data_seed, world=world), 107) == words


# ``evaluate.py wise_ft=[...]``: runs between their start and their end.


@pytest.mark.parametrize(
    ("given", "expected"),
    [([0, 0.5, 1], (0.0, 0.5, 1.0)), (0.25, (0.25,)), ([1], (1.0,)), ((0.1, 0), (0.1, 0.0))],
)
def test_factors(given, expected):
    assert check_factors(given) == expected


def rows(folder):
    lines = (folder / "results.jsonl").read_text().splitlines()
    results = [json.loads(line) for line in lines]
    return {(row["benchmark"], row["metric"]): row["value"] for row in results}


@pytest.mark.slow
def test_the_ends_are_the_start_and_the_run_and_the_table_shows_both(place):
    """With low-rank adapters, and without a cache of embeddings: the numbers are made anew."""
    asked = [
        "benchmark=shapescapes", "benchmark.only=[shapescapes_id_classification,"
        "shapescapes_ood_classification]", "feature_cache=0", "label_frequency=null",
    ]  # fmt: skip
    assert place.train("seed=107", "tuning=lora", "data.cf_ratio=0.5", "optim.lr=0.01") == 0
    assert place.train("seed=107", "arm=start", "trainer.max_steps=0") == 0
    said = stderr_of(place.evaluate, "name=main", "wise_ft=[0,0.5,1]", *asked)
    assert "left out, not fine-tuned" in said
    assert f"cfaug table wise_ft table.experiment=main paths.runs={place.root}" in said
    assert place.evaluate("name=main", "evaluate_initial=true", *asked) == 0
    main = place.root / "main"
    by_factor = {f: rows(main / f"run,wise_ft={f}" / "seed=107") for f in ("0", "0.5", "1")}
    assert by_factor["1"] == rows(main / "run" / "seed=107")
    [initial] = place.root.glob("weights/*/seed=107")
    assert by_factor["0"] == rows(initial)
    assert by_factor["0.5"] not in (by_factor["0"], by_factor["1"])
    assert not (main / "start,wise_ft=0").exists()

    said = stdout_of(place.evaluate, "name=main", "wise_ft=[0,0.5,1]", *asked)
    assert "already evaluated" in said
    said = stdout_of(place.table, "wise_ft", "table.experiment=main")
    assert "run | 0.5" in " ".join(said.split())
    assert "change of" in (place.root / "tables" / "report.html").read_text()


def test_a_start_that_is_not_here_is_named(place, tmp_path):
    """Found before any model is loaded; nothing is fetched for a run that came from elsewhere."""
    folder = place.folder(seed=1)
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"state": "done", "seed": 1, "steps": 3}))
    model = "_target_: cfaug.models.specs.HFClip\n  weights: nobody/nothing-here"
    data = "_target_: cfaug.data.mixture.settings.RatioData\n  real: null\n  seed: 2"
    (folder / "config.yaml").write_text(
        f"model:\n  {model}\ndata:\n  {data}\n  counterfactual: null\n  cf_ratio: 0\n"
    )
    said = refusal(place.evaluate, "name=main", "wise_ft=[0,1]")
    assert "wise_ft needs the weights that the run started from" in said
    assert "nobody/nothing-here" in said


def test_a_checkpoint_has_no_start(place):
    said = refusal(place.evaluate, "weights=zoo:clip-0", "wise_ft=[0,1]")
    assert "weights=zoo:clip-0 would have no effect" in said


# What a test shares with a run's training, as ``evaluate.py`` says and keeps it.


@dataclass
class Known:
    """A benchmark that is told what leaks."""

    leaks: Leaks | None
    name: str = "own_retrieval"
    needs: ClassVar[type] = DualEncoder
    data_hash: str = "d"

    def run(self, encoder: Any) -> Evaluation:
        return Evaluation([Outcome(self.name, "R@1", 1.0, 4)], {"item": [], "cluster": []})


def leaks(images: int) -> Leaks:
    rows = np.arange(images)
    return Leaks(rows, np.empty(0, np.int64), images=images, equal=images, checked=0, total=4)


@pytest.fixture
def asked(tmp_path, capsys):
    weights = SimpleNamespace(to=lambda device: None)
    model: Any = SimpleNamespace(
        identity=lambda: "w", provides=(DualEncoder,), load=lambda protocol: weights
    )
    target = Checkpoint(tmp_path, "real", 1, model, None, "x")  # type: ignore[arg-type]

    def run(*benchmarks: Known) -> str:
        run_benchmarks(target, benchmarks, "cpu", FeatureCache(tmp_path, 0))
        lines = capsys.readouterr().err.splitlines()
        return "\n".join(line for line in lines if not line.startswith("evaluating "))

    return run


def test_what_was_trained_on_is_said_on_stderr_each_time_and_kept(asked, tmp_path):
    for _ in range(2):  # the second time the benchmark is known already
        said = asked(Known(leaks(4)), Known(None, "other"))
        assert len(said.splitlines()) == 1
        assert "x/real/seed=1  own_retrieval: all 4 test images were trained on" in said
        assert "benchmark.without_leaks=true" in said
    kept = json.loads((tmp_path / "leaks.json").read_text())
    assert kept == {
        "own_retrieval": {
            "images": 4, "equal": 4, "total": 4, "with_coco_id": 0, "coco_ids": [],
        }
    }  # fmt: skip


def test_what_was_left_out_is_no_leak_any_more(asked, tmp_path):
    asked(Known(leaks(2)), Known(leaks(1), "other"))
    assert asked(Known(leaks(0), data_hash="e")) == ""
    assert list(json.loads((tmp_path / "leaks.json").read_text())) == ["other"]
    assert asked(Known(None, "other")) == ""  # a checkpoint's training is not known
    assert list(json.loads((tmp_path / "leaks.json").read_text())) == ["other"]


def test_an_experiment_with_brackets_in_its_name_is_found(tmp_path, script, capsys):
    folder = tmp_path / "a[b]/arm/seed=0"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{")
    assert script("evaluate")(['name="a[b]"', f"paths.runs={tmp_path}"]) == 2
    assert f"left out: {folder}/run.json cannot be read" in capsys.readouterr().err


def test_a_run_that_is_not_called_by_its_seed_is_said(tmp_path, script, capsys):
    (tmp_path / "e/a/copy").mkdir(parents=True)
    (tmp_path / "e/a/copy/run.json").write_text("{}")
    assert script("evaluate")(["name=e", f"paths.runs={tmp_path}"]) == 2
    assert "its name is not seed=N: " in (said := capsys.readouterr().err)
    assert f"runs=[{tmp_path / 'e/a/copy'}]" in said


def test_a_seed_that_stands_twice_is_refused(tmp_path, script, capsys):
    assert script("evaluate")(["name=e", "seeds=[1,2,1]", f"paths.runs={tmp_path}"]) == 2
    assert "seeds=1,2,1 lists 1 more than once" in capsys.readouterr().err


def test_factors_that_would_share_an_arm_are_refused():
    with pytest.raises(UserError, match="each once"):
        check_factors([0.1234567, 0.12345678])


def test_known_results_do_not_hide_a_model_that_a_benchmark_cannot_ask(asked, tmp_path):
    asked(Known(None))
    model: Any = SimpleNamespace(identity=lambda: "w", provides=(), load=None)
    target = Checkpoint(tmp_path, "real", 1, model, None, "x")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="needs DualEncoder"):
        run_benchmarks(target, [Known(None)], "cpu", FeatureCache(tmp_path, 0))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("model.weights=zoo:nonsense", "weights is the short name of model.weights"),
        ("model=tiny_flava", "type flava, and weights=zoo:clip-0 is of the type vision-text"),
        ("+model.revision=abc", "names a commit of the Hub, and zoo:clip-0 is a folder here"),
        ("model=open_clip model.architecture=RN50", "model.architecture=RN50 would have no effect"),
    ],
)
def test_weights_and_a_model_that_contradict_each_other(tmp_path, script, capsys, words, said):
    """CLIP-0 was evaluated, and the second checkpoint or the other model not mentioned."""
    given = ["weights=zoo:clip-0", "benchmark=retrieval", f"benchmark.data={tmp_path}"]
    assert script("evaluate")([*given, *words.split(), f"paths.runs={tmp_path}"]) == USERS_MISTAKE
    assert said in capsys.readouterr().err
    words = ["model=tiny_clip", "weights=zoo:clip-1"]
    refuse_contradictions(compose("evaluate", *words)["model"], words)  # these agree


ASKED_AGAIN = """
import sys
from cfaug.run.evaluate import main
assert main(sys.argv[1:]) == 0
print(sorted({"torch", "transformers"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_an_evaluation_whose_embeddings_are_kept_loads_no_model(tmp_path):
    (tmp_path / "photos").mkdir()
    rows = ["image,caption"]
    for number, (colour, shape) in enumerate(product(("red", "blue"), ("ball", "cube", "star"))):
        (tmp_path / "photos" / f"{number}.png").write_bytes(noise_image(number))
        rows.append(f"{number}.png,a {colour} {shape} on the grass")
    (tmp_path / "photos/captions.csv").write_text("\n".join(rows) + "\n")
    words = ["weights=zoo:clip-0", "device=cpu", "benchmark=retrieval",
             f"benchmark.data={tmp_path / 'photos'}",
             f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path / 'shards'}"]  # fmt: skip
    loaded = []
    for _ in range(2):
        shutil.rmtree(tmp_path / "runs", ignore_errors=True)
        done = subprocess.run(
            [sys.executable, "-c", ASKED_AGAIN, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        loaded.append(done.stdout.splitlines()[-1])
    assert "'torch'" in loaded[0]
    assert loaded[1] == "[]"
