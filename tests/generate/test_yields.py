from __future__ import annotations

from dataclasses import replace

from cfaug.generate.images import COUNTS, add_yields, yield_lines
from cfaug.generate.job import generate
from cfaug.generate.sampling import Draws
from cfaug.imaging.select import clip_selection
from tests.generate import tiny


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
        for name, value in (
            ("candidates", 1),
            ("accepted", row["accepted"]),
            ("kept", row["kept"]),
        ):
            of[name] += value
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
