"""Which nouns of a caption get a word, how words are scored, and which answers are kept."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.data.detections import Detection
from cfaug.editing.language_models import SentenceEncoder
from cfaug.editing.wordnet import WordNet
from cfaug.models.specs import HFClip
from cfaug.papers.xmai.insertions import BlockList, ImageTextDistance
from cfaug.papers.xmai.insertions.mentions import (
    AnswerCache,
    MentionFinder,
    WordSimilarity,
    _pack,
    _unpack,
)
from cfaug.papers.xmai.insertions.scores import normalise_scores, score_candidates
from tests.editing import tiny
from tests.papers.xmai.insertions.parts import (
    NOUNS,
    HashedVectors,
    ListTagger,
    captioned,
    changed,
    detection,
    photo,
)
from tests.records import Photo


class Pairs:
    """An encoder to which two words are alike if a list says so."""

    def __init__(self, *pairs):
        self.names = {word: i for i, pair in enumerate(pairs) for word in pair}
        self.asked = []

    def encode(self, texts):
        import numpy as np

        self.asked.append(list(texts))
        vectors = np.zeros((len(texts), len(self.names) + 1))
        for row, text in enumerate(texts):
            vectors[row, self.names.get(text, len(self.names))] = text in self.names
        return vectors

    def describe(self):
        return {}


def find(text, labels, *, similar=(), fallback="noun", threshold=0.7, tagger=None):
    similarity = WordSimilarity(Pairs(*similar))
    finder = MentionFinder(fallback, tagger, similarity, threshold)
    [mentions] = finder.find([text], [[Detection(label) for label in labels]])
    for mention in mentions:
        assert text[mention.end - len(mention.noun) : mention.end] == mention.noun
    return [(mention.start, mention.noun, mention.label, mention.objects) for mention in mentions]


@pytest.mark.parametrize(
    ("text", "labels", "mentions"),
    [
        ("Dog, a DOG.", ["dog"], [(0, "Dog", "dog", (0,))]),
        ("a hotdog and dog-food", ["dog"], []),
        ("the dog's ball", ["ball", "dog"], [(4, "dog", "dog", (1,)), (10, "ball", "ball", (0,))]),
        ("a fire hydrant", ["hydrant", "fire hydrant"], [(2, *["fire hydrant"] * 2, (1,))]),
        ("a dog", ["dog", "Dog", "dog"], [(2, "dog", "dog", (0, 1, 2))]),
        ("a dog and a dog", ["dog"], [(2, "dog", "dog", (0,))]),
        ("a man table", ["table"], [(2, "table", "table", (0,))]),
        ("a man table", ["man", "table"], [(2, "table", "table", (1,))]),
        ("man, table", ["table"], [(5, "table", "table", (0,))]),
    ],
)  # fmt: skip
def test_a_label_is_matched_as_whole_words_and_stands_before_its_compound(text, labels, mentions):
    assert find(text, labels, fallback="never", tagger=ListTagger()) == mentions


@pytest.mark.parametrize(
    ("fallback", "nouns"),
    [("noun", ["dog", "table"]), ("text", ["dog"]), ("never", ["dog"]), ("only", ["table"])],
)
def test_which_nouns_are_compared(fallback, nouns):
    similar = [("table", "desk")]
    mentions = find(
        "a dog on a table", ["dog", "desk"], similar=similar, tagger=ListTagger(), fallback=fallback
    )
    assert [noun for _, noun, _, _ in mentions] == nouns


def test_a_noun_takes_the_attributes_of_every_similar_object_and_the_nearest_label():
    similar = [("table", "desk", "shelf")]
    [only] = find(
        "tables on a table",
        ["shelf", "dog", "desk"],
        similar=similar,
        tagger=ListTagger(),
        fallback="only",
    )
    assert only == (12, "table", "shelf", (0, 2))


def test_every_noun_counts_once_in_whatever_case():
    similar = [("dog", "wolf")]
    mentions = find("a Dog with a dog", ["wolf"], similar=similar, tagger=ListTagger())
    assert [(start, noun) for start, noun, _, _ in mentions] == [(2, "Dog")]


def test_nothing_is_compared_without_detections_and_words_are_encoded_together_once():
    encoder = Pairs(("table", "desk"))
    finder = MentionFinder("noun", ListTagger(), WordSimilarity(encoder), 0.7)
    texts = ["a table", "a dog", "a table on a beach"]
    by_text = finder.find(texts, [[Detection("desk")], [], [Detection("desk"), Detection("man")]])
    assert [len(mentions) for mentions in by_text] == [1, 0, 1]
    assert encoder.asked == [["beach", "desk", "man", "table"]]


LABELS = st.lists(st.sampled_from((*NOUNS, "fire hydrant", "red dog", "Man")), max_size=5)
TEXT = st.lists(st.sampled_from((*NOUNS, "fire hydrant", "a", "red", "DOG", "man,")), max_size=8)


@given(TEXT.map(" ".join), LABELS)
def test_direct_mentions_are_found_as_a_search_word_by_word_finds_them(text, labels):
    """Longer labels first, each where its words first stand untaken."""
    words = [word.lower() for word in re.findall(r"\w+", text)]
    spans = [match.span() for match in re.finditer(r"\w+", text)]
    taken: set[int] = set()
    expected = []
    distinct = list(dict.fromkeys(label.lower() for label in labels))
    for label in sorted(distinct, key=lambda phrase: -len(phrase.split())):
        parts = label.split()
        for i in range(len(words) - len(parts) + 1):
            places = set(range(i, i + len(parts)))
            between = text[spans[i][0] : spans[i + len(parts) - 1][1]]
            if words[i : i + len(parts)] == parts and not places & taken and "," not in between:
                taken |= places
                numbers = tuple(n for n, spelt in enumerate(labels) if spelt.lower() == label)
                expected.append((spans[i][0], between, numbers))
                break
    mentions = find(text, labels, fallback="never")
    assert [(start, noun, numbers) for start, noun, _, numbers in mentions] == sorted(expected)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(vector=arrays.arrays(np.float64, st.integers(1, 5), elements=NUMBERS))
def test_kept_numbers_are_exact(vector):
    assert _unpack(_pack(vector)).tolist() == vector.tolist()


def test_a_second_process_asks_about_new_words_only(tmp_path, monkeypatch):
    encoder = SentenceEncoder("zoo:language/sentence")
    words, others = ["dog", "table"], ["red", "wooden"]
    expected = WordSimilarity(encoder).cosines(words, others)
    first = WordSimilarity(encoder, tmp_path)
    assert first.cosines(words, others) == expected
    first.cache.write()
    asked = []
    encode = SentenceEncoder.encode
    monkeypatch.setattr(
        SentenceEncoder, "encode", lambda self, texts: asked.append(texts) or encode(self, texts)
    )
    second = WordSimilarity(encoder, tmp_path)
    assert second.cosines(words, others) == expected
    assert asked == []
    assert second.cosines(["dog"], ["blue"]) == WordSimilarity(encoder).cosines(["dog"], ["blue"])
    assert asked[0] == ["blue"]


def test_what_is_no_model_is_not_kept(tmp_path):
    similarity = WordSimilarity(HashedVectors(), tmp_path)
    assert not similarity.cache.keeps
    similarity.cosines(["a"], ["b"])
    similarity.cache.write()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("word", "nouns", "blocked"),
    [
        ("white", ["man"], True),
        ("White", ["MEN"], True),
        ("white", ["car"], False),
        ("black", ["ball", "boy"], True),
        ("female", ["statue"], True),
        ("christian", ["church"], False),
        ("young", ["tree"], False),
        ("wooden", ["man"], False),
        ("white", ["hair"], True),
        ("white", [""], False),
    ],
)
def test_the_shipped_list(word, nouns, blocked):
    assert BlockList().blocks(word, nouns) is blocked


def test_some_kinds_of_it():
    only = BlockList(kinds=["gender"])
    assert only.blocks("male", ["dog"])
    assert not only.blocks("white", ["man"])
    assert "gender" in only.describe()["block_list"]
    with pytest.raises(UserError, match=r"'sex' is missing .*choose from age, body, disability"):
        BlockList(kinds=["sex"])


def test_a_list_of_the_users(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("# mine\nsize: big, Tiny\nsize (people): tall\nNOUNS: elf\n")
    mine = BlockList(str(file))
    assert mine.blocks("tiny", ["car"])
    assert mine.blocks("tall", ["elf"])
    assert not mine.blocks("tall", ["man"])
    assert not mine.blocks("white", ["elf"])
    assert mine.describe()["block_list"].startswith("mine.txt sha256:")


def test_wordnet_knows_more_nouns_of_people(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("size (people): tall\n")
    wordnet = WordNet(str(tiny.save_wordnet(tmp_path / "wordnet")))
    known = BlockList(str(file), wordnet=wordnet)
    assert known.blocks("tall", ["women"])
    assert not known.blocks("tall", ["puppy"])
    assert not known.blocks("tall", ["coach"])
    assert not BlockList(str(file)).blocks("tall", ["women"])


@pytest.mark.parametrize("text", ["a word", "kind:", "kind (dogs) big", ": a"])
def test_an_invalid_line_is_named(tmp_path, text):
    file = tmp_path / "mine.txt"
    file.write_text(f"size: big\n{text}\n")
    with pytest.raises(UserError, match="is invalid: it should be KIND: WORD"):
        BlockList(str(file)).blocks("big", [])


def test_a_list_that_cannot_be_read_is_named(tmp_path):
    for content in (b"\xff\xfe", b"a: b\n" * 300_000):
        (tmp_path / "mine.txt").write_bytes(content)
        with pytest.raises(UserError, match=r"mine.txt cannot be read"):
            BlockList(str(tmp_path / "mine.txt")).blocks("a", [])
    with pytest.raises(UserError, match=r"none.txt cannot be read"):
        BlockList(str(tmp_path / "none.txt")).blocks("a", [])


VALUES = st.lists(st.floats(-1, 2).map(lambda v: round(v, 3)), min_size=1, max_size=6)


@given(VALUES)
def test_scores_are_made_comparable_as_written_out(values):
    array = np.array(values)
    shares = np.maximum(array, 0)
    expected = shares / shares.sum() if shares.sum() > 0 else 0 * shares
    assert normalise_scores(values, "sum") == pytest.approx(expected)
    spread = array.max() - array.min()
    expected = (array - array.min()) / spread if spread else 0 * array
    assert normalise_scores(values, "min_max") == pytest.approx(expected)


def test_the_sum_is_equation_1():
    p, s, d = [0.4, 0.1], [0.2, 0.6], [0.7, 0.8]
    expected = [
        (1 * 0.4 / 0.5 + 5 * 0.2 / 0.8 - 2 * 0.7 / 1.5) / 8,
        (1 * 0.1 / 0.5 + 5 * 0.6 / 0.8 - 2 * 0.8 / 1.5) / 8,
    ]
    assert score_candidates(p, s, d, (1, 5, -2), "sum") == pytest.approx(expected)
    without = score_candidates(p, s, [], (1, 5, 0), "sum")
    assert without == pytest.approx([(0.8 + 1.25) / 6, (0.2 + 3.75) / 6])


def test_nothing_has_no_score():
    assert score_candidates([], [], [], (1, 5, 5), "min_max") == []


def test_a_distance_is_one_less_the_cosine_of_plain_transformers(parts):
    from transformers import CLIPModel, CLIPProcessor

    photos = {str(seed): photo(seed) for seed in range(3)}
    texts = ["a dog", "a red ball on the beach of a man", "a", "a dog " * 60]
    images = parts.distance.embed_images(photos)
    vectors = parts.distance.embed_texts(texts)
    model = CLIPModel.from_pretrained(parts.clip).double().eval()
    processor = CLIPProcessor.from_pretrained(parts.clip)
    for name, source in photos.items():
        shown = Image.open(io.BytesIO(source.read()))
        for text, vector in zip(texts, vectors, strict=True):
            given = processor(
                text=[f"This is {text}"], images=shown, return_tensors="pt", truncation=True
            )
            given["pixel_values"] = given["pixel_values"].double()
            with torch.no_grad():
                out = model(**given)
            a, b = out.text_embeds[0], out.image_embeds[0]
            cosine = float(a @ b / a.norm() / b.norm())
            assert parts.distance.distance(images[name], vector) == pytest.approx(
                1 - cosine, abs=1e-4
            )


def test_float32_is_near_float64(parts):
    rough = ImageTextDistance(HFClip(str(parts.clip)))
    image = {"0": photo(0)}
    [a], [b] = (model.embed_texts(["a dog"]) for model in (rough, parts.distance))
    np.testing.assert_allclose(a, b, atol=1e-5)
    np.testing.assert_allclose(
        rough.embed_images(image)["0"], parts.distance.embed_images(image)["0"], atol=1e-5
    )


def test_a_photo_that_cannot_be_decoded_has_no_embedding_and_a_missing_one_is_refused(
    parts, capsys
):
    embeddings = parts.distance.embed_images({"a": Photo(b"no photo"), "b": photo(1)})
    assert embeddings["a"] is None
    assert embeddings["b"] is not None
    assert "photo_broken" in capsys.readouterr().err

    class Gone(Photo):
        def read(self):
            raise UserError("photo.png is missing")

    with pytest.raises(UserError, match=r"photo.png is missing"):
        parts.distance.embed_images({"a": Gone(b"")})


def test_invalid_settings_are_named_and_the_prefix_is_part_of_the_identity(parts):
    with pytest.raises(UserError, match="dtype=int8: choose from float32, float64"):
        ImageTextDistance(HFClip("x"), dtype="int8")
    with pytest.raises(UserError, match=r"image_text.device"):
        ImageTextDistance(HFClip("x"), device="gpu")
    said = parts.distance.describe()["image_text"]
    assert "sha256:" in said
    assert ImageTextDistance(HFClip(str(parts.clip)), prefix="").identity() != (
        parts.distance.identity()
    )


def test_embeddings_that_are_not_numbers_are_refused(parts, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    folder = tmp_path / "clip"
    shutil.copytree(parts.clip, folder)
    weights = load_file(folder / "model.safetensors")
    weights["text_projection.weight"][0, 0] = float("inf")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"text_projection|not numbers|damaged"):
        ImageTextDistance(HFClip(str(folder))).embed_texts(["a dog"])


class Model:
    """Answers with the question's length, and notes what it was asked."""

    def __init__(self, cache):
        self.cache, self.asked = cache, []

    def ask(self, *questions):
        def answer(rows):
            self.asked += [questions[row] for row in rows]
            return [None if questions[row] == "?" else [len(questions[row])] for row in rows]

        return self.cache.ask(list(questions), answer)


