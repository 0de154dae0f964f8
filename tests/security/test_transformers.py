"""A ``save_pretrained`` folder from elsewhere: model, tokenizer, processor, and what they name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.editing.language_models import MaskedLM, SentenceEncoder
from cfaug.models.image_processors import channels
from cfaug.models.specs import BridgeTower, HFClip
from tests.editing import tiny as language
from tests.models import tiny
from tests.security.planting import edit

OWN = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil", "AutoModelForMaskedLM": "evil.Evil"}
TOKENS = {"AutoTokenizer": ["evil.Evil", None]}


@pytest.fixture
def folder(saved_models, tmp_path):
    def copy(kind):
        return shutil.copytree(saved_models[kind], tmp_path / kind)

    return copy


def model(folder):
    edit(folder / "config.json", auto_map=OWN, model_type="evil")


def model_of_a_known_type(folder):
    """A configuration that transformers has, and no ``AutoModel`` of it."""
    edit(folder / "config.json", auto_map=OWN, model_type="clipseg_text_model")


def repository(folder):
    theirs = {name: f"attacker/repository--{value}" for name, value in OWN.items()}
    edit(folder / "config.json", auto_map=theirs, model_type="evil")


def tokens(folder):
    edit(folder / "tokenizer_config.json", auto_map=TOKENS, tokenizer_class="Evil")


def tokens_in_the_old_form(folder):
    edit(folder / "tokenizer_config.json", auto_map=["evil.Evil", None], tokenizer_class="Evil")


def tokens_without_a_processor_class(folder):
    """transformers then forgets on the way that no code was to be trusted."""
    edit(folder / "processor_config.json", processor_class=...)
    edit(folder / "tokenizer_config.json", processor_class=...)
    tokens(folder)


def tokens_by_a_class_that_loads(folder):
    """A tokenizer of the class ``AutoModel`` loads a model, and asks again whether it may."""
    edit(folder / "tokenizer_config.json", tokenizer_class="AutoConfig")
    model(folder)


def processor(folder):
    auto_map = {"AutoProcessor": "evil.Evil"}
    edit(folder / "processor_config.json", auto_map=auto_map, processor_class="Evil")
    edit(folder / "tokenizer_config.json", processor_class=...)


def images(folder):
    content = json.loads((folder / "processor_config.json").read_text())
    evil = {"auto_map": {"AutoImageProcessor": "evil.Evil"}, "image_processor_type": "Evil"}
    edit(folder / "processor_config.json", image_processor={**content["image_processor"], **evil})
    edit(folder / "preprocessor_config.json", **{**content["image_processor"], **evil})


ATTACKS = [
    model, model_of_a_known_type, repository, tokens, tokens_in_the_old_form,
    tokens_without_a_processor_class, tokens_by_a_class_that_loads, processor, images,
]  # fmt: skip


def raw(folder):
    """What a plain call does that leaves the question to whoever sits there."""
    from transformers import AutoModel, AutoProcessor, AutoTokenizer

    def each():
        for kind in (AutoProcessor, AutoTokenizer, AutoModel):
            try:
                kind.from_pretrained(folder, local_files_only=True)
            except Exception:
                continue

    return each


def attacked():
    """Every class that loads a folder, with every attack on what such a folder has."""
    for spec in (HFClip, BridgeTower, MaskedLM, SentenceEncoder):
        for attack in ATTACKS:
            on_processor = "processor" in attack.__name__ or attack is images
            if not (on_processor and spec in (MaskedLM, SentenceEncoder)):
                yield spec, attack


@pytest.mark.parametrize(("spec", "attack"), attacked())
def test_nobody_comes_in(folder, trap, attack, spec):
    place = folder("text" if spec in (MaskedLM, SentenceEncoder) else "dual")
    trap.plant(place)
    attack(place)
    if spec is HFClip and attack is not repository:
        assert trap.fires(raw(place)), "the attack is none"
    loaded = spec(str(place))
    if spec in (MaskedLM, SentenceEncoder):
        messages = [trap.holds(lambda: loaded.tokenizer), trap.holds(lambda: loaded.model)]
        assert any(messages)
    else:
        said = trap.holds(loaded.load)
        assert str(place) in said


def test_saying_no_to_the_library_is_not_enough(folder, trap):
    """Why folders are held against lists of ours: transformers forgets the answer on the way."""
    from transformers import AutoProcessor

    place = folder("dual")
    trap.plant(place)
    tokens_without_a_processor_class(place)
    assert trap.fires(lambda: AutoProcessor.from_pretrained(place, trust_remote_code=False))


ASKS_FOR_MORE = [
    ("config.json", {"quantization_config": {"quant_method": "bitsandbytes"}}),
    ("config.json", {"attn_implementation": "attacker/kernels"}),
    ("config.json", {"_attn_implementation": {"text_config": "attacker/kernels:forward"}}),
    ("config.json", {"fusion_config": {"x": 1}}),
    ("config.json", {"transformers_weights": "other.safetensors"}),
    ("config.json", {"vision_config": {"architecture": "hf-hub:attacker/x"}}),
    ("config.json", {"vision_config": {"use_pretrained_backbone": True, "backbone": "x"}}),
    ("config.json", {"text_config": {"auto_map": {"AutoModel": "evil.Evil"}}}),
    ("tokenizer_config.json", {"init_inputs": ["/etc/passwd"]}),
    ("tokenizer_config.json", {"mecab_kwargs": {"mecab_option": "-r x"}}),
    ("tokenizer_config.json", {"tokenizer_class": "AutoModel"}),
    ("tokenizer_config.json", {"tokenizer_class": ["pipeline"]}),
    ("processor_config.json", {"processor_class": "AutoModel"}),
    ("generation_config.json", {"custom_generate": "attacker/repository"}),
    ("adapter_config.json", {"base_model_name_or_path": "attacker/repository"}),
    ("deeper/config.json", {"auto_map": {"AutoConfig": "evil.Evil"}}),
]  # fmt: skip


@pytest.mark.parametrize(("file", "changes"), ASKS_FOR_MORE)
def test_what_a_file_asks_for_beyond_being_read_is_refused(folder, trap, file, changes):
    place = folder("dual")
    (place / file).parent.mkdir(exist_ok=True)
    edit(place / file, **changes)
    said = trap.holds(HFClip(str(place)).load)
    assert str(place / file) in said
    assert "asks for" in said or "merge it first" in said


def test_an_index_names_files_beside_it(folder, tmp_path):
    for name in ("../outside.safetensors", "/etc/passwd", "..", "deeper/x.safetensors", "a\\b", 7):
        place = folder("dual")
        shutil.move(place / "model.safetensors", tmp_path / "outside.safetensors")
        index = {"metadata": {}, "weight_map": {"logit_scale": name}}
        (place / "model.safetensors.index.json").write_text(json.dumps(index))
        for call in (HFClip(str(place)).load, HFClip(str(place)).weights_hash):
            with pytest.raises(UserError, match="only name files beside it"):
                call()
        shutil.rmtree(place)


def test_weights_by_links_as_the_hubs_cache_keeps_them_load(folder, tmp_path):
    place = tmp_path / "models--owner--name/snapshots/0123"
    shutil.copytree(folder("dual"), place)
    for file in list(place.iterdir()):
        blob = tmp_path / "models--owner--name/blobs" / file.name
        blob.parent.mkdir(exist_ok=True)
        shutil.move(file, blob)
        file.symlink_to(blob)
    assert HFClip(str(place)).load().tokenize(["a red ball"])


@pytest.mark.parametrize("kind", ["dual", "clip"])
def test_code_that_no_file_names_is_no_matter(folder, trap, kind):
    place = folder(kind)
    for name in ("evil.py", "tokenization_evil.py", "custom_generate/generate.py", "__init__.py"):
        trap.plant(place, name)
    assert trap.holds(HFClip(str(place)).load) == ""


def test_every_loader_of_the_house_goes_through_one_door():
    """A ``from_pretrained`` anywhere else would follow a folder's files."""
    import re

    import cfaug

    root = Path(cfaug.__file__).parent
    call = re.compile(r"\w\.from_pretrained\(|get_tokenizer\(|torch\.hub|weights_only=False")
    doors = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        for line in file.read_text().splitlines()
        if call.search(line) and "yield" not in line
    }
    assert doors == {"core/safety/safe_loading.py", "models/open_clip.py"}


def test_a_value_that_cannot_be_ends_in_a_sentence(folder):
    place = folder("dual")
    edit(place / "tokenizer_config.json", model_max_length=0)
    with pytest.raises(UserError, match="model_max_length"):
        HFClip(str(place)).load()


@pytest.mark.parametrize(
    "values", [None, "x", [], [1, 1], ["x", 1, 1], [float("nan"), 1, 1], [0, 0, 0], [True, None, 1]]
)
def test_deviations_are_three_numbers_above_zero(values):
    with pytest.raises(UserError, match="owner: std="):
        channels(values, "std", "owner")
    assert channels([0, 0.5, 1], "mean", "owner") == (0.0, 0.5, 1.0)


# An adapter that names the weights it belongs to: transformers would fetch them by itself.


@pytest.fixture
def adapter(tmp_path, trap):
    """A folder without a model that names another, where code lies in wait."""
    base = tiny.save_dual_encoder(tmp_path / "base")
    trap.plant(base)
    auto_map = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}
    edit(base / "config.json", auto_map=auto_map, model_type="evil")
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
