"""One set an example: the photo, its control, and every accepted edit at its best share of p."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.types import Edit, Edited, Example, ImageJob, Images, Proposal
from cfaug.data.shards.shards import read_sets
from cfaug.editing.rule_edits import AddReconstruction
from cfaug.generate.job import generate
from cfaug.generate.recipe import Recipe, ShardPlan
from cfaug.generate.sampling import GridDraws
from cfaug.imaging.photo_editing import SameImage
from cfaug.imaging.select import CONSISTENCY, DIRECTION, REASONS, Selection
from tests.generate.photos import photo
from tests.generate.tiny import SIDE, Eye, card, colours, contents, job, log

GRID = (0.2, 0.5, 0.8)


@dataclass
class Swaps:
    """Replaces the last word by each of some others: one proposal each."""

    words: Sequence[str] = ("cat", "dog", "tree")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        return [self._one(example) for example in examples]

    def _one(self, example: Example) -> Edited:
        *head, last = example.text.split()
        others = [word for word in self.words if word != last]
        proposals = []
        for number, other in enumerate(others):
            texts = (example.text, " ".join([*head, other]))
            edits, details = (None, Edit("object", last, other)), ({}, {"rank": number})
            proposals.append(Proposal(example, texts, edits, {"prompt": "location"}, "", details))
        return Edited(tuple(proposals), {"words": len(others)})

    def describe(self) -> dict[str, str]:
        return {"editor": "swaps"}


@dataclass
class Retouch:
    """An image editor of photos: p of the photo, the rest what the edited words look like."""

    drift: bool = False
    jobs: list[ImageJob] = field(default_factory=list)

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        self.jobs += jobs
        return [self._one(image_job) for image_job in jobs]

    def _one(self, image_job: ImageJob) -> Images:
        assert image_job.image is not None
        source = np.asarray(decode_image(image_job.image.read(), "it"))[:SIDE, :SIDE]
        if self.drift:
            source = source ^ np.uint8(len(image_job.proposal.key))
        base, edited = image_job.texts
        # As much of the change as is not shared; the last steps change nothing but details.
        look = colours(edited) - colours(base)
        strength = 1 - image_job.draw.p if base != edited else 0
        change = np.moveaxis(look, 0, -1) * (140 * strength)
        made = np.clip(source.astype(float) + change + (base == edited), 0, 255).astype(np.uint8)
        return Images((source, made))

    def describe(self) -> dict[str, str]:
        return {"retoucher": "hand"}


EXAMPLES = [
    Example(f"p{n}", f"g{n}", (f"a {word}",), photo(n, SIDE, SIDE), word, {"scene": n})
    for n, word in enumerate(["cat", "dog", "ball", "tree", "house"])
]
SELECTION = Selection(
    {DIRECTION: 0.3}, DIRECTION, reasons=REASONS, above={CONSISTENCY: 0},
    controls=["reconstruction"],
)  # fmt: skip


def made(folder, *, editor=None, retouch=None, selection=SELECTION, set_per="example", **changes):
    """Make the five photos' sets; return the summary and the sets."""
    base = job(folder, captions=EXAMPLES, **changes)
    eye = Eye()
    eye.consistency = "caption"
    recipe = Recipe(
        "joined", editor or AddReconstruction(Swaps()), image_editor=retouch or Retouch(),
        draws=GridDraws(GRID, 2.0), scorers={"eye": eye}, selection=selection, set_per=set_per,
        example_per="image", source_images=True,
    )  # fmt: skip
    whole = replace(base, recipe=recipe)
    return generate(whole), list(read_sets(folder))


def test_the_sets_of_an_example_become_one(tmp_path):
    summary, sets = made(tmp_path / "joined")
    _, apart = made(tmp_path / "apart", set_per="proposal")
    assert [joined.key for joined in sets] == [example.key for example in EXAMPLES]
    assert summary.sets == 5
    edits = {(counterfactual.members[1].text, counterfactual.key[:2]) for counterfactual in apart}
    assert len(apart) < 5 + 13  # some edits were rejected
    assert {(m.text, joined.key) for joined in sets for m in joined.members[1:]} == edits
    for joined, example in zip(sets, EXAMPLES, strict=True):
        original, control, *edited = joined.members
        assert (original.edit, original.text) == (None, example.text)
        assert (control.edit, control.text) == (Edit("reconstruction", "", ""), example.text)
        assert control.image_name != original.image_name == "0"
        assert all(member.edit.kind == "object" for member in edited)
        assert {member.label for member in joined.members} == {example.label}
        assert original.extra == {"scene": example.extra["scene"]}
        for member in edited:
            parts = next(a for a in apart if a.key == member.source_id)
            assert joined.images[member.image_name] == parts.images["1"]
            assert member.extra["scores"] == dict(parts.scores)
            assert member.extra["p"] == parts.members[1].extra["p"]
            assert member.extra["prompt"] == "location"
            assert member.extra["scene"] == original.extra["scene"]
            assert "rank" in member.extra
        pooled = {name: min(m.extra["scores"][name] for m in edited) for name in joined.scores}
        assert dict(joined.scores) == pooled
        assert joined.provenance["recipe"] == "tiny"
    # Each candidate that is kept has the best direction of those that were accepted.
    rows = log(tmp_path / "joined")
    for key in {row["set"] for row in rows if row["kept"] and "reconstruction" not in row["set"]}:
        of = [row for row in rows if row["set"] == key and row["accepted"]]
        best = max(of, key=lambda row: row["sim_direction"])
        assert [row["candidate"] for row in of if row["kept"]] == [best["candidate"]]


