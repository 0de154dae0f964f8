"""Which sources are parts of the embedded world."""

from __future__ import annotations

import pytest

from cfaug.core.weights import is_questions, is_world, questions_part, world_part


@pytest.mark.parametrize("part", ["ood", "ood@photo", "real_test"])
def test_a_part_is_told_from_a_folder(part):
    assert is_world(f"shapescapes:{part}")
    assert world_part(f"shapescapes:{part}") == part


@pytest.mark.parametrize("folder", ["shapescapes", "/data/shapescapes:ood", "photos"])
def test_a_folder_is_no_part(folder):
    assert not is_world(folder)
    assert not is_questions(folder)


def test_questions_about_the_world_are_no_part_of_its_pictures():
    assert is_questions("shapescapes_vqa:test@fog")
    assert questions_part("shapescapes_vqa:test@fog") == "test@fog"
    assert not is_world("shapescapes_vqa:test")
    assert is_world("shapescapes_compositional:choice@photo")
    assert world_part("shapescapes_compositional:choice@photo") == "compositional_choice@photo"
    assert not is_questions("shapescapes:ve_test")
