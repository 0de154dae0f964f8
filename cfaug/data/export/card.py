"""The dataset card and datasheet of an export: known facts, and marks for missing ones.

The datasheet asks the questions of Gebru et al. (Datasheets for Datasets, 2021) that the
COCO-Counterfactuals paper answers in its appendix C.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path

from cfaug.core.cards import CARD, Card, code, number
from cfaug.data.export.cautions import caution_lines, cautions
from cfaug.data.export.facts import Facts, PublisherStatements

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
    card = _dataset_card(about, facts, columns, split)
    (folder / CARD).write_text(card, encoding="utf-8")
    (folder / "DATASHEET.md").write_text(_datasheet(about, facts), encoding="utf-8")


def _dataset_card(
    about: PublisherStatements, facts: Facts, columns: Mapping[str, str], split: str
) -> str:
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
    return Card("DatasetCard", metadata, [TEMPLATES / "card.md"], values).fill()


def _datasheet(about: PublisherStatements, facts: Facts) -> str:
    """Return the datasheet, a template of its own as it has no metadata."""
    from jinja2 import Template

    def codes(values: Iterable[str]) -> str:
        return ", ".join(map(code, values))

    template = Template((TEMPLATES / "datasheet.md").read_text(encoding="utf-8"))
    text = template.render(
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
    return f"{text}\n"


def _size(rows: int) -> str:
    """Return the Hub's size category of a number of rows.

    >>> _size(999), _size(17_410)
    ('n<1K', '10K<n<100K')
    """
    names = ["1K", "10K", "100K", "1M", "10M", "100M"]
    place = next((i for i, size in enumerate(SIZES) if rows < size), len(SIZES))
    if place == 0:
        return "n<1K"
    return f"{names[place - 1]}<n<{names[place]}" if place < len(names) else "n>100M"
