"""Whole runs: what they write, and what they leave alone."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
from PIL import Image

from cfaug.core.types import Edit, Example
from cfaug.data.shards.shards import read_sets
from cfaug.generate.folder import write_card
from cfaug.generate.images import COUNTS, add_yields, yield_lines
from cfaug.generate.job import generate
from cfaug.generate.sampling import Draws
from cfaug.imaging.select import clip_selection
from tests.generate import tiny
from tests.generate.tiny import card, contents, job, log


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


def test_bytes_do_not_depend_on_the_parts(whole, tmp_path) -> None:
    folder, parts = tmp_path / "shards", 7
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
    found = [
        replace(one, extra={"grid": "first" if i % 3 else "second"})
        for i, one in enumerate(tiny.captions(count))
    ]
    return [*found[:-1], replace(found[-1], extra={})]


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
    grid_of = {one.key: one.extra.get("grid", "(none)") for one in changes["captions"]}
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
    one = {"by": "grid", "of": {"a": dict.fromkeys(COUNTS, 1)}}
    two = {"by": "grid", "of": {"b": dict.fromkeys(COUNTS, 0), "a": dict.fromkeys(COUNTS, 2)}}
    total = add_yields([one, two])
    assert total["of"] == {"a": dict.fromkeys(COUNTS, 3), "b": dict.fromkeys(COUNTS, 0)}
    head, a, b = yield_lines(total)
    assert head.startswith("grid")
    assert "100.00%" in a
    assert "0.00%" in b
    assert len({len(head), len(a), len(b)}) == 1
