"""The dataset card and datasheet of an export: known facts, and marks for missing ones.

The datasheet asks the questions of Gebru et al. (Datasheets for Datasets, 2021) that the
COCO-Counterfactuals paper answers in its appendix C.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cfaug.core.atomic_files import to_json
from cfaug.core.cards import CARD, Card, code, number
from cfaug.core.files import require_regular
from cfaug.core.outputs import write_output
from cfaug.core.types import CounterfactualSet
from cfaug.data.grids import ATTRIBUTES, GRID

TEMPLATES = Path(__file__).parent / "templates"
TODO = "**To be written:**"
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
MEANINGS = {
    "id": "key of the set",
    "group": "what the set was made from (the photo, the caption): never split inside a group",
    "member": "place in the set; 0 is the unedited one",
    "image": "the member's image",
    "caption": "the member's caption",
    "image_0": "image of the unedited caption",
    "image_1": "image of the edited caption",
    "caption_0": "the unedited caption",
    "caption_1": "the edited caption",
    "edit_kind": "what was edited",
    "edit_before": "the words that were replaced",
    "edit_after": "the words that replaced them",
    "sim_0": "cosine of unedited image and caption",
    "sim_1": "cosine of edited image and caption",
    "sim_image": "cosine of the two images",
    "sim_direction": "directional similarity: cosine of the change of image and of caption",
    "p": "share of the denoising steps whose attention was shared",
    "cfg": "classifier-free guidance scale",
    "seed": "of all noise of the set, as text (64 bits)",
    "dataset_segment": "the grid of attributes",
    "counterfactual_set": "key of the set",
    "a1_type": "the first attribute",
    "a2_type": "the second attribute",
    "a1": "value of the first attribute, which the caption asked for",
    "a2": "value of the second attribute, which the caption asked for",
    "a1a2": "both values",
    "about": "JSON: everything else that is known of the set",
}


def write_card(
    folder: Path, about: PublisherStatements, facts: Facts, columns: Mapping[str, str], split: str
) -> None:
    """Write ``README.md``, the dataset card on the Hub, and ``DATASHEET.md``."""
    from jinja2 import Template

    rows = facts.sets if "image_0" in columns else facts.members
    metadata = {
        "pretty_name": about.name,
        "license": about.license,
        "language": [about.language],
        "size_categories": [_size(rows)],
        "task_categories": ["zero-shot-image-classification", "image-to-text", "text-to-image"],
        "tags": ["counterfactual", "image-text", "synthetic"]
        if facts.generated
        else ["image-text"],
        "dataset_info": {
            "features": [{"name": name, "dtype": kind} for name, kind in columns.items()],
            "splits": [{"name": split, "num_bytes": facts.image_bytes, "num_examples": rows}],
        },
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": split, "path": f"data/{split}-*.parquet"}],
            }
        ],
    }
    values = {
        "about": about,
        "facts": facts,
        "columns": columns,
        "meanings": MEANINGS,
        "median": statistics.median,
        "todo": TODO,
        "cautions": "\n".join(caution_lines(facts.attributes, facts.grids)) if facts.grids else "",
    }
    card = Card("DatasetCard", metadata, [TEMPLATES / "card.md"], values).fill()
    (folder / CARD).write_text(card, encoding="utf-8")

    def codes(values: Iterable[str]) -> str:
        return ", ".join(map(code, values))

    template = Template((TEMPLATES / "datasheet.md").read_text(encoding="utf-8"))
    datasheet = template.render(
        about=about,
        facts=facts,
        code=code,
        number=number,
        kinds=", ".join(f"{code(k)} ({number(n)})" for k, n in facts.kinds.most_common()),
        labels="; ".join(f"{code(k)}: {codes(v)}" for k, v in facts.attributes.items()),
        made_by="; ".join(f"{code(k)}: {number(n)} sets" for k, n in facts.made_by.items()),
        models="; ".join(f"{code(k)}: {codes(sorted(v))}" for k, v in facts.models.items()),
        ranges=", ".join(
            f"{code(k)} {min(v):.3f} to {max(v):.3f}" for k, v in facts.numbers.items()
        ),
        cautions=cautions(facts.attributes) if facts.grids else [],
    )
    (folder / "DATASHEET.md").write_text(f"{datasheet}\n", encoding="utf-8")


def _size(rows: int) -> str:
    """Return the Hub's size category of a number of rows.

    >>> _size(999), _size(17_410)
    ('n<1K', '10K<n<100K')
    """
    names = ["1K", "10K", "100K", "1M", "10M", "100M"]
    index = next((i for i, size in enumerate(SIZES) if rows < size), len(SIZES))
    if index == 0:
        return "n<1K"
    return f"{names[index - 1]}<n<{names[index]}" if index < len(names) else "n>100M"


# Croissant (MLCommons, 1.0), with the fields of its extension for responsible AI that are counted.

CONTEXT = {
    "@language": "en", "@vocab": "https://schema.org/", "citeAs": "cr:citeAs",
    "column": "cr:column", "conformsTo": "dct:conformsTo", "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/", "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"}, "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"}, "extract": "cr:extract",
    "field": "cr:field", "fileProperty": "cr:fileProperty", "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet", "format": "cr:format", "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset", "jsonPath": "cr:jsonPath", "key": "cr:key",
    "md5": "cr:md5", "parentField": "cr:parentField", "path": "cr:path",
    "recordSet": "cr:recordSet", "references": "cr:references", "regex": "cr:regex",
    "repeated": "cr:repeated", "replace": "cr:replace", "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator", "source": "cr:source", "subField": "cr:subField",
    "transform": "cr:transform",
}  # fmt: skip
"""The context that the specification asks for; a reader compares it whole."""
CROISSANT = "Croissant metadata"
"""What the record of outputs calls the file."""
DATA_TYPES = {
    "string": "sc:Text", "int32": "sc:Integer", "float64": "sc:Float", "image": "sc:ImageObject",
}  # fmt: skip
"""Croissant's types of our columns' types."""


def write_croissant(
    file: Path, folder: Path, about: PublisherStatements, facts: Facts, columns: Mapping[str, str]
) -> list[str]:
    """Describe the parquet files of an export in a new file, in Croissant's JSON-LD.

    Args:
        file: the new file; files of ``folder`` are named relative to it.

    Returns:
        What a catalogue asks for and the publisher has not stated, by the names of its statements.
    """
    file = file.expanduser()
    stated = {"license": about.license, "url": about.url, "datePublished": about.published}
    distribution: list[dict[str, Any]] = []
    record_sets = []
    for shard, data in enumerate(sorted((folder / "data").glob("*.parquet"))):
        with require_regular(data).open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
        distribution.append({
            "@type": "cr:FileObject", "@id": data.name, "name": data.name,
            "contentUrl": Path(os.path.relpath(data, file.absolute().parent)).as_posix(),
            "contentSize": f"{data.stat().st_size} B",
            "encodingFormat": "application/x-parquet", "sha256": digest,
        })  # fmt: skip
        rows, cells = f"rows-{shard:05d}", []
        for name, kind in columns.items():
            source: dict[str, Any] = {"fileObject": {"@id": data.name}, "extract": {"column": name}}
            if kind == "image":
                source["transform"] = {"jsonPath": "bytes"}
            cells.append({
                "@type": "cr:Field", "@id": f"{rows}/{name}", "name": name,
                "description": MEANINGS.get(name, "a score of the set"),
                "dataType": DATA_TYPES[kind], "source": source,
            })  # fmt: skip
        record_sets.append({
            "@type": "cr:RecordSet", "@id": rows, "name": rows, "field": cells,
        })  # fmt: skip
    edits = ", ".join(f"{kind} ({count:,})" for kind, count in facts.kinds.most_common())
    counted = (
        f"{facts.sets:,} sets with {facts.members:,} image-text pairs, from {len(facts.groups):,} "
        f"groups. Made by: {'; '.join(facts.made_by) or 'not stated'}. Edits: {edits or 'none'}."
    )
    labels = [f"{name}: {', '.join(values)}" for name, values in facts.attributes.items()]
    content = {
        "@context": CONTEXT, "@type": "sc:Dataset", "name": about.name,
        "conformsTo": [
            "http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0",
        ],
        "description": about.description or counted, "inLanguage": about.language,
        **{name: value for name, value in stated.items() if value is not None},
        **({"creator": {"@type": "sc:Person", "name": about.authors}} if about.authors else {}),
        "rai:dataCollection": f"{counted} Captions: {about.captions or 'not stated'}.",
        **({"rai:dataLimitations": cautions(facts.attributes)} if facts.grids else {}),
        **({"rai:personalSensitiveInformation": labels} if facts.grids else {}),
        "distribution": distribution, "recordSet": record_sets,
    }  # fmt: skip
    write_output(file, to_json(content), CROISSANT, "export.croissant")
    named = ("license", "url", "published", "authors", "description")
    return [name for name in named if getattr(about, name) is None]


# The contents of a dataset card: the publisher's statements, and facts counted from the sets.


@dataclass(frozen=True)
class PublisherStatements:
    """Statements that only the publisher can make; the card marks ``None`` as to be written.

    Attributes:
        license: the Hub's identifier of a licence ("cc-by-4.0").
        authors: the authors, and for whom they made the data set.
        captions: source and licence of the captions.
        language: language of the captions, ISO 639.
        published: date of publication, "2026-11-24".
    """

    name: str
    license: str | None = None
    description: str | None = None
    authors: str | None = None
    contact: str | None = None
    captions: str | None = None
    language: str = "en"
    url: str | None = None
    published: str | None = None


@dataclass
class Facts:
    """Counts over a stream of sets; no image is kept.

    Attributes:
        generated: number of sets made by a recipe of ours.
        models: {role: descriptions of the models, as text}.
        numbers: {name: all values} of each score, p and cfg.
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

    def count(self, counterfactual: CounterfactualSet) -> None:
        """Count a set."""
        self.sets += 1
        self.members += len(counterfactual.members)
        self.images += len(counterfactual.images)
        self.image_bytes += sum(map(len, counterfactual.images.values()))
        self.generated += "recipe" in counterfactual.provenance
        self.groups.add(hash(counterfactual.group))
        self.kinds.update(m.edit.kind for m in counterfactual.members if m.edit is not None)
        made_by = [
            str(counterfactual.provenance[n])
            for n in ("recipe", "zoo", "source")
            if n in counterfactual.provenance
        ]
        self.made_by.update([", ".join(made_by)] if made_by else [])
        models = counterfactual.provenance.get("models")
        for part, about in models.items() if isinstance(models, Mapping) else ():
            self.models.setdefault(str(part), set()).add(
                about if isinstance(about, str) else json.dumps(about, sort_keys=True, default=str)
            )
        for name, value in (dict(counterfactual.scores) | draw(counterfactual)).items():
            if name != "seed" and isinstance(value, int | float):
                self.numbers.setdefault(name, array("d")).append(value)
        grid = counterfactual.members[0].extra.get(GRID)
        if not isinstance(grid, str):
            return
        self.grids[grid] += 1
        for member in counterfactual.members:
            attributes = member.extra.get(ATTRIBUTES)
            for name, value in attributes.items() if isinstance(attributes, Mapping) else ():
                values = self.attributes.setdefault(str(name), [])
                if str(value) not in values:
                    values.append(str(value))

    def count_all(self, sets: Any) -> Iterator[CounterfactualSet]:
        """Yield the sets while counting them."""
        for counterfactual in sets:
            self.count(counterfactual)
            yield counterfactual


