"""open_clip's families and recent models; long captions; open_clip's main branch."""

from __future__ import annotations

import functools
import inspect
import json
import math
import re

import pytest
import torch
import yaml

from cfaug.core.errors import UserError
from cfaug.models.open_clip import _compare_activations
from cfaug.models.specs import HFClip, OpenClip
from cfaug.train.settings import OptimSettings
from tests.files_of_settings import settings_file
from tests.models import tiny
from tests.train import tiny_plan

VIT = {"img_size": tiny.SIZE, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
OPEN_CLIP = {  # the released architecture, its tower for images, and what is smaller
    "siglip2": ("ViT-B-16-SigLIP2", VIT, {"embed_dim": 16}),
    "pe_core": ("PE-Core-T-16-384", VIT, {"embed_dim": 8}),
    "mobileclip2": (
        "MobileCLIP2-S0", {"layers": (1, 1, 1, 1), "embed_dims": (8, 16, 32, 64)}, {"embed_dim": 8},
    ),
    "metaclip2": ("ViT-H-14-worldwide-quickgelu", None, {"embed_dim": 8}),
}  # fmt: skip
TEXT = {"context_length": 12, "width": 16, "heads": 2, "layers": 1}


def save_miniature(folder, name):
    """A released architecture with fewer and narrower layers, and with other words."""
    import open_clip

    architecture, _, changes = OPEN_CLIP[name]
    config = open_clip.get_model_config(architecture)
    text, vision = {**config["text_cfg"], **TEXT}, {**config["vision_cfg"], "image_size": tiny.SIZE}
    if "timm_model_name" not in vision:
        vision |= {"layers": 1, "width": 16, "head_width": 8, "patch_size": 8}
    if "hf_tokenizer_name" in text:
        text |= {"vocab_size": 4 + len(tiny.WORDS), "hf_tokenizer_name": "words", "eos_id": 3}
    tiny.save_open_clip(folder, **{**config, **changes, "vision_cfg": vision, "text_cfg": text})
    tiny.tokenizer(max_length=12).save_pretrained(folder)
    return OpenClip(str(folder))


def save_metaclip2(folder):
    import transformers as hf

    text = {**tiny.TOWER, "vocab_size": 4 + len(tiny.WORDS), "max_position_embeddings": 24,
            "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}  # fmt: skip
    vision = {**tiny.TOWER, "image_size": tiny.SIZE, "patch_size": 8}
    config = hf.MetaClip2Config(text_config=text, vision_config=vision, projection_dim=8)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        hf.MetaClip2Model(config).save_pretrained(folder)
    hf.CLIPProcessor(tiny.image_processor(), tiny.tokenizer(max_length=24)).save_pretrained(folder)
    return HFClip(str(folder))


def at_home(folder, pixels, texts):
    """What the library alone makes of a saved folder."""
    if (folder / "open_clip_config.json").is_file():
        import open_clip

        source = f"local-dir:{folder}"
        model, _, _ = open_clip.create_model_and_transforms(source)
        tokens = open_clip.get_tokenizer(source)(texts)
        return model.eval().encode_image(pixels), model.encode_text(tokens)
    import transformers as hf

    model = hf.AutoModel.from_pretrained(folder)
    processor = hf.AutoProcessor.from_pretrained(folder)
    tokens = processor.tokenizer(texts, padding="max_length", truncation=True, return_tensors="pt")
    outputs = model.get_image_features(pixel_values=pixels), model.get_text_features(**tokens)
    return tuple(output.pooler_output for output in outputs)


def in_miniature(name, monkeypatch):
    import timm

    small = OPEN_CLIP.get(name, (None, None, None))[1]
    if small is not None:
        monkeypatch.setattr(timm, "create_model", functools.partial(timm.create_model, **small))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OPEN_CLIP, "metaclip2_transformers", "siglip2_transformers"])
