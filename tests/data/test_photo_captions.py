"""``data.real_captions=one``: one caption of each photo in every epoch, against slow loops."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.mixture.loader import TrainingBatches
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.settings import ClassificationData, PlanData, RatioData, Sources
from cfaug.data.shards.shards import write_shards
from tests.data.making import noise_image, pair
from tests.properties import examples

CAPTIONS = [1, 5, 2, 3, 5, 1, 4, 5, 2, 5, 3, 1]
"""The number of captions of each photo."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    real = folder / "real"
    real.mkdir()
    lines = []
    for photo, count in enumerate(CAPTIONS):
        for copy in range(2 if photo == 3 else 1):  # the bytes of one photo lie in two files
            (real / f"{photo}-{copy}.png").write_bytes(noise_image(photo))
        for n in range(count):
            file = f"{photo}-{n % 2 if photo == 3 else 0}.png"
            lines.append(json.dumps({"image": file, "caption": f"photo {photo} caption {n}"}))
    order = np.random.default_rng(0).permutation(len(lines))  # a photo's captions are not together
    (real / "captions.jsonl").write_text("".join(f"{lines[i]}\n" for i in order))
    write_shards([pair(200 + i) for i in range(20)], folder / "cf")
    index, edited = (open_index(folder / name, folder / "cache") for name in ("real", "cf"))
    assert len(index) == sum(CAPTIONS)
    return Sources(index, edited)


def data_of(**given):
    usual = {"cf_ratio": 0, "seed": 3, "validation": 0, "batch_size": 5, "real_captions": "one"}
    return RatioData("real", "cf", **(usual | given))


def batches(mixture, data, start=0, steps=12, rank=0, world=1, seed=7):
    return list(
        TrainingBatches(
            mixture, data, seed=seed, data_seed=3, start_step=start, total_steps=steps, rank=rank,
            world=world,
        )
    )  # fmt: skip


def epochs_of(mixture, data, shares):
    """The captions of the real rows that each epoch shows."""
    length = data.steps_per_epoch(len(mixture.train))
    index, epochs = mixture.sources[0], []
    for begin in range(0, len(shares), length):
        rows = np.concatenate([share.whole for share in shares[begin : begin + length]])
        epochs.append([index.text(int(row)) for source, row in rows if source == 0])
    return epochs


def photo_of(text):
    return int(text.split()[1])


def test_every_epoch_shows_each_photo_once_with_one_of_its_captions(sources):
    data = data_of()
    mixture = mix(data, sources)
    assert mixture.counts["real"] == mixture.counts["train"] == len(CAPTIONS)
    shares = batches(mixture, data, steps=3 * 40)
    epochs = epochs_of(mixture, data, shares)
    seen = defaultdict(set)
    for texts in epochs:
        assert sorted(map(photo_of, texts)) == list(range(len(CAPTIONS)))
        for text in texts:
            seen[photo_of(text)].add(text)
    # In 40 epochs, all captions of all photos: one of five is missed once in 7,500 times.
    assert [len(seen[photo]) for photo in range(len(CAPTIONS))] == CAPTIONS
    assert epochs[0] != epochs[1]


@given(
    cf_ratio=st.sampled_from([0, 0.25, 0.5]),
    validation=st.sampled_from([0, 0.25]),
    split=st.sampled_from(["group", "random"]),
    batch_size=st.integers(2, 9),
    start=st.integers(0, 11),
    world=st.integers(1, 3),
    seed=st.integers(0, 3),
)
@settings(max_examples=examples(50), deadline=None)
def test_an_epoch_resumes_anywhere_and_is_shared_by_processes(
    sources, cf_ratio, validation, split, batch_size, start, world, seed
):
    data = data_of(
        cf_ratio=cf_ratio, validation=validation, split=split, batch_size=batch_size, seed=seed
    )
    mixture = mix(data, sources)
    whole = batches(mixture, data)
    for texts in epochs_of(mixture, data, whole)[:1]:
        assert len(texts) == mixture.counts["real"] == len(set(map(photo_of, texts)))
    real, held = mixture.counts["real"], mixture.validation
    assert real + int((held[:, 0] == 0).sum()) <= len(CAPTIONS)
    resumed = batches(mixture, data, start=start)
    for again, share in zip(resumed, whole[start:], strict=True):
        assert again.whole.tolist() == share.whole.tolist()
    for step in range(len(whole)):
        parts = [batches(mixture, data, start=step, steps=step + 1, rank=r, world=world)[0]
                 for r in range(world)]  # fmt: skip
        assert np.concatenate([part.rows for part in parts]).tolist() == whole[step].whole.tolist()
    # No photo is on both sides.
    index = mixture.sources[0]
    sides = [
        {photo_of(index.text(row)) for s, row in side.tolist() if s == 0}
        for side in (mixture.train, mixture.validation)
    ]
    assert not sides[0] & sides[1]


