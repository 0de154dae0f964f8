"""An adapter that names the weights it belongs to: transformers would fetch them by itself."""

from __future__ import annotations

import shutil

import pytest

from cfaug.editing.language_models import MaskedLM
from cfaug.models.specs import HFClip
from tests.editing import tiny as language
from tests.models import tiny
from tests.security.planting import edit


@pytest.fixture
def adapter(tmp_path, trap):
    """A folder without a model that names another, where code lies in wait."""
    base = tiny.save_dual_encoder(tmp_path / "base")
    trap.plant(base)
    own = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}
    edit(base / "config.json", auto_map=own, model_type="evil")
    place = shutil.copytree(base, tmp_path / "adapter")
    (place / "config.json").unlink()
    (place / "evil.py").unlink()
    edit(place / "adapter_config.json", base_model_name_or_path=str(base), peft_type="LORA")
    return place


def test_what_an_adapter_names_is_not_followed(adapter, trap):
    from transformers import AutoModel

    assert trap.fires(lambda: AutoModel.from_pretrained(adapter, local_files_only=True))
    said = trap.holds(HFClip(str(adapter)).load)
    assert "adapter_config.json" in said
    assert "merge_and_unload" in said


def test_nor_beside_a_whole_model(tmp_path, trap):
    place = language.save_roberta(tmp_path / "text")
    edit(place / "adapter_config.json", base_model_name_or_path="attacker/x", peft_type="LORA")
    assert "merge_and_unload" in trap.holds(lambda: MaskedLM(str(place)).model)
