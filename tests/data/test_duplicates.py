from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.data.index import open_index
from cfaug.data.mixture.leakage import count_joined_groups, join_groups
from cfaug.data.mixture.mixture import mix, plan_mixture
from cfaug.data.mixture.settings import DataSettings, Sources
from tests.data.making import Columns, noise_image
from tests.properties import examples

rows = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=12)


def columns(found: list[tuple[int, int]]) -> Columns:
    return Columns.of(((group, 1) for group, _ in found), contents=[image for _, image in found])


def slow_join(sources: list[list[tuple[int, int]]]) -> list[list[int]]:
    """Join until nothing changes."""
    code = {group: group for source in sources for group, _ in source}
    pairs = [pair for source in sources for pair in source]
    changed = True
    while changed:
        changed = False
        for one, image in pairs:
            for other, same in pairs:
                if image == same and code[one] != code[other]:
                    code[one] = code[other] = min(code[one], code[other])
                    changed = True
    return [[code[group] for group, _ in source] for source in sources]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(rows, min_size=1, max_size=3))
def test_groups_that_share_an_image_are_one(sources):
    found = np.concatenate(join_groups([columns(source) for source in sources]))
    slow = np.concatenate(slow_join(sources))
    same = found[:, None] == found[None, :]
    assert np.array_equal(same, slow[:, None] == slow[None, :])


@given(rows, rows)
def test_the_first_source_keeps_its_groups_where_no_other_links_them(real, other):
    alone = join_groups([columns(real)])[0]
    both = join_groups([columns(real), columns(other)])[0]
    linked = np.unique(alone).size != np.unique(both).size
    assert linked or np.array_equal(alone, both)


def test_nothing_shared_is_nothing_changed():
    real, other = Columns.of([(3, 2), (4, 1)]), Columns.of([(3, 1)])
    found = join_groups([real, None, other])
    assert [one.tolist() for one in found] == [[3, 3, 4], [], [3]]
    assert join_groups([None])[0].tolist() == []


def test_no_image_is_on_both_sides_of_the_split():
    images = [i // 2 for i in range(200)]  # every photo twice, under names of its own
    real = Columns.of(((i, 1) for i in range(200)), contents=images)
    copies = Columns.of(((1000 + i, 2) for i in range(100)), contents=[i % 100 for i in range(200)])
    plan = plan_mixture(real, copies, cf_ratio=0.5, size=200, seed=3, validation=0.3)
    shown = [
        {int((real, copies)[source].contents[row]) for source, row in rows}
        for rows in (plan.train, plan.validation)
    ]
    assert all(shown)
    assert not shown[0] & shown[1]
    assert plan.counts["train"] == 140


def test_a_photo_of_a_withheld_set_is_not_trained_on_under_another_name(tmp_path):
    """The sets show the photos themselves; only their bytes tell."""
    from cfaug.core.types import CounterfactualSet, Member
    from cfaug.data.mixture.leakage import withhold
    from cfaug.data.shards.shards import write_shards

    sets = []
    (tmp_path / "real").mkdir()
    for i in range(10):
        file = tmp_path / "real" / f"{i}.png"
        file.write_bytes(noise_image(i))
        file.with_suffix(".txt").write_text(f"photo {i}")
        members = tuple(Member(f"{i} {j}", "image", "s") for j in (0, 1))
        sets.append(CounterfactualSet(f"set-{i}", f"of-{i}", members, {"image": noise_image(i)}))
    write_shards(sets, tmp_path / "cf")
    real, cf = (open_index(tmp_path / name, tmp_path / "cache") for name in ("real", "cf"))
    data = DataSettings(
        "real", "cf", cf_ratio=0, counterfactual_holdout=0.3, validation=0.2, seed=1
    )
    mixture = mix(data, Sources(real, cf))
    asked = withhold(cf, 0.3)
    drawn = np.concatenate([mixture.train, mixture.validation])[:, 1]
    assert len(drawn) == 7
    assert not set(real.contents[drawn].tolist()) & set(cf.contents[asked.rows].tolist())


def test_groups_that_are_kept_together_are_counted():
    real = Columns.of([(1, 1), (2, 1), (3, 2)], contents=[10, 10, 11, 11])
    assert count_joined_groups([real, Columns.of([(9, 1), (8, 1)], contents=[10, 12])]) == 3
    assert count_joined_groups([Columns.of([(1, 5)]), None]) == 0
