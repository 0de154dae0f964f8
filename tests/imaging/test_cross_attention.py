"""Folding against maps written down, and alignments against what they should be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.imaging.cross_attention import (
    CrossAttention,
    find_phrase,
    replace_matrix,
    tokenize,
)
from tests.imaging import tiny
from tests.imaging.test_sharing import STEPS, close, editor, expected, job

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
    at, found = 1, []
    for word, count in words:
        found.append((word, list(range(at, at + count))))
        at += count
    return found


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
    one = job((base, edited, base), p=0.4)
    until = int(0.5 * (STEPS + 1))

    def edit(step, maps, is_cross):
        half = len(maps) // 2
        if not is_cross:
            if step >= int(one.draw.p * STEPS):
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
        (found,) = editor(pipeline, mode="p2p", cross=control, max_rows=max_rows).sample([one])
        close(found, expected(pipeline, one, edit=edit))


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
    found = CrossAttention("auto", edited_weight=2.0).matrices(*pair, active)
    assert np.array_equal(found, CrossAttention(kind, edited_weight=2.0).matrices(*pair, active))
