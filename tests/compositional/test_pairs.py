"""Pairs with categories and kinds of images; what the benchmark gave before stays as it was."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.compositional.pairs import PairMatching
from cfaug.core.errors import UserError, say_once
from cfaug.core.types import CounterfactualSet, Member
from cfaug.evaluation.benchmark import fingerprint
from cfaug.evaluation.inference import Pixels, embed_images, embed_texts
from cfaug.stats.choices import pair_hits, pair_similarities, winoground_hits
from tests.evaluation.caption_items import choices, open_sets, world_pairs
from tests.evaluation.questions import Drawn


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    """Pairs with a category, a list of tags, and kinds of images that change places."""
    sets = []
    for number, one in enumerate(world_pairs()):
        kinds = ("real", "synthetic") if number % 3 else ("synthetic", "synthetic")
        members = [
            Member(own.text, own.image_name, own.source_id, extra={"image_kind": kinds[place]})
            for place, own in enumerate(one.members)
        ]
        first = {**members[0].extra, "category": "swap" if number % 2 else "add", "why": ["x"]}
        members[0] = Member(one.members[0].text, "0", one.members[0].source_id, extra=first)
        sets.append(CounterfactualSet(one.key, one.group, tuple(members), one.images))
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
    benchmark = PairMatching(name="p", batch_size=size).ask(index)
    found, sim = benchmark.run(encoder), earlier(index, encoder, size)
    assert benchmark.data_hash == fingerprint(index.hash)
    assert list(found.items) == [
        "item", "cluster", "text_score", "image_score", "group_score", "text 0 image 0",
        "text 0 image 1", "text 1 image 0", "text 1 image 1",
    ]  # fmt: skip
    for i in (0, 1):
        for j in (0, 1):
            expected = sim[:, i, j].astype(np.float64)
            assert found.items[f"text {i} image {j}"].tobytes() == expected.tobytes()
    assert [(one.metric, one.value, one.n) for one in found.outcomes] == [
        (name, float(hits.mean()), len(hits)) for name, hits in winoground_hits(sim).items()
    ]
    details = PairMatching(name="p", batch_size=size, details=True).ask(index)
    more = details.run(encoder)
    assert list(more.items)[: len(found.items)] == list(found.items)
    assert more.outcomes[:3] == found.outcomes
    assert details.data_hash != benchmark.data_hash


def test_details_by_category_tag_and_kind_of_image(encoder, tagged):
    found = PairMatching(name="p", details=True, tags=["why"]).ask(tagged).run(encoder)
    hits = pair_hits(earlier(tagged, encoder, 256))
    values = {(one.metric, *one.by.items()): (one.value, one.n) for one in found.outcomes}
    swap, real = np.arange(14) % 2 == 1, np.arange(14) % 3 > 0
    for metric, own in hits.items():
        assert values[metric,] == (pytest.approx(own.mean()), 14)
        assert values[metric, ("category", "swap")] == (pytest.approx(own[swap].mean()), 7)
        assert values[metric, ("why", "x")] == values[metric,]
        np.testing.assert_array_equal(found.items[metric], own.astype(float))
    for metric in ("text_score_i0", "image_score_c0"):
        mean = pytest.approx(hits[metric][real].mean())
        assert values[metric, ("image 0", "real")] == (mean, int(real.sum()))
        mean = pytest.approx(hits[metric][~real].mean())
        assert values[metric, ("image 0", "synthetic")] == (mean, int((~real).sum()))
    assert values["text_score_i1", ("image 1", "synthetic")] == values["text_score_i1",]
    assert ("text_score_i1", ("image 1", "real")) not in values
    assert found.items["image 0"][:2] == ["synthetic", "real"]
    assert found.items["category"][:2] == ["add", "swap"]


def test_every_part_can_be_compared_over_items(encoder, tagged):
    """Each mean is that of the items whose columns have the values of the part."""
    found = PairMatching(name="p", details=True, tags=["why"]).ask(tagged).run(encoder)
    for one in found.outcomes:
        own = [np.array(found.items[name]) == value for name, value in one.by.items()]
        chosen = np.all([np.ones(14, bool), *own], axis=0)
        assert one.value == pytest.approx(found.items[one.metric][chosen].mean())
        assert one.n == chosen.sum()


def test_an_answerer_is_asked_about_pairs(tagged):
    """Every caption about both images, each question once."""
    model = Drawn()
    found = PairMatching(name="p").ask(tagged).run(model)
    assert len(model.questions) == 4 * 14
    assert {one.text for one in model.questions} == {
        f"Does this picture show: {tagged.text(row)}?" for row in range(len(tagged))
    }
    assert (found.items["text 0 image 0"] < 0).all()


def test_captions_of_one_image_are_no_pairs(tmp_path):
    index = open_sets(choices(pairs=world_pairs(3)), tmp_path)
    with pytest.raises(UserError, match="benchmark=choice asks which is true"):
        PairMatching(name="p").ask(index)


def test_tags_that_are_not_there_are_refused(opened):
    with pytest.raises(UserError, match="'why'"):
        PairMatching(name="p", tags=["why"]).ask(opened["ood_pairs"])
    with pytest.raises(UserError, match="should be a list"):
        PairMatching(tags="why")


def larger_sets():
    """Sets of three and of two: an original with one or two members of other sets."""
    pairs = world_pairs()
    found = []
    for number in range(0, len(pairs), 2):
        one, more = pairs[number], pairs[number + 1].members[1]
        images = {**one.images, "2": pairs[number + 1].images["1"]}
        third = () if number % 4 else (Member(more.text, "2", f"{one.members[0].source_id}-more"),)
        found.append(CounterfactualSet(one.key, one.group, (*one.members, *third), images))
    return found


def apart(sets):
    """The same as sets of two, the original repeated."""
    return [
        CounterfactualSet(
            f"{one.key}-{place}", one.group,
            tuple(
                Member(own.text, own.image_name, f"{own.source_id}-{place}")
                for own in (one.members[0], one.members[place])
            ),
            one.images,
        )
        for one in sets
        for place in range(1, len(one.members))
    ]  # fmt: skip


def test_a_larger_set_is_its_original_with_each_of_the_others(encoder, tmp_path, capsys):
    say_once.cache_clear()
    sets = larger_sets()
    index = open_sets(sets, tmp_path / "larger")
    found = PairMatching(name="p", details=True).ask(index).run(encoder)
    assert "sets of up to 3 members; the first of a set is paired with each of the others" in (
        capsys.readouterr().err
    )
    pairs = open_sets(apart(sets), tmp_path / "apart")
    expected = PairMatching(name="p", details=True).ask(pairs).run(encoder)
    assert len(found.items["item"]) == 11 > len(sets) == 7
    assert found.outcomes == expected.outcomes
    assert list(found.items["cluster"]) == list(expected.items["cluster"])
    assert len(set(found.items["item"])) == 11
    sim = found.items["text 0 image 1"]
    np.testing.assert_allclose(sim, expected.items["text 0 image 1"], atol=1e-6)
    assert capsys.readouterr().err == ""  # sets of two need no word
