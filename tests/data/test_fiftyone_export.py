"""The data set for FiftyOne, read as FiftyOne 1.22's importer does, which needs a database."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.export import export_fiftyone
from tests.data.making import noise_image, pair


def from_dir(dataset_dir: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The lines of fiftyone.utils.data.importers (Apache-2.0) that read such a folder.

    FiftyOneDatasetImporter takes metadata without a version for the legacy form.
    """
    with open(os.path.join(dataset_dir, "metadata.json")) as file:
        metadata = json.load(file)
    assert "version" not in metadata  # _is_legacy_format_data
    assert metadata.get("media_type", None) not in ("video", "group")
    assert "sample_fields" not in metadata  # so that the schema is inferred from the samples
    assert not os.path.isdir(os.path.join(dataset_dir, "fields"))
    with open(os.path.join(dataset_dir, "samples.json")) as file:
        samples = json.load(file).get("samples", [])
    for sd in samples:
        if not os.path.isabs(sd["filepath"]):
            sd["filepath"] = os.path.normpath(os.path.join(dataset_dir, sd["filepath"]))
    return metadata.get("info", {}), samples


def schema(samples: list[dict[str, Any]]) -> dict[str, type]:
    """The type of each field; FiftyOne refuses a value of another type than the first."""
    kinds: dict[str, type] = {}
    for sample in samples:
        for name, value in sample.items():
            assert not name.startswith("_")
            assert name.isidentifier()
            assert kinds.setdefault(name, type(value)) is type(value), name
    return kinds


def grid() -> CounterfactualSet:
    """Three members, two of which share an image."""
    edit = Edit("noun", "cat", "dog")
    members = (
        Member("a cat — «ü»", "0", "photo-1"),
        Member("a dog", "1", "photo-1", edit, "dog"),
        Member("a hound", "1", "photo-1", Edit("synonym", "dog", "hound"), "dog"),
    )
    images = {"0": noise_image(50), "1": noise_image(51, kind="JPEG")}
    return CounterfactualSet("grid-1", "1", members, images,
                             {"clip score/0": 1, "odd": float("nan")})  # fmt: skip


def test_every_member_is_a_sample_as_its_importer_reads_it(tmp_path):
    sets = [pair(0), grid()]
    assert export_fiftyone(iter(sets), tmp_path / "look") == 5
    info, samples = from_dir(str(tmp_path / "look"))
    assert info == {"written_by": "cfaug", "sets": 2, "members": 5}
    every = [(item, number) for item in sets for number in range(len(item.members))]
    assert len(samples) == len(every)
    for sample, (item, number) in zip(samples, every, strict=True):
        member = item.members[number]
        assert Path(sample["filepath"]).read_bytes() == item.images[member.image_name]
        assert (sample["set_key"], sample["member"]) == (item.key, number)
        assert (sample["caption"], sample["source_group"]) == (member.text, item.group)
        assert sample.get("label") == member.label
        edit = member.edit
        assert sample["tags"] == ["original" if edit is None else "edited"]
        if edit is not None:
            assert (sample["edit_kind"], sample["edit_after"]) == (edit.kind, edit.after)
    assert samples[3]["filepath"] == samples[4]["filepath"]
    kinds = schema(samples)
    assert kinds["member"] is int
    assert {name: kind for name, kind in kinds.items() if "score" in name} == {
        f"score_{name}": float for name in (*pair(0).scores, "clip_score_0")
    }
    assert not np.array_equal(*(
        np.asarray(decode_image(Path(sample["filepath"]).read_bytes(), "it"))
        for sample in samples[2:4]
    ))  # fmt: skip


def test_the_same_sets_give_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        export_fiftyone([pair(0), grid()], tmp_path / name / "look")
    first, second = (
        {str(file.relative_to(tmp_path / name)): file.read_bytes()
         for file in sorted((tmp_path / name / "look").rglob("*")) if file.is_file()}
        for name in ("one", "two")
    )  # fmt: skip
    assert first == second
    assert {"look/metadata.json", "look/samples.json", "look/data/grid-1_1.jpg"} <= set(first)


def test_nothing_of_others_is_replaced_and_nothing_is_left_half(tmp_path):
    folder = tmp_path / "look"
    with pytest.raises(UserError, match="nothing to export"):
        export_fiftyone([], folder)

    def broken():
        yield pair(0)
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        export_fiftyone(broken(), folder)
    assert not folder.exists()
    export_fiftyone([pair(0)], folder)
    with pytest.raises(UserError, match=r"export\.fiftyone=.*look"):
        export_fiftyone([pair(1)], folder)
    export_fiftyone([pair(1)], folder, replace=True)
    (folder / "data" / "mine.png").write_bytes(b"mine")
    with pytest.raises(UserError, match=r"mine\.png"):
        export_fiftyone([pair(0)], folder, replace=True)


def test_scores_that_would_be_one_field_are_refused(tmp_path):
    item = CounterfactualSet(
        "a", "a", (Member("a cat", "0", "x"),), {"0": noise_image(0)}, {"a b": 1.0, "a/b": 2.0}
    )
    with pytest.raises(UserError, match="would be the field score_a_b of FiftyOne"):
        export_fiftyone([item], tmp_path / "look")
