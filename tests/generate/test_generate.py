"""Whole runs: what they write, what they leave alone, and what fails, which is tried again."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfaug.core.atomic_files import temporary_name
from cfaug.core.errors import RejectedError, UserError
from cfaug.core.types import Edit, Example, ImageJob
from cfaug.data.shards.codec import FORMAT
from cfaug.data.shards.shards import read_sets
from cfaug.generate.folder import write_card
from cfaug.generate.images import COUNTS, add_yields, yield_lines
from cfaug.generate.job import generate
from cfaug.generate.sampling import Draws
from cfaug.imaging.select import clip_selection
from tests import children
from tests.generate import killing, tiny
from tests.generate.tiny import card, contents, job, log


def test_a_set_says_where_it_comes_from(whole) -> None:
    sets = {counterfactual.key: counterfactual for counterfactual in read_sets(whole)}
    counterfactual = sets["photo1-1"]
    assert counterfactual.group == "photo1"
    assert [m.text for m in counterfactual.members] == ["a cat beside 3 tree", "a cat beside 3 cat"]
    assert [m.edit for m in counterfactual.members] == [None, Edit("noun", "tree", "cat")]
    assert [m.image_name for m in counterfactual.members] == ["0", "1"]
    assert [m.source_id for m in counterfactual.members] == ["photo1-1"] * 2
    assert dict(counterfactual.provenance) == {
        "recipe": "tiny",
        "zoo": "none",
        "caption": {"rank": 1},
        "models": {
            "text": {"editor": "word swap"}, "image": {"painter": "hand"},
            "scorer": {"eye": "eye"}, "report": {"eye": "sign"},
        },
    }  # fmt: skip
    rows = [r for r in log(whole) if r["kept"] and r["set"] == counterfactual.key]
    [row] = rows
    assert {name: np.float32(value) for name, value in counterfactual.scores.items()} == {
        name: np.float32(row[name]) for name in ("sim_0", "sim_1", "sim_image", "sim_direction")
    }
    for member in counterfactual.members:
        assert member.extra["seed"] == str(row["seed"])
        assert member.extra["candidate"] == row["candidate"]
        assert np.float32(member.extra["p"]) == row["p"]
        assert np.float32(member.extra["cfg"]) == row["cfg"]
        assert Image.open(io.BytesIO(counterfactual.images[member.image_name])).size == (4, 4)


def test_the_summary_the_card_and_the_log_agree(whole, capsys) -> None:
    summary = generate(job(whole))
    assert "nothing to do" in capsys.readouterr().err
    about, rows = card(whole), log(whole)
    sets = list(read_sets(whole))
    reasons = {row["reason"] for row in rows} - {""}
    counts = {reason: sum(row["reason"] == reason for row in rows) for reason in reasons}
    assert about["rejected"] == counts
    assert summary.rejected == {**counts, "similarity": about["edits"]["rejected"]["similarity"]}
    assert about["candidates"] == len(rows) == 6 * about["caption_sets"]
    assert about["accepted"] == sum(row["accepted"] for row in rows)
    assert about["sets"] == summary.sets == len(sets) == sum(row["kept"] for row in rows)
    assert about["sets"] + about["without"] == about["caption_sets"] == about["edits"]["sets"]
    assert summary.json() | {"wall_s": 0} == {
        "shards": 5, "sets": len(sets), "members": 2 * len(sets), "failed": 0, "wall_s": 0,
        "rejected": dict(summary.rejected),
    }  # fmt: skip
    assert (about["of"], len(about["shards"]), about["recipe"]) == (5, 5, "tiny")
    assert about["models"]["text"] == about["edits"]["models"] == {"editor": "word swap"}


def test_bytes_do_not_depend_on_the_parts(whole, tmp_path) -> None:
    folder, parts = tmp_path / "shards", 7
    summaries = [generate(job(folder, part=part, parts=parts)) for part in reversed(range(parts))]
    assert contents(folder) == contents(whole)
    assert sum(summary.sets for summary in summaries) == card(whole)["sets"]
    assert [summary.shards for summary in summaries] == [
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


def test_a_log_has_lines_where_there_is_no_terminal(tmp_path, capsys) -> None:
    generate(job(tmp_path, studio=tiny.studio(editor=tiny.Painter(broken=frozenset({"7"})))))
    capsys.readouterr()
    generate(job(tmp_path))
    [line] = [line for line in capsys.readouterr().err.splitlines() if "candidates/s" in line]
    assert line.startswith("drawing: 18/18 candidates")
    assert ", 0:00:00 left, " in line
    assert line.endswith("% accepted")


def test_the_card_can_be_made_again_by_anyone(whole) -> None:
    before = (whole / "card.json").read_bytes()
    (whole / "card.json").unlink()
    write_card(whole)
    assert (whole / "card.json").read_bytes() == before


def test_a_shard_without_any_winner_is_a_shard(tmp_path) -> None:
    none = job(
        tmp_path, captions=tiny.captions(4), studio=tiny.studio(select=clip_selection(1, 1, 1))
    )
    summary = generate(none)
    assert (summary.shards, summary.sets) == (1, 0)
    assert list(read_sets(tmp_path)) == []
    assert card(tmp_path)["without"] == 4
    stars = [Example(f"s{i}", "g", ("a star",)) for i in range(2)]
    assert generate(job(tmp_path / "stars", captions=stars)).json()["rejected"] == {"similarity": 2}


def grids(count):
    """Captions of two grids, and one that says nothing of its own."""
    examples = [
        replace(example, extra={"grid": "first" if i % 3 else "second"})
        for i, example in enumerate(tiny.captions(count))
    ]
    return [*examples[:-1], replace(examples[-1], extra={})]


def test_yields_are_those_of_the_log(tmp_path) -> None:
    changes = {
        "captions": grids(10),
        "draws": Draws(candidates=5),
        "studio": tiny.studio(select=clip_selection(0.45, 0.6, 0.3, keep=2)),
    }
    plain, counted = tmp_path / "plain", tmp_path / "counted"
    assert generate(tiny.job(plain, **changes)).yields == {}
    assert "yields" not in tiny.card(plain)
    job = tiny.job(counted, **changes)
    summary = generate(replace(job, recipe=replace(job.recipe, count_by="grid")))
    yields = tiny.card(counted)["yields"]
    assert summary.yields == yields
    assert yields["by"] == "grid"
    grid_of = {example.key: example.extra.get("grid", "(none)") for example in changes["captions"]}
    wanted = {}
    rows = [row for row in tiny.log(counted) if row["member"] == 1]
    for row in rows:
        of = wanted.setdefault(grid_of[row["set"]], dict.fromkeys(COUNTS, 0))
        of["candidates"] += 1
        of["accepted"] += row["accepted"]
        of["kept"] += row["kept"]
    for name, of in wanted.items():
        sets = {row["set"] for row in rows if grid_of[row["set"]] == name}
        good = {row["set"] for row in rows if row["accepted"]}
        of |= {"sets": len(sets), "without": len(sets - good)}
    assert yields["of"] == wanted
    assert set(wanted) == {"first", "second", "(none)"}
    # Nothing else differs: the same tars and logs.
    same = {k: v for k, v in tiny.contents(plain).items() if k.endswith((".tar", ".parquet"))}
    assert same.items() <= tiny.contents(counted).items()


def test_shards_are_added_and_shown() -> None:
    first = {"by": "grid", "of": {"a": dict.fromkeys(COUNTS, 1)}}
    second = {"by": "grid", "of": {"b": dict.fromkeys(COUNTS, 0), "a": dict.fromkeys(COUNTS, 2)}}
    total = add_yields([first, second])
    assert total["of"] == {"a": dict.fromkeys(COUNTS, 3), "b": dict.fromkeys(COUNTS, 0)}
    head, a, b = yield_lines(total)
    assert head.startswith("grid")
    assert "100.00%" in a
    assert "0.00%" in b
    assert len({len(head), len(a), len(b)}) == 1


@pytest.mark.parametrize("overlap", [False, True])
def test_a_failed_set_keeps_its_shard_back_until_it_works(whole, tmp_path, capsys, overlap) -> None:
    painter = tiny.Painter(broken=frozenset({"7"}))  # caption 7 is in shard 1
    summary = generate(job(tmp_path, studio=tiny.studio(editor=painter), pipeline_scoring=overlap))
    assert summary.unpublished == (1,)
    assert [failure.key for failure in summary.failures] == ["photo3-1"]
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
    assert [failure.key for failure in generate(made).failures] == ["photo3-1"]
    generate(job(tmp_path))
    assert contents(tmp_path) == contents(whole)


def test_publishing_leaves_out_what_failed_and_lists_it(whole, tmp_path) -> None:
    painter = tiny.Painter(broken=frozenset({"7"}))
    published = job(tmp_path, studio=tiny.studio(editor=painter), publish_incomplete=True)
    summary = generate(published)
    assert summary.unpublished == ()
    expected = [s for s in read_sets(whole) if s.key != "photo3-1"]
    assert list(read_sets(tmp_path)) == expected
    assert [failure["key"] for failure in card(tmp_path)["failed"]] == ["photo3-1"]
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
    for stage in ("images", "captions"):
        with pytest.raises(UserError, match=r"00002\.jsonl.* is not what 00002\.json committed"):
            generate(job(tmp_path, stage=stage))


@pytest.mark.parametrize("left", [None, 0.0, 0.5])
@pytest.mark.parametrize("file", ["00001.parquet", "captions/00001.jsonl"])
@pytest.mark.parametrize("old", [False, True])
def test_a_file_that_lost_bytes_is_made_again(whole, tmp_path, capsys, file, left, old) -> None:
    """Only the tar was checked, and what was lost stayed lost."""
    folder = tmp_path / "shards"
    shutil.copytree(whole, folder)
    content = (folder / file).read_bytes()
    if old:  # before sizes were committed
        for name, field in (("00001.json", "beside_bytes"), ("captions/00001.json", "bytes")):
            about = json.loads((folder / name).read_text())
            del about[field]
            (folder / name).write_text(json.dumps(about))
    generate(job(folder))
    said = capsys.readouterr().err
    assert said.count("nothing to do") == 2
    assert "damaged" not in said
    (folder / file).unlink()
    if left is not None:
        (folder / file).write_bytes(content[: int(left * len(content))])
    if old and left:  # its size is not known
        return
    generate(job(folder))
    assert re.search(rf"damaged: .*{Path(file).name} .*: it is made again", capsys.readouterr().err)
    assert (folder / file).read_bytes() == content
    if not old:
        assert contents(folder) == contents(whole)


@pytest.mark.parametrize("name", ["00001.json", "captions/00001.json"])
@pytest.mark.parametrize("content", ["", "{", '{"kind": "cfaug-shards", "format": FORMAT}'])
def test_a_damaged_commit_is_named_and_made_again_once_removed(whole, tmp_path, name, content):
    folder = tmp_path / "shards"
    shutil.copytree(whole, folder)
    commit = folder / name
    commit.write_text(content.replace("FORMAT", str(FORMAT)))
    with pytest.raises(UserError, match=rf"{name} cannot be read: .*; remove this file and run"):
        generate(job(folder))
    commit.unlink()
    generate(job(folder))
    assert contents(folder) == contents(whole)


@pytest.mark.parametrize("file", ["00001.tar", "00001.parquet", "00001.json"])
def test_a_full_disk_keeps_what_was_complete(whole, tmp_path, file) -> None:
    folder = tmp_path / "shards"
    generate(job(folder, stage="captions"))

    def full(pixels: Image.Image, _: object) -> Image.Image:
        """Fill the disk once shard 0 is there: earlier, it would be taken for litter."""
        if (folder / "00000.json").exists():
            link = temporary_name(folder / file)
            if not link.is_symlink():
                link.symlink_to("/dev/full")
        return pixels

    with pytest.raises(UserError, match=f"no space left in {folder}: shard 00001"):
        generate(job(folder, studio=tiny.studio(finish=full)))
    assert [f.name for f in folder.glob("0*.json")] == ["00000.json"]
    generate(job(folder))
    assert contents(folder) == contents(whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_ends_a_run_that_goes_on_later(whole, tmp_path, number) -> None:
    shots = []

    def shoot(image: Image.Image, _: object) -> Image.Image:
        shots.append(1)
        if len(shots) == 9:
            os.kill(os.getpid(), number)
        return image

    # A shell starts its background jobs, and so perhaps this test, deaf to Ctrl-C.
    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    given = signal.signal(number, default)
    try:
        with pytest.raises(KeyboardInterrupt):
            generate(job(tmp_path, studio=tiny.studio(finish=shoot)))
        assert signal.getsignal(number) is default
    finally:
        signal.signal(number, given)
    assert not list(tmp_path.rglob("*.tmp"))
    painter = tiny.Painter()
    generate(job(tmp_path, studio=tiny.studio(editor=painter)))
    assert contents(tmp_path) == contents(whole)
    assert sum(painter.sampled) < 90


class Picky(tiny.Painter):
    """A painter that rejects captions with a certain word."""

    def sample(self, jobs):
        for image_job in jobs:
            if self.broken & set(image_job.texts[0].split()):
                raise RejectedError("tiny photo", f"{image_job.proposal.key} is too small")
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
    expected = [s for s in read_sets(whole) if s.key not in ("photo3-1", "photo1-1")]
    assert list(read_sets(tmp_path)) == expected
    assert {row["reason"] for row in log(tmp_path) if row["set"] == "photo3-1"} == {"tiny photo"}
    again = generate(job(tmp_path, studio=studio))
    assert again.rejected == summary.rejected


class PickyEditor(tiny.WordSwap):
    """An editor that rejects some examples, whatever is tried."""

    def edit(self, examples):
        for example in examples:
            if example.key in self.broken:
                raise RejectedError("no label", f"{example.key} has no label")
        return super().edit(examples)


def test_what_is_rejected_by_an_editor_is_counted_beside_what_its_filters_reject(
    whole, tmp_path
) -> None:
    editor = PickyEditor(broken=frozenset({"photo3-1", "photo0-0"}))
    summary = generate(job(tmp_path / "some", editor=editor))
    assert (summary.unpublished, summary.failures) == ((), ())
    assert summary.rejected["no label"] == 2
    expected = [s for s in read_sets(whole) if s.key not in ("photo3-1", "photo0-0")]
    assert list(read_sets(tmp_path / "some")) == expected
    editor.broken = frozenset(example.key for example in tiny.captions(17))
    summary = generate(job(tmp_path / "all", editor=editor))
    assert (summary.sets, summary.rejected, summary.failures) == (0, {"no label": 17}, ())


def test_a_caption_that_fails_is_named_and_edited_later(whole, tmp_path) -> None:
    swap = tiny.WordSwap(broken=frozenset({"photo2-0"}))
    assert generate(job(tmp_path, editor=swap)).unpublished == (1,)
    assert not (tmp_path / "00001.tar").exists()
    assert generate(job(tmp_path, editor=swap, publish_incomplete=True)).unpublished == ()
    assert [failure["key"] for failure in card(tmp_path)["edits"]["failed"]] == ["photo2-0"]
    assert "photo2-0" not in {counterfactual.key for counterfactual in read_sets(tmp_path)}
    generate(job(tmp_path))  # publish_incomplete=false edits it, and the shard is drawn anew
    assert contents(tmp_path) == contents(whole)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["pairs", "grids", "annotations"])
def test_kills_leave_no_trace(tmp_path: Path, what: str) -> None:
    children.start(killing.kill_often, tmp_path, 12, what).join()
    report = json.loads((tmp_path / "told.json").read_text())
    assert (report["killed"], report["final"]) == (12, 0)
    assert report["inside"] >= 6  # between the first result and the last shard
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    assert not list((tmp_path / "cut").rglob("*.batch"))
    assert not list((tmp_path / "cut").rglob("*.tmp"))


def test_a_mistake_that_all_share_who_come_that_far_is_the_user_s(tmp_path) -> None:
    """Captions about a star have no edit, so that not every caption meets it."""

    class Lost(tiny.WordSwap):
        def edit(self, captions):
            if any("star" not in caption.text for caption in captions):
                raise UserError("no weights at zoo:nowhere")
            return super().edit(captions)

    with pytest.raises(UserError, match="no weights at zoo:nowhere"):
        generate(job(tmp_path, editor=Lost()))
