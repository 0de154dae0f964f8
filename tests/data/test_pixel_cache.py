from __future__ import annotations

import multiprocessing
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.pixels import ImageTransform
from cfaug.data.mixture.loader import KeptPixels, Slab, place_bytes

SIZE = 4
TRANSFORM = ImageTransform(SIZE, (0.5,) * 3, (0.5,) * 3)


def image(number):
    return np.random.default_rng(number).integers(0, 256, (3, SIZE, SIZE), np.uint8)


class Source:
    def __init__(self, content, images):
        self.hash, self.images = content, np.arange(images)


@given(st.integers(0, 5), st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=40))
def test_a_slab_gives_what_was_put_or_nothing(places, doings):
    slab, first = Slab(places, SIZE), {}
    for putting, number in doings:
        if putting:
            slab.put(number, image(number))
            if places:
                first.setdefault(number % places, number)
        found = slab.get(number)
        if places and first.get(number % places) == number:
            np.testing.assert_array_equal(found, image(number))
            assert not found.flags.writeable
        else:
            assert found is None
    assert slab.nbytes == places * place_bytes(SIZE)


def test_half_an_image_is_none():
    slab = Slab(3, SIZE)
    slab.put(1, image(1))
    slab._pixels[1, 0, 0, 0] ^= 1
    assert slab.get(1) is None


def fill(slab, numbers):
    for number in numbers:
        slab.put(number, image(number))


def test_forked_processes_share_a_slab():
    slab = Slab(8, SIZE)
    children = [
        multiprocessing.get_context("fork").Process(target=fill, args=(slab, range(first, 8, 2)))
        for first in (0, 1)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    for number in range(8):
        np.testing.assert_array_equal(slab.get(number), image(number))


def test_the_limit_holds_and_earlier_runs_make_room():
    each = place_bytes(SIZE)
    kept = KeptPixels(10 * each)
    real, edited, third = Source("a", 4), Source("b", 4), Source("c", 5)
    first = kept.slabs((real, edited), TRANSFORM)
    assert [slab.places for slab in first] == [4, 4]
    assert kept.slabs((real, edited), TRANSFORM) == first
    # The one that is still needed stays, whatever the other takes.
    second = kept.slabs((third, edited), TRANSFORM)
    assert second[1] is first[1]
    assert second[0].places == 5
    both = kept.slabs((Source("d", 8), Source("e", 8)), TRANSFORM)
    assert [slab.places for slab in both] == [8, 2]
    assert [slab.places for slab in kept.slabs((None, None), TRANSFORM)] == [0, 0]
    larger = ImageTransform(8, (0.5,) * 3, (0.5,) * 3)
    assert kept.slabs((real, None), larger)[0] is not first[0]
    copy = pickle.loads(pickle.dumps(kept))
    assert copy.limit == kept.limit
    assert copy.slabs((real, None), TRANSFORM)[0].get(0) is None


@pytest.mark.parametrize("limit", [0, 1])
def test_no_room_keeps_nothing(limit):
    slab = KeptPixels(limit).slabs((Source("a", 4), None), TRANSFORM)[0]
    slab.put(0, image(0))
    assert slab.get(0) is None
