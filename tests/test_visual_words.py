"""Lists of names: what a file means, and that the shipped ones are clean."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.core.words import visual_words


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
    words = visual_words(kind)
    assert len(words) > least
    assert all(word.replace(" ", "").replace("-", "").isalpha() for word in words)
