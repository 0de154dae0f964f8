"""Parts that a user wrote and that do not keep their protocol: named, and nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import Edit, Edited, Example, Proposal
from cfaug.data.shards.shards import read_sets
from cfaug.generate.annotation import AnnotationStage
from cfaug.generate.job import generate
from cfaug.generate.recipe import Pipeline, Recipe, ShardSettings
from cfaug.generate.sampling import Draws
from cfaug.imaging.select import Selection
from tests.generate.tiny import Copyist, WordSwap, captions, job, studio


@dataclass
class Spoilt(WordSwap):
    """An editor of which what it returns is spoilt."""

    spoil: Any = None

    def edit(self, examples):
        return self.spoil(super().edit(examples))


OTHER = Example("other", "other", ("a",))


def replaced(**changes):
    """Return a spoiler that puts a proposal of other contents in place of each."""

    def change(one):
        parts = {"example": one.example, "texts": one.texts, "edits": one.edits}
        return Proposal(**{**parts, **changes})

    def spoil(found):
        return [replace(edited, proposals=tuple(map(change, edited.proposals))) for edited in found]

    return spoil


def same_key(found):
    """Give the first proposal of a batch the key "same"."""
    first = next(k for k, one in enumerate(found) if one.proposals)
    return [*found[:first], *replaced(key="same")(found[first : first + 1]), *found[first + 1 :]]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda found: None, "recipe.editor should return a list, not NoneType"),
        (lambda found: found[1:], "one result for each of 4 items; it returned 3"),
        (
            lambda found: [{} for _ in found],
            "'photo0-0': should be a cfaug.core.types.Edited, not dict",
        ),
        (replaced(example=OTHER), "'photo0-0': the proposal 'other' is of example 'other'"),
        (lambda found: [Edited((), {"x": "many"}) for _ in found], "survivors['x'] should be"),
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
    def spoil(found):
        bad = [one for one in found if any(p.key == "photo3-1" for p in one.proposals)]
        extra = {"score": float("inf")}
        return [replaced(extra=extra)([one])[0] if one in bad else one for one in found]

    summary = generate(job(tmp_path, editor=Spoilt(spoil=spoil)))
    assert (summary.unpublished, [one.key for one in summary.failures]) == ((1,), ["photo3-1"])
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
    scores = {score for one in read_sets(tmp_path) for score in one.scores.values()}
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
    found = Edited([Proposal(example, ("y",), (None,)), Proposal(example, ("z",), (None,))])
    assert [one.key for one in found.proposals] == ["a-0", "a-1"]
