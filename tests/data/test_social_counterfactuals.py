"""SocialCounterfactuals as the Hub holds it: a row per image.

Sets are named by dataset_segment and counterfactual_set.
"""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import Edit
from cfaug.data.export import PublisherStatements, export_clip_benchmark, export_hub
from cfaug.data.index import open_index
from cfaug.data.sources import captioned_parquet as social_counterfactuals
from cfaug.data.sources import import_sets
from cfaug.data.sources import parquet as released
from tests.data.hostile import assert_refused
from tests.data.making import pair
from tests.data.released import GENDERS, RACES, image, jpeg, refused
from tests.grid_sets import RACE_GENDER, every_grid_set, grid_set


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


def test_social_counterfactuals(tmp_path):
    """Three sets of 12, the second cut by the end of a file."""
    names = [("barber", "17"), ("software engineer", "18"), ("barber", "19")]
    rows = [r for n, (s, name) in enumerate(names) for r in social_rows(s, name, 100 * n)]
    sets = list(import_sets(social(tmp_path / "social", rows)))
    assert [len(cf_set.members) for cf_set in sets] == [12, 12, 12]
    assert [cf_set.group for cf_set in sets] == ["barber", "software engineer", "barber"]
    assert len({cf_set.key for cf_set in sets}) == 3
    middle = sets[1]
    assert middle.members[0].text == "A photo of a White male software engineer"
    assert middle.members[0].edit is None
    assert middle.members[1].edit == Edit("gender", "male", "female")
    assert middle.members[8].edit == Edit("race", "White", "Middle Eastern")
    assert middle.members[11].edit == Edit("race_gender", "White male", "Latino female")
    assert middle.members[11].label == "software engineer"
    assert dict(middle.members[11].extra) == {
        "dataset_segment": "race_gender", "counterfactual_set": "18", "a1_type": "race",
        "a2_type": "gender", "a1": "Latino", "a2": "female",
        "subject": "software engineer", "subject_type": "occupation", "grid": "race_gender",
        "prefix": "A photo of", "neutral": "A photo of a software engineer",
        "attributes": {"race": "Latino", "gender": "female"},
    }  # fmt: skip
    assert [middle.images[m.image_name] for m in middle.members] == [
        jpeg(100 + i) for i in range(12)
    ]
    index = open_index(tmp_path / "social", tmp_path / "cache")
    assert (index.kind, len(index)) == ("social_counterfactuals", 36)


def test_shards_that_an_earlier_reader_made_are_not_taken(tmp_path, monkeypatch):
    folder = social(tmp_path / "social", social_rows("barber", "1", 0))
    monkeypatch.setattr(social_counterfactuals, "READER", 1)
    before = open_index(folder, tmp_path / "cache")
    monkeypatch.undo()
    after = open_index(folder, tmp_path / "cache")
    assert before.folder != after.folder
    assert len(list((tmp_path / "cache").glob("imported-*"))) == 2


def test_social_rows_that_lie_apart(tmp_path, monkeypatch):
    sets = (social_rows("barber", "1", 0), social_rows("chef", "2", 50))
    rows = [row for pair in zip(*sets, strict=True) for row in pair]
    folder = social(tmp_path / "social", rows, files=3)
    assert [cf_set.group for cf_set in import_sets(folder)] == ["barber", "chef"]
    monkeypatch.setattr(social_counterfactuals, "PENDING_BYTES", 5 * len(jpeg(0)))
    refused(folder, "sort", "counterfactual_set")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"image": image(jpeg(7)[:-30])}, ["train-00001-of-00002.parquet, row 2"]),
        ({"a1": " "}, ["row 2", "'race' should be a text, not ' '"]),
    ],
)
def test_a_social_row_that_is_broken(tmp_path, changes, named):
    rows = social_rows("barber", "17", 0)
    rows[7] |= changes
    refused(social(tmp_path / "social", rows), *named)


