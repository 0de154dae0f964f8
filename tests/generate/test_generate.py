"""Whole runs: what they write, and what they leave alone."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from cfaug.data.index import open_index
from cfaug.data.shards import read_sets
from cfaug.errors import UserError
from cfaug.generate.card import write_card
from cfaug.generate.draws import Draws
from cfaug.generate.folder import read_record
from cfaug.generate.job import Job
from cfaug.generate.run import generate
from cfaug.generate.settings import ShardSettings
from cfaug.score.select import Selection
from cfaug.types import Caption, Edit, ImageJob
from tests.generate import tiny
from tests.generate.tiny import contents, job


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A folder made at once by one part."""
    folder = tmp_path_factory.mktemp("whole") / "shards"
    generate(job(folder))
    return folder


def card(folder: Path) -> dict:
    return json.loads((folder / "card.json").read_text())


def test_a_set_says_where_it_comes_from(whole) -> None:
    sets = {one.key: one for one in read_sets(whole)}
    one = sets["photo1-1"]
    assert one.group == "photo1"
    assert [m.text for m in one.members] == ["a cat beside 3 tree", "a cat beside 3 cat"]
    assert [m.edit for m in one.members] == [None, Edit("noun", "tree", "cat")]
    assert [m.image_name for m in one.members] == ["0", "1"]
    assert [m.source_id for m in one.members] == ["photo1-1"] * 2
    assert dict(one.provenance) == {
        "recipe": "tiny",
        "zoo": "none",
        "caption": {"rank": 1},
        "models": {
            "text": {"editor": "word swap"}, "image": {"painter": "hand"},
            "scorer": {"eye": "eye"}, "report": {"eye": "sign"},
        },
    }  # fmt: skip
    rows = [r for r in log(whole) if r["kept"] and r["set"] == one.key]
    [row] = rows
    assert {name: np.float32(value) for name, value in one.scores.items()} == {
        name: np.float32(row[name]) for name in ("sim_0", "sim_1", "sim_image", "sim_direction")
    }
    for member in one.members:
        assert member.extra["seed"] == str(row["seed"])
        assert member.extra["candidate"] == row["candidate"]
        assert np.float32(member.extra["p"]) == row["p"]
        assert np.float32(member.extra["cfg"]) == row["cfg"]
        assert Image.open(io.BytesIO(one.images[member.image_name])).size == (4, 4)


def log(folder: Path) -> list[dict]:
    return [
        row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()
    ]


def test_the_summary_the_card_and_the_log_agree(whole, capsys) -> None:
    summary = generate(job(whole))
    assert "nothing to do" in capsys.readouterr().err
    found, rows = card(whole), log(whole)
    sets = list(read_sets(whole))
    reasons = {row["reason"] for row in rows} - {""}
    counts = {reason: sum(row["reason"] == reason for row in rows) for reason in reasons}
    assert found["rejected"] == counts
    assert summary.rejected == {**counts, "similarity": found["edits"]["rejected"]["similarity"]}
    assert found["candidates"] == len(rows) == 6 * found["caption_sets"]
    assert found["accepted"] == sum(row["accepted"] for row in rows)
    assert found["sets"] == summary.sets == len(sets) == sum(row["kept"] for row in rows)
    assert found["sets"] + found["without"] == found["caption_sets"] == found["edits"]["sets"]
    assert summary.json() | {"wall_s": 0} == {
        "shards": 5, "sets": len(sets), "members": 2 * len(sets), "failed": 0, "wall_s": 0,
        "rejected": dict(summary.rejected),
    }  # fmt: skip
    assert (found["of"], len(found["shards"]), found["recipe"]) == (5, 5, "tiny")
    assert found["models"]["text"] == found["edits"]["models"] == {"editor": "word swap"}


def test_training_reads_the_shards(whole, tmp_path) -> None:
    index = open_index(whole, tmp_path)
    assert index.kind == "shards"
    assert len(index) == card(whole)["members"]


@pytest.mark.parametrize("parts", [3, 7])
def test_bytes_do_not_depend_on_the_parts(whole, tmp_path, parts) -> None:
    folder = tmp_path / "shards"
    summaries = [generate(job(folder, part=part, parts=parts)) for part in reversed(range(parts))]
    assert contents(folder) == contents(whole)
    assert sum(one.sets for one in summaries) == card(whole)["sets"]
    assert [one.shards for one in summaries] == [
        len(range(part, 5, parts)) for part in reversed(range(parts))
    ]


