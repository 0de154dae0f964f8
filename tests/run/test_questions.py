"""Questions about images: their sources, training on them, and ``benchmark=vqa``."""

from __future__ import annotations

import json
import os
import signal
import sys

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.kept_records import KeptRecords
from cfaug.data.mixture.settings import RatioData
from cfaug.evaluation import cached_model
from cfaug.models.task_specs import VisionLanguage
from cfaug.planning.sources import open_questions
from cfaug.report.items import read_items
from cfaug.run.evaluation_data import DataOpener
from cfaug.worlds.shapescapes.question_parts import make_questions
from cfaug.worlds.shapescapes.settings import WorldSettings
from tests import children
from tests.data.question_files import own_record, write_own
from tests.models import tiny_vlm
from tests.run.conftest import Plan, output_of, refusal, stdout_of
from zoo.vlm import main_questions


def asking(file, model, *more):
    return [
        "benchmark=vqa", f"benchmark.data={file}", "model=vlm", f"model.weights={model}",
        "device=cpu", "benchmark.batch_size=5", *more,
    ]  # fmt: skip


@pytest.mark.slow
def test_a_dry_run_says_what_is_wrong_and_asks_no_model(place, tmp_path):
    file = write_own(tmp_path / "asked", [own_record(n) for n in range(3)])
    dry = ["benchmark=vqa", f"benchmark.data={file}", "dry_run=true"]
    said = stdout_of(place.evaluate, *dry)
    assert "3 images, 15 questions (3 basic, 12 counterfactual)" in said
    assert "error" not in said
    bad = own_record(0)
    bad["basic"]["options"] = ["2", "2"]
    file = write_own(tmp_path / "bad", [bad])
    bad_words = ["benchmark=vqa", f"benchmark.data={file}", "dry_run=true"]
    assert "error: equal options: 1 of 5" in output_of(place.evaluate, *bad_words, code=2)[0]
    assert "no such check" in refusal(place.evaluate, "benchmark=retrieval", "dry_run=true")
    assert not (place.root / "weights").exists()


def evaluate_and_die(place, given, answers) -> None:
    """Evaluate until so many pieces of the answers are written, then die of SIGKILL."""
    cached_model.KEPT_SECONDS = -1.0
    add, written = KeptRecords.add, []

    def add_and_die(records, added) -> None:
        add(records, added)
        written.append(len(added))
        if len(written) == answers:
            os.kill(os.getpid(), signal.SIGKILL)

    KeptRecords.add = add_and_die
    sys.exit(place.evaluate(*given))


@pytest.mark.slow
def test_an_evaluation_killed_at_any_moments_goes_on_to_the_same_bytes(place, tmp_path):
    file = write_own(tmp_path / "asked", [own_record(n) for n in range(8)])
    model = tiny_vlm.save_llava(tmp_path / "vlm")
    whole = asking(file, model, f"paths.cache={tmp_path / 'other'}", f"paths.runs={tmp_path / 'o'}")
    assert place.evaluate(*whole) == 0
    cut = asking(file, model, f"paths.cache={tmp_path / 'cache'}")
    kept: list = []
    for answers in (1, 3):
        before = len(kept)
        child = children.start(evaluate_and_die, place, cut, answers)
        child.join()
        assert child.exitcode == -signal.SIGKILL
        kept = list((tmp_path / "cache").rglob("features/*/*.jsonl"))
        assert len(kept) > before
        assert not list(place.root.rglob("questions_vqa.parquet"))
    written = {piece: piece.stat().st_mtime_ns for piece in kept}
    assert place.evaluate(*cut) == 0
    assert {piece: piece.stat().st_mtime_ns for piece in kept} == written  # nothing is asked twice
    for kind in ("parquet", "html"):
        (ours,) = place.root.rglob(f"questions_vqa.{kind}")
        (expected,) = (tmp_path / "o").rglob(f"questions_vqa.{kind}")
        assert ours.read_bytes() == expected.read_bytes()
    (ours,), (expected,) = (root.rglob("results.jsonl") for root in (place.root, tmp_path / "o"))
    assert ours.read_bytes() == expected.read_bytes()


