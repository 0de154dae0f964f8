"""What every baseline promises: draws by key and seed, checked settings, answers to odd texts."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.core.protocols import Editor
from cfaug.editing.baselines import (
    CheckListEdits,
    ClareEdits,
    EasyDataAugmentation,
    NegclipSwaps,
    RandomDeletion,
)
from cfaug.editing.baselines.editor import MOST_WORDS, NO_CANDIDATE, NO_WORDS, TOO_LONG
from cfaug.editing.paraphrase import Paraphrase
from cfaug.editing.sentence import TextBlobTagger
from tests.editing.baselines.test_clare import ContextFiller, ListTagger
from tests.editing.baselines.test_eda import FewSynonyms
from tests.records import example

TAGGER = TextBlobTagger()
EDITORS = {
    "deletion": RandomDeletion,
    "eda": lambda **settings: EasyDataAugmentation(synonyms=FewSynonyms(), **settings),
    "checklist": CheckListEdits,
    "clare": lambda **settings: ClareEdits(ContextFiller(), ListTagger(), **settings),
    "negclip": lambda **settings: NegclipSwaps(TAGGER, **settings),
    "paraphrase": lambda **settings: Paraphrase(TAGGER, **settings),
}
WITH_CONTROL = ("deletion", "eda", "checklist", "clare")
"""Editors that keep unchanged texts, with their reason."""


@pytest.mark.parametrize("name", EDITORS)
def test_the_draw_depends_on_key_and_seed_alone(name):
    text = "a red dog and three cats" if name == "checklist" else "a red dog on the grass"
    text = "the red horse is eating and the old zebra is drinking" if name == "negclip" else text
    examples = [example(text, f"k{i}") for i in range(20)]
    editor = EDITORS[name]()
    assert isinstance(editor, Editor)
    together = editor.edit(examples)
    assert together == [editor.edit([one])[0] for one in examples]
    assert together != EDITORS[name](seed=1).edit(examples)
    assert len({one.proposals[0].texts for one in together}) > 2


@pytest.mark.parametrize("name", WITH_CONTROL)
def test_texts_to_which_nothing_can_be_done_stay_with_their_reason(name):
    signs, empty, word = EDITORS[name]().edit([example("?!"), example(" "), example("the")])
    for one, reason in ((signs, NO_WORDS), (word, NO_CANDIDATE)):
        [proposal] = one.proposals
        assert proposal.texts[0] == proposal.texts[1]
        assert proposal.details[1] == {"changes": [], "reason": reason}
    assert empty.proposals == ()
    left_out = EDITORS[name](keep_unchanged=False).edit([example("the"), example("?!")])
    assert [one.proposals for one in left_out] == [(), ()]


@pytest.mark.parametrize("name", WITH_CONTROL[:3])
def test_a_text_far_longer_than_a_caption_stays_as_it_is(name):
    """Of 100,000 words no change is looked for, which would take hours."""
    longest, longer = ("a cow " * (n // 2) + "3 cats" for n in (MOST_WORDS - 2, 200_000))
    first, second = EDITORS[name]().edit([example(longest), example(longer)])
    assert first.proposals[0].details[1].get("reason") != TOO_LONG
    assert second.proposals[0].texts == (longer, longer)
    assert second.proposals[0].details[1] == {"changes": [], "reason": TOO_LONG}


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("deletion", {"share": 1.5}, r"share=1\.5 should be a number from 0 to 1"),
        ("deletion", {"keep_unchanged": "no"}, "keep_unchanged"),
        ("eda", {"share": -1}, "share=-1 should be a number from 0 to 1"),
        ("checklist", {"replacements": 0}, "replacements=0 should be a whole number of at least"),
        ("clare", {"chunk": 0}, "chunk=0 should be a whole number of at least 1"),
        ("clare", {"share": 2}, "share=2 should be a number from 0 to 1"),
        *(
            (name, settings, rf"recipe\.editor\.{next(iter(settings))}.*=.*{words} \w")
            for name in ("negclip", "paraphrase")
            for settings, words in (
                ({"kinds": ["pronoun"]}, "choose from"),
                ({"kinds": []}, "1 or more of these:"),
                ({"per": "word"}, "choose from"),
            )
        ),
    ],
)
def test_settings_are_checked(name, settings, words):
    with pytest.raises(UserError, match=words):
        EDITORS[name](**settings)
