"""The choice among captions against plain loops, one item at a time, for every kind of model."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch

from cfaug.core.answers import Question
from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Benchmark
from cfaug.evaluation.cached_model import CachedAnswerer, CachedEncoder, CachedMatcher
from cfaug.evaluation.choices.caption_choice import CaptionChoice
from cfaug.evaluation.choices.caption_scores import BlindLanguage, read_caption_question
from tests.evaluation.caption_items import choice, choices, open_sets, world_pairs
from tests.evaluation.drawn_questions import Drawn, rows

GROUPS = {"replace": ["replace_obj", "replace_att"], "swap": ["swap_obj", "swap_att"]}
WORTH = {"miss": 0.0, "half": 0.5, "hit": 1.0}


@pytest.fixture(scope="module")
def one_true(tmp_path_factory):
    return open_sets(choices(), tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def two_true(tmp_path_factory):
    return open_sets(choices(true=2), tmp_path_factory.mktemp("two"))


def asked(index, **settings):
    return CaptionChoice(**{"name": "c", "batch_size": 5, "blind": None, **settings}).use(index)


def numbers(evaluation):
    return {(outcome.metric, *outcome.by.items()): outcome.value for outcome in evaluation.outcomes}


def true_and_false(pair):
    """Return the captions of a pair, the first of them true of its first image."""
    return [(pair.members[0].text, "true"), (pair.members[1].text, "false")]


def by_item(index):
    """{key of the first member: (image, [(caption, label)])}."""
    items = {}
    for row in range(len(index)):
        key = index.key(row).rsplit("_", 1)[0] + "_0"
        image = decode_image(index.read_image(row), "it")
        items.setdefault(key, (image, []))[1].append((index.text(row), index.label(row)))
    return items


def embed(encoder, text=None, image=None):
    with torch.inference_mode():
        if text is not None:
            vector = encoder.encode_text(encoder.tokenize([text]))
        else:
            vector = encoder.encode_image(torch.from_numpy(encoder.transform(image)[None].copy()))
    vector = vector[0].double().numpy()
    return vector / np.linalg.norm(vector)


def decide(score, captions, ties="miss"):
    true = [score[text] for text, label in captions if label == "true"]
    false = [score[text] for text, label in captions if label == "false"]
    if min(true) == max(false):
        return WORTH[ties]
    return float(min(true) > max(false))


@pytest.mark.parametrize("ties", list(WORTH))
def test_hits_of_a_dual_encoder_equal_one_item_at_a_time(encoder, one_true, ties):
    benchmark = asked(one_true, ties=ties, groups=GROUPS, tags=["tag"])
    evaluation = benchmark.run(encoder)
    items, images = rows(evaluation), {}
    expected = {}
    for key, (image, captions) in by_item(one_true).items():
        images[key] = embed(encoder, image=image)
        score = {text: embed(encoder, text) @ images[key] for text, _ in captions}
        expected[key] = decide(score, captions, ties)
        for place, (text, _) in enumerate(captions):
            assert items[key][f"text {place}"] == pytest.approx(score[text], abs=1e-5)
        assert items[key]["accuracy"] == expected[key]
    values = numbers(evaluation)
    assert values["accuracy",] == pytest.approx(np.mean(list(expected.values())))
    means = {}
    for name in ("replace_obj", "swap_obj", "swap_att"):
        of_category = [expected[key] for key, item in items.items() if item["category"] == name]
        means[name] = values["accuracy", ("category", name)]
        assert means[name] == pytest.approx(np.mean(of_category))
    swap = (means["swap_obj"] + means["swap_att"]) / 2
    assert values["accuracy_macro",] == pytest.approx(sum(means.values()) / 3)
    assert values["accuracy_macro", ("group", "swap")] == pytest.approx(swap)
    groups = {item["category"]: item["group"] for item in items.values()}
    assert groups == {"replace_obj": "replace", "swap_obj": "swap", "swap_att": "swap"}
    assert values["accuracy_macro_groups",] == pytest.approx((swap + means["replace_obj"]) / 2)
    rare = [expected[key] for key, item in items.items() if item["tag"] == "hard, rare"]
    assert values["accuracy", ("tag", "rare")] == pytest.approx(np.mean(rare))
    assert values["accuracy", ("tag", "hard")] == values["accuracy",]


def test_items_say_what_is_sampled_together(encoder, one_true):
    evaluation = asked(one_true).run(encoder)
    assert list(evaluation.items)[:3] == ["item", "cluster", "category"]
    assert len(set(evaluation.items["cluster"])) == len(evaluation.items["item"]) / 2
    fourth = rows(evaluation)["item-3_0"]
    assert not math.isnan(fourth["text 2"])
    assert math.isnan(rows(evaluation)["item-0_0"]["text 2"])


def test_the_terminal_is_told_what_a_reader_asks_first(encoder, two_true):
    benchmark = asked(two_true, groups=GROUPS, blind=Lengths())
    evaluation = benchmark.run(encoder)
    values = numbers(evaluation)
    first, second, third = benchmark.summarise(evaluation)
    # Three captions, two of them true: 1 of 3; with one false caption more: 1 of 6.
    chance = (11 / 3 + 3 / 6) / 14
    assert first == (
        f"accuracy {100 * values['accuracy',]:.1f} % of 14 items; chance is {100 * chance:.1f} %; "
        "0 ties count as ties=miss"
    )
    assert f"mean over 3 categories {100 * values['accuracy_macro',]:.1f} %" in second
    assert f"by a language model {100 * values['blind_language_sum',]:.1f} %" in second
    assert third.startswith("replace_obj ")
    assert values["ties",] == 0


def test_ties_are_counted(encoder, tmp_path):
    """The tokenizer lowers the case, so the two captions are one to the model."""
    first, second = world_pairs(2)
    text = first.members[0].text
    sets = [
        choice("tie", first.images["0"], [(text, "true"), (text.upper(), "false")]),
        choice("none", second.images["0"], [(text, "true"), (second.members[1].text, "false")]),
    ]
    index = open_sets(sets, tmp_path)
    for ties, worth in WORTH.items():
        evaluation = asked(index, ties=ties).run(encoder)
        assert rows(evaluation)["tie_0"]["accuracy"] == worth
        assert evaluation.items["ties"].tolist() == [1, 0]
        assert numbers(evaluation)["ties",] == 0.5


def test_captions_that_only_the_order_of_words_tells_apart_are_counted(encoder, tmp_path):
    (pair,) = world_pairs(1)
    true = "A cat sits on its legs, by the plant."
    wrong = {
        "order": ["a cat sits by the plant, on its legs"],
        "words": ["a cat sits on a plant"],
        "one-of-two": ["a cat sits on a plant", "the plant sits on its legs by A CAT"],
    }
    sets = [
        choice(key, pair.images["0"], [(true, "true"), *((text, "false") for text in texts)],
               category="replace" if key == "words" else "swap")
        for key, texts in wrong.items()
    ]  # fmt: skip
    benchmark = asked(open_sets(sets, tmp_path))
    evaluation = benchmark.run(encoder)
    by_order = {
        key.removesuffix("_0"): item["word_order"] for key, item in rows(evaluation).items()
    }
    assert by_order == {"order": True, "words": False, "one-of-two": True}
    assert benchmark.summarise(evaluation)[1].startswith("mean over 2")
    assert benchmark.summarise(evaluation)[2] == (
        "in 2 items only the order of the words tells a false caption from a true one: swap 100.0%"
    )


def test_blind_model_is_the_mean_over_the_other_photos(encoder, one_true):
    items = rows(asked(one_true).run(encoder))
    sets = by_item(one_true)
    photos = {key: embed(encoder, image=image) for key, (image, _) in sets.items()}
    for key, (_, captions) in sets.items():
        others = [photo for name, photo in photos.items() if name != key]
        score = {}
        for text, _ in captions:
            vector = embed(encoder, text)
            score[text] = float(np.mean([vector @ photo for photo in others]))
        assert items[key]["blind_model"] == decide(score, captions)


def test_one_photo_alone_says_nothing_blind(encoder, tmp_path):
    (pair,) = world_pairs(1)
    sets = [choice(f"k{n}", pair.images["0"], true_and_false(pair)) for n in range(3)]
    index = open_sets(sets, tmp_path)
    evaluation = asked(index).run(encoder)
    assert "blind_model" not in evaluation.items
    assert {outcome.metric for outcome in evaluation.outcomes} == {"accuracy", "ties"}


def test_no_caption_is_judged_twice(encoder, one_true, tmp_path, monkeypatch):
    """What a language model said is kept beside the embeddings, for other checkpoints and sets."""
    first = asked(one_true, blind="zoo:language/causal").use(one_true, features=tmp_path)
    evaluation = first.run(encoder)
    items, judge = rows(evaluation), BlindLanguage("zoo:language/causal")
    key, (_, captions) = next(iter(by_item(one_true).items()))
    texts = [text for text, _ in captions]
    sums, _ = judge.log_likelihoods(texts).T
    alone = [judge._model.log_likelihood([text])[0] for text in texts]
    np.testing.assert_allclose(sums, alone, rtol=1e-5)
    score = dict(zip(texts, sums, strict=True))
    assert items[key]["blind_language_sum"] == decide(score, captions)
    monkeypatch.setattr("cfaug.editing.causal_lm.CausalLM.perplexity", None)
    again = asked(one_true, blind="zoo:language/causal").use(one_true, features=tmp_path)
    assert again.run(encoder).outcomes == evaluation.outcomes


class Lengths:
    """A language model of one's own: short captions are likely, and so are short words."""

    def identity(self):
        return "lengths"

    def describe(self):
        return {}

    def generate(self, prompts, max_new_tokens):
        return ["" for _ in prompts]

    def log_likelihood(self, texts, contexts=None):
        return -np.array([float(len(text)) for text in texts])

    def perplexity(self, texts):
        return np.exp([len(text) / len(text.split()) for text in texts])


