from __future__ import annotations

import json
import os
import random
import re
import shutil

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from transformers import AutoTokenizer, CLIPTokenizer

from cfaug.core.errors import UserError, say_once
from cfaug.core.protocols import DualEncoder, Matcher
from cfaug.core.weights import resolve
from cfaug.models import encoder
from cfaug.models.encoder import Tokenizer
from cfaug.models.specs import HFClip, OpenClip
from tests.models import tiny
from tests.models.tiny import name_encoder as spec


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    shelf = tmp_path_factory.mktemp("weights")
    return tiny.save_all(shelf, "dual", "clip", "siglip", "open_clip")


@pytest.fixture(scope="module")
def images():
    return [tiny.image(seed=seed) for seed in range(4)]


@pytest.mark.parametrize("name", ["dual", "clip", "siglip"])
def test_embeddings_are_those_of_plain_transformers(folders, images, name):
    from transformers import AutoModel, AutoProcessor

    encoder = spec(folders, name).load()
    model = AutoModel.from_pretrained(folders[name])
    processor = AutoProcessor.from_pretrained(folders[name])
    padding = "max_length" if name == "siglip" else True
    inputs = processor(text=tiny.CAPTIONS, images=images, return_tensors="pt", padding=padding)
    with torch.no_grad():
        expected = model(**inputs)
        image_embeddings = encoder.encode_image(tiny.stack(encoder, images))
        text_embeddings = encoder.encode_text(encoder.tokenize(tiny.CAPTIONS))
    normalised = torch.nn.functional.normalize
    torch.testing.assert_close(normalised(image_embeddings), expected.image_embeds)
    torch.testing.assert_close(normalised(text_embeddings), expected.text_embeds)


def test_embeddings_are_those_of_plain_open_clip(folders, images):
    import open_clip

    encoder = spec(folders, "open_clip").load()
    source = f"local-dir:{folders['open_clip']}"
    model, _, preprocess = open_clip.create_model_and_transforms(source)
    model.eval()
    tokens = open_clip.get_tokenizer(source)(tiny.CAPTIONS)
    with torch.no_grad():
        expected = model.encode_image(torch.stack([preprocess(image) for image in images]))
        torch.testing.assert_close(encoder.encode_image(tiny.stack(encoder, images)), expected)
        embeddings = encoder.encode_text(encoder.tokenize(tiny.CAPTIONS))
        torch.testing.assert_close(embeddings, model.encode_text(tokens))


def test_a_dual_encoder_matches_by_the_logit_of_plain_transformers(folders, images):
    from transformers import AutoModel, AutoProcessor

    matcher = spec(folders, "clip").load(Matcher)
    assert isinstance(matcher, Matcher)
    assert matcher.kind == "cosine x scale"
    model = AutoModel.from_pretrained(folders["clip"])
    processor = AutoProcessor.from_pretrained(folders["clip"])
    inputs = processor(text=tiny.CAPTIONS, images=images, return_tensors="pt", padding=True)
    with torch.no_grad():
        expected = model(**inputs).logits_per_image.diagonal()
        logits = matcher.match(tiny.stack(matcher, images), tiny.CAPTIONS)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("name", ["dual", "clip", "siglip", "open_clip"])
def test_a_saved_model_is_the_same_model(folders, images, name, tmp_path):
    encoder = spec(folders, name).load()
    assert isinstance(encoder, DualEncoder)
    assert not any(module.training for module in encoder.modules())
    with torch.no_grad():
        encoder.log_scale.fill_(1.5)
    encoder.save(tmp_path / "saved")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    again = spec({name: tmp_path / "saved"}, name).load()
    assert again.transform == encoder.transform
    for before, after in zip(encoder.parameters(), again.parameters(), strict=True):
        assert torch.equal(before, after)
    tokens, same = encoder.tokenize(tiny.CAPTIONS), again.tokenize(tiny.CAPTIONS)
    assert tokens.keys() == same.keys()
    assert all(torch.equal(tokens[key], same[key]) for key in tokens)
    assert again.logit_scale().item() == pytest.approx(np.exp(1.5))