# The questions of ``shapescapes_vqa:test`` reach a model, and say nothing to a blind one.


SMALL_WORLD = (
    "benchmark=vqa", "benchmark.data=shapescapes_vqa:test", "data.world.vqa_test_pairs=12",
    "data.world.image_size=16",
)  # fmt: skip


def test_nothing_is_wrong_with_the_world_s_questions(place):
    said = stdout_of(place.evaluate, *SMALL_WORLD, "dry_run=true")
    assert "24 images, 120 questions (24 basic, 96 counterfactual)" in said
    assert "nothing is wrong" in said


@pytest.mark.slow
def test_a_model_without_the_image_is_right_in_exactly_half(place, tmp_path):
    tiny_vlm.save_llava(tmp_path / "vlm")
    asked = ("model=vlm", f"model.weights={tmp_path / 'vlm'}", "device=cpu")
    assert place.evaluate(*SMALL_WORLD, *asked) == 0
    (results,) = place.root.rglob("results.jsonl")
    items = read_items(results.parent, "shapescapes_vqa_test_vqa")
    assert len(items) == 120
    for name in ("blind_acc_b", "blind_acc_c", "prior_acc_b", "prior_acc_c"):
        assert np.nanmean(items.metric(name)) == 0.5, name
    assert len(set(items.columns["cluster"])) == 12


# What benchmark.data names as questions: parts of the world, in its style and seed, and files.


WORLD = WorldSettings(image_size=16, style="drawing", vqa_test_pairs=6)
SEEDED = WorldSettings(seed=7, image_size=16, style="drawing", vqa_test_pairs=6)


def test_a_part_takes_the_seed_of_the_data_and_the_style_of_its_name():
    images = open_questions("shapescapes_vqa:test", WORLD, 7)
    assert images == list(make_questions(SEEDED, "test"))
    foggy = open_questions("shapescapes_vqa:test@fog", WORLD, 7)
    assert [image.questions for image in foggy] == [image.questions for image in images]
    assert foggy[0].image.read() != images[0].image.read()


def test_runs_of_one_world_share_its_questions_and_a_file_needs_no_world(tmp_path):
    main_questions([f"out={tmp_path / 'set'}", "pairs=1", "image_size=16"])
    opener = DataOpener(tmp_path, tmp_path)
    seven, eight = (RatioData(None, None, seed=seed, world=WORLD) for seed in (7, 8))
    name, file = "shapescapes_vqa:test", str(tmp_path / "set" / "questions.jsonl")
    assert opener.questions(name, seven) is opener.questions(name, seven)
    assert opener.questions(name, seven) != opener.questions(name, eight)
    assert opener.questions(file, seven) is opener.questions(file, RatioData(None, None))
    assert len(opener.questions(file, seven)) == 2


@pytest.mark.parametrize(
    ("name", "world", "match"),
    [
        ("shapescapes_vqa:test", None, "data=shapescapes"),
        ("shapescapes_vqa:ve", WORLD, "choose from train, test"),
        ("shapescapes_vqa:test@oil", WORLD, "style=oil: choose from drawing, photo, negative,"),
    ],
)
def test_what_cannot_be_opened_is_said(name, world, match):
    with pytest.raises(UserError, match=match):
        open_questions(name, world, 0)


# ``train.py task=vqa``, then ``evaluate.py``: the whole commands, and what they refuse.


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_vlm.save_llava(tmp_path_factory.mktemp("answerer") / "llava")


def words(file, model, root, *more):
    return [
        "task=vqa", "data=questions", f"data.real={file}", "model=vlm",
        f"model.weights={model}", f"paths.runs={root / 'runs'}", f"paths.shards={root}",
        "trainer.accelerator=cpu", "trainer.max_steps=3", "trainer.max_epochs=null",
        "optim=adamw", "data.batch_size=8", "data.validation=0.25", "trainer.progress=false",
        *more,
    ]  # fmt: skip


