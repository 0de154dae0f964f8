"""Train the tiny language models: ``python -m zoo language out=FOLDER captions=FILE seed=0``.

A masked language model, a causal one and a sentence encoder over one vocabulary of whole words, for
editing captions offline. Rebuilding with the seed, threads and versions in ``card.json`` gives the
same metrics.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.core.rng import derive, generator
from cfaug.core.validation import Seed
from cfaug.data.sources.lists import json_lines
from zoo import command
from zoo.command import Rates, count_parameters, fit, fresh_folder, save_half
from zoo.model import END, build_word_tokenizer, split_words

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        BertModel,
        GPT2LMHeadModel,
        PreTrainedModel,
        PreTrainedTokenizerFast,
    )

CREDIT = (
    "Trained on captions of MS-COCO 2017 validation (Lin et al., 2014; Chen et al., 2015), "
    "(c) COCO Consortium, CC BY 4.0, https://cocodataset.org; the captions are not part of this."
)


@dataclass(frozen=True, kw_only=True)
class LanguageSettings(Rates):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`zoo.command.Rates`, and
        out: the folder to write ``masked``, ``causal`` and ``sentence`` into; must not exist.
        captions: a JSON Lines file with ``image_id`` and ``caption``, such as MS-COCO's.
        seed: the seed of the split, the weights, the masks and the order.
        min_count: the smallest count of a word in the training captions; rarer ones are unknown.
        held_out: the share of the images that no model is trained on.
        mask_share: the share of the words that are masked.
        masked_epochs: the masked model's number of passes over the captions.
        causal_epochs: the causal model's number of passes over the captions.
        sentence_steps: the sentence encoder's number of steps, each on two captions of each image
            of a batch.
        temperature: the temperature of the sentence encoder's contrastive loss on cosines.
    """

    out: str
    captions: str
    seed: Seed = 0
    min_count: int = 3
    held_out: float = 0.05
    batch_size: int = 128
    mask_share: float = 0.2
    masked_epochs: int = 16
    causal_epochs: int = 8
    sentence_steps: int = 1_200
    temperature: float = 0.05


# The captions: read, split by image, and tokenized.

LONGEST = 32
"""The largest number of tokens of a training text; 1 in 300 captions is longer and truncated."""


Groups = tuple[tuple[str, ...], ...]
"""Normalised captions by image."""


def read(file: Path, held_out: float, seed: int) -> tuple[Groups, Groups]:
    """Read JSON Lines of ``image_id`` and ``caption``, and hold out a share of the images.

    Returns:
        The captions of the training images, and of those that are held out.
    """
    groups: dict[str, list[str]] = {}
    for where, row in json_lines(file):
        try:
            image, caption = str(row["image_id"]), " ".join(row["caption"].split())
        except (KeyError, AttributeError) as error:
            raise UserError(
                f'{where} is not {{"image_id": ..., "caption": "..."}}: {error!r}'
            ) from error
        groups.setdefault(image, []).append(caption)
    every = [tuple(groups[image]) for image in sorted(groups)]
    order = generator(seed, "zoo", "language", "split").permutation(len(every))
    chosen = set(order[: round(held_out * len(every))].tolist())
    training, aside = (
        tuple(group for i, group in enumerate(every) if (i in chosen) is held)
        for held in (False, True)
    )
    return training, aside


def vocabulary(texts: Sequence[str], min_count: int) -> list[str]:
    """Return the words seen at least ``min_count`` times, the most frequent first."""
    counts = Counter(split_words(texts))
    return sorted((w for w, n in counts.items() if n >= min_count), key=lambda w: (-counts[w], w))