def test_stages_apart_are_stages_together(whole, tmp_path) -> None:
    folder = tmp_path / "shards"
    first = generate(job(folder, stage="captions", studio=None))
    assert (first.shards, first.sets, first.members) == (5, 15, 30)
    assert first.rejected == {"similarity": 2}
    assert not list(folder.glob("*.tar"))
    second = generate(job(folder, stage="images", editor=None, captions=()))
    assert contents(folder) == contents(whole)
    assert second.sets == card(whole)["sets"]


def test_judging_in_another_thread_changes_nothing(whole, tmp_path) -> None:
    generate(job(tmp_path / "shards", overlap=True))
    assert contents(tmp_path / "shards") == contents(whole)


def test_images_need_captions_first(tmp_path) -> None:
    with pytest.raises(UserError, match="run stage=captions first"):
        generate(job(tmp_path, stage="images"))
    generate(job(tmp_path, stage="captions", part=0, parts=2))
    with pytest.raises(UserError, match="no captions for shard 00001: run stage=captions"):
        generate(job(tmp_path, stage="images"))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"stage": "image"}, "captions, images, all"), ({"on_error": "skip"}, "fail, publish"),
        ({"part": 3, "parts": 3}, "part counts from 0"), ({"captions": ()}, "needs captions"),
        ({"studio": None}, "needs a model that draws"),
    ],
)  # fmt: skip
def test_a_job_that_cannot_be_is_refused(tmp_path, wrong, named) -> None:
    with pytest.raises(UserError, match=named):
        job(tmp_path, **wrong)
    with pytest.raises(UserError, match=r"shards\.batch=0"):
        ShardSettings(batch=0)


# --- whose folder it is -------------------------------------------------------------------------


def test_other_settings_are_refused_with_the_difference(tmp_path) -> None:
    generate(job(tmp_path, captions=tiny.captions(4)))
    before = contents(tmp_path)
    other = job(tmp_path, captions=tiny.captions(4), draws=Draws(candidates=9))
    with pytest.raises(UserError, match=r"draws.candidates: there 6, asked 9[\s\S]*overwrite=true"):
        generate(other)
    with pytest.raises(UserError, match=r"data.captions \(content\)"):
        generate(job(tmp_path, captions=tiny.captions(5)))
    with pytest.raises(UserError, match="steps: there '\\(absent\\)', asked 20"):
        generate(job(tmp_path, captions=tiny.captions(4), image_settings={"steps": 20}))
    assert contents(tmp_path) == before
    (tmp_path / "run.json").unlink()
    with pytest.raises(UserError, match="were not made here"):
        generate(job(tmp_path, captions=tiny.captions(4)))


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
    generate(replace(changed, captions=tiny.captions(3)))
    assert sum(swap.edited) == 9
    assert [file.name for file in sorted(tmp_path.glob("*.tar"))] == ["00000.tar"]
    before = contents(tmp_path)
    generate(replace(changed, captions=tiny.captions(3)))  # the same settings: nothing is cleared
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


# --- what fails ---------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [False, True])
def test_a_failed_set_keeps_its_shard_back_until_it_works(whole, tmp_path, capsys, overlap) -> None:
    painter = tiny.Painter(broken=frozenset({"7"}))  # caption 7 is in shard 1
    summary = generate(job(tmp_path, studio=tiny.studio(editor=painter), overlap=overlap))
    assert summary.unpublished == (1,)
    assert [one.key for one in summary.failures] == ["photo3-1"]
    assert "failed: photo3-1 (shard 00001): RuntimeError: cannot draw" in capsys.readouterr().err
    assert not (tmp_path / "00001.json").exists()
    assert summary.json()["failed"] == 1
    painter.broken = frozenset()
    painter.sampled.clear()
    again = generate(job(tmp_path, studio=tiny.studio(editor=painter)))
    assert (again.unpublished, again.failures) == ((), ())
    assert contents(tmp_path) == contents(whole)
    assert sum(painter.sampled) < 4 * 6  # finished batches of the shard were kept


