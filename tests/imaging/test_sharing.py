"""Shared attention against maps written down, in float64, and jobs given up on the way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import Draw
from cfaug.imaging import schedules
from cfaug.imaging.cross_attention import CrossAttention
from cfaug.imaging.model import DiffusionWeights
from cfaug.imaging.prompt_to_prompt import PromptToPrompt
from cfaug.imaging.tree import find_parents, plan
from tests.imaging import reference, tiny
from tests.records import image_job

PAIR = ("a red ball on the beach", "a red cube on the beach")
SET = (*PAIR, "a red tree on the beach", "a red star on the sand")
STEPS = 5


def editor(folder, dtype="fp64", **changes):
    model = DiffusionWeights(str(folder), dtype=dtype, device="cpu")
    return PromptToPrompt(model, **{"steps": STEPS, **changes})


def job(texts=PAIR, seed=1, p=0.5, cfg=7.5):
    return image_job(texts, Draw(seed, p, cfg))


def expected(folder, job, *, independent=False, steps=STEPS, edit=None):
    """The reference's candidate, with the noise that the candidate's seed stands for."""
    loaded = DiffusionWeights(str(folder), dtype="fp64", device="cpu").load()
    shape = (4, tiny.SAMPLE, tiny.SAMPLE)
    noises = [
        [
            schedules.draw(job.draw.seed, step, image * independent, shape)
            for image in range(len(job.texts))
        ]
        for step in (schedules.INITIAL, *range(steps - 1))
    ]
    with torch.inference_mode():
        return reference.sample(
            loaded.unet,
            loaded.scheduler,
            torch.stack([loaded.encode(text) for text in job.texts]),
            loaded.encode(""),
            job.draw.p,
            job.draw.cfg,
            torch.from_numpy(np.array(noises)).double(),
            steps,
            edit,
            loaded.scheduler["prediction_type"],
        )


def close(latents, wanted, tolerance=1e-10):
    assert latents.shape == wanted.shape
    assert (latents - wanted).abs().max() <= tolerance * max(1, wanted.abs().max())


@pytest.mark.slow
def test_pairs_and_sets_of_mixed_p_equal_maps_written_down(pipeline):
    jobs = [
        job(p=0.3), job(SET, seed=2, p=0.8, cfg=11), job(seed=3, p=0.0), job(SET, seed=4, p=1.0),
    ]  # fmt: skip
    for max_rows in (64, 6):
        drawn = editor(pipeline, max_rows=max_rows).sample(jobs)
        for set_job, latents in zip(jobs, drawn, strict=True):
            close(latents, expected(pipeline, set_job))


def test_v_prediction(velocity_pipeline):
    pair_job = job(p=0.6, cfg=2)
    (latents,) = editor(velocity_pipeline).sample([pair_job])
    close(latents, expected(velocity_pipeline, pair_job))


@pytest.mark.slow
def test_independent_noise_is_another_noise_for_every_edited_image(pipeline):
    apart = editor(pipeline, noise="independent")
    (independent,) = apart.sample([job(SET, p=0.5)])
    close(independent, expected(pipeline, job(SET, p=0.5), independent=True))
    (shared,) = editor(pipeline).sample([job(SET, p=0.5)])
    assert torch.equal(independent[0], shared[0])
    assert not torch.equal(independent[1], shared[1])


@pytest.mark.slow
def test_prompt_to_prompt_shares_with_text_only_and_small_maps_only(pipeline):
    set_job, limit = job(SET, p=0.5), 16

    def edit(step, maps, is_cross):
        shared = step < int(set_job.draw.p * STEPS) and not is_cross
        if not shared or maps.shape[2] > limit:
            return maps
        half = len(maps) // 2
        return torch.cat([maps[:half], maps[half : half + 1].expand_as(maps[half:])])

    few_rows = editor(pipeline, mode="p2p", self_max_tokens=limit, max_rows=2)
    close(few_rows.sample([set_job])[0], expected(pipeline, set_job, edit=edit))


@pytest.mark.slow
def test_the_base_does_not_depend_on_p_and_rows_in_any_order_may_be_padded(pipeline):
    jobs = [job(p=p, seed=seed) for seed in (1, 2) for p in (0.1, 0.5, 0.9)] + [job(SET, seed=3)]
    drawn = editor(pipeline).sample(jobs)
    for i in (1, 2):
        assert torch.equal(drawn[0][0], drawn[i][0])
    order = [4, 6, 0, 5, 2, 3, 1]
    padded = editor(pipeline, row_multiple=16).sample([jobs[i] for i in order])
    for i, latents in zip(order, padded, strict=True):
        close(latents, drawn[i])


@pytest.mark.slow
def test_a_batch_is_its_single_runs_and_a_tree_its_independent_runs(pipeline):
    """In the precision that is used: float32, final latents, 1e-5."""
    jobs = [job(p=p, seed=seed) for seed in (1, 2) for p in (0.15, 0.4, 0.95)]
    image_editor = editor(pipeline, "fp32", steps=10)
    alone = [image_editor.sample([single])[0] for single in jobs]
    for batch in (
        image_editor.sample(jobs),
        editor(pipeline, "fp32", steps=10, max_rows=6).sample(jobs),
    ):
        for wanted, latents in zip(alone, batch, strict=True):
            assert latents.dtype == torch.float32
            close(latents, wanted, tolerance=1e-5)


@pytest.mark.slow
def test_a_single_text_is_drawn_as_a_base(pipeline):
    image_editor = editor(pipeline)
    alone, again, pair = image_editor.sample([job(PAIR[:1]), job(PAIR[:1], p=0.2), job(PAIR)])
    assert alone.shape[0] == 1
    assert torch.equal(alone, again)  # p is about edits
    close(alone, expected(pipeline, job(PAIR))[:1])
    close(alone, pair[:1])
    [images] = image_editor.edit([job(PAIR[:1])])
    assert images.shown == (0,)
    assert images.images[0].shape == (2 * tiny.SAMPLE, 2 * tiny.SAMPLE, 3)


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

    parents = find_parents(old, new, kept, step)
    assert parents.shape == (len(new),)
    assert (old.birth[parents] < step).all()
    for latent, before in enumerate(parents.tolist()):
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
    image_editor = editor(pipeline, steps=9, cross=cross)
    jobs = JOBS if cross is None else [job(PAIR, seed=k, p=0.2 + 0.1 * k) for k in range(7)]
    asked = []

    def keep(numbers, guesses):
        asked.append(list(numbers))
        assert [len(guess) for guess in guesses] == [len(jobs[n].texts) for n in numbers]
        return survivors[len(asked) - 1]

    final = image_editor.sample_halving(jobs, 2, keep)
    assert asked == [list(range(len(jobs))), survivors[0]]
    assert list(final) == survivors[1]
    for number, latents in final.items():
        close(latents, image_editor.sample([jobs[number]])[0])


@pytest.mark.slow
def test_guesses_are_those_of_single_runs(pipeline) -> None:
    def guesses_of(jobs):
        seen = []

        def keep(numbers, guesses):
            seen.append(guesses)
            return numbers

        editor(pipeline, steps=8).sample_halving(jobs, 3, keep)
        return seen

    together = guesses_of(JOBS)
    for number in (0, 3, 5):
        for ours, theirs in zip(together, guesses_of([JOBS[number]]), strict=True):
            close(ours[number], theirs[0])


def test_more_rounds_than_steps_are_refused(pipeline) -> None:
    with pytest.raises(UserError, match=r"image_editor\.steps=5"):
        editor(pipeline).sample_halving(JOBS, 5, lambda numbers, _: numbers)
    assert editor(pipeline).sample_halving([], 1, lambda numbers, _: numbers) == {}
