"""Image editors that do not draw step by step, and scorers of any kind."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.types import Edit, Example, Images, Proposal
from cfaug.data.shards.shards import read_commit, read_sets
from cfaug.generate.candidate_scoring import Journal, ShardScorer
from cfaug.generate.failures import ProgressReporter
from cfaug.generate.images import Provenance, draw_shard, publish
from cfaug.generate.recipe import Pipeline, ShardPlan, check_groups, digest
from cfaug.generate.sampling import Draws
from cfaug.imaging.photo_editing import SameImage
from cfaug.imaging.select import Selection
from tests.generate import tiny
from tests.imaging.test_photo_editing import encoded
from tests.models.tiny import image as noise
from tests.records import Photo


@dataclass
class Lengths:
    """A scorer of texts only: how long each edited text is, and the longest of all."""

    asked: list[int] = field(default_factory=list)
    images: list[Images] = field(default_factory=list)

    names = ("length", "longest")

    def score(self, proposals, images):
        self.asked.append(len(proposals))
        self.images += images
        return [
            {
                "length": tuple(float(len(text)) for text in proposal.texts[1:]),
                "longest": float(max(map(len, proposal.texts))),
            }
            for proposal in proposals
        ]

    def describe(self):
        return {"lengths": "of texts"}


def proposals(count: int, texts: int = 2, groups: int = 1) -> list[Proposal]:
    """Return proposals on photos of different sizes, several an example."""
    made = []
    for i in range(count):
        data = encoded(noise(4 + i, 6), "JPEG")
        example = Example(f"p{i}", f"g{i % groups}", ("a dog",), Photo(data), "dog", {"boxes": [i]})
        words = ("a dog", *(f"a dog{'!' * (i + k)}" for k in range(1, texts)))
        edits = (None, *(Edit("marks", "", "!") for _ in words[1:]))
        details = tuple({"place": k} for k in range(texts))
        made.append(Proposal(example, words, edits, {"rank": i}, f"p{i}-x", details))
    return made


def make(folder, pipeline, sets, draws=None, size=4):
    """Draw and publish one shard; return its sets and the rows of its log."""
    shard = ShardScorer(pipeline, sets, draws)
    plan = ShardPlan(sets, draws, 0, size)
    folder.mkdir(exist_ok=True)
    with ProgressReporter("drawing", "candidates", "accepted", len(sets)) as progress:
        attempt = draw_shard(shard, plan, Journal(folder / ".work"), progress, overlap=False)
        again = draw_shard(shard, plan, Journal(folder / ".work"), progress, overlap=True)
    assert not attempt.failed
    assert again.done == attempt.done  # what the journal kept
    publish(shard, attempt, folder, 0, Provenance({"recipe": "x"}, pipeline.describe(), "0" * 64))
    return list(read_sets(folder)), pq.read_table(folder / "00000.parquet").to_pylist()


@pytest.mark.parametrize("texts", [1, 2, 4])
def test_sets_of_unchanged_images(tmp_path, texts) -> None:
    sets = proposals(5, texts)
    written, rows = make(tmp_path / "shards", Pipeline(SameImage()), sets)
    assert [counterfactual.key for counterfactual in written] == [proposal.key for proposal in sets]
    for counterfactual, proposal in zip(written, sets, strict=True):
        assert dict(counterfactual.images) == {"0": proposal.example.image.content}
        assert [m.text for m in counterfactual.members] == list(proposal.texts)
        assert [m.edit for m in counterfactual.members] == list(proposal.edits)
        assert {m.label for m in counterfactual.members} == {"dog"}
        known = dict(proposal.example.extra)
        assert [dict(m.extra) for m in counterfactual.members] == [
            {**known, "place": k} for k in range(texts)
        ]
        assert counterfactual.provenance["caption"] == dict(proposal.extra)
        assert dict(counterfactual.scores) == {}
    members = [1] if texts == 2 else list(range(1, texts)) or [0]
    assert [(r["set"], r["member"]) for r in rows] == [(s.key, m) for s in sets for m in members]
    columns = {"set", "candidate", "member", "accepted", "kept", "reason"}
    assert set(rows[0]) == columns  # nothing is random, nothing is scored
    assert all(row["kept"] for row in rows)


def test_a_scorer_of_texts_decides_and_names_its_columns(tmp_path) -> None:
    scorer = Lengths()
    select = Selection({"length": 7.0}, maximise="longest", reasons={"length": "too_short"})
    pipeline = Pipeline(SameImage(), {"lengths": scorer}, select)
    written, rows = make(tmp_path / "shards", pipeline, proposals(4, 3))
    assert [counterfactual.key for counterfactual in written] == ["p1-x", "p2-x", "p3-x"]
    assert dict(written[0].scores) == {"length": 7.0, "longest": 8.0}
    assert [(r["length"], r["longest"], r["reason"]) for r in rows[:4]] == [
        (6, 7, "too_short"), (7, 7, "too_short"), (7, 8, ""), (8, 8, ""),
    ]  # fmt: skip
    assert scorer.images[0].images[0] == encoded(noise(4, 6), "JPEG")
    assert written[0].provenance["models"]["lengths"] == {"lengths": "of texts"}


def test_several_scorers_of_any_kind_decide_together(tmp_path) -> None:
    """Cosines first: what they reject by its base image is not shown to the other scorer."""
    scorer = Lengths()
    select = Selection({"sim_0": 0.55, "length": 1.0, "seen_sim_1": None}, maximise="sim_1")
    pipeline = Pipeline(
        tiny.Painter(), {"eye": tiny.Eye(), "lengths": scorer}, select,
        {"seen": tiny.Eye("sign", "seen_")},
    )  # fmt: skip
    edited = tiny.WordSwap(members=3).edit(tiny.captions(5))
    sets = [proposal for of_example in edited for proposal in of_example.proposals]
    written, rows = make(tmp_path / "shards", pipeline, sets, Draws(candidates=6))
    poor = {(r["set"], r["candidate"]) for r in rows if r["reason"] == "sim_0"}
    assert 0 < len(poor) < 6 * len(sets)
    assert sum(scorer.asked) == 6 * len(sets) - len(poor)
    assert all((r["length"] is None) == ((r["set"], r["candidate"]) in poor) for r in rows)
    assert all((r["seen_sim_1"] is None) == (r["length"] is None) for r in rows)
    for counterfactual in written:
        assert set(counterfactual.scores) == {
            "sim_0", "sim_1", "sim_image", "sim_direction", "length", "longest",
        }  # fmt: skip
        passed = [r for r in rows if r["set"] == counterfactual.key and r["accepted"]]
        worst = {r["candidate"]: 9.0 for r in passed}
        for r in passed:
            worst[r["candidate"]] = min(worst[r["candidate"]], r["sim_1"])
        assert counterfactual.members[0].extra["candidate"] == max(worst, key=worst.__getitem__)


def test_cosines_of_ready_images_are_those_of_the_scorer_alone(tmp_path) -> None:
    """Pixels that are given at once, in a pipeline and without one."""
    pipeline = Pipeline(tiny.Painter(), {"eye": tiny.Eye()}, Selection())
    edited = tiny.WordSwap(members=3).edit(tiny.captions(4))
    sets = [proposal for of_example in edited for proposal in of_example.proposals]
    shard = ShardScorer(pipeline, sets, Draws(candidates=2))

    class Drawn:
        """The painter's pixels, given at once."""

        def edit(self, jobs):
            return tiny.Painter().edit(jobs)

        def describe(self):
            return {}

    ready = ShardScorer(Pipeline(Drawn(), {"eye": tiny.Eye()}, Selection()), sets, shard.draws)
    for batch in ShardPlan(sets, shard.draws, 0, 100).batches():
        lazy = [c for piece in shard.score(batch, shard.sample(batch)) for c in piece.candidates]
        made = ready.sample(batch)
        at_once = [c for piece in ready.score(batch, made) for c in piece.candidates]
        alone = tiny.Eye().score([job.proposal for job in ready.jobs(batch)], list(made.values()))
        for from_latents, from_pixels, by_scorer in zip(lazy, at_once, alone, strict=True):
            for name, value in from_latents.scores.items():
                # Pixels are rounded to 8 bits in all but the first.
                assert from_pixels.scores[name] == pytest.approx(value, abs=0.1)
                assert by_scorer[name] == pytest.approx(from_pixels.scores[name], abs=1e-6)


