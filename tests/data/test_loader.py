"""The loader gives what the plan says, whatever the ranks, the workers and the start."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import random
import subprocess
from itertools import islice, product

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.pixels import ImageTransform
from cfaug.core.processes import ENDINGS
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.index import open_index
from cfaug.data.mixture.loader import (
    Examples,
    KeptPixels,
    RankBatch,
    Slab,
    TrainingBatches,
    ValidationBatches,
    make_loader,
    place_bytes,
)
from cfaug.data.mixture.mixture import plan_mixture
from cfaug.data.mixture.records import COUNTERFACTUAL
from cfaug.data.mixture.settings import RatioData
from cfaug.data.shards.shards import write_shards
from tests.data.loading import TRANSFORM, loader, mixture_of, planned, seen
from tests.data.making import noise_image, pair
from tests.properties import examples


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
def test_it_gives_the_plan_whatever_the_ranks_the_workers_and_the_start(indexes, data):
    ratio = data.draw(st.sampled_from([0, 0.25, 0.3, 0.5, 0.67, 1]))
    mixture = mixture_of(indexes, ratio, size=data.draw(st.integers(5, 80)))
    assert abs(mixture.counts["counterfactual"] - ratio * mixture.counts["train"]) <= 0.5
    batch_size, world = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 4))
    # Mostly none, because starting processes is most of what this test costs.
    workers = data.draw(st.sampled_from([0] * 15 + [1, 3]))
    start = data.draw(st.integers(0, 5))
    steps = start + data.draw(st.integers(0, 5))
    mode = data.draw(st.sampled_from([{}, {"stratify": True}, {"pairs_in_batch": True}]))
    ranks = [
        seen(
            loader(
                indexes, mixture, workers=workers, start=start, steps=steps, rank=rank, world=world,
                batch_size=batch_size, **mode,
            )
        )
        for rank in range(world)
    ]  # fmt: skip
    assert {len(batches) for batches in ranks} == {steps - start}  # equal steps on every rank
    together = [
        ([text for batches in ranks for text in batches[i][0]], ranks[0][i][1])
        for i in range(steps - start)
    ]
    assert together == planned(indexes, mixture, steps, batch_size, **mode)[start:]
    for i in range(steps - start):
        sizes = [len(batches[i][0]) for batches in ranks]
        assert max(sizes) - min(sizes) <= 1
        assert {batches[i][1] for batches in ranks} == {sum(sizes)}


def test_the_last_partial_batch_can_be_left_out(indexes):
    mixture = mixture_of(indexes, size=50)  # 40 to train on
    sizes = [size for _, size in seen(loader(indexes, mixture, steps=6))]
    assert sizes == [16, 16, 8, 16, 16, 8]
    sizes = [size for _, size in seen(loader(indexes, mixture, steps=6, drop_last=True))]
    assert sizes == [16] * 6


@pytest.mark.parametrize("workers", [0, 2])
def test_validation_is_the_held_out_rows_each_time_it_is_asked(indexes, workers):
    mixture = mixture_of(indexes)
    shares = ValidationBatches(mixture, 6)
    held = make_loader(Examples(indexes, TRANSFORM, 200), shares, workers)
    first, second = seen(held), seen(held)
    assert first == second
    wanted = {indexes[source].text(row) for source, row in mixture.validation.tolist()}
    texts = [text for batch, _ in first for text in batch]
    assert len(texts) == len(set(texts)) == mixture.counts["validation"]
    assert set(texts) == wanted
    for batch, size in first:  # of both sources, as far as there are both
        assert abs(sum(text.startswith("scene") for text in batch) - size / 2) <= 1
    halves = [seen(make_loader(Examples(indexes, TRANSFORM, 200),
                               ValidationBatches(mixture, 6, rank=rank, world=2), 0))
              for rank in range(2)]  # fmt: skip
    assert [a[0] + b[0] for a, b in zip(*halves, strict=True)] == [texts for texts, _ in first]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Photos with three captions each, and pairs."""
    folder = tmp_path_factory.mktemp("shared")
    photos = [
        CounterfactualSet(
            f"photo-{i}", f"photo-{i}",
            tuple(Member(f"photo {i} caption {c}", "photo", str(i)) for c in range(3)),
            {"photo": noise_image(i)},
        )
        for i in range(12)
    ]  # fmt: skip
    write_shards(photos, folder / "real")
    write_shards([pair(200 + i) for i in range(20)], folder / "cf")
    real, edited = (open_index(folder / name, folder / "cache") for name in ("real", "cf"))
    return real, edited


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("workers", "world"), [(2, 1), (0, 3)])
def test_every_rank_knows_the_images_and_sets_of_the_whole_batch(shared, workers, world):
    mixture = mixture_of(shared)
    ranks = [
        list(loader(shared, mixture, workers=workers, rank=rank, world=world, steps=5))
        for rank in range(world)
    ]
    repeated = 0
    for batches in zip(*ranks, strict=True):
        texts = [text for batch in batches for text in batch["texts"]]
        for batch in batches:
            images, sets = batch["images"].tolist(), batch["sets"].tolist()
            assert len(images) == len(sets) == len(texts) == batch["global_size"]
            for i, first in enumerate(texts):
                for j, second in enumerate(texts):
                    # "photo 7 caption 2" or "scene 207 member 1": kind and number name the set.
                    same_set = first.split()[:2] == second.split()[:2]
                    assert (sets[i] == sets[j]) == same_set
                    same_image = same_set and (first.startswith("photo") or i == j)
                    assert (images[i] == images[j]) == same_image
                    repeated += i < j and same_set
    assert repeated > 10


