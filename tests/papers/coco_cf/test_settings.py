"""The arms of the paper's experiments, and its numbers."""

from __future__ import annotations

from cfaug.settings.choices import names_itself, options_in, read_arms
from tests.files_of_settings import settings_file


def test_an_arm_has_the_shared_settings_and_its_own():
    arms = read_arms(settings_file("experiment/coco_cf_3"))
    assert arms["all"]["arm"] == "all"
    assert arms["all"]["name"] == "coco_cf_3"
    assert arms["all"]["defaults"] == [
        {"override /scale": "shapescapes"}, {"override /data/mixture": "coco_cf"},
    ]  # fmt: skip
    assert arms["human_validated"]["name"] == "coco_cf_11"
    assert names_itself(settings_file("experiment/coco_cf_3"))
    assert "coco_cf_3/base" in options_in("train")("experiment")
