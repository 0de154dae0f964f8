"""CLIP's tokenizer and text encoder (Radford et al., 2021) at a tiny size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cfaug.shapescapes.vocabulary import words

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import CLIPTextModel, CLIPTokenizer

START, END = "<|startoftext|>", "<|endoftext|>"
MAX_LENGTH = 24
WIDTH = 64


def build_tokenizer(known: Sequence[str] | None = None) -> CLIPTokenizer:
    """Return a tokenizer with one token for every word of a caption.

    Any other text is split into characters, except for an end that one of our words has too.

    Args:
        known: the words; ``None`` is those of captions of photos. Words that follow those change
            only the ids of the start and the end of a text.
    """
    from transformers import CLIPTokenizer

    printable = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    names = [*printable, *(f"{character}</w>" for character in printable)]
    merges: list[tuple[str, str]] = []
    for word in words() if known is None else known:
        # From the end, which "</w>" marks, so that no other word's merges interfere.
        suffix = f"{word[-1]}</w>"
        for character in reversed(word[:-1]):
            merges.append((character, suffix))
            suffix = character + suffix
    merges = list(dict.fromkeys(merges))
    names += ["".join(pair) for pair in merges]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys([*names, START, END]))}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=MAX_LENGTH)


def build_text_encoder(tokenizer: CLIPTokenizer) -> CLIPTextModel:
    """Return the text encoder with initial weights, drawn from torch's current generator."""
    from transformers import CLIPTextConfig, CLIPTextModel

    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=MAX_LENGTH,
            projection_dim=WIDTH,
            bos_token_id=tokenizer.convert_tokens_to_ids(START),
            eos_token_id=tokenizer.convert_tokens_to_ids(END),
            pad_token_id=tokenizer.convert_tokens_to_ids(END),
        )
    )


def tokenize(tokenizer: CLIPTokenizer, texts: list[str]) -> Tensor:
    """Return token ids (n, 24), padded and truncated like in StableDiffusionPipeline."""
    ids: Tensor = tokenizer(
        texts, padding="max_length", max_length=MAX_LENGTH, truncation=True, return_tensors="pt"
    ).input_ids
    return ids