def test_it_is_trained_saved_and_loaded_at_home(name, tmp_path, monkeypatch):
    in_miniature(name, monkeypatch)
    if name == "siglip2_transformers":
        spec = HFClip(str(tiny.save_siglip(tmp_path / "weights", mask=True)))
    elif name == "metaclip2_transformers":
        spec = save_metaclip2(tmp_path / "weights")
    else:
        spec = save_miniature(tmp_path / "weights", name)
    before = {k: v.clone() for k, v in spec.load().model.state_dict().items()}
    encoder, _, _ = tiny_plan.train(
        tmp_path / "run", tmp_path, steps=2, sizes=(8,), spec=lambda _: spec,
        optim=OptimSettings(lr=1e-2),
    )  # fmt: skip
    assert any(not torch.equal(before[k], v) for k, v in encoder.model.state_dict().items())
    encoder.eval().save(tmp_path / "saved")
    pixels = encoder.normalize(tiny.pixels())
    with torch.no_grad():
        theirs = at_home(tmp_path / "saved", pixels, tiny.CAPTIONS)
        tokens = encoder.tokenize(tiny.CAPTIONS)
        ours = encoder.encode_pixels(pixels), encoder.encode_text(tokens)
    torch.testing.assert_close(ours, theirs)


def test_scale_and_bias_are_kept_where_that_is_asked(tmp_path):
    encoder = HFClip(str(tiny.save_siglip(tmp_path)), train_logit_scale=False).load()
    trained = {
        name for name, parameter in encoder.model.named_parameters() if parameter.requires_grad
    }
    every = {name for name, _ in encoder.model.named_parameters()}
    assert every - trained == {"logit_scale", "logit_bias"}


def test_a_siglip_for_images_of_any_shape_is_named(tmp_path):
    import transformers as hf

    tower = {**tiny.TOWER, "vocab_size": 4 + len(tiny.WORDS), "max_position_embeddings": 12}
    config = hf.Siglip2Config(
        text_config={**tower, "projection_size": 16},
        vision_config={**tiny.TOWER, "patch_size": 8, "num_patches": 16},
    )
    hf.Siglip2Model(config).save_pretrained(tmp_path)
    words = tiny.tokenizer(max_length=12)
    hf.Siglip2Processor(hf.Siglip2ImageProcessor(), words).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"NaFlex.*google/siglip2-base-patch16-224"):
        HFClip(str(tmp_path)).load()


# Captions beyond a model's longest.


def stretched_one_by_one(positions, count):
    """Long-CLIP's rule, position by position."""
    length, stretched = len(positions), []
    for place in range(count):
        old = place if place < 20 else 20 + (place - 20) * (length - 20) / (count - 20)
        lower = min(math.floor(old), length - 2)
        stretched.append(
            positions[lower] + (old - lower) * (positions[lower + 1] - positions[lower])
        )
    return torch.stack(stretched)


def kinds(folder, **settings):
    text = {**TEXT, "vocab_size": 49408, "context_length": 24}
    tiny.save_clip(folder / "clip")
    save_metaclip2(folder / "metaclip2")
    tiny.save_open_clip(folder / "open_clip", text_cfg=text)
    tiny.save_open_clip(folder / "tower", text_cfg=text, custom_text=True)
    for name in ("clip", "metaclip2"):
        spec = HFClip(str(folder / name), **settings)
        yield spec, "text_model.embeddings.position_embedding.weight"
    yield OpenClip(str(folder / "open_clip"), **settings), "positional_embedding"
    yield OpenClip(str(folder / "tower"), **settings), "text.positional_embedding"