def test_an_image_too_large_is_not_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(released, "MAX_BYTES", 100)
    refused(social(tmp_path / "social", social_rows("barber", "17", 0)), "row 1", "at most 100")


def with_caption(rows: list[dict[str, object]], before: str, after: str) -> list[dict[str, object]]:
    return [{**row, "caption": str(row["caption"]).replace(before, after)} for row in rows]


@pytest.mark.parametrize(
    ("caption", "prefix", "subject", "neutral"),
    [
        ("an {} umpire", "", "umpire", "an umpire"),
        ("{} umpire", "", "umpire", "umpire"),
        ("An image of an {} Umpire.", "An image of", "Umpire", "An image of an Umpire"),
        ("A picture of a {} bus driver", "A picture of", "bus driver", "A picture of a bus driver"),
        ("here stands {} engineer", "here stands", "engineer", "here stands engineer"),
        ("a portrait, a {} actor", "a portrait,", "actor", "a portrait, an actor"),
    ],
)  # fmt: skip
def test_prefix_and_neutral_prompt_follow_from_a_caption(
    tmp_path, caption, prefix, subject, neutral
):
    rows = social_rows("x", "1", 0)
    for row in rows:
        row["caption"] = caption.format(f"{row['a1']} {row['a2']}")
    (cf_set,) = import_sets(social(tmp_path / "social", rows))
    extra = cf_set.members[5].extra
    assert (extra["prefix"], extra["subject"], extra["neutral"]) == (prefix, subject, neutral)
    assert cf_set.group == subject.lower()


def test_a_caption_that_does_not_show_its_attributes_is_of_no_grid(tmp_path):
    rows = with_caption(social_rows("barber", "1", 0), "male", "adult")
    (cf_set,) = import_sets(social(tmp_path / "social", rows))
    assert (cf_set.group, cf_set.members[0].label) == ("race_gender-1", None)
    assert "subject" not in cf_set.members[0].extra


def test_a_number_in_a_path_that_is_too_long_to_be_one(tmp_path):
    rows = social_rows("barber", "1", 0)
    for i, row in enumerate(rows):
        row["image"] = {**row["image"], "path": f"x_0_{'9' * 5000}{i}_5.jpg"}
    (cf_set,) = import_sets(social(tmp_path / "social", rows))
    assert cf_set.key == "race_gender-1"


def test_sets_are_told_apart_by_file_and_seed_where_paths_have_them(tmp_path):
    """Some names were given twice: ranks of occupations that a list has twice, or of two runs."""
    rows = []
    for seed in (2987654321, 12):
        for i, row in enumerate(
            social_rows("barber", "a_photo_of_race_gender_barber_0", seed % 99)
        ):
            path = f"images/a_photo_of_race_gender_barber_0_{i}_{seed}.jpg"
            rows.append({**row, "image": {**row["image"], "path": path}})
    random.Random(0).shuffle(rows)
    by_key = {cf_set.key: cf_set for cf_set in import_sets(social(tmp_path / "social", rows))}
    assert set(by_key) == {f"a_photo_of_race_gender_barber-{seed}" for seed in (2987654321, 12)}
    for cf_set in by_key.values():
        values = [tuple(member.extra["attributes"].values()) for member in cf_set.members]
        assert values == [(race, gender) for race in RACES for gender in GENDERS]


ABOUT = PublisherStatements("Grids", license="mit")