def test_any_language_model_may_judge(encoder, one_true):
    evaluation = asked(one_true, blind=Lengths()).run(encoder)
    assert ("blind_language_sum_macro",) in numbers(evaluation)
    items = rows(evaluation)
    for key, (_, captions) in by_item(one_true).items():
        for name, score in (
            ("sum", {text: -len(text) for text, _ in captions}),
            ("mean", {text: np.float32(-len(text) / len(text.split())) for text, _ in captions}),
        ):
            assert items[key][f"blind_language_{name}"] == decide(score, captions)
    with pytest.raises(UserError, match="name of a causal language model"):
        asked(one_true, blind=3)


class Impatient(Lengths):
    """It refuses texts that are long, as a model with few positions does."""

    def log_likelihood(self, texts, contexts=None):
        if any(len(text) > 200 for text in texts):
            raise UserError("too long")
        return super().log_likelihood(texts)


def test_captions_too_long_to_judge_are_left_out(encoder, tmp_path, capsys):
    pairs = world_pairs(5)
    sets = [
        choice(f"k{n}", pair.images["0"], [
            (pair.members[0].text, "true"),
            (pair.members[1].text + " and so on" * (30 if n == 2 else 1), "false"),
        ])
        for n, pair in enumerate(pairs)
    ]  # fmt: skip
    evaluation = asked(open_sets(sets, tmp_path), blind=Impatient()).run(encoder)
    assert "blind_language_sum leaves out 1 items" in capsys.readouterr().err
    assert np.isnan(evaluation.items["blind_language_mean"]).tolist() == [n == 2 for n in range(5)]
    assert {
        outcome.n for outcome in evaluation.outcomes if outcome.metric == "blind_language_sum"
    } == {4}
    assert not np.isnan(evaluation.items["accuracy"]).any()
    assert np.isnan(BlindLanguage(Impatient()).log_likelihoods(["long" * 99, "so" * 200])).all()