@pytest.mark.slow
def test_positions_are_stretched_and_short_captions_keep_their_features(tmp_path):
    long = [" ".join(["a red ball on the beach"] * 5) + end for end in (" sand", " grass")]
    for number, (spec, name) in enumerate(kinds(tmp_path, max_tokens=120)):
        plain = type(spec)(spec.weights).load()
        encoder = spec.load()
        there, stretched = plain.model.state_dict()[name], encoder.model.state_dict()[name]
        torch.testing.assert_close(stretched, stretched_one_by_one(there, 120))
        with torch.no_grad():
            for captions, alike in ((tiny.CAPTIONS[1::2], True), (long, False)):
                new = encoder.encode_text(encoder.tokenize(captions))
                old = plain.encode_text(plain.tokenize(captions))
                assert torch.allclose(new, old, atol=1e-5) == alike
            assert not torch.allclose(new[0], new[1])  # they differ in their last word
            assert torch.equal(old[0], old[1])
        saved = tmp_path / f"saved-{number}"
        encoder.save(saved)
        again = spec.at(str(saved))
        assert again.identity() != type(again)(again.weights).identity()
        with torch.no_grad():
            theirs = at_home(saved, plain.normalize(tiny.pixels()), long)[1]
        torch.testing.assert_close(theirs, new)
        torch.testing.assert_close(again.load().model.state_dict()[name], stretched)


def test_long_clip_is_reached_from_77_to_248():
    """The authors' loop: a quarter of the way to the next position each."""
    from cfaug.models.encoder import stretch_positions

    positions = torch.randn(77, 4)
    expected = torch.zeros(4 * 77 - 3 * 20, 4)
    expected[:20] = positions[:20]
    for i in range(77 - 20):
        here, step = positions[20 + i], positions[min(21 + i, 76)] - positions[min(20 + i, 75)]
        for quarter in range(4):
            expected[20 + 4 * i + quarter] = here + quarter / 4 * step
    torch.testing.assert_close(stretch_positions(positions, 248, "it"), expected)


@pytest.mark.parametrize(
    ("save", "count", "says"),
    [
        (tiny.save_clip, 20, "has 24 positions, which can only be stretched to more"),
        (tiny.save_siglip, 40, "of the type 'siglip'; only positions of clip and metaclip_2"),
        (tiny.save_open_clip, 40, "12 positions, which can only be stretched .* from 22 on"),
        (
            functools.partial(tiny.save_open_clip, text_cfg={**TEXT, "no_causal_mask": True}),
            40, "does not read from left to right",
        ),
    ],
)  # fmt: skip
def test_positions_that_cannot_be_stretched_are_refused(tmp_path, save, count, says):
    save(tmp_path)
    described = (tmp_path / "open_clip_config.json").is_file()
    spec = OpenClip(str(tmp_path)) if described else HFClip(str(tmp_path))
    with pytest.raises(UserError, match=says):
        type(spec)(spec.weights, max_tokens=count).load()


# QuickGELU or GELU.


@pytest.mark.parametrize(
    ("architecture", "weights", "said"),
    [
        ("ViT-B-32", "openai", "warning.*was trained with QuickGELU, as the tag of ViT-B-32 says"),
        ("ViT-B-32-quickgelu", "openai", None),
        ("ViT-B-32", "b32_400m.pt", "tag metaclip_400m of this file .*ViT-B-32-quickgelu$"),
        ("ViT-B-32-quickgelu", "vit_b_32-laion2b_e16-af8dbd0c.pth", "with GELU, .*=ViT-B-32$"),
        ("ViT-B-32", "epoch_5.pt", "does not say .*=ViT-B-32 computes GELU, ViT-B-32-quickgelu"),
        ("ViT-B-32", "quick/epoch_5.pt", "open_clip_config.json beside it says"),
        ("PE-Core-B-16", "epoch_5.pt", None),
    ],
)
def test_another_activation_than_that_of_the_weights_is_said(
    tmp_path, monkeypatch, capsys, architecture, weights, said
):
    from cfaug.core.errors import say_once

    say_once.cache_clear()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quick").mkdir()
    config = {"model_cfg": {"quick_gelu": True}}
    (tmp_path / "quick" / "open_clip_config.json").write_text(json.dumps(config))
    _compare_activations(architecture, weights)
    message = capsys.readouterr().err.strip()
    if said is None:
        assert message == ""
    else:
        assert re.search(said, message), message