def test_a_control_has_one_candidate_and_reaches_no_threshold(tmp_path):
    retouch, selection = Retouch(), replace(SELECTION, minimum={DIRECTION: 2.0})
    assert made(tmp_path / "bare", editor=Swaps(), selection=selection)[1] == []
    folder = tmp_path / "controls"
    summary, sets = made(folder, retouch=retouch, selection=selection)
    assert all(len(joined.members) == 2 for joined in sets)  # every edit is rejected
    controls = [image_job for image_job in retouch.jobs if image_job.texts[0] == image_job.texts[1]]
    assert [image_job.draw.p for image_job in controls] == [GRID[0]] * 5
    assert summary.rejected["direction"] == len(retouch.jobs) - 5
    with_edits = [row for row in log(folder) if row["accepted"]]
    assert {row["set"] for row in with_edits} == {f"p{n}-reconstruction" for n in range(5)}
    assert card(folder)["accepted"] == 5


def test_every_edit_of_a_photo_is_drawn_at_the_same_shares_and_noise(tmp_path):
    retouch = Retouch()
    made(tmp_path, retouch=retouch)
    draws = {}
    for image_job in retouch.jobs:
        draws.setdefault(image_job.proposal.key, []).append(image_job.draw)
    for key, drawn in draws.items():
        if not key.endswith("reconstruction"):
            assert tuple(draw.p for draw in drawn) == GRID
    assert {draw.cfg for drawn in draws.values() for draw in drawn} == {2.0}
    seeds = {key: {draw.seed for draw in drawn} for key, drawn in draws.items()}
    assert all(len(distinct) == 1 for distinct in seeds.values())
    assert seeds["p0-0"] == seeds["p0-reconstruction"]
    assert len(set.union(*seeds.values())) == 5


def test_whatever_the_batches_parts_and_breaks_the_bytes_are_the_same(tmp_path):
    made(tmp_path / "whole")
    for part in (1, 0):
        made(tmp_path / "parts", part=part, parts=2)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_an_unedited_image_that_differs_between_edits_is_refused(tmp_path):
    with pytest.raises(UserError, match="the unedited image of example 'p0' differs"):
        made(tmp_path, retouch=Retouch(drift=True))


def test_a_set_of_single_edited_texts_keeps_all_of_them(tmp_path):
    class Only(Swaps):
        def _one(self, example):
            edited = super()._one(example)
            single = [
                replace(proposal, texts=proposal.texts[1:], edits=proposal.edits[1:], details=())
                for proposal in edited.proposals
            ]
            return replace(edited, proposals=tuple(single))

    base = job(tmp_path, captions=EXAMPLES)
    recipe = Recipe(
        "same", Only(), image_editor=SameImage(), set_per="example", example_per="image",
        source_images=True,
    )  # fmt: skip
    generate(replace(base, recipe=recipe))
    first = next(iter(read_sets(tmp_path)))
    assert [member.text for member in first.members] == ["a dog", "a tree"]
    assert list(first.images) == ["0"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: GridDraws((0.5, 0.5)), "one or more different values"),
        (lambda: Selection(above={"a": float("nan")}), "recipe.selection.above.a"),
    ],
)
def test_invalid_settings_are_named(wrong, said):
    with pytest.raises(UserError, match=said):
        wrong()


def test_a_threshold_above_is_exclusive_and_one_below_inclusive():
    select = Selection({"a": 0.5}, above={"b": 0.0, "c": None}, reasons={"b": "consistency"})
    assert select.names == ("a", "b")
    assert select.reject({"a": 0.5, "b": 1e-9}) == ""
    assert select.reject({"a": 0.5, "b": 0.0}) == "consistency"
    assert select.reject({"a": 0.4, "b": 0.0}) == "a"


def test_the_last_that_passes_may_be_kept_as_in_the_released_code():
    accepted = [(n, 7, {"sim": s}) for n, s in enumerate((0.1, 0.9, 0.9, 0.3))]
    assert Selection(maximise="sim").best(accepted) == [1]
    assert Selection(maximise="sim", prefer="last").best(accepted) == [2]
    assert Selection(prefer="last").best(accepted) == [3]
    assert Selection().best(accepted) == [0]


def test_a_control_is_known_by_the_kinds_of_all_its_edits():
    select = Selection(controls=["reconstruction"])
    control, edit = Edit("reconstruction", "", ""), Edit("object", "a", "b")
    assert select.is_control((None, control))
    assert not select.is_control((None, control, edit))
    assert not select.is_control((None,))
    assert not Selection().is_control((None, control))


@pytest.mark.parametrize("size", [1, 7, 8, 14, 17, 19, 24])
def test_a_batch_holds_whole_examples_whose_control_has_one_candidate(size):
    every = [edited.proposals for edited in AddReconstruction(Swaps()).edit(EXAMPLES)]
    sets = [proposal for proposals in every for proposal in proposals]
    is_control = SELECTION.is_control
    plan = ShardPlan(sets, GridDraws(GRID), 0, size, is_control, whole_examples=True)
    cut = plan.batches()
    counts = [1 + len(GRID) * (len(proposals) - 1) for proposals in every]  # 7, 7, 10, 7, 10
    held, expected = 0, [0]
    for count in counts:
        if held and held + count > size:
            expected.append(0)
            held = 0
        held += count
        expected[-1] += count
    assert [sum(len(portion.draws) for portion in batch) for batch in cut] == expected
