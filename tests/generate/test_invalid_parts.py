"""What is refused: jobs, folders of others, and parts that do not keep their protocol."""

from __future__ import annotations

import fcntl
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.atomic_files import write_json
from cfaug.core.errors import UserError
from cfaug.core.types import Edit, Edited, Example, Proposal
from cfaug.data.shards.shards import read_sets
from cfaug.generate.annotation import AnnotationStage
from cfaug.generate.folder import CommitTotals, read_record
from cfaug.generate.images import COUNTS
from cfaug.generate.job import generate
from cfaug.generate.recipe import Pipeline, Recipe, ShardSettings
from cfaug.generate.sampling import Draws
from cfaug.imaging.select import Selection
from tests.generate import tiny
from tests.generate.tiny import Copyist, WordSwap, captions, card, contents, job, log, studio


@dataclass
class Spoilt(WordSwap):
    """An editor of which what it returns is spoilt."""

    spoil: Any = None

    def edit(self, examples):
        return self.spoil(super().edit(examples))


OTHER = Example("other", "other", ("a",))


def replaced(**changes):
    """Return a spoiler that puts a proposal of other contents in place of each."""

    def change(proposal):
        parts = {"example": proposal.example, "texts": proposal.texts, "edits": proposal.edits}
        return Proposal(**{**parts, **changes})

    def spoil(results):
        return [
            replace(edited, proposals=tuple(map(change, edited.proposals))) for edited in results
        ]

    return spoil


def same_key(results):
    """Give the first proposal of a batch the key "same"."""
    first = next(k for k, edited in enumerate(results) if edited.proposals)
    return [
        *results[:first],
        *replaced(key="same")(results[first : first + 1]),
        *results[first + 1 :],
    ]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda results: None, "recipe.editor should return a list, not NoneType"),
        (lambda results: results[1:], "one result for each of 4 items; it returned 3"),
        (
            lambda results: [{} for _ in results],
            "'photo0-0': should be a cfaug.core.types.Edited, not dict",
        ),
        (replaced(example=OTHER), "'photo0-0': the proposal 'other' is of example 'other'"),
        (lambda results: [Edited((), {"x": "many"}) for _ in results], "survivors['x'] should be"),
        (replaced(extra={"a": {1, 2}}), "known of the proposal 'photo0-0' is not JSON"),
        (replaced(extra={"a": float("nan")}), "known of the proposal 'photo0-0' is not JSON"),
        (replaced(extra={1: 2}), "should be a mapping of names to JSON values"),
        (replaced(details=({}, {"a": b"x"})), "known of the proposal 'photo0-0' is not JSON"),
        (replaced(texts=("a", " ")), "proposal 'photo0-0': a text is empty"),
        (replaced(edits=("a", None)), "proposal 'photo0-0': 'a' should be an Edit or None"),
        (replaced(key="same"), "'same' is duplicated: examples 'photo0-0' and 'photo0-1' have it"),
    ],
)
def test_what_an_editor_may_not_return_is_refused_before_it_is_written(tmp_path, spoil, said):
    with pytest.raises(UserError) as caught:
        generate(job(tmp_path, editor=Spoilt(spoil=spoil), stage="captions"))
    assert said in str(caught.value)
    assert not list((tmp_path / "captions").glob("*"))


def test_one_invalid_proposal_keeps_only_its_shard_back(tmp_path, capsys):
    def spoil(results):
        bad = [edited for edited in results if any(p.key == "photo3-1" for p in edited.proposals)]
        extra = {"score": float("inf")}
        return [
            replaced(extra=extra)([edited])[0] if edited in bad else edited for edited in results
        ]

    summary = generate(job(tmp_path, editor=Spoilt(spoil=spoil)))
    assert (summary.unpublished, [lost.key for lost in summary.failures]) == ((1,), ["photo3-1"])
    assert "is not JSON" in capsys.readouterr().err


def test_a_proposal_key_is_not_shared_by_shards_either(tmp_path):
    """Each shard of texts is sound by itself; as shards of images they would repeat a key."""
    said = r"'same' is duplicated: examples 'photo0-0' and 'photo.*then remove .*captions"
    for stage in ("captions", "images"):
        with pytest.raises(UserError, match=said):
            generate(job(tmp_path, editor=Spoilt(spoil=same_key), stage=stage))
    assert not list(tmp_path.glob("*.tar"))


