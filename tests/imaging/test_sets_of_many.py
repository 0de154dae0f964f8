"""Sets of many images: each base is computed once a step, on any memory, and nothing changes."""

from __future__ import annotations

import doctest
import re
import sys

import numpy as np
import pytest

from cfaug.core.types import Draw
from cfaug.imaging.sampler import Batching
from cfaug.imaging.tree import plan
from tests.imaging.test_sharing import close, editor, expected
from tests.records import image_job

STEPS = 3
GRID = tuple(
    f"a {colour} ball {place}"
    for colour in ("red", "blue", "hot")
    for place in ("on the beach", "on the grass", "in the house", "on the sand")
)


def job(seed=1, p=0.6, texts=GRID):
    return image_job(texts, Draw(seed, p, 7.5))


def draw(folder, jobs, max_rows):
    """Return latents, the rows of every call, and how often a call borrowed a base's attention."""
    image_editor = editor(folder, steps=STEPS, max_rows=max_rows)
    rows, borrowed = [], []
    shared = image_editor._sampler.shared
    image_editor._diffusion.unet.register_forward_pre_hook(
        lambda _, args: (rows.append(len(args[0])), borrowed.append(shared.rows.borrow))[0] and None
    )
    return image_editor.sample(jobs), rows, sum(borrowed)


@pytest.mark.slow
def test_a_set_larger_than_a_call_is_what_it_is_in_one(pipeline) -> None:
    [whole], rows, borrowed = draw(pipeline, [job()], 64)
    assert (rows, borrowed) == ([24] * STEPS, 0)
    for max_rows, calls in ((2, 12), (10, 3)):
        [latents], rows, borrowed = draw(pipeline, [job()], max_rows)
        close(latents, whole, 1e-9)
        # No row more than in one call; attention is shared at two of three steps.
        assert (len(rows), sum(rows)) == (calls * STEPS, 24 * STEPS)
        assert borrowed == 2 * (calls - 1)


@pytest.mark.slow
def test_sets_of_many_equal_maps_written_down(pipeline) -> None:
    jobs = [job(2, 0.2), job(2, 0.9), job(3, 1.0, GRID[:5])]
    for max_rows in (14, 2):
        drawn, rows, _ = draw(pipeline, jobs, max_rows)
        assert sum(rows) == 2 * plan(jobs, STEPS).latent_steps(STEPS)
        for set_job, latents in zip(jobs, drawn, strict=True):
            close(latents, expected(pipeline, set_job, steps=STEPS), 1e-9)


@pytest.mark.parametrize("images", [1, 2, 12, 28, 84, 1000])
@pytest.mark.parametrize("max_rows", [2, 6, 64])
def test_calls_are_as_few_and_as_even_as_they_can_be(images, max_rows) -> None:
    pieces = Batching(max_rows).pieces(np.arange(images))
    sizes = [len(piece) for piece in pieces]
    assert sum(sizes) == images
    assert len(sizes) == -(-2 * images // max_rows)
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.slow
def test_the_released_way_draws_the_base_in_every_batch_and_the_same_images(benchmark) -> None:
    done = benchmark("sets.py", "--quick", "--threads", "1")
    distances = re.findall(r"\d\.\de-\d+", done)
    assert distances
    assert max(map(float, distances)) < 1e-4
    rows = {
        line.split("|")[1].strip(): line.split("|") for line in done.splitlines() if "|" in line
    }
    assert [int(rows[name][4]) for name in ("the released way", "ours")] == [12, 10]
    counted = benchmark("sets.py", "--count")
    assert "| race x gender | 12 | 36 | 24 | 1.50 |" in counted
    assert "two rows of 46 MB" in counted
    sets = sys.modules["sets"]
    assert doctest.testmod(sets).failed == 0
    for images, most, rows in ((12, 2, 18), (84, 2, 126), (12, 11, 12), (5, 3, 6)):
        cut = sets.released_batches(images, most)
        assert sum(map(len, cut)) == rows
        assert len({len(batch) for batch in cut}) == 1
        assert {batch[0] for batch in cut} == {0}
        drawn = [member for batch in cut for member in batch if member]
        assert drawn == list(range(1, images))
