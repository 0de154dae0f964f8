"""The tiny CLIPs: stock classes, what they are trained on, and those that go on from others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cfaug.core.weights import resolve
from cfaug.models.specs import HFClip
from cfaug.worlds.shapescapes.compositional_edits import (
    PictureDistribution,
    draw_picture,
    words_of_pictures,
)
from cfaug.worlds.shapescapes.judge import normalise
from cfaug.worlds.shapescapes.settings import WorldSettings
from cfaug.worlds.shapescapes.world import World
from tests.worlds.shapescapes.read_compositional import is_true
from zoo import clip
from zoo.scenes import draw_unbiased, jitter, truth


def test_plain_transformers_loads_it() -> None:
    from transformers import AutoModel, VisionTextDualEncoderModel

    model = AutoModel.from_pretrained(resolve("zoo:clip-0"), dtype=torch.float32)
    assert type(model) is VisionTextDualEncoderModel
    assert not any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in model.modules())


def test_the_processor_prepares_what_training_saw() -> None:
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(resolve("zoo:clip-0"))
    drawings = draw_unbiased(3, "test", 4)
    images = [pixels.transpose(1, 2, 0) for pixels in drawings.pixels]
    texts = ["A red ball on the beach", "an unknown zebra"]
    batch = processor(text=texts, images=images, return_tensors="pt", padding=True)
    assert torch.allclose(batch["pixel_values"], normalise(drawings.pixels), atol=1e-5)
    known, unknown = map(processor.tokenizer.convert_ids_to_tokens, batch["input_ids"].tolist())
    assert known == ["[CLS]", "a", "red", "ball", "on", "the", "beach", "[SEP]"]
    assert unknown[:5] == ["[CLS]", "an", "[UNK]", "[UNK]", "[SEP]"]


def test_drawings_differ_by_seed_and_part() -> None:
    first = draw_unbiased(1, "train", 3).pixels
    assert np.array_equal(first, draw_unbiased(1, "train", 3).pixels)
    assert not np.array_equal(first, draw_unbiased(2, "train", 3).pixels)
    assert not np.array_equal(first, draw_unbiased(1, "held-out", 3).pixels)


@pytest.mark.parametrize(
    ("extend", "name", "new"),
    [
        (clip.extend_to_domains, "clip-domains", "a sketch"),
        (clip.extend_to_things, "clip-things", "a ball left of a cube"),
    ],
)
def test_it_goes_on_from_a_model_whose_words_mean_what_they_did(extend, name, new) -> None:
    from transformers import AutoTokenizer, VisionTextDualEncoderModel

    start, folder = resolve("zoo:clip-0"), resolve(f"zoo:{name}")
    before = VisionTextDualEncoderModel.from_pretrained(start, dtype=torch.float32).eval()
    old, tokens = (AutoTokenizer.from_pretrained(path) for path in (start, folder))
    texts = {"text": ["a red ball on the beach", "a photo of a cat"]}
    options = {"return_tensors": "pt", "padding": True}
    with torch.inference_mode():
        features = [
            before.get_text_features(**old(**texts, **options)),
            extend("zoo:clip-0").eval().get_text_features(**tokens(**texts, **options)),
        ]
    assert torch.allclose(*(getattr(out, "pooler_output", out) for out in features), atol=1e-6)
    assert old.unk_token_id in old(new)["input_ids"]
    assert tokens.unk_token_id not in tokens(new)["input_ids"]


@pytest.mark.parametrize(
    ("name", "longest"),
    [
        ("clip-domains", "a sketch of a ball"),
        (
            "clip-things",
            "a picture of a ball that is red left of a cube that is blue in front of a brick wall",
        ),
    ],
)
def test_it_reads_its_longest_caption(name: str, longest: str) -> None:
    model = HFClip(f"zoo:{name}").load()
    tokens = model.tokenize([longest])
    with torch.inference_mode():
        assert np.isfinite(model.encode_text(tokens).numpy()).all()
    if name == "clip-things":
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(resolve(f"zoo:{name}"))
        ids = tokenizer(longest)["input_ids"]
        assert len(ids) < clip.MAX_LENGTH == tokenizer.model_max_length
        known = tokenizer(" ".join([longest, *words_of_pictures()]))["input_ids"]
        assert tokenizer.unk_token_id not in known


def test_captions_are_true_whatever_they_leave_out() -> None:
    law = PictureDistribution(World(WorldSettings(seed=0)))
    said = set()
    for index in range(80):
        rng = np.random.default_rng(index)
        picture = draw_picture(rng, law, 1 + index % 2)
        text = clip.describe(picture, rng, 0.3)
        assert is_true(text, picture.shown(index).record()), text
        said |= set(text.split())
    assert {"that", "and", "left", "above"} <= said


def test_a_caption_is_true_of_what_it_names() -> None:
    drawings = draw_unbiased(3, "test", 30)
    true = truth(drawings.labels(), drawings.stated())
    for i, factors in enumerate(drawings.factors):
        for j, (other, wording) in enumerate(zip(drawings.factors, drawings.wordings, strict=True)):
            expected = factors.subject == other.subject
            expected &= not wording.colour or factors.colour == other.colour
            expected &= not wording.background or factors.background == other.background
            assert true[i, j] == expected
    assert true.diagonal().all()


def test_jitter_moves_and_mirrors_and_nothing_else() -> None:
    pixels = np.arange(6 * 3 * 8 * 8, dtype=np.uint8).reshape(6, 3, 8, 8)
    moved = jitter(pixels, np.random.default_rng(1), reach=1)
    assert moved.shape == pixels.shape
    padded = np.pad(pixels, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
    windows = [padded[:, :, a : a + 8, b : b + 8] for a in range(3) for b in range(3)]
    for i in range(6):
        choices = [w[i] for w in windows] + [w[i][..., ::-1] for w in windows]
        assert any(np.array_equal(moved[i], choice) for choice in choices)