def test_a_half_precision_file_trains_in_single_precision(tmp_path):
    folder = tiny.save_dual_encoder(tmp_path / "half", dtype=torch.float16)
    assert all(p.dtype == torch.float32 for p in HFClip(str(folder)).load().parameters())


def test_the_logit_scale_is_bounded_as_the_configuration_says(folders):
    for settings, expected in (
        ({}, 7.0),
        ({"logit_scale_min": 0.0, "logit_scale_max": 4.6052}, 4.6052),
    ):
        encoder = spec(folders, "clip", **settings).load()
        with torch.no_grad():
            encoder.log_scale.fill_(7.0)
        encoder.clamp_logit_scale()
        assert encoder.log_scale.item() == pytest.approx(expected)
    default = spec(folders, "open_clip").load()
    with torch.no_grad():
        default.log_scale.fill_(-1.0)
    default.clamp_logit_scale()
    assert default.logit_scale().item() == 1.0


@pytest.mark.parametrize(
    ("name", "settings", "length"),
    [("dual", {}, 16), ("dual", {"max_length": 5}, 5), ("clip", {}, 24), ("open_clip", {}, 12)],
)
def test_long_captions_are_cut_to_what_the_model_takes(folders, name, settings, length):
    tokens = spec(folders, name, **settings).load().tokenize(["a red ball " * 30])
    assert tokens["input_ids"].shape == (1, length)


class Payload:
    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return os.system, (f"touch {self.file}",)


def test_a_pickle_that_runs_code_is_refused_and_does_not_run(folders, tmp_path):
    ran = tmp_path / "ran"
    for name in ("dual", "open_clip"):
        folder = shutil.copytree(folders[name], tmp_path / name)
        next(folder.glob("*.safetensors")).unlink()
        torch.save({"logit_scale": Payload(ran)}, folder / "pytorch_model.bin")
        with pytest.raises(UserError, match=str(folder / "pytorch_model.bin")):
            spec({name: folder}, name).load()
    assert not ran.exists()


def test_a_pickle_of_tensors_alone_is_read(folders, tmp_path):
    from safetensors.torch import load_file

    folder = shutil.copytree(folders["dual"], tmp_path / "dual")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert torch.equal(HFClip(str(folder)).load().log_scale, spec(folders, "dual").load().log_scale)


def break_weights(folder):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def break_processor(folder):
    (folder / "processor_config.json").unlink()


def break_file(folder):
    (folder / "model.safetensors").write_bytes(b"not safetensors")


def break_type(folder):
    config = json.loads((folder / "config.json").read_text())["text_config"]
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (break_weights, "visual_projection.weight"),
        (break_processor, "processor"),
        (break_file, "not a safetensors file"),
        (break_type, "not a dual encoder"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
    ],
)
def test_a_damaged_folder_is_named(folders, tmp_path, damage, words):
    folder = shutil.copytree(folders["dual"], tmp_path / "dual")
    damage(folder)
    with pytest.raises(UserError, match=words) as caught:
        HFClip(str(folder)).load()
    assert str(folder) in str(caught.value)


def test_open_clip_names_what_it_does_not_know():
    with pytest.raises(UserError, match="not known to open_clip"):
        OpenClip("openai", "ViT-Z-99").load()
    with pytest.raises(UserError, match="laion2b_s34b_b79k"):
        OpenClip("openaj", "ViT-B-32").load()


WIDE = [(32, 32), (70, 48), (40, 80), (66, 33)]
"""Of even surplus: transformers crops an odd one half a pixel beside torchvision."""


def _processor(kind):
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.flava.image_processing_pil_flava import FlavaImageProcessorPil
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    square = {"height": tiny.SIZE, "width": tiny.SIZE}
    return {
        "clip": lambda: CLIPImageProcessorPil(size={"shortest_edge": tiny.SIZE}, crop_size=square),
        "clip, cropped": lambda: CLIPImageProcessorPil(
            size={"shortest_edge": tiny.SIZE + 4}, crop_size=square
        ),
        "siglip": lambda: SiglipImageProcessorPil(size=square),
        "vit": lambda: ViTImageProcessorPil(size=square),
        "flava": lambda: FlavaImageProcessorPil(size=square, crop_size=square),
    }[kind]()