@pytest.fixture
def asked(tmp_path):
    return write_own(tmp_path / "asked", [own_record(n) for n in range(8)])


def test_a_dry_run_shows_the_first_question_as_it_is_learnt(asked, model, tmp_path, plan):
    [described], err = plan(*words(asked, model, tmp_path), "data.size=20", "data.cf_ratio=0.8")
    assert "train: 3 basic, 12 counterfactual questions" in err
    assert described["questions"]["train"] == {"basic": 3, "counterfactual": 12}
    first = described["first"]
    assert first["prompt"].count("<image>") == 1
    assert first["prompt"].endswith("<|im_start|>assistant\n")
    assert "".join(first["learnt"]) == first["answer"]
    assert first["question"].endswith("/basic")
    assert "left_out" not in described


@pytest.mark.slow
def test_what_teaches_no_answer_is_refused_before_anything_is_trained(asked, model, tmp_path, plan):
    plan = plan.of(*words(asked, model, tmp_path))
    alike = own_record(1, counterfactuals=[])
    alike["basic"]["options"] = ["2", "2"]
    none = write_own(tmp_path / "none", [alike])
    for more, said in (
        (["loss=pair_aware"], "leave it out with task=vqa"),
        (["trainer.micro_batch_size=2"], "exact with task=vqa"),
        (["model.dtype=bfloat16"], "trained in float32"),
        (["data.cf_ratio=0", "data.real=null"], "needs data.real=FILE"),
        ([f"data.counterfactual={none}"], "no counterfactual question to learn from"),
        (
            ["data.cf_ratio=0", f"data.real={none}"],
            "no basic question to learn from (1 equal_options)",
        ),
        (["data.holdout=0.1"], "not of task=vqa"),
    ):
        assert said in plan.refused(*more), more
    other = Plan(plan.train, *(word for word in plan.words if not word.startswith("model")))
    assert "not as Answerer" in other.refused("model=tiny_clip")
    (asked.parent / "3.png").write_bytes(b"no image")
    assert "3.png is not an image" in plan.refused()
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_runs_are_recorded_described_and_asked(asked, model, tmp_path, script):
    arms = {"basic": ["data.cf_ratio=0"], "both": ["data.cf_ratio=0.5", "loss.contrast=0.5"]}
    roots = (tmp_path, tmp_path / "again")
    for root, arm in ((tmp_path, "basic"), *((root, "both") for root in roots)):
        given = words(asked, model, root, f"arm={arm}", "data.size=8", *arms[arm])
        assert script("train")(given) == 0
    run, again = (root / "runs/vqa/both/seed=0" for root in roots)
    weights = "checkpoint/model.safetensors"
    assert (run / weights).read_bytes() == (again / weights).read_bytes()
    record = json.loads((run / "run.json").read_text())
    assert record["questions"]["train"] == {"basic": 3, "counterfactual": 3}
    assert record["evaluation"]["all"]["questions"] == record["counts"]["validation"] == 2
    card = (run / "checkpoint/README.md").read_text()
    assert "visual-question-answering" in card
    assert "fine-tuned on 6 questions about images, of which 50.0 % are counterfactual" in card
    assert "from cfaug.models.task_specs import VisionLanguage" in card
    assert VisionLanguage(str(run / "checkpoint")).load().processor.chat_template
    paths = [f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path}", "device=cpu"]
    said = refusal(script("evaluate"), ["name=vqa", *paths])
    assert "benchmark=vqa needs benchmark.data=FILE" in said
    other = write_own(tmp_path / "test", [own_record(n + 20) for n in range(4)])
    ask = ["name=vqa", "benchmark=vqa", f"benchmark.data={other}", *paths]
    assert script("evaluate")(ask) == 0
    items = read_items(run, "questions_vqa")
    assert len(items) == 20
