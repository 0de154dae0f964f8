"""Words of captions: one exact and symmetric difference, and lists of names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.captions import (
    Change,
    altered_subjects,
    caption_changes,
    longest_change,
    replaced_run,
    word_spans,
)
from cfaug.models.visual_words import visual_words

WORDS = st.lists(
    st.sampled_from(
        ["a", "A", "cat", "dog", "runs", "the", "fire-hose", "it's", "2.5", ",", "(red)", "Ärzte"]
    ),
    max_size=9,
)
CAPTIONS = st.builds(lambda words, gap: gap.join(words), WORDS, st.sampled_from([" ", "  ", "\n"]))
TEXTS = CAPTIONS | st.text(max_size=25)


def words(text: str) -> list[str]:
    return [text[start:end].lower() for start, end in word_spans(text)]


def apply(before: str, after: str, changes: list[Change]) -> str:
    parts, end = [], 0
    for change in changes:
        parts += [before[end : change.before[0]], after[slice(*change.after)]]
        end = change.before[1]
    return " ".join([*parts, before[end:]])


def slow_runs(a: list[str], b: list[str]) -> list[tuple[list[str], list[str]]]:
    """Return the runs that differ around the longest, then earliest, run that is equal."""
    best = (0, 0, 0)
    for i in range(len(a)):
        for j in range(len(b)):
            size = 0
            while i + size < len(a) and j + size < len(b) and a[i + size] == b[j + size]:
                size += 1
            best = max(best, (size, -i, -j))
    size, i, j = best[0], -best[1], -best[2]
    if not size:
        return [(a, b)] if a or b else []
    return slow_runs(a[:i], b[:j]) + slow_runs(a[i + size :], b[j + size :])


def slow_changes(before: str, after: str) -> list[tuple[list[str], list[str]]]:
    a, b = words(before), words(after)
    while a and b and a[0] == b[0]:
        a, b = a[1:], b[1:]
    while a and b and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    return slow_runs(a, b) if a <= b else [(x, y) for y, x in slow_runs(b, a)]


@given(TEXTS, TEXTS)
def test_a_difference_applied_to_one_caption_gives_the_other(before, after):
    changes = caption_changes(before, after)
    assert words(apply(before, after, changes)) == words(after)
    spans = [place for change in changes for place in change.before]
    assert spans == sorted(spans)
    assert all(c.before[0] < c.before[1] or c.after[0] < c.after[1] for c in changes)


@given(TEXTS, TEXTS)
def test_exchanged_captions_exchange_the_sides(before, after):
    back = [Change(change.after, change.before) for change in caption_changes(after, before)]
    assert caption_changes(before, after) == back
    assert replaced_run(before, after) == replaced_run(after, before)[::-1]
    assert altered_subjects(before, after) == altered_subjects(after, before)[::-1]


@given(CAPTIONS, CAPTIONS)
def test_changes_are_those_of_a_slow_search(before, after):
    changes = [
        (words(before[slice(*change.before)]), words(after[slice(*change.after)]))
        for change in caption_changes(before, after)
    ]
    assert changes == slow_changes(before, after)


@given(WORDS, WORDS, WORDS, WORDS)
def test_the_run_is_what_lies_between_the_common_words(head, old, new, tail):
    before, after = (" ".join([*head, *middle, *tail]) for middle in (old, new))
    run = replaced_run(before, after)
    assert len(words(run[0])) <= len(words(" ".join(old)))
    assert len(words(run[1])) <= len(words(" ".join(new)))
    changes = caption_changes(before, after)
    if changes:
        whole = Change(*((getattr(changes[0], side)[0], getattr(changes[-1], side)[1])
                         for side in ("before", "after")))  # fmt: skip
        assert words(apply(before, after, [whole])) == words(after)
        assert words(before[slice(*whole.before)]) == words(run[0])
        assert words(after[slice(*whole.after)]) == words(run[1])
    assert (run == ("", "")) == (words(before) == words(after))


@pytest.mark.parametrize(
    ("before", "after", "changes", "run", "subjects"),
    [
        ("A cat.", "A dog.", [("cat", "dog")], ("cat", "dog"), ("cat", "dog")),
        ("a man in a room", "A woman in a room.", [("man", "woman"), ("", ".")],
         ("man in a room", "woman in a room."), ("man", "woman")),
        ("a cat on a mat", "a dog on a rug", [("cat", "dog"), ("mat", "rug")],
         ("cat on a mat", "dog on a rug"), ("cat mat", "dog rug")),
        ("a T-shirt", "a T-bone", [("T-shirt", "T-bone")], ("T-shirt", "T-bone"),
         ("t-shirt", "t-bone")),
        ("the man's hat", "the dog’s hat", [("man's", "dog’s")], ("man's", "dog’s"),
         ("man", "dog")),
        ("his hat", "the dog's hat", [("his", "the dog's")], ("his", "the dog's"),
         ("his", "the dog's")),
        ("2.5 cats", "2.7 cats", [("2.5", "2.7")], ("2.5", "2.7"), ("2.5", "2.7")),
        ("a fire  hydrant", "a hydrant", [("fire", "")], ("fire", ""), ("fire", "")),
        ("a cat a a", "a a a", [("cat", "")], ("cat", ""), ("cat", "")),
        ("A CAT", "a  cat", [], ("", ""), ("", "")),
    ],
)  # fmt: skip
def test_what_a_person_would_say_was_changed(before, after, changes, run, subjects):
    spans = caption_changes(before, after)
    assert [(before[slice(*c.before)], after[slice(*c.after)]) for c in spans] == changes
    assert replaced_run(before, after) == run
    assert altered_subjects(before, after) == subjects


@pytest.mark.parametrize(
    ("before", "after", "span"),
    [
        ("A man walking a dog.", "A woman walking a dog", ("man", "woman")),
        ("a photo of a man", "a watercolour painting of a man", ("photo", "watercolour painting")),
        ("a dog", "A dog, in the rain.", ("", "in the rain")),
        ("a big red dog", "a dog", ("big red", "")),
        ("a cat", "A  CAT.", ("", "")),
        ("an old man eats an apple", "a man eats a ripe green apple", ("old", "ripe green")),
        ("a cat", "an owl", ("cat", "owl")),
    ],
)
def test_the_span_of_an_edit_is_the_longest_run_that_went_and_that_came(before, after, span):
    assert longest_change(before, after) == span
    assert longest_change(after, before) == span[::-1]


@given(
    st.lists(st.sampled_from(["a", "an", "b", "c."])),
    st.lists(st.sampled_from(["a", "an", "b", "c."])),
)
def test_a_span_is_one_run_of_its_own_caption(old, new):
    before, after = " ".join(old), " ".join(new)
    went, came = longest_change(before, after)
    runs = caption_changes(before, after)
    for text, side, run in ((before, 0, went), (after, 1, came)):
        spans = [(change.before, change.after)[side] for change in runs]
        words = run.split()
        turned = " ".join([*words[1:], *words[:1]])
        texts = [text[slice(*span)].replace(".", " .") for span in [*spans, (0, 0)]]
        assert any(wording in there for wording in (run, turned) for there in texts)


def test_a_file_has_a_name_a_line_its_first_synonym_lower_case(tmp_path):
    file = tmp_path / "vocabulary.txt"
    file.write_text("# mine\nFire  Hydrant,hydrant\n\ndog\n,\ndog, puppy\n")
    assert visual_words("objects", str(file)) == ("fire hydrant", "dog")
    file.write_text("# nothing\n,\n")
    with pytest.raises(UserError, match="holds no names of objects"):
        visual_words("objects", str(file))
    with pytest.raises(UserError, match="cannot be read"):
        visual_words("attributes", str(tmp_path / "missing.txt"))


@pytest.mark.parametrize(("kind", "least"), [("objects", 150), ("attributes", 90)])
def test_the_shipped_lists_hold_plain_words(kind, least):
    shipped_words = visual_words(kind)
    assert len(shipped_words) > least
    assert all(word.replace(" ", "").replace("-", "").isalpha() for word in shipped_words)
