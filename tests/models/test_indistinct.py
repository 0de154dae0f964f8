"""Captions that a model reads as the same tokens are counted, said and refused."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cfaug.core.errors import UserError, say_once
from cfaug.core.protocols import DualEncoder
from cfaug.core.words import normalise_caption
from cfaug.models.indistinct import (
    Indistinct,
    check_captions,
    count_in_folder,
    count_indistinct,
    refuse_indistinct,
)
from cfaug.models.specs import HFClip
from tests.properties import examples
from tests.scripts import load

ZOO = Path("cfaug/shapescapes/zoo/weights")
WORDS = ["a", "red", "ball", "star", "tench", "shark", "on", "the", "beach", "ostrich", "Ball", "."]


@pytest.fixture(scope="module")
def encoder():
    return HFClip("zoo:clip-0").load(DualEncoder)


captions = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join), max_size=12
)


@settings(max_examples=examples(60), deadline=None)
@given(captions)
def test_counts_are_those_of_a_plain_loop(encoder, texts):
    different = {normalise_caption(text): text for text in reversed(texts)}
    tokens = []
    for text in different.values():  # one at a time: no padding
        (row,) = encoder.tokenize([text])["input_ids"].tolist()
        tokens.append(tuple(row))
    counts = Counter(tokens)
    indistinct = count_indistinct(encoder.tokenize, texts)
    assert indistinct.captions == len(different)
    assert indistinct.sequences == len(counts)
    assert indistinct.alike == sum(n for n in counts.values() if n > 1)
    assert len(indistinct.example) == (2 if indistinct.alike else 0)
    if indistinct.example:
        first, second = (
            encoder.tokenize([text])["input_ids"].tolist() for text in indistinct.example
        )
        assert first == second


@pytest.mark.parametrize("name", ["clip-0", "flava-0"])
def test_the_folder_alone_gives_the_counts_of_the_model(name):
    texts = [f"a {word} {other} on the beach" for word in WORDS for other in WORDS]
    model = HFClip(f"zoo:{name}").load(DualEncoder)
    assert count_in_folder(ZOO / name, None, texts) == count_indistinct(model.tokenize, texts)
    short = HFClip(f"zoo:{name}", max_length=4).load(DualEncoder)
    indistinct = count_in_folder(ZOO / name, 4, texts)
    assert indistinct == count_indistinct(short.tokenize, texts)
    assert indistinct is not None
    assert indistinct.sequences < 20  # captions that are cut are alike, too


def test_a_folder_without_a_tokenizer_is_not_counted(tmp_path):
    assert count_in_folder(tmp_path, None, ["a"]) is None


def test_above_the_limit_captions_are_refused_and_above_a_hundredth_said(capsys):
    say_once.cache_clear()
    indistinct = Indistinct(100, 90, 20, ("a tench", "a shark"))
    check_captions(lambda: pytest.fail("outside an evaluation nothing is counted"))
    with refuse_indistinct("photos_retrieval", 0.2):
        check_captions(lambda: indistinct)
    message = "100 different captions are 90 to the model: it reads 20% of them like another"
    assert (
        f"warning: photos_retrieval: {message}, as 'a tench' and 'a shark'"
        in capsys.readouterr().err
    )
    with refuse_indistinct("x", 0.19), pytest.raises(UserError, match=r"x: 100 .*max_indistinct=1"):
        check_captions(lambda: indistinct)
    with refuse_indistinct("x", 0.2):
        check_captions(lambda: Indistinct(1000, 995, 10))
    assert capsys.readouterr().err == ""


@pytest.fixture
def photos(tmp_path):
    """Two photos of each of five classes that the tiny model does not know."""
    rng = np.random.default_rng(0)
    for name in ("tench", "shark", "ostrich", "goldfish", "hen"):
        for number in range(2):
            file = tmp_path / "photos" / name / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            content = io.BytesIO()
            Image.fromarray(rng.integers(0, 255, (40, 40, 3), np.uint8)).save(content, "PNG")
            file.write_bytes(content.getvalue())
    return tmp_path / "photos"


@pytest.mark.slow
def test_an_evaluation_on_unknown_words_is_refused_unless_asked(tmp_path, photos, capsys):
    words = [
        "weights=zoo:clip-0", "benchmark=classification", f"benchmark.data={photos}",
        f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path}",
    ]  # fmt: skip
    evaluate = load("evaluate")
    for cache in (0, 1, 1):  # the last from the cache
        assert evaluate([*words, f"feature_cache={cache}"]) == 2
        message = capsys.readouterr().err
        assert "it reads 100% of them like another" in message
        assert "max_indistinct=1" in message
    assert not list((tmp_path / "runs").rglob("results.jsonl"))
    say_once.cache_clear()
    assert evaluate([*words, "max_indistinct=1"]) == 0
    assert "warning: photos" in capsys.readouterr().err
    assert list((tmp_path / "runs").rglob("results.jsonl"))


@pytest.mark.slow
def test_a_training_and_its_dry_run_say_it(tmp_path, photos, capsys):
    words = [
        "data=folder", f"data.real={photos}", "data.cf_ratio=0", "data.batch_size=4", "arm=a",
        "trainer.max_steps=1", f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path}",
        "data.validation=0", "trainer.checkpoint=last", "data.holdout=0",
    ]  # fmt: skip
    train = load("train")
    assert train([*words, "dry_run=json"]) == 0
    captured = capsys.readouterr()
    assert '"different": 5, "different_to_the_model": 1' in captured.out + captured.err
    say_once.cache_clear()
    assert train(words) == 0
    assert "the captions to train on: 5 different captions are 1 to the model" in (
        capsys.readouterr().err
    )
