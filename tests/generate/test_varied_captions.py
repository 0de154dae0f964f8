"""Edits of named kinds through ``generate.py``: kept, rejected, counted, resumed."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.data.shards.shards import read_edits, read_sets
from cfaug.editing.instructed_edit import InstructedEdit
from cfaug.editing.label_guard import LabelGuard
from cfaug.generate.chat_asking import ChatServer, ChatSettings
from cfaug.generate.job import Job, generate
from cfaug.generate.recipe import Recipe, RunSettings, ShardSettings
from tests.data.making import noise_image
from tests.editing.perturbing import photo_of
from tests.generate.chatting import caption_of, serving, variations
from tests.run.conftest import files

OWN = Path(__file__).parent / "own_recipe"
CAPTIONS = {
    "ball": "a photo of a red ball on the beach",
    "cat": "there is a cat in the snow",
    "ring": "",
}


@pytest.fixture
def make(tmp_path, script, capfd):
    """Run generate.py on photos in folders of classes; return its code, its last line, stderr."""
    for number, label in enumerate(CAPTIONS):
        (tmp_path / "photos" / label).mkdir(parents=True)
        (tmp_path / "photos" / label / "a.png").write_bytes(noise_image(number))
    with (tmp_path / "captions.csv").open("w", newline="") as handle:
        rows = [(label, text or "-") for label, text in CAPTIONS.items()]
        csv.writer(handle).writerows([("key", "caption"), *rows])

    def run(*words: str, folder: str = "out"):
        code = script("generate")(
            [
                f"hydra.searchpath=[file://{OWN}]", "recipe=varied", "zoo=shapescapes",
                "force=true", f"recipe.annotators.captions.file={tmp_path / 'captions.csv'}",
                f"data.source={tmp_path / 'photos'}", f"paths.shards={tmp_path / folder}",
                f"paths.worlds={tmp_path / 'worlds'}", f"paths.cache={tmp_path / 'cache'}",
                *words,
            ]
        )  # fmt: skip
        out, err = capfd.readouterr()
        return code, json.loads(out.splitlines()[-1]) if code == 0 else None, err

    return run


@pytest.mark.slow
def test_photos_become_sets_of_named_edits_with_everything_rejected_beside(make, tmp_path):
    vocabulary = [
        "zoo.perturber._target_=cfaug.shapescapes.language.WorldVariations",
        "~zoo.perturber.name_or_path",
    ]
    code, _, said = make(*vocabulary)
    assert code == 0, said
    found = list(read_sets(tmp_path / "out"))
    edits = [one.members[1] for one in found]
    kinds = Counter((one.label, one.edit.kind) for one in edits)
    # Every photo has its control; a caption that is none of the world has nothing else.
    assert kinds == {
        ("ball", "reconstruction"): 1, ("cat", "reconstruction"): 1, ("ring", "reconstruction"): 1,
        ("ball", "adjective"): 2, ("ball", "background"): 1, ("ball", "domain"): 1,
        ("cat", "adjective"): 2, ("cat", "background"): 1, ("cat", "domain"): 1,
    }  # fmt: skip
    for one in edits:
        if one.edit.kind != "reconstruction":
            assert one.extra["kind_correct"] is True
            assert one.extra["label_kept"] is True
            assert one.extra["prompt"].startswith(one.edit.kind)
    card = json.loads((tmp_path / "out" / "card.json").read_text())["edits"]
    assert card["rejected_edits"]["changes the label"] == {"subject": 8}
    assert card["rejected_edits"]["no caption of the world"] == {
        "adjective": 1, "background": 2, "domain": 1, "subject": 1,
    }  # fmt: skip
    report = (tmp_path / "out" / "captions" / "report.md").read_text()
    assert "2 of 3 captions have an edit" in report
    assert "| subject | 8 | 100.0 | 0.0 | 100.0 | 100.0 |" in report
    assert "nothing to do" in make(*vocabulary)[2]


@pytest.mark.slow
def test_a_mistyped_setting_of_a_recipe_of_ones_own_is_named(make):
    code, _, said = make("recipe.texts_fron=captions")
    assert code == 2
    assert "no setting is called 'recipe.texts_fron': did you mean recipe.texts_from?" in said


@pytest.mark.slow
def test_parts_make_the_same(make, tmp_path):
    assert make("shards.sets_per_shard=1")[0] == 0
    for part in (1, 0):
        assert make("shards.sets_per_shard=1", f"part={part}", "parts=2", folder="parts")[0] == 0
    assert files(tmp_path / "parts") == files(tmp_path / "out")


@pytest.mark.slow
def test_it_runs_with_the_rules_for_any_caption(make, tmp_path):
    code, summary, said = make("zoo=captions", "recipe.image_editor=null", "stage=captions")
    assert code == 0, said
    assert summary["sets"] > 10


def test_a_run_whose_server_dies_resumes_and_writes_the_bytes_of_one_that_did_not(tmp_path):
    examples = [photo_of("dog", f"a dog and {n} cats", f"k{n}") for n in range(6)]
    alive = {"left": 7}

    def answer(number, body):
        if alive["left"] == 0:
            return None
        alive["left"] -= 1
        text = caption_of(body)
        return variations(f"an old {text}", text, text.replace("dog", "cow"))

    def job(server, folder):
        asked = ChatServer(
            server.url, "tiny", str(tmp_path / f"{folder}-cache"), concurrency=1,
            settings=ChatSettings(retries=1, backoff=0.001),
        )  # fmt: skip
        editor = InstructedEdit(
            asked, kinds=["adjective", "subject"], guards={"label": LabelGuard()}
        )
        return Job(
            tmp_path / folder, Recipe("lance", editor), lambda: examples,
            run=RunSettings(stage="captions"), shards=ShardSettings(sets_per_shard=3),
        )  # fmt: skip

    with serving(answer) as server:
        with pytest.raises(UserError, match="start the server, and run the same command again"):
            generate(job(server, "cut"))
        before = len(server.asked)
        alive["left"] = 100
        summary = generate(job(server, "cut"))
        # Seven of the twelve questions were answered before, and none of them is asked again.
        assert len(server.asked) - before == 5
    with serving(answer) as server:
        generate(job(server, "whole"))
    assert files(tmp_path / "cut" / "captions") == files(tmp_path / "whole" / "captions")
    assert (summary.sets, summary.failures) == (6, ())
    edited = [one for n in (0, 1) for _, one in read_edits(tmp_path / "cut", n)]
    lost = Counter(rejected.reason for one in edited for rejected in one.rejected)
    assert lost == {"same caption": 12, "duplicated": 12, "changes the label": 6}
