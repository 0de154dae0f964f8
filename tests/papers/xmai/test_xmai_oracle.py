"""``table=xmai_oracle``: truth of insertions, and drops on texts that stayed true."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.types import CounterfactualSet, Edit, Example, Member, Proposal
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.text_pairs.text_pair_items import InsertionItems
from cfaug.papers.xmai.ablation_tables import texts_kept, words_true
from cfaug.papers.xmai.oracle import against_reader, reciprocal_ranks
from cfaug.planning.build import build
from cfaug.report.arm_results import Runs
from cfaug.report.document import to_markdown
from cfaug.report.items import Items, write_items
from cfaug.worlds.shapescapes.detector import CaptionTruth, text_truth
from cfaug.worlds.shapescapes.drawing import Scene
from cfaug.worlds.shapescapes.settings import COLOURS, SUBJECTS, Factors
from tests.files_of_settings import settings_file

CONF = settings_file("table/xmai_oracle")
SCENES = [Factors("ball", colour, "grass") for colour in ("red", "blue", "pink", "black")]
PNG = b"\x89PNG\r\n\x1a\n, which nobody decodes"
BEFORE = "a ball on the grass"
TRUE = [f"a {scene.colour} ball on the grass" for scene in SCENES]
HALF = [f"a {scene.colour} ball on the red grass" for scene in SCENES[:2]]
TEXTS = {"true": TRUE, "half": [*HALF, BEFORE, "a wooden ball on the grass"]}
MRR = {"true": [0.5, 0.5, 0.5, 0.5], "half": [0.1, 0.1, 0.25, 0.2]}


def write(folder: Path, texts, weights=(1, 5, 5)) -> Path:
    """Write sets with the oracle's scores, and what they were made with."""
    sets = []
    for number, (scene, text) in enumerate(zip(SCENES, texts, strict=True)):
        extra = Scene(scene, number).record()
        edit = None if text == BEFORE else Edit("insertion", "", "x")
        example = Example(f"k{number}", f"g{number}", (BEFORE,), label="ball", extra=extra)
        (scores,) = CaptionTruth().score([Proposal(example, (BEFORE, text), (None, edit))], [])
        members = tuple(
            Member(member_text, "0", example.key, member_edit, "ball", extra)
            for member_text, member_edit in ((BEFORE, None), (text, edit))
        )
        sets.append(
            CounterfactualSet(example.key, example.group, members, {"0": PNG}, scores=scores)
        )
    folder.mkdir(parents=True)
    write_shards(sets, folder)
    captions = {
        "recipe.editor.weights": list(weights),
        "recipe.annotators.detections.error_rate": 0.1 * weights[2],
    }
    (folder / "run.json").write_text(
        json.dumps({"captions": captions, "images": None, "shards": 1})
    )
    return folder


def items(sources, benchmark="methods_insertion", texts=TEXTS, mrr=MRR) -> Items:
    rows = []
    for method, changed in texts.items():
        for number, text in enumerate(changed):
            truth = text_truth(text, SCENES[number])
            kept = "unknown" if truth is None else "kept" if truth else "changed"
            rows.append({
                "item": f"{method}/k{number}", "cluster": f"g{number}", "method": method,
                "key": f"k{number}", "source": str(sources[method]),
                "changed": float(text != BEFORE),
                "text_before": BEFORE, "text": text, "label_kept": kept, "inserted_words": 1.0,
                "novel": 1.0, "mrr_original": 0.3, "mrr": mrr[method][number],
                "mrr_drop": 0.3 - mrr[method][number], "similarity_image_original": 0.5,
                "similarity_image": 0.5, "bleu": 0.5, "image": f"{number:>032}",
                "rank_original": 3.0, "rank": 2.0,
            })  # fmt: skip
    return Items(benchmark, "w", "d", {name: [row[name] for row in rows] for name in rows[0]})


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    root = tmp_path_factory.mktemp("oracle")
    settings = {"true": (1, 20, 0), "half": (1, 0, 2)}
    return {name: write(root / name, texts, settings[name]) for name, texts in TEXTS.items()}


