"""What the record of a folder says of a world."""

from __future__ import annotations

from cfaug.run.generate import UNRECORDED, GenerateSettings, describe_settings
from tests.test_conf import CONF, compose_jobs


def test_a_folder_of_the_oracle_is_that_of_before_there_were_skewed_worlds():
    def recorded(*words):
        [(config, _)] = compose_jobs(
            CONF, "generate", ["recipe=lance_oracle", *words], multirun=False,
            command=GenerateSettings,
        )  # fmt: skip
        settings = describe_settings(GenerateSettings(**config)).image_settings
        return {key for key in settings if key.startswith("recipe.image_editor.world.")}

    world = "recipe.image_editor.world."
    before = recorded()
    assert {f"{world}shortcut", f"{world}domains", f"{world}seed"} <= before
    assert not {f"{world}{name}" for name in UNRECORDED} & before
    changed = recorded("data.world.skew=0.5", "data.world.colours=[red,blue]")
    assert changed - before == {f"{world}skew", f"{world}colours"}
