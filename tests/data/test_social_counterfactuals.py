"""SocialCounterfactuals as the Hub holds it: a row per image.

Sets are named by dataset_segment and counterfactual_set.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cfaug.data.index import open_index
from cfaug.data.sources import parquet, released
from cfaug.data.sources.importing import import_sets
from cfaug.types import Edit
from tests.data.released import (
    GENDERS,
    RACES,
    image,
    jpeg,
    refused,
)


def social_rows(subject: str, name: str, first: int) -> list[dict[str, object]]:
    return [
        {"image": image(jpeg(first + i), None), "dataset_segment": "race_gender",
         "a1_type": "race", "a2_type": "gender", "counterfactual_set": name,
         "caption": f"A photo of {'an' if a1[0] in 'AI' else 'a'} {a1} {a2} {subject}",
         "a1": a1, "a2": a2, "a1a2": f"{a1} {a2}"}
        for i, (a1, a2) in enumerate((a1, a2) for a1 in RACES for a2 in GENDERS)
    ]  # fmt: skip


def social(folder: Path, rows: list[dict[str, object]], files: int = 2) -> Path:
    folder.mkdir(parents=True)
    each = -(-len(rows) // files)
    for number in range(files):
        table = pa.Table.from_pylist(rows[number * each : (number + 1) * each])
        pq.write_table(
            table, folder / f"train-{number:05d}-of-{files:05d}.parquet", row_group_size=5
        )
    return folder


def test_social_counterfactuals(tmp_path: Path) -> None:
    """Three sets of 12, the second cut by the end of a file."""
    names = [("barber", "17"), ("software engineer", "18"), ("barber", "19")]
    rows = [r for n, (s, name) in enumerate(names) for r in social_rows(s, name, 100 * n)]
    found = list(import_sets(social(tmp_path / "social", rows)))
    assert [len(one.members) for one in found] == [12, 12, 12]
    assert [one.group for one in found] == ["barber", "software engineer", "barber"]
    assert len({one.key for one in found}) == 3
    middle = found[1]
    assert middle.members[0].text == "A photo of a White male software engineer"
    assert middle.members[0].edit is None
    assert middle.members[1].edit == Edit("gender", "male", "female")
    assert middle.members[8].edit == Edit("race", "White", "Middle Eastern")
    assert middle.members[11].edit == Edit("race+gender", "White male", "Latino female")
    assert dict(middle.members[11].extra) == {
        "dataset_segment": "race_gender", "counterfactual_set": "18", "a1_type": "race",
        "a2_type": "gender", "a1": "Latino", "a2": "female",
    }  # fmt: skip
    assert [middle.images[m.image_name] for m in middle.members] == [
        jpeg(100 + i) for i in range(12)
    ]
    index = open_index(tmp_path / "social", tmp_path / "cache")
    assert (index.kind, len(index)) == ("social_counterfactuals", 36)


def test_social_rows_that_lie_apart(tmp_path: Path, monkeypatch) -> None:
    sets = (social_rows("barber", "1", 0), social_rows("chef", "2", 50))
    rows = [row for pair in zip(*sets, strict=True) for row in pair]
    folder = social(tmp_path / "social", rows, files=3)
    assert [one.group for one in import_sets(folder)] == ["barber", "chef"]
    monkeypatch.setattr(parquet, "PENDING_BYTES", 5 * len(jpeg(0)))
    refused(folder, "sort", "counterfactual_set")


def test_a_social_image_that_is_broken(tmp_path: Path) -> None:
    rows = social_rows("barber", "17", 0)
    rows[7]["image"] = image(jpeg(7)[:-30])
    folder = social(tmp_path / "social", rows)
    refused(folder, "train-00001-of-00002.parquet, row 2")


def test_an_image_too_large_is_not_decoded(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(released, "MAX_BYTES", 100)
    refused(social(tmp_path / "social", social_rows("barber", "17", 0)), "row 1", "at most 100")


def test_a_truncated_parquet(tmp_path: Path) -> None:
    folder = social(tmp_path / "social", social_rows("barber", "17", 0))
    file = folder / "train-00000-of-00002.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    refused(folder, file.name, "fetch it again")
