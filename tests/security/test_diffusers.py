"""A Stable Diffusion folder from elsewhere: every part, and the index of the pipeline."""

from __future__ import annotations

import json
import shutil

import pytest

from cfaug.core.errors import UserError
from cfaug.imaging.model import DiffusionWeights
from cfaug.imaging.prompt_to_prompt import SafetyChecker
from tests.imaging.tiny import save_pipeline
from tests.security.planting import edit
from zoo.diffusion_unet import load


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_pipeline(tmp_path_factory.mktemp("saved") / "sd")


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "sd")


def test_a_pipelines_index_names_no_module(folder, trap, monkeypatch):
    """Older diffusers import what ``model_index.json`` names; here nothing reads it."""
    trap.plant(folder)
    monkeypatch.syspath_prepend(str(folder))
    edit(folder / "model_index.json", unet=["evil", "Evil"])
    assert trap.holds(DiffusionWeights(str(folder), device="cpu").load) == ""
    assert trap.holds(lambda: load(folder)) == ""


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("unet/config.json", {"quantization_config": {"quant_method": "bitsandbytes"}}),
        ("unet/config.json", {"auto_map": {"AutoModel": "evil.Evil"}}),
        ("vae/config.json", {"_class_name": ["evil", "a.b"]}),
        ("text_encoder/config.json", {"attn_implementation": "attacker/kernels"}),
        ("text_encoder/adapter_config.json", {"base_model_name_or_path": "attacker/x"}),
        ("tokenizer/tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}}),
        ("tokenizer/tokenizer_config.json", {"init_inputs": ["/etc/passwd"]}),
    ],
)
def test_what_a_part_asks_for_beyond_being_read_is_refused(folder, trap, file, changes):
    trap.plant((folder / file).parent)
    edit(folder / file, **changes)
    assert str(folder / file) in trap.holds(DiffusionWeights(str(folder), device="cpu").load)


def test_the_noises_settings_make_no_class(folder, trap):
    edit(folder / "scheduler" / "scheduler_config.json", _class_name="os.system")
    assert trap.holds(DiffusionWeights(str(folder), device="cpu").load) == ""
    (folder / "scheduler" / "scheduler_config.json").write_text("[1]")
    assert "scheduler_config.json" in trap.holds(DiffusionWeights(str(folder)).load)


def test_an_index_names_files_beside_it(folder, tmp_path):
    weights = folder / "unet" / "diffusion_pytorch_model.safetensors"
    weights.rename(tmp_path / "outside.safetensors")
    index = {"metadata": {}, "weight_map": {"conv_in.weight": "../../outside.safetensors"}}
    weights.with_name(f"{weights.name}.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="only name files beside it"):
        DiffusionWeights(str(folder), device="cpu").load()


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("unet/config.json", {"layers_per_block": 10**9}),
        ("text_encoder/config.json", {"vocab_size": 10**12}),
    ],
)
def test_absurd_dimensions_end_in_a_sentence(folder, file, changes):
    edit(folder / file, **changes)
    with pytest.raises(UserError, match=r"absurd|asks for a model of"):
        DiffusionWeights(str(folder), device="cpu").load()


def test_a_safety_checkers_processor_is_held_against_the_same_rules(folder, trap):
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
    from transformers import CLIPConfig

    from tests.models.tiny import image_processor

    tower = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
             "num_attention_heads": 2}  # fmt: skip
    config = CLIPConfig(
        text_config=tower, vision_config={**tower, "image_size": 32, "patch_size": 8},
        projection_dim=8,
    )  # fmt: skip
    StableDiffusionSafetyChecker(config).save_pretrained(folder / "safety_checker")
    image_processor().save_pretrained(folder / "feature_extractor")
    checker = SafetyChecker(str(folder), device="cpu")
    file = folder / "feature_extractor" / "preprocessor_config.json"
    auto_map = {"AutoImageProcessor": "evil.Evil"}
    edit(file, auto_map=auto_map)
    assert str(file) in trap.holds(lambda: checker._parts)
