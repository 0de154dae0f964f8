"""The dataset card and datasheet beside an export: what is known, and what is still to be written.

The datasheet asks the questions of Gebru et al. (Datasheets for Datasets, 2021) that the
COCO-Counterfactuals paper answers in its appendix C.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cfaug.data.exporters.cautions import caution_lines
from cfaug.data.exporters.datasheet import datasheet
from cfaug.data.exporters.facts import About, Facts
from cfaug.data.exporters.text import TODO, code, number, table

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

SCORE = "a score of the set, by which sets were selected"
"""Meaning of a column that a recipe's own scorer has named."""

CAVEATS = (
    "- The scores are those that selected the sets. A model of the scoring model's family meets "
    "data that was chosen to please it: evaluate with another.",
    "- Captions say what was asked for, and not every image shows it. In COCO-Counterfactuals, "
    "made by this method with Stable Diffusion, people matched 73 % of the images to their "
    "caption (section 4.1).",
)


def write_card(
    folder: Path, about: About, facts: Facts, columns: Mapping[str, str], split: str
) -> None:
    """Write ``README.md``, which the Hub shows, and ``DATASHEET.md``."""
    card = "\n".join([*_header(about, facts, columns, split), *_body(about, facts, columns)])
    (folder / "README.md").write_text(card + "\n", encoding="utf-8")
    (folder / "DATASHEET.md").write_text(datasheet(about, facts), encoding="utf-8")


def _header(about: About, facts: Facts, columns: Mapping[str, str], split: str) -> list[str]:
    import yaml

    rows = facts.sets if "image_0" in columns else facts.members
    content: dict[str, Any] = {
        "pretty_name": about.name,
        **({} if about.license is None else {"license": about.license}),
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
    return ["---", yaml.safe_dump(content, sort_keys=False, allow_unicode=True).rstrip(), "---", ""]


def _size(rows: int) -> str:
    """Return the Hub's name for a size.

    >>> _size(999), _size(17_410)
    ('n<1K', '10K<n<100K')
    """
    names = ["1K", "10K", "100K", "1M", "10M", "100M"]
    place = next((i for i, size in enumerate(SIZES) if rows < size), len(SIZES))
    if place == 0:
        return "n<1K"
    return f"{names[place - 1]}<n<{names[place]}" if place < len(names) else "n>100M"


def _body(about: About, facts: Facts, columns: Mapping[str, str]) -> list[str]:
    split_name = "`group`" if "group" in columns else "`group` (in `about`)"
    described = ([name, kind, MEANINGS.get(name, SCORE)] for name, kind in columns.items())
    return [
        f"# {about.name}",
        "",
        about.description or f"{TODO} one paragraph: what this is and whom it is for.",
        "",
        f"{number(facts.sets)} sets with {number(facts.members)} image-text pairs, from "
        f"{number(len(facts.groups))} groups. Members of a set differ by "
        f"{'their attributes' if facts.grids else 'one edit'}.",
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        'data = load_dataset("parquet", data_files="data/*.parquet")',
        "```",
        "",
        "## Columns",
        "",
        *table(
            ["column", "type", "meaning"],
            described,
        ),
        "",
        "## How it was made",
        "",
        *_made(about, facts),
        "",
        *_edits(facts),
        *_scores(facts),
        *(caution_lines(facts.attributes, facts.grids) if facts.grids else ()),
        "## Before you use it",
        "",
        f"- Split by {split_name}: sets of one group share a photo, a caption or a subject.",
        *(CAVEATS if facts.numbers else ()),
        "- [DATASHEET.md](DATASHEET.md) answers the questions of Gebru et al. (2021); where only "
        f"the publisher knows, it says {TODO}",
        "",
        "## Licence",
        "",
        f"{code(about.license)}." if about.license else f"{TODO} choose one.",
        "The licences of the captions and of the models above apply as well.",
    ]


def _made(about: About, facts: Facts) -> Iterable[str]:
    captions = about.captions or f"{TODO} where they came from, and under which licence."
    yield f"Captions: {captions}"
    yield ""
    if facts.made_by:
        counts = facts.made_by.most_common()
        yield from table(["recipe and models", "sets"], ([code(n), number(c)] for n, c in counts))
    else:
        yield f"{TODO} the sets do not say how they were made."
    if facts.models:
        yield ""
        pairs = [(part, model) for part, models in facts.models.items() for model in sorted(models)]
        yield from table(["part", "model"], ([code(part), code(model)] for part, model in pairs))


def _edits(facts: Facts) -> list[str]:
    if not facts.kinds:
        return []
    rows = ([code(kind), number(count)] for kind, count in facts.kinds.most_common())
    return ["## Edits", "", *table(["kind", "members"], rows), ""]


def _scores(facts: Facts) -> list[str]:
    if not facts.numbers:
        return []
    rows = (
        [code(name), number(len(v)), *(f"{f(v):.3f}" for f in (min, statistics.median, max))]
        for name, v in facts.numbers.items()
    )
    return ["## Scores", "", *table(["", "sets", "lowest", "median", "highest"], rows), ""]
