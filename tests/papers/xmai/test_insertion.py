"""The insertion benchmark against one text at a time, and against the released notebook's ranks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Benchmark, NoModel
from cfaug.core.types import Edit
from cfaug.data.shards.shards import read_sets, write_shards
from cfaug.evaluation.text_pairs.text_pair_items import InsertionItems, OverlapItems
from cfaug.papers.xmai.insertion import Insertion, make_batches, rank_in_batches, rank_in_gallery
from cfaug.papers.xmai.text_overlap import TextOverlap, bleu4, inserted_words
from cfaug.report.items import Items
from tests.evaluation.joined import picture
from tests.evaluation.text_pairs.asking import context, rows
from tests.evaluation.text_pairs.test_text_pairs import answers_file, edited, proposal
from tests.evaluation.text_sets import text_set

WORDS = {"xmai": "small green", "eda": "cat"}


def scored(number, word, kind):
    """Every second changed text of one method is false of its photo."""
    scores = {"truth_0": 1.0, "truth_1": float(number % 2)} if kind == "xmai" else {}
    return text_set(number, word if number != 3 else "", kind, scores=scores)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    place = tmp_path_factory.mktemp("insertion")
    for kind, word in WORDS.items():
        write_shards([scored(n, word, kind) for n in range(8)], place / kind)
    return place


def ask(root, **settings):
    settings = {"data": {kind: str(root / kind) for kind in WORDS}, "synonyms": None} | settings
    (opened,) = Insertion(**settings).open(context(root))
    return opened


@pytest.fixture(scope="module")
def evaluation(root, encoder):
    return ask(root).run(encoder)


def embed(encoder, text=None, image=None):
    """One text or image by itself, of unit length."""
    with torch.inference_mode():
        if text is not None:
            vector = encoder.encode_text(encoder.tokenize([text]))[0]
        else:
            pixels = encoder.transform(decode_image(image, "it"))[None].copy()
            vector = encoder.encode_image(torch.from_numpy(pixels))[0]
    vector = vector.double().numpy()
    return vector / np.linalg.norm(vector)


def test_every_item_is_what_one_text_at_a_time_gives(root, evaluation, encoder):
    items, seen = rows(evaluation), set()
    for kind in WORDS:
        sets = list(read_sets(root / kind))
        photos = {pair.group: embed(encoder, image=pair.images["0"]) for pair in sets}
        for number, pair in enumerate(sets):
            row = items[f"{kind}/{pair.key}"]
            seen.add(row["item"])
            texts = [member.text for member in pair.members]
            said = [embed(encoder, f"This is {text}") for text in texts]
            photo = photos[pair.group]
            ranks = [1 + sum(t @ p > t @ photo + 1e-9 for p in photos.values()) for t in said]
            assert [row["rank_original"], row["rank"]] == ranks
            assert [row["mrr_original"], row["mrr"]] == pytest.approx([1 / r for r in ranks])
            assert row["mrr_drop"] == row["mrr_original"] - row["mrr"]
            assert row["similarity_text"] == pytest.approx(said[0] @ said[1], abs=1e-5)
            assert row["similarity_image_original"] == pytest.approx(said[0] @ photo, abs=1e-5)
            assert row["similarity_image"] == pytest.approx(said[1] @ photo, abs=1e-5)
            assert row["bleu"] == bleu4(*texts)
            assert row["inserted_words"] == len(inserted_words(*texts))
            assert [row["text_before"], row["text"]] == texts
            assert (row["method"], row["key"]) == (kind, pair.key)
            assert row["source"] == str(root / kind)
            changed = number != 3
            assert (row["changed"], row["kind"]) == (float(changed), kind if changed else None)
            kept = "kept" if not changed or (kind == "xmai" and number % 2) else "unknown"
            assert row["label_kept"] == ("changed" if kind == "xmai" and not number % 2 else kept)
            # Eight texts are one batch, in which each photo is once: the same as among all.
            assert row["mrr_batches"] == row["mrr"]
    assert seen == set(items)
    assert "meteor" not in evaluation.items
    assert any(row["mrr_drop"] for row in items.values())
    InsertionItems("m", Items("insertion", "w", "d", evaluation.items))  # has every column it needs


def test_outcomes_are_means_of_items_by_method_and_of_kept_answers_alone(evaluation):
    items, seen = list(rows(evaluation).values()), set()
    for outcome in evaluation.outcomes:
        chosen = [row for row in items if all(row[name] == outcome.by[name] for name in outcome.by)]
        seen.add((outcome.by["method"], outcome.by.get("label_kept")))
        assert outcome.better == ("lower" if outcome.metric in ("mrr_drop", "mrr_drop_batches",
                                                                "labels_changed", "labels_unknown")
                                  else "higher")  # fmt: skip
        if outcome.metric.startswith("labels_"):
            label = outcome.metric.removeprefix("labels_")
            values = [row["label_kept"] == label for row in chosen]
        elif outcome.metric == "inserted_words_sd":
            assert outcome.value == pytest.approx(np.std([row["inserted_words"] for row in chosen]))
            continue
        else:
            values = [row[outcome.metric] for row in chosen]
        assert (outcome.value, outcome.n) == (pytest.approx(sum(values) / len(values)), len(values))
    # Of the other method only the unchanged text is known to be kept, which says nothing.
    assert seen == {("xmai", None), ("xmai", "kept"), ("eda", None)}


def notebook_mrr(similarities):
    """The released notebook's function, one row at a time."""
    total = []
    for cap in range(len(similarities)):
        ordered = np.sort(similarities[cap])[::-1]
        total.append(1 / (np.where(ordered == similarities[cap][cap])[0][0] + 1))
    return total


