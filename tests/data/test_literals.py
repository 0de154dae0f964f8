"""Lists in cells: what Python and JSON print is read; the rest is refused, and nothing is run."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.sources.lists import is_list_of_texts, read_texts
from tests.properties import examples

# repr and json.dumps write what cannot be printed as escapes; half of a character is no text.
TEXTS = st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=8), max_size=5)


@settings(max_examples=examples(100), deadline=None)
@given(TEXTS)
def test_what_python_or_json_prints_of_a_list_of_texts_is_read_back(texts):
    for cell in (repr(texts), texts, f" {texts!r} "):
        assert is_list_of_texts(cell)
        assert read_texts(cell, "it") == texts
    plain = [text for text in texts if text.isascii() and "/" not in text]
    assert read_texts(json.dumps(plain), "it") == plain


@pytest.mark.parametrize(
    "cell",
    [
        "", "dog", "['dog'", "'dog'", "['dog', 3]", "['dog' 'cat']", "[['dog']]",
        "['dog', ['cat']]",
        "[dog]", "['dog', None]", "('dog',)", "{'dog'}", "['dog'] + ['cat']",
        "['dog', 'a'.upper()]",
        "[__import__('os').system('true')]", "[f'{1}']", "[b'dog']", "[u'dog']",
        "['\\x']", "['a\nb']", "[,]", "['a',,]", "[" * 100_000, "['" + "a" * 2**20 + "']",
        "['dog'" + " " * 500_000 + "x]", "['dog'," + " " * 500_000 + "x]",
        "[" + " " * 500_000 + "x]", "['dog" + "\\'" * 200_000 + "]", r"['half \ud800']",
        None, 3, ["dog", 3],
    ],
)  # fmt: skip
def test_anything_else_is_refused(cell):
    with pytest.raises(UserError) as caught:
        read_texts(cell, "line 2, objects")
    assert str(caught.value).startswith("line 2, objects")
    assert len(str(caught.value)) < 300
