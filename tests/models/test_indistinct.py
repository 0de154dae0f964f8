"""Captions that a model reads as the same tokens are counted, said and refused."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cfaug.core.errors import UserError, say_once
from cfaug.core.protocols import DualEncoder
from cfaug.core.text import normalise_caption
from cfaug.evaluation.inference import embed_texts
from cfaug.models.indistinct import (
    Indistinct,
    check_answers,
    check_captions,
    check_image_embeddings,
    check_text_embeddings,
    check_varying,
    count_in_folder,
    count_indistinct,
    group_equal,
    refuse_indistinct,
)
from cfaug.models.specs import HFClip
from tests.properties import examples
from tests.scripts import load

ZOO = Path("cfaug/weights")
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


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(2, 70), st.integers(0, 9999)
)
def test_embeddings_that_differ_by_rounding_are_one_and_others_are_not(numbers, width, seed):
    rng = np.random.default_rng(seed)
    distinct = rng.standard_normal((10, width)).astype(np.float32)
    distinct /= np.linalg.norm(distinct, axis=1, keepdims=True)
    rounding = rng.uniform(-2e-7, 2e-7, (len(numbers), width)).astype(np.float32)
    groups = group_equal(distinct[numbers] + rounding)
    expected = np.equal.outer(numbers, numbers)
    if width > 2 or len(set(numbers)) < 3:
        assert (np.equal.outer(groups, groups) == expected).all()
    else:
        assert np.equal.outer(groups, groups)[expected].all()


def embedded(count, groups, width=16):
    """Return captions and embeddings of which each is one of so many."""
    vectors = np.random.default_rng(0).standard_normal((groups, width)).astype(np.float32)
    texts = [f"caption number {chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(count)]
    return texts, vectors[np.arange(count) % groups]


def test_captions_with_one_embedding_are_refused_beyond_those_with_one_sequence_of_tokens(capsys):
    say_once.cache_clear()
    texts, vectors = embedded(100, 90)  # 20 share an embedding
    every = Indistinct(100, 90, 20, ("a", "b"))
    check_text_embeddings(texts, vectors, lambda: pytest.fail("outside an evaluation"))
    with refuse_indistinct("photos", 0.1):
        check_text_embeddings(texts, vectors, lambda: every)  # said of their tokens already
        assert capsys.readouterr().err == ""
        with pytest.raises(UserError) as caught:
            check_text_embeddings(texts, vectors, lambda: Indistinct(100, 100, 0))
    said = str(caught.value)
    assert "photos: 20 of 100 different captions have the embedding of another" in said
    assert "although their tokens differ" in said
    assert "max_indistinct=1" in said
    with refuse_indistinct("photos", 0.2):
        check_text_embeddings(texts, vectors, lambda: Indistinct(100, 100, 0))
        assert "warning: photos: 20 of 100" in capsys.readouterr().err
        # Captions that differ in case or punctuation alone are one caption.
        check_text_embeddings(["A dog.", "a dog"], vectors[[0, 0]], lambda: every)
        assert capsys.readouterr().err == ""


def test_images_with_one_embedding_are_refused_and_a_picture_in_two_files_is_not(capsys):
    say_once.cache_clear()
    names = "photo {}".format
    with refuse_indistinct("photos", 0.2):
        twice = embedded(40, 20)[1]
        check_image_embeddings(names, list(range(40)), twice)
        check_image_embeddings(names, [n % 2 for n in range(40)], embedded(40, 2)[1])
        assert capsys.readouterr().err == ""
        with pytest.raises(UserError, match="40 of 40 different images have the embedding of"):
            check_image_embeddings(names, list(range(40)), embedded(40, 3)[1])


def test_outputs_that_do_not_depend_on_the_input_are_said(capsys):
    say_once.cache_clear()
    rng = np.random.default_rng(0)
    with refuse_indistinct("photos", 0.2):
        check_varying(rng.random((20, 3)), "x")
        check_varying(np.full(9, 0.5), "x")
        assert capsys.readouterr().err == ""
        check_varying(np.full(20, 0.5), "all 20 pairs the same score")
        assert "photos: the model gives all 20 pairs the same score" in capsys.readouterr().err


@pytest.mark.parametrize("answer", ["yes", "B", "a very long answer " * 20])
def test_one_answer_to_every_question_is_said(answer, capsys):
    say_once.cache_clear()
    asked = [(image, text) for image in range(5) for text in "abcd"]
    different = [answer] * 19 + ["no"]
    with refuse_indistinct("vqa", 0.2):
        check_answers(asked, different)
        check_answers(asked[:19], different[:19])
        check_answers([asked[0]] * 20, [answer] * 20)  # one question
        check_answers(asked, [answer] * 19 + [None])  # too few answers
        check_answers(asked, [None] * 20)
        assert capsys.readouterr().err == ""
        check_answers([*asked, "x"], [answer, f" {answer.upper()}", *[answer] * 18, None])
    said = capsys.readouterr().err
    assert "vqa: the model gives all 20 different questions the same answer" in said
    assert answer[:60] in said
    check_answers(asked, [answer] * 20)  # outside of an evaluation nothing is said
    assert capsys.readouterr().err == ""


@pytest.fixture
def bad_end(tmp_path):
    """A copy of the tiny CLIP whose config names another end of texts than its tokenizer's."""
    folder = tmp_path / "clip"
    shutil.copytree(ZOO / "clip-0", folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["eos_token_id"] = 40
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_config_with_another_end_of_texts_than_its_tokenizers_is_refused(bad_end):
    with pytest.raises(UserError) as caught:
        HFClip(str(bad_end)).load(DualEncoder)
    said = str(caught.value)
    assert "eos_token_id in config.json is 40" in said
    assert "end with 3" in said


def test_texts_read_at_the_first_token_are_refused_whatever_the_cause(bad_end, monkeypatch):
    monkeypatch.setattr("cfaug.models.encoder.check_end_of_text", lambda *_: None)
    encoder = HFClip(str(bad_end)).load(DualEncoder)
    texts = [f"a {colour} {shape}" for colour in ("red", "blue") for shape in ("ball", "star")]
    with refuse_indistinct("photos", 0.2), pytest.raises(UserError, match="4 of 4 different cap"):
        embed_texts(encoder, texts, 2)
