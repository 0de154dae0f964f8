"""``evaluate.py table=...``: a paper's table or figure, from the runs under ``paths.runs``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, say
from cfaug.planning.build import build
from cfaug.run.launch import DONE

FOLDER = "tables"


def write_table(table: Mapping[str, Any], root: Path) -> int:
    """Make one table: print it, write it in every format, and add it to the page of all tables.

    Args:
        table: the node of the table, from ``conf/table``.
    """
    from cfaug.report.arm_results import Runs
    from cfaug.report.paper_tables import write_tables_page
    from cfaug.report.writers import to_markdown, write_document

    if "_target_" not in table:
        raise UserError("table=... is one of the paper's: python evaluate.py --help lists them")
    runs = Runs(root)
    document = build(table).build(runs)
    document = replace(document, notes=(*document.notes, *runs.left_out))
    say(to_markdown(document), sys.stdout)
    paths = write_document(document, root / FOLDER)
    page = write_tables_page(root / FOLDER)
    say("wrote " + ", ".join(str(path) for path in [*paths, page]), sys.stdout)
    return DONE
