from __future__ import annotations

import json

import pytest

from cfaug.core.errors import UserError
from cfaug.report.records import LEAKS, leak_sentences


def test_the_worst_run_of_each_benchmark_is_named(tmp_path):
    folders = [tmp_path / "arm" / f"seed={n}" for n in range(3)]
    for folder, images in zip(folders, (3, 5, None), strict=True):
        folder.mkdir(parents=True)
        if images is not None:
            found = {"images": images, "total": 1000, "with_coco_id": 1000, "coco_ids": [1]}
            (folder / LEAKS).write_text(json.dumps({"coco5k_retrieval": found}))
    [said] = leak_sentences(folders)
    assert said.startswith("coco5k_retrieval: up to 5 of 1,000 test images")
    assert "(arm, seed=1)" in said
    assert leak_sentences(folders[2:]) == []
    (folders[2] / LEAKS).write_text('{"own": {"images": 9, "equal": 9, "total": 9}}')
    assert leak_sentences(folders[2:]) == ["own: all 9 test images were trained on (arm, seed=2)."]
    (folders[2] / LEAKS).write_text("[]")
    with pytest.raises(UserError, match=LEAKS):
        leak_sentences(folders)
