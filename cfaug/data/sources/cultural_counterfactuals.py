"""Cultural Counterfactuals: one person before several backgrounds, an image in each row.

``thoughtworks/CulturalCounterfactuals`` on the Hub (Howard et al., 2026, arXiv 2603.02370), with a
folder for each of religion, nationality and socioeconomic status. It has no captions: those here
are made of the columns.
"""

from __future__ import annotations

from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.captions import right_articles
from cfaug.data.grids import GridMember, grid_edit
from cfaug.data.sources.captioned_parquet import ParquetSets
from cfaug.data.sources.parquet import ParquetRecord, image_of, text_field
from cfaug.data.sources.row import clean_key

PERSON = ("age", "race", "gender")
"""Columns of the person, in the order of their words."""
CONTEXT = "context"
"""The column of the background, the attribute in which the images of a set differ."""


def build_cultural(rows: list[ParquetRecord]) -> CounterfactualSet:
    """Make a set of one person's images, in the alphabetical order of their backgrounds.

    The subject is the person's age, race and gender. It is the group as well, so that no split has
    one description on both sides.
    """
    rows = sorted(rows, key=lambda row: text_field(row[1], CONTEXT, row[0]))
    where, first = rows[0]
    name = text_field(first, "ctf_set", where)
    person = " ".join(text_field(first, column, where) for column in PERSON)
    neutral = right_articles(f"A photo of a {person}")
    base = {CONTEXT: text_field(first, CONTEXT, where)}
    members, images = [], {}
    for i, (position, record) in enumerate(rows):
        values = {CONTEXT: text_field(record, CONTEXT, position)}
        shown = " ".join(text_field(record, column, position) for column in PERSON)
        grid = GridMember(shown, "person", CONTEXT, "A photo of", neutral, values)
        extra = {**grid.extra, **{column: record[column] for column in PERSON}}
        text = f"{neutral}, {values[CONTEXT]}"
        edit = grid_edit(base, values) if i else None
        members.append(Member(text, str(i), name, edit, values[CONTEXT], extra))
        images[str(i)] = image_of(record, "image", position)
    return CounterfactualSet(
        key=clean_key(name.lower()),
        group=person.lower(),
        members=tuple(members),
        images=images,
        provenance={"source": "cultural_counterfactuals"},
    )


CULTURAL_COUNTERFACTUALS = ParquetSets(
    "cultural_counterfactuals",
    "Cultural Counterfactuals",
    "*.parquet with image, ctf_set, age, race, gender, context (Cultural Counterfactuals)",
    ("image", "ctf_set", *PERSON, CONTEXT),
    ("ctf_set",),
    build_cultural,
    also=("file_name",),
)
