"""Retrieved photos: the nearest to the failures' captions, against a plain loop over cosines."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder
from cfaug.core.types import Example
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_scores, read_sets
from cfaug.evaluation.failures import Finder, ModelFailure, write_failures
from cfaug.models.specs import HFClip
from cfaug.papers.repair.retrieval import RetrievedChoice, Unedited, describe_failure
from tests.scripts import ROOT

FAILURES = [
    ModelFailure("stress", "background", "on the grass", "at night", ("ball",), 0.9),
    ModelFailure("stress", "colour", "red", "orange", ("cat", "cube"), 0.5),
    ModelFailure("stress", "background", "on the road", "in the snow", (), 0.3),
    ModelFailure("stress", "background", "on the road", "on the beach", (), -0.3),
]


@pytest.mark.parametrize(
    ("kind", "before", "after", "labels", "captions"),
    [
        ("background", "on the grass", "at night", ("ball",), ("a ball at night",)),
        ("background", "", "in the snow", (), ("in the snow",)),
        ("domain", "photo of a", "sketch of an", ("ring",), ("sketch of a ring",)),
        ("colour", "red", "", ("ball",), ("a ball",)),
        ("colour", "red", "", (), ("a photo",)),
        ("subject", "cube", "ball", ("cube",), ("ball",)),
    ],
)
def test_a_failure_looks_like_its_edited_photos(kind, before, after, labels, captions):
    assert describe_failure(ModelFailure("stress", kind, before, after, labels)) == captions


def test_a_photo_is_proposed_as_it_is():
    (edited,) = Unedited().edit([Example("a", "a", (" a red  ball ",), label="ball")])
    (proposal,) = edited.proposals
    assert (proposal.texts, proposal.edits, proposal.key) == (("a red ball",), (None,), "a")


COSINES = st.lists(
    st.lists(st.integers(-3, 3).map(lambda n: n / 4), min_size=3, max_size=3), max_size=9
)


@given(COSINES, st.lists(st.integers(0, 4), min_size=3, max_size=3), st.integers(0, 5))
def test_no_photo_that_is_left_is_nearer_than_one_that_is_chosen(cosines, wanted, seed):
    scores = {
        f"p{i}": {f"failure_{n}": value for n, value in enumerate(of)}
        for i, of in enumerate(cosines)
    }
    choice = RetrievedChoice(None, seed=seed)
    chosen = choice._nearest(scores, wanted)
    keys = [key for of in chosen for key in of]
    assert len(keys) == len(set(keys)) == min(len(cosines), sum(wanted))
    assert all(len(of) <= count for of, count in zip(chosen, wanted, strict=True))
    for number, of in enumerate(chosen):
        left = [scores[key][f"failure_{number}"] for key in scores.keys() - set(keys)]
        values = [scores[key][f"failure_{number}"] for key in of]
        assert values == sorted(values, reverse=True)
        if left and values:
            assert max(left) <= min(values)
    # The order in which shards hold the photos does not matter.
    assert choice._nearest(dict(reversed(scores.items())), wanted) == chosen


@pytest.mark.slow
def test_the_nearest_photos_are_chosen_and_trained_on(tmp_path, monkeypatch, script, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    write_failures(tmp_path / "f.jsonl", FAILURES)
    words = [
        "recipe=retrieved", "data.failures=f.jsonl", "data.budget=32", "paths.shards=made",
        "data.world.real_scenes=90",
    ]  # fmt: skip
    assert script("generate")([*words, "shards.sets_per_shard=40"]) == 0, capfd.readouterr().err
    (pool,) = tmp_path.glob("shards/shapescapes-*/real")
    photos = open_index(str(pool), tmp_path / "cache")
    assert len(photos) == 90
    encoder = HFClip("zoo:clip-domains").load(DualEncoder).eval()
    captions = [["a ball at night"], ["an orange cat", "an orange cube"], ["in the snow"]]
    with torch.inference_mode():
        pixels = np.stack([np.asarray(encoder.transform(photos.image(i))) for i in range(90)])
        seen = torch.nn.functional.normalize(encoder.encode_image(torch.from_numpy(pixels)), dim=1)
        asked = [encoder.encode_text(encoder.tokenize(of)) for of in captions]
        said = [torch.nn.functional.normalize(of, dim=1) for of in asked]
        cosines = torch.stack([(seen @ of.T).amax(1) for of in said])
    whole = read_scores(tmp_path / "made")
    assert len(whole) == 90
    assert all(len(of) == 4 for of in whole.values())
    # 32 images, at most a quarter for each of three failures; the fourth has no effect above 0.
    left, slow = set(range(90)), [0, 0, 0]
    chosen = set()
    while min(slow) < 8:
        _, row, number = max(
            (float(cosines[n, i]), i, n) for n in range(3) if slow[n] < 8 for i in left
        )
        left.remove(row)
        slow[number] += 1
        chosen.add((photos.text(row), photos.label(row)))
    made = list(read_sets(tmp_path / "made"))
    assert len(made) == 24
    assert {(of.members[0].text, of.members[0].label) for of in made} == chosen
    assert all(len(of.members) == 1 and of.members[0].edit is None for of in made)
    assert "data.cf_ratio=0,0.6 data.counterfactual_members=singles" in capfd.readouterr().err
    train = [
        "task=classification", "data.counterfactual=made", "data.counterfactual_members=singles",
        "data.world.real_scenes=90", "data.size=40", "data.cf_ratio=0.5", "trainer.max_steps=2",
    ]  # fmt: skip
    assert script("train")(train) == 0, capfd.readouterr().err
    assert "all but the 24 sets of chosen.json" in capfd.readouterr().err
    words = [word for word in train if not word.startswith("task=")]
    assert script("train")([*words, "dry_run=true"]) == 0, capfd.readouterr().err


def test_the_model_under_repair_does_not_retrieve(tmp_path):
    judge = HFClip("zoo:clip-domains")
    finder = Finder("demo", judge.weights_hash(), "a_stress", "data")
    write_failures(
        tmp_path / "f.jsonl",
        [ModelFailure("stress", "colour", "red", "blue", found_by=finder)],
    )
    with pytest.raises(UserError, match="it is the model under repair"):
        RetrievedChoice(str(tmp_path / "f.jsonl"), judge=judge)