def test_a_progressive_editor_gives_pixels_too() -> None:
    painter = tiny.Painter(flagged=0.9)
    edited = tiny.WordSwap().edit(tiny.captions(6))
    sets = [proposal for of_example in edited for proposal in of_example.proposals]
    shard = ShardScorer(Pipeline(painter, {"eye": tiny.Eye()}), sets, Draws(candidates=3))
    [batch] = ShardPlan(sets, shard.draws, 0, 100).batches()
    jobs = shard.jobs(batch)
    made = painter.edit(jobs)
    flags = 0
    for latents, images in zip(painter.sample(jobs), made, strict=True):
        pixels = painter.decode(latents)
        expected = np.round(pixels.numpy().transpose(0, 2, 3, 1) * 255).astype(np.uint8)
        assert np.array_equal(np.stack(images.images), expected)
        assert images.unsafe == {i for i, flag in enumerate(painter.unsafe(pixels)) if flag}
        flags += len(images.unsafe)
    scored = [c for piece in shard.score(batch, shard.sample(batch)) for c in piece.candidates]
    assert 0 < sum(c.reason == "unsafe" for c in scored) <= flags


def test_unsafe_images_of_a_simple_editor_are_rejected(tmp_path) -> None:
    class Flagging(tiny.Copyist):
        def edit(self, jobs):
            return [
                Images(images.images, images.shown, frozenset({0} if "!!!" in job.texts[1] else ()))
                for job, images in zip(jobs, super().edit(jobs), strict=True)
            ]

    written, rows = make(tmp_path / "shards", Pipeline(Flagging()), proposals(4))
    assert [counterfactual.key for counterfactual in written] == ["p0-x", "p1-x"]
    assert [row["reason"] for row in rows] == ["", "", "unsafe", "unsafe"]
    assert Image.open(io.BytesIO(written[0].images["0"])).size == (3, 5)  # as high as the text long