def draw(sets=23, photos=9, kinds=3, seed=0):
    rng = np.random.default_rng(seed)
    texts = rng.normal(size=(kinds, sets, 6)).astype(np.float32)
    images = rng.normal(size=(photos, 6)).astype(np.float32)
    images[-1] = images[0]  # two photos that look the same
    texts, images = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (texts, images))
    photo_of_set = np.r_[np.arange(photos), rng.integers(photos, size=sets - photos)]
    return texts, images, photo_of_set


def test_where_no_photo_is_repeated_batches_rank_as_the_released_notebook():
    """There a photo is a candidate for each of its captions, and ties take the best rank."""
    texts, photos, photo_of_set = draw(sets=20, photos=20)
    photos, photo_of_set = np.roll(photos, 1, 0)[:-1], photo_of_set[:19]  # no twin
    order = np.random.RandomState(0).choice(19, 15, replace=False)  # pandas' sample(frac=1)
    batches = [order[start : start + 5] for start in range(0, 15, 5)]
    ranks = rank_in_batches(texts[:, :19], photos, photo_of_set, batches)
    for places in batches:
        shown = photos[photo_of_set[places]]
        for kind in range(3):
            expected = notebook_mrr(texts[kind, places] @ shown.T)
            assert ranks[kind, places] == pytest.approx(expected)
    assert np.isnan(np.delete(ranks, order, axis=1)).all()


def slow_ranks(places, texts, photos, photo_of_set):
    """Each photo once, ties by their mean, in plain Python."""
    shown = sorted({int(photo_of_set[at]) for at in places})
    reciprocal = np.empty((len(texts), len(places)))
    for kind, own_texts in enumerate(texts):
        for n, at in enumerate(places):
            scores = {p: float(np.float64(own_texts[at]) @ np.float64(photos[p])) for p in shown}
            right = scores[int(photo_of_set[at])]
            above = sum(score > right + 1e-6 for score in scores.values())
            equal = sum(abs(score - right) <= 1e-6 for score in scores.values())
            reciprocal[kind, n] = sum(1 / (above + 1 + j) for j in range(equal)) / equal
    return reciprocal


def test_galleries_hold_each_photo_once_and_tie_by_their_mean():
    data = draw()
    reciprocal, ranks = rank_in_gallery(*data)
    assert reciprocal == pytest.approx(slow_ranks(range(23), *data))
    assert ((ranks >= 1) & (ranks <= 9)).all()
    batches = make_batches("b", 23, 6, 0)
    in_batches = rank_in_batches(*data, batches)
    for places in batches:
        assert in_batches[:, places] == pytest.approx(slow_ranks(places, *data))


