"""A reader of training captions knows likely captions from others, and nothing of plain ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cfaug.compositional.caption_scores import BlindLanguage
from cfaug.shapescapes.compositional_parts import PARTS, CaptionReader
from cfaug.shapescapes.settings import WorldSettings
from cfaug.shapescapes.world import World

SETTINGS = WorldSettings(seed=3, shortcut="colour", compositional_pairs=600)


@pytest.fixture(scope="module")
def reader():
    return CaptionReader(SETTINGS)


def accuracy(reader, part, category=None, count=200):
    world = World(SETTINGS)
    drawn = [PARTS[part].items.draw(world, index) for index in range(count)]
    texts = [text for each in drawn if category in (None, each.category) for text in each.captions]
    likely = reader.log_likelihood(texts).reshape(-1, 2)
    return float(np.mean(likely[:, 0] > likely[:, 1]))


def test_likely_captions_are_found_without_an_image_and_plain_ones_are_not(reader):
    assert accuracy(reader, "biased_choice") > 0.9
    assert accuracy(reader, "biased_choice", "swap_colour") > 0.9
    assert accuracy(reader, "claims", "add_place") > 0.9
    assert 0.38 <= accuracy(reader, "choice") <= 0.62  # 200 items: three and a half deviations


def test_likelihoods_are_of_the_words_counted_by_hand():
    small = CaptionReader(WorldSettings(seed=3, shortcut="colour", compositional_pairs=2), 1.0)
    world, part = World(small.world), PARTS["train"]
    captions = [part.items.draw(world, index).captions[0] for index in (0, 1)]
    first = f". {captions[0]} .".split()
    both = [f". {caption} .".split() for caption in captions]
    expected = 1.0
    for before, after in pairwise(first):
        follow = sum(
            words[i : i + 2] == [before, after] for words in both for i in range(len(words) - 1)
        )
        times = sum(words[:-1].count(before) for words in both)
        expected *= (follow + 1) / (times + 46 + 1)
    assert small.log_likelihood(captions[:1]) == pytest.approx([np.log(expected)])
    assert small.perplexity(captions[:1]) == pytest.approx([expected ** (-1 / (len(first) - 1))])


def test_an_unknown_word_is_unlikely_and_no_error(reader):
    likely, unlikely = reader.log_likelihood(["a red ball", "a mauve zebra"])
    assert np.isfinite(unlikely)
    assert unlikely < likely


def test_readers_of_other_captions_are_others():
    other = WorldSettings(seed=4, shortcut="colour", compositional_pairs=600)
    assert CaptionReader(SETTINGS).identity() != CaptionReader(other).identity()
    assert CaptionReader(SETTINGS).identity() != CaptionReader(SETTINGS, 1.0).identity()


def test_a_choice_takes_it_as_its_blind_judge(reader):
    both = np.asarray(BlindLanguage(reader).log_likelihoods(["a red ball", "a cube"]))
    sums = reader.log_likelihood(["a red ball", "a cube"])
    assert both == pytest.approx(np.stack([sums, sums / [4, 3]], axis=1), rel=1e-6)
