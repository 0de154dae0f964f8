"""``evaluate.py compare=[A.csv,B.csv]``: compare models item by item, from files of items."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.messages import say
from cfaug.run.build import build
from cfaug.run.launch import DONE

FOLDER = "compared"
LONGEST_NAME = 100


def compare_files(files: Sequence[str] | str, columns: Mapping[str, Any], root: Path) -> int:
    """Compare files of items, print the table, and write it in every form.

    Args:
        files: two or more lists of items (csv, tsv, jsonl, json).
        columns: the node that assigns the files' columns.
        root: the folder of all runs; tables are written into its folder ``compared``.

    Raises:
        UserError: if the files cannot be read or matched.
    """
    from cfaug.report.document_files import write_document
    from cfaug.report.item_file_comparison import compare_item_files, comparison_document
    from cfaug.report.item_files import read_item_files, shown_names
    from cfaug.report.markdown import to_markdown
    from cfaug.report.tables_page import write_tables_page

    given = [files] if isinstance(files, str) else list(files)
    paths = [Path(file).expanduser() for file in given]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise UserError(f"compare: there is no file {missing[0]}")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UserError("compare: a file is named twice")
    answers = read_item_files(paths, build(columns))
    found = compare_item_files(answers)
    document = comparison_document(answers, found, _name(shown_names(paths)))
    say(to_markdown(document), sys.stdout)
    written = write_document(document, root / FOLDER)
    page = write_tables_page(root / FOLDER)
    say("wrote " + ", ".join(str(path) for path in [*written, page]), sys.stdout)
    return DONE


def _name(shown: Sequence[str]) -> str:
    """Return the name of the table that compares some files.

    >>> _name(["a/b c", "d"]), _name(["a", "b", "c"])
    ('a_b_c-against-d', 'a-against-b-and-1-more')
    """
    more = f"-and-{len(shown) - 2}-more" if len(shown) > 2 else ""
    words = [re.sub(r"[^\w.-]+", "_", name)[: LONGEST_NAME // 2] for name in shown[:2]]
    return "-against-".join(words) + more