@pytest.mark.parametrize("kind", ["clip", "clip, cropped", "siglip", "vit", "flava"])
def test_images_of_any_shape_are_those_of_the_models_own_processor(kind):
    from cfaug.models.image_processors import image_transform

    processor = _processor(kind)
    transform = image_transform(processor, kind)
    draw = np.random.default_rng(1)
    for width, height in WIDE:
        image = Image.fromarray(draw.integers(0, 256, (height, width, 3), dtype=np.uint8))
        expected = processor(images=[image], return_tensors="pt")["pixel_values"]
        pixels = transform.normalize(torch.from_numpy(transform(image)[None].copy()))
        torch.testing.assert_close(pixels, expected, rtol=0, atol=1e-5)


def test_the_geometry_can_be_chosen(folders):
    from cfaug.models.image_processors import image_transform

    assert image_transform(_processor("siglip"), "x", "crop").geometry == "crop"
    squashed = spec(folders, "clip", geometry="squash")
    assert squashed.load().transform.geometry == "squash"
    assert squashed.settings_hash() != spec(folders, "clip").settings_hash()
    with pytest.raises(UserError, match="geometry=pad: choose from crop, squash, null"):
        spec(folders, "clip", geometry="pad")


def test_an_image_processor_that_cannot_be_expressed_is_refused():
    from cfaug.models.image_processors import image_transform

    assert image_transform(tiny.image_processor(resample=2), "x").resample == "bilinear"
    with pytest.raises(UserError, match="filter"):
        image_transform(tiny.image_processor(resample=0), "x")
    with pytest.raises(UserError, match="rescale_factor"):
        image_transform(tiny.image_processor(rescale_factor=1 / 127.5), "x")
    with pytest.raises(UserError, match="not square"):
        image_transform(tiny.image_processor(crop_size={"height": 4, "width": 5}), "x")


# Kept tokens are what the tokenizer gives for the whole batch.


WORDS = ["a", "red", "dog", "in", "the snow,", "circle;", "2", "Ärzte", "\N{DOG}", "the", "the"]


@pytest.fixture
def tokenizer():
    return AutoTokenizer.from_pretrained(resolve("zoo:clip-0", None))


def captions(seed, count):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randrange(0, 30))) for _ in range(count)]


@pytest.mark.parametrize("names", [["input_ids", "attention_mask"], ["input_ids"]])
def test_batches_are_those_of_the_tokenizer(tokenizer, names):
    tokenizer.model_input_names = names
    ours = Tokenizer(tokenizer, 16)
    padding = "longest" if "attention_mask" in names else "max_length"
    for seed in (1, 2, 1):
        texts = captions(seed, 9)
        expected = tokenizer(
            texts, padding=padding, truncation=True, max_length=16, return_tensors="pt"
        )
        tokens = ours(texts)
        assert tokens.keys() == set(expected)
        for name, ids in tokens.items():
            assert ids.dtype == torch.int64
            assert torch.equal(ids, expected[name])


def test_a_caption_is_tokenised_once_in_a_process_up_to_a_bound(tokenizer, monkeypatch):
    monkeypatch.setattr(encoder, "_KEPT", {})
    texts = captions(3, 6)
    first = Tokenizer(tokenizer, 16)
    before = first(texts)
    again = AutoTokenizer.from_pretrained(resolve("zoo:clip-0", None))
    asked = []

    class Watched(type(again)):
        def __call__(self, texts, **options):
            asked.extend(texts)
            return super().__call__(texts, **options)

    monkeypatch.setattr(encoder, "KEEP_CAPTIONS", len(set(texts)))
    second = Tokenizer(again, 16)
    again.__class__ = Watched
    assert torch.equal(second(texts)["input_ids"], before["input_ids"])
    assert asked == []
    second(["one more"])
    second(["one more"])
    assert asked == ["one more"] * 2
    Tokenizer(tokenizer, 8)(texts)  # another length is another tokenizer
    assert {len(kept) for kept in encoder._KEPT.values()} == {len(set(texts))}


