"""The tiny language models: shipped weights as their card says, a command that rebuilds."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.types import Example
from cfaug.core.weights import resolve
from cfaug.editing.causal_lm import CausalLM
from cfaug.editing.filters import LowestPerplexity, PartOfSpeech, SimilarityBand
from cfaug.editing.language_models import MaskedLM, SentenceEncoder
from cfaug.editing.sentence import TextBlobTagger
from cfaug.editing.substitution import Substitution
from tests.zoo.cards import card
from zoo import language

SHIPPED = resolve("zoo:language")
PARTS = ("masked", "causal", "sentence")

# Forty of the 250 images whose captions training never saw; the file says whose they are.
SCENES: list[list[str]] = json.loads(
    (Path(__file__).parent / "held_out_captions.json").read_text(encoding="utf-8")
)["scenes"]
TEXTS = [text for scene in SCENES for text in scene]


def test_they_are_in_half_precision_and_say_how_they_were_made() -> None:
    from safetensors.torch import load_file

    weights = [SHIPPED / part / "model.safetensors" for part in PARTS]
    assert {t.dtype for file in weights for t in load_file(file).values()} == {torch.float16}
    shipped = card("language")
    assert "CC BY 4.0" in shipped["credit"]
    assert sum(shipped["processor_seconds"].values()) < 15 * 60
    assert shipped["metrics"]["perplexity"] < 25


@pytest.mark.slow
def test_what_they_know_of_captions_they_never_saw_is_what_the_card_says() -> None:
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, BertModel

    metrics = card("language")["metrics"]
    words, gpt = (AutoTokenizer.from_pretrained(SHIPPED / part) for part in ("masked", "causal"))
    masked = AutoModelForMaskedLM.from_pretrained(SHIPPED / "masked", dtype=torch.float32).eval()
    measured = language.evaluate_masked(masked, words, TEXTS)
    # A sixth of the card's captions: two standard errors are about 0.02.
    assert measured["masked_acc1"] == pytest.approx(metrics["masked_acc1"], abs=0.04)
    assert measured["masked_acc10"] == pytest.approx(metrics["masked_acc10"], abs=0.04)
    causal = AutoModelForCausalLM.from_pretrained(SHIPPED / "causal", dtype=torch.float32).eval()
    measured = language.evaluate_causal(causal, gpt, TEXTS)
    assert measured["perplexity"] == pytest.approx(metrics["perplexity"], rel=0.15)
    sentence = BertModel.from_pretrained(
        SHIPPED / "sentence", dtype=torch.float32, add_pooling_layer=False
    ).eval()
    measured = language.evaluate_sentence(sentence, words, SCENES)
    assert measured["sentence_positive"] == pytest.approx(metrics["sentence_positive"], abs=0.05)
    assert measured["sentence_negative"] == pytest.approx(metrics["sentence_negative"], abs=0.05)
    # Among fewer captions the right one is easier to find.
    assert measured["sentence_recall1"] > metrics["sentence_recall1"]


@pytest.mark.slow
def test_they_edit_captions_as_the_recipe_asks() -> None:
    """The whole of zoo=captions with the paper's own top 10 and band."""
    tagger = TextBlobTagger()
    editor = Substitution(
        tagger,
        MaskedLM("zoo:language/masked", dtype="float64"),
        LowestPerplexity(CausalLM("zoo:language/causal", dtype="float64")),
        [
            PartOfSpeech(tagger),
            SimilarityBand(SentenceEncoder("zoo:language/sentence", dtype="float64")),
        ],
    )
    captions = [Example(f"k{i}", "g", (text,)) for i, text in enumerate(TEXTS)]
    edited = editor.edit(captions)
    ended = Counter(result.rejected_by for result in edited)
    assert ended[None] >= 0.9 * len(TEXTS), ended
    for result in edited:
        if result.proposals:
            assert 0.8 < result.proposals[0].extra["edits"][0]["similarity"] < 0.91
    # What became of a caption is its own affair, to the last digit.
    assert [editor.edit([caption])[0] for caption in captions[:4]] == edited[:4]
    assert all("sha256:" in editor.describe()[m] for m in ("masked_lm", "sentence_encoder"))


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("corpus") / "captions.jsonl"
    rows = [
        {"image_id": image, "caption": f" {text}\n"}
        for image, scene in enumerate(SCENES[:6])
        for text in scene
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.slow
def test_the_command_rebuilds_the_same_weights(captions: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    arguments = [f"captions={captions}", "seed=5", "held_out=0.4", "min_count=1", "batch_size=4"]
    arguments += ["masked_epochs=1", "causal_epochs=1", "sentence_steps=2"]
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        assert language.main([*arguments, f"out={folder}"]) == 0
    for part in PARTS:
        first, second = (load_file(folder / part / "model.safetensors") for folder in folders)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first)
    cards = [json.loads((folder / "card.json").read_text()) for folder in folders]
    assert cards[0]["metrics"] == cards[1]["metrics"]
    assert str(captions) not in (folders[0] / "card.json").read_text()
    with pytest.raises(UserError, match="already"):
        language.main([*arguments, f"out={folders[0]}"])


def test_no_image_is_trained_on_and_tested_on(captions: Path) -> None:
    halves = language.read(captions, 0.5, 1)
    seen, unseen = ({t for group in half for t in group} for half in halves)
    assert not seen & unseen
    assert seen | unseen == {text for scene in SCENES[:6] for text in scene}
    assert len(halves[1]) == 3
    assert language.read(captions, 0.5, 1) == halves
    assert language.read(captions, 0.5, 2) != halves


def test_batches_hold_every_row_once_and_rows_of_like_length() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 30, 1000).tolist()
    batches = list(language.batches(lengths, 16, rng))
    assert sorted(row for batch in batches for row in batch.tolist()) == list(range(1000))
    padded = sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)
    assert padded < 1.15 * sum(lengths)


def test_masks_hide_words_only_and_at_least_one() -> None:
    pad = language.PAD
    ids = np.array([[2, 9, 8, 3, pad], [2, 7, 3, pad, pad]] * 50)
    shown, targets = (t.numpy() for t in language.mask(ids, 0.2, np.random.default_rng(0)))
    hidden = shown == language.MASK
    assert hidden.any(1).all()
    assert (ids[hidden] > 5).all()
    assert (targets[hidden] == ids[hidden]).all()
    assert (targets[~hidden] == language.IGNORED).all()
    assert (shown[~hidden] == ids[~hidden]).all()


def test_captions_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        language.read(tmp_path / "none", 0.1, 0)
    (tmp_path / "bad.jsonl").write_text('{"image_id": 1, "caption": "a"}\n{"caption": "b"}\n')
    with pytest.raises(UserError, match=r"bad\.jsonl, line 2"):
        language.read(tmp_path / "bad.jsonl", 0.1, 0)
