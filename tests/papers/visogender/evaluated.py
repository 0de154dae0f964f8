"""The benchmark on tiny sources, for ``tests/run/test_unread_properties.py``."""

from __future__ import annotations

from tests.papers.visogender.making import lay_photos, oo_rows, op_rows, write_tsv
from tests.run.evaluated_sources import Case

MAKERS = {
    "people": lambda path: lay_photos(path, [*oo_rows(), *op_rows()]),
    "OO": lambda path: write_tsv(path, oo_rows()),
    "OP": lambda path: write_tsv(path, op_rows()),
}
CASES = {
    "visogender": Case(
        ("benchmark=visogender", "benchmark.data=[@OO.tsv,@OP.tsv]", "benchmark.images=@people"),
        {"data": ["@OO.tsv"], "ks": [3], "zeros": "one", "templates": {
            "occupation": "{person}: {pronoun} {other}",
            "participant": "{other}: {pronoun} {person}"},
         "images": "/nowhere"},
        {"images": "nowhere"},
    ),
}  # fmt: skip
