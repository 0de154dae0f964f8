"""Trees of edits, and what a photo's edits cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cfaug.imaging.tree import plan_edits
from tests.imaging.test_photo_editing import CAPTION, job

SHARES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def test_the_paper_s_sweep_costs_a_sixth_of_the_edits_drawn_apart() -> None:
    """Table 6: six shares of 50 steps, cross-attention during 40; in rows of the model."""
    jobs = [job(b"photo", p=p) for p in SHARES]
    tree = plan_edits(jobs, 50, controlled=lambda _: 40)
    # The source while somebody looks; the trunk; branches from where they part.
    assert tree.row_steps() == 45 + 2 * (50 + 10 + 15 + 20 + 25 + 30)
    remembered = plan_edits(jobs, 50, remembered=True, controlled=lambda _: 40)
    assert remembered.row_steps() == 2 * 150
    # Drawn apart: source and edit, with and without text, six times; null-text: section 2.2.
    null_text = 50 + 50 * 3 + 500 * 3
    assert (null_text + 6 * 50 * 4) / (51 + remembered.row_steps()) > 8


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"x", b"y"]), st.sampled_from([CAPTION, "one", "two"]),
            st.integers(0, 10), st.sampled_from([3.0, 7.5]),
        ),
        min_size=1, max_size=12,
    ),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10),
)  # fmt: skip
def test_every_job_finds_its_own_way_through_the_tree(some, by_guidance, remembered, cross) -> None:
    steps = 10
    jobs = [job(data, (CAPTION, text), p=p / 10, cfg=cfg) for data, text, p, cfg in some]
    tree = plan_edits(
        jobs, steps, by_guidance=by_guidance, remembered=remembered, controlled=lambda _: cross
    )
    for (data, text, p, cfg), (source, edited) in zip(some, tree.jobs, strict=True):
        made_for = tree.sources[tree.source[source]]
        assert (made_for.digest, made_for.text) == (data.hex(), CAPTION)
        assert made_for.guidance == (cfg if by_guidance else None)
        assert tree.base[source] == source
        if text == CAPTION:
            assert edited == source
            continue
        assert (tree.texts[tree.text[edited]], tree.cfg[edited]) == (text, cfg)
        assert tree.base[edited] == source
        length = int(p / 10 * steps)
        assert tree.shared[edited] == length
        # Followed back in time, it shares as long as it should, and no longer.
        for step in range(steps):
            at = edited if tree.birth[edited] <= step else int(tree.parent[edited])
            assert tree.birth[at] <= step < tree.end[at]
            assert (tree.shared[at] > step) == (length > step)
            looks = tree.shared[at] > step or step < cross
            assert not looks or remembered or step < tree.end[source]
    # What belongs to one source lies together, the source first.
    assert (sorted(tree.source.tolist())) == tree.source.tolist()
    assert len(tree.sources) == int((tree.image == 0).sum())