def test_several_true_captions(encoder, two_true):
    """SugarCrepe++'s two tests, and hard positives'."""
    evaluation = asked(two_true).run(encoder)
    items = rows(evaluation)
    for key, (image, captions) in by_item(two_true).items():
        vectors = {text: embed(encoder, text) for text, _ in captions}
        photo = embed(encoder, image=image)
        score = {text: vector @ photo for text, vector in vectors.items()}
        (original, _), (paraphrase, _), *others = captions
        best = max(score[text] for text, _ in others)
        assert items[key]["accuracy"] == (score[original] > best and score[paraphrase] > best)
        assert items[key]["original_accuracy"] == (score[original] > best)
        sides = {score[original] > best, score[paraphrase] > best}
        assert items[key]["brittleness"] == (len(sides) == 2)
        alike = vectors[original] @ vectors[paraphrase]
        mixed = [vectors[true] @ vectors[text] for true in (original, paraphrase)
                 for text, _ in others]  # fmt: skip
        assert items[key]["text_only"] == (alike > max(mixed))
    (better,) = {
        outcome.better
        for outcome in evaluation.outcomes
        if outcome.metric.startswith("brittleness")
    }
    assert better == "lower"


class Cosine(torch.nn.Module):
    """A matcher made of an encoder, which counts its pairs."""

    kind = "cosine"

    def __init__(self, encoder):
        super().__init__()
        self.inside, self.transform, self.pairs = encoder, encoder.transform, 0

    def tokenize(self, texts):
        return self.inside.tokenize(texts)

    def match(self, pixels, texts):
        self.pairs += len(texts)
        image_vectors, text_vectors = (
            self.inside.encode_image(pixels),
            self.inside.encode_text(self.tokenize(texts)),
        )
        return torch.nn.functional.cosine_similarity(image_vectors, text_vectors)


