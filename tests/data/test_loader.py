"""The loader gives what the plan says, whatever the ranks, the workers and the start."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.index import open_index
from cfaug.data.mixture.loader import Examples, ValidationShares, make_loader
from cfaug.data.shards.shards import write_shards
from tests.data.loading import TRANSFORM, loader, mixture_of, planned, seen
from tests.data.making import noise_image, pair


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
def test_it_gives_the_plan_whatever_the_ranks_the_workers_and_the_start(indexes, data):
    ratio = data.draw(st.sampled_from([0, 0.25, 0.3, 0.5, 0.67, 1]))
    mixture = mixture_of(indexes, ratio, size=data.draw(st.integers(5, 80)))
    assert abs(mixture.counts["counterfactual"] - ratio * mixture.counts["train"]) <= 0.5
    batch_size, world = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 4))
    # Mostly none, because starting processes is most of what this test costs.
    workers = data.draw(st.sampled_from([0] * 15 + [1, 2, 4]))
    start = data.draw(st.integers(0, 6))
    steps = start + data.draw(st.integers(0, 6))
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


@pytest.mark.timeout(300)
def test_resuming_gives_the_tail_of_the_whole_stream(indexes):
    mixture = mixture_of(indexes)
    whole = seen(loader(indexes, mixture, steps=15))
    for start in (0, 3, 7, 8, 14, 15):
        assert seen(loader(indexes, mixture, steps=15, start=start)) == whole[start:]
    assert seen(loader(indexes, mixture, steps=15, start=7, workers=2)) == whole[7:]


def test_every_epoch_has_each_example_once(indexes):
    mixture = mixture_of(indexes, 0.6)
    n = len(mixture.train)
    steps = -(-n // 16)
    batches = seen(loader(indexes, mixture, steps=3 * steps))
    for epoch in range(3):
        part = batches[epoch * steps : (epoch + 1) * steps]
        texts = [text for batch, _ in part for text in batch]
        assert len(texts) == len(set(texts)) == n
    assert batches[0] != batches[steps]


def test_the_last_partial_batch_can_be_left_out(indexes):
    mixture = mixture_of(indexes, size=50)  # 40 to train on
    sizes = [size for _, size in seen(loader(indexes, mixture, steps=6))]
    assert sizes == [16, 16, 8, 16, 16, 8]
    sizes = [size for _, size in seen(loader(indexes, mixture, steps=6, drop_last=True))]
    assert sizes == [16] * 6


def test_a_rank_may_have_nothing_in_a_small_last_batch(indexes):
    mixture = mixture_of(indexes, size=6)
    batches = seen(loader(indexes, mixture, steps=2, rank=3, world=4, batch_size=3))
    assert [(len(texts), size) for texts, size in batches] == [(0, 3), (0, 1)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers", [0, 2])
def test_validation_is_the_held_out_rows_each_time_it_is_asked(indexes, workers):
    mixture = mixture_of(indexes)
    shares = ValidationShares(mixture, 6)
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
                               ValidationShares(mixture, 6, rank=rank, world=2), 0))
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


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("workers", "world"), [(0, 1), (2, 1), (0, 3)])
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
