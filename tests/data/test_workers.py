"""Processes that read and decode: they change nothing, and end without a trace."""

from __future__ import annotations

import gc
import multiprocessing
import random
import subprocess
from itertools import islice

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.mixture.loader import Examples, TrainingShares, make_loader
from cfaug.data.mixture.mixture import plan_mixture
from cfaug.data.mixture.settings import DataSettings
from cfaug.data.shards.shards import write_shards
from tests.data.loading import TRANSFORM, loader, mixture_of, planned, seen
from tests.data.making import pair


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
@pytest.mark.parametrize("world", [1, 2])
def test_workers_change_nothing(indexes, world):
    """Four workers are more than the real source's two shards: nobody waits for a shard."""
    mixture = mixture_of(indexes)
    found = [
        [seen(loader(indexes, mixture, workers=workers, rank=rank, world=world))
         for rank in range(world)]
        for workers in (0, 2, 4)
    ]  # fmt: skip
    assert found[0] == found[1] == found[2]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers", [0, 2])
def test_global_randomness_is_neither_drawn_on_nor_touched(indexes, workers):
    mixture = mixture_of(indexes)
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # the legacy state is what must not change
        random.seed(seed)
        legacy = np.random.get_state
        before = torch.get_rng_state(), legacy()[1].tolist(), random.getstate()
        found.append(seen(loader(indexes, mixture, workers=workers)))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert legacy()[1].tolist() == before[1]
        assert random.getstate() == before[2]
    assert found[0] == found[1]


@pytest.mark.timeout(300)
def test_workers_outlive_a_schedulers_sigterm_and_end_with_their_parent(indexes):
    batches = iter(loader(indexes, mixture_of(indexes), workers=2, steps=40))
    assert len(list(islice(batches, 2))) == 2  # one of either worker
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    subprocess.run(["kill", "-TERM", *(str(worker.pid) for worker in workers)], check=True)
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
        found = [slab.get(n) is not None for slab in slabs for n in range(slab.places)]
        assert sum(found) == kept


@pytest.mark.slow
@pytest.mark.timeout(300)
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
    shares = TrainingShares(
        mixture, DataSettings(None, None, cf_ratio=1, batch_size=8), seed=7, data_seed=1,
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
