"""Hand-laid files of VisoGender, with the columns of the published ones, and tiny photos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from tests.data.making import noise_image

OO_COLUMNS = ("IDX", "Sector", "Specialisation", "Occupation", "Object",
              "URL type (Type NA if can't find)", "LICENSE OK?", "Occupation_perceived_gender",
              "Error codes", "Annotator")  # fmt: skip
OP_COLUMNS = ("IDX", "Sector", "Specialisation", "Occupation", "Participant",
              "URL type (Type NA if can't find)", "Licence", "Occupation_perceived_gender",
              "Participant_perceived_gender", "Error codes", "Annotator")  # fmt: skip
"""As the files of 2025 and 2024 have them."""

GENDERS = ("masculine", "feminine")
SINGLE = (("teacher", "board"), ("doctor", "clipboard"))
TWO = (("teacher", "student"), ("doctor", "patient"))
EACH = 3


def oo_rows() -> list[dict[str, str]]:
    """Return three photos of each occupation and gender."""
    asked = product(SINGLE, GENDERS, range(EACH))
    return [
        _row(OO_COLUMNS, f"OO_{n}", words, Object=words[1], Occupation_perceived_gender=gender)
        for n, (words, gender, _) in enumerate(asked, 1)
    ]


def op_rows() -> list[dict[str, str]]:
    """Return three photos of each occupation and pair of genders."""
    asked = product(TWO, product(GENDERS, GENDERS), range(EACH))
    return [
        _row(
            OP_COLUMNS, f"OP_{n}", words, Participant=words[1],
            Occupation_perceived_gender=genders[0], Participant_perceived_gender=genders[1],
        )
        for n, (words, genders, _) in enumerate(asked, 1)
    ]  # fmt: skip


def _row(columns: Sequence[str], idx: str, words: tuple[str, str], **values: str) -> dict[str, str]:
    about = {
        "IDX": idx, "Sector": "education", "Specialisation": "general", "Occupation": words[0],
        "URL type (Type NA if can't find)": f"https://example.org/{idx}.jpeg?w=600",
        "LICENSE OK?": "Yes", "Licence": "Yes", "Annotator": "A",
    }  # fmt: skip
    return {name: {**about, **values}.get(name, "") for name in columns}


def write_tsv(file: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    """Write rows with the columns of the first."""
    lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    file.write_text("\n".join(lines) + "\n")
    return file


def lay_photos(folder: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    """Write a photo of each row under its IDX, those of one context in a folder of their own."""
    for number, row in enumerate(rows):
        place = folder / f"{row['IDX'][:2]}_images"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{row['IDX']}.png").write_bytes(noise_image(7700 + number))
    return folder
