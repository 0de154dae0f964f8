"""Make the pack anew: ``python -m zoo emoji out=FOLDER downloads=FOLDER [artists=noto,...]``.

Parquet of the pictures of each artist and part, and a card.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.export.hub import columns, hub_rows, write_parquet
from cfaug.data.grids import GridMember, grid_edit, grid_key
from zoo.command import fresh_folder, read
from zoo.emoji.names import LANGUAGES, Emoji, Person, leave_out, people, read_names
from zoo.emoji.packages import ARTISTS, GROUPS, NAMES, SHIPPED
from zoo.emoji.parts import Parts, drop_alike, split
from zoo.emoji.pictures import look_alike, read_drawings, render_all

GRID = "gender_tone"
"""The name of the attributes of the sets of people."""


@dataclass(frozen=True, kw_only=True)
class PackSettings:
    """Settings of the pack.

    Attributes:
        out: the folder to write; must not exist yet.
        downloads: the folder of the packages, which are fetched into it if they are missing.
        artists: whose drawings, with commas. Which names are taken depends on those shipped alone,
            so that a further artist has the same names.
    """

    out: str
    downloads: str
    artists: str = ",".join(SHIPPED)


def main(argv: list[str]) -> int:
    """Make the pack; return the exit code."""
    settings = read(PackSettings, argv)
    artists, downloads = settings.artists.split(","), Path(settings.downloads).expanduser()
    if unknown := sorted({*artists} - {*ARTISTS}):
        raise UserError(f"artists={unknown[0]}: choose among {', '.join(ARTISTS)}")
    with fresh_folder(settings.out) as folder:
        named = read_names(downloads)
        allowed, counts = leave_out(named)
        drawings = {
            artist: read_drawings(artist, downloads)
            for artist in dict.fromkeys((*SHIPPED, *artists))
        }
        common = [item for item in allowed if all(item.code in drawings[a] for a in SHIPPED)]
        pictures = {
            artist: render_all(artist, drawings[artist], [item.code for item in common])
            for artist in SHIPPED
        }
        alike = {pair for artist in SHIPPED for pair in look_alike(pictures[artist])}
        kept, sets, same = drop_alike(common, people(common), alike)
        parts = split(kept, sets)
        for artist in artists:
            if artist not in pictures:
                lacking = [item.name for item in kept if item.code not in drawings[artist]]
                if lacking:
                    raise UserError(f"{artist} lacks {len(lacking)} drawings, as {lacking[0]!r}")
                pictures[artist] = render_all(
                    artist, drawings[artist], [item.code for item in kept]
                )
            write_artist(folder / artist, artist, pictures[artist], parts)
        card = {
            "command": "python -m zoo emoji out=FOLDER downloads=FOLDER",
            "packages": [
                {"name": p.name, "version": p.version, "sha256": p.sha256, "licence": p.licence,
                 "owner": p.owner}
                for p in (*(ARTISTS[artist] for artist in artists), *NAMES, GROUPS)
            ],
            "named": len(named),
            "left_out": {
                **counts,
                "no drawing by each artist": len(allowed) - len(common),
                "drawn by one artist like another one": len(common) - len(kept),
            },
            "occupations_left_out": same,
            "kept": len(kept),
            "faces": sum("face" in item.words for item in kept),
            "parts": {name: len(getattr(parts, name)) for name in Parts.__annotations__},
            "kinds": {
                name: dict(Counter(pair.kind for pair in getattr(parts, name)))
                for name in ("pairs", "test_pairs")
            },
            "pixels_sha256": {
                artist: hash_pixels(pictures[artist], kept) for artist in artists
            },
        }  # fmt: skip
        text = json.dumps(card, indent=2, ensure_ascii=False) + "\n"
        (folder / "card.json").write_text(text, encoding="utf-8")
        print(text, end="")
    return 0


def hash_pixels(pictures: Mapping[str, np.ndarray], emoji: Sequence[Emoji]) -> str:
    """Return the sha256 (hex) of the pixels of all pictures, in the order of their names."""
    digest = hashlib.sha256()
    for item in sorted(emoji, key=lambda item: item.name):
        digest.update(pictures[item.code].tobytes())
    return digest.hexdigest()


def write_artist(
    folder: Path, artist: str, pictures: Mapping[str, np.ndarray], parts: Parts
) -> None:
    """Write the parts of one artist, a folder each, as ``PART/PART.parquet``."""
    texts = ("artist", "code", "unicode_group", "unicode_subgroup", *LANGUAGES)
    single = {"image": "image", **dict.fromkeys(("caption", *texts), "string")}
    words = ("kind", "before", "after", "artist", "unicode_group", "first_code", "second_code")
    pair = {
        "id": "string", "image": "image", "caption": "string",
        "cf_image": "image", "cf_caption": "string", **dict.fromkeys(words, "string"),
    }  # fmt: skip

    def cells(item: Emoji) -> dict[str, Any]:
        return {
            "image": encode(pictures[item.code], item), "caption": item.name, "artist": artist,
            "code": item.code, "unicode_group": item.group, "unicode_subgroup": item.subgroup,
            **item.translations,
        }  # fmt: skip

    tables: dict[str, tuple[Iterator[dict[str, Any]], Mapping[str, str]]] = {
        name: (map(cells, emoji), single)
        for name, emoji in (("train", parts.train), ("more", parts.more), ("names", parts.names))
    }
    for name, pairs in (("pairs", parts.pairs), ("test_pairs", parts.test_pairs)):
        rows: Iterator[dict[str, Any]] = (
            {
                "id": f"{item.first.code}_{item.second.code}",
                "image": encode(pictures[item.first.code], item.first), "caption": item.first.name,
                "cf_image": encode(pictures[item.second.code], item.second),
                "cf_caption": item.second.name,
                "kind": item.kind, "before": item.before, "after": item.after, "artist": artist,
                "unicode_group": item.first.group,
                "first_code": item.first.code, "second_code": item.second.code,
            }
            for item in pairs
        )  # fmt: skip
        tables[name] = rows, pair
    sets = people_sets(parts.people, artist, pictures)
    tables["people"] = hub_rows(sets, "grid"), columns("grid", ())
    for name, (table, kinds) in tables.items():
        (folder / name).mkdir(parents=True)
        write_parquet(table, folder / name, "train", kinds)
        [file] = (folder / name).iterdir()
        file.rename(folder / name / f"{name}.parquet")


def people_sets(
    people: Sequence[Person], artist: str, pictures: Mapping[str, np.ndarray]
) -> Iterator[CounterfactualSet]:
    """Yield the set of each occupation: two genders by five tones, the first one as the base."""
    for occupation, members in groupby(people, key=lambda person: person.occupation):
        every = sorted(members, key=lambda person: person.emoji.order)
        attributes = [{"gender": person.gender, "tone": person.tone} for person in every]
        yield CounterfactualSet(
            key=grid_key(artist, GRID, occupation),
            group=occupation,
            members=tuple(
                Member(
                    person.emoji.name, str(i), person.emoji.code,
                    grid_edit(attributes[0], attributes[i]), occupation,
                    GridMember(occupation, "occupation", GRID, "", occupation, attributes[i]).extra,
                )
                for i, person in enumerate(every)
            ),
            images={
                str(i): encode(pictures[person.emoji.code], person.emoji)["bytes"]
                for i, person in enumerate(every)
            },
            provenance={"source": "emoji", "artist": artist},
        )  # fmt: skip


def encode(picture: np.ndarray, emoji: Emoji) -> dict[str, Any]:
    """Return a picture as lossless WebP, in the Hub's form."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "WEBP", lossless=True, quality=75, method=6)
    return {"bytes": buffer.getvalue(), "path": f"{emoji.code}.webp"}
