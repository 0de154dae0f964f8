"""Adapters on disk: what is read of them, and what is refused."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.weights import find_weights
from cfaug.editing.causal_lm import CausalLM
from cfaug.models import lora as adapters
from cfaug.models.lora import ADAPTER, BASE, WEIGHTS, BaseModel
from tests.train import tiny_language


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A base model and an adapter on it that changes what it says."""
    folder = tmp_path_factory.mktemp("adapters")
    base = tiny_language.save_llama(folder / "base")
    spec = CausalLM(str(base), device="cpu")
    model = spec.model
    names = [name for name, _ in model.named_modules() if name.endswith(("q_proj", "v_proj"))]
    adapters.inject(model, names, 2, 4, 0.0, seed=1)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    (folder / "adapter").mkdir()
    adapters.save(model, folder / "adapter", BaseModel("base", None, spec.weights_hash()))
    adapters.merge(model)
    return folder, model


@pytest.fixture
def copy(shelf, tmp_path):
    shutil.copytree(shelf[0] / "adapter", tmp_path / "adapter")
    return tmp_path / "adapter"


def load(shelf, folder):
    spec = CausalLM(str(shelf[0] / "base"), device="cpu")
    model = spec.model
    adapters.load(model, folder, find_weights(spec.folder()))
    return model


def test_a_saved_adapter_gives_the_model_it_was_saved_of(shelf, copy):
    ids = torch.tensor([[3, 4, 5, 6]])
    model = load(shelf, copy)
    torch.testing.assert_close(model(input_ids=ids).logits, shelf[1](input_ids=ids).logits)
    plain = CausalLM(str(shelf[0] / "base"), device="cpu").model(input_ids=ids).logits
    assert (model(input_ids=ids).logits - plain).abs().max() > 0.1
    assert model.state_dict().keys() == shelf[1].state_dict().keys()


def test_saving_is_the_same_bytes_whatever_the_hash_seed(shelf, copy):
    about = json.loads((copy / ADAPTER).read_text())
    assert about["target_modules"] == sorted(about["target_modules"])
    assert about["base_model_name_or_path"] == "base"


def edit(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"use_dora": True}, "use_dora=True: only plain LoRA"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"peft_type": "IA3"}, "peft_type='IA3'"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa'"),
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern"),
        ({"some_new_kind": 1}, "some_new_kind=1"),
        ({"r": "8"}, "r='8' should be a number"),
        ({"r": 1.5}, "whole number"),
        ({"lora_alpha": 0}, "lora_alpha=0 should"),
    ],
)
def test_another_kind_of_adapter_is_refused(shelf, copy, changes, words):
    edit(copy / ADAPTER, **changes)
    with pytest.raises(UserError, match=words):
        load(shelf, copy)


def test_the_base_model_is_compared(shelf, copy):
    edit(copy / BASE, sha256="0" * 64)
    with pytest.raises(UserError, match=r"was tuned on 'base' with weights sha256:0.*give the"):
        load(shelf, copy)
    (copy / BASE).unlink()  # PEFT itself writes none
    load(shelf, copy)


def test_weights_of_another_model_are_refused(shelf, copy):
    from safetensors.torch import load_file, save_file

    tensors = load_file(copy / WEIGHTS)
    name = sorted(tensors)[0]
    for wrong, words in (
        ({**tensors, name: tensors[name][:, :-1].contiguous()}, "of another shape"),
        ({k: v for k, v in tensors.items() if k != name}, "is missing"),
        ({**tensors, f"{adapters.PREFIX}x.lora_A.weight": torch.ones(1)}, "adapts 'x'"),
        ({**tensors, name: tensors[name] / 0}, "not numbers"),
    ):
        save_file(wrong, copy / WEIGHTS)
        with pytest.raises(UserError, match=words):
            load(shelf, copy)
    (copy / WEIGHTS).write_bytes(b"no tensors")
    with pytest.raises(UserError, match="cannot be read"):
        load(shelf, copy)
    (copy / ADAPTER).write_text("[]")
    with pytest.raises(UserError, match="not a configuration of an adapter"):
        load(shelf, copy)


def test_a_folder_of_an_adapter_is_no_model_by_itself(copy):
    with pytest.raises(UserError, match="adapter"):
        _ = CausalLM(str(copy), device="cpu").model
