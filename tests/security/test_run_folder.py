"""A run's folder from elsewhere: its config.yaml, its checkpoint, and what it started from."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import yaml

from cfaug.core.errors import UserError
from cfaug.planning.build import build_untrusted
from cfaug.run.run_folder import RunFolder
from cfaug.train.card import write_card
from tests.models import tiny
from tests.run.conftest import Place
from tests.security.planting import edit

DATA = "cfaug.data.mixture.settings.RatioData"
MODEL = "cfaug.models.specs.HFClip"


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return tmp_path_factory.mktemp("shards")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, shards):
    from tests import scripts

    place = Place(tmp_path_factory.mktemp("runs") / "runs", shards, scripts.load)
    assert place.train("data.cf_ratio=0", "seed=107") == 0
    return place


@pytest.fixture
def received(trained, tmp_path, shards, script):
    place = Place(tmp_path / "runs", shards, script)
    shutil.copytree(trained.root, place.root)
    return place


def folder_of(place):
    return place.root / "main" / "run" / "seed=107"


def rewrite(place, **changes):
    file = folder_of(place) / "config.yaml"
    content = yaml.safe_load(file.read_text())
    for node, settings in changes.items():
        content[node] = {**content[node], **settings}
    file.write_text(yaml.safe_dump(content))


ASK = ("benchmark.world.only=[shapescapes_id_retrieval]",)


@pytest.mark.parametrize(
    "node",
    [
        {"_target_": "os.system", "command": "touch RAN"},
        {"_target_": "cfaug.core.atomic_files.write_file"},
        {"_target_": DATA, "world": {"_target_": "builtins.exec", "x": 1}},
        {"_target_": DATA, "real": [{"_target_": "os.system"}]},
        {"_target_": [DATA]},
        {"_target_": None},
        {"_target_": DATA, "_args_": ["x"]},
        {"_target_": DATA, "_partial_": True},
        {"_target_": DATA, "_convert_": "object"},
        {"_target_": DATA, 5: 1},
        {"_target_": MODEL, "weights": "x", "trust_remote_code": True},
        {"real": "x"},
        [],
        None,
    ],
)
def test_a_runs_node_makes_our_settings_or_nothing(node):
    with pytest.raises(UserError, match=r"config\.yaml"):
        build_untrusted(node)


def test_nothing_is_interpolated(monkeypatch):
    monkeypatch.setenv("CFAUG_SECRET", "secret")
    for text in ("${oc.env:CFAUG_SECRET}", "${oc.decode:1}", "${_target_}", "a${x}b"):
        node = {"_target_": MODEL, "weights": text}
        assert build_untrusted(node).weights == text


def test_anchors_that_multiply_are_refused():
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    node = {"_target_": DATA, "real": yaml.safe_load("\n".join(lines))["a8"]}
    with pytest.raises(UserError, match="more than"):
        build_untrusted(node)


def test_evaluate_runs_no_target_of_a_run(received, trap, capsys):
    target = {"_target_": "pathlib.Path.touch", "self": str(trap.marker)}
    rewrite(received, model={"revision": target})
    assert received.evaluate(*ASK) == 2
    said = capsys.readouterr().err
    assert "may not name" in said
    assert "Traceback" not in said
    assert not trap.marker.exists()


def test_evaluate_runs_no_code_of_a_checkpoint(received, trap, capsys):
    place = folder_of(received) / "checkpoint"
    trap.plant(place)
    auto_map = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}
    edit(place / "config.json", auto_map=auto_map, model_type="evil")
    assert received.evaluate(*ASK) == 2
    said = capsys.readouterr().err
    assert "auto_map" in said
    assert "trust_remote_code" not in said
    assert not trap.marker.exists()


def test_a_run_of_open_clip_runs_no_code_either(received, trap, capsys):
    """B1 in the form in which it was found: ``evaluate.py name=...`` of a received folder."""
    place = folder_of(received) / "checkpoint"
    shutil.rmtree(place)
    tiny.save_open_clip(place)
    trap.plant(place)
    edit(place / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Evil", None]})
    file = folder_of(received) / "config.yaml"
    content = yaml.safe_load(file.read_text())
    content["model"] = {"_target_": "cfaug.models.specs.OpenClip", "weights": "x"}
    file.write_text(yaml.safe_dump(content))
    text = {"hf_tokenizer_name": "x", "tokenizer_kwargs": {"trust_remote_code": True}}
    config = yaml.safe_load((place / "open_clip_config.json").read_text())
    config["model_cfg"]["text_cfg"] |= text
    edit(place / "open_clip_config.json", **config)
    assert received.evaluate(*ASK) == 2
    assert "auto_map" in capsys.readouterr().err
    assert not trap.marker.exists()


@pytest.mark.parametrize(
    "model",
    [
        {"_target_": MODEL, "weights": "attacker/repository"},
        {"_target_": "cfaug.models.specs.OpenClip", "weights": "attacker/repository"},
    ],
)
def test_what_a_run_started_from_is_not_fetched(received, capsys, monkeypatch, model):
    asked = []

    def download(name, *, local_files_only, **_):
        asked.append((name, local_files_only))
        raise FileNotFoundError(name)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    file = folder_of(received) / "config.yaml"
    content = yaml.safe_load(file.read_text()) | {"model": model}
    file.write_text(yaml.safe_dump(content))
    code = received.evaluate(*ASK, "evaluate_initial=true")
    said = capsys.readouterr().err
    assert code == 2
    assert asked == [("attacker/repository", True)]
    assert "attacker/repository" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_what_a_run_started_from_goes_through_the_same_doors(received, trap, tmp_path, capsys):
    place = tiny.save_dual_encoder(tmp_path / "elsewhere")
    trap.plant(place)
    edit(place / "config.json", auto_map={"AutoConfig": "evil.Evil"}, model_type="evil")
    rewrite(received, model={"weights": str(place)})
    assert received.evaluate(*ASK, "evaluate_initial=true") == 2
    assert "auto_map" in capsys.readouterr().err
    assert not trap.marker.exists()


DEEP = "[" * 100_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.yaml", f"a: {DEEP[:5000]}"),
        ("run.json", DEEP),
        ("results.jsonl", f"{DEEP}\n"),
        ("checkpoint/config.json", DEEP),
        ("checkpoint/config.json", "[]"),
        ("checkpoint/config.json", "\ufeff{}"),
    ],
)
def test_a_damaged_file_ends_in_a_sentence(received, capsys, name, content):
    (folder_of(received) / name).write_text(content)
    assert received.evaluate(*ASK) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("content", [DEEP, "[]", '{"architectures": {"x": 1}}', None])
def test_the_card_reads_what_stands_beside_the_weights_as_data(received, content):
    file = folder_of(received) / "checkpoint" / "config.json"
    file.unlink()
    if content is None:
        os.mkfifo(file)
        with pytest.raises(UserError, match="a pipe"):
            write_card(folder_of(received))
    else:
        file.write_text(content)
        write_card(folder_of(received))
        card = folder_of(received) / "checkpoint" / "README.md"
        assert "import AutoModel," in card.read_text()


def test_a_card_that_is_a_pipe_is_not_waited_for(received):
    card = folder_of(received) / "checkpoint" / "README.md"
    card.unlink()
    os.mkfifo(card)
    assert write_card(folder_of(received)) == card


def test_settings_of_another_type_name_the_run_and_the_setting(received, capsys):
    rewrite(received, model={"max_length": "4", "weights": [1]})
    assert received.evaluate(*ASK) == 2
    said = capsys.readouterr().err
    assert f"{folder_of(received)}: config.yaml: " in said
    assert "weights" in said or "max_length" in said


def test_nothing_is_written_through_a_linked_checkpoint(received, tmp_path):
    mine, place = tmp_path / "mine", folder_of(received) / "checkpoint"
    place.rename(mine)
    (mine / "README.md").write_text("my own words")
    place.symlink_to(mine)
    assert write_card(folder_of(received)) is None
    assert (mine / "README.md").read_text() == "my own words"


def test_nothing_is_written_through_linked_results(received, tmp_path, capsys):
    """A file of one line without a newline reads as a torn row, which would be cut away."""
    token = tmp_path / "token"
    token.write_text("hf_secret")
    (folder_of(received) / "results.jsonl").symlink_to(token)
    assert received.evaluate(*ASK) == 2
    assert "is a link" in capsys.readouterr().err
    assert token.read_text() == "hf_secret"


def test_a_lock_empties_no_file_it_is_linked_to(received, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("my own words")
    lock = folder_of(received) / ".lock"
    lock.unlink(missing_ok=True)
    lock.symlink_to(mine)
    with RunFolder(folder_of(received), {}).lock():
        pass
    assert mine.read_text() == "my own words"


@pytest.mark.slow
def test_names_with_control_characters_reach_no_table(received, capsys):
    row = {
        "run": "r", "arm": "a", "seed": 107, "benchmark": "b\x1b]0;x\x07", "metric": "m",
        "value": 0.5, "n": 2, "weights": "w",
    }  # fmt: skip
    (folder_of(received) / "results.jsonl").write_text(json.dumps(row) + "\n")
    assert received.evaluate(*ASK) == 2
    assert "control characters" in capsys.readouterr().err
    arm = received.root / "main" / "ru\x1b]0;x\x07n"
    (received.root / "main" / "run").rename(arm)
    assert received.evaluate(*ASK) == 2
    said = capsys.readouterr().err
    assert "rename it" in said
    assert "\x1b" not in said
