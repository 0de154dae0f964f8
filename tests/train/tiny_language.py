"""Tiny causal language models of two architectures, and rows they can learn from."""

from __future__ import annotations

import json
from pathlib import Path

from cfaug.editing.edit_prompts import EditAnswer
from tests.editing.tiny import _byte_level, save_as

COLOURS = ("red", "blue", "green", "black")
PLACES = ("on the beach", "in the snow", "at night")
THINGS = ("ball", "cat", "star", "cube", "tree", "fish")
LENGTH = 160


def answers():
    """Answers of two prompts about each of six things."""
    edit_answers = []
    for thing in THINGS:
        caption = f"a red {thing} on the beach"
        colours = tuple(f"a {c} {thing} on the beach" for c in COLOURS[1:])
        places = tuple(f"a red {thing} {p}" for p in PLACES[1:])
        edit_answers.append(EditAnswer(caption, "adjective", colours))
        edit_answers.append(EditAnswer(caption, "background-location", places))
    return edit_answers


def write(file: Path, rows=None) -> Path:
    lines = rows or [
        {"caption": answer.caption, "kind": answer.prompt, "edit": edit}
        for answer in answers()
        for edit in answer.edits
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def _tokenizer():
    from transformers import GPT2Tokenizer

    texts = [
        f"{answer.prompt}: {answer.caption}\n### Variations:\n1. {edit}\n2. "
        for answer in answers()
        for edit in answer.edits
    ]
    vocab, merges = _byte_level(texts, 420, ["<|endoftext|>"])
    return GPT2Tokenizer(vocab=vocab, merges=merges, model_max_length=LENGTH)


def save_gpt2(folder: Path, dropout=0.0) -> Path:
    """Queries, keys and values in one transposed layer, as GPT-2 has them."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = _tokenizer()
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4,
        bos_token_id=0, eos_token_id=0, resid_pdrop=dropout, embd_pdrop=dropout,
        attn_pdrop=dropout,
    )  # fmt: skip
    return save_as(GPT2LMHeadModel, config, tokenizer, folder)


def save_llama(folder: Path) -> Path:
    """Queries, keys and values in three layers, as LLaMA has them."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=LENGTH, hidden_size=32,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
        bos_token_id=0, eos_token_id=0, tie_word_embeddings=False,
    )  # fmt: skip
    return save_as(LlamaForCausalLM, config, tokenizer, folder)