def test_equal_questions_are_asked_once_and_the_answers_survive(tmp_path):
    first = Model(AnswerCache(tmp_path, "a model"))
    assert first.ask("ab", "abc", "ab") == [[2], [3], [2]]
    assert first.asked == ["ab", "abc"]
    assert first.ask("ab", "x") == [[2], [1]]
    first.cache.write()
    first.cache.write()
    [file] = (tmp_path / "insertion").rglob("*.jsonl")
    assert all(set(json.loads(line)) == {"key", "found"} for line in file.read_text().splitlines())
    second = Model(AnswerCache(tmp_path, "a model"))
    assert second.ask("abc", "new", "ab") == [[3], [3], [2]]
    assert second.asked == ["new"]
    assert Model(AnswerCache(tmp_path, "another")).ask("ab") == [[2]]


def test_without_a_folder_nothing_is_kept_but_equal_questions_are_one():
    model = Model(AnswerCache(None, "a model"))
    assert model.ask("ab", "ab") == [[2], [2]]
    assert model.ask("ab") == [[2]]
    assert model.asked == ["ab", "ab"]
    assert model.cache.misses == 2
    model.cache.write()
    assert model.ask() == []


def test_nothing_is_kept_of_what_could_not_be_answered(tmp_path):
    model = Model(AnswerCache(tmp_path, "a model"))
    assert model.ask("?", "a") == [None, [1]]
    assert model.ask("?", "a") == [None, [1]]
    assert model.asked == ["?", "a", "?"]


