"""Trees of prefixes against lists of tokens, and a model's perplexities with and without them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.editing.causal_lm import CausalLM, stack, trees
from tests.editing import tiny
from tests.properties import examples

TEXTS = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=7).map(lambda ids: [9, *ids]), max_size=12
)


@settings(max_examples=examples(200), deadline=None)
@given(TEXTS, st.integers(0, 20))
def test_each_text_is_a_path_of_distinct_prefixes(texts, nodes):
    found = list(trees(texts, nodes))
    assert sorted(i for tree in found for i in tree.texts.tolist()) == list(range(len(texts)))
    for tree in found:
        prefixes = {tuple(texts[i][: n + 1]) for i in tree.texts for n in range(len(texts[i]))}
        assert len(tree) == len(prefixes)
        for i, path in zip(tree.texts, tree.paths, strict=True):
            path = path[path >= 0]
            assert tree.tokens[path].tolist() == texts[i]
            assert tree.depths[path].tolist() == list(range(len(path)))
            assert tree.parents[path].tolist() == [-1, *path[:-1].tolist()]


@settings(max_examples=examples(200), deadline=None)
@given(TEXTS, st.integers(1, 20))
def test_no_tree_is_larger_than_asked_unless_one_text_is(texts, nodes):
    for tree in trees(texts, nodes):
        longest = max(len(texts[i]) for i in tree.texts)
        assert len(tree) <= max(nodes, longest)


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


def test_shared_prefixes_change_no_perplexity(tmp_path):
    folder = str(tiny.save_gpt2(tmp_path / "gpt2"))
    texts = [f"{text[:n]}{end}" for text in tiny.CAPTIONS for n in (5, 9) for end in "abc"]
    one, other = (CausalLM(folder, dtype="float64", share_prefixes=s) for s in (True, False))
    assert one.perplexity(texts) == pytest.approx(other.perplexity(texts), rel=1e-9)
    assert one.perplexity([]).shape == (0,)


def test_a_model_that_mixes_branches_is_refused(tmp_path):
    from transformers import BloomConfig, BloomForCausalLM

    tokenizer = tiny.gpt2_tokenizer()
    config = BloomConfig(vocab_size=len(tokenizer), hidden_size=16, n_layer=1, n_head=2)
    folder = tiny.save_as(BloomForCausalLM, config, tokenizer, tmp_path / "bloom")
    with pytest.raises(UserError, match="share_prefixes=false"):
        CausalLM(str(folder)).perplexity(tiny.CAPTIONS)
    alone = CausalLM(str(folder), share_prefixes=False).perplexity(tiny.CAPTIONS)
    assert np.isfinite(alone).all()