@pytest.mark.parametrize(("sets", "size"), [(23, 5), (4, 10), (100, 7), (10, 10)])
def test_batches_hold_every_set_once_and_are_of_nearly_one_size(sets, size, capsys):
    batches = make_batches("b", sets, size, 0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(sets))
    lengths = [len(batch) for batch in batches]
    assert max(lengths) - min(lengths) <= 1
    assert ("one batch holds all" in capsys.readouterr().err) == (sets < size)
    again, other = (make_batches("b", sets, size, seed) for seed in (0, 1))
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in batches]
    assert [batch.tolist() for batch in other] != [batch.tolist() for batch in batches]


class Counting:
    """Counts the texts that an encoder is asked about."""

    def __init__(self, encoder):
        self.encoder, self.texts, self.images = encoder, [], 0

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def tokenize(self, texts):
        self.texts += texts
        return self.encoder.tokenize(texts)

    def encode_image(self, pixels):
        self.images += len(pixels)
        return self.encoder.encode_image(pixels)


def test_every_text_and_photo_is_embedded_once_for_all_methods(root, encoder, evaluation):
    counting = Counting(encoder)
    again = ask(root).run(counting)
    # Four captions of their own (the sets repeat them), and what two methods made of them.
    assert len(counting.texts) == len(set(counting.texts)) == 4 + 2 * 4
    assert counting.images == 4
    assert [outcome.value for outcome in again.outcomes] == [
        outcome.value for outcome in evaluation.outcomes
    ]


class Letters:
    """A sentence encoder that counts letters."""

    def encode(self, texts):
        counts = np.array([[text.count(letter) for letter in "aeiour"] for text in texts], float)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)

    def describe(self):
        return {"sentence_encoder": "letters"}


def test_a_sentence_encoder_compares_the_texts_without_the_prefix(root, encoder):
    items = rows(ask(root, sentence_encoder=Letters()).run(encoder)).values()
    for row in items:
        first, second = Letters().encode([row["text_before"], row["text"]])
        assert row["similarity_text"] == pytest.approx(first @ second)


def test_what_is_asked_is_part_of_the_hash(root, tmp_path):
    file = answers_file(tmp_path / "labels.jsonl", [(0, 1, "a", "yes")])
    asked = [
        {}, {"prefix": ""}, {"pairs_per_batch": 4}, {"seed": 1},
        {"sentence_encoder": Letters()}, {"data": str(root / "eda")},
        {"answers": {"eda": file}}, {"data": {"a": str(root / "xmai"), "b": str(root / "eda")}},
    ]  # fmt: skip
    hashes = [ask(root, **settings).data_hash for settings in asked]
    assert len(set(hashes)) == len(asked)
    assert ask(root, page=3, batch_size=2).data_hash == hashes[0]


def test_people_s_answers_count_where_the_oracle_knows_nothing(root, tmp_path, encoder):
    lines = [(n, 1, "a", "no" if n < 2 else "yes") for n in range(5)]
    file = answers_file(tmp_path / "labels.jsonl", lines)
    judged = ask(root, answers={"eda": file}).run(encoder)
    labels = {key: row["label_kept"] for key, row in rows(judged).items() if key.startswith("eda")}
    assert list(labels.values()) == ["changed"] * 2 + ["kept"] * 3 + ["unknown"] * 3
    for data, answers, said in (
        (None, file, r"is one file for 2 methods: give \{METHOD: FILE\}, with xmai, eda"),
        (None, {"other": file}, "'other' is not a method: choose xmai, eda"),
    ):
        with pytest.raises(UserError, match=said):
            ask(root, answers=answers, **({} if data is None else {"data": data}))
    alone = ask(root, data=str(root / "eda"), answers=file)
    assert alone.name == "eda_insertion"
    assert alone.label_checks == {"eda": list(labels.values())}


