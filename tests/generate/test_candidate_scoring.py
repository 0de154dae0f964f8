"""Batches against one candidate at a time, everything decoded and every number by hand."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cfaug.core.atomic_files import temporary_name
from cfaug.core.errors import UserError
from cfaug.core.types import Draw, Edit, ImageJob, Images
from cfaug.generate.candidate_scoring import (
    Journal,
    ScoredCandidate,
    ScoredSlice,
    ShardScorer,
    better_half,
    candidate_log,
)
from cfaug.generate.failures import ProgressReporter
from cfaug.generate.images import choose_winners, draw_shard, merge
from cfaug.generate.job import generate
from cfaug.generate.recipe import ShardPlan, encode_image
from cfaug.generate.sampling import Draws
from cfaug.imaging.select import clip_selection
from tests.generate import tiny
from tests.generate.tiny import contents, job
from tests.properties import examples
from tests.records import image_job, proposal


def caption_sets(members=2, count=9):
    edited = tiny.WordSwap(members=members).edit(tiny.captions(count))
    return [proposal for of_example in edited for proposal in of_example.proposals]


def cos(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(a @ b / math.sqrt((a @ a) * (b @ b)))


def slow_scores(texts, draw):
    """Return (sim_0, sim_1s, images, directions) of one candidate."""
    painter, eye = tiny.Painter(), tiny.Eye()
    pictures = painter.decode(painter.sample([image_job(texts, draw)])[0])
    images = [eye.images(picture[None])[0].numpy() for picture in pictures]
    words = [eye.texts([text])[0].numpy() for text in texts]
    edited = range(1, len(texts))
    return (
        cos(images[0], words[0]),
        [cos(images[i], words[i]) for i in edited],
        [cos(images[i], images[0]) for i in edited],
        [cos(images[i] - images[0], words[i] - words[0]) for i in edited],
    )


@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("sampling", ["independent", "tree(3)"])
def test_a_batch_scores_as_one_candidate_at_a_time(members, sampling) -> None:
    draws = Draws(candidates=7, sampling=sampling)
    desk = ShardScorer(
        tiny.studio(select=clip_selection(0.55, 0.7, 0.3), report={}), caption_sets(members)
    )
    seen = set()
    for batch in ShardPlan(desk.proposals, draws, 3, 10).batches():
        for drawn in desk.score(batch, desk.sample(batch)):
            for candidate in drawn.candidates:
                texts = desk.proposals[drawn.place].texts
                sim_0, sim_1, image, direction = slow_scores(texts, candidate.draw)
                worst = {
                    "caption_0": sim_0 - 0.55,
                    "caption_1": min(sim_1) - 0.55,
                    "image": min(image) - 0.7,
                    "direction": min(direction) - 0.3,
                }
                assert candidate.reason == next((name for name, by in worst.items() if by < 0), "")
                seen.add(candidate.reason)
                assert candidate.scores["sim_0"] == pytest.approx(sim_0, abs=1e-5)
                if candidate.reason == "caption_0":
                    assert set(candidate.scores) == {"sim_0"}
                else:
                    assert candidate.scores["sim_1"] == pytest.approx(sim_1, abs=1e-5)
                    assert candidate.scores["sim_image"] == pytest.approx(image, abs=1e-5)
                    assert candidate.scores["sim_direction"] == pytest.approx(direction, abs=1e-4)
    assert {"", "caption_0", "caption_1"} <= seen


def test_a_tree_s_base_is_decoded_once_and_a_poor_base_s_edits_never() -> None:
    painter = tiny.Painter()
    desk = ShardScorer(
        tiny.studio(editor=painter, select=clip_selection(0.55, 0.7, 0.3)), caption_sets()
    )
    [batch] = ShardPlan(desk.proposals, Draws(candidates=8, sampling="tree(4)"), 0, 10**6).batches()
    scored = desk.score(batch, desk.sample(batch))
    judged = [candidate for of in scored for candidate in of.candidates]
    poor = sum(candidate.reason == "caption_0" for candidate in judged)
    assert 0 < poor < len(judged)
    assert painter.decoded == len(judged) // 4 + len(judged) - poor


def test_the_images_are_the_best_candidate_s_own() -> None:
    studio = tiny.studio(image_format="webp")
    desk = ShardScorer(studio, caption_sets(3))
    batch = ShardPlan(desk.proposals, Draws(candidates=8), 0, 10**6).batches()[0]
    for drawn in desk.score(batch, desk.sample(batch)):
        accepted = [candidate for candidate in drawn.candidates if not candidate.reason]
        assert len(drawn.images) == min(1, len(accepted))
        for number, images in drawn.images.items():
            best = max(accepted, key=lambda o: (min(o.scores["sim_direction"]), o.draw.seed))
            assert number == best.number
            job = ImageJob(desk.proposals[drawn.place], best.draw)
            expected = studio.editor.decode(studio.editor.sample([job])[0]).numpy()
            for data, pixels in zip(images.images, expected, strict=True):
                actual = np.asarray(Image.open(io.BytesIO(data))).transpose(2, 0, 1)
                assert np.abs(actual - pixels * 255).max() <= 0.5001


def test_a_set_without_a_visible_edit_is_not_drawn_but_logged() -> None:
    same = proposal(("a cat", "a cat"), (None, Edit("noun", "cat", "cat")), "same")
    painter = tiny.Painter()
    desk = ShardScorer(tiny.studio(editor=painter), [same, *caption_sets(count=2)], Draws(3))
    [batch] = ShardPlan(desk.proposals, Draws(candidates=3), 0, 100).batches()
    scored = desk.score(batch, desk.sample(batch))
    assert [candidate.reason for candidate in scored[0].candidates] == ["same_text"] * 3
    assert scored[0].images == {}
    assert painter.sampled == [6]
    log = pq.read_table(io.BytesIO(candidate_log(desk, scored, set())))
    rows = log.to_pylist()[:3]
    assert [(r["candidate"], r["reason"], r["sim_0"], r["report_sim_1"]) for r in rows] == [
        (k, "same_text", None, None) for k in range(3)
    ]
    alone = ShardScorer(tiny.studio(editor=painter), [same])
    [batch] = ShardPlan(alone.proposals, Draws(candidates=2), 0, 100).batches()
    assert len(alone.score(batch, alone.sample(batch))[0].candidates) == 2


def test_a_score_that_is_no_number_is_an_error() -> None:
    class Broken(tiny.Eye):
        def images(self, images):
            return super().images(images) * math.nan

    desk = ShardScorer(tiny.studio(scorers={"scorer": Broken()}), caption_sets(count=1))
    [batch] = ShardPlan(desk.proposals, Draws(candidates=2), 0, 10).batches()
    with pytest.raises(FloatingPointError, match="not finite"):
        desk.score(batch, desk.sample(batch))


@pytest.mark.parametrize("image_format", ["png", "webp", "jpeg"])
def test_images_are_encoded_without_loss_or_nearly(image_format) -> None:
    torch.manual_seed(0)
    smooth = torch.nn.functional.interpolate(torch.rand(1, 3, 4, 4), (32, 32), mode="bilinear")[0]
    pixels = (smooth * 255).byte().permute(1, 2, 0).numpy()
    data = encode_image(Image.fromarray(pixels), image_format)
    decoded = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    error = np.abs(decoded.astype(int) - pixels).max()
    assert error == 0 if image_format != "jpeg" else error < 8
    assert data == encode_image(Image.fromarray(pixels), image_format)


@pytest.mark.parametrize("law", ["uniform", "adaptive"])
def test_no_more_images_are_held_than_can_be_kept(law, tmp_path) -> None:
    """Of 100 candidates of 84 images, all that are accepted would be gigabytes."""
    draws = Draws(candidates=12, p_law=law)
    pipeline = tiny.studio(select=clip_selection(-1, -1, None, keep=2), report={})
    desk = ShardScorer(pipeline, caption_sets(count=4), draws)
    plan = ShardPlan(desk.proposals, draws, 0, 3)
    watch = ProgressReporter("drawing", "candidates", "accepted", 48)
    attempt = draw_shard(desk, plan, Journal(tmp_path / "journal"), watch, overlap=False)
    whole = merge([attempt.done[i] for i in sorted(attempt.done)])
    winners = choose_winners(desk, whole)
    for scored in whole:
        assert len(scored.candidates) == 12
        assert all(not candidate.reason for candidate in scored.candidates)
        assert set(scored.images) == {winner.number for winner in winners[scored.place]}
        assert len(scored.images) == 2


@given(
    st.dictionaries(st.integers(0, 50), st.tuples(st.integers(0, 3), st.floats(-1, 1)), max_size=20)
)
def test_the_better_half_of_every_set_is_kept(candidates) -> None:
    kept = better_half(candidates)
    assert kept == sorted(set(kept))
    for set_place in {place for place, _ in candidates.values()}:
        mine = [number for number, (place, _) in candidates.items() if place == set_place]
        staying = [number for number in kept if number in mine]
        leaving = [number for number in mine if number not in staying]
        assert len(staying) == math.ceil(len(mine) / 2)
        worst = min(candidates[number][1] for number in staying)
        assert all(candidates[number][1] <= worst for number in leaving)


@pytest.mark.parametrize("aggregate", ["min", "mean"])
@pytest.mark.parametrize(("rounds", "left"), [(1, 3), (2, 2), (5, 1)])
def test_the_directional_similarity_decides(aggregate, rounds, left) -> None:
    """Six candidates a set; the painter's guesses are exact, so the order is that of the end."""
    draws = Draws(candidates=6, sampling=f"halving({rounds})")
    select = clip_selection(-1, -1, None, aggregate)
    sets = caption_sets(3, count=4)
    desk = ShardScorer(tiny.studio(select=select), sets, draws)
    [batch] = ShardPlan(sets, draws, 3, 100).batches()
    for drawn in desk.score(batch, desk.sample(batch)):
        texts = sets[drawn.place].texts
        pool = min if aggregate == "min" else (lambda values: sum(values) / len(values))
        value = {c.number: pool(slow_scores(texts, c.draw)[3]) for c in drawn.candidates}
        best = sorted(value, key=value.__getitem__)[-left:]
        assert {c.number for c in drawn.candidates if not c.reason} == set(best)
        for candidate in drawn.candidates:
            if candidate.number not in best:
                assert (candidate.reason, candidate.scores) == ("halving", {})


