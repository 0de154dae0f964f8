"""CheckList's edits: what each rule finds, and how numbers are drawn."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.editing.baselines import CheckListEdits
from cfaug.editing.baselines.checklist import read_number, spell_number
from cfaug.editing.word_lists import WordLists
from tests.editing.tiny import real_captions
from tests.records import example


def changed(text: str, draws: int = 60, **settings) -> dict[str, set[str]]:
    """Return all texts that an edit gives in many draws, by operation."""
    by_operation: dict[str, set[str]] = {}
    examples = [example(text, f"k{i}") for i in range(draws)]
    for result in CheckListEdits(**settings).edit(examples):
        (proposal,) = result.proposals
        for change in proposal.details[1]["changes"]:
            by_operation.setdefault(change["operation"], set()).add(proposal.texts[1])
    return by_operation


@pytest.mark.parametrize(
    ("text", "operation", "wanted"),
    [
        ("a dog that is red", "contraction", {"a dog that's red"}),
        ("That is a dog", None, set()),
        ("it's a dog", "extension", {"it is a dog"}),
        ("a dog and its owner", None, set()),
        ("one dog", "number", {"two dog"}),
        ("three dogs.", "number", {f"{n} dogs." for n in ("one", "two", "four", "five", "six")}),
        ("Three dogs", "number",
         {f"{n} dogs" for n in ("one", "two", "three", "four", "five", "six")}),
        ("two dogs and 4 cats", None, set()),
        ("3 dogs", "number", {f"{n} dogs" for n in (1, 2, 4, 5, 6)}),
        ("someone on the sand", None, set()),
        ("a one standing", "number", {"a one", "a two"}),
        ("a bus in London", "location", None),
        ("a bus in italy", "location", None),
        ("London Bridge in a park", None, set()),
        ("fine china on a shelf", None, set()),
        ("Elvis sings", "name", None),
        ("a photo of Elvis Schmidt", "name", None),
    ],
)  # fmt: skip
def test_what_each_rule_makes_of_a_caption(
    text: str, operation: str | None, wanted: set[str] | None
) -> None:
    by_operation = changed(text)
    assert set(by_operation) == ({operation} if operation else set())
    if operation and wanted is not None:
        assert by_operation[operation] == wanted


def test_places_give_way_to_places_of_their_list_and_names_to_names() -> None:
    lists = WordLists()
    cities, countries = ({*lists.lines(name)} for name in ("cities", "countries"))
    new = {text.removeprefix("a bus in ") for text in changed("a bus in London")["location"]}
    assert len(new) > 10
    assert new <= cities - {"London"}
    assert {t.removeprefix("in ") for t in changed("in italy")["location"]} <= countries
    texts = changed("a photo of Elvis Presley", 200)["name"]
    firsts = {t.split()[3] for t in texts} - {"Elvis"}
    lasts = {t.split()[4] for t in texts} - {"Presley"}
    assert firsts and firsts <= {*lists.lines("first_names")}  # noqa: PT018
    assert lasts and lasts <= {*lists.lines("last_names")}  # noqa: PT018


def test_each_new_number_is_as_likely() -> None:
    """Of five (one to ten, three drawn, five itself left out), nine numbers remain."""
    examples = [example("five dogs", f"k{i}") for i in range(1800)]
    counts = Counter(result.proposals[0].texts[1] for result in CheckListEdits().edit(examples))
    unchanged = counts.pop("five dogs", 0)
    assert unchanged < 15  # only where five was drawn three times
    assert len(counts) == 9
    # About 200 each: five standard deviations are 67.
    assert all(abs(count - 200) < 67 for count in counts.values())


def test_long_captions_have_two_words_changed_and_endless_digits_stay() -> None:
    """Python refuses to read strings of more than 4,300 digits."""
    text = "it's a dog that is red " + "very " * 15 + "big"
    (edited,) = CheckListEdits(share=0.15).edit([example(text)])
    operations = [change["operation"] for change in edited.proposals[0].details[1]["changes"]]
    assert sorted(operations) == ["contraction", "extension"]
    text = f"{'7' * 5000} dogs, {'7' * 101} cats, 3 birds"
    assert set(changed(text)) == {"number"}
    assert all(variant.startswith(text[:5100]) for variant in changed(text)["number"])


@given(st.text(alphabet="019 aeinotw'-.²٣", max_size=40))
def test_no_text_breaks_it_and_the_rest_of_the_text_stays(text: str) -> None:
    for result in CheckListEdits().edit([example(text)]):
        for proposal in result.proposals:
            texts = {proposal.texts[0]}
            for change in proposal.details[1].get("changes", ()):
                texts = {
                    f"{old[:start]}{change['after']}{old[start + len(change['before']) :]}"
                    for old in texts
                    for start in range(len(old) + 1)
                    if old.startswith(change["before"], start)
                }
            assert proposal.texts[1] in texts


@given(st.integers(0, 10**12 - 1))
def test_a_number_is_read_as_it_is_spelt(number: int) -> None:
    assert read_number(spell_number(number).replace(",", "").split()) == number


def test_real_captions_are_changed_as_rarely_as_published() -> None:
    """1,879 of 25,010 of the released MS-COCO captions are changed: 7.5 %."""
    examples = [example(text, f"k{i}") for i, text in enumerate(real_captions())]
    edited = CheckListEdits().edit(examples)
    # Binomial(200, 0.075): two standard deviations are 7.5.
    assert sum(result.survivors["changed"] for result in edited) == pytest.approx(15, abs=7.5)
    few = CheckListEdits(keep_unchanged=False).edit(examples)
    assert sum(bool(result.proposals) for result in few) == sum(
        result.survivors["changed"] for result in edited
    )