def test_a_matcher_is_asked_the_same(encoder, one_true):
    matcher = Cosine(encoder)
    evaluation, twin = asked(one_true).run(matcher), asked(one_true).run(encoder)
    assert evaluation.items["accuracy"].tolist() == twin.items["accuracy"].tolist()
    for place in range(3):
        np.testing.assert_allclose(evaluation.items[f"text {place}"], twin.items[f"text {place}"],
                                   atol=1e-5)  # fmt: skip
    assert "blind_model" not in evaluation.items
    assert matcher.pairs == sum(len(captions) for _, captions in by_item(one_true).values())


@pytest.mark.parametrize("wording", ["plain", "vqascore", "caption"])
def test_an_answerer_is_asked_the_same(one_true, wording):
    model = Drawn()
    items = rows(asked(one_true, question=wording).run(model))
    for key, (image, captions) in by_item(one_true).items():
        for shown, column in ((image, "accuracy"), (None, "blind_model")):
            score = {}
            for text, _ in captions:
                question, answer = {
                    "plain": (f"Does this picture show: {text}?", "Yes"),
                    "vqascore": (
                        f'Does this figure show "{text}"? Please answer yes or no.', "Yes"),
                    "caption": ("What does this picture show?", text),
                }[wording]  # fmt: skip
                [[said]] = model.answer([shown], [[Question(question, (answer,))]])
                score[text] = -said.scores[0].mean_nll
            assert items[key][column] == decide(score, captions)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('question: "{caption}? {options}"\nanswer: "Yes"', "should have {caption} once"),
        ('question: "{options}?"\nanswer: "Yes"\nother: "No"', "has two answers"),
        ('question: "{caption}?"\nanswer: "{caption}"\nother: "No"', "has two answers"),
        ('question: "{caption}{x}?"\nanswer: "a"\nother: "No"', "has two answers"),
        ('question: "{caption}?"\nanswer: "No"\nother: "No"', "are equal"),
        ('question: "{caption}?"\nanswer: "Yes"\nother: no', "in quotation marks"),
        ('question: "{caption}?"\nanswer: "Yes"\nmore: "No"', "and no other"),
        ('question: "{caption}?"', "should have the keys"),
        ("- a", "should have the keys"),
    ],
)
def test_questions_about_captions_are_checked(tmp_path, content, said):
    file = tmp_path / "own.yaml"
    file.write_text(content)
    with pytest.raises(UserError, match=said):
        read_caption_question(str(file))


