"""Folding against maps written down, and alignments against what they should be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.imaging.cross_attention import (
    CrossAttention,
    Tokens,
    find_phrase,
    refine_alignment,
    replace_matrix,
    tokenize,
)
from tests.imaging import tiny
from tests.imaging.reference_mapper import refinement_mapper
from tests.imaging.test_sharing import STEPS, close, editor, expected, job
from tests.properties import examples

SIZE = 77


@pytest.fixture(scope="module")
def words():
    tokenizer = tiny.tokenizer()
    return lambda text: tokenize(tokenizer, text)


def edited_map(base_map, own_map, kind, base, edited, factor):
    """Prompt-to-prompt's edit of one row's map (heads, pixels, 77), word by word.

    ``base`` and ``edited`` list the tokens of each word; the alignment is written out by hand.
    """
    out = own_map.clone()
    if kind == "replace":
        out = torch.zeros_like(own_map)
        out[..., 0] = base_map[..., 0]
        for (_, old), (_, new) in zip(base, edited, strict=True):
            for at, j in enumerate(new):
                if len(old) == len(new):
                    out[..., j] = base_map[..., old[at]]
                else:
                    out[..., j] = sum(base_map[..., i] for i in old) / len(new)
        start, at = base[-1][1][-1] + 1, edited[-1][1][-1] + 1
    else:
        known = dict(base)
        out[..., 0] = base_map[..., 0]
        for word, new in edited:
            for at, j in enumerate(new):
                if word in known:
                    out[..., j] = base_map[..., known[word][at]]
        start, at = base[-1][1][-1] + 1, edited[-1][1][-1] + 1
        # End of text is aligned as a word is; padding by position if the edit is the longer one.
        out[..., at] = base_map[..., start]
        start, at = max(start, at) + 1, at + 1
    for i, j in zip(range(start, SIZE), range(at, SIZE), strict=False):
        out[..., j] = base_map[..., i]
    for word, new in edited:
        for j in new:
            out[..., j] *= factor.get(word, 1)
    return out


def layout(*words):
    """[("ball", 1), ("cub", 3)] to words with token positions, after the start of text."""
    at, placed = 1, []
    for word, count in words:
        placed.append((word, list(range(at, at + count))))
        at += count
    return placed


CASES = {
    # "zoo" and "fox" fall into letters: 3 tokens each, known words are 1.
    "equal": (
        "a red ball on sand", "a red cube on sand",
        layout(("a", 1), ("red", 1), ("ball", 1), ("on", 1), ("sand", 1)),
        layout(("a", 1), ("red", 1), ("cube", 1), ("on", 1), ("sand", 1)), "cube",
    ),
    "longer edit": (
        "a red ball on sand", "a red zoo on sand",
        layout(("a", 1), ("red", 1), ("ball", 1), ("on", 1), ("sand", 1)),
        layout(("a", 1), ("red", 1), ("zoo", 3), ("on", 1), ("sand", 1)), "zoo",
    ),
    "longer base": (
        "a red zoo on sand", "a red ball on sand",
        layout(("a", 1), ("red", 1), ("zoo", 3), ("on", 1), ("sand", 1)),
        layout(("a", 1), ("red", 1), ("ball", 1), ("on", 1), ("sand", 1)), "ball",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["replace", "refine"])
@pytest.mark.parametrize("case", CASES)
def test_folded_values_equal_edited_maps(pipeline, kind, case):
    base, edited, base_words, edited_words, new = CASES[case]
    set_job = job((base, edited, base), p=0.4)
    until = int(0.5 * (STEPS + 1))

    def edit(step, maps, is_cross):
        half = len(maps) // 2
        if not is_cross:
            if step >= int(set_job.draw.p * STEPS):
                return maps
            shared = maps[half : half + 1].expand_as(maps[half:])
            return torch.cat([maps[:half], shared])
        if step >= until:
            return maps
        first, second = (
            edited_map(maps[half], maps[half + row], kind, base_words, said, {new: 2.0})
            for row, said in ((1, edited_words), (2, base_words))
        )
        return torch.cat([maps[: half + 1], first[None], second[None]])

    # A weight on the changed word; the third image's text is the base's: nothing changed there.
    control = CrossAttention(kind, steps=0.5, edited_weight=2.0)
    for max_rows in (64, 4):
        (latents,) = editor(pipeline, mode="p2p", cross=control, max_rows=max_rows).sample(
            [set_job]
        )
        close(latents, expected(pipeline, set_job, edit=edit))


def test_replace_takes_the_right_columns_behind_an_unequal_edit(words):
    """The reference shifts all words behind it (its mapper's last branch)."""
    base, edited = words("a red zoo on the sand"), words("a red ball on the sand")
    matrix = replace_matrix(base, edited)
    for phrase in ("on", "the", "sand", "red"):
        (i,), (j,) = find_phrase(base, phrase), find_phrase(edited, phrase)
        assert matrix[i, j] == 1
        assert matrix[i].sum() == matrix[:, j].sum() == 1
    assert matrix[base.length - 1, edited.length - 1] == 1
    # No attention is lost where the base is the longer text.
    assert np.allclose(matrix.sum(1), 1)


def test_words_are_found_by_characters(words):
    tokens = words("The Red ball, in front of a zoo.")
    assert find_phrase(tokens, "red") == [2]
    assert find_phrase(tokens, "in front of") == [5, 6, 7]
    assert len(find_phrase(tokens, "zoo")) == 3
    with pytest.raises(UserError, match="cube"):
        find_phrase(tokens, "cube")
    with pytest.raises(UserError, match="'all'"):
        find_phrase(tokens, "all")


def test_schedule_counts_as_the_reference_does(words):
    edited = words("a red ball on the sand")
    assert CrossAttention(steps=0.8).schedule(edited, 50).sum(0).tolist() == [40] * SIZE
    # An integer, a word of its own, bounds on both sides; what was given is not changed.
    steps = {"red": (0.5, 1), "ball": 0}
    control = CrossAttention(steps=steps)
    table = control.schedule(edited, 10)
    assert table[:, 2].tolist() == [False] * 5 + [True] * 5
    assert not table[:, 3].any()
    assert table[:, 1].all()
    assert steps == {"red": (0.5, 1), "ball": 0}


def test_what_cannot_be_aligned_or_read_is_refused(words):
    with pytest.raises(UserError, match="kind: refine"):
        replace_matrix(words("a dog"), words("a hot dog"))
    with pytest.raises(UserError, match="replace, refine"):
        CrossAttention(kind="blend")
    for steps in (1.5, {"red": (0.8, 0.2)}):
        with pytest.raises(UserError, match="between 0 and 1"):
            CrossAttention(steps=steps)


@pytest.mark.parametrize(
    ("base", "edited", "kind"),
    [
        ("a red ball on the sand", "a red cube on the sand", "replace"),
        ("a red ball on the sand", "a blue cube on the sand", "refine"),  # one run of two words
        ("a red ball on the sand", "a blue ball on the grass", "refine"),  # two words apart
        ("a ball on the sand", "a red ball on the sand", "refine"),
        ("a red ball on the sand", "a ball on the sand", "refine"),
        ("a red ball", "a hot dog", "refine"),
    ],
)
def test_auto_replaces_one_word_by_one_and_refines_otherwise(words, base, edited, kind):
    pair = words(base), words(edited)
    active = np.ones(SIZE, dtype=bool)
    matrices = CrossAttention("auto", edited_weight=2.0).matrices(*pair, active)
    assert np.array_equal(matrices, CrossAttention(kind, edited_weight=2.0).matrices(*pair, active))


# The alignment of *refine* against the released mapper: random tokens and real captions.

FEW = 24
START, END = 98, 99
REAL = Path(__file__).parents[1] / "zoo" / "held_out_captions.json"
IDS = st.lists(st.integers(0, 5), max_size=FEW - 2)


def tokens(ids, size=FEW):
    """Return token ids between start and end of text, padded as CLIP pads: with end of text."""
    real = (START, *ids, END)
    return Tokens("", (*real, *(END,) * (size - len(real))), ((0, 0),) * size, len(real))


def released(base, edited):
    """Return the released mapper and alphas of two texts."""
    ids = (text.ids[: text.length] for text in (base, edited))
    return refinement_mapper(*ids, len(edited.ids))


def as_matrices(base, edited):
    """Return what the released mapper and alphas do to a base's and an edit's own map."""
    mapper, alphas = released(base, edited)
    taken, kept = (np.zeros((len(mapper), len(mapper))) for _ in range(2))
    for j, (i, alpha) in enumerate(zip(mapper, alphas, strict=True)):
        taken[i, j], kept[j, j] = alpha, 1 - alpha
    return np.stack([taken, kept])


def check_alignment(base, edited):
    """Hold ours against the released mapper, and its padding against what is promised."""
    alignment = refine_alignment(base, edited)
    mapper, alphas = released(base, edited)
    real = edited.length
    assert alignment[:real].tolist() == mapper[:real]
    assert (alignment >= 0).tolist()[:real] == [alpha == 1 for alpha in alphas[:real]]
    if edited.length >= base.length:
        assert alignment.tolist() == mapper
        assert (alignment >= 0).tolist() == [alpha == 1 for alpha in alphas]
        return
    # The released code takes real words of the base for the edit's first places of padding.
    for place, source in enumerate(alignment[real:].tolist()):
        from_end = base.length + place
        assert source == (from_end if from_end < len(base.ids) else -1)


@settings(max_examples=examples(300), deadline=None)
@given(IDS, IDS)
def test_random_tokens_are_aligned_as_the_released_mapper_aligns_them(first, second):
    """Padding was counted from the end of each text, also where the edit is the longer one."""
    check_alignment(*(tokens(ids) for ids in sorted((first, second), key=len)))
    check_alignment(tokens(first), tokens(second))


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
            matrices = CrossAttention("refine").matrices(base, edited, np.ones(77, dtype=bool))
            assert np.array_equal(matrices, as_matrices(base, edited))
    assert longer > 2 * len(scenes)
