"""``train.py task=vqa``, then ``evaluate.py``: the whole commands, and what they refuse."""

from __future__ import annotations

import json

import pytest
import torch

from cfaug.models.task_specs import VisionLanguage
from cfaug.report.document import read_document
from cfaug.report.items import read_items
from cfaug.report.results import read_results
from cfaug.run.arms import read_arms
from tests.data.question_files import own_record, write_own
from tests.models import tiny_vlm
from tests.test_conf import CONF

ARMS = sorted(read_arms(CONF / "experiment/cfmm_training.yaml"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_vlm.save_llava(tmp_path_factory.mktemp("answerer") / "llava")


def words(file, model, root, *more):
    return [
        "task=vqa", "data=questions", f"data.real={file}", "model=vlm",
        f"model.name_or_path={model}", f"paths.runs={root / 'runs'}", f"paths.shards={root}",
        "trainer.accelerator=cpu", "trainer.max_steps=3", "trainer.max_epochs=null",
        "optim=adamw", "data.batch_size=8", "data.validation=0.25", "trainer.progress=false",
        *more,
    ]  # fmt: skip


@pytest.fixture
def asked(tmp_path):
    return write_own(tmp_path / "asked", [own_record(n) for n in range(8)])


def test_a_dry_run_shows_the_first_question_as_it_is_learnt(asked, model, tmp_path, script, capsys):
    given = words(asked, model, tmp_path, "data.size=20", "data.cf_ratio=0.8", "dry_run=json")
    assert script("train")(given) == 0
    out, err = capsys.readouterr()
    assert "train: 3 basic, 12 counterfactual questions" in err
    found = json.loads(out.splitlines()[0])
    assert found["questions"]["train"] == {"basic": 3, "counterfactual": 12}
    first = found["first"]
    assert first["prompt"].count("<image>") == 1
    assert first["prompt"].endswith("<|im_start|>assistant\n")
    assert "".join(first["learnt"]) == first["answer"]
    assert first["question"].endswith("/basic")
    assert "left_out" not in found


def test_what_teaches_no_answer_is_refused_before_anything_is_trained(
    asked, model, tmp_path, script, capsys
):
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
        (["data.holdout=0.1"], "leave it at 0 with task=vqa"),
    ):
        assert script("train")([*words(asked, model, tmp_path), *more, "dry_run=json"]) == 2
        assert said in capsys.readouterr().err, more
    given = [word for word in words(asked, model, tmp_path) if not word.startswith("model")]
    assert script("train")([*given, "model=tiny_clip", "dry_run=json"]) == 2
    assert "not as Answerer" in capsys.readouterr().err
    (asked.parent / "3.png").write_bytes(b"no image")
    assert script("train")([*words(asked, model, tmp_path), "dry_run=json"]) == 2
    assert "3.png is not an image" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_runs_are_recorded_described_and_asked(asked, model, tmp_path, script, capsys):
    torch.set_num_threads(1)
    arms = {"basic": ["data.cf_ratio=0"], "both": ["data.cf_ratio=0.5", "loss.contrast=0.5"]}
    for root in (tmp_path, tmp_path / "again"):
        for arm, more in arms.items():
            given = words(asked, model, root, f"arm={arm}", "data.size=8", *more)
            assert script("train")(given) == 0
    for arm in arms:
        runs = [root / "runs/vqa" / arm / "seed=0" for root in (tmp_path, tmp_path / "again")]
        first, second = ((run / "checkpoint/model.safetensors").read_bytes() for run in runs)
        assert first == second
    run = tmp_path / "runs/vqa/both/seed=0"
    found = json.loads((run / "run.json").read_text())
    assert found["questions"]["train"] == {"basic": 3, "counterfactual": 3}
    assert found["evaluation"]["all"]["questions"] == found["counts"]["validation"] == 2
    card = (run / "checkpoint/README.md").read_text()
    assert "visual-question-answering" in card
    assert "fine-tuned on 6 questions about images, of which 50.0 % are counterfactual" in card
    assert "from cfaug.models.task_specs import VisionLanguage" in card
    assert VisionLanguage(str(run / "checkpoint")).load().processor.chat_template
    capsys.readouterr()
    paths = [f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path}", "device=cpu"]
    assert script("evaluate")(["name=vqa", *paths]) == 2  # there is no test to be asked by default
    assert "benchmark=vqa needs benchmark.data=FILE" in capsys.readouterr().err
    other = write_own(tmp_path / "test", [own_record(n + 20) for n in range(4)])
    ask = ["name=vqa", "benchmark=vqa", f"benchmark.data={other}", *paths]
    assert script("evaluate")(ask) == 0
    items = read_items(run, "questions_vqa")
    assert items is not None
    assert len(items) == 20


@pytest.mark.slow
def test_every_arm_of_the_experiment_is_asked_the_worlds_test_and_compared(
    tmp_path, script, capsys
):
    torch.set_num_threads(1)
    paths = [f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path}"]
    small = ["data.world.vqa_pairs=12", "data.world.vqa_test_pairs=6", "data.size=20",
             "data.batch_size=10", "trainer.progress=false"]  # fmt: skip
    for arm in ARMS:
        for seed in (1, 2):
            steps = [] if arm == "before" else ["trainer.max_steps=2"]
            words = [
                f"experiment=cfmm_training/{arm}",
                f"arm={arm}",
                f"seed={seed}",
                *small,
                *steps,
                *paths,
            ]
            assert script("train")(words) == 0
    assert script("evaluate")(["name=cfmm_training", "comparison=cfmm_training", *paths]) == 0
    for arm in ARMS:
        run = tmp_path / "runs/cfmm_training" / arm / "seed=1"
        rows = read_results(run / "results.jsonl")
        assert {row.benchmark for row in rows} == {"shapescapes_vqa_test_vqa"}
        assert {"acc_b", "acc_c", "acc_plus", "phi"} <= {row.metric for row in rows}
    capsys.readouterr()
    assert script("evaluate")(["table=cfmm_training", *paths]) == 0
    document = read_document(tmp_path / "runs/tables/cfmm_training.json")
    titles = [part.title for part in document.parts]
    assert "Declared before looking" in titles
    assert len(document.parts[0].rows) == len(ARMS)