def test_what_fails_in_the_other_thread_is_named_too(whole, tmp_path) -> None:
    def spoil(image: Image.Image, made: ImageJob) -> Image.Image:
        if " 7 " in made.texts[0]:
            raise ValueError("no")
        return image

    made = job(tmp_path, studio=tiny.studio(finish=spoil), overlap=True)
    assert [one.key for one in generate(made).failures] == ["photo3-1"]
    generate(job(tmp_path))
    assert contents(tmp_path) == contents(whole)


def test_publishing_leaves_out_what_failed_and_lists_it(whole, tmp_path) -> None:
    painter = tiny.Painter(broken=frozenset({"7"}))
    published = job(tmp_path, studio=tiny.studio(editor=painter), on_error="publish")
    summary = generate(published)
    assert summary.unpublished == ()
    expected = [one for one in read_sets(whole) if one.key != "photo3-1"]
    assert list(read_sets(tmp_path)) == expected
    assert [one["key"] for one in card(tmp_path)["failed"]] == ["photo3-1"]
    assert {row["set"] for row in log(tmp_path)}.isdisjoint({"photo3-1"})
    assert generate(published).json()["failed"] == 1  # nothing to do, still said
    generate(job(tmp_path))  # on_error=fail tries again
    assert contents(tmp_path) == contents(whole)


def test_a_batch_that_only_fails_together_is_named_and_retried(whole, tmp_path) -> None:
    painter = tiny.Painter(together=1)
    summary = generate(job(tmp_path, studio=tiny.studio(editor=painter)))
    assert summary.unpublished == (0, 1, 2, 3)
    assert "alone it works, but not in its batch: MemoryError" in summary.failures[0].error
    publish = job(tmp_path, studio=tiny.studio(editor=painter), on_error="publish")
    assert generate(publish).failures == ()
    assert list(read_sets(tmp_path)) == list(read_sets(whole))


def test_a_caption_that_fails_is_named_and_retried(whole, tmp_path) -> None:
    swap = tiny.WordSwap(broken=frozenset({"photo2-0"}))
    summary = generate(job(tmp_path, editor=swap))
    assert summary.unpublished == (1,)
    assert not (tmp_path / "00001.tar").exists()
    swap.broken = frozenset()
    generate(job(tmp_path, editor=swap))
    assert contents(tmp_path) == contents(whole)


def test_a_caption_that_failed_is_in_a_later_shard(whole, tmp_path) -> None:
    swap = tiny.WordSwap(broken=frozenset({"photo2-0"}))
    assert generate(job(tmp_path, editor=swap, on_error="publish")).unpublished == ()
    assert [one["key"] for one in card(tmp_path)["edits"]["failed"]] == ["photo2-0"]
    assert "photo2-0" not in {one.key for one in read_sets(tmp_path)}
    generate(job(tmp_path))  # on_error=fail edits it, and the shard is drawn anew
    assert contents(tmp_path) == contents(whole)


def test_a_mistake_that_is_everybody_s_is_the_user_s(tmp_path) -> None:
    class Lost(tiny.WordSwap):
        def edit(self, captions):
            raise UserError("no weights at zoo:nowhere")

    with pytest.raises(UserError, match="zoo:nowhere"):
        generate(job(tmp_path, editor=Lost()))


def test_a_damaged_journal_is_drawn_again(whole, tmp_path) -> None:
    painter = tiny.Painter(broken=frozenset({"2"}))
    generate(job(tmp_path, studio=tiny.studio(editor=painter)))
    [*files] = (tmp_path / ".work" / "00000").glob("*.batch")
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:-1])
    generate(job(tmp_path))
    assert contents(tmp_path) == contents(whole)


def test_edits_that_were_tampered_with_are_refused(tmp_path) -> None:
    generate(job(tmp_path, stage="captions"))
    with (tmp_path / "captions" / "00002.jsonl").open("a") as handle:
        handle.write("{}\n")
    with pytest.raises(UserError, match=r"00002\.jsonl is not what 00002\.json committed"):
        generate(job(tmp_path, stage="images"))


