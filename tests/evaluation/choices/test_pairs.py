"""Pairs with categories and kinds of images; what the benchmark gave before stays as it was."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cfaug.core.answers import Answered, Question
from cfaug.core.errors import UserError, say_once
from cfaug.core.pixels import decode_image
from cfaug.core.types import CounterfactualSet, Member, OptionScore
from cfaug.evaluation.benchmark import fingerprint
from cfaug.evaluation.choices.pairs import PairMatching
from cfaug.evaluation.inference import Pixels, embed_images, embed_texts
from cfaug.stats.choices import pair_hits, pair_similarities, winoground_hits
from tests.evaluation.caption_items import choices, open_sets, world_pairs
from tests.evaluation.drawn_questions import Drawn


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    """Pairs with a category, a list of tags, and kinds of images that change places."""
    sets = []
    for number, pair in enumerate(world_pairs()):
        kinds = ("real", "synthetic") if number % 3 else ("synthetic", "synthetic")
        members = [
            Member(
                member.text, member.image_name, member.source_id, extra={"image_kind": kinds[place]}
            )
            for place, member in enumerate(pair.members)
        ]
        first = {**members[0].extra, "category": "swap" if number % 2 else "add", "why": ["x"]}
        members[0] = Member(pair.members[0].text, "0", pair.members[0].source_id, extra=first)
        sets.append(CounterfactualSet(pair.key, pair.group, tuple(members), pair.images))
    return open_sets(sets, tmp_path_factory.mktemp("tagged"))


def earlier(index, encoder, size):
    """Similarities as the benchmark computed them when it had three scores."""
    rows = np.arange(len(index))
    texts = [index.text(int(row)) for row in rows]
    text_N2D = embed_texts(encoder, texts, size).reshape(len(texts) // 2, 2, -1)
    image_N2D = embed_images(encoder, Pixels(index, rows), size).reshape(text_N2D.shape)
    return pair_similarities(text_N2D, image_N2D)


@pytest.mark.parametrize("size", [5, 256])
def test_what_it_gave_before_is_the_same_to_the_last_bit(encoder, opened, size):
    index = opened["ood_pairs"]
    benchmark = PairMatching(name="p", batch_size=size).use(index)
    evaluation, sim = benchmark.run(encoder), earlier(index, encoder, size)
    assert benchmark.data_hash == fingerprint(index.hash)
    assert list(evaluation.items) == [
        "item", "cluster", "text_score", "image_score", "group_score", "text 0 image 0",
        "text 0 image 1", "text 1 image 0", "text 1 image 1",
    ]  # fmt: skip
    for i in (0, 1):
        for j in (0, 1):
            expected = sim[:, i, j].astype(np.float64)
            assert evaluation.items[f"text {i} image {j}"].tobytes() == expected.tobytes()
    assert [(outcome.metric, outcome.value, outcome.n) for outcome in evaluation.outcomes] == [
        (name, float(hits.mean()), len(hits)) for name, hits in winoground_hits(sim).items()
    ]
    details = PairMatching(name="p", batch_size=size, details=True).use(index)
    more = details.run(encoder)
    assert list(more.items)[: len(evaluation.items)] == list(evaluation.items)
    assert more.outcomes[:3] == evaluation.outcomes
    assert details.data_hash != benchmark.data_hash


def test_details_by_category_tag_and_kind_of_image(encoder, tagged):
    evaluation = PairMatching(name="p", details=True, tags=["why"]).use(tagged).run(encoder)
    hits = pair_hits(earlier(tagged, encoder, 256))
    values = {
        (outcome.metric, *outcome.by.items()): (outcome.value, outcome.n)
        for outcome in evaluation.outcomes
    }
    swap, real = np.arange(14) % 2 == 1, np.arange(14) % 3 > 0
    for metric, metric_hits in hits.items():
        assert values[metric,] == (pytest.approx(metric_hits.mean()), 14)
        assert values[metric, ("category", "swap")] == (pytest.approx(metric_hits[swap].mean()), 7)
        assert values[metric, ("why", "x")] == values[metric,]
        np.testing.assert_array_equal(evaluation.items[metric], metric_hits.astype(float))
    for metric in ("text_score_i0", "image_score_c0"):
        mean = pytest.approx(hits[metric][real].mean())
        assert values[metric, ("image 0", "real")] == (mean, int(real.sum()))
        mean = pytest.approx(hits[metric][~real].mean())
        assert values[metric, ("image 0", "synthetic")] == (mean, int((~real).sum()))
    assert values["text_score_i1", ("image 1", "synthetic")] == values["text_score_i1",]
    assert ("text_score_i1", ("image 1", "real")) not in values
    assert evaluation.items["image 0"][:2] == ["synthetic", "real"]
    assert evaluation.items["category"][:2] == ["add", "swap"]


def test_every_part_can_be_compared_over_items(encoder, tagged):
    """Each mean is that of the items whose columns have the values of the part."""
    evaluation = PairMatching(name="p", details=True, tags=["why"]).use(tagged).run(encoder)
    for outcome in evaluation.outcomes:
        masks = [np.array(evaluation.items[name]) == value for name, value in outcome.by.items()]
        chosen = np.all([np.ones(14, bool), *masks], axis=0)
        assert outcome.value == pytest.approx(evaluation.items[outcome.metric][chosen].mean())
        assert outcome.n == chosen.sum()


def test_an_answerer_is_asked_about_pairs(tagged):
    """Every caption about both images, each question once."""
    model = Drawn()
    evaluation = PairMatching(name="p").use(tagged).run(model)
    assert len(model.questions) == 4 * 14
    assert {question.text for question in model.questions} == {
        f"Does this picture show: {tagged.text(row)}?" for row in range(len(tagged))
    }
    assert (evaluation.items["text 0 image 0"] < 0).all()


def test_the_probability_of_yes_is_that_of_a_slow_count(tagged):
    """Four questions of a pair, each in both orders; the scores follow from P(yes) alone."""
    model = Drawn()
    evaluation = PairMatching(name="p", question="yes_no").use(tagged).run(model)
    assert len(model.questions) == 2 * 4 * 14
    hits = []
    for pair in range(14):
        yes = {}
        for i in (0, 1):
            for j in (0, 1):
                text = tagged.text(2 * pair + i)
                picture = decode_image(tagged.read_image(2 * pair + j), "it")
                of_order = []
                for order in ("Yes or No", "No or Yes"):
                    asked = Question(
                        f"Does this image show: {text}? Answer {order}.", ("Yes", "No")
                    )
                    [[reply]] = model.answer([picture], [[asked]])
                    likely = [math.exp(-score.nll) for score in reply.scores]
                    of_order.append(likely[0] / sum(likely))
                yes[i, j] = sum(of_order) / 2
                column = evaluation.items[f"text {i} image {j}"]
                assert column[pair] == pytest.approx(yes[i, j], abs=1e-6)
        text_right = yes[0, 0] > yes[1, 0] and yes[1, 1] > yes[0, 1]
        image_right = yes[0, 0] > yes[0, 1] and yes[1, 1] > yes[1, 0]
        hits.append((text_right, image_right, text_right and image_right))
    for at, metric in enumerate(("text_score", "image_score", "group_score")):
        assert evaluation.items[metric].tolist() == [float(hit[at]) for hit in hits]
        (outcome,) = [o for o in evaluation.outcomes if o.metric == metric]
        assert outcome.value == pytest.approx(sum(hit[at] for hit in hits) / 14)


def test_a_preference_for_yes_or_for_what_is_said_last_decides_nothing(tagged):
    class Stubborn(Drawn):
        """Says yes, or what stands last, whatever is shown."""

        def _one(self, picture, question, size):
            last = question.text.removesuffix(".").split()[-1]
            liked = {"Yes": 2.0, "No": 5.0}
            return Answered(tuple(
                OptionScore(liked[option] - 4 * (option == last) + 4, 1)
                for option in question.options
            ))  # fmt: skip

    evaluation = PairMatching(name="p", question="yes_no").use(tagged).run(Stubborn())
    assert len({*evaluation.items["text 0 image 0"], *evaluation.items["text 1 image 0"]}) == 1
    assert not evaluation.items["text_score"].any()


def test_captions_of_one_image_are_no_pairs(tmp_path):
    index = open_sets(choices(pairs=world_pairs(3)), tmp_path)
    with pytest.raises(UserError, match="benchmark=choice asks which is true"):
        PairMatching(name="p").use(index)


def test_tags_that_are_not_there_are_refused(opened):
    with pytest.raises(UserError, match="'why'"):
        PairMatching(name="p", tags=["why"]).use(opened["ood_pairs"])
    with pytest.raises(UserError, match="should be a list"):
        PairMatching(tags="why")


def larger_sets():
    """Sets of three and of two: an original with one or two members of other sets."""
    pairs = world_pairs()
    sets = []
    for number in range(0, len(pairs), 2):
        pair, more = pairs[number], pairs[number + 1].members[1]
        images = {**pair.images, "2": pairs[number + 1].images["1"]}
        third = () if number % 4 else (Member(more.text, "2", f"{pair.members[0].source_id}-more"),)
        sets.append(CounterfactualSet(pair.key, pair.group, (*pair.members, *third), images))
    return sets


def apart(sets):
    """The same as sets of two, the original repeated."""
    return [
        CounterfactualSet(
            f"{larger.key}-{place}", larger.group,
            tuple(
                Member(member.text, member.image_name, f"{member.source_id}-{place}")
                for member in (larger.members[0], larger.members[place])
            ),
            larger.images,
        )
        for larger in sets
        for place in range(1, len(larger.members))
    ]  # fmt: skip


def test_a_larger_set_is_its_original_with_each_of_the_others(encoder, tmp_path, capsys):
    say_once.cache_clear()
    sets = larger_sets()
    index = open_sets(sets, tmp_path / "larger")
    evaluation = PairMatching(name="p", details=True).use(index).run(encoder)
    assert "sets of up to 3 members; the first of a set is paired with each of the others" in (
        capsys.readouterr().err
    )
    pairs = open_sets(apart(sets), tmp_path / "apart")
    expected = PairMatching(name="p", details=True).use(pairs).run(encoder)
    assert len(evaluation.items["item"]) == 11 > len(sets) == 7
    assert evaluation.outcomes == expected.outcomes
    assert list(evaluation.items["cluster"]) == list(expected.items["cluster"])
    assert len(set(evaluation.items["item"])) == 11
    sim = evaluation.items["text 0 image 1"]
    np.testing.assert_allclose(sim, expected.items["text 0 image 1"], atol=1e-6)
    assert capsys.readouterr().err == ""  # sets of two need no word
