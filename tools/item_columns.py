"""Write docs/items.md: the columns of every benchmark's items, from their schemas.

python tools/item_columns.py        # after a schema changed; a test compares
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from cfaug.core.item_schema import ItemSchema
from cfaug.core.plugins import plugins

PAGE = Path(__file__).resolve().parent.parent / "docs" / "items.md"
HEAD = """# Items: a model's answer to every test item

`evaluate.py` writes `items/<benchmark>.parquet` beside a run's results, one row for each test item:
for your own analysis (`pandas.read_parquet`), and for the tests over items
([statistics](statistics.md)). The mean of a metric's column is the number in `results.jsonl`; a
value is null where the item does not count. This page is made from the benchmarks themselves
(`tools/item_columns.py`).
"""


def schemas() -> Iterator[tuple[str, ItemSchema]]:
    """Yield the value of ``benchmark=``, and the columns of its items; last those of plug-ins."""
    from cfaug.evaluation.choices.caption_choice import CaptionChoice
    from cfaug.evaluation.choices.pairs import PairMatching
    from cfaug.evaluation.classification import Classification
    from cfaug.evaluation.editor_report import EDIT_ITEMS
    from cfaug.evaluation.linear_probe import LinearProbe
    from cfaug.evaluation.questions.question_items import ANSWER_ITEMS
    from cfaug.evaluation.retrieval import Matching, Retrieval
    from cfaug.evaluation.stress.stress_items import STRESS_ITEMS
    from cfaug.evaluation.text_pairs.entailment_items import ENTAILMENT_ITEMS

    yield "`benchmark=retrieval`", Retrieval.item_schema
    yield "`benchmark=classification`", Classification.item_schema
    yield "`benchmark=linear_probe`", LinearProbe.item_schema
    yield "`benchmark=matching`", Matching.item_schema
    yield "`benchmark=pairs`", PairMatching.item_schema
    yield "`benchmark=choice`", CaptionChoice.item_schema
    yield "`benchmark=stress`", STRESS_ITEMS
    yield "`benchmark=edit_quality`", EDIT_ITEMS
    yield "`benchmark=entailment`", ENTAILMENT_ITEMS
    yield "`benchmark=vqa`", ANSWER_ITEMS
    for plugin in plugins():
        if plugin.package and (plugin.folder / "item_schemas.py").is_file():
            module = import_module(f"{plugin.package}.item_schemas")
            yield from module.ITEM_SCHEMAS.items()


def table(schema: ItemSchema) -> str:
    """Return the columns of a schema as Markdown."""
    lines = ["| column | kind | meaning |", "|---|---|---|"]
    for column in schema.columns:
        meaning = column.meaning.replace("``", "`").replace("|", "\\|")
        lines.append(f"| `{column.name}` | {column.kind} | {meaning} |")
    row = schema.row.removeprefix("a ").removeprefix("an ")
    if schema.tags:
        lines += ["", f"Further columns: {schema.tags.replace('``', '`')}."]
    return "\n".join([f"One row per {row}.", "", *lines, ""])


def render() -> str:
    """Return the page."""
    return HEAD + "".join(f"\n## {name}\n\n{table(schema)}" for name, schema in schemas())


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
