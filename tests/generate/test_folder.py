"""What cannot be asked for, and whose folder it is."""

from __future__ import annotations

import fcntl
import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.files import write_json
from cfaug.generate.folder import CommitTotals, read_record
from cfaug.generate.images import COUNTS
from cfaug.generate.job import generate
from cfaug.generate.sampling import Draws
from tests.generate import tiny
from tests.generate.tiny import card, contents, job, log


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
        ({"part": 3, "parts": 3}, "part counts from 0"), ({"editor": None}, "needs recipe.editor"),
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
