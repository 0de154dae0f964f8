"""Is what an edit brings rare in the training data? Counted anew, caption by caption."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.evaluation.failure_causes import name_causes
from cfaug.evaluation.failures import ModelFailure, read_failures
from tests.data.layouts import images
from tests.run.conftest import refusal
from tests.scripts import load

NIGHT = ModelFailure("stress", "background", "on the beach", "at night", ("ball",))


class Captions:
    """An index of captions with labels."""

    def __init__(self, *rows):
        self.rows = rows

    def text(self, row):
        return self.rows[row][0]

    def label(self, row):
        return self.rows[row][1]


PLACES = ("on the beach", "at night", "At Night.", "tonight", "on the road")
ROWS = st.lists(
    st.tuples(st.sampled_from(PLACES), st.sampled_from(["ball", "cube", None])), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(ROWS, ROWS, st.floats(0, 1), st.data())
def test_shares_and_causes_are_those_of_a_plain_count(first, second, rare, data):
    training, every = [], []
    for rows in (first, second):
        taken = data.draw(
            st.lists(st.integers(0, len(rows) - 1), max_size=20) if rows else st.just([])
        )
        training.append((Captions(*rows), np.array(taken, np.int64)))
        every += [rows[row] for row in taken]
    [failure] = name_causes([NIGHT], training, rare)

    def share(words, label=None):
        among = [place for place, name in every if label in (None, name)]
        count = sum(place.lower().rstrip(".") == words for place in among)
        return count / len(among) if among else None

    assert failure.seen == pytest.approx(share("at night"))
    assert failure.seen_in_class == pytest.approx(share("at night", "ball"))
    cause = None
    if every and (share("at night") or share("on the beach")):
        cause = "coverage" if share("at night") < rare else "reliance"
    assert failure.cause == cause


def test_captions_that_never_name_a_level_say_nothing():
    rows = np.arange(2)
    silent = [(Captions(("a ball", "ball"), ("a cube", "cube")), rows)]
    assert name_causes([NIGHT], silent, 0.01)[0].cause is None
    deletion = ModelFailure("stress", "background", "at night", "")
    spoken = [(Captions(("a ball at night", None), ("a cube", None)), rows)]
    assert name_causes([deletion], spoken, 0.01)[0].cause is None
    assert name_causes([NIGHT], [], 0.01)[0] == NIGHT


@pytest.mark.slow
def test_a_checkpoint_has_causes_by_its_training_and_a_run_by_its_own(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    photos = tmp_path / "photos"
    images(photos, start=0)
    names = sorted(file.name for file in photos.iterdir())
    (tmp_path / "list.jsonl").write_text(
        "".join(f"{json.dumps({'image': str(photos / names[0]), 'caption': f'a {what}'})}\n"
                for what in ("ball on the beach", "cube on the beach", "ball in the snow"))
    )  # fmt: skip
    world = ["data.world.id_scenes=40", "data.world.real_scenes=60", "data.world.image_size=64"]
    edits = [
        "recipe=photo_edits_oracle",
        "recipe.editor.editor.kinds=[background]",
        "limit=40",
        "paths.shards=shards/find",
    ]
    assert load("generate")([*edits, "data.source=shapescapes:find", *world]) == 0
    rule = ["failure_rule.least_items=3", "failure_rule.alpha=1", "failure_rule.minimum=-1"]
    test = ["benchmark=stress", "benchmark.data=shards/find", "failures=f.jsonl", *rule]
    of_weights = ["weights=zoo:classifier-background-0", "model=classifier", *test]
    assert load("evaluate")(of_weights) == 0
    assert {failure.cause for failure in read_failures("f.jsonl")} == {None}
    capsys.readouterr()
    assert load("evaluate")([*of_weights, "failure_causes.training=list.jsonl"]) == 0
    assert "of coverage" in capsys.readouterr().out
    causes = set()
    for failure in read_failures("f.jsonl"):
        causes.add(failure.cause)
        before, after = (words in "on the beach, in the snow"
                         for words in (failure.before, failure.after))  # fmt: skip
        assert failure.cause == ("reliance" if after else "coverage" if before else None)
    assert causes == {"coverage", "reliance", None}
    drawn = ["failure_causes.training=shapescapes:real", *world]
    assert load("evaluate")([*of_weights, *drawn]) == 0
    assert {failure.cause for failure in read_failures("f.jsonl")} == {"reliance"}
    said = refusal(load("evaluate"), ["name=x", *test, "failure_causes.training=list.jsonl"])
    assert "failure_causes.training=list.jsonl would have no effect" in said
