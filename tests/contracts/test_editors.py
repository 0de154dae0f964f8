"""What every editor of captions and of images promises, with the embedded world's models.

A result belongs to its example alone: it is the same whatever the batch holds, in whatever order,
and however often it is asked for. Otherwise a restart, another number of parts or of workers would
change captions, or images.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from cfaug.core.types import Draw, ImageJob
from cfaug.generate.annotation import AnnotationStage
from cfaug.run.generate import build_recipe, find_source
from tests.contributed import contributed
from tests.test_conf import RECIPES, GenerateSettings, _compose

FEW = 2
SPECIAL = {
    "fixed_edit": "one intervention for a whole class is typed",
    **contributed("recipes", "NOT_ASKED"),
}
"""{recipe: why its editor has no example here}."""
OF_GRIDS = contributed("recipes", "OF_GRIDS")
"""Recipes whose examples are a grid of captions, not a part of the world."""
WORDS = contributed("recipes", "WORDS")
"""{recipe: what lays files in a folder, and returns the words that name them}."""
SMALL = [
    "data.world.real_scenes=20", "data.world.counterfactual_pairs=12", "data.world.seed=5",
]  # fmt: skip


def write(edited) -> str:
    """Return everything that an editor says about an example, except its image."""
    said = {
        "survivors": dict(edited.survivors),
        "rejected": [str(rejection) for rejection in edited.rejected],
    }
    said["proposals"] = [
        [proposal.key, proposal.texts,
         [None if edit is None else asdict(edit) for edit in proposal.edits],
         {name: str(value) for name, value in proposal.extra.items()}]
        for proposal in edited.proposals
    ]  # fmt: skip
    return json.dumps(said, sort_keys=True, default=str)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Return a function that gives a recipe and its annotated examples."""
    shards = tmp_path_factory.mktemp("shards")

    def ask(recipe: str, *words: str):
        words = [f"recipe={recipe}", f"paths.shards={shards}", f"limit={FEW}", *words]
        words += [] if recipe in OF_GRIDS else SMALL
        words += WORDS[recipe](shards) if recipe in WORDS else []
        [(config, _)] = _compose("generate", *words)
        settings = GenerateSettings(**config)
        built = build_recipe(settings)
        stage = AnnotationStage(
            [annotator for annotator in built.annotators.values() if annotator is not None],
            texts_from=built.texts_from, replace_texts=built.replace_texts,
        )  # fmt: skip
        annotated = stage.annotate(list(find_source(settings, built)()))
        return built, [example for _, example in sorted(annotated.done.items())]

    return ask


def test_every_recipe_is_asked_or_says_why_not():
    assert {*SPECIAL, *OF_GRIDS, *WORDS} < set(RECIPES)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", sorted(set(RECIPES) - SPECIAL.keys()))
def test_a_result_belongs_to_its_example_alone(recipe, asked):
    built, examples = asked(recipe)
    editor = built.editor
    assert len(examples) > 1
    together = [write(edited) for edited in editor.edit(examples)]
    assert [write(edited) for edited in editor.edit(examples[::-1])][::-1] == together
    alone = [edited for example in examples for edited in editor.edit([example])]
    assert [write(edited) for edited in alone] == together
    again, same = asked(recipe)
    assert [write(edited) for edited in again.editor.edit(same)] == together
    assert editor.edit([]) == []
    assert any(edited.proposals for edited in alone)


IMAGE_EDITORS = {
    "substitution": ["recipe.image_editor.steps=2"],
    "photo_edits": ["recipe.image_editor.steps=2"],
    "photo_edits_oracle": [],
    **contributed("recipes", "IMAGE_EDITORS"),
}
"""{a recipe for each image editor that makes images without a server: words of a small one}."""


@pytest.mark.slow
@pytest.mark.parametrize("recipe", IMAGE_EDITORS)
def test_images_belong_to_their_example_alone(recipe, asked):
    built, examples = asked(recipe, *IMAGE_EDITORS[recipe])
    editor = built.image_editor
    groups = [  # an editor may share work among the jobs of an example
        [ImageJob(proposal, Draw(seed, 0.5, 7.5)) for proposal in edited.proposals[:2]]
        for seed, edited in enumerate(built.editor.edit(examples))
        if edited.proposals
    ][:2]
    assert len(groups) == 2
    jobs = groups[0] + groups[1]
    together, again = editor.edit(jobs), editor.edit(jobs)
    second, first = editor.edit(groups[1]), editor.edit(groups[0])
    for made, repeated, alone in zip(together, again, first + second, strict=True):
        assert made.images
        assert made.rejected == ""
        assert (made.shown, made.unsafe) == (alone.shown, alone.unsafe)
        for image, same, other in zip(made.images, repeated.images, alone.images, strict=True):
            if isinstance(image, bytes):
                assert image == same == other
            else:  # batches of another size round differently
                np.testing.assert_array_equal(image, same)
                np.testing.assert_allclose(image, other.astype(float), atol=2)
    assert editor.edit([]) == []
    assert all(isinstance(text, str) for pair in editor.describe().items() for text in pair)