# Processes that read and decode: they change nothing, and end without a trace.


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
def test_workers_change_nothing(indexes):
    """Four workers are more than the real source's two shards: nobody waits for a shard."""
    mixture = mixture_of(indexes)
    batches = [seen(loader(indexes, mixture, workers=workers)) for workers in (0, 4)]
    assert batches[0] == batches[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_global_randomness_is_neither_drawn_on_nor_touched(indexes, workers):
    mixture = mixture_of(indexes)
    batches = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # the legacy state is what must not change
        random.seed(seed)
        legacy = np.random.get_state
        before = torch.get_rng_state(), legacy()[1].tolist(), random.getstate()
        batches.append(seen(loader(indexes, mixture, workers=workers)))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert legacy()[1].tolist() == before[1]
        assert random.getstate() == before[2]
    assert batches[0] == batches[1]


def test_workers_outlive_a_schedulers_signals_and_end_with_their_parent(indexes):
    batches = iter(loader(indexes, mixture_of(indexes), workers=2, steps=40))
    assert len(list(islice(batches, 2))) == 2  # one of either worker
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    for worker, number in product(workers, ENDINGS):
        subprocess.run(["kill", f"-{number}", str(worker.pid)], check=True)
    assert len(list(islice(batches, 30))) == 30
    assert multiprocessing.active_children() == workers
    for worker in workers:
        worker.terminate()
        worker.join(60)
        assert worker.exitcode == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_small_data_is_decoded_once_and_large_data_is_not_kept(indexes, workers):
    mixture = mixture_of(indexes)
    for rows, kept in ((200, len(mixture.train)), (10**9, 0)):
        batches = loader(indexes, mixture, rows=rows, steps=20, workers=workers)
        assert seen(batches) == planned(indexes, mixture, 20, 16)
        slabs = batches.dataset._slabs or ()  # shared with the workers
        filled = [slab.get(n) is not None for slab in slabs for n in range(slab.places)]
        assert sum(filled) == kept


@pytest.mark.parametrize("workers", [0, 2])
def test_an_image_that_breaks_later_is_named_without_a_traceback(tmp_path, workers, monkeypatch):
    """A change after the scan: the bytes are there, and are no image any more."""
    write_shards([pair(number) for number in range(20)], tmp_path / "cf")
    index = open_index(tmp_path / "cf", tmp_path / "cache")
    tar = tmp_path / "cf" / "00000.tar"
    at = tar.read_bytes().index(pair(9).images["image1"])
    with tar.open("r+b") as handle:
        handle.seek(at)
        handle.write(b"broken")
    mixture = plan_mixture(None, index, cf_ratio=1, size=None, seed=1, validation=0)
    shares = TrainingBatches(
        mixture, RatioData(None, None, cf_ratio=1, batch_size=8), seed=7, data_seed=1,
        start_step=0, total_steps=5,
    )  # fmt: skip
    # Torch waits that long for a worker that does not end, then kills it.
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 900.0)
    with pytest.raises(UserError) as caught:
        list(make_loader(Examples((None, index), TRANSFORM, 40), shares, workers))
    message = str(caught.value)
    assert f"{tar} (pair-00009_1)" in message
    assert "Traceback" not in message
    del caught
    gc.collect()  # its workers do not have to be killed, or this takes longer than a test may