def test_ours_in_their_columns_come_back_as_they_were(tmp_path):
    sets = every_grid_set()
    export_hub(sets, tmp_path / "hub", ABOUT, layout="grid")
    (file,) = (tmp_path / "hub" / "data").glob("*.parquet")
    table = pq.read_table(file)
    assert table.column_names == [
        "image", "dataset_segment", "a1_type", "a2_type", "counterfactual_set", "caption", "a1",
        "a2", "a1a2", "about",
    ]  # fmt: skip
    row = table.slice(7, 1).to_pylist()[0]
    assert {name: row[name] for name in table.column_names[1:-1]} == {
        "dataset_segment": "race_gender", "a1_type": "race", "a2_type": "gender",
        "counterfactual_set": sets[1].key, "caption": sets[1].members[1].text,
        "a1": "White", "a2": "female", "a1a2": "White female",
    }  # fmt: skip
    assert list(import_sets(tmp_path / "hub")) == sets
    rows = table.to_pylist()
    random.Random(2).shuffle(rows)
    other = tmp_path / "shuffled"
    other.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, table.schema), other / "all.parquet")
    by_key = {cf_set.key: cf_set for cf_set in import_sets(other)}
    assert by_key == {cf_set.key: cf_set for cf_set in sets}


def test_rows_of_our_export_that_are_missing_or_changed(tmp_path):
    export_hub([grid_set("doctor")], tmp_path / "hub", ABOUT, layout="grid")
    (file,) = (tmp_path / "hub" / "data").glob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    for number, (changed, words) in enumerate(
        [
            ([*rows[:2], *rows[3:]], "member 2 of 'a_photo_of_race_gender_doctor-0' is missing"),
            ([*rows, rows[1]], "is missing or duplicated"),
            ([{**rows[0], "about": "[1]"}, *rows[1:]], "does not say which member"),
            ([{**rows[0], "about": "{"}, *rows[1:]], "about"),
            (
                [{**rows[0], "about": '{"member": 0, "group": "g"}'}, *rows[1:]],
                "the row is invalid",
            ),
        ]
    ):
        folder = tmp_path / str(number) / "social"
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(changed), folder / "all.parquet")
        refused(folder, words)


def test_only_grids_of_two_attributes_have_these_columns(tmp_path):
    three = grid_set("doctor", attributes={**RACE_GENDER, "age": ("old", "young")})
    with pytest.raises(UserError, match=r"grids of two attributes.*use export\.layout=members"):
        export_hub([three], tmp_path / "hub", ABOUT, layout="grid")
    with pytest.raises(UserError, match="choose pairs, members, grid or null"):
        export_hub([three], tmp_path / "other", ABOUT, layout="rows")
    export_hub([three], tmp_path / "members", ABOUT)
    assert list(import_sets(tmp_path / "members")) == [three]


def test_every_export_says_what_labels_are_and_are_not(tmp_path):
    faith = {"religion": ("Christian", "Hindu"), "mood": ("happy", "sad")}
    sets = [grid_set("doctor"), grid_set("nurse", attributes=faith, grid="religion_mood")]
    export_hub(sets, tmp_path / "grid", ABOUT, layout="grid")
    export_hub(sets, tmp_path / "members", ABOUT)
    export_clip_benchmark(sets, tmp_path / "clip")
    said = "They are not what a person is"
    for name in ("grid/README.md", "grid/DATASHEET.md", "members/README.md", "clip/README.md"):
        text = (tmp_path / name).read_text()
        assert said in text, name
        assert "people of other genders are left out" in text, name
        assert "A religion cannot be seen" in text, name
        assert "Not for decisions about people" in text, name
        assert "`White`, `Black`, `Latino`" in text, name
    sheet = (tmp_path / "grid" / "DATASHEET.md").read_text()
    assert "Captions ask for `race`: `White`" in sheet
    card = (tmp_path / "grid" / "README.md").read_text()
    assert "`race_gender` (1 sets), `religion_mood` (1 sets)" in card
    assert "value of the first attribute, which the caption asked for" in card
    export_hub([pair(1)], tmp_path / "plain", ABOUT)
    assert "What the labels are" not in (tmp_path / "plain" / "README.md").read_text()


def test_files_without_rows_are_named(tmp_path):
    folder = social(tmp_path / "social", social_rows("barber", "1", 0), files=1)
    [file] = folder.glob("*.parquet")
    pq.write_table(pq.read_table(file).slice(0, 0), file)
    assert_refused(folder, tmp_path / "cache", r"social holds no set \(no rows\)")