def test_two_answers_need_not_be_shown(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text('question: "{caption}?"\nanswer: "It is"\nother: "It is not"')
    assert read_caption_question(str(file)).ask("{options}") == [
        ("{options}?", ("It is", "It is not"))
    ]
    assert len(read_caption_question("yes_no").ask("{options}")) == 2


def test_an_answer_that_does_not_fit_is_an_error(one_true):
    with pytest.raises(UserError, match=r"leaves out the question .*context"):
        asked(one_true).run(Drawn(longest=10))


def test_answers_of_all_kinds_are_kept(encoder, one_true, tmp_path):
    """A second evaluation asks no model, and finds the same."""
    for kind, model in (
        (CachedEncoder, encoder), (CachedMatcher, Cosine(encoder)), (CachedAnswerer, Drawn()),
    ):  # fmt: skip
        about = ("w", kind.__name__, tmp_path, 2**30)
        evaluation = asked(one_true).run(kind(lambda model=model: model, *about))
        again = asked(one_true).run(kind(lambda: pytest.fail("loaded again"), *about))
        assert again.outcomes == evaluation.outcomes


def test_without_a_cache_a_photo_is_embedded_once_a_set(encoder, tmp_path, monkeypatch):
    embedded = Counter()

    def note(name, size):
        encode = getattr(encoder, name)

        def noting(batch):
            embedded[name] += size(batch)
            return encode(batch)

        monkeypatch.setattr(encoder, name, noting)

    note("encode_image", len)
    note("encode_text", lambda tokens: len(next(iter(tokens.values()))))
    pairs = world_pairs(4)
    sets = [choice(f"k{n}", pairs[n % 2].images["0"], true_and_false(pairs[n])) for n in range(4)]
    asked(open_sets(sets, tmp_path)).run(encoder)
    assert embedded == {"encode_image": 2, "encode_text": 8}


def test_categories_that_do_not_count_are_not_shown(encoder, one_true):
    values = numbers(asked(one_true, at_least=5, drop=["swap_obj"]).run(encoder))
    assert {by[0] for _, *by in values if by} == {("category", "replace_obj")}
    assert values["accuracy_macro",] == values["accuracy", ("category", "replace_obj")]


def test_what_is_not_averaged_is_said(encoder, one_true, capsys):
    asked(one_true, groups={"add": ["add_obj"], "swap": ["swap_obj"]}, at_least=2)
    assert "the group add lacks add_obj" in (said := capsys.readouterr().err)
    assert "the group swap" not in said
    evaluation = asked(one_true, at_least=9).run(encoder)
    assert "of the 3, all are dropped or have fewer than 9 items" in capsys.readouterr().err
    assert not {
        outcome.metric for outcome in evaluation.outcomes if outcome.metric.endswith("_macro")
    }


def test_a_tag_that_is_called_like_a_metric_is_refused(tmp_path):
    (pair,) = world_pairs(1)
    sets = [choice("k", pair.images["0"], true_and_false(pair), accuracy="yes")]
    index = open_sets(sets, tmp_path)
    with pytest.raises(UserError, match="'accuracy' is a name that the benchmark uses"):
        asked(index, tags=["accuracy"])


def test_items_without_a_category_count_in_none(encoder, tmp_path, capsys):
    sets = [
        choice(pair.key, pair.images["0"], true_and_false(pair), category=name)
        for pair, name in zip(world_pairs(3), ("add", "", "add"), strict=True)
    ]
    evaluation = asked(open_sets(sets, tmp_path)).run(encoder)
    assert "1 of 3 items have no category" in capsys.readouterr().err
    assert {outcome.n for outcome in evaluation.outcomes if outcome.by} == {2}
    assert evaluation.items["category"] == ["add", None, "add"]
    assert {outcome.n for outcome in evaluation.outcomes if outcome.metric == "accuracy_macro"} == {
        2
    }


def test_an_item_whose_captions_are_equal_is_left_out(encoder, tmp_path, capsys):
    first, second = world_pairs(2)
    sets = [
        choice("same", first.images["0"], [("a dog", "true"), ("a cat", "false"),
                                         ("a dog", "false")]),
        choice("fine", second.images["0"], [("a dog", "true"), ("a cat", "false")]),
    ]  # fmt: skip
    evaluation = asked(open_sets(sets, tmp_path / "some")).run(encoder)
    assert evaluation.items["item"] == ["fine_0"]
    assert "1 of 2 items are left out" in (said := capsys.readouterr().err)
    assert "same_0" in said
    with pytest.raises(UserError, match="no item to ask about"):
        asked(open_sets(sets[:1], tmp_path / "none"))


@pytest.mark.parametrize(
    ("captions", "message"),
    [
        ([("a dog", "true"), ("a cat", "wrong")], "label 'wrong': it should be 'true' or 'false'"),
        ([("a dog", "true"), ("a cat", None)], "label None"),
        ([("a dog", "true"), ("a cat", "true")], "no caption with the label 'false'"),
        ([("a dog", "false"), ("a cat", "false")], "no caption with the label 'true'"),
    ],
)
def test_what_is_no_item_is_refused(tmp_path, captions, message):
    (pair,) = world_pairs(1)
    with pytest.raises(UserError, match=message):
        asked(open_sets([choice("k", pair.images["0"], captions)], tmp_path))


def test_a_pair_is_no_choice(opened):
    with pytest.raises(UserError, match="benchmark=pairs asks about two images"):
        asked(opened["ood_pairs"])


def test_what_is_not_there_is_named(one_true, tmp_path):
    with pytest.raises(UserError, match=r"groups\.swap=swap_obj should be a list"):
        CaptionChoice(groups={"swap": "swap_obj"})
    with pytest.raises(UserError, match=r"no column 'colour': choose from"):
        asked(one_true, tags=["colour"])
    with pytest.raises(UserError, match="choose plain, vqascore, caption"):
        asked(one_true, question="other")
    with pytest.raises(UserError, match=r"not in the zoo.*benchmark\.blind=null"):
        _ = asked(one_true, blind="zoo:language/none").data_hash
    for content, message in (
        ("question: Is it {caption}?", "keys question, answer"),
        ("{question: 'Is it {caption}?', answer: '{caption}'}", "once"),
        ("{question: 'Is it?', answer: 'Yes'}", "it has none"),
        ("{question: 'Is it {x}?', answer: '{caption}'}", "no other place"),
        ("{question: 3, answer: '{caption}'}", "should be a text"),
    ):
        file = tmp_path / "question.yaml"
        file.write_text(content)
        with pytest.raises(UserError, match=message):
            asked(one_true, question=str(file))


def test_the_first_of_unlabelled_captions_is_true_if_the_user_says_so(encoder, one_true, tmp_path):
    bare = [
        choice(item.key, item.images["0"], [(member.text, None) for member in item.members])
        for item in choices()
    ]
    opened = open_sets(bare, tmp_path)
    with pytest.raises(UserError, match=r"the label None.*benchmark\.truth=first says so"):
        asked(opened)
    labelled, first = asked(one_true).run(encoder), asked(opened, truth="first").run(encoder)
    assert numbers(first)["accuracy",] == numbers(labelled)["accuracy",]
    assert rows(first).keys() == rows(labelled).keys()
    with pytest.raises(UserError, match="is labelled 'true' and 'false': leave out"):
        asked(one_true, truth="first")


def test_settings_that_change_numbers_change_the_hash(one_true):
    usual = asked(one_true)
    changes = [
        {"ties": "hit"}, {"groups": GROUPS}, {"at_least": 2}, {"drop": ["swap_obj"]},
        {"tags": ["tag"]}, {"blind": "zoo:language/causal"}, {"question": "vqascore"},
    ]  # fmt: skip
    hashes = {usual.data_hash, *(asked(one_true, **change).data_hash for change in changes)}
    assert len(hashes) == len(changes) + 1
    assert asked(one_true, batch_size=3).data_hash == usual.data_hash
    assert isinstance(usual, Benchmark)


def test_rows_are_asked_in_whole_sets(encoder, one_true):
    some = np.flatnonzero(np.asarray(one_true.sets) < 4)
    whole = rows(asked(one_true).run(encoder))
    part = rows(asked(one_true).use(one_true, some[::-1]).run(encoder))
    assert list(part) == [f"item-{n}_0" for n in range(4)]
    for key, item in part.items():
        assert item["text 0"] == pytest.approx(whole[key]["text 0"], abs=1e-6)