@pytest.mark.parametrize("stage", ["captions", "all"])
def test_a_proposal_key_is_not_shared_by_parts_either(tmp_path, stage):
    """The part that comes last finds it, before it draws anything."""

    def part(number):
        few = {"captions": captions(8), "shards": ShardSettings(sets_per_shard=4)}
        return job(
            tmp_path, editor=Spoilt(spoil=same_key), stage=stage, part=number, parts=2, **few
        )

    generate(part(0))
    made = {file.name for file in tmp_path.glob("*.tar")}
    with pytest.raises(UserError, match=r"'same' is duplicated"):
        generate(part(1))
    assert {file.name for file in tmp_path.glob("*.tar")} == made


@dataclass
class Fixed:
    """A scorer that says the same of every candidate."""

    said: Any

    names = ("good",)

    def score(self, proposals, images):
        return self.said(len(proposals))

    def describe(self):
        return {"fixed": "1"}


ONE = {"draws": Draws(candidates=1), "shards": ShardSettings(sets_per_shard=4)}


def fixed(said) -> Pipeline:
    return Pipeline(Copyist(), {"fixed": Fixed(said)}, Selection({"good": 0.5}, maximise="good"))


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (lambda n: [{"good": "x"}] * n, "Fixed: the score 'good' should be a number"),
        (lambda n: [{"good": ("x",)}] * n, "Fixed: the score 'good' should be a number"),
        (lambda n: [{"great": 1.0}] * n, "'great', which is not among its names: good"),
        (lambda n: [None] * n, "Fixed should return a mapping"),
        (lambda n: [], "Fixed should return one result for each of"),
        (lambda n: 1.0, "Fixed should return a list, not float"),
    ],
)
def test_what_a_scorer_may_not_return_is_refused(tmp_path, said, error):
    with pytest.raises(UserError) as caught:
        generate(job(tmp_path, studio=fixed(said), **ONE))
    assert error in str(caught.value)
    assert not list(tmp_path.glob("*.tar"))


def test_a_score_that_is_not_finite_is_a_named_failure(tmp_path):
    summary = generate(job(tmp_path, studio=fixed(lambda n: [{"good": float("nan")}] * n), **ONE))
    assert len(summary.unpublished) == summary.shards + len(summary.unpublished) == 5
    assert "scores are not finite: Fixed: the score 'good' is [nan]" in summary.failures[0].error


@pytest.mark.parametrize("value", [np.float32(0.75), np.int64(1), True, (np.float64(1),)])
def test_scores_of_numpy_are_numbers(tmp_path, value):
    generate(job(tmp_path, studio=fixed(lambda n: [{"good": value}] * n), **ONE))
    scores = {score for s in read_sets(tmp_path) for score in s.scores.values()}
    assert scores == {float(np.ravel(value)[0])}
    assert {type(score) for score in scores} == {float}


@dataclass
class Says:
    """An annotator."""

    said: Any
    reads: tuple[str, ...] = ("texts",)

    name = "says"

    def identity(self):
        return "1"

    def describe(self):
        return {}

    def annotate(self, examples):
        return self.said(len(examples))


@pytest.mark.parametrize("reads", [(), ("texts",)])
@pytest.mark.parametrize(
    ("said", "error"),
    [
        (lambda n: [], "annotator 'says' should return one result for each of 4 items"),
        (lambda n: [[1]] * n, "example 'photo0-0' should be a mapping"),
        (lambda n: [{"says": {1}}] * n, "its answer to example 'photo0-0' is not JSON"),
    ],
)
def test_what_an_annotator_may_not_answer_is_refused(tmp_path, said, error, reads):
    stage = AnnotationStage([Says(said, reads)], tmp_path)
    with pytest.raises(UserError) as caught:
        stage.annotate(captions(4))
    assert error in str(caught.value)
    assert not list(tmp_path.rglob("*.jsonl"))


class Nothing:
    """Keeps no protocol."""


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"editor": Nothing()}, "recipe.editor is invalid: Nothing lacks describe, edit, which"),
        ({"image_editor": Nothing()}, "recipe.image_editor is invalid: Nothing lacks describe"),
        ({"scorers": {"a": Fixed(None), "b": Nothing()}}, "recipe.scorers.b is invalid"),
        ({"report": {"b": Nothing()}}, "recipe.report.b is invalid"),
        ({"annotators": {"b": Nothing()}}, "annotators.b is invalid: Nothing lacks annotate"),
    ],
)
def test_a_part_that_lacks_a_method_is_named(parts, said):
    recipe = Recipe("x", **{"editor": WordSwap(), "image_editor": Copyist(), **parts})
    with pytest.raises(UserError) as caught:
        recipe.check("all")
    assert said in str(caught.value)


