"""LANCE's own table of drops, by its counts."""

from __future__ import annotations

import pytest

from cfaug.report.paper_tables import published

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
    [("LANCE", [0.014, 0.003, 0.041, 0.004]), ("LANCE-R", [0.745, 0.152, 0.926, 0.065])],
)
def test_fishers_p_of_lances_drops(name, expected):
    from cfaug.stats.effects import fisher

    for net, p in enumerate(expected):
        before, after = (
            counts(PRINTED[row][2 * net : 2 * net + 1], SIZES[row])[0] for row in ("Original", name)
        )
        assert round(fisher(before, SIZES["Original"], after, SIZES[name]), 3) == p, NETS[net]
