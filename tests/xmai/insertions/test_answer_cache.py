"""Kept answers: a model is asked once, by one process or another, and a sweep costs little more."""

from __future__ import annotations

import json

import pytest

from cfaug.core.errors import UserError
from cfaug.xmai.insertions.mentions import AnswerCache
from tests.xmai.insertions.parts import captioned, changed, detection, photo


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
    assert model.cache.asked == 2
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
    found = [detection("dog", "brown"), detection("table", "wet"), detection("man", "old")]
    texts = ["a dog on a table", "The man with a dog", "a table", "dogs in the goal"]
    examples = [
        captioned(text, *found, key=f"k{i}", image=photo(i % 2)) for i, text in enumerate(texts)
    ]
    every = [{"weights": (1, 5, 5)}, {"weights": (0, 0, 1)}, {"k": 2}, {"threshold": 0.2}]
    asked = []
    for setting in every:
        alone = parts.editor(**setting)
        swept = parts.editor(**setting, cache=str(tmp_path))
        assert swept.edit(examples) == alone.edit(examples)
        asked.append((swept._guesser.cache.asked, swept._weigher.cache.asked))
        again = parts.editor(**setting, cache=str(tmp_path))
        assert again.edit(examples) == alone.edit(examples)
        assert (again._guesser.cache.asked, again._weigher.cache.asked) == (0, 0)
    assert asked[0][0] == parts_asked(parts, examples)
    assert sum(guesses for guesses, _ in asked) < 2.5 * asked[0][0]


def test_masks_that_are_looked_at_alone_share_all_answers_of_a_sweep(parts, tmp_path):
    """No choice depends on another, so the dearest setting asks all there is to ask."""
    found = [detection("dog", "brown"), detection("table", "wet"), detection("man", "old")]
    examples = [
        captioned("a dog on a table with a man", *found, key="a", image=photo(0)),
        captioned("The man and a dog", *found, key="b", image=photo(1)),
    ]
    first = parts.editor(k=4, cache=str(tmp_path), context="alone")
    first.edit(examples)
    assert first._guesser.cache.asked == 5
    chosen = set()
    for setting in [{"weights": w} for w in ((1, 5, 5), (1, 0, 5), (0, 0, -1))] + [{"k": 2}]:
        swept = parts.editor(**setting, cache=str(tmp_path), context="alone")
        chosen.add(changed(swept.edit(examples)[1]))
        assert (swept._guesser.cache.asked, swept._weigher.cache.asked) == (0, 0)
    assert len(chosen) > 1
    # One mention in the place of several is the same, whatever came before it.
    alone = parts.editor(context="alone").edit(examples[1:])
    usual = parts.editor().edit(examples[1:])
    first, *_ = (one[0].proposals[0].details[1]["changes"] for one in (alone, usual))
    assert first[0] == usual[0].proposals[0].details[1]["changes"][0]


def parts_asked(parts, examples):
    alone = parts.editor()
    alone.edit(examples)
    return alone._guesser.cache.asked


def test_what_changes_an_answer_has_answers_of_its_own(parts, tmp_path):
    example = captioned("a dog", detection("dog", "wet"))
    made = parts.editor(cache=str(tmp_path), block_list=None)
    first = changed(*made.edit([example]))
    for changes in ({"guesses": 3}, {"guesses": 4}):
        other = parts.editor(cache=str(tmp_path), block_list=None, **changes)
        other.edit([example])
        assert other._guesser.cache.asked == 1
    other = captioned("a dog", detection("dog", "wet"), image=photo(7))
    made = parts.editor(cache=str(tmp_path), block_list=None)
    made.edit([example, other])
    assert made._weigher.cache.asked == 3
    assert changed(*made.edit([example])) == first
