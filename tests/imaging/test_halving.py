"""Jobs given up on the way: those that are left end as they would alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import Draw
from cfaug.imaging.cross_attention import CrossAttention
from cfaug.imaging.tree import find_parents, plan
from tests.imaging.test_sharing import PAIR, SET, close, editor, job
from tests.records import image_job

FAMILY = [job(p=p) for p in (0.1, 0.4, 0.7, 0.95)]
JOBS = [*FAMILY, job(SET, seed=2, p=0.3), job(SET, seed=2, p=0.8), job(seed=3, p=0.0)]


@st.composite
def halvings(draw):
    """Jobs of a few families, and some of them to go on with."""
    some = st.tuples(st.integers(0, 2), st.sampled_from([PAIR, SET]), st.floats(0, 1))
    jobs = [
        image_job(texts, Draw(seed, p, 7.5))
        for seed, texts, p in draw(st.lists(some, min_size=1, max_size=8))
    ]
    numbers = st.sets(st.integers(0, len(jobs) - 1), min_size=1)
    return jobs, sorted(draw(numbers)), draw(st.integers(1, 11))


@given(halvings())
@settings(deadline=None)
def test_a_latent_goes_on_from_one_with_its_own_past(halving) -> None:
    """A past is a text, a family, and during how many steps attention was shared."""
    jobs, kept, step = halving
    old, new = plan(jobs, 12), plan([jobs[number] for number in kept], 12)

    def past(tree, latent):
        family = int(tree.family[latent])
        words = tree.texts[tree.text[tree.base[latent]]], tree.texts[tree.text[latent]]
        shared = min(int(tree.shared[latent]), step)
        return words, int(tree.image[latent]), tree.seeds[family], tree.cfg[family], shared

    found = find_parents(old, new, kept, step)
    assert found.shape == (len(new),)
    assert (old.birth[found] < step).all()
    for latent, before in enumerate(found.tolist()):
        assert past(old, before) == past(new, latent)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("survivors", "cross"),
    [
        ([[0, 1, 2, 4, 6], [1, 4]], None),  # the trunk of a family goes first
        ([list(range(len(JOBS))), [0]], None),  # nobody goes, then all but one
        ([[3, 5, 6], [5]], CrossAttention("replace")),
    ],
)
def test_those_that_are_left_end_as_they_would_alone(pipeline, survivors, cross) -> None:
    one = editor(pipeline, steps=9, cross=cross)
    jobs = JOBS if cross is None else [job(PAIR, seed=k, p=0.2 + 0.1 * k) for k in range(7)]
    asked = []

    def keep(numbers, guesses):
        asked.append(list(numbers))
        assert [len(guess) for guess in guesses] == [len(jobs[n].texts) for n in numbers]
        return survivors[len(asked) - 1]

    final = one.sample_halving(jobs, 2, keep)
    assert asked == [list(range(len(jobs))), survivors[0]]
    assert list(final) == survivors[1]
    for number, latents in final.items():
        close(latents, one.sample([jobs[number]])[0])


@pytest.mark.slow
def test_guesses_are_those_of_single_runs_and_end_in_the_image(pipeline) -> None:
    def guesses_of(jobs, rounds, steps):
        seen = []

        def keep(numbers, guesses):
            seen.append(guesses)
            return numbers

        editor(pipeline, steps=steps).sample_halving(jobs, rounds, keep)
        return seen

    together = guesses_of(JOBS, 3, 8)
    for number, single in enumerate(JOBS[::2]):
        alone = guesses_of([single], 3, 8)
        for ours, theirs in zip(together, alone, strict=True):
            close(ours[2 * number], theirs[0])
    # Without noise a guess approaches the image step by step, and the last one is the image.
    one = editor(pipeline, steps=8, eta=0.0)
    distances = []

    def look(numbers, guesses):
        distances.append((guesses[0] - wanted).abs().mean().item())
        return numbers

    wanted = one.sample([JOBS[2]])[0]
    one.sample_halving([JOBS[2]], 7, look)
    assert len(distances) == 7
    assert distances[-1] < distances[0]
    tree = plan([JOBS[2]], 8)
    texts = torch.stack([one._embed(text) for text in ("", *tree.texts)])
    with torch.inference_mode():
        begun = one._sampler.begin(tree, texts.device)
        latents, guess = one._sampler.denoise(tree, (texts,), None, begun, range(8))
    close(guess, latents)
    assert np.isfinite(distances).all()


def test_more_rounds_than_steps_are_refused(pipeline) -> None:
    with pytest.raises(UserError, match=r"image_editor\.steps=5"):
        editor(pipeline).sample_halving(JOBS, 5, lambda numbers, _: numbers)
    assert editor(pipeline).sample_halving([], 1, lambda numbers, _: numbers) == {}
