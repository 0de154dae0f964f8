"""What fails: it is named, held back or left out, and tried again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from PIL import Image

from cfaug.core.errors import RejectedError, UserError
from cfaug.core.types import ImageJob
from cfaug.data.shards.shards import read_sets
from cfaug.generate.job import generate
from tests.generate import tiny
from tests.generate.tiny import card, contents, job, log


@pytest.mark.parametrize("overlap", [False, True])
def test_a_failed_set_keeps_its_shard_back_until_it_works(whole, tmp_path, capsys, overlap) -> None:
    painter = tiny.Painter(broken=frozenset({"7"}))  # caption 7 is in shard 1
    summary = generate(job(tmp_path, studio=tiny.studio(editor=painter), pipeline_scoring=overlap))
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

    made = job(tmp_path, studio=tiny.studio(finish=spoil), pipeline_scoring=True)
    assert [one.key for one in generate(made).failures] == ["photo3-1"]
    generate(job(tmp_path))
    assert contents(tmp_path) == contents(whole)


def test_publishing_leaves_out_what_failed_and_lists_it(whole, tmp_path) -> None:
    painter = tiny.Painter(broken=frozenset({"7"}))
    published = job(tmp_path, studio=tiny.studio(editor=painter), publish_incomplete=True)
    summary = generate(published)
    assert summary.unpublished == ()
    expected = [one for one in read_sets(whole) if one.key != "photo3-1"]
    assert list(read_sets(tmp_path)) == expected
    assert [one["key"] for one in card(tmp_path)["failed"]] == ["photo3-1"]
    assert {row["set"] for row in log(tmp_path)}.isdisjoint({"photo3-1"})
    assert generate(published).json()["failed"] == 1  # nothing to do, still said
    generate(job(tmp_path))  # publish_incomplete=false tries again
    assert contents(tmp_path) == contents(whole)


def test_a_batch_that_only_fails_together_is_named_and_retried(whole, tmp_path) -> None:
    painter = tiny.Painter(together=1)
    summary = generate(job(tmp_path, studio=tiny.studio(editor=painter)))
    assert summary.unpublished == (0, 1, 2, 3)
    assert "alone it works, but not in its batch: MemoryError" in summary.failures[0].error
    publish = job(tmp_path, studio=tiny.studio(editor=painter), publish_incomplete=True)
    assert generate(publish).failures == ()
    assert list(read_sets(tmp_path)) == list(read_sets(whole))


def test_a_mistake_that_is_everybody_s_is_the_user_s(tmp_path) -> None:
    class Lost(tiny.WordSwap):
        def edit(self, captions):
            raise UserError("no weights at zoo:nowhere")

    with pytest.raises(UserError, match="zoo:nowhere"):
        generate(job(tmp_path, editor=Lost()))


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


class Picky(tiny.Painter):
    """A painter that rejects captions with a certain word."""

    def sample(self, jobs):
        for one in jobs:
            if self.broken & set(one.texts[0].split()):
                raise RejectedError("tiny photo", f"{one.proposal.key} is too small")
        return super().sample(jobs)


@pytest.mark.parametrize("overlap", [False, True])
def test_what_is_rejected_by_an_image_editor_is_counted_and_holds_nothing_back(
    whole, tmp_path, capsys, overlap
) -> None:
    studio = tiny.studio(editor=Picky(broken=frozenset({"7", "3"})))
    summary = generate(job(tmp_path, studio=studio, pipeline_scoring=overlap))
    assert (summary.unpublished, summary.failures) == ((), ())
    assert summary.rejected["tiny photo"] == 2 * 6
    assert "rejected: photo3-1 (tiny photo): photo3-1 is too small" in capsys.readouterr().err
    expected = [one for one in read_sets(whole) if one.key not in ("photo3-1", "photo1-1")]
    assert list(read_sets(tmp_path)) == expected
    assert {row["reason"] for row in log(tmp_path) if row["set"] == "photo3-1"} == {"tiny photo"}
    again = generate(job(tmp_path, studio=studio))
    assert again.rejected == summary.rejected


class PickyEditor(tiny.WordSwap):
    """An editor that rejects some examples, whatever is tried."""

    def edit(self, examples):
        for one in examples:
            if one.key in self.broken:
                raise RejectedError("no label", f"{one.key} has no label")
        return super().edit(examples)


def test_what_is_rejected_by_an_editor_is_counted_beside_what_its_filters_reject(
    whole, tmp_path
) -> None:
    editor = PickyEditor(broken=frozenset({"photo3-1", "photo0-0"}))
    summary = generate(job(tmp_path / "some", editor=editor))
    assert (summary.unpublished, summary.failures) == ((), ())
    assert summary.rejected["no label"] == 2
    expected = [one for one in read_sets(whole) if one.key not in ("photo3-1", "photo0-0")]
    assert list(read_sets(tmp_path / "some")) == expected
    editor.broken = frozenset(one.key for one in tiny.captions(17))
    summary = generate(job(tmp_path / "all", editor=editor))
    assert (summary.sets, summary.rejected, summary.failures) == (0, {"no label": 17}, ())


def test_a_caption_that_fails_is_named_and_edited_later(whole, tmp_path) -> None:
    swap = tiny.WordSwap(broken=frozenset({"photo2-0"}))
    assert generate(job(tmp_path, editor=swap)).unpublished == (1,)
    assert not (tmp_path / "00001.tar").exists()
    assert generate(job(tmp_path, editor=swap, publish_incomplete=True)).unpublished == ()
    assert [one["key"] for one in card(tmp_path)["edits"]["failed"]] == ["photo2-0"]
    assert "photo2-0" not in {one.key for one in read_sets(tmp_path)}
    generate(job(tmp_path))  # publish_incomplete=false edits it, and the shard is drawn anew
    assert contents(tmp_path) == contents(whole)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["pairs", "grids", "annotations"])
def test_kills_leave_no_trace(tmp_path: Path, what: str) -> None:
    told = tiny.run_module("tests.generate.killing", str(tmp_path), "20", "0", what)
    assert (told["killed"], told["final"]) == (20, 0)
    assert told["inside"] >= 10  # between the first result and the last shard
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    assert not list((tmp_path / "cut").rglob("*.batch"))
    assert not list(tmp_path.rglob("*.tmp"))