def encode(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[list[int]]:
    """Return each text's token ids, special tokens included, truncated to ``LONGEST``."""
    return list(tokenizer(list(texts), truncation=True, max_length=LONGEST)["input_ids"])


def pad(rows: Sequence[Sequence[int]], fill: int) -> NDArray[np.int64]:
    """Return ids (rows, longest), with short rows padded on the right."""
    ids = np.full((len(rows), max(map(len, rows))), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids


def batches(
    lengths: Sequence[int], batch_size: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Yield every row once, in batches of texts of similar length, in random order.

    Rows are shuffled, sorted by length within windows of 32 batches, and the batches of a
    window are shuffled: this halves the padding of plain shuffling, and batches do not recur.
    """
    order, window = rng.permutation(len(lengths)), 32 * batch_size
    size = np.asarray(lengths)
    for start in range(0, len(order), window):
        rows = order[start : start + window]
        rows = rows[np.argsort(size[rows], kind="stable")]
        parts = [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
        for i in rng.permutation(len(parts)):
            yield parts[i]


# The models and their training.

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", END)
MAX_LENGTH = 64
WIDTH = 128
PAD, MASK = SPECIAL.index("[PAD]"), SPECIAL.index("[MASK]")
IGNORED = -100
"""The target that torch's cross-entropy ignores."""


def build_tokenizer(words: Sequence[str], *, causal: bool = False) -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole lower-cased words: "[CLS] a cat [SEP]", or "a cat" if causal."""
    return build_word_tokenizer(SPECIAL, words, MAX_LENGTH, causal=causal)


def _bert(words: int, **more: int) -> BertConfig:
    from transformers import BertConfig

    width = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_attention_heads": 4}
    return BertConfig(
        vocab_size=words,
        max_position_embeddings=MAX_LENGTH,
        type_vocab_size=1,
        pad_token_id=PAD,
        **{**width, **more},
    )


def _passes(
    rows: Sequence[Sequence[int]], epochs: int, batch_size: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Yield padded batches of ids (rows, longest), with every row once in an epoch."""
    for _ in range(epochs):
        for chosen in batches([len(row) for row in rows], batch_size, rng):
            yield pad([rows[i] for i in chosen], PAD)


def _seed(seed: int, name: str) -> None:
    import torch

    torch.manual_seed(derive(seed, "zoo", "language", "weights", name) % 2**63)


def train_masked(
    settings: LanguageSettings, tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]
) -> BertForMaskedLM:
    """Train a BERT of two layers (Devlin et al., 2019); every chosen word becomes ``[MASK]``.

    BERT's random and unchanged words are left out, as an editor only fills masks.
    """
    from torch.nn import functional
    from transformers import BertForMaskedLM

    rows = encode(tokenizer, texts)
    rng = generator(settings.seed, "zoo", "language", "masked")
    passes = _passes(rows, settings.masked_epochs, settings.batch_size, rng)
    _seed(settings.seed, "masked")
    model = BertForMaskedLM(_bert(len(tokenizer), num_hidden_layers=2)).train()

    def loss(step: int) -> Tensor:
        ids, targets = mask(next(passes), settings.mask_share, rng)
        states = model.bert(ids, attention_mask=ids != PAD).last_hidden_state
        predicted = targets != IGNORED
        return functional.cross_entropy(model.cls(states[predicted]), targets[predicted])

    steps = settings.masked_epochs * math.ceil(len(rows) / settings.batch_size)
    fit(model, loss, settings, steps, "masked words")
    return model.eval()


def mask(ids: np.ndarray, share: float, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Mask a share of the words, at least one in each row.

    Returns ids and targets, both int64 (rows, longest); targets are ``IGNORED`` at other words.
    """
    import torch

    words = ids >= len(SPECIAL)
    chance = np.where(words, rng.random(ids.shape), np.inf)
    hide = words & ((chance < share) | (chance == chance.min(1, keepdims=True)))
    shown = torch.from_numpy(np.where(hide, MASK, ids))
    return shown, torch.from_numpy(np.where(hide, ids, IGNORED))


def train_causal(
    settings: LanguageSettings, tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]
) -> GPT2LMHeadModel:
    """Train a GPT-2 of two layers; each caption is between two ``<|endoftext|>``."""
    import torch
    from torch.nn import functional
    from transformers import GPT2Config, GPT2LMHeadModel

    end = SPECIAL.index(END)
    rows = [[end, *row, end] for row in encode(tokenizer, texts)]
    rng = generator(settings.seed, "zoo", "language", "causal")
    passes = _passes(rows, settings.causal_epochs, settings.batch_size, rng)
    _seed(settings.seed, "causal")
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=MAX_LENGTH,
        n_embd=WIDTH,
        n_layer=2,
        n_head=4,
        # GPT-2's own GELU, in one kernel instead of seven.
        activation_function="gelu_pytorch_tanh",
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=PAD,
    )
    model = GPT2LMHeadModel(config).train()

    def loss(step: int) -> Tensor:
        ids = torch.from_numpy(next(passes))
        shown, targets = ids[:, :-1], ids[:, 1:]
        predicted = targets != PAD
        states = model.transformer(shown, attention_mask=shown != PAD).last_hidden_state
        return functional.cross_entropy(model.lm_head(states[predicted]), targets[predicted])

    steps = settings.causal_epochs * math.ceil(len(rows) / settings.batch_size)
    fit(model, loss, settings, steps, "next words")
    return model.eval()


def train_sentence(
    settings: LanguageSettings,
    tokenizer: PreTrainedTokenizerFast,
    groups: Sequence[Sequence[str]],
) -> BertModel:
    """Train a sentence encoder, with two captions of one image as a positive pair.

    The loss is the symmetric contrastive one of CLIP, on cosines (sentence-transformers' multiple
    negatives ranking; Henderson et al., 2017). The model is a BERT of one narrow layer without a
    pooler; a sentence is the mean of its tokens. It reads every candidate for every caption and so
    takes the most time: a feed-forward layer of a quarter of the usual width halves that, and is as
    good at recognising captions of one image.
    """
    import torch
    from torch.nn import functional
    from transformers import BertModel

    rows = [encode(tokenizer, group) for group in groups if len(group) > 1]
    rng = generator(settings.seed, "zoo", "language", "sentence")
    _seed(settings.seed, "sentence")
    config = _bert(len(tokenizer), num_hidden_layers=1, intermediate_size=WIDTH)
    model = BertModel(config, add_pooling_layer=False).train()

    def loss(step: int) -> Tensor:
        chosen = rng.choice(len(rows), min(settings.batch_size, len(rows)), replace=False)
        pairs = [[rows[i][j] for j in rng.choice(len(rows[i]), 2, replace=False)] for i in chosen]
        first, second = (
            embed(model, torch.from_numpy(pad(side, PAD))) for side in zip(*pairs, strict=True)
        )
        sims = first @ second.T / settings.temperature
        truth = torch.arange(len(sims))
        return (functional.cross_entropy(sims, truth) + functional.cross_entropy(sims.T, truth)) / 2

    fit(model, loss, settings, settings.sentence_steps, "sentences")
    return model.eval()


def embed(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Return unit sentence embeddings (rows, dim): the mean over a row's tokens, normalised."""
    from torch.nn import functional

    shown = (ids != PAD)[..., None]
    states = model(ids, attention_mask=shown[..., 0]).last_hidden_state
    return functional.normalize((states * shown).sum(1) / shown.sum(1), dim=-1)


# Their evaluation.

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

    end = SPECIAL.index(END)
    rows = sorted(([end, *row] for row in encode(tokenizer, texts)), key=len)
    total, count = 0.0, 0
    for start in range(0, len(rows), ROWS):
        ids = torch.from_numpy(pad(rows[start : start + ROWS], PAD))
        shown, targets = ids[:, :-1], ids[:, 1:]
        with torch.inference_mode():
            logits = model(shown, attention_mask=(shown != PAD).long()).logits
        predicted = targets != PAD
        total += float(
            functional.cross_entropy(logits[predicted], targets[predicted], reduction="sum")
        )
        count += int(predicted.sum())
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


def main(argv: list[str]) -> int:
    """Train all three and write them with one ``card.json``."""
    settings = command.read(LanguageSettings, argv)
    with fresh_folder(settings.out) as folder:
        groups, held_out = read(Path(settings.captions), settings.held_out, settings.seed)
        texts = [text for group in groups for text in group]
        unseen = [text for group in held_out for text in group]
        words = vocabulary(texts, settings.min_count)
        bert, gpt = build_tokenizer(words), build_tokenizer(words, causal=True)
        models: dict[str, Any] = {}
        seconds = {}
        trainings: dict[str, tuple[Callable[..., PreTrainedModel], Any, Sequence[Any]]] = {
            "masked": (train_masked, bert, texts),
            "causal": (train_causal, gpt, texts),
            "sentence": (train_sentence, bert, groups),
        }
        for name, (train, tokenizer, given) in trainings.items():
            # Processor time, as others may share the core.
            started = time.process_time()
            models[name] = train(settings, tokenizer, given)
            seconds[name] = round(time.process_time() - started, 1)
            save_half(models[name], tokenizer, folder / name)
        facts = {
            "credit": CREDIT,
            "metrics": {
                **evaluate_masked(models["masked"], bert, unseen),
                **evaluate_causal(models["causal"], gpt, unseen),
                **evaluate_sentence(models["sentence"], bert, held_out),
            },
            "words": len(words),
            "captions": {"training": len(texts), "held_out": len(unseen)},
            "parameters": {name: count_parameters(model) for name, model in models.items()},
            "processor_seconds": seconds,
        }
        command.write_card(folder, "language", settings, facts)
    return 0
