"""Sets of two captions on one photo, some of them unchanged: what counts as counterfactual."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.index import Index, open_index
from cfaug.data.mixture.loader import Examples, Share
from cfaug.data.mixture.mixture import count_unchanged, find_edited, find_unchanged, mix
from cfaug.data.mixture.records import COUNTERFACTUAL, REAL, Mixture
from cfaug.data.mixture.settings import DataSettings, Sources
from cfaug.data.shards.shards import write_shards
from cfaug.models.losses import log_negative_weights
from tests.data.loading import TRANSFORM
from tests.data.making import Columns, noise_image, write_tar

PHOTOS, UNCHANGED = 40, 3
"""Every third caption could not be edited."""


def two_captions(number: int) -> CounterfactualSet:
    """Return what an editor of captions makes of a photo: its caption, and that changed."""
    text = f"photo {number}"
    changed = number % UNCHANGED != 0
    return CounterfactualSet(
        key=f"{number:04d}",
        group=f"{number:04d}",
        members=(
            Member(text, "0", f"{number:04d}"),
            Member(f"red {text}" if changed else text, "0", f"{number:04d}",
                   Edit("insertion", "", "red") if changed else None),
        ),
        images={"0": noise_image(number)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Photos with captions, and the sets that were made of them."""
    folder = tmp_path_factory.mktemp("edited")
    members = {}
    for number in range(PHOTOS):
        members[f"{number:04d}.png"] = noise_image(number)
        members[f"{number:04d}.txt"] = f"photo {number}".encode()
    write_tar(folder / "real" / "00000.tar", members)
    write_shards(map(two_captions, range(PHOTOS)), folder / "sets", sets_per_shard=15)
    real, sets = (open_index(folder / name, folder / "cache") for name in ("real", "sets"))
    return real, sets


def planned(sources: tuple[Index, Index], **settings) -> Mixture:
    given_ = {"cf_ratio": 0.5, "seed": 1, "validation": 0.2} | settings
    return mix(DataSettings("real", "sets", **given_), Sources(*sources))


def texts(mixture: Mixture, source: int) -> list[str]:
    index = mixture.sources[source]
    assert isinstance(index, Index)
    both = np.concatenate([mixture.train, mixture.validation])
    return [index.text(int(row)) for row in both[both[:, 0] == source, 1]]


def test_unchanged_sets_never_count(sources):
    _, sets = sources
    unchanged = find_unchanged(sets)
    for row in range(len(sets)):
        number = int(sets.key(row).split("_")[0])
        assert unchanged[row] == (number % UNCHANGED == 0)
    assert count_unchanged(sets) == 14
    for members, per_set in (("all", 2), ("edited", 1), ("unedited", 1)):
        mixture = planned(sources, counterfactual_members=members, cf_ratio=1, validation=0)
        assert mixture.counts["counterfactual"] == per_set * (PHOTOS - 14)
        assert mixture.counts["unchanged"] == 14
        said = texts(mixture, COUNTERFACTUAL)
        assert {int(text.split()[-1]) % UNCHANGED for text in said} == {1, 2}
        reds = sum(text.startswith("red") for text in said)
        assert reds == {"all": len(said) // 2, "edited": len(said), "unedited": 0}[members]


def test_the_mixture_is_exact_and_no_photo_is_on_both_sides(sources):
    mixture = planned(sources, counterfactual_members="edited", cf_ratio=0.4, size=40)
    assert mixture.counts["train"] == 32
    assert mixture.counts["counterfactual"] == 13
    sides = []
    for rows in (mixture.train, mixture.validation):
        indexes = [mixture.sources[source] for source in rows[:, 0]]
        shown = zip(indexes, rows[:, 1], strict=True)
        sides.append({int(index.text(int(row)).split()[-1]) for index, row in shown})
    assert len(sides[1])
    assert not sides[0] & sides[1]


def test_one_photo_of_both_sources_is_one_image_in_a_batch(sources):
    real, sets = sources
    rows = np.array([(REAL, 4), (COUNTERFACTUAL, 9), (COUNTERFACTUAL, 20), (REAL, 10),
                     (COUNTERFACTUAL, 8), (REAL, 5)])  # fmt: skip
    batch = Examples((real, sets), TRANSFORM, 10).__getitems__(Share(rows, rows))
    shown = ["4", "4", "10", "10", "4", "5"]
    assert [text.split()[-1] for text in batch["texts"]] == shown
    images = batch["images"]
    same = np.array(shown)[:, None] == np.array(shown)
    assert ((images[:, None] == images).numpy() == same).all()
    masked = log_negative_weights(images, batch["sets"], mask_same_image=True,
                                  hard_negative_weight=2.0)  # fmt: skip
    assert (np.isneginf(masked.numpy()) == (same & ~np.eye(6, dtype=bool))).all()


def test_a_batch_of_one_source_is_numbered_as_before(sources):
    real, sets = sources
    for source, index in ((REAL, real), (COUNTERFACTUAL, sets)):
        rows = np.array([(source, row) for row in (3, 8, 9, 2)])
        batch = Examples((real, sets), TRANSFORM, 10).__getitems__(Share(rows, rows))
        assert batch["images"].tolist() == (2 * index.images[rows[:, 1]] + source).tolist()


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), min_size=1))
def test_what_is_unchanged_is_what_a_plain_loop_finds(sets):
    """Sets of some members, on one image or on many, one of them edited or none."""
    import pyarrow as pa

    columns = Columns.of((i, members) for i, (members, _, _) in enumerate(sets))
    images, kinds, wanted = [], [], []
    for number, (members, one_image, edited) in enumerate(sets):
        for i in range(members):
            images.append(10 * number if one_image else 10 * number + i)
            kinds.append("subject" if edited and i == members - 1 else None)
            wanted.append(members > 1 and one_image and not edited)

    class Said(Columns):
        def extra(self, name: str) -> pa.ChunkedArray:
            assert name == "edit_kind"
            return pa.chunked_array([pa.array(kinds, pa.string())])

    said = Said(columns.groups, columns.sets, columns.files, columns.contents, ("edit_kind",))
    object.__setattr__(said, "images", np.array(images))
    found = find_unchanged(said)
    assert wanted == ([False] * len(wanted) if found is None else found.tolist())
    assert find_edited(said).tolist() == [kind is not None for kind in kinds]


def test_a_source_that_says_of_no_edits_is_left_as_it_is(sources):
    real, _ = sources
    assert find_unchanged(real) is None
    with pytest.raises(UserError, match=r"edited needs a source that says which.*'edit_kind'"):
        find_edited(real)