def test_damaged_files_are_asked_again(tmp_path, capsys):
    first = Model(AnswerCache(tmp_path, "a model"))
    first.ask("ab")
    first.cache.write()
    [file] = (tmp_path / "insertion").rglob("*.jsonl")
    file.write_bytes(file.read_bytes()[:-3])
    again = Model(AnswerCache(tmp_path, "a model"))
    assert again.ask("ab") == [[2]]
    assert again.asked == ["ab"]
    assert "damaged" in capsys.readouterr().err
    assert not file.exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "insertion").write_text("no folder")
    model = Model(AnswerCache(tmp_path, "a model"))
    model.ask("ab")
    with pytest.raises(UserError, match=r"recipe.editor.cache=null"):
        model.cache.write()


def test_a_sweep_asks_no_model_twice_and_its_sets_are_those_of_each_setting_alone(parts, tmp_path):
    detections = [detection("dog", "brown"), detection("table", "wet"), detection("man", "old")]
    texts = ["a dog on a table", "The man with a dog", "a table", "dogs in the goal"]
    examples = [
        captioned(text, *detections, key=f"k{i}", image=photo(i % 2))
        for i, text in enumerate(texts)
    ]
    every = [{"weights": (1, 5, 5)}, {"weights": (0, 0, 1)}, {"k": 2}, {"threshold": 0.2}]
    asked = []
    for setting in every:
        alone = parts.editor(**setting)
        swept = parts.editor(**setting, cache=str(tmp_path))
        assert swept.edit(examples) == alone.edit(examples)
        asked.append((swept._guesser.cache.misses, swept._weigher.cache.misses))
        again = parts.editor(**setting, cache=str(tmp_path))
        assert again.edit(examples) == alone.edit(examples)
        assert (again._guesser.cache.misses, again._weigher.cache.misses) == (0, 0)
    assert asked[0][0] == parts_asked(parts, examples)
    assert sum(guesses for guesses, _ in asked) < 2.5 * asked[0][0]