def test_scores_and_selection_are_checked_before_anything_is_edited(tmp_path):
    editor = WordSwap()
    asks = studio()
    object.__setattr__(asks, "select", Selection({"nowhere": 0.5}))
    with pytest.raises(UserError, match="no scorer gives the score 'nowhere'"):
        generate(job(tmp_path / "out", editor=editor, studio=asks))
    assert editor.edited == []
    assert not (tmp_path / "out").exists()


def test_proposals_may_be_a_list_of_nothing_else():
    with pytest.raises(UserError, match="should be a Proposal"):
        Edited([Edit("a", "b", "c")])
    example = Example("a", "a", ("x",))
    edited = Edited([Proposal(example, ("y",), (None,)), Proposal(example, ("z",), (None,))])
    assert [proposal.key for proposal in edited.proposals] == ["a-0", "a-1"]


def test_images_need_captions_first(tmp_path) -> None:
    with pytest.raises(UserError, match="run stage=captions first"):
        generate(job(tmp_path, stage="images"))
    generate(job(tmp_path, stage="captions", part=0, parts=2))
    with pytest.raises(UserError, match="no captions for shard 00001: run stage=captions"):
        generate(job(tmp_path, stage="images"))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"stage": "image"}, "captions, images, all"), ({"publish_incomplete": 1}, "true or false"),
        ({"part": 3, "parts": 3}, "part counts from 0"), ({"part": 0.5}, "part=0.5 should be a"),
        ({"editor": None}, "needs recipe.editor"),
        ({"studio": None}, "needs recipe.image_editor"),
    ],
)  # fmt: skip
def test_a_job_that_cannot_be_is_refused(tmp_path, wrong, named) -> None:
    with pytest.raises(UserError, match=named):
        job(tmp_path, **wrong)


def test_other_settings_are_refused_with_the_difference(tmp_path) -> None:
    generate(job(tmp_path, captions=tiny.captions(4)))
    before = contents(tmp_path)
    other = job(tmp_path, captions=tiny.captions(4), draws=Draws(candidates=9))
    with pytest.raises(UserError, match=r"draws.candidates: there 6, asked 9[\s\S]*overwrite=true"):
        generate(other)
    with pytest.raises(UserError, match=r"data.source \(content\)"):
        generate(job(tmp_path, captions=tiny.captions(5)))
    with pytest.raises(UserError, match="steps: there '\\(absent\\)', asked 20"):
        generate(job(tmp_path, captions=tiny.captions(4), image_settings={"steps": 20}))
    assert contents(tmp_path) == before
    (tmp_path / "run.json").unlink()
    with pytest.raises(UserError, match="were not made here"):
        generate(job(tmp_path, captions=tiny.captions(4)))


def test_a_stage_that_failed_before_it_made_anything_binds_nobody(tmp_path) -> None:
    def fail(_):
        raise RuntimeError("no such model")

    few = tiny.captions(4)
    broken = tiny.WordSwap()
    broken.edit = fail
    assert generate(job(tmp_path, captions=few, editor=broken)).unpublished
    assert (tmp_path / "run.json").exists()
    generate(job(tmp_path, captions=tiny.captions(5), stage="captions"))  # other settings
    with pytest.raises(UserError, match=r"data.source \(content\)"):
        generate(job(tmp_path, captions=few, stage="captions"))
    # Images were not begun with any settings yet; captions stay when only those change.
    edited = contents(tmp_path / "captions")
    generate(replace(job(tmp_path, captions=tiny.captions(5)), source=lambda: tiny.captions(5)))
    assert contents(tmp_path / "captions") == edited


def test_images_that_failed_before_any_was_made_bind_nobody(tmp_path) -> None:
    few = tiny.captions(4)
    generate(job(tmp_path, captions=few, stage="captions"))
    edited = contents(tmp_path / "captions")
    (tmp_path / ".work" / "00000").mkdir()
    record = read_record(tmp_path)
    first = job(tmp_path, captions=few, image_settings={"steps": 1})
    write_json(tmp_path / "run.json", {**asdict(record), "images": first.record().images})
    with (tmp_path / ".work" / "users").open() as handle:  # somebody is at work with them
        fcntl.flock(handle, fcntl.LOCK_SH)
        with pytest.raises(UserError, match="steps: there 1, asked 2"):
            generate(job(tmp_path, captions=few, image_settings={"steps": 2}))
    generate(job(tmp_path, captions=few, image_settings={"steps": 2}))
    assert contents(tmp_path / "captions") == edited
    assert list(tmp_path.glob("*.tar"))
    with pytest.raises(UserError, match="steps: there 2, asked 1"):
        generate(first)


