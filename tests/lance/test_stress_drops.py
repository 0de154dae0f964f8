"""Drops from photos to edits: tests on hand-made items, and LANCE's own table by its counts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.rng import generator
from cfaug.lance.stress_items import FILE, compare_drops, drops_document, write_drops
from cfaug.report.items import Items
from cfaug.report.paper_tables import published
from cfaug.stats.item_tests import cluster_bootstrap, mcnemar
from cfaug.stats.significance import holm, sign_flip


def made(photos=20, seed=0):
    """Items of photos with 0 to 3 edits of kinds a and b, of which b is hard."""
    draw = np.random.default_rng(seed)
    rows = []
    for n in range(photos):
        hit, control = draw.random() < 0.8, draw.random() < 0.8
        edits = [
            ("a", draw.random() < 0.75),
            ("b", draw.random() < 0.2),
            ("b", draw.random() < 0.3),
        ]
        edits = edits[: n % 4]
        about = {"cluster": f"g{n}", "class": "cat" if n % 2 else "dog",
                 "photos": "edited" if edits else "unedited"}  # fmt: skip
        nan = math.nan
        rows.append({**about, "set": "original", "kind": "original", "acc1": float(hit),
                     "photo_acc1": nan, "net_drop1": nan})  # fmt: skip
        rows.append({**about, "set": "reconstruction", "kind": "reconstruction",
                     "acc1": float(control), "photo_acc1": float(hit),
                     "net_drop1": nan})  # fmt: skip
        for kind, right in edits:
            net = nan if n % 3 == 0 else float(control) - right
            rows.append({**about, "set": "edited", "kind": kind, "acc1": float(right),
                         "photo_acc1": float(hit), "net_drop1": net})  # fmt: skip
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return Items("lance_stress", "w", "d", {"item": [str(n) for n in range(len(rows))], **columns})


def rows_of(items):
    names = list(items.columns)
    values = zip(*items.columns.values(), strict=True)
    return [dict(zip(names, row, strict=True)) for row in values]


@pytest.mark.parametrize("by", [None, "kind", "class"])
def test_every_drop_is_that_of_plain_counting(by):
    items = made()
    found = compare_drops(items, "acc1", by)
    names = [(one.name, one.part) for one in found]
    assert (
        names
        == {
            None: [("reconstruction", ""), ("edited", "")],
            "kind": [("edited", "a"), ("edited", "b")],
            "class": [("edited", "cat"), ("edited", "dog")],
        }[by]
    )
    from scipy.stats import fisher_exact

    for one in found:
        own = [r for r in rows_of(items) if r["set"] == one.name and r["photos"] == "edited"]
        own = [r for r in own if by is None or r[by] == one.part]
        photos = [r for r in rows_of(items) if r["set"] == "original" and r["photos"] == "edited"]
        photos = [r for r in photos if by != "class" or r["class"] == one.part]
        lost = sum(r["photo_acc1"] > r["acc1"] for r in own)
        won = sum(r["photo_acc1"] < r["acc1"] for r in own)
        assert (one.images, one.paired.lost, one.paired.won) == (len(own), lost, won)
        assert one.paired.p_sign == mcnemar(lost, won)
        assert one.paired.mean.mean == pytest.approx((lost - won) / len(own))
        nets = [r["net_drop1"] for r in own if not math.isnan(r["net_drop1"])]
        assert bool(nets) == (one.name == "edited")
        assert math.isnan(one.net) or one.net == pytest.approx(sum(nets) / len(nets))
        right, before = (int(sum(r["acc1"] for r in some)) for some in (own, photos))
        assert one.unpaired == pytest.approx(before / len(photos) - right / len(own))
        table = [[before, len(photos) - before], [right, len(own) - right]]
        assert one.p_fisher == pytest.approx(fisher_exact(table)[1])
        assert one.paired.mean.clusters == len({r["cluster"] for r in own})
        drawn = cluster_bootstrap(
            [r["photo_acc1"] - r["acc1"] for r in own], [r["cluster"] for r in own],
            generator(0, "stress_drops", "lance_stress", "acc1", one.name, one.part),
        )  # fmt: skip
        assert one.paired.mean == drawn
        sums = {r["cluster"]: 0.0 for r in own}
        for r in own:
            sums[r["cluster"]] += r["photo_acc1"] - r["acc1"]
        assert one.p == sign_flip([sums[name] for name in sorted(sums)], "two-sided")
    assert [one.p_holm for one in found] == pytest.approx(holm([one.p for one in found]))


def test_a_hard_kind_is_found_and_an_easy_one_is_not():
    easy, hard = compare_drops(made(200, seed=2), "acc1", "kind")
    assert hard.p_holm < 0.001 < 0.05 < easy.p_holm
    assert hard.paired.mean.low > 0.2
    assert easy.paired.mean.low < 0 < easy.paired.mean.high


def test_what_two_photos_agree_on_is_no_finding():
    """A bootstrap of two equal photos has no spread: it would call any drop certain."""
    columns = {
        "item": [*"abcdef"], "cluster": ["g", "h"] * 3,
        "set": ["original"] * 2 + ["edited"] * 4, "kind": ["original"] * 2 + ["domain"] * 4,
        "photos": ["edited"] * 6, "class": ["cat"] * 6, "acc1": [1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        "photo_acc1": [math.nan] * 2 + [1.0] * 4, "net_drop1": [math.nan] * 6,
    }  # fmt: skip
    (one,) = compare_drops(Items("x", "w", "d", columns))
    assert one.paired.mean.p < 0.001
    assert one.p == 0.5


def test_items_of_another_benchmark_are_refused():
    items = made()
    columns = {name: values for name, values in items.columns.items() if name != "photos"}
    with pytest.raises(UserError, match="lack the column 'photos'"):
        compare_drops(Items("x", "w", "d", columns))
    with pytest.raises(UserError, match="lack the column 'photo_acc5'"):
        compare_drops(items, "acc5")


def test_the_tables_are_written(tmp_path):
    items = made()
    document = drops_document("resnet_50", items)
    assert [part.title for part in document.parts] == ["Sets", "Kinds of edits", "Classes"]
    file = write_drops(tmp_path, "resnet_50", items)
    text = file.read_text()
    assert file.name == FILE
    assert r"resnet\_50: lance\_stress" in text
    assert "Holm" in text
    assert text.count("| edited") == 5


NETS = ("ResNet-50", "ViT-B", "ConvNext", "CLIP")
SIZES = published("lance_2")["sizes"]
PRINTED = {row["set"]: row["values"] for row in published("lance_2")["rows"]}
"""LANCE, Table 2: acc@1 and acc@5 of each net in per cent."""


def counts(percents, size):
    return [round(value * size / 100) for value in percents]


def admits(percents, size):
    return all(
        round(100 * count / size, 2) == value
        for value, count in zip(percents, counts(percents, size), strict=True)
    )


def test_the_sizes_of_lances_sets_follow_from_its_percentages():
    """Of all sizes up to 1,000 these alone, or their multiples, give every number that is printed.

    781 is what the text says of the edits (1,531 - 750, appendix A); 576 says that Table 2 is over
    those of its 750 photos of which an edit was accepted.
    """
    for name, percents in PRINTED.items():
        fits = [n for n in range(1, 1001) if admits(percents, n)]
        assert [n for n in fits if n % SIZES[name]] == []
        assert SIZES[name] in fits, name
    assert SIZES["LANCE"] == 1531 - 750


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LANCE", [0.014, 0.003, 0.041, 0.004]),
        ("LANCE-R", [0.745, 0.152, 0.926, 0.065]),
    ],
)
def test_fishers_p_of_lances_drops(name, expected):
    from cfaug.stats.effects import fisher

    for net, p in enumerate(expected):
        before, after = (
            counts(PRINTED[row][2 * net : 2 * net + 1], SIZES[row])[0] for row in ("Original", name)
        )
        assert round(fisher(before, SIZES["Original"], after, SIZES[name]), 3) == p, NETS[net]
