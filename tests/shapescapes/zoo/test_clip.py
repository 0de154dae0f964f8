"""The tiny CLIP: stock classes, shipped weights that know the drawings, a command that rebuilds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.shapescapes.zoo.clip import draw_unbiased, evaluate, main

WEIGHTS = Path(__file__).parents[3] / "cfaug" / "shapescapes" / "zoo" / "weights"
SHIPPED = sorted(WEIGHTS.glob("clip-[0-9]"))


def test_two_seeds_are_shipped() -> None:
    assert [folder.name for folder in SHIPPED] == ["clip-0", "clip-1"]


@pytest.mark.slow
@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_plain_transformers_loads_it_and_its_card_is_true(folder: Path) -> None:
    from transformers import AutoModel, VisionTextDualEncoderModel

    assert sum(file.stat().st_size for file in folder.iterdir()) < 1_200_000
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    assert type(model) is VisionTextDualEncoderModel
    assert not any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in model.modules())
    card = json.loads((folder / "card.json").read_text())
    seed, count = card["settings"]["seed"], card["settings"]["held_out"]
    found = evaluate(model, seed, count)
    for metric, value in card["metrics"].items():
        # float16 on disk: a scene or two may tip over.
        assert found[metric] == pytest.approx(value, abs=0.005), metric
    assert found["subject_acc1"] > 0.7


def test_the_processor_prepares_what_training_saw() -> None:
    from transformers import AutoProcessor

    from cfaug.shapescapes.zoo.clip import normalise

    processor = AutoProcessor.from_pretrained(SHIPPED[0])
    drawings = draw_unbiased(3, "test", 4)
    images = [pixels.transpose(1, 2, 0) for pixels in drawings.pixels]
    batch = processor(
        text=["A red ball on the beach", "an unknown zebra"],
        images=images,
        return_tensors="pt",
        padding=True,
    )
    assert torch.allclose(batch["pixel_values"], normalise(drawings.pixels), atol=1e-5)
    tokens = processor.tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
    assert tokens == ["[CLS]", "a", "red", "ball", "on", "the", "beach", "[SEP]"]
    unknown = processor.tokenizer.convert_ids_to_tokens(batch["input_ids"][1].tolist())
    assert unknown[:5] == ["[CLS]", "an", "[UNK]", "[UNK]", "[SEP]"]


def test_the_command_rebuilds_the_same_weights(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    arguments = ["seed=5", "scenes=40", "steps=3", "batch_size=8", "held_out=10"]
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        assert main([*arguments, f"out={folder}"]) == 0
    first, second = (load_file(folder / "model.safetensors") for folder in folders)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert all(tensor.dtype == torch.float16 for tensor in first.values())
    with pytest.raises(UserError, match="exists already"):
        main([*arguments, f"out={folders[0]}"])


def test_drawings_differ_by_seed_and_part() -> None:
    first = draw_unbiased(1, "train", 3).pixels
    assert np.array_equal(first, draw_unbiased(1, "train", 3).pixels)
    assert not np.array_equal(first, draw_unbiased(2, "train", 3).pixels)
    assert not np.array_equal(first, draw_unbiased(1, "held-out", 3).pixels)
