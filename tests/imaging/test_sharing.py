"""Shared attention against maps written down, in float64."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from cfaug.core.types import Draw
from cfaug.imaging import schedules
from cfaug.imaging.model import DiffusionWeights
from cfaug.imaging.prompt_to_prompt import PromptToPrompt
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


def close(found, wanted, tolerance=1e-10):
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() <= tolerance * max(1, wanted.abs().max())


@pytest.mark.slow
def test_pairs_and_sets_of_mixed_p_equal_maps_written_down(pipeline):
    jobs = [
        job(p=0.3), job(SET, seed=2, p=0.8, cfg=11), job(seed=3, p=0.0), job(SET, seed=4, p=1.0),
    ]  # fmt: skip
    for max_rows in (64, 6):
        found = editor(pipeline, max_rows=max_rows).sample(jobs)
        for one, latents in zip(jobs, found, strict=True):
            close(latents, expected(pipeline, one))


def test_sharing_changes_the_edited_image(pipeline):
    shared, free = editor(pipeline).sample([job(p=1), job(p=0)])
    assert torch.equal(shared[0], free[0])
    assert (shared[1] - free[1]).abs().max() > 1e-3


def test_one_permuted_source_is_noticed(pipeline, monkeypatch):
    """The equality above would fail if a single row took another row's map."""
    from cfaug.imaging import sampler

    real = sampler.calls

    def permuted(*args):
        made = []
        for call in real(*args):
            source = call.rows.source.clone()
            source[1], source[3] = source[3].clone(), source[1].clone()
            made.append(
                dataclasses.replace(call, rows=dataclasses.replace(call.rows, source=source))
            )
        return made

    monkeypatch.setattr(sampler, "calls", permuted)
    jobs = [job(p=0.6), job(seed=2, p=0.6)]
    found = editor(pipeline).sample(jobs)
    with pytest.raises(AssertionError):
        close(found[0], expected(pipeline, jobs[0]), tolerance=1e-4)


def test_v_prediction(velocity_pipeline):
    one = job(p=0.6, cfg=2)
    (found,) = editor(velocity_pipeline).sample([one])
    close(found, expected(velocity_pipeline, one))


@pytest.mark.slow
def test_independent_noise_is_another_noise_for_every_edited_image(pipeline):
    apart = editor(pipeline, noise="independent")
    (found,) = apart.sample([job(SET, p=0.5)])
    close(found, expected(pipeline, job(SET, p=0.5), independent=True))
    (shared,) = editor(pipeline).sample([job(SET, p=0.5)])
    assert torch.equal(found[0], shared[0])
    assert not torch.equal(found[1], shared[1])


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 16])
def test_prompt_to_prompt_shares_with_text_only_and_small_maps_only(pipeline, limit):
    one = job(SET, p=0.5)

    def edit(step, maps, is_cross):
        shared = step < int(one.draw.p * STEPS) and not is_cross
        if not shared or (limit is not None and maps.shape[2] > limit):
            return maps
        half = len(maps) // 2
        return torch.cat([maps[:half], maps[half : half + 1].expand_as(maps[half:])])

    for max_rows in (64, 2):
        (found,) = editor(pipeline, mode="p2p", self_max_tokens=limit, max_rows=max_rows).sample(
            [one]
        )
        close(found, expected(pipeline, one, edit=edit))


def test_the_base_does_not_depend_on_p_and_rows_may_stand_in_any_order(pipeline):
    jobs = [job(p=p, seed=seed) for seed in (1, 2) for p in (0.1, 0.5, 0.9)] + [job(SET, seed=3)]
    one = editor(pipeline)
    found = one.sample(jobs)
    for i in (1, 2):
        assert torch.equal(found[0][0], found[i][0])
    order = [4, 6, 0, 5, 2, 3, 1]
    for i, latents in zip(order, one.sample([jobs[i] for i in order]), strict=True):
        close(latents, found[i])


@pytest.mark.slow
def test_a_batch_is_its_single_runs_and_a_tree_its_independent_runs(pipeline):
    """In the precision that is used: float32, final latents, 1e-5."""
    jobs = [job(p=p, seed=seed) for seed in (1, 2) for p in (0.15, 0.4, 0.7, 0.95)]
    one = editor(pipeline, "fp32", steps=10)
    alone = [one.sample([single])[0] for single in jobs]
    for batch in (one.sample(jobs), editor(pipeline, "fp32", steps=10, max_rows=6).sample(jobs)):
        for wanted, latents in zip(alone, batch, strict=True):
            assert latents.dtype == torch.float32
            close(latents, wanted, tolerance=1e-5)


def test_padding_rows_changes_nothing(pipeline):
    jobs = [job(seed=seed, p=0.5) for seed in range(3)]
    for found, wanted in zip(
        editor(pipeline, row_multiple=16).sample(jobs), editor(pipeline).sample(jobs), strict=True
    ):
        close(found, wanted)


def test_bytes_are_the_same_every_time(pipeline):
    jobs = [job(seed=seed, p=0.5) for seed in (1, 2)]
    first = editor(pipeline, "fp32").sample(jobs)
    second = editor(pipeline, "fp32").sample(jobs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_single_text_is_drawn_as_a_base(pipeline):
    one = editor(pipeline)
    alone, again, pair = one.sample([job(PAIR[:1]), job(PAIR[:1], p=0.2), job(PAIR)])
    assert alone.shape[0] == 1
    assert torch.equal(alone, again)  # p is about edits
    close(alone, expected(pipeline, job(PAIR))[:1])
    close(alone, pair[:1])
    [images] = one.edit([job(PAIR[:1])])
    assert images.shown == (0,)
    assert images.images[0].shape == (2 * tiny.SAMPLE, 2 * tiny.SAMPLE, 3)