def test_shares_are_those_of_the_oracle(asked):
    answers = InsertionItems("clip", items(asked))
    assert words_true(answers, "true").mean == 1
    # Two texts with half of two words true; of the others no word was inserted, or it is unknown.
    assert (words_true(answers, "half").mean, words_true(answers, "half").items) == (0.5, 2)
    assert texts_kept(answers, "true").mean == 1
    assert texts_kept(answers, "half").mean == 0.25


def test_a_model_is_held_against_a_reader_on_texts_that_stayed_true(asked):
    answers = InsertionItems("clip", items(asked))
    compared = against_reader([answers], "true")
    first = (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4
    assert compared.model == pytest.approx((0.3, 0.5))
    assert compared.reader == pytest.approx((first, 1))
    assert compared.change.mean == pytest.approx((1 - first) - 0.2)
    assert against_reader([answers], "true", inserted=1).change == compared.change
    assert against_reader([answers], "true", inserted=2) is None
    half = against_reader([answers], "half")
    assert half.change.items == 1  # the one that nothing was done to
    assert half.reader == pytest.approx((first, first))


@given(
    st.lists(
        st.builds(Factors, *map(st.sampled_from, (SUBJECTS[:2], tuple(COLOURS)[:3], ("beach",)))),
        min_size=1, max_size=5,
    ),
    st.sampled_from(["a ball", "a red ball", "a cube on the beach", "a green cube"]),
)  # fmt: skip
def test_the_readers_rank_is_the_mean_over_all_orders(photos, text):
    """A twin that draws orders: those of which the text is true first, in any order."""
    target, rng = photos[0], np.random.default_rng(0)
    expected = reciprocal_ranks(photos)(text, target)
    true = [text_truth(text, photo) for photo in photos]
    if not true[0]:
        assert expected is None
        return
    places = [1 + int(np.argmax(rng.permutation(sum(true)) == 0)) for _ in range(400)]
    assert abs(np.mean([1 / place for place in places]) - expected) < 0.12


def test_the_table_has_every_part_and_figure(asked, tmp_path):
    folder = tmp_path / "weights" / "zoo-clip-0" / "seed=0"
    write_items(folder, items(asked))
    for name in ("weights", "errors"):
        write_items(folder, items(asked, f"{name}_insertion"))
    models = {"CLIP": "weights/zoo-clip-0"}
    given = yaml.safe_load(CONF.read_text()) | {"models": models, "methods": {"True": "true"}}
    document = build(given).build(Runs(tmp_path))
    titles = [part.title for part in document.parts]
    assert titles == [
        "The oracle's judgements of the texts",
        "Ours: CLIP, MRR among all photos",
        "Ours: CLIP and a perfect reader",
        "Ours: Weights of the scores, CLIP",
        "Ours: Errors of the detector, CLIP",
        "Ours: CLIP and a perfect reader, the detector of fewest errors",
    ]
    weights = dict(document.parts[3].rows)
    assert set(weights) == {("0", "2"), ("20", "0")}
    assert weights["20", "0"][1].numbers["value"] == 1
    assert weights["20", "0"][3].numbers["value"] == pytest.approx(0.2)
    assert [labels for labels, _ in document.parts[4].rows] == [("0",), ("0.2",)]
    truth, effect, errors, change = (curve.series for curve in document.curves)
    assert truth == {"lambda_3 = 0": {20.0: {0: 1.0}}, "lambda_3 = 2": {0.0: {0: 0.25}}}
    assert effect["lambda_3 = 0"][20.0] == pytest.approx({0: 0.2})
    assert errors["inserted words"] == {0.0: {0: 1.0}, 0.2: {0: 0.5}}
    assert change["texts kept true"][0.2] == pytest.approx({0: -0.05})
    (bars,) = document.bars
    assert [name for name, *_ in bars.groups["True"]] == list(bars.legend)
    assert bars.groups["half"][1][1] == pytest.approx(-0.05)
    assert "a perfect reader" in to_markdown(document)


def test_a_reader_of_scenes_that_are_unlike_knows_them_apart():
    rank = reciprocal_ranks([SCENES[0], replace(SCENES[0], subject="cube")])
    assert rank("a ball", SCENES[0]) == 1