@pytest.mark.parametrize("file", ["00001.tar", "00001.parquet", "00001.json"])
def test_a_full_disk_keeps_what_was_complete(whole, tmp_path, file) -> None:
    folder = tmp_path / "shards"
    generate(job(folder, stage="captions"))

    def full(pixels: Image.Image, _: object) -> Image.Image:
        """Fill the disk once shard 0 is there: earlier, it would be taken for litter."""
        if (folder / "00000.json").exists():
            link = folder / f"{file}.{os.getpid()}.tmp"
            if not link.is_symlink():
                link.symlink_to("/dev/full")
        return pixels

    with pytest.raises(UserError, match=f"no space left in {folder}: shard 00001"):
        generate(job(folder, studio=tiny.studio(finish=full)))
    assert [f.name for f in folder.glob("0*.json")] == ["00000.json"]
    generate(job(folder))
    assert contents(folder) == contents(whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_that_goes_on_later(whole, tmp_path, number) -> None:
    shots = []

    def shoot(image: Image.Image, _: object) -> Image.Image:
        shots.append(1)
        if len(shots) == 9:
            os.kill(os.getpid(), number)
        return image

    before = signal.getsignal(signal.SIGTERM)
    # A shell starts its background jobs, and so perhaps this test, deaf to Ctrl-C.
    given = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            generate(job(tmp_path, studio=tiny.studio(finish=shoot)))
    finally:
        signal.signal(signal.SIGINT, given)
    assert signal.getsignal(signal.SIGTERM) == before
    assert not list(tmp_path.rglob("*.tmp"))
    painter = tiny.Painter()
    generate(job(tmp_path, studio=tiny.studio(editor=painter)))
    assert contents(tmp_path) == contents(whole)
    assert sum(painter.sampled) < 90


def test_a_log_has_lines_where_there_is_no_terminal(tmp_path, capsys) -> None:
    generate(job(tmp_path, studio=tiny.studio(editor=tiny.Painter(broken=frozenset({"7"})))))
    capsys.readouterr()
    generate(job(tmp_path))
    [line] = [line for line in capsys.readouterr().err.splitlines() if "candidates/s" in line]
    assert line.startswith("18/18 candidates")
    assert line.endswith("accepted, 0:00:00 left")


def test_the_card_can_be_made_again_by_anyone(whole) -> None:
    before = (whole / "card.json").read_bytes()
    (whole / "card.json").unlink()
    write_card(whole)
    assert (whole / "card.json").read_bytes() == before


# --- other sets ---------------------------------------------------------------------------------


def test_larger_sets_and_several_winners(tmp_path) -> None:
    made = job(
        tmp_path, editor=tiny.WordSwap(members=3), draws=Draws(candidates=12),
        studio=tiny.studio(select=Selection(0.3, 0.3, None, over="mean", keep=2)),
    )  # fmt: skip
    generate(made)
    sets = list(read_sets(tmp_path))
    assert {len(one.members) for one in sets} == {3}
    assert {one.key.rpartition("-")[2] for one in sets} == {"0", "1"}
    best, second = sets[:2]
    assert (best.key, second.key) == ("photo0-0-0", "photo0-0-1")
    assert best.scores["sim_direction"] >= second.scores["sim_direction"]
    rows = [r for r in log(tmp_path) if r["set"] == "photo0-0" and r["kept"]]
    assert {r["candidate"] for r in rows} == {
        one.members[0].extra["candidate"] for one in (best, second)
    }


def test_a_shard_without_any_winner_is_a_shard(tmp_path) -> None:
    none = job(tmp_path, captions=tiny.captions(4), studio=tiny.studio(select=Selection(1, 1, 1)))
    summary = generate(none)
    assert (summary.shards, summary.sets) == (1, 0)
    assert list(read_sets(tmp_path)) == []
    assert card(tmp_path)["without"] == 4
    stars = [Caption(f"s{i}", "g", "a star") for i in range(2)]
    assert generate(job(tmp_path / "stars", captions=stars)).json()["rejected"] == {"similarity": 2}


def test_the_kept_images_are_finished_before_they_are_encoded(tmp_path) -> None:
    def grey(image: Image.Image, made: object) -> Image.Image:
        return Image.new("RGB", image.size, (9, 9, 9))

    found: Job = job(tmp_path, captions=tiny.captions(2), studio=tiny.studio(finish=grey))
    generate(found)
    for one in read_sets(tmp_path):
        for data in one.images.values():
            assert set(Image.open(io.BytesIO(data)).getdata()) == {(9, 9, 9)}
