"""The caption stage's report: counts by stage, and random edits that mark what changed."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.types import Edit, Edited, Example, Proposal, Rejected
from cfaug.editing.filters import KeyedChoice, PartOfSpeech, caption_report
from cfaug.editing.substitution import Substitution
from cfaug.worlds.shapescapes.language import VocabularyFiller, VocabularyTagger
from tests.records import proposal

TEXTS = ["a red ball on the beach", "a photo", "is"]
TEXTS += [f"there is a blue cat {i}" for i in range(9)]


def edited():
    tagger = VocabularyTagger()
    editor = Substitution(
        tagger, VocabularyFiller(), KeyedChoice(), [PartOfSpeech(tagger)], kind="subject"
    )
    return editor.edit([Example(f"c{i}", "g", (text,)) for i, text in enumerate(TEXTS)])


def test_it_counts_captions_and_candidates_by_stage():
    report = caption_report([edited()])
    assert "10 of 12 captions have an edit (83.3%)" in report
    assert "| positions | 11 | 12 | 1 |" in report
    assert "| masks | 10 | 90 | 1 |" in report
    assert "| part_of_speech | 10 | 90 | 0 |" in report
    assert "| choice | 10 | 10 | 0 |" in report
    assert caption_report([]).startswith("# Caption edits")


def test_the_edits_shown_are_keyed_and_marked():
    report = caption_report([edited()], examples=4, seed=1)
    assert report == caption_report([edited()], examples=4, seed=1)
    assert report != caption_report([edited()], examples=4, seed=2)
    assert report.count("- `c") == 4
    everything = caption_report([edited()], examples=100)
    assert everything.count("\n- `c") == 10
    assert "a red **ball** on the beach" in everything


@given(st.lists(st.integers(0, 12), max_size=4))
def test_how_captions_are_divided_into_shards_does_not_show(cuts):
    results = edited()
    edges = [0, *sorted(cuts), len(results)]
    shards = [results[a:b] for a, b in itertools.pairwise(edges)]
    assert caption_report(shards, examples=4) == caption_report([results], examples=4)


def test_captions_are_no_markup():
    proposed = proposal(("a *b* <i>", "a *c* <i>"), (None, Edit("noun", "b", "c")))
    report = caption_report([[Edited((proposed,), {"masks": 1})]])
    assert "a \\*b\\* &lt;i&gt;" in report
    assert "<i>" not in report


def test_controls_are_no_edits_and_rejected_edits_are_counted():
    example = Example("k", "g", ("a cat",))
    control = Proposal(
        example, ("a cat", "a cat"), (None, Edit("reconstruction", "", "")), key="k-0"
    )
    some = tuple(
        Proposal(
            example, ("a cat", text), (None, Edit("subject", "cat", text[2:])), key=f"k-{text[2]}"
        )
        for text in ("a dog", "a cow")
    )
    lost = [Rejected("a cat", Edit(kind, "", ""), "no | change") for kind in ("domain", "subject")]
    report = caption_report([[Edited((control, *some), {}, (*lost, lost[1])), Edited((control,))]])
    assert "1 of 2 captions have an edit (50.0%)" in report
    assert "| choice | 1 | 2 | 0 |" in report
    assert "| reason | domain | subject |\n|---|---:|---:|\n| no \\| change | 1 | 2 |" in report
    assert report.count("\n- `k") == 2
    assert "Rejected" not in caption_report([edited()])


def test_an_insertion_marks_nothing_in_the_original():
    extra = {"edits": [{"span_0": [1, 1], "span_1": [2, 5]}]}
    proposed = proposal(("a cat", "a red cat"), (None, Edit("adjective", "", "red")), extra=extra)
    report = caption_report([[Edited((proposed,))]])
    assert "- `k` a cat\n  - a **red** cat" in report
