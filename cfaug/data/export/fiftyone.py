"""Export for FiftyOne: a folder that ``fo.Dataset.from_dir`` reads as ``fo.types.FiftyOneDataset``.

Written is that type's portable form: ``metadata.json`` without a version of FiftyOne's database,
``samples.json`` and ``data/``, which FiftyOne reads by its LegacyFiftyOneDatasetImporter (seen in
1.22.1), whatever version it is. With a version, the metadata would be a record of that database.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.outputs import check_output_folder, output_folder
from cfaug.core.types import CounterfactualSet
from cfaug.data.shards.codec import image_extension

FIFTYONE = "a data set of FiftyOne"
"""What the record of outputs calls the folder."""
SETTING = "export.fiftyone"


def export_fiftyone(
    sets: Iterable[CounterfactualSet], folder: Path, *, replace: bool = False
) -> int:
    """Write a sample for each member, with its set, its edit and the set's scores as fields.

    Sets are written as a stream, and an image that members share once. The fields are texts and
    numbers: ``set_key`` and ``member`` (from 0; ``dataset.group_by("set_key", order_by="member")``
    shows sets side by side), ``source_group``, ``source_id``, ``caption``, ``label``,
    ``edit_kind``, ``edit_before``, ``edit_after`` and ``score_NAME``; tags are ``original`` and
    ``edited``.

    Args:
        replace: whether an earlier export of this kind is replaced, if nobody changed it.

    Returns:
        The number of samples.

    Raises:
        UserError: if the folder holds anything else, or there is no set.
    """
    folder = folder.expanduser()
    check_output_folder(folder, FIFTYONE, SETTING, replace=replace)
    written = count = 0
    with output_folder(folder, FIFTYONE, SETTING, replace=replace) as fresh:
        (fresh / "data").mkdir()
        with (fresh / "samples.json").open("w", encoding="utf-8", newline="\n") as handle:
            handle.write('{"samples": [')
            for counterfactual in sets:
                count += 1
                for sample in _write_samples(counterfactual, fresh):
                    handle.write(",\n" if written else "\n")
                    handle.write(json.dumps(sample, ensure_ascii=False, allow_nan=False))
                    written += 1
            handle.write("\n]}\n")
        if not written:
            raise UserError(f"there is nothing to export to {folder}")
        about = {
            "name": folder.absolute().name,
            "media_type": "image",
            "info": {"written_by": "cfaug", "sets": count, "members": written},
        }
        text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
        (fresh / "metadata.json").write_text(text, encoding="utf-8")
    return written


def _write_samples(item: CounterfactualSet, folder: Path) -> Iterator[dict[str, Any]]:
    """Write the images of a set, and yield its members as samples, without empty fields."""
    # By names that fields may have; a score that is not finite has no value.
    scores: dict[str, float | None] = {}
    for name, score in item.scores.items():
        field = f"score_{re.sub(r'[^0-9A-Za-z]+', '_', name).strip('_')}"
        if field in scores:
            raise UserError(
                f"set {item.key!r}: two of its scores, {', '.join(item.scores)}, would be the "
                f"field {field} of FiftyOne, whose names are letters, digits and _"
            )
        scores[field] = float(score) if math.isfinite(score) else None
    files: dict[str, str] = {}
    for number, member in enumerate(item.members):
        if member.image_name not in files:
            name, data = f"{item.key}_{number}", item.images[member.image_name]
            files[member.image_name] = f"data/{name}.{image_extension(data, name)}"
            (folder / files[member.image_name]).write_bytes(data)
        edit = member.edit
        sample = {
            "filepath": files[member.image_name],
            "tags": ["original" if edit is None else "edited"],
            "set_key": item.key,
            "member": number,
            "source_group": item.group,
            "source_id": member.source_id,
            "caption": member.text,
            "label": member.label,
            "edit_kind": None if edit is None else edit.kind,
            "edit_before": None if edit is None else edit.before,
            "edit_after": None if edit is None else edit.after,
            **scores,
        }
        yield {name: value for name, value in sample.items() if value is not None}