# Decoded images that are kept.


SIZE = 4
TINY = ImageTransform(SIZE, (0.5,) * 3, (0.5,) * 3)


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
        pixels = slab.get(number)
        if places and first.get(number % places) == number:
            np.testing.assert_array_equal(pixels, image(number))
            assert not pixels.flags.writeable
        else:
            assert pixels is None
    assert slab.nbytes == places * place_bytes(SIZE)


def test_half_an_image_is_none():
    slab = Slab(3, SIZE)
    slab.put(1, image(1))
    slab._pixels[1, 0, 0, 0] ^= 1
    assert slab.get(1) is None


def test_the_limit_holds_and_earlier_runs_make_room():
    each = place_bytes(SIZE)
    kept = KeptPixels(10 * each)
    real, edited, third = Source("a", 4), Source("b", 4), Source("c", 5)
    first = kept.slabs((real, edited), TINY)
    assert [slab.places for slab in first] == [4, 4]
    assert kept.slabs((real, edited), TINY) == first
    # The one that is still needed stays, whatever the other takes.
    second = kept.slabs((third, edited), TINY)
    assert second[1] is first[1]
    assert second[0].places == 5
    both = kept.slabs((Source("d", 8), Source("e", 8)), TINY)
    assert [slab.places for slab in both] == [8, 2]
    assert [slab.places for slab in kept.slabs((None, None), TINY)] == [0, 0]
    larger = ImageTransform(8, (0.5,) * 3, (0.5,) * 3)
    assert kept.slabs((real, None), larger)[0] is not first[0]
    copy = pickle.loads(pickle.dumps(kept))
    assert copy.limit == kept.limit
    assert copy.slabs((real, None), TINY)[0].get(0) is None


def test_a_photo_in_several_sets_is_one_image(tmp_path):
    """The mask of ``same_image`` counted a photo's other captions as negatives there."""
    sets = [
        CounterfactualSet(
            f"s{i}", f"photo-{i // 2}",
            (Member(f"caption {i}", "a", "0"), Member(f"edit {i}", "b", "0", Edit("noun", "", ""))),
            {"a": noise_image(i // 2), "b": noise_image(100 + i)},
        )
        for i in range(4)
    ]  # fmt: skip
    write_shards(sets, tmp_path / "sets")
    indexes = (None, open_index(tmp_path / "sets", tmp_path / "cache"))
    rows = np.array([[COUNTERFACTUAL, row] for row in range(8)])
    batch = Examples(indexes, TRANSFORM, 8).__getitems__(RankBatch(rows, rows))
    images = batch["images"].tolist()
    assert [images.index(image) for image in images] == [0, 1, 0, 3, 4, 5, 4, 7]
    assert min(images) >= 0
