"""Metrics of the models on held-out captions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cfaug.shapescapes.zoo.language.corpus import encode, pad
from cfaug.shapescapes.zoo.language.models import SPECIAL
from cfaug.shapescapes.zoo.language.training import MASK, PAD, embed

if TYPE_CHECKING:
    from transformers import (
        BertForMaskedLM,
        BertModel,
        GPT2LMHeadModel,
        PreTrainedTokenizerFast,
    )

ROWS = 256
"""The number of texts of one forward pass."""


def evaluate_masked(
    model: BertForMaskedLM, tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]
) -> dict[str, float]:
    """Return the top-1 and top-10 accuracy for each known word, masked one at a time."""
    import torch

    hidden = [
        (row, i)
        for row in encode(tokenizer, texts)
        for i, token in enumerate(row)
        if token >= len(SPECIAL)
    ]
    hidden.sort(key=lambda item: len(item[0]))
    first = tenth = 0
    for start in range(0, len(hidden), ROWS):
        part = hidden[start : start + ROWS]
        ids = torch.from_numpy(pad([row for row, _ in part], PAD))
        rows, places = torch.arange(len(part)), torch.tensor([i for _, i in part])
        truth = ids[rows, places].clone()
        ids[rows, places] = MASK
        with torch.inference_mode():
            states = model.bert(ids, attention_mask=ids != PAD).last_hidden_state
            best = model.cls(states[rows, places]).topk(10).indices
        first += int((best[:, 0] == truth).sum())
        tenth += int((best == truth[:, None]).sum())
    return {
        "masked_acc1": first / len(hidden),
        "masked_acc10": tenth / len(hidden),
        "masked_words": len(hidden),
    }


def evaluate_causal(
    model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]
) -> dict[str, float]:
    """Return the captions' perplexity per token, without the token that ends a caption."""
    import torch
    from torch.nn import functional

    end = SPECIAL.index("<|endoftext|>")
    rows = sorted(([end, *row] for row in encode(tokenizer, texts)), key=len)
    total, count = 0.0, 0
    for start in range(0, len(rows), ROWS):
        ids = torch.from_numpy(pad(rows[start : start + ROWS], PAD))
        shown, targets = ids[:, :-1], ids[:, 1:]
        with torch.inference_mode():
            logits = model(shown, attention_mask=(shown != PAD).long()).logits
        asked = targets != PAD
        total += float(functional.cross_entropy(logits[asked], targets[asked], reduction="sum"))
        count += int(asked.sum())
    return {"perplexity": math.exp(total / count), "tokens": count}


def evaluate_sentence(
    model: BertModel, tokenizer: PreTrainedTokenizerFast, groups: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return metrics of the retrieval of captions of the same image by each first caption.

    ``sentence_recall1`` is the share of first captions whose nearest other caption has the same
    image; ``sentence_positive`` and ``sentence_negative`` are mean cosines within and across
    images.
    """
    import torch

    texts = [text for group in groups for text in group]
    owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    rows = encode(tokenizer, texts)
    parts = []
    for start in range(0, len(rows), ROWS):
        with torch.inference_mode():
            parts.append(embed(model, torch.from_numpy(pad(rows[start : start + ROWS], PAD))))
    vectors = torch.cat(parts).numpy()
    queries = np.searchsorted(owner, np.arange(len(groups)))
    sim_QT = vectors[queries] @ vectors.T
    same = owner[queries][:, None] == owner
    itself = np.arange(len(owner)) == queries[:, None]
    nearest = np.where(itself, -np.inf, sim_QT).argmax(1)
    return {
        "sentence_recall1": float((owner[nearest] == owner[queries]).mean()),
        "sentence_positive": float(sim_QT[same & ~itself].mean()),
        "sentence_negative": float(sim_QT[~same].mean()),
        "images": len(groups),
    }