@pytest.mark.parametrize("name", ["open_clip", "siglip2", "pe_core", "mobileclip2", "metaclip2"])
def test_a_shipped_model_is_in_open_clips_list_with_its_own_activation(name, capsys):
    import open_clip

    node = yaml.safe_load(settings_file(f"model/{name}").read_text())
    tag = node["architecture"], node["weights"]
    assert tag in open_clip.list_pretrained()
    _compare_activations(*tag)
    assert capsys.readouterr().err == ""


# The names of parameters in open_clip's main branch, 4.2.0.dev0 of 2026-06-27 (commit
# 89fb801f1e6087880e951fc8354b8a2077b79c6d), with which this file passed; "**" takes any other.
MAIN = {
    "create_model": "model_name pretrained load_weights precision device force_quick_gelu "
    "force_custom_text force_patch_dropout force_image_size force_preprocess_cfg "
    "force_context_length force_naflex_vision pretrained_image pretrained_text "
    "pretrained_image_path pretrained_text_path pretrained_audio_path cache_dir output_dict "
    "require_pretrained weights_only **",
    "get_tokenizer": "model_name context_length cache_dir **",
    "get_model_config": "model_name",
    "get_pretrained_cfg": "model tag",
    "list_models": "",
    "list_pretrained": "as_str",
    "list_pretrained_tags_by_model": "model",
    "tokenizer.HFTokenizer": "tokenizer_name context_length clean strip_sep_token language "
    "cache_dir tokenizer_mode **",
    "tokenizer.SimpleTokenizer": "bpe_path additional_special_tokens context_length clean "
    "reduction_mask",
    "CLIP.encode_image": "self image normalize",
    "CLIP.encode_text": "self text normalize",
    "CustomTextCLIP.encode_image": "self image normalize",
    "CustomTextCLIP.encode_text": "self text normalize",
}


def described(names):
    """The signature with these parameters, the first of which are often required."""
    kind = inspect.Parameter
    return inspect.Signature([
        kind("more", kind.VAR_KEYWORD) if name == "**"
        else kind(name, kind.POSITIONAL_OR_KEYWORD, default=None)
        for name in names.split()
    ])  # fmt: skip


def test_every_call_of_open_clip_fits_its_main_branch(tmp_path, monkeypatch):
    import open_clip

    called = set()

    def held_against_main(name, function):
        main = described(MAIN[name])

        @functools.wraps(function)
        def call(*args, **options):
            called.add(name)
            main.bind(*args, **options)  # a TypeError if main has no such parameter
            return function(*args, **options)

        return call

    for name in MAIN:
        home, _, last = name.rpartition(".")
        home = functools.reduce(getattr, filter(None, [home]), open_clip)
        monkeypatch.setattr(home, last, held_against_main(name, getattr(home, last)))
    folder = tiny.save_open_clip(tmp_path / "weights", text_cfg={**TEXT, "vocab_size": 49408,
                                                                "context_length": 24})  # fmt: skip
    config = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
    for name in ("tiny", "tiny-quickgelu"):
        monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, name, config)
    file = str(folder / "open_clip_model.safetensors")
    in_miniature("siglip2", monkeypatch)
    for spec in (
        OpenClip(file, "tiny"),
        OpenClip(str(folder), max_tokens=40),
        save_miniature(tmp_path / "siglip2", "siglip2"),
    ):
        encoder = spec.load()
        encoder.features(tiny.pixels(), tiny.CAPTIONS)
        encoder.save(tmp_path / "saved")
    assert called == set(MAIN)


# One tiny model of every family that open_clip has: its numbers, its loss, its saved folder.


