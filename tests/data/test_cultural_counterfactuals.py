"""Cultural Counterfactuals as the Hub holds it: a row per image, sets named by ctf_set."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfaug.core.types import Edit
from cfaug.data.index import open_index
from cfaug.data.sources import import_sets
from tests.data.hostile import assert_refused
from tests.data.released import image, jpeg

CONTEXTS = ("Buddhist temple", "Christian church", "Mosque")
PEOPLE = (("old", "Latino", "woman"), ("young", "East Asian", "man"), ("old", "Latino", "woman"))


def cultural_rows() -> list[dict[str, object]]:
    return [
        {"image": image(jpeg(10 * n + i), None), "ctf_set": f"{n}_{age}_{race}_{gender}",
         "age": age, "race": race, "gender": gender, "context": context,
         "file_name": f"religion/{n}/{n}_{context}.png"}
        for n, (age, race, gender) in enumerate(PEOPLE)
        for i, context in enumerate(CONTEXTS)
    ]  # fmt: skip


def cultural(folder: Path, rows: list[dict[str, object]]) -> Path:
    folder.mkdir(parents=True)
    for number, part in enumerate((rows[:4], rows[4:])):  # the second set is in both files
        file = folder / f"train-{number:05d}-of-00002.parquet"
        pq.write_table(pa.Table.from_pylist(part), file)
    return folder


def test_sets_of_one_person_before_several_backgrounds(tmp_path):
    folder = cultural(tmp_path / "religion", cultural_rows())
    sets = list(import_sets(folder))
    assert [len(cf_set.members) for cf_set in sets] == [3, 3, 3]
    assert [cf_set.group for cf_set in sets] == [
        "old latino woman", "young east asian man", "old latino woman",
    ]  # fmt: skip
    member = sets[0].members[2]
    assert member.text == "A photo of an old Latino woman, Mosque"
    assert member.edit == Edit("context", "Buddhist temple", "Mosque")
    assert member.label == "Mosque"
    assert dict(member.extra) == {
        "subject": "old Latino woman", "subject_type": "person", "grid": "context",
        "prefix": "A photo of", "neutral": "A photo of an old Latino woman",
        "attributes": {"context": "Mosque"}, "age": "old", "race": "Latino", "gender": "woman",
    }  # fmt: skip
    assert sets[1].images["1"] == jpeg(11)
    index = open_index(folder, tmp_path / "cache")
    assert (index.kind, len(index)) == ("cultural_counterfactuals", 9)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("context", None, r"row 2: .*context"),
        ("age", None, r"row 2: .*age"),
        ("image", image(b"no image", None), r"row 2: image.* not an image"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path, column, value, said):
    rows = cultural_rows()
    rows[1][column] = value
    assert_refused(cultural(tmp_path / "religion", rows), tmp_path / "cache", said)
