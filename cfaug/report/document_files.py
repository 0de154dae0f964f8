"""Write a document in every format, side by side."""

from __future__ import annotations

from pathlib import Path

from cfaug.report.document import Document
from cfaug.report.document_figures import draw_figures
from cfaug.report.drawing import write_pdfs
from cfaug.report.latex import to_latex
from cfaug.report.markdown import to_markdown
from cfaug.report.page import write_page
from cfaug.report.spreadsheet import to_csv


def write_document(document: Document, folder: Path) -> list[Path]:
    """Write ``<name>.tex``, ``.md``, ``.csv`` and ``.json``, whole or not at all; return the paths.

    ``.json`` is the document itself, from which the page of all tables is made. Its figures are
    ``<name>-1.pdf`` and so on.

    Args:
        document: tables and figures to write.
        folder: destination of the files.
    """
    texts = {
        "tex": to_latex(document), "md": to_markdown(document), "csv": to_csv(document),
        "json": document.to_json(),
    }  # fmt: skip
    files = [write_page(folder / f"{document.name}.{kind}", text) for kind, text in texts.items()]
    drawings = [drawing for _, drawing, _ in draw_figures(document)]
    return files + write_pdfs(drawings, folder, document.name)
