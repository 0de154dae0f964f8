"""``--help`` of every script, and what it lists."""

from __future__ import annotations

import pytest

from cfaug.run.usage import name_both, options_in, usage
from tests.test_conf import COMMANDS, CONF


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_printed(name):
    assert "Choices (group=option" in usage(name, "", CONF)


def test_what_follows_from_other_choices_is_no_choice_but_is_shown():
    found = usage("generate", "", CONF)
    (recipes,) = (line for line in found.splitlines() if line.startswith("  recipe: "))
    assert {"coco_cf*", "lance"} <= set(recipes.removeprefix("  recipe: ").split(", "))
    assert "recipe/coco_cf" not in found
    assert "coco_cf/shapescapes (added to recipe):" in found
    assert {"coco_cf", "lance"} <= set(options_in(CONF, "generate")("recipe"))
    assert "coco_cf_3/base" in options_in(CONF, "train")("experiment")


def test_choices_of_ones_own_are_listed_beside_ours(tmp_path, script, capsys):
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark/mine.yaml").write_text("defaults: [retrieval]\nname: mine\n")
    for words in (["--help"], ["--config-dir", str(tmp_path), "--help"]):
        assert script("evaluate")(words) == 0
    listed = [one for one in capsys.readouterr().out.splitlines() if one.startswith("  benchmark:")]
    ours, both = (set(one.removeprefix("  benchmark: ").split(", ")) for one in listed)
    assert both - ours == {"mine"}
    assert ours < both


def test_a_choice_beside_help_shows_its_settings(script, capsys):
    assert script("evaluate")(["benchmark=skew", "--help"]) == 0
    said = capsys.readouterr().out
    assert "permutations: " in said
    assert "auto*" in said  # the default is still the default


def test_what_follows_from_other_choices_names_them():
    assert name_both(CONF, "generate", "recipe", "coco_cf/paper") == "recipe=coco_cf zoo=paper"
    assert name_both(CONF, "generate", "recipe", "coco_cf/none") is None
    assert name_both(CONF, "generate", "recipe", "coco_cf") is None
    assert name_both(CONF, "train", "experiment", "coco_cf_3/base") is None