def test_names_and_methods(root):
    assert ask(root).name == "insertion"
    assert ask(root, name="mine").name == "mine_insertion"
    listed = ask(root, data=[str(root / kind) for kind in WORDS])
    assert list(listed.label_checks) == ["xmai", "eda"]
    assert isinstance(listed, Benchmark)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"data": None}, "benchmark=insertion needs benchmark.data=FOLDER"),
        ({"data": {}}, r"benchmark.data=\{\} is invalid: give FOLDER"),
        ({"data": {"a": 3}}, r"data=\{a:3\} should be a text or a list of texts or"),
    ],
)
def test_settings_that_are_invalid(root, settings, said):
    with pytest.raises(UserError, match=said):
        ask(root, **settings)


def test_what_cannot_be_ranked_is_refused(tmp_path):
    write_shards([text_set(0, "x"), text_set(1, "x")], tmp_path / "one_photo")
    with pytest.raises(UserError, match="shows 1 photo: ranking needs 2 or more"):
        ask(tmp_path, data=str(tmp_path / "one_photo"))
    edit = Edit("eda", "", "big")
    texts = edited(tmp_path / "texts", proposal(["a dog", "a big dog"], [None, edit], "c", "p"))
    with pytest.raises(UserError, match=r"texts holds captions that were only edited, without ph"):
        ask(tmp_path, data=str(texts))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty"):
        ask(tmp_path, data=str(tmp_path / "empty"))


def test_text_overlap_asks_no_model(root, tmp_path):
    data = {kind: str(root / kind) for kind in WORDS}
    (opened,) = TextOverlap(data=data, synonyms=None).open(context(root))
    assert (opened.name, opened.needs) == ("text_overlap", NoModel)
    overlap = opened.run(NoModel())
    OverlapItems("m", Items("text_overlap", "w", "d", overlap.items))
    values = {
        (outcome.metric, outcome.by["method"]): outcome.value
        for outcome in overlap.outcomes
        if len(outcome.by) == 1
    }
    assert values["inserted_words", "xmai"] == pytest.approx(14 / 8)
    assert values["changed", "eda"] == 7 / 8
    assert values["novel", "eda"] == 5 / 8  # two captions speak of a cat already
    assert values["inserted_words_sd", "xmai"] == pytest.approx(2 * math.sqrt(7) / 8)
    file = tmp_path / "eda.csv"
    file.write_text("image_id,original,modified\n7,a dog,a big dog\n7,a cat,\n")
    (listed,) = TextOverlap(data=str(file), synonyms=None).open(context(root))
    assert listed.name == "eda_text_overlap"
    assert listed.run(NoModel()).items["bleu"].tolist() == [bleu4("a dog", "a big dog"), 0.0]
    assert listed.data_hash != opened.data_hash


def test_a_folder_without_wordnet_is_refused_whatever_the_texts(root, tmp_path):
    (opened,) = TextOverlap(data=str(root / "xmai"), synonyms=str(tmp_path)).open(context(root))
    with pytest.raises(UserError, match="has no files of WordNet"):
        opened.run(NoModel())


def test_texts_without_images_are_for_text_overlap(tmp_path):
    file = tmp_path / "eda.csv"
    file.write_text("image_id,original,modified\n7,a dog,a big dog\n8,a cat,a cat\n")
    from cfaug.evaluation.text_pairs.text_pairs import read_caption_list

    with pytest.raises(UserError, match="has no images: ask benchmark=text_overlap about it"):
        Insertion(name="m", synonyms=None).use(read_caption_list("", file))


def test_a_list_of_modified_captions_with_photos_is_asked_as_sets_are(tmp_path, encoder):
    for number in (7, 8):
        (tmp_path / f"{number:012d}.jpg").write_bytes(picture(1, number))
    file = tmp_path / "eda.csv"
    file.write_text("image_id,original,modified\n7,a dog,a big dog\n8,a cat,a cat\n")
    opened = ask(tmp_path, data={"EDA": str(file)})
    items = rows(opened.run(encoder))
    assert opened.name == "eda_insertion"
    assert [row["text"] for row in items.values()] == ["a big dog", "a cat"]
    assert [row["method"] for row in items.values()] == ["EDA", "EDA"]
    assert [row["changed"] for row in items.values()] == [1.0, 0.0]