SMALL = {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
TIMM = {
    "image_size": tiny.SIZE, "timm_model_name": "test_vit", "timm_pool": "map", "timm_proj": "none",
}  # fmt: skip
COCA = {
    "vision_cfg": {
        "image_size": tiny.SIZE, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8,
        "attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True,
    },
    "text_cfg": {**SMALL, "embed_cls": True, "output_tokens": True},
    "multimodal_cfg": {**SMALL, "dim_head": 8, "mlp_ratio": 2, "attn_pooler_heads": 2},
    "custom_text": True,
}  # fmt: skip
RESNET = {"image_size": tiny.SIZE, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}
FAMILIES = {
    "quick_gelu": {"quick_gelu": True},
    "resnet": {"vision_cfg": RESNET},
    "timm": {"embed_dim": 64, "vision_cfg": TIMM},
    "siglip": {
        "embed_dim": 64, "vision_cfg": TIMM, "custom_text": True, "init_logit_bias": -10,
        "text_cfg": {**SMALL, "no_causal_mask": True, "proj_bias": True, "pool_type": "last"},
    },
    "coca": COCA,
}  # fmt: skip
PICTURE = {"interpolation": "bilinear", "resize_mode": "squash"}


@pytest.fixture(scope="module", params=[*FAMILIES, "hf_text"])
def folder(request, tmp_path_factory):
    shelf, family = tmp_path_factory.mktemp("family"), request.param
    changes = FAMILIES[family] if family in FAMILIES else hf_text(shelf / family / "text")
    where = tiny.save_open_clip(shelf / family, picture=PICTURE, **changes)
    if family not in FAMILIES:
        tiny.tokenizer().save_pretrained(where)  # beside the weights, as open_clip pushes it
        (where / "text" / "model.safetensors").unlink()  # the weights hold both towers
    return where


def hf_text(folder):
    """A transformers model for the text, which open_clip builds from its configuration."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=4 + len(tiny.WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    text = {"hf_model_name": str(folder), "hf_tokenizer_name": str(folder), "context_length": 12}
    return {"text_cfg": {**text, "hf_proj_type": "mlp", "hf_pooler_type": "mean_pooler"}}


@pytest.fixture(scope="module")
def images():
    return [tiny.image(*size) for size in ((32, 32), (70, 48), (40, 90), (30, 20))]


def same_embeddings(encoder, folder, images):
    """Hold an encoder against the model as plain open_clip loads it."""
    import open_clip

    source = f"local-dir:{folder}"
    model, _, preprocess = open_clip.create_model_and_transforms(source)
    model.eval()
    with torch.no_grad():
        expected = model.encode_image(torch.stack([preprocess(image) for image in images]))
        torch.testing.assert_close(encoder.encode_image(tiny.stack(encoder, images)), expected)
        tokens = open_clip.get_tokenizer(source)(tiny.CAPTIONS)
        texts = encoder.encode_text(encoder.tokenize(tiny.CAPTIONS))
        torch.testing.assert_close(texts, model.encode_text(tokens))


@pytest.mark.slow
def test_it_is_plain_open_clips_model_before_and_after_training(folder, images, tmp_path):
    encoder = OpenClip(str(folder)).load()
    same_embeddings(encoder, folder, images)
    encoder.train()
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        loss = encoder.contrastive(encoder.features(tiny.stack(encoder, images), tiny.CAPTIONS))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert math.inf > losses[0] > losses[-1], losses
    encoder.eval().save(tmp_path / "saved")
    same_embeddings(encoder, tmp_path / "saved", images)


def test_weights_of_another_architecture_are_told_in_a_line(tmp_path, monkeypatch):
    """torch lists every name; what is wanted is the architecture's."""
    weights = {f"layer_{i}.weight": torch.zeros(2) for i in range(99)}
    torch.save(weights, tmp_path / "epoch_1.pt")
    monkeypatch.setattr(
        "cfaug.models.open_clip._build",
        lambda *_, **__: torch.nn.Linear(2, 2).load_state_dict(weights),
    )
    with pytest.raises(
        UserError, match=r"does not hold the weights of ViT-B-32: Missing"
    ) as raised:
        OpenClip(str(tmp_path / "epoch_1.pt"), "ViT-B-32").load()
    assert len(str(raised.value).removeprefix(str(tmp_path))) < 350
    assert str(raised.value).endswith("as in model.architecture=RN50")
