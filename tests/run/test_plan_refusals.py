"""What cannot work, or would not do what its name says, is refused before a sweep begins."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tests.run.conftest import SCENES


@pytest.mark.parametrize(
    ("words", "said"),
    [
        # N15: a typed warm-up that is longer than the run
        (["data.cf_ratio=0.5", "optim.warmup_steps=400"], "the warm-up of 400 steps is as long as"),
        # N16: a contrastive batch of one has a loss of 0
        (["data.cf_ratio=0.5", "data.batch_size=1"], "the loss is 0 at every step"),
        # N27: what each run would only find at its start
        (["tuning=lora", "tuning.lora.targets=['nothing']"], "'nothing' matches none of"),
        (["data.validation=0"], "trainer.checkpoint=best needs a validation split"),
        (["data.drop_last=true", "data.batch_size=100000"], "leaves no batch"),
        (["trainer.num_nodes=2"], "needs its processes started"),
        # N31: a ratio of which nothing is left
        (["data.cf_ratio=1e-9"], "leaves no counterfactual example: write data.cf_ratio=0"),
        (["data.cf_ratio=0.999999"], "leaves no real example: write data.cf_ratio=1"),
        # sources from which nothing is drawn, but which were typed
        (["data.cf_ratio=0", "data.counterfactual=/nowhere"], "data.counterfactual=/nowhere does"),
        (["data.cf_ratio=0", "data.counterfactual=shapescapes:nothing"], "no part is called"),
        (["data.cf_ratio=1", "data.real=/nowhere"], "data.real=/nowhere does not exist"),
        (["data.counterfactual_members=singles"], "is for sources of single images"),
        (["+model.revision=abc"], "revision=abc names a commit of the Hub"),
        # N3: negatives that no source has
        (["data.cf_ratio=0.5", "loss=negatives"], "has no effect: no training example of"),
        (
            ["data.cf_ratio=0.5", "loss=negatives", "loss.negative_captions=ignored"],
            "loss.negative_captions=ignored has no effect",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("sweep", [False, True], ids=["dry_run", "sweep"])
def test_what_cannot_work_is_refused_before_anything_starts(place, capsys, words, said, sweep):
    how = ["--multirun", "seed=1,2"] if sweep else ["dry_run=true", "seed=1"]
    assert place.train(*words, *how) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert not list(place.root.rglob("run.json"))


def test_a_tuning_that_does_not_fit_a_task_is_refused_before_a_sweep(script, tmp_path, capsys):
    """N27: freeze_text names no parameter of a vision-language model."""
    words = ["task=vqa", "tuning=freeze_text", "data.world.vqa_pairs=12", "data.size=20"]
    assert script("train")([*words, "dry_run=true", f"paths.runs={tmp_path}"]) == 2
    assert "tuning.freeze" in capsys.readouterr().err


@pytest.fixture
def hard_captions(tmp_path):
    """A folder of photos with captions, some of which belong to no image."""
    folder = tmp_path / "photos"
    folder.mkdir()
    lines = ["image,caption,neg_caption"]
    for number in range(40):
        pixels = np.full((16, 16, 3), number, np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        lines.append(f"{number}.png,a photo of thing {number},a photo of no thing {number}")
    (folder / "captions.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("asked", ["used", "ignored"])
def test_negatives_that_there_are_are_accepted(script, tmp_path, hard_captions, asked):
    words = ["data=folder", f"data.real={hard_captions}", "data.cf_ratio=0", "loss=negatives"]
    words += [f"loss.negative_captions={asked}", "dry_run=true", f"paths.cache={tmp_path}"]
    assert script("train")([*words, f"paths.runs={tmp_path}"]) == 0


def test_a_warm_up_of_a_preset_that_is_too_long_is_a_warning(place, capsys):
    assert place.train("data.cf_ratio=0", "dry_run=true") == 0
    said = "the warm-up of 10 steps is as long as the run of 3 steps, or longer: the learning rate"
    assert said in capsys.readouterr().err


def test_a_bound_below_any_useful_scale_is_a_warning(place, capsys):
    """N31: exp(-3) is a temperature of 20."""
    assert place.train("data.cf_ratio=0", "model.logit_scale_max=-3", "dry_run=true") == 0
    assert "logits are cosines times 0.0498 at most" in capsys.readouterr().err


@pytest.mark.parametrize(("ratio", "warned"), [("0", True), ("0.5", False)])
def test_a_loss_that_treats_nothing_in_the_data_is_a_warning(
    script, tmp_path, capsys, ratio, warned
):
    words = [*SCENES, "loss=pair_aware", f"data.cf_ratio={ratio}", "dry_run=true"]
    assert script("train")([*words, f"paths.runs={tmp_path}", f"paths.shards={tmp_path}"]) == 0
    assert ("it equals loss=null" in capsys.readouterr().err) == warned


def test_a_sweep_with_a_typed_source_of_other_arms_is_one_command(place, capsys):
    """data.cf_ratio=0 does not read data.counterfactual, which the other arms draw from."""
    words = ["--multirun", "data.cf_ratio=0,0.5", "data.counterfactual=shapescapes:unbiased"]
    assert place.train(*words, "arm=null", "dry_run=true") == 0
    assert "2 runs: 2 absent" in capsys.readouterr().err
