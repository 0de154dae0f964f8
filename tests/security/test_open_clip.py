"""An open_clip folder from elsewhere: its tokenizer, its towers, and what they name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.models.open_clip import HF_TEXT_TOWERS, check_config
from cfaug.models.specs import OpenClip
from tests.models import tiny
from tests.security.planting import edit


def config_of(folder):
    return json.loads((folder / "open_clip_config.json").read_text())


def change(folder, node, **changes):
    content = config_of(folder)
    content["model_cfg"][node] |= changes
    (folder / "open_clip_config.json").write_text(json.dumps(content))


def tokenizer(folder):
    """B1: no question is asked, for the folder itself says that its code is to be trusted."""
    change(folder, "text_cfg", hf_tokenizer_name="x", tokenizer_kwargs={"trust_remote_code": True})
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Evil", None]})


def tokenizer_that_asks(folder):
    change(folder, "text_cfg", hf_tokenizer_name="x")
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Evil", None]})


def text_tower(folder):
    """The name of a text model is a place, with a configuration of its own."""
    other = folder.parent / "other"
    other.mkdir()
    (folder / "evil.py").rename(other / "evil.py")
    auto_map = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}
    edit(other / "config.json", auto_map=auto_map, model_type="evil")
    change(folder, "text_cfg", hf_model_name=str(other))


def text_tower_inside(folder):
    inside = folder / "text"
    inside.mkdir()
    (folder / "evil.py").rename(inside / "evil.py")
    auto_map = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}
    edit(inside / "config.json", auto_map=auto_map, model_type="evil")
    change(folder, "text_cfg", hf_model_name=str(inside))


@pytest.mark.parametrize("attack", [tokenizer, tokenizer_that_asks, text_tower, text_tower_inside])
def test_nobody_comes_in(tmp_path, trap, attack):
    import open_clip

    folder = tiny.save_open_clip(tmp_path / "weights")
    trap.plant(folder)
    attack(folder)
    source = f"local-dir:{folder}"
    calls = (open_clip.create_model_and_transforms, open_clip.get_tokenizer)
    assert any(trap.fires(lambda call=call: call(source)) for call in calls)
    said = trap.holds(OpenClip(str(folder)).load)
    assert str(folder) in said


@pytest.mark.parametrize(
    ("node", "changes"),
    [
        ("text_cfg", {"tokenizer_kwargs": {"bpe_path": "/etc/passwd"}}),
        ("text_cfg", {"tokenizer_kwargs": {"reduction_mask": "syntax"}}),
        ("text_cfg", {"hf_model_name": "attacker/repository"}),
        ("text_cfg", {"hf_model_name": "../.."}),
        ("text_cfg", {"hf_tokenizer_kwargs": {"trust_remote_code": True}}),
        ("text_cfg", {"context_length": 10**9}),
        ("vision_cfg", {"timm_model_name": "hf-hub:attacker/repository"}),
        ("vision_cfg", {"timm_model_name": "local-dir:/tmp"}),
        ("vision_cfg", {"norm_kwargs": {"device": "cuda"}}),
        ("vision_cfg", {"anything": 1}),
    ],
)
def test_settings_are_those_of_a_list(tmp_path, trap, node, changes):
    folder = tiny.save_open_clip(tmp_path / "weights")
    change(folder, node, **changes)
    said = trap.holds(OpenClip(str(folder)).load)
    assert "open_clip_config.json" in said
    assert next(iter(changes)) in said


@pytest.mark.parametrize("key", ["cast_dtype", "output_dict", "pretrained_hf", "_target_"])
def test_arguments_of_the_model_are_those_of_a_list(tmp_path, trap, key):
    folder = tiny.save_open_clip(tmp_path / "weights")
    content = config_of(folder)
    content["model_cfg"][key] = True
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    assert f"model_cfg.{key}" in trap.holds(OpenClip(str(folder)).load)


@pytest.mark.parametrize("content", ["[]", "{}", "{", '{"model_cfg": 1}', '{"model_cfg": {}}'])
def test_a_file_that_says_nothing_is_named(tmp_path, trap, content):
    folder = tiny.save_open_clip(tmp_path / "weights")
    (folder / "open_clip_config.json").write_text(content)
    assert "open_clip_config.json" in trap.holds(OpenClip(str(folder)).load)


def test_every_architecture_of_open_clip_is_allowed():
    import open_clip

    towers = set()
    for name in open_clip.list_models():
        config = open_clip.get_model_config(name)
        check_config(config, Path(name))
        towers.add(config["text_cfg"].get("hf_model_name"))
    assert towers == {None, *HF_TEXT_TOWERS}


def test_code_that_no_file_names_is_no_matter(tmp_path, trap):
    folder = tiny.save_open_clip(tmp_path / "weights")
    trap.plant(folder)
    assert trap.holds(OpenClip(str(folder)).load) == ""


@pytest.mark.parametrize(
    "changes", [{"mean": ["x", 1, 1]}, {"mean": [1, 1]}, {"std": [0, 0, 0]}, {"std": "x"}]
)
def test_how_pixels_are_normalised_is_three_numbers(tmp_path, changes):
    folder = tiny.save_open_clip(tmp_path / "weights")
    content = config_of(folder)
    content["preprocess_cfg"] |= changes
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=next(iter(changes))):
        OpenClip(str(folder)).load()


def test_an_activation_is_one_that_there_is(tmp_path):
    folder = tiny.save_open_clip(tmp_path / "weights")
    change(folder, "text_cfg", act_kwargs={"approximate": "evil"})
    with pytest.raises(UserError, match="none or tanh"):
        OpenClip(str(folder)).load()
