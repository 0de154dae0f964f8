from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfaug.train.pair_modules import gather_all, share


@given(size=st.integers(0, 300), world=st.integers(1, 9))
def test_shares_are_numpys(size, world):
    shares = [share(size, rank, world) for rank in range(world)]
    assert shares == [len(part) for part in np.array_split(np.arange(size), world)]


def test_one_process_has_the_whole_batch():
    features = (torch.ones(3, 2), torch.zeros(3, 4))
    gathered = gather_all(features, 3)
    assert all(a is b for a, b in zip(features, gathered, strict=True))
