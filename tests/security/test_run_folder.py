"""A run's folder from elsewhere: its config.yaml, its checkpoint, and what it started from."""

from __future__ import annotations

import shutil

import pytest
import yaml

from cfaug.errors import UserError
from cfaug.run.compose import build
from tests.models import tiny
from tests.run.conftest import Place
from tests.security.planting import edit

DATA = "cfaug.data.settings.DataSettings"
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
        {"_target_": "subprocess.Popen", "args": ["touch", "RAN"]},
        {"_target_": "cfaug.files.write_file"},
        {"_target_": "hydra.utils.call"},
        {"_target_": DATA, "world": {"_target_": "builtins.exec", "x": 1}},
        {"_target_": DATA, "real": [{"_target_": "os.system"}]},
        {"_target_": [DATA]},
        {"_target_": None},
        {"_target_": DATA, "_args_": ["x"]},
        {"_target_": DATA, "_partial_": True},
        {"_target_": DATA, "_recursive_": False},
        {"_target_": DATA, "_convert_": "object"},
        {"_target_": DATA, "world": {"_args_": []}},
        {"_target_": DATA, 5: 1},
        {"_target_": MODEL, "name_or_path": "x", "trust_remote_code": True},
        {"real": "x"},
        [],
        None,
    ],
)
def test_a_runs_node_makes_our_settings_or_nothing(node):
    with pytest.raises(UserError, match=r"config\.yaml"):
        build(node, trusted=False)


def test_nothing_is_interpolated(monkeypatch):
    monkeypatch.setenv("CFAUG_SECRET", "secret")
    for text in ("${oc.env:CFAUG_SECRET}", "${oc.decode:1}", "${_target_}", "a${x}b"):
        node = {"_target_": MODEL, "name_or_path": text}
        assert build(node, trusted=False).name_or_path == text


def test_anchors_that_multiply_are_refused():
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    node = {"_target_": DATA, "real": yaml.safe_load("\n".join(lines))["a8"]}
    with pytest.raises(UserError, match="more than"):
        build(node, trusted=False)


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
    own = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}
    edit(place / "config.json", auto_map=own, model_type="evil")
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
    content["model"] = {"_target_": "cfaug.models.specs.OpenClip", "architecture": "local-dir:x"}
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
        {"_target_": MODEL, "name_or_path": "attacker/repository"},
        {"_target_": "cfaug.models.specs.OpenClip", "architecture": "hf-hub:attacker/repository"},
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
    code = received.evaluate(*ASK, "before=true")
    said = capsys.readouterr().err
    assert code == 2
    assert asked == [("attacker/repository", True)]
    assert "attacker/repository" in said
    assert "Traceback" not in said


def test_what_a_run_started_from_goes_through_the_same_doors(received, trap, tmp_path, capsys):
    place = tiny.save_dual_encoder(tmp_path / "elsewhere")
    trap.plant(place)
    edit(place / "config.json", auto_map={"AutoConfig": "evil.Evil"}, model_type="evil")
    rewrite(received, model={"name_or_path": str(place)})
    assert received.evaluate(*ASK, "before=true") == 2
    assert "auto_map" in capsys.readouterr().err
    assert not trap.marker.exists()