def test_what_is_saved_is_the_same_where_every_caption_is_kept(tmp_path):
    """Of two runs in one process the second tokenises nothing."""
    for name in ("first", "second"):
        fresh = tiny.tokenizer()  # its file says nothing of truncation
        Tokenizer(fresh, 12)(["a red ball", "the beach"])
        fresh.save_pretrained(tmp_path / name)
    first, second = ((tmp_path / n / "tokenizer.json").read_bytes() for n in ("first", "second"))
    assert first == second
    assert b'"max_length": 12' in first


def test_a_loaded_model_is_saved_with_the_length_of_its_texts_before_any_caption(tmp_path):
    """A check at loading asked the tokenizer without a length.

    That was saved, unless the process read captions that it had not read before.
    """
    model = HFClip("zoo:clip-0").load()
    model.save(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "tokenizer.json").read_bytes())
    assert saved["truncation"]["max_length"] == model.tokenizer.max_length


@pytest.mark.parametrize(
    ("text", "warned"), [("Two bicyclists near a river", True), ("a red ball on the beach", False)]
)
def test_a_model_that_knows_few_of_the_words_is_told(tokenizer, capsys, text, warned):
    say_once.cache_clear()
    ours = Tokenizer(tokenizer, 16)
    ours([text])
    assert ("does not know 80% of the words" in capsys.readouterr().err) == warned
    ours(["Two bicyclists again"])
    assert capsys.readouterr().err == ""  # the first captions tell


def test_a_text_that_only_tells_tokenizers_apart_is_not_taken_for_a_caption(tokenizer, capsys):
    """An evaluation's first text: no warning is about it, and the captions after it are checked."""
    say_once.cache_clear()
    ours = Tokenizer(tokenizer, 16)
    ours([encoder.PROBE, "a"])
    assert capsys.readouterr().err == ""
    ours(["Two bicyclists near a river"])
    assert "such as 'Two bicyclists near a river'" in capsys.readouterr().err


def test_an_unknown_token_that_also_ends_texts_counts_nothing(capsys):
    """CLIP's, whose pieces spell any word."""
    vocabulary = {"a</w>": 0, "<|startoftext|>": 1, "<|endoftext|>": 2}
    ours = Tokenizer(CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77), 16)
    assert ours.tokenizer.unk_token_id == ours.tokenizer.eos_token_id
    ours(["Zyxw vuts"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("token", ["purple", "[FILL]"], ids=["word", "padding"])
def test_a_token_without_an_embedding_is_named(tmp_path, token):
    folder = tiny.save_clip(tmp_path / "clip")
    words = AutoTokenizer.from_pretrained(folder)
    known = len(words)
    if token == "purple":
        words.add_tokens([token])
    else:
        words.add_special_tokens({"pad_token": token})
    words.save_pretrained(folder)
    model = HFClip(str(folder)).load()
    model.encode_text(model.tokenize(["a red ball"]))
    with pytest.raises(UserError, match=rf"clip: .*'{re.escape(token)}' has the number {known}"):
        model.tokenize(["a purple ball on the beach", "a ball"])


def test_a_folder_without_the_words_of_its_tokenizer_is_refused(tmp_path):
    folder = tiny.save_clip(tmp_path / "clip")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"clip has no words for its tokenizer"):
        HFClip(str(folder)).load()


def test_an_open_clip_with_weights_is_not_called_random(tmp_path, caplog):
    folder = tiny.save_open_clip(tmp_path / "open_clip")
    OpenClip(str(folder)).load()
    assert "randomly" not in caplog.text


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("ConvNext", {"size": {"shortest_edge": 32}}), ("ConvNext", {"size": {"shortest_edge": 384}}),
     ("PoolFormer", {"size": {"shortest_edge": 36}, "crop_size": {"height": 36, "width": 36}})],
)  # fmt: skip
def test_a_processor_that_crops_a_share_is_followed(kind, settings):
    from cfaug.models.image_processors import equal_transform

    processor = getattr(transformers, f"{kind}ImageProcessorPil")(**settings)
    transform, image = equal_transform(processor, kind), tiny.image(67, 50)
    expected = processor(images=[image], return_tensors="pt")["pixel_values"]
    pixels = transform.normalize(torch.from_numpy(transform(image)[None].copy()))
    torch.testing.assert_close(pixels, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("EfficientNet", {"resample": 3}), ("Levit", {}), ("CLIP", {"do_normalize": False}),
     ("MobileViT", {"size": {"shortest_edge": 256}, "image_mean": [0.5] * 3,
                    "image_std": [0.5] * 3}), ("Siglip2", {})],
)  # fmt: skip
def test_a_processor_with_steps_of_its_own_is_refused(kind, settings):
    from cfaug.models.image_processors import equal_transform

    processor = getattr(transformers, f"{kind}ImageProcessor")(**settings)
    with pytest.raises(UserError, match=r"than resize, crop|is not square"):
        equal_transform(processor, "x")


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_images_of_another_size_than_the_models_are_refused(folders, tmp_path, name):
    folder = shutil.copytree(folders[name], tmp_path / name)
    file = folder / "processor_config.json"
    file.write_text(re.sub(r'(height|width|shortest_edge)": 32', r'\1": 48', file.read_text()))
    with pytest.raises(UserError, match="makes images of 48 pixels, and the model does not read"):
        HFClip(str(folder)).load()