def test_the_best_of_every_group_are_kept(tmp_path) -> None:
    select = Selection(maximise="longest", keep=2, per="group")
    pipeline = Pipeline(SameImage(), {"lengths": Lengths()}, select)
    written, rows = make(tmp_path / "shards", pipeline, proposals(7, groups=2))
    assert [counterfactual.key for counterfactual in written] == ["p3-x", "p4-x", "p5-x", "p6-x"]
    assert sum(row["accepted"] for row in rows) == 7
    drawn, _ = make(tmp_path / "drawn", pipeline, proposals(3), Draws(candidates=2))
    assert [counterfactual.key for counterfactual in drawn] == ["p2-x-0", "p2-x-1"]


def test_a_group_in_two_shards_is_refused_where_groups_are_chosen_from() -> None:
    check_groups({0: ["a", "b", "b"], 1: ["c"]}.items)
    with pytest.raises(UserError, match="group 'b' lies in shards 00000 and 00001"):
        check_groups({0: ["a", "b"], 1: ["b", "c"]}.items)


def test_further_parameters_reach_the_editor_and_the_disk(tmp_path) -> None:
    class Shade(tiny.Copyist):
        def edit(self, jobs):
            return [
                Images((np.full((2, 2, 3), round(255 * f), np.uint8),), (0, 0))
                for f in (job.draw.parameters["f"] for job in jobs)
            ]

    draws = Draws(candidates=3, parameters={"f": (0.4, 0.9)})
    written, rows = make(tmp_path / "shards", Pipeline(Shade()), proposals(4), draws)
    assert all(0.4 <= row["f"] <= 0.9 for row in rows)
    assert len({row["f"] for row in rows}) == len(rows)
    for shaded in written:
        f = shaded.members[0].extra["f"]
        assert np.asarray(Image.open(io.BytesIO(shaded.images["0"])))[0, 0, 0] == round(255 * f)
    plain = Draws(candidates=3)
    for ours, theirs in zip(draws.draw("p0-x", 0), plain.draw("p0-x", 0), strict=True):
        assert (ours.seed, ours.p, ours.cfg) == (theirs.seed, theirs.p, theirs.cfg)
    sets = proposals(1)
    [batch], [other] = (ShardPlan(sets, drawing, 0, 9).batches() for drawing in (draws, plain))
    assert digest(batch, sets) != digest(other, sets)


def test_a_pipeline_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(UserError, match="duplicated scores: sim_0, sim_1"):
        Pipeline(SameImage(), {"a": tiny.Eye(), "b": tiny.Eye()})
    with pytest.raises(UserError, match="no scorer gives the score 'report_sim_0'"):
        Pipeline(
            SameImage(), {"a": tiny.Eye()}, Selection({"report_sim_0": 0.1}),
            {"b": tiny.Eye(prefix="report_")},
        )  # fmt: skip
    halving = Draws(candidates=4, sampling="halving(1)")
    for editor, scorers, maximise in (
        (SameImage(), {"eye": tiny.Eye()}, "sim_0"), (tiny.Painter(), {"l": Lengths()}, "length"),
        (tiny.Painter(), {"eye": tiny.Eye()}, None),
    ):  # fmt: skip
        pipeline = Pipeline(editor, scorers, Selection(maximise=maximise))
        with pytest.raises(UserError, match="use sampling=independent"):
            ShardScorer(pipeline, proposals(1), halving)


def test_a_postprocess_is_applied_to_the_source_s_image(tmp_path) -> None:
    def mirror(image, job):
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)

    sets = proposals(1)
    written, _ = make(tmp_path / "shards", Pipeline(SameImage(), finish=mirror), sets)
    source = np.asarray(Image.open(io.BytesIO(sets[0].example.image.content)))
    made = Image.open(io.BytesIO(written[0].images["0"]))
    assert made.format == "PNG"
    assert np.array_equal(np.asarray(made), source[:, ::-1])


class Fussy(SameImage):
    """Rejects every second photo."""

    def edit(self, jobs):
        made = super().edit(jobs)
        odd = [int(job.proposal.key[1]) % 2 for job in jobs]
        return [
            Images((), rejected="photo_odd") if reject else images
            for images, reject in zip(made, odd, strict=True)
        ]


def test_a_photo_that_an_editor_rejects_is_counted_and_in_nobodys_way(tmp_path) -> None:
    scorer = Lengths()
    pipeline = Pipeline(Fussy(), {"lengths": scorer})
    sets, log = make(tmp_path / "out", pipeline, proposals(3))
    assert [counterfactual.key for counterfactual in sets] == ["p0-x", "p2-x"]
    assert [(row["set"], row["reason"]) for row in log] == [
        ("p0-x", ""), ("p1-x", "photo_odd"), ("p2-x", ""),
    ]  # fmt: skip
    commit = read_commit(tmp_path / "out", 0)
    assert (commit["rejected"], commit["without"], commit["failed"]) == ({"photo_odd": 1}, 1, [])
    assert all(len(images.images) for images in scorer.images)
