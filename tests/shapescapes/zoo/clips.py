"""Text features of a tiny CLIP before and after it went on learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from cfaug.core.weights import resolve


def compare_texts(load_start: Callable[[str], Any], folder: Path, texts: Sequence[str]) -> Any:
    """Check that texts mean to the model that goes on what they meant; return both tokenizers.

    Args:
        load_start: a function that loads the model that continues from a name.
        folder: a folder with the tokenizer of the continued model.
        texts: texts of words that the first model knows.
    """
    from transformers import AutoTokenizer, VisionTextDualEncoderModel

    known = resolve("zoo:clip-0")
    before = VisionTextDualEncoderModel.from_pretrained(known, dtype=torch.float32).eval()
    after = load_start("zoo:clip-0").eval()
    old, new = AutoTokenizer.from_pretrained(known), AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        pairs = [
            model.get_text_features(**tokens(texts, return_tensors="pt", padding=True))
            for model, tokens in ((before, old), (after, new))
        ]
    features = [getattr(one, "pooler_output", one) for one in pairs]
    assert torch.allclose(*features, atol=1e-6)
    return old, new
