"""The contents of a dataset card: the publisher's statements, and facts counted from the sets."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.grids import ATTRIBUTES, GRID
from cfaug.core.types import CounterfactualSet


@dataclass(frozen=True)
class PublisherStatements:
    """Statements that only the publisher can make; the card marks ``None`` as to be written.

    Attributes:
        name: name of the data set.
        license: the Hub's identifier of a licence ("cc-by-4.0").
        description: a description of the data set in one paragraph.
        authors: the authors, and for whom they made the data set.
        contact: the address for questions.
        captions: source and licence of the captions.
        language: language of the captions, ISO 639.
    """

    name: str
    license: str | None = None
    description: str | None = None
    authors: str | None = None
    contact: str | None = None
    captions: str | None = None
    language: str = "en"


@dataclass
class Facts:
    """Counts over a stream of sets; no image is kept.

    Attributes:
        generated: number of sets made by a recipe of ours.
        models: {role: descriptions of the models, as text}.
        numbers: {name: all values} of each score, p and cfg.
        grids: {grid of attributes: number of sets}.
        attributes: {attribute: values that occur in grids, in the order of their first set}.
    """

    sets: int = 0
    members: int = 0
    images: int = 0
    image_bytes: int = 0
    generated: int = 0
    groups: set[int] = field(default_factory=set)
    kinds: Counter[str] = field(default_factory=Counter)
    made_by: Counter[str] = field(default_factory=Counter)
    models: dict[str, set[str]] = field(default_factory=dict)
    numbers: dict[str, array[float]] = field(default_factory=dict)
    grids: Counter[str] = field(default_factory=Counter)
    attributes: dict[str, list[str]] = field(default_factory=dict)

    def count(self, one: CounterfactualSet) -> None:
        """Count a set."""
        self.sets += 1
        self.members += len(one.members)
        self.images += len(one.images)
        self.image_bytes += sum(map(len, one.images.values()))
        self.generated += "recipe" in one.provenance
        self.groups.add(hash(one.group))
        self.kinds.update(m.edit.kind for m in one.members if m.edit is not None)
        made_by = [
            str(one.provenance[n]) for n in ("recipe", "zoo", "source") if n in one.provenance
        ]
        self.made_by.update([", ".join(made_by)] if made_by else [])
        models = one.provenance.get("models")
        for part, about in models.items() if isinstance(models, Mapping) else ():
            self.models.setdefault(str(part), set()).add(
                about if isinstance(about, str) else json.dumps(about, sort_keys=True, default=str)
            )
        for name, value in (dict(one.scores) | draw(one)).items():
            if name != "seed" and isinstance(value, int | float):
                self.numbers.setdefault(name, array("d")).append(value)

        self._count_grid(one)

    def _count_grid(self, one: CounterfactualSet) -> None:
        """Count a set of a grid of attributes."""
        grid = one.members[0].extra.get(GRID)
        if not isinstance(grid, str):
            return
        self.grids[grid] += 1
        for member in one.members:
            found = member.extra.get(ATTRIBUTES)
            for name, value in found.items() if isinstance(found, Mapping) else ():
                values = self.attributes.setdefault(str(name), [])
                if str(value) not in values:
                    values.append(str(value))

    def count_all(self, sets: Any) -> Iterator[CounterfactualSet]:
        """Yield the sets while counting them."""
        for one in sets:
            self.count(one)
            yield one


def draw(one: CounterfactualSet) -> dict[str, Any]:
    """Return those of seed, p and cfg that a set's members have."""
    found: dict[str, Any] = {}
    for member in one.members:
        for name in ("seed", "p", "cfg"):
            if name in member.extra:
                found.setdefault(name, member.extra[name])
    return found


def empty_folder(folder: Path) -> Path:
    """Create a folder, or accept an empty one, and return it.

    Raises:
        UserError: if it is not empty: an export never mixes with an older one.
    """
    folder = folder.expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not empty; name a folder that is, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
