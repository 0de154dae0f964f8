"""A finished run goes on to more steps; its earlier results are not of the new weights."""

from __future__ import annotations

import json
import shutil

import pytest

from cfaug.report.records import training_seconds
from tests.run.conftest import WORLD, Place, failing_at, refusal, stdout_of

WORDS = ["data.cf_ratio=0", "seed=1", "arm=a", "data.size=40"]
KEPT = [*WORDS, "trainer.keep_last=true"]


@pytest.fixture(scope="module")
def short(tmp_path_factory, shards, script):
    place = Place(tmp_path_factory.mktemp("runs"), shards, script)
    assert place.train(*WORDS, "trainer.max_steps=2") == 0
    return place.root


@pytest.mark.slow
def test_a_finished_run_is_extended_and_says_so(place):
    assert place.train(*KEPT, "trainer.max_steps=2") == 0
    first, short = place.record("a", 1), place.weights("a", 1)
    (place.folder("a", 1) / "results.jsonl").write_text("")
    said = refusal(place.train, *KEPT, "trainer.max_steps=4")
    assert "trainer.max_steps: there 2, asked 4" in said
    assert "extend=true goes on" in said
    words = [*WORDS, "trainer.max_steps=4", "extend=true"]
    assert place.plan(*words)["state"] == "to extend"
    assert place.train(*words) == 0
    record = place.record("a", 1)
    [earlier, later] = record["attempts"]
    assert earlier == {"start_step": 0, "end_step": 2, "seconds": first["wall_s"]}
    assert later == {"start_step": 2, "end_step": 4, "seconds": record["wall_s"]}
    assert training_seconds(record) == (first["wall_s"] + record["wall_s"], True)
    assert (record["steps"], record["extended_from"], record["state"]) == (4, [2], "done")
    assert record["started"] == first["started"] <= record["finished"]
    assert place.weights("a", 1) != short
    [aside] = place.folder("a", 1).glob("results*")
    assert aside.name == "results-2-steps.jsonl"
    assert "already done" in stdout_of(place.train, *words)
    # It is not the run that had four steps from the beginning.
    assert place.train(*[w.replace("arm=a", "arm=b") for w in WORDS], "trainer.max_steps=4") == 0
    assert place.record("b", 1)["config_hash"] != record["config_hash"]
    said = refusal(place.train, *WORDS, "trainer.max_steps=4")
    assert "extended_from: there [2], asked '(absent)'" in said


@pytest.mark.slow
def test_an_extension_that_was_cut_off_goes_on(place):
    words = [*KEPT, "trainer.max_steps=5", "extend=true"]
    assert place.train(*KEPT, "trainer.max_steps=2") == 0
    shutil.copytree(place.folder("a", 1), place.folder("b", 1))
    assert place.train(*words) == 0
    undisturbed = place.weights("a", 1)
    shutil.rmtree(place.folder("a", 1))
    shutil.copytree(place.folder("b", 1), place.folder("a", 1))
    with failing_at(3):
        assert place.train(*words) == 1
    assert place.record("a", 1)["state"] == "failed"
    assert place.train(*words) == 0
    assert place.weights("a", 1) == undisturbed
    assert place.record("a", 1)["extended_from"] == [2]
    assert place.train(*KEPT, "trainer.max_steps=6", "extend=true") == 0
    assert place.record("a", 1)["extended_from"] == [2, 5]


@pytest.mark.slow
def test_an_arm_named_by_itself_is_found_whatever_its_new_length(place):
    words = [*WORLD, *place.paths, "data.cf_ratio=0", "seed=1", "data.size=40", "trainer=paper"]
    train = place.script("train")
    assert train([*words, "trainer.keep_last=true"]) == 0
    assert train([*words, "trainer.max_epochs=4", "extend=true"]) == 0
    [file] = place.root.glob("main/*/seed=1/run.json")
    assert json.loads(file.read_text())["extended_from"] == [6]
    assert "max_epochs" not in file.parent.parent.name
    said = refusal(train, [*words, "data.validation=0.3", "trainer.max_epochs=5", "extend=true"])
    assert "arm=NAME names the run to extend" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["arm=none", "trainer.max_steps=9"], "there is no run in"),
        (["trainer.max_steps=2"], "already done"),
        (["trainer.max_steps=1"], "has 2 steps already, and 1 are requested"),
        (["trainer.max_steps=9", "optim.lr=1e-5"], "optim.lr: there 0.0006, asked 1e-05"),
        (["trainer.max_steps=9", "overwrite=true"], "choose one"),
        (["trainer.max_steps=9"], "did not keep its last state (trainer.keep_last=true keeps it)"),
    ],
)
def test_what_cannot_be_extended_says_how(place, short, capsys, words, said):
    place.begin_with(short)
    code = place.train(*WORDS, *words, "extend=true")
    out, err = capsys.readouterr()
    assert said in (out if said == "already done" else err)
    assert code == (0 if said == "already done" else 2)


def test_a_run_that_stopped_early_says_so(place):
    words = ["optim.lr=1e-30", "trainer.max_steps=9", "trainer.val_every_steps=1"]
    assert place.train(*WORDS, *words, "trainer.early_stopping=2") == 0
    record = place.record("a", 1)
    assert (record["stopped_early"], record["steps"]) == (True, 3)
    assert record["counts"]["seen"] == 3 * 16


@pytest.mark.slow
def test_weights_that_were_removed_are_missed(place):
    assert place.train(*WORDS, "trainer.max_steps=1") == 0
    shutil.rmtree(place.folder("a", 1) / "checkpoint")
    said = stdout_of(place.train, *WORDS, "trainer.max_steps=1")
    assert "its checkpoint/ was removed" in said
    assert "overwrite=true trains it again" in said
    state = place.plan(*WORDS, "trainer.max_steps=1")["state"]
    assert state == "done, checkpoint removed"
    assert place.train(*WORDS, "trainer.max_steps=1", "overwrite=true") == 0
    assert (place.folder("a", 1) / "checkpoint").is_dir()


@pytest.mark.slow
def test_a_run_that_failed_before_its_first_step_does_not_claim_its_folder(place, monkeypatch):
    from cfaug.models.specs import HFClip

    def absent(spec):
        raise RuntimeError("no such weights")

    with monkeypatch.context() as patch:
        patch.setattr(HFClip, "load", absent)
        assert place.train(*WORDS, "optim.lr=1e-3", "trainer.max_steps=1") == 1
    assert not place.folder("a", 1).exists()
    assert place.train(*WORDS, "optim.lr=1e-4", "trainer.max_steps=1") == 0
    assert place.record("a", 1)["identity"]["optim.lr"] == 1e-4


@pytest.mark.slow
def test_a_run_that_failed_later_keeps_it(place):
    with failing_at(1):
        assert place.train(*WORDS, "optim.lr=1e-3", "trainer.max_steps=2") == 1
    said = refusal(place.train, *WORDS, "optim.lr=1e-4", "trainer.max_steps=2")
    assert "optim.lr: there 0.001, asked 0.0001" in said
