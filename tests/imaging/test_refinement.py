"""The alignment of *refine* against the released mapper: random tokens and real captions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.imaging.cross_attention import CrossAttention, Tokens, refine_alignment, tokenize
from tests.imaging import tiny
from tests.imaging.reference_mapper import refinement_mapper
from tests.imaging.test_inversion import NEXT, STEPS, Slow, control_maps, draw
from tests.imaging.test_photo_editing import editor, job, photo
from tests.imaging.test_sharing import close
from tests.properties import examples

SIZE = 24
START, END = 98, 99
REAL = Path(__file__).parents[1] / "shapescapes" / "zoo" / "held_out_captions.json"

words = st.lists(st.integers(0, 5), max_size=SIZE - 2)


def tokens(ids, size=SIZE):
    """Return token ids between start and end of text, padded as CLIP pads: with end of text."""
    real = (START, *ids, END)
    return Tokens("", (*real, *(END,) * (size - len(real))), ((0, 0),) * size, len(real))


def released(base, edited):
    """Return the released mapper and alphas of two texts."""
    ids = (one.ids[: one.length] for one in (base, edited))
    return refinement_mapper(*ids, len(edited.ids))


def as_matrices(base, edited):
    """Return what the released mapper and alphas do to a base's and an edit's own map."""
    mapper, alphas = released(base, edited)
    taken, own = (np.zeros((len(mapper), len(mapper))) for _ in range(2))
    for j, (i, alpha) in enumerate(zip(mapper, alphas, strict=True)):
        taken[i, j], own[j, j] = alpha, 1 - alpha
    return np.stack([taken, own])


def check_alignment(base, edited):
    """Hold ours against the released mapper, and its padding against what is promised."""
    found = refine_alignment(base, edited)
    mapper, alphas = released(base, edited)
    real = edited.length
    assert found[:real].tolist() == mapper[:real]
    assert (found >= 0).tolist()[:real] == [alpha == 1 for alpha in alphas[:real]]
    if edited.length >= base.length:
        assert found.tolist() == mapper
        assert (found >= 0).tolist() == [alpha == 1 for alpha in alphas]
        return
    # The released code takes real words of the base for the edit's first places of padding.
    for place, source in enumerate(found[real:].tolist()):
        from_end = base.length + place
        assert source == (from_end if from_end < len(base.ids) else -1)


@settings(max_examples=examples(300), deadline=None)
@given(words, words)
def test_random_tokens_are_aligned_as_the_released_mapper_aligns_them(first, second):
    """Padding was counted from the end of each text, also where the edit is the longer one."""
    check_alignment(*(tokens(ids) for ids in sorted((first, second), key=len)))
    check_alignment(tokens(first), tokens(second))


@settings(max_examples=examples(100), deadline=None)
@given(words, st.integers(0, SIZE - 2), st.lists(st.integers(0, 9), max_size=4))
def test_an_insertion_into_random_tokens_is_aligned_as_released(ids, at, new):
    edited = [*ids[:at], *new, *ids[at:]][: SIZE - 2]
    check_alignment(tokens(ids), tokens(edited))


@pytest.fixture(scope="module")
def clip_words():
    """CLIP's own vocabulary, from open_clip's package."""
    from open_clip.tokenizer import SimpleTokenizer
    from transformers import CLIPTokenizer

    known = SimpleTokenizer()
    special = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    vocabulary = {special.get(word, word): i for word, i in known.encoder.items()}
    merges = [pair for pair, _ in sorted(known.bpe_ranks.items(), key=lambda item: item[1])]
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=77)
    return lambda text: tokenize(tokenizer, text)


def edits(caption):
    """Return a caption's edits of every kind: longer, as long, and shorter."""
    said = caption.rstrip(".").split()
    middle = len(said) // 2
    return [
        f"{caption.rstrip('.')} during a snowstorm at sunset.",
        f"A watercolour painting of {caption}",
        " ".join([*said[:middle], "weather-beaten", *said[middle:]]),
        " ".join([*said[:middle], "rhinoceros", *said[middle + 1 :]]),
        " ".join([*said[:middle], *said[middle + 1 :]]),
        " ".join(said[:middle]),
    ]


@pytest.mark.slow
def test_edits_of_real_captions_are_aligned_as_released(clip_words):
    scenes = json.loads(REAL.read_text(encoding="utf-8"))["scenes"]
    longer = 0
    for caption, other, *_ in scenes:
        base = clip_words(caption)
        for text in (*edits(caption), other):
            edited = clip_words(text)
            check_alignment(base, edited)
            if edited.length < base.length:
                continue
            longer += edited.length > base.length
            # The whole control of a step: what is taken of the base's map and of the edit's own.
            found = CrossAttention("refine").matrices(base, edited, np.ones(77, dtype=bool))
            assert np.array_equal(found, as_matrices(base, edited))
    assert longer > 2 * len(scenes)


@torch.no_grad()
@pytest.mark.slow
def test_edits_of_photos_equal_those_of_the_released_mapper(calm_pipeline) -> None:
    """In float64; edits with more tokens than the caption were .18 to .87 apart."""
    base, text = "a red ball on sand", "a red zoo on the sand"
    mapper, alphas = released(*(tokenize(tiny.tokenizer(), one) for one in (base, text)))
    share = torch.tensor(alphas, dtype=torch.float64)

    def edit(source, own):
        return source[..., mapper] * share + own * (1 - share)

    slow = Slow(editor(calm_pipeline), photo(3), base)
    until = int(0.5 * (STEPS + 1))
    wanted = slow.direct(text, 7.5, control_maps(0.4, until=until, edit=edit))
    one = editor(calm_pipeline, cross=CrossAttention("refine", steps=0.5), inversion=NEXT)
    tree, latents, _ = draw(one, [job(photo(3), (base, text), p=0.4)])
    close(latents[tree.jobs[0][1]], wanted[1], 1e-12)