@pytest.mark.parametrize(
    ("mean", "std", "said"),
    [
        ([123.7, 116.3, 103.5], [58.4, 57.1, 57.4], r"divide it by 255, as \[0.485, 0.456, 0.406"),
        ([0.5] * 3, [127.5] * 3, r"std=.* is of pixels from 0 to 255"),
    ],
)
def test_a_normalisation_for_pixels_from_0_to_255_is_refused(mean, std, said):
    from transformers import CLIPImageProcessor

    from cfaug.models.image_processors import image_transform

    with pytest.raises(UserError, match=said):
        image_transform(CLIPImageProcessor(image_mean=mean, image_std=std), "x")


def test_a_tiny_deviation_and_another_size_are_said(capsys):
    from types import SimpleNamespace

    from transformers import CLIPImageProcessor

    from cfaug.models.image_processors import image_transform, say_other_size

    transform = image_transform(CLIPImageProcessor(image_std=[1 / 255] * 3), "tiny deviation")
    assert "tiny deviation: std=" in capsys.readouterr().err
    for size, said in ((224, False), (32, True)):
        config = SimpleNamespace(vision_config=SimpleNamespace(image_size=size))
        say_other_size(config, transform, "another size")
        assert ("makes images of 224 pixels, and config.json says image_size=32"
                in capsys.readouterr().err) == said  # fmt: skip


def test_a_factor_saved_in_place_of_its_logarithm_is_said(folders, capsys):
    from cfaug.models.checkpoints import load_model
    from cfaug.models.encoder import HFEncoder, load_processor

    model = load_model("AutoModel", folders["clip"])
    model.logit_scale.data.fill_(100)
    processor = load_processor(folders["clip"])
    HFEncoder(model, processor, folders["clip"], max_length=None, log_scale_bounds=(None, None))
    assert "logit_scale is 100, and it is the logarithm" in capsys.readouterr().err


@pytest.mark.parametrize("lower", [True, False])
def test_capitals_that_a_siglip_never_saw_are_said(folders, tmp_path, capsys, lower):
    """SigLIP 2's files name Gemma's tokenizer, which keeps capitals."""
    import json

    from cfaug.core.errors import say_once

    say_once.cache_clear()
    folder = shutil.copytree(folders["siglip"], tmp_path / "siglip")
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    content["normalizer"] = {"type": "Lowercase"} if lower else None
    file.write_text(json.dumps(content))
    tokenize = HFClip(str(folder)).load().tokenize
    tokenize(["a red ball"])
    tokenize = HFClip(str(folder)).load().tokenize
    tokenize(["a red ball", "A Red ball"])
    assert ("SigLIP was trained on lower case" in capsys.readouterr().err) == (not lower)
