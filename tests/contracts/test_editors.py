"""What every editor promises, for each recipe with the embedded world's models.

A result belongs to its example alone: it is the same whatever the batch holds, in whatever order,
and however often it is asked for. Otherwise a restart, another number of parts or of workers would
change captions.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from cfaug.generate.annotation import AnnotationStage
from cfaug.run.generate import _source, build_recipe
from tests.test_conf import RECIPES, GenerateSettings, _compose

FEW = 6
SPECIAL = {
    "cfmm": "its questions come from a server",
    "lance_fixed": "one intervention for a whole class is typed",
}
"""{recipe: why its editor has no example here}."""
OF_GRIDS = ("social", "social_oracle")
"""Recipes whose examples are a grid of captions, not a part of the world."""
SMALL = [
    "data.world.real_scenes=20", "data.world.counterfactual_pairs=12", "data.world.seed=5",
]  # fmt: skip


def write(edited) -> str:
    """Return everything that an editor says about an example, except its image."""
    said = {"survivors": dict(edited.survivors), "rejected": [str(one) for one in edited.rejected]}
    said["proposals"] = [
        [one.key, one.texts, [None if edit is None else asdict(edit) for edit in one.edits],
         {name: str(value) for name, value in one.extra.items()}]
        for one in edited.proposals
    ]  # fmt: skip
    return json.dumps(said, sort_keys=True, default=str)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Return a function that gives a recipe's editor and its annotated examples."""
    shards = tmp_path_factory.mktemp("shards")

    def ask(recipe: str):
        words = [f"recipe={recipe}", f"paths.shards={shards}", f"limit={FEW}"]
        words += [] if recipe in OF_GRIDS else SMALL
        [(config, _)] = _compose("generate", *words)
        settings = GenerateSettings(**config)
        built = build_recipe(settings)
        stage = AnnotationStage(
            [one for one in built.annotators.values() if one is not None],
            texts_from=built.texts_from, replace_texts=built.replace_texts,
        )  # fmt: skip
        annotated = stage.annotate(list(_source(settings, built)()))
        return built.editor, [one for _, one in sorted(annotated.done.items())]

    return ask


def test_every_recipe_is_asked_or_says_why_not():
    assert SPECIAL.keys() < set(RECIPES)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", sorted(set(RECIPES) - SPECIAL.keys()))
def test_a_result_belongs_to_its_example_alone(recipe, asked):
    editor, examples = asked(recipe)
    assert len(examples) > 1
    together = [write(one) for one in editor.edit(examples)]
    assert [write(one) for one in editor.edit(examples)] == together
    assert [write(one) for one in editor.edit(examples[::-1])][::-1] == together
    assert [write(one) for example in examples for one in editor.edit([example])] == together
    again, same = asked(recipe)
    assert [write(one) for one in again.edit(same)] == together
    assert editor.edit([]) == []
    assert any(one.proposals for one in editor.edit(examples))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", sorted(set(RECIPES) - SPECIAL.keys()))
def test_an_editor_describes_itself_in_words(recipe, asked):
    editor, _ = asked(recipe)
    said = editor.describe()
    assert all(isinstance(name, str) and isinstance(text, str) for name, text in said.items())
    assert said == asked(recipe)[0].describe()