def test_bytes_depend_on_the_plan_alone(tmp_path) -> None:
    draws = Draws(candidates=6, sampling="halving(2)")
    generate(job(tmp_path / "whole", draws=draws))
    for part in (1, 0):
        parts = {"part": part, "parts": 2, "pipeline_scoring": part == 1}
        generate(job(tmp_path / "parts", draws=draws, **parts))
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


COSINES = st.floats(-1, 1, width=32)
COLUMNS = st.lists(COSINES, max_size=3).map(tuple)
SCORES = st.dictionaries(st.sampled_from(["sim_0", "sim_1", "of_texts"]), COSINES | COLUMNS)
PARAMETERS = st.dictionaries(st.sampled_from(["f", "g"]), COSINES)
DRAWS = st.builds(Draw, st.integers(0, 2**64 - 1), st.floats(0, 1), st.floats(1, 20), PARAMETERS)
CANDIDATES = st.builds(
    ScoredCandidate, st.integers(0, 99), DRAWS, st.sampled_from(["", "image"]), SCORES
)
FILES = st.lists(st.binary(max_size=9), min_size=2, max_size=3).map(tuple)
SHARED = st.builds(Images, FILES, st.lists(st.integers(0, 1), max_size=4).map(tuple))
IMAGES = st.dictionaries(st.integers(0, 99), SHARED)
SLICES = st.builds(
    ScoredSlice, st.integers(0, 9), st.lists(CANDIDATES, max_size=3).map(tuple), IMAGES
)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(batch=st.lists(SLICES, max_size=3))
def test_a_batch_comes_back_as_it_was(tmp_path_factory, batch) -> None:
    journal = Journal(tmp_path_factory.mktemp("journal") / "00000")
    journal.save(3, "plan", batch)
    assert journal.load(3, "plan") == batch
    assert journal.load(3, "another") is None
    assert journal.load(4, "plan") is None


def test_a_damaged_batch_is_ignored(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "00000")
    candidate = ScoredCandidate(0, Draw(1, 0.5, 7.5), "", {"sim_0": 0.5, "sim_1": (0.5,)})
    batch = [ScoredSlice(0, (candidate,), {0: Images((b"image 0", b"image 1"))})]
    journal.save(0, "plan", batch)
    file = tmp_path / "00000" / "00000.batch"
    data = file.read_bytes()
    flipped = data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
    for damaged in (flipped, data[:-1], b"", data[:20], data + b"x"):
        file.write_bytes(damaged)
        assert journal.load(0, "plan") is None
    journal.save(0, "plan", batch)
    assert journal.load(0, "plan") == batch
    journal.clear()
    assert not (tmp_path / "00000").exists()
    journal.clear()


def test_a_full_disk_is_explained(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "00000")
    (tmp_path / "00000").mkdir()
    temporary_name(tmp_path / "00000" / "00000.batch").symlink_to("/dev/full")
    with pytest.raises(UserError, match=rf"left in {tmp_path}: batch 0 needs [1-9]\d* bytes"):
        journal.save(0, "plan", [])
    assert journal.load(0, "plan") is None