def test_a_photos_caption_depends_on_no_other_photo(sources):
    """Fewer photos, another order: what is drawn for a photo in an epoch stays."""
    drawn = []
    for size in (12, 7):
        mixture = mix(data_of(size=size), sources)
        index = mixture.sources[0]
        drawn.append(
            [
                {photo_of(text): text for text in map(index.text, mixture.rows_in(e, 3)[:, 1])}
                for e in range(4)
            ]
        )
    for every, few in zip(*drawn, strict=True):
        assert len(few) == 7
        assert few.items() <= every.items()


def test_the_ratio_counts_photos(sources):
    mixture = mix(data_of(cf_ratio=0.5), sources)
    assert (mixture.counts["real"], mixture.counts["counterfactual"]) == (12, 12)
    every = mix(data_of(cf_ratio=0.5, real_captions="all"), sources)
    assert (every.counts["real"], every.counts["counterfactual"]) == (37, 37)
    assert every.rows_in(5, 3) is every.train


def test_rows_that_are_held_out_are_never_drawn(sources):
    mixture = mix(data_of(holdout=0.3), sources)
    test = {photo_of(sources.real.text(row)) for row in mixture.held_out.rows.tolist()}
    assert test
    for epoch in range(20):
        rows = mixture.rows_in(epoch, 3)[:, 1].tolist()
        assert not test & {photo_of(sources.real.text(row)) for row in rows}


def test_what_a_run_uses_are_the_captions_of_all_its_epochs(sources):
    mixture = mix(data_of(size=7), sources)
    index = mixture.sources[0]
    photos = {photo_of(index.text(row)) for row in mixture.train[:, 1].tolist()}
    every = [row for row in range(len(index)) if photo_of(index.text(row)) in photos]
    assert mixture.captions.expand(mixture.train[:, 1]).tolist() == every


def test_it_is_refused_where_it_would_say_nothing(sources, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.png").write_bytes(noise_image(1))
    (tmp_path / "one" / "b.png").write_bytes(noise_image(2))
    listed = '{"image": "a.png", "caption": "A"}\n{"image": "b.png", "caption": "B"}\n'
    (tmp_path / "one" / "captions.jsonl").write_text(listed)
    single = open_index(tmp_path / "one", tmp_path / "cache")
    with pytest.raises(UserError, match=r"no photo of .* has two"):
        mix(data_of(), replace(sources, real=single))
    wrong = listed.replace('"A"', '"A", "neg_caption": "x"') + listed.replace('"A"', '"C"')
    (tmp_path / "one" / "captions.jsonl").write_text(wrong)
    index = open_index(tmp_path / "one", tmp_path / "cache")
    with pytest.raises(UserError, match="wrong captions beside each"):
        mix(data_of(), replace(sources, real=index))
    with pytest.raises(UserError, match=r"data\.real_captions=one: choose from all, edited"):
        ClassificationData("real", None, cf_ratio=0, real_captions="one")
    with pytest.raises(UserError, match=r"data\.control_source=x is drawn from instead"):
        PlanData("a", "b", plan=Plan(), control="real", control_source="x", real_captions="one")


class Plan:
    """A plan, as far as settings look at it."""

    name, sources, needs_labels = "plan", (True, True), False

    def draw(self, pool, validation):
        raise NotImplementedError
