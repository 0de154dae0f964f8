from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.mixture.pool import read_labels
from cfaug.data.shards.shards import read_sets
from cfaug.shapescapes import WorldSettings, ensure
from cfaug.shapescapes.labels import UNMATCHED, ensure_labels, visibility

WORLD = WorldSettings(seed=5, counterfactual_pairs=60, real_scenes=3)


def test_as_many_are_validated_as_in_the_paper_and_the_hidden_ones_are_not(tmp_path: Path) -> None:
    file = ensure_labels(WORLD, "counterfactual", tmp_path)
    folder = ensure(WORLD, "counterfactual", tmp_path)
    index = open_index(folder, tmp_path / "cache")
    mask = read_labels(file).find_validated(index)
    assert (~mask).sum() == round(UNMATCHED * 120) == 32
    seen = [visibility(m, WORLD) for one in read_sets(folder) for m in one.members]
    assert max(np.array(seen)[~mask]) <= min(np.array(seen)[mask])
    # Both kinds of image are judged alike, so some pairs keep one member only.
    assert 0 < (mask[::2] != mask[1::2]).sum() < 60
    assert ensure_labels(WORLD, "counterfactual", tmp_path / "again").read_bytes() == (
        file.read_bytes()
    )


def test_what_is_hard_to_see_looks_like_its_background(tmp_path: Path) -> None:
    """The images' own pixels, without the oracle's masks: hidden subjects vary the centre less."""
    labels = read_labels(ensure_labels(WORLD, "counterfactual", tmp_path))
    spread: dict[bool, list[float]] = {True: [], False: []}
    for one in read_sets(ensure(WORLD, "counterfactual", tmp_path)):
        for i, member in enumerate(one.members):
            pixels = np.asarray(Image.open(io.BytesIO(one.images[member.image_name])), float)
            centre, rim = pixels[12:20, 12:20].mean(axis=(0, 1)), pixels[:3].mean(axis=(0, 1))
            (seen,) = labels.answers[f"{one.key}_{i}"]
            spread[seen].append(float(np.linalg.norm(centre - rim)))
    assert np.mean(spread[True]) > 1.2 * np.mean(spread[False])


def test_a_part_without_pairs_has_no_labels(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not pairs"):
        ensure_labels(WORLD, "real", tmp_path)