def test_masks_that_are_looked_at_alone_share_all_answers_of_a_sweep(parts, tmp_path):
    """No choice depends on another, so the dearest setting asks all there is to ask."""
    detections = [detection("dog", "brown"), detection("table", "wet"), detection("man", "old")]
    examples = [
        captioned("a dog on a table with a man", *detections, key="a", image=photo(0)),
        captioned("The man and a dog", *detections, key="b", image=photo(1)),
    ]
    first = parts.editor(k=4, cache=str(tmp_path), context="alone")
    first.edit(examples)
    assert first._guesser.cache.misses == 5
    chosen = set()
    for setting in [{"weights": w} for w in ((1, 5, 5), (1, 0, 5), (0, 0, -1))] + [{"k": 2}]:
        swept = parts.editor(**setting, cache=str(tmp_path), context="alone")
        chosen.add(changed(swept.edit(examples)[1]))
        assert (swept._guesser.cache.misses, swept._weigher.cache.misses) == (0, 0)
    assert len(chosen) > 1
    # One mention in the place of several is the same, whatever came before it.
    alone, usual = (
        editor.edit(examples[1:])[0].proposals[0].details[1]["changes"]
        for editor in (parts.editor(context="alone"), parts.editor())
    )
    assert alone[0] == usual[0]


def parts_asked(parts, examples):
    alone = parts.editor()
    alone.edit(examples)
    return alone._guesser.cache.misses


def test_what_changes_an_answer_has_answers_of_its_own(parts, tmp_path):
    example = captioned("a dog", detection("dog", "wet"))
    made = parts.editor(cache=str(tmp_path), block_list=None)
    first = changed(*made.edit([example]))
    for changes in ({"guesses": 3}, {"guesses": 4}):
        other = parts.editor(cache=str(tmp_path), block_list=None, **changes)
        other.edit([example])
        assert other._guesser.cache.misses == 1
    other = captioned("a dog", detection("dog", "wet"), image=photo(7))
    made = parts.editor(cache=str(tmp_path), block_list=None)
    made.edit([example, other])
    assert made._weigher.cache.misses == 3
    assert changed(*made.edit([example])) == first