def draw(counterfactual: CounterfactualSet) -> dict[str, Any]:
    """Return those of seed, p and cfg that a set's members have."""
    drawn: dict[str, Any] = {}
    for member in counterfactual.members:
        for name in ("seed", "p", "cfg"):
            if name in member.extra:
                drawn.setdefault(name, member.extra[name])
    return drawn


# Cautions for sets with labels that may be about people.

GENERAL = (
    "The labels say what a caption asked an image generator for. They are not what a person is, "
    "thinks of themselves, or is seen as: nobody in these images exists, and nobody was asked.",
    "An image may not show what its caption asked for, and what it shows is the generator's idea "
    "of a word, its stereotypes included. Other things may change with a label.",
    "Use: to measure, or to lower, the differences that a model makes between images that differ "
    "by a label. A difference found here is one of images of this generator; that none is found "
    "says nothing of a model's fairness elsewhere.",
    "Not for decisions about people, for guessing anybody's attributes, or for training whatever "
    "does either; not as pictures of what people of an occupation or a group look like.",
)
BY_ATTRIBUTE = {
    "gender": "The list of genders is that of its caption lists, {values}: people of other genders "
    "are left out, so nothing is measured of them.",
    "race": "The list of races, {values}, mixes colours of skin, regions and languages: it does "
    "not classify people, and leaves most of them out.",
    "religion": "A religion cannot be seen: images of {values} show the clothes and places that "
    "the generator associates with the word, stereotypes that must not be taken for people.",
    "physical": "Words for bodies, {values}, were taken from studies of stereotypes; some of them "
    "hurt. They are here because models meet them.",
}
"""Further cautions by the name of an attribute."""


def cautions(attributes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the cautions for grids of some attributes, a paragraph each."""
    texts = list(GENERAL)
    for name, values in attributes.items():
        template = next((text for key, text in BY_ATTRIBUTE.items() if name.startswith(key)), None)
        if template is not None:
            texts.append(template.format(values=", ".join(map(code, values))))
    return texts


def caution_lines(
    attributes: Mapping[str, Sequence[str]], grids: Mapping[str, int]
) -> Iterable[str]:
    """Yield the lines of a card's section on the grids, their labels, and the cautions for them."""
    named = ", ".join(f"{code(name)} ({number(count)} sets)" for name, count in grids.items())
    yield from ("## What the labels are, and what they are not", "", f"Grids: {named}.", "")
    yield from (f"- {code(name)}: {', '.join(map(code, v))}" for name, v in attributes.items())
    yield ""
    yield from (f"- {caution}" for caution in cautions(attributes))
    yield ""