def test_overwriting_clears_what_changed_and_nothing_else(tmp_path) -> None:
    swap = tiny.WordSwap()
    generate(job(tmp_path, editor=swap, captions=tiny.captions(6)))
    (tmp_path / "notes.txt").write_text("mine")
    changed = job(
        tmp_path, editor=swap, captions=tiny.captions(6), seed=1, overwrite=True,
        draws=Draws(candidates=2),
    )  # fmt: skip
    generate(changed)
    assert sum(swap.edited) == 6  # the edits are still good
    assert len(log(tmp_path)) == 2 * card(tmp_path)["caption_sets"]
    fewer = replace(changed, source=lambda: tiny.captions(3))
    generate(fewer)
    assert sum(swap.edited) == 9
    assert [file.name for file in sorted(tmp_path.glob("*.tar"))] == ["00000.tar"]
    before = contents(tmp_path)
    generate(fewer)  # the same settings: nothing is cleared
    assert contents(tmp_path) == before
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_same_part_twice_at_once_is_refused(tmp_path) -> None:
    generate(job(tmp_path, stage="captions", parts=2))
    with (tmp_path / ".work" / "part-0-of-2").open() as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is at work on part 0 of 2"):
            generate(job(tmp_path, parts=2))
        generate(job(tmp_path, part=1, parts=2))
    with (tmp_path / ".work" / "00002.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is at work on shard 00002"):
            generate(job(tmp_path, parts=1))


def test_nobody_clears_under_another_s_feet(tmp_path) -> None:
    generate(job(tmp_path, captions=tiny.captions(4)))
    with (tmp_path / ".work" / "users").open() as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        with pytest.raises(UserError, match="stop it first"):
            generate(job(tmp_path, captions=tiny.captions(4), seed=5, overwrite=True))


def test_a_record_that_cannot_be_read_is_named(tmp_path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UserError, match=r"run\.json cannot be read"):
        read_record(tmp_path)


def test_a_source_with_duplicated_or_no_keys_is_refused_before_anything_is_written(tmp_path):
    for examples, named in (([], "no examples"), (tiny.captions(2) * 2, "photo0-0, photo0-1")):
        with pytest.raises(UserError, match=named):
            generate(job(tmp_path / "out", captions=examples))
    assert not (tmp_path / "out").exists()


COMMITS = st.lists(
    st.fixed_dictionaries(
        {
            "sets": st.integers(0, 9), "sha256": st.sampled_from("ab"),
            "rejected": st.dictionaries(st.sampled_from("xy"), st.integers(1, 3)),
            "failed": st.lists(st.just({"key": "k", "error": "e"}), max_size=1),
        },
        optional={
            "models": st.sampled_from([{"text": "a", "image": "b"}, {"image": "b", "text": "a"}]),
            "zoo": st.sampled_from("pq"),
            "rejected_edits": st.just({"odd": {"noun": 2}}),
            "yields": st.just({"by": "grid", "of": {"g": dict.fromkeys(COUNTS, 1)}}),
        },
    ),
    min_size=1, max_size=6,
)  # fmt: skip


@given(COMMITS)
def test_commits_are_added_up_as_all_of_them_at_once_are(commits):
    totals = CommitTotals(["sets"])
    assert [totals.add(commit) for commit in commits] == commits
    assert totals.count == len(commits)
    assert totals.sums == {"sets": sum(commit["sets"] for commit in commits)}
    reasons = {reason for commit in commits for reason in commit["rejected"]}
    assert totals.rejected == {
        reason: sum(commit["rejected"].get(reason, 0) for commit in commits) for reason in reasons
    }
    assert totals.failed == [item for commit in commits for item in commit["failed"]]
    noted = sum("rejected_edits" in commit for commit in commits)
    assert totals.kinds == ({"odd": {"noun": 2 * noted}} if noted else {})
    counted = sum("yields" in commit for commit in commits)
    assert totals.yields == (
        {"by": "grid", "of": {"g": dict.fromkeys(COUNTS, counted)}} if counted else None
    )
    assert totals.values.keys() == {"models", "zoo"} & {name for c in commits for name in c}
    for name in totals.values:
        texts = [json.dumps(commit.get(name), sort_keys=True) for commit in commits]
        distinct = [json.loads(text) for text in dict.fromkeys(texts)]
        assert totals.merge(name) == (distinct if len(distinct) > 1 else distinct[0])
